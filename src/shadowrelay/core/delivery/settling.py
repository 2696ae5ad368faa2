"""Settling: what becomes of recipients when an attempt at their next hop ends, or their list is expanded."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from enum import Enum

from shadowrelay.core.decisions import Content, DamagedRow, Decision, SaveCopy, SaveDamaged, Write
from shadowrelay.core.delivery.hop_shadows import Tracker, taken
from shadowrelay.core.delivery.journal import JournalCopy, journaled, queue_once
from shadowrelay.core.digests import of_content, of_envelope
from shadowrelay.core.events.discard_notices import addressed, announced, listeners, to_giver, unread
from shadowrelay.core.events.reports import derived_id
from shadowrelay.core.events.side_effects import already_safe, report_is_safe
from shadowrelay.core.identifiers import MessageId, NextHop
from shadowrelay.core.ledger import Ledger
from shadowrelay.core.messages import Copy, Digests, Envelope, Recipient, Status, TlsWish, Unread
from shadowrelay.core.operating import By
from shadowrelay.core.ownership.transfer import made_here, settled_now
from shadowrelay.core.recipients import LISTS, AddressBook, folded
from shadowrelay.core.tracking import (
    Defer,
    Deliver,
    Dsn,
    DuplicateDeliver,
    Expand,
    Fail,
    OperatorFail,
    OperatorRemove,
    Send,
    SendExternal,
    ToMembers,
    Tracked,
)
from shadowrelay.core.tracking_row import TrackingEvent
from shadowrelay.core.values import dataclass, replace


class Ending(Enum):
    """How an attempt ended for one recipient.

    DUPLICATE: the mailbox server accepted the message, and dropped it because it had it already. IN_DOUBT:
    the final dot was written, at least in part, and no reply to it came. The recipient is tried again, which
    may make a duplicate that nobody can avoid (RFC 1047). UNREADABLE: the next hop took the content, and what
    it answered is no reply. Each further try may make a duplicate, so the pauses between them grow. EXPIRED:
    the message was too old for another try. EXPANDED: a list, whose members get the message from its sender.
    POSTED: a list with an owner, from whom its members get the message: that is final delivery (RFC 3461
    5.2.7). REMOVED: an operator removed it.
    """

    ACCEPTED = "accepted"
    DUPLICATE = "duplicate"
    DEFERRED = "deferred"
    REJECTED = "rejected"
    IN_DOUBT = "in doubt"
    UNREADABLE = "unreadable"
    EXPIRED = "expired"
    EXPANDED = "expanded"
    POSTED = "posted"
    REMOVED = "removed"


@dataclass(frozen=True, slots=True)
class AttemptResult:
    """The result for one recipient. ``retry_after`` counts from now, for endings that do not settle."""

    number: int
    ending: Ending
    reply: str
    retry_after: timedelta = timedelta(0)
    remote: bool = True  # the reply came from the next hop, not from this node
    late: bool = False  # the message is so old that its sender is told of the delay, once


@dataclass(frozen=True, slots=True)
class Hop:
    """The next hop of an attempt, as far as its outcome depends on it."""

    server: str
    inside: bool  # inside the boundary: Safety Net may resubmit
    mailbox: bool  # LMTP: the message reached its mailbox
    tracks: Tracker | None = None  # beyond the boundary: it tells us when it has delivered


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A DSN about one recipient, ready to be queued. ``settles``: the recipient waits until it is safe."""

    id: MessageId
    about: int
    content: bytes
    next_hop: NextHop
    settles: bool = True


def settle(
    ledger: Ledger,
    message_id: MessageId,
    results: Sequence[AttemptResult],
    reports: Iterable[Report | JournalCopy | Expansion],
    hop: Hop,
    now: datetime,
    *,
    sent: Copy | None = None,
    by: By | None = None,
) -> Decision[Copy | None]:
    """Record how an attempt ended for each recipient, in one transaction. The result is the copy afterwards.

    This works in any role: if the message was taken over during the attempt, the outcome is told to the new
    owner. Recipients settled meanwhile keep their state; if the next hop accepted them, the tracking log has
    that too. ``sent``: the message as it was when the attempt began, in case its rows can no longer be
    believed. ``by``: an operator ends it, and no attempt.
    """
    copy = ledger.copy(message_id)
    if copy is None:
        rows = ledger.damaged(message_id)
        if rows is None or sent is None:
            return Decision(None)
        return _settle_rows(ledger, rows, sent, results, _journal_in(reports), hop, now)
    by_number = {recipient.number: recipient for recipient in copy.unsettled}
    current = [result for result in results if result.number in by_number]
    reports = tuple(reports)
    made = [one for one in reports if isinstance(one, Report) and one.about in by_number]
    lists = [one for one in reports if isinstance(one, Expansion) and one.about in by_number]
    awaited = {one.about: one.id for one in made if one.settles and not already_safe(ledger, one.id)}
    awaited |= {one.about: one.id for one in lists if not already_safe(ledger, one.id)}
    changed = [_after(by_number[result.number], result, hop, awaited, now) for result in current]
    kept = [one.number for one in changed if one.status not in (Status.READY, Status.REMOVED)]
    copied: Decision[MessageId | None] = Decision(None)
    if kept:  # a settlement of this kind goes to the journal
        copied = journaled(ledger, copy, _journal_in(reports), now)
    if copied.then:
        changed = [replace(one, journal=copied.then) if one.number in kept else one for one in changed]
    after = copy.with_recipients(changed)
    last = not after.unsettled
    if last:
        after = settled_now(after, now)
    settled = [recipient for recipient in changed if recipient.status is not Status.READY]
    writes: list[Write] = [SaveCopy(copy, after)] if after != copy else []
    writes += announced(ledger, after, settled, now)
    if Ending.UNREADABLE in [one.ending for one in current]:
        writes += addressed(listeners(after), unread(after, changed), now)
    if hop.tracks is not None:
        accepted = {one.number for one in current if one.ending in (Ending.ACCEPTED, Ending.DUPLICATE)}
        writes += taken(ledger, message_id, accepted, hop.tracks, now)
    events: list[Tracked] = []
    events += _told(after, current, changed, hop, now, by)
    if results[len(current) :]:
        events += _told_again(after, results, by_number, hop, now)
    once = {one.id: one.about for one in reversed(lists)}  # two recipients may be one list
    by_list = [
        queue_expansion(ledger, after, one, results, now, first=once[one.id] == one.about) for one in lists
    ]
    for queued in (copied, *by_list, *[_queue_report(ledger, after, report, now) for report in made]):
        writes += queued.writes
        events += queued.events
    if last and after.reports_on:
        writes += report_is_safe(ledger, after, now).writes
    return Decision(after, tuple(writes), tuple(events))


def _journal_in(reports: Iterable[Report | JournalCopy | Expansion]) -> JournalCopy | None:
    return next((one for one in reports if isinstance(one, JournalCopy)), None)


def _settle_rows(
    ledger: Ledger,
    rows: DamagedRow,
    sent: Copy,
    results: Sequence[AttemptResult],
    journal: JournalCopy | None,
    hop: Hop,
    now: datetime,
) -> Decision[Copy | None]:
    """Record the accepted recipients beside rows that cannot be believed, so that nothing is sent twice.

    Of what a hop tracks, a peer that handed the message over hears nothing until the rows are replaced, and
    keeps its copy: from these rows nothing could be sent again.
    """
    done = [one for one in results if one.ending in (Ending.ACCEPTED, Ending.DUPLICATE)]
    odd = [one for one in results if one.ending is Ending.UNREADABLE]
    by_number = {recipient.number: recipient for recipient in sent.recipients}
    changed = [_after(by_number[one.number], one, hop, {}, now) for one in done]
    settled = dict(rows.settled) | {one.number: one.status for one in changed}
    saved = SaveDamaged(replace(rows, settled=tuple(sorted(settled.items()))))
    more: tuple[Write, ...]
    if hop.tracks:
        more = taken(ledger, sent.id, {one.number for one in done}, hop.tracks, now)
    else:
        more = to_giver(ledger, sent.id, changed, now)
    more += addressed(
        listeners(sent), unread(sent, [_after(by_number[one.number], one, hop, {}, now) for one in odd]), now
    )
    told: Decision[Copy | None] = Decision(None, (saved, *more), tuple(_told(sent, done, changed, hop, now)))
    first = bool(done) and not rows.settled
    return told.after(journaled(ledger, sent, journal, now)) if first else told


def _after(
    recipient: Recipient,
    result: AttemptResult,
    hop: Hop,
    awaited: Mapping[int, MessageId],
    now: datetime,
) -> Recipient:
    attempts = recipient.attempts + (result.ending is not Ending.REMOVED)
    match result.ending:
        case Ending.ACCEPTED | Ending.DUPLICATE:
            status = Status.DELIVERED if hop.inside else Status.RELAYED
        case Ending.EXPANDED | Ending.POSTED:  # Safety Net gives the members' message back, and not this one
            status = Status.RELAYED
        case Ending.REJECTED | Ending.EXPIRED:
            status = Status.FAILED
        case Ending.REMOVED:
            status = Status.REMOVED
        case Ending.UNREADABLE:
            unread = Unread(1 + (recipient.unread.tries if recipient.unread else 0), hop.server)
            return replace(_deferred(recipient, result, now), unread=unread)
        case Ending.DEFERRED | Ending.IN_DOUBT:
            return _deferred(recipient, result, now)
    return replace(
        recipient,
        status=status,
        attempts=attempts,
        next_attempt=None,
        last_reply=result.reply,
        report=awaited.get(recipient.number),
        settled_at=now,
    )


def _deferred(recipient: Recipient, result: AttemptResult, now: datetime) -> Recipient:
    return replace(
        recipient,
        attempts=recipient.attempts + 1,
        next_attempt=now + result.retry_after,
        last_reply=result.reply,
        delay_notified=recipient.delay_notified or result.late,
    )


def _told(
    copy: Copy,
    results: Sequence[AttemptResult],
    changed: Sequence[Recipient],
    hop: Hop,
    now: datetime,
    by: By | None = None,
) -> Iterator[TrackingEvent]:
    """One row per kind of ending and reply, so that a row's reply is that of all its recipients."""
    groups: dict[tuple[Ending, str, MessageId | None], list[Recipient]] = {}
    for result, recipient in zip(results, changed, strict=True):
        groups.setdefault((result.ending, result.reply, recipient.report), []).append(recipient)
    for (ending, reply, report), members in groups.items():
        about = tuple(members)
        match ending:
            case Ending.ACCEPTED if hop.mailbox:
                yield Deliver(at=now, copy=copy, recipients=about, server=hop.server, reply=reply)
            case Ending.ACCEPTED if hop.inside:
                yield Send(at=now, copy=copy, recipients=about, server=hop.server, reply=reply)
            case Ending.ACCEPTED:
                yield SendExternal(at=now, copy=copy, recipients=about, server=hop.server, reply=reply)
            case Ending.EXPANDED | Ending.POSTED:
                pass  # a row each: ``queue_expansion``
            case Ending.DUPLICATE:
                yield DuplicateDeliver(at=now, copy=copy, recipients=about, server=hop.server, reply=reply)
            case Ending.REMOVED:
                assert by is not None
                yield OperatorRemove(at=now, copy=copy, recipients=about, by=by, report=report)
            case Ending.REJECTED if by is not None:
                yield OperatorFail(
                    at=now, copy=copy, recipients=about, server=hop.server, reply=reply, report=report, by=by
                )
            case Ending.REJECTED | Ending.EXPIRED:
                yield Fail(at=now, copy=copy, recipients=about, server=hop.server, reply=reply, report=report)
            case Ending.DEFERRED | Ending.IN_DOUBT | Ending.UNREADABLE:
                doubt = "" if ending is Ending.DEFERRED else "true"
                yield Defer(
                    at=now, copy=copy, recipients=about, server=hop.server, reply=reply, in_doubt=doubt
                )


def _told_again(
    copy: Copy, results: Sequence[AttemptResult], unsettled: Collection[int], hop: Hop, now: datetime
) -> Iterator[TrackingEvent]:
    """Rows for accepted recipients that were settled elsewhere meanwhile: each second delivery is logged."""
    taken = [
        result
        for result in results
        if result.number not in unsettled and result.ending in (Ending.ACCEPTED, Ending.DUPLICATE)
    ]
    by_number = {recipient.number: recipient for recipient in copy.recipients}
    return _told(copy, taken, [by_number[result.number] for result in taken], hop, now)


def _queue_report(ledger: Ledger, original: Copy, report: Report, now: datetime) -> Decision[None]:
    """Queue a DSN."""
    envelope = Envelope(
        sender="",
        size=len(report.content),
        smtputf8=not original.envelope.sender.isascii(),  # for the envelope alone: its content is 7-bit
        message_id=f"<{report.id}@{ledger.name}>",
        subject="Delivery status notification",
        tls=TlsWish.REQUIRED if original.envelope.tls is TlsWish.REQUIRED else None,  # RFC 8689 section 5
    )
    recipients = (Recipient(1, original.envelope.sender, report.next_hop),)
    digests = Digests(of_content(report.content), of_envelope(envelope, recipients))
    made = made_here(ledger, report.id, envelope, recipients, digests, now)
    event = Dsn(at=now, copy=made, reports_on=original.id)
    content = Content(data=report.content)
    return queue_once(ledger, original, made, content, event, now, awaited=report.settles)


def forks(copy: Copy) -> Mapping[NextHop, tuple[Recipient, ...]]:
    """Bifurcation: the unsettled recipients by next hop. Each fork is sent and settled by itself."""
    grouped: dict[NextHop, tuple[Recipient, ...]] = {}
    for recipient in copy.unsettled:
        grouped[recipient.next_hop] = (*grouped.get(recipient.next_hop, ()), recipient)
    return grouped


@dataclass(frozen=True, slots=True)
class Expansion:
    """The message to the members of the list that is recipient number ``about``, not queued yet.

    The list's recipient awaits this message of ours. It is queued by the transaction that settles the list.
    No other node is told of that before the message is safe. If this node is lost earlier, a holder of the
    original expands the list again: from the same file it makes the same message (its id is derived). The id
    has the whole envelope in it, so nodes with different files never give one id to different recipients: a
    recipient is settled by its number alone.
    """

    about: int
    id: MessageId
    envelope: Envelope
    recipients: tuple[Recipient, ...]
    posted: bool  # in the name of the list's owner
    loops: tuple[str, ...] = ()  # lists that were met inside themselves


def expansion_of(
    copy: Copy,
    about: Recipient,
    book: AddressBook,
    next_hop: Callable[[str], NextHop],
    typed: Callable[[str], str],
) -> Expansion | None:
    """The message to the members of a list; None if the book has no list of that address, or it is empty.

    A list with an owner sends in the owner's name, and none of the sender's wishes for reports apply to that.
    Without one the sender stays, and what it asked for (RFC 3461 5.2.7.2): all but reports of success, for
    the report on the list is that one. The null sender stays in any case, or reports on reports never end.
    A member that nobody has fails when it is tried, like an address that a next hop refuses.
    """
    found = book.expand(about.address)
    if found is None or not found.members:
        return None
    owner = book.owner(about.address) if copy.envelope.sender else ""
    like = copy.envelope
    envelope = replace(like, sender=owner, ret=None, envid=None) if owner else like
    orcpt = None if owner else about.orcpt or typed(about.address)
    recipients = tuple(
        Recipient(
            number,
            member.address,
            LISTS if member.unknown else next_hop(member.address),
            () if owner else _but_success(about.notify),
            orcpt,
        )
        for number, member in enumerate(found.members, 1)
    )
    made = derived_id("list", copy.id, folded(about.address), of_envelope(envelope, recipients))
    return Expansion(about.number, made, envelope, recipients, posted=bool(owner), loops=found.loops)


def _but_success(notify: tuple[str, ...]) -> tuple[str, ...]:
    left = tuple(word for word in notify if word != "SUCCESS")
    return left if left or not notify else ("NEVER",)


def queue_expansion(
    ledger: Ledger,
    original: Copy,
    wanted: Expansion,
    results: Sequence[AttemptResult],
    now: datetime,
    *,
    first: bool = True,
) -> Decision[None]:
    """Queue the message to the members of a list that is settled, and log what became of the list. ``first``:
    no other recipient that is the same list queues it in this decision.
    """
    found = original.digests
    digests = found and Digests(found.content, of_envelope(wanted.envelope, wanted.recipients), found.late)
    plain = made_here(ledger, wanted.id, wanted.envelope, wanted.recipients, digests, now)
    # Who owned the list's message may have made this one: it is asked about it when it is back.
    made = replace(plain, content_of=original.id, former_owner=original.former_owner)
    reply = next(one.reply for one in results if one.number == wanted.about)
    about = tuple(one for one in original.recipients if one.number == wanted.about)
    told = Expand(at=now, copy=original, recipients=about, made=wanted.id, reply=reply)
    if not first:
        return Decision(None, (), (told,))
    event = ToMembers(at=now, copy=made, original=original.id)
    queued = queue_once(ledger, original, made, Content(of=original.id), event, now)
    return replace(queued, events=(told, *queued.events))
