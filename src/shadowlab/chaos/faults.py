"""Makes faults: what each does to a node, and how the node comes back."""

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

STOPPED, LET_GO = 0.2, 0.05  # seconds of one turn of a slow node or disk
_ENDS_WITHIN = 30.0  # seconds until a node that cannot write must have ended


@dataclass(frozen=True, slots=True)
class Ground:
    """The node that a fault strikes, and the others."""

    node: str
    others: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Hands:
    """What faults work with. ``aside``: a directory for what they keep.

    ``spoilt``: ids of messages of which they damaged a copy.
    """

    cluster: Cluster
    pause: Callable[[float], None]
    aside: Path
    equipment: Equipment
    spoilt: set[str] = field(default_factory=set)

    def bring_back(self, node: str) -> None:
        """Mend the disk and the clock of a node, and start it."""
        self.equipment.mend(self.cluster, node)
        self.cluster.start(node)

    def keep_open_log(self, node: str) -> None:
        """Keep the open tracking file that a lost disk takes with it, to find causes later."""
        for file in self.cluster.node(node).tracking_dir.glob(".MSGTRK-*.LOG.open"):
            kept = self.aside / "lost-logs" / node
            kept.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, kept / file.name.removeprefix(".").removesuffix(".open"))


class Fault(Protocol):
    """A fault of one node: complete when ``do`` returns, undone when ``undo`` returns. Both raise LabError.

    ``silences``: the node does nothing until ``undo``; otherwise it goes on as it can. ``touched``: the nodes
    that cannot tell others what they did.
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
    """The process ends; started again, it has what is on its disk."""

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
    """SIGKILL; the node comes back with its disk."""

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
    """SIGTERM and a graceful end; the node comes back with its disk."""

    def do(self, hands: Hands) -> None:
        hands.cluster.stop(self.node)


@dataclass(frozen=True, slots=True)
class Frozen(Alone):
    """SIGSTOP; the node goes on where it was."""

    silences: bool = False  # once it goes on, it does what it was about to do

    def do(self, hands: Hands) -> None:
        hands.cluster.freeze(self.node)

    def undo(self, hands: Hands) -> None:
        hands.cluster.thaw(self.node)


@dataclass(frozen=True, slots=True)
class Slow(Alone):
    """The node gets a fifth of the time: it is frozen and thawed ``turns`` times."""

    turns: int
    silences: bool = False

    def do(self, hands: Hands) -> None:
        for _ in range(self.turns):
            hands.cluster.freeze(self.node)
            hands.pause(STOPPED)
            hands.cluster.thaw(self.node)
            hands.pause(LET_GO)

    def undo(self, hands: Hands) -> None:
        """Do nothing: the node runs."""


@dataclass(frozen=True, slots=True)
class EndsByItself(Down, ABC):
    """Something happens after which the node must end by itself; it comes back with its disk."""

    @abstractmethod
    def befall(self, hands: Hands) -> None:
        """Make it happen."""

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
    """Every write to a file fails."""

    def befall(self, hands: Hands) -> None:
        hands.cluster.process(self.node).forbid_writes()


@dataclass(frozen=True, slots=True)
class _Forgets(Down):
    """The node comes back without some or all of its records."""

    @property
    def loses(self) -> Loses:
        return Loses.DISK


@dataclass(frozen=True, slots=True)
class DiskLost(_Forgets):
    """SIGKILL, and the disk is lost; the node comes back with a new database."""

    def do(self, hands: Hands) -> None:
        hands.cluster.kill(self.node)
        hands.keep_open_log(self.node)
        hands.cluster.wipe(self.node)


@dataclass(frozen=True, slots=True)
class OldDisk(_Forgets):
    """The node comes back with a copy of its disk from ``age`` seconds before it died.

    ``live``: the copy is a snapshot of the running database, frozen meanwhile. Otherwise the node is stopped
    gracefully for the copy, and started again after it.
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
    """Some links of the node are cut, in one direction or both."""

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
