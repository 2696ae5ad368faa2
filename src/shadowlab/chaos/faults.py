"""The faults: what each does to one node, and how the node comes back from it."""

from __future__ import annotations

import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from shadowlab.chaos.equipment import Equipment
from shadowlab.chaos.history import Loses
from shadowlab.cluster import Cluster
from shadowlab.errors import LabError
from shadowlab.guard import undisturbed
from shadowlab.layout import Manner, Way

STOPPED, LET_GO = 0.2, 0.05  # seconds of a turn of what is slow
_ENDS_WITHIN = 30.0  # seconds until a node that cannot write any more must have ended


@dataclass(frozen=True, slots=True)
class Ground:
    """The node that a fault strikes, and the others."""

    node: str
    others: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Hands:
    """What faults work with. ``aside`` is a directory for what they keep.

    ``spoilt``: ids of the messages of which they have damaged a copy.
    """

    cluster: Cluster
    pause: Callable[[float], None]
    aside: Path
    equipment: Equipment
    spoilt: set[str] = field(default_factory=set)

    def bring_back(self, node: str) -> None:
        """Its disk and its clock are as they were, and it runs."""
        self.equipment.mend(self.cluster, node)
        self.cluster.start(node, self.equipment.environ(node))

    def keep_open_log(self, node: str) -> None:
        """What a lost disk takes with it of the tracking log, kept for those who look for causes."""
        for file in self.cluster.node(node).tracking_dir.glob(".MSGTRK-*.LOG.open"):
            kept = self.aside / "lost-logs" / node
            kept.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, kept / file.name.removeprefix(".").removesuffix(".open"))


class Fault(Protocol):
    """Strikes one node. It is broken when ``do`` returns, and back when ``undo`` does. Both raise LabError.

    ``silences``: from then until ``undo`` the node does nothing any more; else it goes on as it can.
    ``touched``: the nodes that cannot tell others what they did.
    """

    @property
    def node(self) -> str: ...

    @property
    def touched(self) -> tuple[str, ...]: ...

    @property
    def silences(self) -> bool: ...

    @property
    def loses(self) -> Loses: ...

    def do(self, hands: Hands) -> None: ...

    def undo(self, hands: Hands) -> None: ...


@dataclass(frozen=True, slots=True)
class Alone:
    """A fault of one node, and of no link."""

    node: str

    @property
    def touched(self) -> tuple[str, ...]:
        return (self.node,)

    @property
    def loses(self) -> Loses:
        return Loses.NOTHING


@dataclass(frozen=True, slots=True)
class Down(Alone):
    """Its process ends; started again, it finds what is on its disk."""

    @property
    def silences(self) -> bool:
        return True

    @property
    def loses(self) -> Loses:
        return Loses.WORK

    def undo(self, hands: Hands) -> None:
        hands.bring_back(self.node)


@dataclass(frozen=True, slots=True)
class Killed(Down):
    """SIGKILL; comes back with its disk."""

    def do(self, hands: Hands) -> None:
        hands.cluster.kill(self.node)


@dataclass(frozen=True, slots=True)
class AllKilled:
    """SIGKILL of every node at once; each comes back with its disk."""

    touched: tuple[str, ...]
    silences: bool = True
    loses: Loses = Loses.WORK

    @property
    def node(self) -> str:
        return "+".join(self.touched)

    def do(self, hands: Hands) -> None:
        for node in self.touched:
            hands.cluster.kill(node, missing_ok=True)  # it may have ended by itself

    def undo(self, hands: Hands) -> None:
        for node in self.touched:
            hands.bring_back(node)


@dataclass(frozen=True, slots=True)
class Stopped(Down):
    """SIGTERM and a graceful end; comes back with its disk."""

    def do(self, hands: Hands) -> None:
        hands.cluster.stop(self.node)


@dataclass(frozen=True, slots=True)
class Frozen(Alone):
    """SIGSTOP; goes on where it was."""

    silences: bool = False  # what it was about to do it does when it goes on

    def do(self, hands: Hands) -> None:
        hands.cluster.freeze(self.node)

    def undo(self, hands: Hands) -> None:
        hands.cluster.thaw(self.node)


@dataclass(frozen=True, slots=True)
class Slow(Alone):
    """Gets a fifth of the time: stopped and let go on, ``turns`` times."""

    turns: int
    silences: bool = False

    def do(self, hands: Hands) -> None:
        for _ in range(self.turns):
            hands.cluster.freeze(self.node)
            hands.pause(STOPPED)
            hands.cluster.thaw(self.node)
            hands.pause(LET_GO)

    def undo(self, hands: Hands) -> None:
        """It goes on already."""


@dataclass(frozen=True, slots=True)
class EndsByItself(Down, ABC):
    """Something happens to it after which it must not go on; comes back with its disk."""

    @abstractmethod
    def befall(self, hands: Hands) -> None:
        """What happens to it."""

    def do(self, hands: Hands) -> None:
        process = hands.cluster.process(self.node)
        self.befall(hands)
        try:
            if not process.wait(_ENDS_WITHIN):
                raise LabError(f"{self.node} still runs {_ENDS_WITHIN:.0f} s after it could write no more")
        finally:
            hands.cluster.kill(self.node, missing_ok=True)


@dataclass(frozen=True, slots=True)
class WritesFail(EndsByItself):
    """Whatever it writes to a file fails."""

    def befall(self, hands: Hands) -> None:
        hands.cluster.process(self.node).forbid_writes()


@dataclass(frozen=True, slots=True)
class _Forgets(Down):
    """Comes back without what it had recorded."""

    @property
    def loses(self) -> Loses:
        return Loses.DISK


@dataclass(frozen=True, slots=True)
class DiskLost(_Forgets):
    """SIGKILL, and its disk is gone; comes back with a new database."""

    def do(self, hands: Hands) -> None:
        hands.cluster.kill(self.node)
        hands.keep_open_log(self.node)
        hands.cluster.wipe(self.node)


@dataclass(frozen=True, slots=True)
class OldDisk(_Forgets):
    """Comes back with a copy of its disk that was made ``age`` seconds before it died.

    ``live``: the copy is a snapshot of the running database (frozen meanwhile); else of a database that
    was stopped gracefully and opened again after the copy was made.
    """

    age: float
    live: bool

    def do(self, hands: Hands) -> None:
        data = hands.cluster.node(self.node).data_dir
        copy = data.with_name("older")
        if self.live:
            hands.cluster.freeze(self.node)
            shutil.copytree(data, copy)
            hands.cluster.thaw(self.node)
        else:
            hands.cluster.stop(self.node)
            shutil.copytree(data, copy)
            hands.bring_back(self.node)
        hands.pause(self.age)
        hands.cluster.kill(self.node)
        with undisturbed():
            shutil.rmtree(data)
            copy.rename(data)
        hands.equipment.sync()


@dataclass(frozen=True, slots=True)
class Cut:
    """Some of its links are cut, in one direction or both."""

    node: str
    ways: tuple[Way, ...]
    manner: Manner = Manner.SILENT
    silences: bool = False
    loses: Loses = Loses.NOTHING

    @property
    def touched(self) -> tuple[str, ...]:
        return tuple(sorted({name for way in self.ways for name in (way.source, way.target)}))

    def do(self, hands: Hands) -> None:
        hands.cluster.cut(*self.ways, manner=self.manner)

    def undo(self, hands: Hands) -> None:
        hands.cluster.heal()
