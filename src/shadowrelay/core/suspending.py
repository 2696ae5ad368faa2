"""Suspended queues: how their records change and merge, and which time they take off the age of mail."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from shadowrelay.core.decisions import Decision
from shadowrelay.core.filtering import ROUTE_END
from shadowrelay.core.identifiers import NextHop
from shadowrelay.core.ledger import Ledger
from shadowrelay.core.records import next_revision
from shadowrelay.core.replicating import Merging, Rules
from shadowrelay.core.shared_records import ForgetRecord
from shadowrelay.core.spans import Span, joined, since_when, within
from shadowrelay.core.suspensions import Suspension
from shadowrelay.core.tracking import recorded
from shadowrelay.core.values import dataclass, replace

MOST_SPANS = 16
"""Spans that a record keeps: it has to fit into a line between members."""

SPANS_KEPT = timedelta(days=30)
"""So long a span is kept after its end: no mail is older."""

MOST_KEPT = 200
"""Next hops of which a record is kept. When there are more, those that are not suspended now go first."""


def changed(ledger: Ledger, given: Suspension, now: datetime) -> Decision[Suspension | None]:
    """An operator suspends or resumes a queue. None: too many queues are suspended.

    The record gets a revision above all that this node knows, of any queue: a member may still have a record
    of this queue that was forgotten here, and that one must not overrule the change.
    """
    known, records = ledger.suspension(given.next_hop), ledger.suspensions()
    room = [] if known else _room(ledger, now)
    if room is None:
        return Decision(None)
    after = replace(
        given,
        revision=next_revision(max((one.revision for one in records), default=0), now),
        spans=_kept(_until(known, now), now) if known else (),
        kept_at=known.kept_at if known else now,
    )
    return Decision(after, (*room, after), (recorded(after, now),))


def _room(ledger: Ledger, now: datetime) -> list[ForgetRecord] | None:
    """What has to be forgotten, so that one more record fits: of the queues that are not suspended now, the
    one with the lowest revision. None: there is none.
    """
    records = ledger.suspensions()
    if len(records) < MOST_KEPT:
        return []
    over = [one for one in records if not one.in_force(now)]
    if not over:
        return None
    return [ForgetRecord(Suspension, min(over, key=lambda one: (one.revision, one.next_hop)).next_hop)]


def _room_for(ledger: Ledger, given: Suspension, about: Merging) -> Sequence[ForgetRecord] | None:
    """None: too many are on record, and the queue is not suspended now, or all others are."""
    now = about.ends.now
    room = _room(ledger, now)
    return None if room is None or (room and not given.in_force(now)) else room


RULES = Rules(kind=Suspension, room=_room_for, tracked=recorded)


def _until(record: Suspension, now: datetime) -> tuple[Span, ...]:
    """All spans in which the queue was suspended, the one that lasts now included."""
    if not record.suspended:
        return record.spans
    end = now if record.until is None else min(now, record.until)
    return (*record.spans, (record.changed_at, end)) if end > record.changed_at else record.spans


def _kept(spans: Iterable[Span], now: datetime) -> tuple[Span, ...]:
    return tuple(span for span in spans if now - span[1] < SPANS_KEPT)[-MOST_SPANS:]


@dataclass(frozen=True, slots=True)
class SuspendedQueues:
    """The records by next hop, as a node in delivery asks them. A record of a route is about all next hops of
    the route.
    """

    records: Mapping[NextHop, Suspension]

    def of(self, next_hop: NextHop) -> list[Suspension]:
        """The records that are about a next hop, also those of queues that were resumed."""
        if not self.records:
            return []
        route, slash, _ = next_hop.partition(ROUTE_END)
        names = (next_hop, NextHop(route)) if slash else (next_hop,)
        return [found for name in names if (found := self.records.get(name))]

    def suspended(self, next_hop: NextHop, now: datetime) -> bool:
        """May nothing be delivered there now?"""
        return any(one.in_force(now) for one in self.of(next_hop))

    def changes_at(self, next_hop: NextHop, now: datetime) -> datetime | None:
        """When a suspension that is in force ends by itself; None if none does."""
        ends = [one.until for one in self.of(next_hop) if one.until and one.in_force(now)]
        return max(ends, default=None)

    def spans(self, next_hop: NextHop, now: datetime) -> list[Span]:
        """The times in which the queue was suspended, in order, none overlapping another."""
        return joined(span for one in self.of(next_hop) for span in _until(one, now))

    def not_aged(self, next_hop: NextHop, received_at: datetime, now: datetime) -> timedelta:
        """How much of the time since then the queue was suspended: so long the message did not age."""
        return within(self.spans(next_hop, now), received_at, now)

    def received_by(self, next_hop: NextHop, age: timedelta, now: datetime) -> datetime:
        """A message received then has that age now: so long ago, without the time of suspension."""
        return since_when(self.spans(next_hop, now), age, now)


NONE = SuspendedQueues({})
