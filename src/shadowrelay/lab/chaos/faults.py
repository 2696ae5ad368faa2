"""The faults: what each does to one node, and how the node comes back from it."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from shadowrelay.lab.cluster import Cluster
from shadowrelay.lab.errors import LabError
from shadowrelay.lab.guard import undisturbed
from shadowrelay.lab.layout import Manner, Way

_STOPPED, _LET_GO = 0.2, 0.05  # seconds of a slow node's turn
_ENDS_WITHIN = 30.0  # seconds until a node that cannot write any more must have ended


@dataclass(frozen=True, slots=True)
class Ground:
    """The node that a fault strikes, and the others."""

    node: str
    others: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Hands:
    """What faults work with. ``aside`` is an empty directory of their own, on the disk of the nodes."""

    cluster: Cluster
    pause: Callable[[float], None]
    aside: Path

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

    def do(self, hands: Hands) -> None: ...

    def undo(self, hands: Hands) -> None: ...


@dataclass(frozen=True, slots=True)
class _Alone:
    """A fault of one node, and of no link."""

    node: str

    @property
    def touched(self) -> tuple[str, ...]:
        return (self.node,)


@dataclass(frozen=True, slots=True)
class _Down(_Alone):
    """Its process ends; started again, it finds what is on its disk."""

    @property
    def silences(self) -> bool:
        return True

    def undo(self, hands: Hands) -> None:
        hands.cluster.start(self.node)


@dataclass(frozen=True, slots=True)
class Killed(_Down):
    """SIGKILL; comes back with its disk."""

    def do(self, hands: Hands) -> None:
        hands.cluster.kill(self.node)


@dataclass(frozen=True, slots=True)
class Stopped(_Down):
    """SIGTERM and a graceful end; comes back with its disk."""

    def do(self, hands: Hands) -> None:
        hands.cluster.stop(self.node)


@dataclass(frozen=True, slots=True)
class Frozen(_Alone):
    """SIGSTOP; goes on where it was."""

    silences: bool = False  # what it was about to do it does when it goes on

    def do(self, hands: Hands) -> None:
        hands.cluster.freeze(self.node)

    def undo(self, hands: Hands) -> None:
        hands.cluster.thaw(self.node)


@dataclass(frozen=True, slots=True)
class Slow(_Alone):
    """Gets a fifth of the time: stopped and let go on, ``turns`` times."""

    turns: int
    silences: bool = False

    def do(self, hands: Hands) -> None:
        for _ in range(self.turns):
            hands.cluster.freeze(self.node)
            hands.pause(_STOPPED)
            hands.cluster.thaw(self.node)
            hands.pause(_LET_GO)

    def undo(self, hands: Hands) -> None:
        """It goes on already."""


@dataclass(frozen=True, slots=True)
class WritesFail(_Down):
    """Whatever it writes to a file fails, so it has to end by itself; comes back with its disk."""

    def do(self, hands: Hands) -> None:
        process = hands.cluster.process(self.node)
        process.forbid_writes()
        try:
            if not process.wait(_ENDS_WITHIN):
                raise LabError(f"{self.node} still runs {_ENDS_WITHIN:.0f} s after its last write")
        finally:
            if process.alive:
                hands.cluster.kill(self.node)


@dataclass(frozen=True, slots=True)
class DiskLost(_Down):
    """SIGKILL, and its disk is gone; comes back with a new database."""

    def do(self, hands: Hands) -> None:
        hands.cluster.kill(self.node)
        hands.keep_open_log(self.node)
        hands.cluster.wipe(self.node)


@dataclass(frozen=True, slots=True)
class OldDisk(_Down):
    """Comes back with a copy of its disk that was made ``age`` seconds before it died.

    ``live``: the copy is a snapshot of the running database (frozen meanwhile); else of a database that
    was stopped gracefully and opened again after the copy was made.
    """

    age: float
    live: bool

    def do(self, hands: Hands) -> None:
        data, copy = hands.cluster.node(self.node).data_dir, hands.aside / f"disk-of-{self.node}"
        if self.live:
            hands.cluster.freeze(self.node)
            shutil.copytree(data, copy)
            hands.cluster.thaw(self.node)
        else:
            hands.cluster.stop(self.node)
            shutil.copytree(data, copy)
            hands.cluster.start(self.node)
        hands.pause(self.age)
        hands.cluster.kill(self.node)
        with undisturbed():
            shutil.rmtree(data)
            copy.rename(data)


@dataclass(frozen=True, slots=True)
class Cut:
    """Some of its links are cut, in one direction or both."""

    node: str
    ways: tuple[Way, ...]
    manner: Manner = Manner.SILENT
    silences: bool = False

    @property
    def touched(self) -> tuple[str, ...]:
        return tuple(sorted({name for way in self.ways for name in (way.source, way.target)}))

    def do(self, hands: Hands) -> None:
        hands.cluster.cut(*self.ways, manner=self.manner)

    def undo(self, hands: Hands) -> None:
        hands.cluster.heal()


@dataclass(frozen=True, slots=True)
class Kind:
    """A fault in the catalogue: how it is made, and how long it lasts, given the time span."""

    text: str
    make: Callable[[Ground, random.Random], Fault]
    lasting: Callable[[float, random.Random], float]


def _short(span: float, chance: random.Random) -> float:
    """Well within the time span: nothing is promoted by time."""
    return chance.uniform(0.05, 0.6) * span


def _long(span: float, chance: random.Random) -> float:
    """Past the time span, counted from the first heartbeat that fails."""
    return span + chance.uniform(3.0, 6.0)


def _moment(span: float, chance: random.Random) -> float:
    del span
    return chance.uniform(0.0, 1.0)


def _from(ground: Ground) -> tuple[Way, ...]:
    return tuple(Way(ground.node, other) for other in ground.others)


def _to(ground: Ground) -> tuple[Way, ...]:
    return tuple(Way(other, ground.node) for other in ground.others)


def _pair(ground: Ground, chance: random.Random) -> tuple[Way, Way]:
    way = Way(ground.node, chance.choice(ground.others))
    return way, way.back


def _one_way(ground: Ground, chance: random.Random) -> Cut:
    ways = chance.choice((_from(ground), _to(ground), _pair(ground, chance)[:1]))
    return Cut(ground.node, ways)


def _around(ground: Ground, chance: random.Random) -> Cut:
    del chance
    return Cut(ground.node, (*_from(ground), *_to(ground)))


def _between(ground: Ground, chance: random.Random) -> Cut:
    return Cut(ground.node, _pair(ground, chance))


def _reset(ground: Ground, chance: random.Random) -> Cut:
    return Cut(ground.node, chance.choice((_from(ground), _pair(ground, chance))), Manner.RESET)


def _slow(ground: Ground, chance: random.Random) -> Slow:
    return Slow(ground.node, chance.randint(8, 40))


def _old(*, live: bool) -> Callable[[Ground, random.Random], Fault]:
    return lambda ground, chance: OldDisk(ground.node, chance.uniform(0.5, 5.0), live)


CATALOGUE: Mapping[str, Kind] = {
    "kill": Kind("killed, back at once", lambda ground, _: Killed(ground.node), _moment),
    "stop": Kind("stopped gracefully, back at once", lambda ground, _: Stopped(ground.node), _moment),
    "away": Kind("killed, back after the time span", lambda ground, _: Killed(ground.node), _long),
    "freeze": Kind("frozen for a while", lambda ground, _: Frozen(ground.node), _short),
    "freeze-long": Kind("frozen past the time span", lambda ground, _: Frozen(ground.node), _long),
    "slow": Kind("gets a fifth of the time for a while", _slow, _moment),
    "writes-fail": Kind("no write to a file succeeds any more", lambda g, _: WritesFail(g.node), _moment),
    "disk-lost": Kind("killed, its disk lost", lambda ground, _: DiskLost(ground.node), _moment),
    "disk-lost-away": Kind("the same, back after the time span", lambda g, _: DiskLost(g.node), _long),
    "old-disk": Kind("killed, back with an older state of its disk", _old(live=False), _moment),
    "snapshot": Kind("killed, back with a snapshot of this very incarnation", _old(live=True), _moment),
    "cut-off": Kind("cut off from all others for a while", _around, _short),
    "cut-off-long": Kind("cut off from all others past the time span", _around, _long),
    "pair": Kind("two nodes do not reach each other for a while", _between, _short),
    "pair-long": Kind("two nodes do not reach each other past the time span", _between, _long),
    "one-way": Kind("what it sends, or what is sent to it, is dropped for a while", _one_way, _short),
    "one-way-long": Kind("the same past the time span", _one_way, _long),
    "reset": Kind("its connections are reset and refused for a while", _reset, _short),
}
