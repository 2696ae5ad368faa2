"""What the stages take out of the database to work on. Claims are memory: they end with the process."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from shadowrelay.core.decisions import Content
from shadowrelay.core.identifiers import MessageId, NextHop, ServerName
from shadowrelay.core.messages import Copy, Recipient
from shadowrelay.core.ownership import NO_INCARNATION
from shadowrelay.core.values import dataclass
from shadowrelay.database import records
from shadowrelay.database.content import stored
from shadowrelay.database.ledger import SQL, SqlLedger


@dataclass(frozen=True, slots=True)
class Claim:
    """A fork to be sent now: one message, one next hop, the recipients that are due."""

    copy: Copy
    next_hop: NextHop
    recipients: tuple[Recipient, ...]
    content: Content


def due_hops(ledger: SqlLedger) -> list[tuple[NextHop, datetime]]:
    """Every next hop with mail that may be sent, and when its first is due."""
    rows = ledger.connection.execute(SQL["due_hops"]).fetchall()
    return [(NextHop(hop), records.moment(due)) for hop, due in rows]


def claim(ledger: SqlLedger, next_hop: NextHop, now: datetime, most: int) -> list[Claim]:
    """Take up to ``most`` forks that are due; nobody else gets them until ``unclaim``."""
    rows = ledger.connection.execute(SQL["claim"], (next_hop, records.micros(now), most))
    return _claimed(ledger, rows.fetchall(), next_hop, now)


def claim_late(
    ledger: SqlLedger, next_hop: NextHop, now: datetime, most: int, delayed: datetime, expired: datetime
) -> list[Claim]:
    """The same, of forks that were received before ``delayed`` (and nobody was told yet) or ``expired``."""
    times = (records.micros(now), records.micros(delayed), records.micros(expired))
    rows = ledger.connection.execute(SQL["claim_late"], (next_hop, *times, most))
    return _claimed(ledger, rows.fetchall(), next_hop, now)


def _claimed(ledger: SqlLedger, rows: list[records.Row], next_hop: NextHop, now: datetime) -> list[Claim]:
    claims = []
    for (message_id,) in rows:
        copy, content = ledger.copy(message_id), stored(ledger, message_id)
        if copy is None or content is None:
            continue
        due = tuple(
            recipient
            for recipient in copy.unsettled
            if recipient.next_hop == next_hop and (recipient.next_attempt or now) <= now
        )
        ledger.scratch += ledger.connection.execute(SQL["activate"], (message_id, next_hop)).rowcount
        claims.append(Claim(copy, next_hop, due, content))
    return claims


def bring_forward(ledger: SqlLedger, now: datetime, by: timedelta) -> None:
    """The clock was set back by so much: what was planned by the old one is due as much earlier."""
    step = {"by": by // timedelta(microseconds=1), "now": records.micros(now)}
    ledger.connection.execute(SQL["bring_attempts_forward"], step)
    ledger.connection.execute(SQL["bring_checks_forward"], step)
    ledger.connection.execute(SQL["bring_arrivals_forward"], step)
    ledger.forget_recent()


def unclaim(ledger: SqlLedger, message_id: MessageId, next_hop: NextHop) -> None:
    ledger.scratch += ledger.connection.execute(SQL["deactivate"], (message_id, next_hop)).rowcount


def exposed(ledger: SqlLedger, after: MessageId, most: int) -> list[MessageId]:
    """Messages in transit of which no other member is known to hold a copy, behind that one, oldest first."""
    rows = ledger.connection.execute(SQL["exposed"], (after, most)).fetchall()
    return [MessageId(row[0]) for row in rows]


def to_hand_over(ledger: SqlLedger, due_after: datetime | None, most: int) -> list[MessageId]:
    """Messages in transit that have a holder, nobody is asked about, and no delivery is under way for.

    ``due_after``: only those that will not be tried before then or at that time; None: all.
    """
    after = None if due_after is None else records.micros(due_after)
    rows = ledger.connection.execute(SQL["to_hand_over"], {"after": after, "most": most})
    return [MessageId(row[0]) for row in rows.fetchall()]


def awaited(ledger: SqlLedger) -> dict[ServerName, int]:
    """Messages that were handed over, by the new owner that has not taken them yet."""
    rows = ledger.connection.execute(SQL["awaited"], (NO_INCARNATION,)).fetchall()
    return {ServerName(owner): count for owner, count in rows}


def settled_before(ledger: SqlLedger, before: datetime, most: int) -> Iterator[Copy]:
    return _copies(ledger, SQL["settled_before"], before, most)


def held_since_before(ledger: SqlLedger, before: datetime, most: int) -> Iterator[Copy]:
    return _copies(ledger, SQL["held_since_before"], before, most)


def _copies(ledger: SqlLedger, query: str, before: datetime, most: int) -> Iterator[Copy]:
    rows = ledger.connection.execute(query, (records.micros(before), most)).fetchall()
    for (message_id,) in rows:
        if copy := ledger.copy(message_id):
            yield copy


def forget_expired(ledger: SqlLedger, events_before: datetime, now: datetime) -> None:
    """Drop discard events that nobody asked for in time, and what need not be remembered any longer."""
    ledger.connection.execute(SQL["expire_events"], (records.micros(events_before),))
    ledger.connection.execute(SQL["expire_outcomes"], (records.micros(now),))
    ledger.connection.execute(SQL["expire_tombstones"], (records.micros(now),))
