"""Writes the DSNs that are due after a delivery attempt."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import field
from datetime import datetime, timedelta

import structlog

from shadowrelay.core.decisions import Content
from shadowrelay.core.delivery.journal import JournalCopy, Journals, journal_of
from shadowrelay.core.delivery.retry import expires_at, since
from shadowrelay.core.delivery.settling import AttemptResult, Ending, Report
from shadowrelay.core.events.reports import ReportKind, is_due, report_id, returns_whole_message
from shadowrelay.core.identifiers import NextHop, ServerName
from shadowrelay.core.messages import Copy, Recipient
from shadowrelay.core.policy import Policy
from shadowrelay.core.reception.routing import Route, next_hop_of, route_for
from shadowrelay.core.recipients import LISTS, AddressBook, no_book
from shadowrelay.core.steps import WriteReports
from shadowrelay.core.values import dataclass
from shadowrelay.database.content import ContentDamaged, head
from shadowrelay.wire.report import build_report
from shadowrelay.wire.report_fields import mta

log = structlog.get_logger(__name__)

HEADER = 256 * 1024  # octets of the original that are read to return only its header
WHOLE = 1 << 20  # octets of the longest original that is returned whole


def _aged(next_hop: NextHop, received_at: datetime) -> timedelta:
    del next_hop, received_at
    return timedelta(0)


def _as_it_is(at: datetime) -> datetime:
    return at


@dataclass(frozen=True, slots=True)
class Reporter:
    """Writes DSNs, and says which journal copy a message has. ``routes`` tell the next hop for the sender's
    address. ``not_aged``: how long a message to a next hop, received then, did not age. ``wall``: what the
    wall clock says for a time of ours.
    """

    name: ServerName
    routes: Sequence[Route]
    policy: Policy
    clock: Callable[[], datetime]
    journals: Journals = field(default_factory=dict)
    book: Callable[[], AddressBook] = no_book
    not_aged: Callable[[NextHop, datetime], timedelta] = _aged
    wall: Callable[[datetime], datetime] = _as_it_is

    async def write(self, step: WriteReports, content: Content) -> tuple[Report | JournalCopy, ...]:
        """One report for each recipient whose sender is to be told how the attempt ended, and the journal
        copy of the message, if it has one.
        """
        recipients = {recipient.number: recipient for recipient in step.copy.recipients}
        reports = []
        for result in step.results:
            recipient = recipients[result.number]
            kind = self._kind(step, result)
            if kind is not None and is_due(kind, recipient, step.copy.envelope):
                reports.append(await self._build(step, recipient, result, kind, content, self.clock()))
        journal = journal_of(step.copy, self.journals, self._behind_lists(step.copy))
        return (*reports, journal) if journal else tuple(reports)

    def _kind(self, step: WriteReports, result: AttemptResult) -> ReportKind | None:
        match result.ending:
            case Ending.REJECTED | Ending.EXPIRED | Ending.REMOVED:
                return ReportKind.FAILED
            case Ending.ACCEPTED | Ending.DUPLICATE if step.hop.mailbox:
                return ReportKind.DELIVERED
            case Ending.POSTED:
                return ReportKind.DELIVERED
            case Ending.EXPANDED:
                return ReportKind.EXPANDED
            case Ending.ACCEPTED | Ending.DUPLICATE if not step.dsn_offered:
                return ReportKind.RELAYED
            case Ending.DEFERRED | Ending.IN_DOUBT | Ending.UNREADABLE if result.late:
                return ReportKind.DELAYED
        return None

    def _until(self, copy: Copy, recipient: Recipient) -> datetime:
        """When the message is too old. It does not age while it is suspended, or its queue is."""
        spent = self.not_aged(recipient.next_hop, copy.received_at)
        return expires_at(since(copy, (recipient,)) + spent, self.policy)

    def _behind_lists(self, copy: Copy) -> Iterator[NextHop]:
        """The next hops of its lists' members: what is sent to them is not journaled once more."""
        for one in copy.recipients if self.journals else ():
            found = self.book().expand(one.address) if one.next_hop == LISTS else None
            for member in found.members if found else ():
                if route := route_for(member.address, self.routes):
                    yield route.name

    async def _quoted(self, copy: Copy, content: Content, most: int) -> bytes:
        """The beginning of the original, at most ``most`` octets. Raises ContentDamaged."""
        digest = copy.digests.content if copy.digests else None
        return await head(content, digest, most) if digest else b""

    async def _build(
        self,
        step: WriteReports,
        recipient: Recipient,
        result: AttemptResult,
        kind: ReportKind,
        content: Content,
        now: datetime,
    ) -> Report:
        copy = step.copy
        whole = returns_whole_message(kind, copy.envelope) and copy.envelope.size <= WHOLE
        try:
            original = await self._quoted(copy, content, WHOLE if whole else HEADER)
        except (OSError, ContentDamaged) as error:  # the report is written without the original
            log.error("content_unreadable", message=copy.id, error=str(error))
            original = b""
        report = report_id(copy.id, recipient.number, kind)
        text = build_report(
            report_id=report,
            reporting_mta=self.name,
            envelope=copy.envelope,
            received_at=self.wall(copy.received_at),
            recipient=recipient,
            kind=kind,
            reply=result.reply,
            remote_mta=mta(step.hop.server) if result.remote and step.hop.server else None,
            now=self.wall(now),
            will_retry_until=self.wall(self._until(copy, recipient)) if kind is ReportKind.DELAYED else None,
            original=original,
            original_is_complete=whole and len(original) == copy.envelope.size,
        )
        return Report(
            id=report,
            about=recipient.number,
            content=text,
            next_hop=next_hop_of(copy.envelope.sender, self.routes) or NextHop(""),
            settles=kind is not ReportKind.DELAYED,
        )
