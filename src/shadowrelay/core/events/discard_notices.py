"""Makes discard events: what is said about a message, and to which databases. These are those of the members
that may hold a copy, and that of the peer beyond the boundary that handed the message over.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta

from shadowrelay.core.decisions import DiscardEvent, Verdict, VerdictKind
from shadowrelay.core.identifiers import DatabaseId, MessageId
from shadowrelay.core.ledger import Ledger
from shadowrelay.core.messages import FOREVER, Copy, Recipient, Role, Status, Unread

RECIPIENTS_PER_EVENT = 300
"""A longer list becomes several events, so that a line between members stays below 4,096 octets."""

OUTCOME = {
    Status.DELIVERED: "",
    Status.RELAYED: "relayed",
    Status.FAILED: "failed",
    Status.REMOVED: "removed",
}
"""How the argument of DELIVERED tells the outcomes apart."""

STATUS = {argument: status for status, argument in OUTCOME.items()}

_REMOVED = OUTCOME[Status.REMOVED]
_BEYOND = OUTCOME | {Status.REMOVED: OUTCOME[Status.FAILED]}
"""The same for peers beyond the boundary, which know no removal."""

MILLISECOND = timedelta(milliseconds=1)
_UNIX = datetime(1970, 1, 1, tzinfo=UTC)

HOP_EPOCH = 1
"""The epoch in events for peers beyond the boundary: they know nothing of the owners of a message."""


def delivered(copy: Copy, recipients: Iterable[Recipient]) -> tuple[Verdict, ...]:
    """DELIVERED verdicts about those of the recipients that are settled, and that wait for nothing."""
    verdicts: list[Verdict] = []
    groups: dict[tuple[str, datetime | None], list[int]] = {}
    for recipient in recipients:
        if recipient.settled and not recipient.waits:
            ending = OUTCOME[recipient.status], recipient.settled_at
            groups.setdefault(ending, []).append(recipient.number)
    for (outcome, at), numbers in groups.items():
        parts = [()] if len(numbers) == len(copy.recipients) else _parts(numbers)
        verdicts += [Verdict(copy.id, copy.epoch, VerdictKind.DELIVERED, outcome, part, at) for part in parts]
    return tuple(verdicts)


def orders(copy: Copy, recipients: Iterable[Recipient]) -> tuple[Verdict, ...]:
    """SUSPENDED and RESUMED verdicts: the last order of an operator about each that is not settled."""
    groups: dict[tuple[datetime | None, datetime], list[int]] = {}
    for recipient in recipients:
        if not recipient.settled and recipient.ordered_at is not None:
            groups.setdefault((recipient.suspended, recipient.ordered_at), []).append(recipient.number)
    verdicts = []
    for (until, at), numbers in groups.items():
        kind = VerdictKind.RESUMED if until is None else VerdictKind.SUSPENDED
        end = "" if until is None or until == FOREVER else str((until - _UNIX) // MILLISECOND)
        parts = [()] if len(numbers) == len(copy.recipients) else _parts(numbers)
        verdicts += [Verdict(copy.id, copy.epoch, kind, end, part, at) for part in parts]
    return tuple(verdicts)


def unread(copy: Copy, recipients: Iterable[Recipient]) -> tuple[Verdict, ...]:
    """UNREAD verdicts: which of those that are not settled may have the message, at which host."""
    groups: dict[Unread, list[int]] = {}
    for recipient in recipients:
        if not recipient.settled and recipient.unread is not None:
            groups.setdefault(recipient.unread, []).append(recipient.number)
    verdicts = []
    for found, numbers in groups.items():
        parts = [()] if len(numbers) == len(copy.recipients) else _parts(numbers)
        said = f"{found.tries};{found.host}"
        verdicts += [Verdict(copy.id, copy.epoch, VerdictKind.UNREAD, said, part) for part in parts]
    return tuple(verdicts)


def unread_said(verdict: Verdict) -> Unread:
    """What an UNREAD verdict says of its recipients."""
    tries, _, host = verdict.argument.partition(";")
    return Unread(int(tries), host)


def ended(verdict: Verdict) -> datetime | None:
    """Until when recipients are suspended by a SUSPENDED or RESUMED verdict; None: they are resumed."""
    if verdict.kind is VerdictKind.RESUMED:
        return None
    return _UNIX + int(verdict.argument) * MILLISECOND if verdict.argument else FOREVER


def known(copy: Copy) -> tuple[Verdict, ...]:
    """What this node knows about the recipients: what is settled, what operators ordered, and which may have
    the message.
    """
    every = copy.recipients
    return delivered(copy, every) + orders(copy, every) + unread(copy, every)


def whole(at: datetime) -> datetime:
    """That time in whole milliseconds, as members tell it."""
    return at.replace(microsecond=at.microsecond // 1000 * 1000)


def addressed(
    addressees: Iterable[DatabaseId], verdicts: Sequence[Verdict], now: datetime
) -> tuple[DiscardEvent, ...]:
    """One event for each addressee and verdict; no addressee gets a verdict twice."""
    once = dict.fromkeys(addressees)
    return tuple([DiscardEvent(addressee, verdict, now) for addressee in once for verdict in verdicts])


def announced(
    ledger: Ledger, copy: Copy, recipients: Sequence[Recipient], now: datetime
) -> tuple[DiscardEvent, ...]:
    """The events for everybody about those of the recipients that are settled, and that wait for nothing."""
    verdicts = delivered(copy, recipients)
    removals = [one for one in verdicts if one.argument == _REMOVED]
    told = addressed(listeners(copy), [one for one in verdicts if one.argument != _REMOVED], now)
    told += addressed(order_listeners(ledger, copy), removals, now) if removals else ()
    return (*told, *to_giver(ledger, copy.id, recipients, now))


def to_giver(
    ledger: Ledger, message_id: MessageId, recipients: Iterable[Recipient], now: datetime
) -> tuple[DiscardEvent, ...]:
    """The events for the peer beyond the boundary that handed the message over, with its own id and numbers.

    They always name the recipients: the peer may have given others to other hops. None if no peer did, or if
    its database is known to be gone.
    """
    handed = ledger.handed(message_id)
    if handed is None:
        return ()
    peer = ledger.hop_peer(handed.peer)
    if peer and peer.lineage and peer.lineage.database_id != handed.database_id:
        return ()
    groups: dict[str, list[int]] = {}
    for recipient in recipients:
        number = handed.theirs(recipient.number)
        if recipient.settled and not recipient.waits and number is not None:
            groups.setdefault(_BEYOND[recipient.status], []).append(number)
    return addressed(
        [handed.database_id],
        [
            Verdict(handed.their_id, HOP_EPOCH, VerdictKind.DELIVERED, outcome, part)
            for outcome, numbers in groups.items()
            for part in _parts(sorted(numbers))
        ],
        now,
    )


def _parts(numbers: Sequence[int]) -> list[tuple[int, ...]]:
    starts = range(0, len(numbers), RECIPIENTS_PER_EVENT)
    return [tuple(numbers[start : start + RECIPIENTS_PER_EVENT]) for start in starts]


def listeners(copy: Copy) -> tuple[DatabaseId, ...]:
    """Every other database that may hold a copy or own the message: holders in any state, and the owner."""
    databases = [holder.database_id for holder in copy.holders]
    if copy.role is Role.SHADOW and copy.owner_database:
        databases.append(copy.owner_database)
    return tuple(dict.fromkeys(databases))


def order_listeners(ledger: Ledger, copy: Copy) -> tuple[DatabaseId, ...]:
    """The databases that have to acknowledge an operator's order: ``listeners``, and that of the owner from
    which this node took the message over, for it may still send it. Not those of members that were retired.
    """
    former = ledger.member(copy.former_owner) if copy.former_owner else None
    databases = [*listeners(copy), *([former.lineage.database_id] if former and former.lineage else ())]
    gone = {one.lineage.database_id for one in ledger.members() if one.retired and one.lineage}
    return tuple(one for one in dict.fromkeys(databases) if one not in gone)
