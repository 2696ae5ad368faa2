"""The shadow queue of a hop: mail of ours that a hop beyond our boundary took, and has not delivered yet.

The hop tracks it for us (docs/decisions/0034-from-hop-to-hop.md). For us the recipients are settled: relayed.
Our copy stays in Safety Net until the hop says that they are delivered. If the hop fails, a new message with
the same content goes another way. So nothing settled ever becomes unsettled.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import datetime

from shadowrelay.core.decisions import (
    Content,
    Decision,
    DropHopShadow,
    HopShadow,
    SaveCopy,
    Verdict,
    VerdictKind,
    Write,
)
from shadowrelay.core.delivery.journal import queue_once
from shadowrelay.core.digests import of_envelope
from shadowrelay.core.events.discard import remembered_for
from shadowrelay.core.events.reports import derived_id
from shadowrelay.core.hops import HopPeer
from shadowrelay.core.identifiers import Continuity, DatabaseId, Mark, MessageId, NextHop, ServerName
from shadowrelay.core.ledger import Ledger, Transaction
from shadowrelay.core.messages import Copy, Digests, Reason, Recipient, Status
from shadowrelay.core.ownership.transfer import made_here
from shadowrelay.core.policy import Policy
from shadowrelay.core.recipients import LISTS
from shadowrelay.core.reckoning import Endings
from shadowrelay.core.tracking import HopDiscard, SentAgain
from shadowrelay.core.values import dataclass, replace


@dataclass(frozen=True, slots=True)
class Tracker:
    """The hop that tracks a message for us: its name, its database, and the mark of its 250."""

    hop: ServerName
    database_id: DatabaseId
    mark: Mark


def taken(
    ledger: Ledger, message_id: MessageId, numbers: Collection[int], by: Tracker, now: datetime
) -> tuple[Write, ...]:
    """The hop took these recipients: from now on they are in its shadow queue.

    If it took others of the message before, they share a row. The row then has the later mark, unless the hop
    has lost what it took before: then the row stays lost, and all of it is sent again. If the row from before
    cannot be believed, nobody knows which they were: every relayed recipient counts as one of them.
    """
    if not numbers:
        return ()
    known = ledger.hop_shadow(message_id, by.hop)
    if known is None:
        if by.hop in ledger.hop_shadows_unsound(message_id):
            numbers = {*numbers, *_relayed(ledger, message_id)}
        return (HopShadow(message_id, by.hop, by.database_id, by.mark, tuple(sorted(numbers)), now),)
    both = tuple(sorted({*known.recipients, *numbers}))
    if loss_of(known, ledger.hop_peer(by.hop)):
        return (replace(known, recipients=both),)
    return (replace(known, database_id=by.database_id, mark=by.mark, recipients=both),)


def _relayed(ledger: Ledger, message_id: MessageId) -> Iterator[int]:
    """The recipients that some hop may have. The members of a list have messages of their own."""
    if copy := ledger.copy(message_id):
        for one in copy.recipients:
            if one.status is Status.RELAYED and one.next_hop != LISTS:
                yield one.number
    elif rows := ledger.damaged(message_id):
        yield from (number for number, status in rows.settled if status is Status.RELAYED)


def loss_of(row: HopShadow, peer: HopPeer | None) -> Reason | None:
    """Why the hop has certainly lost that mail: its database is another one, or an older state. None: it has
    not, as far as we know.
    """
    if peer is None or peer.lineage is None:
        return None
    if peer.lineage.database_id != row.database_id:
        return Reason.DATABASE_REPLACED
    continuity = peer.lineage.at_least(row.mark).continuity(row.database_id, row.mark)
    return Reason.DATABASE_ROLLED_BACK if continuity is Continuity.BROKEN else None


def discarded(
    ledger: Ledger, hop: ServerName, database_id: DatabaseId, verdict: Verdict, now: datetime
) -> Decision[None]:
    """A hop says that recipients are delivered: they leave its shadow queue. Repeating it changes nothing.

    A hop names the recipients, because it does not know whether it has all of them. What another database of
    the hop has is none of this one's business.
    """
    row = ledger.hop_shadow(verdict.message_id, hop)
    if row is None or row.database_id != database_id or verdict.kind is not VerdictKind.DELIVERED:
        return Decision(None)
    gone = set(row.recipients) & set(verdict.recipients)
    return _without(ledger, row, gone, "ExplicitlyDiscarded", now) if gone else Decision(None)


def _without(
    ledger: Ledger, row: HopShadow, gone: Collection[int], reason: str, now: datetime
) -> Decision[None]:
    copy = ledger.copy(row.message_id)
    about = tuple(one for one in copy.recipients if one.number in gone) if copy else ()
    events = (HopDiscard(at=now, copy=copy, recipients=about, hop=row.hop, reason=reason),) if copy else ()
    return Decision(None, (_left(row, gone), *_asked(ledger, row, gone, copy, now)), events)


def _asked(
    ledger: Ledger, row: HopShadow, gone: Collection[int], copy: Copy | None, now: datetime
) -> tuple[Write, ...]:
    """A shadow copy may have been kept for the hop alone: once no hop has anything of it, ask its owner."""
    if copy is None or not copy.held or copy.pending or not set(row.recipients) <= set(gone):
        return ()
    if any(other.hop != row.hop for other in ledger.hop_shadows_of(copy.id)):
        return ()
    return (SaveCopy(copy, replace(copy, check_at=now)),)


def _left(row: HopShadow, gone: Collection[int]) -> HopShadow | DropHopShadow:
    left = tuple(number for number in row.recipients if number not in gone)
    return replace(row, recipients=left) if left else DropHopShadow(row.message_id, row.hop)


def given_up(
    ledger: Ledger, message_id: MessageId, policy: Policy, now: datetime, ends: Endings | None = None
) -> Decision[bool]:
    """Discard by age what no hop says is delivered. The result: something was discarded.

    So do rows that cannot be believed, or Safety Net would keep their message for ever. Nobody sends a
    message again that is as old as Safety Net's outcomes (``remembered_for``).
    """
    before = (ends or Endings(now)).before(remembered_for(policy))
    old: Decision[bool] = Decision(False)
    for row in ledger.hop_shadows_of(message_id):
        if row.since <= before:
            old = _without(ledger, row, row.recipients, "Expired", now).but(True).after(old)
    for hop, since in ledger.hop_shadows_unsound(message_id).items():
        if since <= before:
            old = Decision(True, (DropHopShadow(message_id, hop),)).after(old)
    return old


def to_send_again(
    ledger: Ledger, row: HopShadow, failed: Reason | None, ways: Collection[NextHop]
) -> tuple[Reason, tuple[Recipient, ...]] | None:
    """Which recipients are to be sent again, and why; None: none are.

    What the hop lost goes anywhere: the hop itself is back. If the hop is silent (``failed``), only
    recipients whose next hop has another way (``ways``) go: without one the hop is waited for, or age
    decides.
    """
    lost = loss_of(row, ledger.hop_peer(row.hop))
    reason = lost or failed
    if reason is None or not (lost or ways):
        return None  # as nearly always: the shadow queue may be long, and copies are costly to read
    copy = ledger.copy(row.message_id)
    if copy is None or copy.damaged or copy.digests is None or copy.digests.content is None:
        return None
    about = tuple(one for one in copy.recipients if one.number in row.recipients)
    if lost is None:
        about = tuple(one for one in about if one.next_hop in ways)
    return (reason, about) if about else None


def send_again(
    ledger: Transaction,
    rows: Iterable[HopShadow],
    failed: Reason | None,
    ways: Collection[NextHop],
    unsound: Collection[MessageId],
    now: datetime,
) -> list[MessageId]:
    """Make new messages of what a hop has failed to deliver, and take it from the shadow queue, in one
    transaction. Returns the ids of the messages made.

    ``unsound``: messages whose content differs from its digest, or cannot be read. The rows are read again:
    the hop may have told of deliveries since.
    """
    made: list[MessageId] = []
    for seen in rows:
        row = ledger.hop_shadow(seen.message_id, seen.hop)
        if row is None or row.message_id in unsound:
            continue
        copy = ledger.copy(row.message_id)
        if copy is None:
            if ledger.damaged(row.message_id) is None:  # its rows may be mended
                ledger.apply(Decision(None, (DropHopShadow(row.message_id, row.hop),)))
        elif found := to_send_again(ledger, row, failed, ways):
            made.append(ledger.apply(_sent_again(ledger, row, copy, *found, now)))
    return made


def again_id(row: HopShadow, recipients: Sequence[Recipient]) -> MessageId:
    """The id of the message that is made of another one because the database of a hop failed."""
    numbers = ",".join(str(one.number) for one in recipients)
    return derived_id("hop", row.message_id, row.database_id, numbers)


def _sent_again(
    ledger: Ledger,
    row: HopShadow,
    original: Copy,
    reason: Reason,
    about: tuple[Recipient, ...],
    now: datetime,
) -> Decision[MessageId]:
    """Queue the message, whole in itself: the same mail on another way, with the reports that its sender
    asked for. A failure on the new way is reported. Success may be reported twice, if the hop delivers after
    all. Its age counts from now, or it might expire before its first attempt.
    """
    recipients = tuple(
        Recipient(one.number, one.address, one.next_hop, one.notify, one.orcpt) for one in about
    )
    content = original.digests.content if original.digests else None
    digests = Digests(content, of_envelope(original.envelope, recipients))
    made = replace(
        made_here(ledger, again_id(row, about), original.envelope, recipients, digests, now),
        content_of=original.id,
    )
    event = SentAgain(
        at=now, copy=made, original=original.id, hop=row.hop, hop_database=row.database_id, reason=reason
    )
    queued = queue_once(ledger, original, made, Content(of=original.id), event, now, awaited=False)
    gone = {one.number for one in about}
    left = _left(row, gone), *_asked(ledger, row, gone, original, now)
    return Decision(made.id, left).after(queued)
