"""Reads queues and shadow queues for the admin API, part by part, so that a long queue delays no writer.

Each part is read in its own transaction; its numbers are consistent.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import field
from datetime import datetime

from shadowrelay.core.identifiers import MessageId, NextHop, ServerName
from shadowrelay.core.messages import Role
from shadowrelay.core.values import dataclass
from shadowrelay.database import records
from shadowrelay.database.ledger import SQL as HOPS
from shadowrelay.database.ledger import SqlLedger
from shadowrelay.database.views import SQL
from shadowrelay.measures import bounded

PART = 20_000  # messages
REACH = 1_000  # messages in one step of the search for the oldest: among hundreds of next hops it is rare
FEW = 50  # what a queue costs besides, in messages
FRONT = (-1, "", 0)
LAST = (1 << 62, "~", 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueView:
    """Mail of this node for one next hop. ``due``: when its first recipient is due; None if all wait for
    answers of members. ``waiting``: messages that may be sent now, and are not being sent. ``unsent``: when
    the first recipient was or will be due that is not being sent, by the index of due mail or by the rows of
    the oldest messages, whichever is earlier. So a queue that nobody goes through is seen, and an index that
    hides mail.
    """

    next_hop: NextHop
    messages: int
    recipients: int
    suspended: bool  # nothing is due now, and what waits first is suspended
    active: int  # active forks
    waiting: int
    asking: int  # recipients that wait until the members are asked
    exposed: int
    unread: int  # recipients that the hop may have: it took the content, and its answer cannot be read
    oldest: datetime
    due: datetime | None
    unsent: datetime | None
    last_error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ShadowQueue:
    """Copies held for one owner, in total and by next hop."""

    primary: ServerName
    messages: int
    oldest: datetime
    next_hops: tuple[tuple[NextHop, int, int], ...]  # next hop, messages, recipients


@dataclass(frozen=True, slots=True)
class HopQueue:
    """The shadow queue of a hop beyond the boundary. ``oldest``: when the hop took the first of it."""

    hop: ServerName
    messages: int
    oldest: datetime | None


def hop_queues(ledger: SqlLedger) -> list[HopQueue]:
    """The shadow queues of hops, in the order of their names."""
    found = []
    for hop, messages in sorted(ledger.hop_shadow_rows.counts.items()):
        row = ledger.connection.execute(HOPS["hop_shadow_oldest"], (hop,)).fetchone()
        found.append(HopQueue(hop, messages, records.maybe_moment(row[0])))
    return found


class Queues:
    """Mail of this node by next hop. Run ``read`` as work of ``TransportDatabase`` until it returns True.

    What is counted is known without a look at the messages. What is due now is counted part by part, in an
    index. ``waiting`` is exact up to 20,000 recipients; past them a message may count twice whose recipients
    are due at different times.
    """

    def __init__(self, now: datetime) -> None:
        self._now = records.micros(now)
        self._hops: list[NextHop] | None = None
        self._place = FRONT  # in the queue of the first of those
        self._due = 0  # messages before that place
        self._found: list[QueueView] = []

    def read(self, ledger: SqlLedger) -> bool:
        """Read the next part. Returns whether it was the last."""
        if self._hops is None:
            self._hops = sorted(ledger.tally.by_hop())
        left = PART
        while self._hops and left > 0:
            hop = self._hops[0]
            left -= self._count_due(ledger, hop) + FEW
            if self._place == FRONT:
                self._hops.pop(0)
                due, self._due = self._due, 0
                if found := self._view(ledger, hop, due):
                    self._found.append(found)
        return not self._hops

    def _count_due(self, ledger: SqlLedger, hop: NextHop) -> int:
        """Count one part of what is due. Returns how many messages were counted."""
        run = ledger.connection.execute
        due, id_, number = self._place
        asked = {"hop": hop, "now": self._now, "due": due, "id": id_, "number": number, "most": PART - 1}
        last = run(SQL["part_of_due"], asked).fetchone()
        until = last or LAST
        asked |= dict(zip(("until_due", "until_id", "until_number"), until, strict=True))
        counted = int(run(SQL["due_in_part"], asked).fetchone()[0])
        self._due += counted
        self._place = tuple(last) if last else FRONT
        return counted

    def _view(self, ledger: SqlLedger, hop: NextHop, due: int) -> QueueView | None:
        """None: the queue is empty by now."""
        run, counts = ledger.connection.execute, ledger.tally.to(hop)
        if (oldest := oldest_to(ledger, hop)) is None:
            return None
        error = run(SQL["last_error"], (hop,)).fetchone()
        active = int(run(SQL["active_to"], (hop,)).fetchone()[0])
        asked = {"role": Role.PRIMARY.value, "hop": hop, "floor": ledger.tally.floor(hop)}
        by_index = run(SQL["first_unsent"], (hop,)).fetchone() or (None,)
        by_rows = run(SQL["first_unsent_in_rows"], asked).fetchone()
        unsent = min(filter(None, map(records.possible_moment, (*by_index, *by_rows))), default=None)
        return QueueView(
            next_hop=hop,
            messages=counts.messages,
            recipients=counts.recipients,
            suspended=self._suspended(ledger, hop, now_due=due),
            active=active,
            waiting=max(0, due - active),
            asking=counts.asking,
            exposed=counts.exposed,
            unread=int(run(SQL["unread_to"], (hop,)).fetchone()[0]),
            oldest=oldest,
            due=records.possible_moment(run(SQL["first_due"], (hop,)).fetchone()[0]),
            unsent=unsent,
            last_error=error[0] if error else "",
        )

    def _suspended(self, ledger: SqlLedger, hop: NextHop, *, now_due: int) -> bool:
        """Is nothing due, and are the recipients of the oldest messages all suspended?"""
        if now_due:
            return False
        run, floor = ledger.connection.execute, ledger.tally.floor(hop)
        row = run(SQL["part_of_queue"], (Role.PRIMARY.value, floor, REACH)).fetchone()
        asked = {"hop": hop, "floor": floor, "until": row[0] if row else "~", "now": self._now}
        every, suspended = run(SQL["suspended_to"], asked).fetchone()
        return bool(every) and every == suspended

    def result(self) -> Sequence[QueueView]:
        """In the order of names."""
        return self._found


def oldest_to(ledger: SqlLedger, hop: NextHop) -> datetime | None:
    """When the oldest message for a next hop was received; None if none waits.

    The search goes on where the last one ended, so that all of them together read the queue once.
    """
    floor = ledger.tally.floor(hop)
    while ledger.tally.to(hop).messages:
        row = ledger.connection.execute(SQL["part_of_queue"], (Role.PRIMARY.value, floor, REACH)).fetchone()
        asked = {"hop": hop, "floor": floor, "until": row[0] if row else "~"}
        lowest, received_at = ledger.connection.execute(SQL["oldest_to"], asked).fetchone()
        if lowest is not None:
            ledger.tally.raise_floor(hop, MessageId(lowest))
            if lowest == floor or row is None:
                return records.moment(received_at)
            floor = MessageId(lowest)  # once more, with as many messages behind it as ever
            continue
        if row is None:
            return None
        floor = MessageId(row[0])
        ledger.tally.raise_floor(hop, floor)
    return None


@dataclass(frozen=True, slots=True)
class Depths:
    """Queues in a bounded number of numbers: messages and oldest of those shown by name, and the rest."""

    messages: Mapping[str, int] = field(default_factory=dict)
    oldest: Mapping[str, datetime] = field(default_factory=dict)
    others: int = 0


def depths(ledger: SqlLedger, fixed: Collection[str]) -> Depths:
    """The queues of the next hops of the settings (``fixed``), and of the longest others."""
    counts = ledger.tally.by_hop()
    shown, others = bounded(counts, fixed)
    oldest = {hop: at for hop in shown if (at := oldest_to(ledger, NextHop(hop)))}
    return Depths(
        {hop: counts.get(NextHop(hop), 0) for hop in shown},
        oldest,
        sum(counts[hop] for hop in others),
    )


class ShadowQueues:
    """Copies held for others, by owner. Run ``read`` as work of ``TransportDatabase``."""

    def __init__(self) -> None:
        self._found: list[ShadowQueue] = []

    def read(self, ledger: SqlLedger) -> bool:
        """Read it all: what is counted is known without a look at the messages. Returns True."""
        for owner, messages in ledger.tally.held_for_each().items():
            query = "oldest_of_few" if messages <= REACH else "oldest_of_many"
            (oldest,) = ledger.connection.execute(SQL[query], (owner,)).fetchone()
            if oldest is not None:
                hops = tuple(ledger.tally.held_by_hop(owner))
                self._found.append(
                    ShadowQueue(
                        primary=owner, messages=messages, oldest=records.moment(oldest), next_hops=hops
                    )
                )
        return True

    def result(self) -> Sequence[ShadowQueue]:
        """In the order of names."""
        return self._found
