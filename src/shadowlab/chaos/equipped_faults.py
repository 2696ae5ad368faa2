"""Faults of a node's disk and of its wall clock, which take a disk and a clock of its own."""

from __future__ import annotations

import time
from dataclasses import dataclass

from shadowlab.chaos.faults import LET_GO, STOPPED, AllKilled, Alone, Down, EndsByItself, Hands
from shadowlab.chaos.history import Loses
from shadowlab.clocks import TAKES_EFFECT
from shadowlab.node_settings import settings

_LEAST = 32 << 20  # octets that a node which is to go on finds free
_ENDING = 0.5  # seconds that a node takes at most from a write that fails to its end
_FULL = 5.0  # seconds for which a disk is filled again whenever its node has made room on it


@dataclass(frozen=True, slots=True)
class PowerCut(Down):
    """What was not synced is gone, and the process with it."""

    def do(self, hands: Hands) -> None:
        hands.equipment.disks[self.node].cut()
        hands.cluster.kill(self.node, missing_ok=True)  # it may have ended by itself


@dataclass(frozen=True, slots=True)
class PowerFails(AllKilled):
    """Of every node at once."""

    def do(self, hands: Hands) -> None:
        for node in self.touched:
            hands.equipment.disks[node].cut()
        super(PowerFails, self).do(hands)


@dataclass(frozen=True, slots=True)
class DiskFails(EndsByItself):
    """Every write and every sync fails (EIO), and what was not synced is gone."""

    def befall(self, hands: Hands) -> None:
        hands.equipment.disks[self.node].cut()


@dataclass(frozen=True, slots=True)
class _Mended(Alone):
    """It is still there, and goes on when its disk and its clock are as they were."""

    @property
    def silences(self) -> bool:
        return False

    def undo(self, hands: Hands) -> None:
        hands.equipment.mend(hands.cluster, self.node)


@dataclass(frozen=True, slots=True)
class _Harmless(_Mended):
    """It goes on to record what it does, and to tell it: no second delivery comes of this."""

    @property
    def touched(self) -> tuple[str, ...]:
        return ()


@dataclass(frozen=True, slots=True)
class DiskLow(_Harmless):
    """Less is free than the node wants: it refuses mail and copies, and delivers."""

    def do(self, hands: Hands) -> None:
        wanted = settings(hands.cluster.node(self.node)).minimum_free_disk
        hands.equipment.disks[self.node].leave(max(wanted // 2, _LEAST))


@dataclass(frozen=True, slots=True)
class DiskFull(_Mended):
    """Not an octet is free, again and again: sooner or later it cannot write, and ends."""

    @property
    def loses(self) -> Loses:
        return Loses.WORK

    def do(self, hands: Hands) -> None:
        disk, process = hands.equipment.disks[self.node], hands.cluster.process(self.node)
        deadline = time.monotonic() + _FULL
        while process.alive and time.monotonic() < deadline:
            disk.fill()
            hands.pause(STOPPED)

    def undo(self, hands: Hands) -> None:
        hands.equipment.mend(hands.cluster, self.node)
        hands.cluster.process(self.node).wait(_ENDING)
        hands.bring_back(self.node)


@dataclass(frozen=True, slots=True)
class DiskStalls(_Mended):
    """Whoever writes to it waits until it goes on."""

    def do(self, hands: Hands) -> None:
        hands.equipment.disks[self.node].stall()


@dataclass(frozen=True, slots=True)
class DiskSlow(_Mended):
    """It stalls most of the time, ``turns`` times."""

    turns: int

    def do(self, hands: Hands) -> None:
        disk = hands.equipment.disks[self.node]
        for _ in range(self.turns):
            disk.stall()
            hands.pause(STOPPED)
            disk.go_on()
            hands.pause(LET_GO)


@dataclass(frozen=True, slots=True)
class ClockSet(_Harmless):
    """Its wall clock is so many hours ahead, or behind, and is then set right again."""

    hours: int

    def do(self, hands: Hands) -> None:
        hands.equipment.clocks[self.node].set(self.hours)
        hands.pause(TAKES_EFFECT)

    def undo(self, hands: Hands) -> None:
        hands.equipment.mend(hands.cluster, self.node)
        hands.pause(TAKES_EFFECT)
