"""The intake of a connector with filters: a message is spooled, filtered, and then offered and committed.

Without filters nothing here runs. The digest of both copies is that of what the filters made of the content;
a repeat is known by what the client sent.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any, cast

import structlog

from shadowrelay.core.decisions import Content
from shadowrelay.core.digests import ContentDigest, of_envelope
from shadowrelay.core.hops import Handed
from shadowrelay.core.identifiers import MessageId, ServerName
from shadowrelay.core.messages import TlsWish
from shadowrelay.core.reception.filtered import dropped, quarantined
from shadowrelay.core.reception.redundancy import Answer, Arrival
from shadowrelay.core.steps import OfferCopy
from shadowrelay.core.values import dataclass, replace
from shadowrelay.database.content import Spool
from shadowrelay.reception.changes import ContentLimits, FilteredMessage, fields_of
from shadowrelay.reception.filters import PUT_OFF, FilterChain, Filtering
from shadowrelay.reception.intake import Intake, IntakeSink
from shadowrelay.reception.shadow_session import ShadowSession
from shadowrelay.reception.two_copies import Decided
from shadowrelay.smtp.receiving.contract import Client
from shadowrelay.wire.esmtp import MailFrom, RcptTo
from shadowrelay.wire.header import HeaderScan
from shadowrelay.wire.replies import Refused, Reply

log = structlog.get_logger(__name__)


class PatientSession(ShadowSession):
    """A shadow session that says nothing of the message before it is asked for the whole offer: filters may
    still change what it offers.
    """

    def announce(self, step: Callable[[ServerName], OfferCopy]) -> None:
        pass


@dataclass(frozen=True, slots=True)
class FilteredAs:
    """The transaction that is filtered: its filters, and the envelope as the client gave it."""

    intake: FilteredIntake
    chain: FilterChain
    mail: MailFrom
    recipients: Sequence[RcptTo]
    limits: ContentLimits


class FilteredIntake(Intake):
    """The ``Receiver`` of a connector with filters. ``limits``: what these may make of a message."""

    _shadow_session = PatientSession

    def __init__(self, *args: Any, filtering: Filtering, limits: ContentLimits, **options: Any) -> None:
        super().__init__(*args, **options)
        self._sink = FilteredSink
        self._filtering = filtering
        self._limits = limits
        self._chains: dict[str, FilterChain] = {}

    async def mail(self, session: Client, mail: MailFrom) -> Reply | None:
        refused = await super().mail(session, mail)
        if refused is not None:
            return refused
        chain = self._chains[session.id] = FilterChain(self._filtering, session, mail)
        try:
            refused = await chain.begin()
        except BaseException:
            await self.reset(session)
            raise
        if refused is not None:
            await self.reset(session)
        return refused

    async def rcpt(
        self, session: Client, mail: MailFrom, rcpt: RcptTo, accepted: Sequence[RcptTo]
    ) -> Reply | None:
        refused = await super().rcpt(session, mail, rcpt, accepted)
        return await self._chains[session.id].rcpt(rcpt) if refused is None else refused

    async def content(
        self,
        session: Client,
        mail: MailFrom,
        recipients: Sequence[RcptTo],
        handed: Callable[[MessageId], Handed] | None = None,
    ) -> IntakeSink:
        sink = cast("FilteredSink", await super().content(session, mail, recipients, handed))
        sink.filter_by(FilteredAs(self, self._chains.pop(session.id), mail, recipients, self._limits))
        return sink

    async def reset(self, session: Client) -> None:
        chain = self._chains.pop(session.id, None)
        if chain is not None:
            chain.close()
        await super().reset(session)

    def readdressed(self, arrival: Arrival, message: FilteredMessage, asked: Sequence[RcptTo]) -> Arrival:
        """The arrival with the envelope that the filters made. ``asked``: whom the client named.
        Raises Refused: a recipient was added for whom there is no way.
        """
        for one in message.recipients:
            if one not in asked and (refused := self._addressing.refused(one, trusted=True)):
                log.error("filter_added_no_recipient", recipient=one.address, reply=str(refused))
                raise Refused.by(PUT_OFF)
        addressed, rewritten = self._addressing.recipients(message.recipients, merge=True)
        envelope = replace(arrival.envelope, sender=message.sender)
        digests = replace(arrival.digests, envelope=of_envelope(envelope, addressed))
        left = {one.address for one in addressed}
        removed = tuple(one.address for one in arrival.recipients if one.address not in left)
        readdressed = replace(arrival, envelope=envelope, recipients=addressed, digests=digests)
        return replace(readdressed, rewritten=rewritten, removed=removed)


class FilteredSink(IntakeSink):
    """Takes in one message that filters see before anybody keeps it."""

    _stream_from = sys.maxsize  # no member gets octets that a filter may still change
    given: FilteredAs

    def filter_by(self, given: FilteredAs) -> None:
        self.given = given
        if self._late is not None:  # what the client sent is not in the spool any more when it is asked for
            self._as_sent = ContentDigest()
        self._head = b""
        self._spare: list[Spool] = []

    def _header(self) -> bytes:
        self._head = super()._header()
        return self._head

    async def abort(self) -> None:
        self.given.chain.close()
        await super().abort()

    async def _sealed(self) -> Content:
        try:
            await self._filter()
        except BaseException:
            self._spool.discard()
            raise
        finally:
            self.given.chain.close()
            for spool in self._spare:
                if spool is not self._spool:
                    spool.discard()
        return await super()._sealed()

    async def _filter(self) -> None:
        given, arrival = self.given, self._arrival
        trace, *fields = fields_of(self._head)
        message = FilteredMessage(
            trace=trace,
            fields=tuple(fields),
            spool=self._spool,
            body_at=len(self._head) + 2,
            sender=given.mail.sender,
            recipients=tuple(given.recipients),
            smtputf8=given.mail.smtputf8,
            limits=given.limits,
            another=self._another,
        )
        try:
            done = await given.chain.content(message, {"i": arrival.id})
            if done.reply is not None:
                raise refused_by(done.reply)
            if done.discarded or not done.message.recipients:
                await self._drop(done.discarded or "no recipient is left")
                raise refused_by(self._accepted(arrival.id))  # for the client it is accepted
            await self._take(message, done.message)
        except OSError as error:
            raise self._no_room(error) from error

    async def _take(self, before: FilteredMessage, after: FilteredMessage) -> None:
        if after.altered:
            written = self._another()
            await after.write(written)
            former, self._spool = self._spool, written
            former.discard()
            self._describe(b"".join(after.fields))
        if (after.sender, after.recipients) != (before.sender, before.recipients):
            self._arrival = self.given.intake.readdressed(self._arrival, after, self.given.recipients)
        if unfiltered := "+".join(self.given.chain.unfiltered):
            self._arrival = replace(self._arrival, unfiltered=unfiltered)
        if after.quarantined:
            self._arrival = quarantined(self._arrival, after.quarantined, self._intake.clock())

    async def _accept(self, content: Content) -> Decided:
        decided = await super()._accept(content)
        late = decided.admitted
        if decided.answer is Answer.ACCEPTED and (late is None or late.made):
            self.given.chain.taken()
        return decided

    def _describe(self, section: bytes) -> None:
        """What the header section says, as the filters left it."""
        scan = HeaderScan()
        scan.feed(section + b"\r\n")
        before = self._arrival.envelope
        tls = before.tls if before.tls is TlsWish.REQUIRED else scan.tls
        envelope = replace(before, message_id=scan.message_id, subject=scan.subject, tls=tls)
        self._arrival = replace(self._arrival, envelope=envelope)

    async def _drop(self, by: str) -> None:
        """The message ends here, as a filter wants it. Its row is durable before the client gets its 250."""
        intake, arrival = self._intake, self._arrival
        size = replace(arrival.envelope, size=self._spool.size)
        gone = replace(arrival, envelope=size)
        await intake.database.transact_briefly(
            lambda ledger: ledger.apply(dropped(ledger, gone, by, intake.clock()))
        )

    def _another(self) -> Spool:
        spool = Spool(self._intake.options.content, f"{self._arrival.id}.{len(self._spare)}")
        self._spare.append(spool)
        return spool


def refused_by(reply: Reply) -> Refused:
    """The exception for a reply of any number of lines."""
    refused = Refused.by(reply)
    refused.reply = reply
    return refused
