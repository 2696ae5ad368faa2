"""Counts that the workers of a node share: a sketch in memory that all of them map.

The memory is a table of numbers. A key (a connector, a source at a connector, a lane of next hops) has one
cell in each row, which a keyed hash chooses, and each cell has one number for each worker. A worker writes
its own numbers alone, so no worker waits for another. How many a key has in all is the sum over the workers
in the row where that sum is smallest.

Guaranteed: all workers together never admit more than the limit. A worker counts a session first and looks
at the sum then: of two workers that do so at the same time at least one sees both. Not guaranteed: that the
last place is filled. Two workers may each refuse the last place to one of two sessions that come at the same
moment, and a key that shares its cells in every row with busier keys counts for more than it has.
"""

from __future__ import annotations

import asyncio
import mmap
import os
import secrets
import threading
from collections import Counter, deque
from contextlib import suppress
from hashlib import blake2b
from typing import Protocol

from shadowrelay.core.workers import MOST

_ROWS, _WIDTH = 4, 4096
_SALT = 16  # octets
_CELL = 4  # octets of a number

SIZE = _SALT + _ROWS * _WIDTH * MOST * _CELL
"""Octets of the memory. Octets that no worker has touched take no room in it."""


FLAG = 1 << 20
"""The weight of what is a yes or a no: more than a cell has of other counts, so that these make no yes."""


class SessionCounts(Protocol):
    """How many sessions a key has, in all workers of the node."""

    def take(self, key: str, most: int | None, weight: int = 1) -> bool:
        """Count one more session, unless that is more than ``most``; returns whether it was counted."""
        ...

    def give(self, key: str, weight: int = 1) -> None:
        """Count one session less, which was counted here with that weight."""
        ...

    def of(self, key: str) -> int:
        """How many it has in all workers, or a few more."""
        ...


class OwnCounts:
    """The counts of a node that is one process."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    def take(self, key: str, most: int | None, weight: int = 1) -> bool:
        if most is not None and self._counts[key] + weight > most:
            return False
        self._counts[key] += weight
        return True

    def give(self, key: str, weight: int = 1) -> None:
        self._counts[key] -= weight
        if not self._counts[key]:
            del self._counts[key]

    def of(self, key: str) -> int:
        return self._counts[key]


class SharedCounts:
    """The counts of one worker (``number``, from 1) in memory of ``SIZE`` octets that all workers see. It
    begins with a salt of the hash, which is random: no stranger chooses which keys share a cell.
    """

    def __init__(self, memory: memoryview, number: int) -> None:
        if not 1 <= number <= MOST:
            raise ValueError(f"worker {number}: a node has 1 to {MOST} workers")
        self._salt = bytes(memory[:_SALT])
        self._cells = memory[_SALT:SIZE].cast("I")
        self._mine = number - 1
        self._barrier = threading.Lock()

    def take(self, key: str, most: int | None, weight: int = 1) -> bool:
        cells = self._places(key)
        for cell in cells:
            self._cells[cell + self._mine] += weight
        if most is None:
            return True
        with self._barrier:  # what was written is in the memory before anything is read: it is a barrier
            pass
        if self._seen(cells) <= most:
            return True
        self._less(cells, weight)
        return False

    def give(self, key: str, weight: int = 1) -> None:
        self._less(self._places(key), weight)

    def of(self, key: str) -> int:
        return self._seen(self._places(key))

    def forget(self, number: int | None = None) -> None:
        """Count nothing for a worker that is gone, with all its sessions; None: this one, at its start."""
        column = self._mine if number is None else number - 1
        self._cells[column::MOST] = memoryview(bytes(_ROWS * _WIDTH * _CELL)).cast("I")

    def _places(self, key: str) -> list[int]:
        """Where the numbers of the first worker are, in each row."""
        digest = blake2b(key.encode("utf-8", "surrogateescape"), digest_size=2 * _ROWS, key=self._salt)
        words = memoryview(digest.digest()).cast("H")
        return [(row * _WIDTH + word % _WIDTH) * MOST for row, word in enumerate(words)]

    def _seen(self, cells: list[int]) -> int:
        return min(sum(self._cells[cell : cell + MOST]) for cell in cells)

    def _less(self, cells: list[int], weight: int) -> None:
        for cell in cells:
            self._cells[cell + self._mine] = max(0, self._cells[cell + self._mine] - weight)


class ConnectorCounts:
    """The part of shared counts that is about one connector."""

    def __init__(self, counts: SessionCounts, connector: str) -> None:
        self._counts, self._connector = counts, connector

    def take(self, key: str, most: int | None, weight: int = 1) -> bool:
        return self._counts.take(f"{self._connector}\0{key}", most, weight)

    def give(self, key: str, weight: int = 1) -> None:
        self._counts.give(f"{self._connector}\0{key}", weight)

    def of(self, key: str) -> int:
        return self._counts.of(f"{self._connector}\0{key}")


MINUTE = 60.0
"""Seconds for which something counts."""


class MinuteCounts:
    """A place is taken in the counts of all workers, and given back after a minute: so at most the limit is
    counted in any minute, not in those of the clock alone. What is refused takes no place.
    """

    def __init__(self, counts: SessionCounts) -> None:
        self.counts = counts
        self._taken: deque[tuple[float, str, int]] = deque()  # when it is over, what counts, and its weight
        self._timer: asyncio.TimerHandle | None = None

    def take(self, key: str, most: int | None, weight: int = 1) -> float:
        """Count one more for a minute, unless that is more than ``most``. Returns until when it
        counts, on the clock of the loop; 0.0: not at all.
        """
        self._give_back()
        if not self.counts.take(key, most, weight):
            return 0.0
        loop = asyncio.get_running_loop()
        until = loop.time() + MINUTE
        self._taken.append((until, key, weight))
        if self._timer is None:  # other workers count these too: they go though nobody comes here any more
            self._timer = loop.call_later(MINUTE, self._over)
        return until

    def give(self, key: str, until: float) -> None:
        """What counts until then is to count no more; nothing, if its minute is over."""
        with suppress(ValueError):
            self._taken.remove((until, key, 1))
            self.counts.give(key)

    def _over(self) -> None:
        self._timer = None
        self._give_back()
        if self._taken:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_at(self._taken[0][0], self._over)

    def _give_back(self) -> None:
        taken = self._taken
        if not taken:
            return
        now = asyncio.get_running_loop().time()
        while taken and taken[0][0] <= now:
            _, key, weight = taken.popleft()
            self.counts.give(key, weight)

    def stop(self) -> None:
        """End the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def new_counts(more: int = 0) -> int:
    """The descriptor of memory for the counts of all workers, with ``more`` octets behind them: all zero."""
    descriptor = os.memfd_create("shadowrelay-counts")
    os.ftruncate(descriptor, SIZE + more)
    os.pwrite(descriptor, secrets.token_bytes(16), 0)
    return descriptor


def counts_in(descriptor: int, number: int) -> SharedCounts:
    """The counts of one worker in that memory."""
    return SharedCounts(memoryview(mmap.mmap(descriptor, SIZE)), number)


def of_connector(counts: SessionCounts | None, name: str) -> SessionCounts | None:
    """The part of them that is about the Receive connector of that name."""
    return None if counts is None else ConnectorCounts(counts, name)
