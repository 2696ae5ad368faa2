"""Back pressure: what a node reads of its resources, as the world has it, and what it must refuse then.

The level of each resource, what all come to, who is refused and the stage that looks are the product's own;
only what it reads is drawn. What is expected of a node is said here in other words, by all that its process
has read since it began.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shadowrelay.core.decisions import Decision
from shadowrelay.core.identifiers import ServerName
from shadowrelay.core.pressure import (
    Inflow,
    Resource,
    Stance,
    Thresholds,
    counted,
    of_disk,
    of_log_disk,
    of_memory,
)
from shadowrelay.core.tracking import PressureChanged
from shadowrelay.database.room import Room
from shadowrelay.reception.back_pressure import LOOK, BackPressure, PressureLimits

from .world import Broken, World

if TYPE_CHECKING:
    from .node import Node

PACE = 20.0
"""Seconds of the clock of back pressure in a second of the world."""

DISK, LEAST = 100 << 30, 2 << 30
"""Octets of a disk, and ``minimum_free_disk``."""

_LIMITS = PressureLimits(
    1,
    {
        Resource.DATA_DISK: (90, 95, 92, 88),
        Resource.LOG_DISK: (90, 95, 92, 88),
        Resource.MEMORY: (60, 80, 70, 50),
        Resource.QUEUE: (100, 200, 150, 50),
        Resource.UNCOMMITTED: (10, 20, 15, 5),
    },
)

_MARKS: dict[Resource, Callable[..., Thresholds]] = {
    Resource.DATA_DISK: lambda *marks: of_disk(*marks, minimum=LEAST, size=DISK),
    Resource.LOG_DISK: lambda *marks: of_log_disk(*marks, minimum=LEAST, size=DISK),
    Resource.MEMORY: of_memory,
    Resource.QUEUE: counted,
    Resource.UNCOMMITTED: counted,
}

LEVELS: dict[Resource, tuple[tuple[float, float], ...]] = {
    Resource.DATA_DISK: ((90, 88), (95, 92), (98, 97.5)),
    Resource.LOG_DISK: ((90, 88), (95, 92), (98, 97.5)),
    Resource.MEMORY: ((60, 50), (80, 70), (90, 80)),
    Resource.QUEUE: ((100, 50), (200, 150)),
    Resource.UNCOMMITTED: ((10, 5), (20, 15)),
}
"""Where each level begins and ends with these settings; a count never comes to the last."""

SLOWED = (Resource.QUEUE, Resource.UNCOMMITTED)
"""At their first level MAIL waits; strangers are refused when that has lasted for five minutes."""

PATIENCE = 3.0
"""Seconds in which a batch of a resubmit request is done that began before the pressure."""


@dataclass(slots=True)
class Expected:
    """What must be refused, by what was read since the process began. A level lasts from the reading at which
    it begins until one that is below its end.
    """

    lasting: dict[Resource, list[bool]] = field(default_factory=dict)
    since: dict[Resource, float] = field(default_factory=dict)
    refused: Inflow = Inflow.NONE
    slow: bool = False
    pressed_since: float | None = None

    def read(self, readings: dict[Resource, float], now: float) -> None:
        """``now``: in seconds of the world."""
        self.refused, self.slow = Inflow.NONE, False
        for what, levels in LEVELS.items():
            reading, before = readings.get(what, 0.0), self.lasting.get(what, [False] * 3)
            pairs = zip(levels, before, strict=False)
            lasts = self.lasting[what] = [reading >= (at[1] if was else at[0]) for at, was in pairs]
            if not lasts[0]:
                self.since.pop(what, None)
                continue
            began = self.since.setdefault(what, now)
            self.slow |= what in SLOWED
            if sum(lasts) > 1 or what not in SLOWED or PACE * (now - began) >= 300.0:
                self.refused = max(self.refused, Inflow(sum(lasts)))
        if not self.since:
            self.pressed_since = None
        elif self.pressed_since is None:
            self.pressed_since = now


class NodesPressure(BackPressure):
    """The stage of one process. It looks as long as there is anything to see."""

    def __init__(self, node: Node) -> None:
        self.node, world = node, node.world
        self.readings = world.readings[node.name]
        self.room = Room(Path("/"), LEAST)
        nowhere: Any = None
        super().__init__(self.room, nowhere, Path("/"), _LIMITS, node.clock, lambda: PACE * world.now)
        self.expected = Expected()
        self.waiting: list[tuple[Inflow, Callable[[], None]]] = []  # MAIL that waits, or has waited
        self.looks = False

    def begin(self) -> None:
        """What it reads may have changed."""
        if not self.looks:
            self.looks = True
            self.node.after(LOOK / PACE, self._again)

    def _again(self) -> None:
        self.see()
        self.looks = False
        if any(self.readings.values()) or self.room.stance.pauses:
            self.begin()

    def see(self) -> None:
        """As ``look``, and at once."""
        now = self._seconds()
        used = self.readings.get(Resource.DATA_DISK, 0.0)
        self.board.measured(round(DISK * (1 - used / 100)), now)
        self._decide({}, now)
        self._follow(now)
        self.expected.read(self.readings, self.node.world.now)
        stance, waiting, self.waiting = self.room.stance, self.waiting, []
        for inflow, go_on in waiting:
            if stance.delay and inflow > stance.refuses:
                self.waiting.append((inflow, go_on))
            else:
                go_on()

    def _readings(self, disks: Any) -> Iterator[tuple[Resource, tuple[float, Thresholds] | None]]:
        del disks
        for what, marks in _LIMITS.of.items():
            yield what, (self.readings.get(what, 0.0), _MARKS[what](*marks))

    def _record(self, changes: tuple[PressureChanged, ...]) -> None:
        node = self.node
        for one in changes:
            said = f"{one.resource.value} {one.before.name.lower()} to {one.level.name.lower()}"
            node.world.say(node.name, f"  BACKPRESSURE {said}")
            node.world.point("event", "BACKPRESSURE", node.name, said)
        node.transact(lambda ledger: ledger.apply(Decision(None, (), changes)), lambda _: None)

    # What comes in.

    def mail(self, inflow: Inflow, then: Callable[[bool], None]) -> None:
        """MAIL of a client, as ``Intake.mail`` has it. ``then`` is told whether it is taken."""
        room, open_ = self.room, [True]
        delay = room.delay(inflow) if room.presses else 0.0

        if delay:
            self.node.world.turned_away["pressure: MAIL waits"] += 1

        def decide() -> None:
            open_.clear()
            refused = room.presses and room.refuses(inflow)
            taken = not refused and room.admits(inflow=Inflow.TRUSTED)
            if taken and self.expected.slow and not delay:
                raise Broken(f"{self.node.name} takes mail at once, though a queue of it is long")
            self._compare(inflow, taken=taken)
            then(taken)

        if delay:
            goes_on = lambda: decide() if open_ else None  # noqa: E731
            self.waiting.append((inflow, goes_on))
            self.node.after(delay / PACE, goes_on)
        else:
            decide()

    def takes_copy(self) -> bool:
        """MAIL of a member."""
        taken = self.room.admits_copy()
        self._compare(Inflow.COPIES, taken=taken)
        return taken

    def _compare(self, inflow: Inflow, *, taken: bool) -> None:
        """The floor of the disk is where it is full."""
        if not taken:
            self.node.world.turned_away[f"pressure: {inflow.name.lower()}"] += 1
        about = f"{inflow.name.lower()}, with {_told(self.readings)}"
        if taken and inflow <= self.expected.refused:
            raise Broken(f"{self.node.name} does not refuse {about}")
        if not taken and inflow > self.expected.refused:
            raise Broken(f"{self.node.name} refuses {about}")

    @property
    def pressed_for(self) -> float:
        """Seconds of the world for which any resource has been scarce."""
        since = self.expected.pressed_since
        return 0.0 if since is None else self.node.world.now - since


def _told(readings: dict[Resource, float]) -> str:
    return (
        ", ".join(f"{what.value} {reading:.1f}" for what, reading in readings.items() if reading)
        or "no pressure"
    )


def read(world: World, name: ServerName, what: Resource, reading: float) -> None:
    """From now on that node reads so much of that resource."""
    world.readings[name][what] = reading
    world.say(name, f"reads {what.value} {reading:.1f}")
    node = world.nodes[name]
    if node.up and node.pressure:
        node.pressure.begin()


def unrest(world: World) -> str:
    """Which node is under pressure, though nothing is scarce any more; '' if none is."""
    for node in world.nodes.values():
        if node.up and node.pressure and node.pressure.room.stance != Stance():
            return f"{node.name} is under pressure, with {_told(node.pressure.readings)}"
    return ""


class Pressing:
    """The pressure of one seed, drawn apart from everything else."""

    def __init__(self, world: World, draw: random.Random) -> None:
        self.world = world
        self.draw = draw
        world.readings = {place.name: {} for place in world.places}

    def inflow(self) -> Inflow:
        """Of a client."""
        return self.draw.choice((Inflow.OUTSIDE, Inflow.TRUSTED))

    def plan(self, start: float, favourite: ServerName) -> None:
        """Resources of one node, or of all, become scarce for a while, while a fault comes and goes."""
        draw, names = self.draw, list(self.world.readings)
        for _ in range(draw.randint(1, 3)):
            victims = (
                names if draw.random() < 0.2 else [favourite if draw.random() < 0.4 else draw.choice(names)]
            )
            what, at = draw.choice(tuple(Resource)), start - self.world.now + draw.uniform(0.0, 8.0)
            peak, length = draw.randrange(len(LEVELS[what])), draw.choice((2.0, 5.0, 9.0, 20.0))
            for name in victims:
                self._episode(name, what, peak, at, length * draw.uniform(0.5, 1.0))

    def _episode(self, name: ServerName, what: Resource, peak: int, at: float, length: float) -> None:
        """It rises to that level, goes up and down between begin and end of some, and is over."""
        draw, levels = self.draw, LEVELS[what]
        steps = [self._above(levels, peak)]
        for _ in range(draw.randint(0, 4)):
            level = draw.randint(0, peak)
            begins, ends = levels[level]
            between = draw.uniform(ends, begins) if draw.random() < 0.6 else ends - 0.1
            steps.append(between if draw.random() < 0.7 else self._above(levels, level))
        for number, reading in enumerate([*steps, 0.0]):
            self.world.after(at + length * number / len(steps), read, self.world, name, what, reading)

    def _above(self, levels: tuple[tuple[float, float], ...], level: int) -> float:
        """A reading at which that level is the highest that begins."""
        begins = levels[level][0]
        above = levels[level + 1][0] if level + 1 < len(levels) else begins + 1.5
        return begins + 0.9 * (above - begins) * self.draw.random()
