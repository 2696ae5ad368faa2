"""Tells subscribers of tracking events as they are committed, and again from any row that a file still has.

The writer says which rows are in a file and durable. While nobody subscribes, that is one call for each sync.
A subscriber has a place, the last row that it was told, and nothing is queued for it: it takes rows from
those kept in memory, and older ones from the files. So a slow one costs no memory, and none misses a row
unheard.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Collection, Iterator, Sequence
from dataclasses import dataclass

from shadowrelay.tracking.tail import LogDirectory, LogTail, WrittenRow

MOST_SUBSCRIBERS = 32
"""Subscribers at a time."""

KEPT = 5000
"""Rows kept in memory while somebody subscribes."""

BATCH = 500
"""Most rows that a subscriber is given at once."""


class TooManySubscribers(Exception):
    """There are as many subscribers as there may be."""


@dataclass(frozen=True, slots=True)
class EventBatch:
    """Rows in their order. ``gap``: the log has no rows between the place before and the first of them.

    ``place`` is the id of the last row that was looked at, also if it was not wanted.
    """

    rows: tuple[WrittenRow, ...]
    place: str
    gap: bool = False


class TrackingEvents:
    """The tracking events of this node."""

    def __init__(self, log: LogDirectory) -> None:
        self.log = log
        self.closed = False
        self._rows: deque[WrittenRow] = deque(maxlen=KEPT)
        self._told = 0  # the last row that is in a file, as far as the writer said
        self._subscribers: set[Subscription] = set()

    @property
    def wanted(self) -> bool:
        """Whether anybody subscribes: else the writer need not keep rows for ``tell``."""
        return bool(self._subscribers)

    def tell(self, upto: int, rows: Sequence[WrittenRow]) -> None:
        """The rows up to ``upto`` are in a file, and durable. ``rows`` are the last of them, or none."""
        self._told = upto
        if not self._subscribers:
            self._rows.clear()
            return
        for row in rows:
            if self._rows and row.sequence != self._rows[-1].sequence + 1:
                self._rows.clear()
            self._rows.append(row)
        if self._rows and self._rows[-1].sequence != upto:
            self._rows.clear()
        for subscriber in self._subscribers:
            subscriber.news.set()

    def close(self) -> None:
        """End all subscriptions: the node stops."""
        self.closed = True
        for subscriber in self._subscribers:
            subscriber.news.set()

    @contextlib.contextmanager
    def subscribe(self, after: str | None, wanted: Collection[str] = ()) -> Iterator[Subscription]:
        """Subscribe to the events named in ``wanted``, all if it is empty, after the row with that id.

        None: after the last row that is committed. A bare number is a sequence of this database. Raises
        TooManySubscribers, and ValueError if ``after`` is no id.
        """
        place, known = self._place(after)
        if len(self._subscribers) >= MOST_SUBSCRIBERS:
            raise TooManySubscribers(f"there are {MOST_SUBSCRIBERS} subscribers already, and no more may be")
        made = Subscription(self, place, frozenset(wanted), resumed=known)
        self._subscribers.add(made)
        try:
            yield made
        finally:
            self._subscribers.discard(made)

    def id_of(self, sequence: int) -> str:
        """The id of a row of this database."""
        begun = self.log.lineage().beginnings
        began = [one for one in begun if one.sequence < sequence]
        return f"{(began or begun[:1])[-1].incarnation}-{sequence}"

    def kept(self, place: int) -> list[WrittenRow] | None:
        """The rows in memory after that place; None if rows before them are missing there."""
        if self._rows and self._rows[0].sequence <= place + 1:
            start = place + 1 - self._rows[0].sequence
            return [self._rows[at] for at in range(start, min(start + BATCH, len(self._rows)))]
        return [] if self._told and self._told <= place else None

    def _place(self, after: str | None) -> tuple[int, bool]:
        """The sequence after which rows are wanted, and whether that is where the subscriber was."""
        lineage = self.log.lineage()
        if after is None:
            return lineage.sequence, True
        incarnation, dash, digits = after.rpartition("-")
        if not (digits.isascii() and digits.isdigit() and len(digits) < 19) or (dash and not incarnation):
            raise ValueError(f"{after!r} is not the id of an event")
        sequence = int(digits)
        if not dash:
            return min(sequence, lineage.sequence), sequence <= lineage.sequence
        begun = list(lineage.beginnings)
        for this, following in zip(begun, [*begun[1:], None], strict=True):
            if this.incarnation == incarnation:
                # A database that was set back gives the numbers out again, for other rows.
                last = following.sequence if following else lineage.sequence
                return min(sequence, last), sequence <= last
        if sequence <= begun[0].sequence and self.log.has(incarnation):
            return sequence, True
        return lineage.sequence, False  # of a database that is no more


class Subscription:
    """One subscriber. ``resumed``: whether it goes on where it was; else rows may be missing before."""

    def __init__(self, events: TrackingEvents, place: int, wanted: frozenset[str], *, resumed: bool) -> None:
        """Use ``TrackingEvents.subscribe`` instead."""
        self.resumed = resumed
        self.news = asyncio.Event()
        self._events = events
        self._tail = LogTail(events.log)
        self._place = place
        self._wanted = wanted

    @property
    def place(self) -> str:
        """The id of the last row that was looked at."""
        return self._events.id_of(self._place)

    async def batches(self, within: float) -> AsyncIterator[EventBatch]:
        """Batches of rows until the node stops. A batch without rows comes after ``within`` seconds without
        any row.
        """
        while not self._events.closed:
            self.news.clear()
            rows = self._events.kept(self._place)
            if rows is None:
                rows = await asyncio.to_thread(self._tail.after, self._place, BATCH)
            if rows:
                gap = rows[0].sequence != self._place + 1
                self._place = rows[-1].sequence
                chosen = tuple(row for row in rows if not self._wanted or row.event_id in self._wanted)
                yield EventBatch(chosen, rows[-1].id, gap)
                continue
            try:
                await asyncio.wait_for(self.news.wait(), within)
            except TimeoutError:
                yield EventBatch((), self.place)
