"""Reads from the database what the stages work on. Claims are in memory and end with the process."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import TypeAlias

from shadowrelay.core.decisions import Content
from shadowrelay.core.delivery.retry import since
from shadowrelay.core.identifiers import FIRST, MessageId, NextHop, ServerName
from shadowrelay.core.messages import Confirmation, Copy, Recipient
from shadowrelay.core.ownership import chores
from shadowrelay.core.ownership.transfer import NO_INCARNATION
from shadowrelay.core.reception.delays_and_repeats import REPEATED_WITHIN
from shadowrelay.core.reckoning import Endings
from shadowrelay.core.values import dataclass
from shadowrelay.database import records, sums
from shadowrelay.database.content import stored
from shadowrelay.database.ledger import SQL, SqlLedger

QueuePlace: TypeAlias = tuple[int, str, int]
"""A recipient's place in the queue for a next hop: when it is due (microseconds), its message, its number."""

_NEVER = 1 << 62  # microseconds
FRONT: QueuePlace = (-1, "", 0)
LATE_LOOK = 1000  # recipients in one look; all other writes wait meanwhile
DUE = "recipient_due"  # the index by which mail is found that is due


@dataclass(frozen=True, slots=True)
class ActiveFork:
    """A fork to send now: one message, one next hop, the recipients that are due.

    ``content`` is empty if it is gone: then the message is damaged. ``not_aged``: how long the message did
    not age, since its queue was suspended.
    """

    copy: Copy
    next_hop: NextHop
    recipients: tuple[Recipient, ...]
    content: Content
    not_aged: timedelta = timedelta(0)

    @property
    def aging_since(self) -> datetime:
        """When it would have been received if it had aged all the time."""
        return since(self.copy, self.recipients) + self.not_aged


def due_hops(ledger: SqlLedger) -> list[tuple[NextHop, datetime]]:
    """Every next hop with mail that may be sent, and when its first recipient is due."""
    found = []
    for octets, due in ledger.connection.execute(SQL["due_hops"]).fetchall():
        try:
            found.append((NextHop(octets.decode()), records.moment(due)))
        except sums.IMPOSSIBLE:  # not a name, or not a time
            for (message_id,) in ledger.connection.execute(SQL["due_nowhere"], (octets,)).fetchall():
                if copy := ledger.read_again(message_id):
                    ledger.write_again(copy, derived=True)
    return found


def claim(ledger: SqlLedger, next_hop: NextHop, now: datetime, most: int) -> list[ActiveFork]:
    """Claim up to ``most`` forks that are due; no other caller gets them until ``unclaim``.

    Returns none while a chore still has to mark messages to ask about; nor does ``claim_late``.
    """
    if chores.held_back(ledger):
        return []
    rows = ledger.connection.execute(SQL["claim"], (next_hop, records.micros(now), most))
    return _claimed(ledger, rows.fetchall(), next_hop, now)


def claim_late(
    ledger: SqlLedger,
    next_hop: NextHop,
    now: datetime,
    delayed: datetime,
    expired: datetime,
    behind: QueuePlace,
) -> tuple[list[ActiveFork], QueuePlace]:
    """Claim the first late fork behind ``behind``, if it is among the next thousand recipients.

    Late: received before ``expired``, or before ``delayed`` with no report of the delay yet. Also returns the
    place to go on from.
    """
    asked = {
        "hop": next_hop,
        "now": records.micros(now),
        "delayed": records.micros(delayed),
        "expired": records.micros(expired),
        "due": behind[0],
        "id": behind[1],
        "number": behind[2],
        "most": LATE_LOOK,
    }
    if chores.held_back(ledger):
        return [], behind
    place, looked_at = FRONT, 0
    for due, message_id, number, late in ledger.connection.execute(SQL["late_ones"], asked):
        place, looked_at = (due, message_id, number), looked_at + 1
        if late:
            return _claimed(ledger, [(message_id,)], next_hop, now), place
    return [], place if looked_at == LATE_LOOK else FRONT


def _claimed(
    ledger: SqlLedger, rows: list[sums.SqlRow], next_hop: NextHop, now: datetime
) -> list[ActiveFork]:
    claims = []
    for (message_id,) in rows:
        copy = ledger.expected(message_id)
        if copy is None:  # damaged: once that is on record, it is not due any more
            continue
        due = tuple([one for one in copy.recipients if one.next_hop == next_hop and _is_due(copy, one, now)])
        if not due and ledger.derived_differ(copy):
            ledger.write_again(copy, derived=True)
            continue
        if not due:
            ledger.doubted.add(DUE)
            continue
        content = stored(ledger, message_id) or Content()
        ledger.scratch += ledger.connection.execute(SQL["activate"], (message_id, next_hop)).rowcount
        ledger.follow(message_id)
        claims.append(ActiveFork(copy, next_hop, due, content))
    return claims


def may_be_sent(ledger: SqlLedger, claimed: ActiveFork, now: datetime) -> bool:
    """Is a claimed fork still this node's to send, unsettled, and not suspended?"""
    copy = ledger.copy(claimed.copy.id)
    if copy is None or not copy.owned or copy.confirmation is Confirmation.ASK:
        return False
    free = {one.number for one in copy.unsettled if not one.is_suspended(now)}
    return {one.number for one in claimed.recipients} <= free


def _is_due(copy: Copy, recipient: Recipient, now: datetime) -> bool:
    at = records.due_at(copy, recipient)
    return at is not None and at <= records.micros(now)


def unclaim(ledger: SqlLedger, message_id: MessageId, next_hop: NextHop) -> None:
    ledger.let_be(message_id)
    ledger.scratch += ledger.connection.execute(SQL["deactivate"], (message_id, next_hop)).rowcount


def exposed(ledger: SqlLedger, after: MessageId, most: int) -> list[MessageId]:
    """Exposed messages behind ``after``, oldest first."""
    rows = ledger.connection.execute(SQL["exposed"], (after, most)).fetchall()
    return [MessageId(row[0]) for row in rows]


def damaged_messages(ledger: SqlLedger, after: MessageId, most: int) -> list[MessageId]:
    """Messages in transit behind ``after`` with damaged content or rows, and not set aside."""
    found: set[MessageId] = set()
    for query in ("damaged_copies", "damaged_rows"):
        found |= {MessageId(row[0]) for row in ledger.connection.execute(SQL[query], (after, most))}
    return sorted(found)[:most]


def to_hand_over(ledger: SqlLedger, due_after: datetime | None, most: int) -> list[MessageId]:
    """Messages in transit that have a holder, are not marked ``ask``, and have no active fork.

    ``due_after``: only messages of which no recipient is due by then; None: all.
    """
    after = None if due_after is None else records.micros(due_after)
    rows = ledger.connection.execute(SQL["to_hand_over"], {"after": after, "most": most})
    return [MessageId(row[0]) for row in rows.fetchall()]


def to_redirect(ledger: SqlLedger, until: datetime | None, after: MessageId, most: int) -> list[MessageId]:
    """Messages in the queue, received by ``until`` (None: all), behind ``after``. None is set aside."""
    rows = ledger.connection.execute(SQL["to_redirect"], (_by(until), after, most))
    return [MessageId(row[0]) for row in rows.fetchall()]


def count_to_redirect(ledger: SqlLedger, until: datetime | None) -> int:
    """How many ``to_redirect`` finds."""
    found: int = ledger.connection.execute(SQL["count_to_redirect"], (_by(until),)).fetchone()[0]
    return found


def to_release(ledger: SqlLedger, after: MessageId, most: int) -> list[MessageId]:
    """Messages of ours behind ``after`` with holders that were not told to discard their copies."""
    return [MessageId(row[0]) for row in ledger.connection.execute(SQL["to_release"], (after, most))]


def being_sent(ledger: SqlLedger, message_id: MessageId, *, but: NextHop | None = None) -> bool:
    """Is a delivery attempt of that message under way? ``but``: to any other next hop than this one."""
    return bool(ledger.connection.execute(SQL["being_sent"], (message_id, but or "")).fetchone()[0])


def sent_to(ledger: SqlLedger, message_id: MessageId) -> frozenset[NextHop]:
    """The next hops to which delivery attempts of that message are under way."""
    return ledger.sent_to(message_id)


def _by(until: datetime | None) -> int:
    return _NEVER if until is None else records.micros(until)


def awaited(ledger: SqlLedger) -> dict[ServerName, int]:
    """How many messages were handed over, by new owner, if it has not taken them yet."""
    rows = ledger.connection.execute(SQL["awaited"], (NO_INCARNATION,)).fetchall()
    return {ServerName(owner): count for owner, count in rows}


def settled_before(
    ledger: SqlLedger, before: datetime, most: int, kept: tuple[datetime, datetime] | None = None
) -> Iterator[Copy]:
    """Messages settled before that time, oldest first, without those whose report is not known to be safe.

    ``kept``: those settled in this span are left out, however many there are.
    """
    end = records.micros(before)
    spans = [(-1, end)]
    if kept:
        spans = [(-1, min(end, records.micros(kept[0]) - 1)), (records.micros(kept[1]), end)]
    for span in spans:
        for copy in _copies(ledger, SQL["settled_between"], *span, most):
            most -= 1
            yield copy


def waiting_since_before(ledger: SqlLedger, before: datetime, most: int) -> Iterator[Copy]:
    """Messages settled before that time whose report is not known to be safe."""
    return _copies(ledger, SQL["waiting_since_before"], records.micros(before), most)


def held_since_before(
    ledger: SqlLedger, before: datetime, after: MessageId, most: int
) -> tuple[list[Copy], MessageId]:
    """Of the next ``most`` copies behind ``after``: those that were received, or confirmed, before that time.
    And where to go on.
    """
    rows = ledger.connection.execute(SQL["held_since_before"], (records.micros(before), after, most))
    found = rows.fetchall()
    copies = (ledger.expected(message_id) for message_id, old in found if old)
    return [copy for copy in copies if copy], MessageId(found[-1][0]) if len(found) == most else FIRST


def _copies(ledger: SqlLedger, query: str, *values: int) -> Iterator[Copy]:
    rows = ledger.connection.execute(query, values).fetchall()
    for (message_id,) in rows:
        if copy := ledger.expected(message_id):
            yield copy


def forget_expired(ledger: SqlLedger, events_before: datetime, ends: Endings) -> None:
    """Drop discard events that no member polled in time, expired outcomes and tombstones, and what clients
    sent a day ago.
    """
    ledger.connection.execute(SQL["expire_events"], (records.micros(events_before),))
    ledger.connection.execute(SQL["expire_outcomes"], (records.micros(ends.planned_by),))
    ledger.connection.execute(SQL["expire_tombstones"], (records.micros(ends.planned_by),))
    ledger.connection.execute(SQL["expire_unacknowledged"], (records.micros(ends.before(REPEATED_WITHIN)),))
