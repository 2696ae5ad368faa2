"""The clocks of machines: a wall clock that steps, and a boot clock that nobody can set.

In every third run wall clocks step, by minutes, by hours or by a year, and are right again 2 to 70 seconds
later: at any moment, also while the process is down, or at its start. When a process is started again, its
machine may have been rebooted: then the boot clock begins anew, under another id. All of it is drawn apart
from the faults, so the other runs are what they were.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from shadowrelay.core.identifiers import ServerName
from shadowrelay.core.reception.shadow_servers import MemberPlace
from shadowrelay.core.reckoning import ClockReading, Judgement, Reckoning
from shadowrelay.node_clock import NodeClock

from .world import START, World, seconds

if TYPE_CHECKING:
    from .node import Node

MINUTE, HOUR, DAY = 60.0, 3600.0, 86400.0

STEPS = (2 * MINUTE, 15 * MINUTE, 20 * HOUR, 10 * DAY, 365 * DAY)
"""By how much a clock is set ahead or back, in seconds."""

SHORTEST, LONGEST = 2.0, 70.0
"""Seconds for which a clock is wrong."""

LONGEST_UNTOLD = 20.0
"""The same where members do not tell the time: there, a clock that is wrong for longer is believed."""

SETTLES, SETTLES_UNTOLD, PATIENCE = seconds(80), seconds(25), seconds(100)
"""``reckoning.SETTLES`` and ``PATIENCE``, scaled as other times are: longer than a clock is wrong."""

REBOOTS = 0.4
"""Share of the starts of a process that are those of its machine."""

SWEEPS = 0.3
"""Share of the looks, two a second, at which nodes look for what goes by age."""


@dataclass(slots=True)
class MachineClocks:
    """The clocks of the machine of one node. ``offset``: how far the wall clock is ahead, in seconds."""

    world: World
    boot_id: str
    started: float = -100.0  # when the machine was switched on, in the world's time
    offset: float = 0.0
    boots: int = 1
    was_wrong: bool = False  # ever

    def read(self) -> ClockReading:
        now = round(self.world.now, 6)
        return ClockReading(START + seconds(now + self.offset), seconds(now - self.started), self.boot_id)

    def reboot(self) -> None:
        self.boots += 1
        self.started = round(self.world.now, 6) - 1.0
        self.boot_id = f"{self.boot_id.partition('+')[0]}+{self.boots}"


def machine_of(world: World, place: MemberPlace) -> MachineClocks:
    """The workers of one machine have its clocks in common."""
    return world.machines.setdefault(place.host, MachineClocks(world, f"boot of {place.host}"))


class NodesClock(NodeClock):
    """The clock of a simulated node: what it doubts is in the history."""

    patience = PATIENCE

    def __init__(self, reckoning: Reckoning, machine: MachineClocks) -> None:
        super().__init__(reckoning, machine.read)
        self.settles = SETTLES if machine.world.tells_time else SETTLES_UNTOLD

    def changed(self, found: Judgement, differences: Mapping[ServerName, timedelta]) -> None:
        del found, differences


class Stepping:
    """What a run does to the clocks of its machines."""

    def __init__(self, world: World, seed: int, *, still: bool) -> None:
        """``still``: all happens as ever, but each step is one of no length."""
        self.world = world
        self.still = still
        self.steps = 0  # planned, and not over
        self.draw = random.Random(seed ^ 0xC10C)
        world.before_start = self._before_start

    def plan(self, start: float) -> None:
        """One or two clocks step while mail and faults are under way."""
        draw = self.draw
        nodes = list(self.world.nodes.values())
        for _ in range(draw.choice((1, 1, 2))):
            self.steps += 1
            self.world.after(start - self.world.now + 8.0 * draw.random(), self._step, draw.choice(nodes))

    def finish(self) -> None:
        """No more from now on."""
        self.world.before_start = lambda node: None

    def sweeps(self) -> bool:
        """Do the nodes look for what goes by age now?"""
        return self.draw.random() < SWEEPS

    def doubted(self) -> str:
        """Whose clock is still not trusted though members can say that it is right; '' if nobody's."""
        found = [node.name for node in self.world.nodes.values() if self.world.tells_time and node.doubts]
        return f"{found[0]} does not trust its clock" if found else ""

    def wrong(self) -> str:
        """'' if all clocks are right, or would be if they had stepped, and stay so."""
        return f"{self.steps} clocks are wrong, or will be" if self.steps else ""

    def _before_start(self, node: Node) -> None:
        draw = self.draw
        alone = not any(other.up and other.machine is node.machine for other in self.world.nodes.values())
        if rebooted := alone and draw.random() < REBOOTS:
            node.machine.reboot()
            self.world.fault("reboot")
            self.world.say(node.name, "its machine was rebooted")
        if draw.random() < (0.4 if rebooted else 0.1):
            self.steps += 1
            self._step(node)

    def _step(self, node: Node) -> None:
        """Most steps of one node come one by one; two that overlap add up. Not all are wrong by the same:
        members that agree are believed.
        """
        draw = self.draw
        by = draw.choice((-1.0, 1.0)) * draw.choice(STEPS) * (not self.still)
        there = node.machine.offset + by
        others = (one.offset for one in self.world.machines.values() if one is not node.machine)
        if all(abs(one) > HOUR > abs(there - one) for one in others):
            by = -by
        longest = LONGEST if self.world.tells_time else LONGEST_UNTOLD
        length = draw.choice((draw.uniform(SHORTEST, 10.0), draw.uniform(SHORTEST, longest)))
        self.world.fault("wall clock")
        self.world.say(node.name, f"its wall clock steps by {by:+.0f} s for {length:.1f} s")
        node.machine.offset += by
        node.machine.was_wrong = True
        self.world.after(length, self._back, node, by)

    def _back(self, node: Node, by: float) -> None:
        self.steps -= 1
        node.machine.offset -= by
        self.world.say(node.name, f"its wall clock steps by {-by:+.0f} s")


def of_every_third(seed: int) -> bool:
    return seed % 3 == 1


def tells_time(seed: int) -> bool:
    """Do members tell one another the time? Not in every third run with such clocks."""
    return of_every_third(seed) and seed % 9 != 1
