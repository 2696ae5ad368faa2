"""What is known besides the rows about single messages: databases, their logs, and what is missing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

from shadowaudit.core.facts import Flavour, Opened


@dataclass(frozen=True, slots=True)
class Segment:
    """Rows of one incarnation, without a gap."""

    boot: str
    first: int
    last: int
    begins: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Database:
    """What the logs of one transport database are worth."""

    id: str
    node: str
    flavour: str = Flavour.RELAY
    segments: tuple[Segment, ...] = ()  # in the order of life; none: named by others, and has no log
    snapshot: tuple[int, int] | None = None  # the last complete one: sequences of its first and closing row
    closed: bool = False  # the log ends as one does when a node stops: nothing comes after its last row
    whole: bool = True  # no fault between its first and its last row
    from_start: bool = True  # row 1 is here
    lost: bool = False  # declared, and its end was lost
    rolled_back: bool = False  # an older state of it was put back: what came after that has a gap
    awaited: int = 0  # whole, but for the rows behind its last one up to this one, which another node saw
    opened: Opened | None = None  # where its node writes what comes behind these rows, if that is known

    @property
    def last(self) -> int:
        return max((segment.last for segment in self.segments), default=0)

    @property
    def unbroken(self) -> bool:
        """From its first row to its last one no row is missing."""
        return self.whole and self.from_start

    def reaches(self, boot: str, row: int) -> bool:
        """Is that row of that incarnation among these? One that an older state gave up is none of those that
        have its number. Without an incarnation the number decides.
        """
        lasts = [segment.last for segment in self.segments if boot in ("", segment.boot)]
        return max(lasts, default=-1) >= row

    @property
    def ends(self) -> bool:
        """Is there a row for everything that can have happened in it?"""
        sound = self.unbroken and not self.lost and not self.rolled_back
        return sound and self.closed and bool(self.segments)

    @property
    def given_up(self) -> tuple[Segment, ...]:
        """The last segment of each life whose end was given up for an older state."""
        return tuple(
            before
            for before, after in pairwise(self.segments)
            if before.boot != after.boot and before.last >= after.first
        )


@dataclass(frozen=True, slots=True)
class Gap:
    """Evidence that is missing, and what cannot be concluded for that."""

    what: str
    where: str
    so: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """All that is known besides the rows about single messages."""

    databases: Mapping[str, Database]
    nodes: Mapping[str, tuple[str, ...]]  # server name to its databases that have logs
    gaps: tuple[Gap, ...] = ()
    unprovable: tuple[str, ...] = ()  # what stays so although it is excused
    notes: tuple[str, ...] = ()
    weaker: bool = False  # Exchange's logs are among them: no sequences, hence no proof of completeness
    undigested: int = 0  # rows from before digests: what they are about cannot be compared

    @property
    def ends(self) -> bool:
        """Do we have every row of each database?"""
        return all(one.ends for one in self.databases.values())

    def complete(self, node: str) -> bool:
        """Do we have every row that this server ever wrote?"""
        return node in self.nodes and all(one.ends for one in self.databases.values() if one.node == node)
