"""What is known besides the rows about single messages: databases, their logs, and what is missing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from shadowaudit.core.facts import Flavour


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
    closed: bool = False  # the log ends with a snapshot, so nothing comes after its last row
    whole: bool = True  # no fault between its first and its last row
    from_start: bool = True
    lost: bool = False  # declared
    rolled_back: bool = False

    @property
    def last(self) -> int:
        return max((segment.last for segment in self.segments), default=0)

    @property
    def ends(self) -> bool:
        """Nothing can have happened in it of which no row is here."""
        return self.whole and self.closed and self.from_start and not self.lost and bool(self.segments)


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
    notes: tuple[str, ...] = ()  # what stays unprovable although it is excused
    weaker: bool = False  # Exchange's logs are among them: no sequences, hence no proof of completeness

    def complete(self, node: str) -> bool:
        """Is every row that this server ever wrote at hand?"""
        return node in self.nodes and all(one.ends for one in self.databases.values() if one.node == node)
