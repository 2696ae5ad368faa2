"""Makes faults of a node's disk and wall clock; they need the node's own disk and clock."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import timedelta

from shadowlab.chaos.faults import LET_GO, STOPPED, AllKilled, Alone, Down, EndsByItself, Hands, Killed
from shadowlab.chaos.history import Loses
from shadowlab.clocks import TAKES_EFFECT
from shadowlab.node_settings import settings

_LEAST = 32 << 20  # free octets that a node needs to go on
_ENDING = 0.5  # most seconds from a failed write to the end of a node
_FULL = 5.0  # seconds in which a disk is filled again each time its node has made room


@dataclass(frozen=True, slots=True)
class PowerCut(Down):
    """A power cut: unsynced data is lost, and the process ends."""

    def do(self, hands: Hands) -> None:
        hands.equipment.disks[self.node].cut()
        hands.cluster.kill(self.node, missing_ok=True)  # it may have ended by itself


@dataclass(frozen=True, slots=True)
class PowerFails(AllKilled):
    """A power cut of every node at once."""

    def do(self, hands: Hands) -> None:
        for node in self.touched:
            hands.equipment.disks[node].cut()
        super(PowerFails, self).do(hands)


@dataclass(frozen=True, slots=True)
class DiskFails(EndsByItself):
    """Every write and sync fails (EIO), and unsynced data is lost."""

    def befall(self, hands: Hands) -> None:
        hands.equipment.disks[self.node].cut()


@dataclass(frozen=True, slots=True)
class _Mended(Alone):
    """The node keeps running, and recovers when its disk and clock are as before."""

    @property
    def silences(self) -> bool:
        return False

    def undo(self, hands: Hands) -> None:
        hands.equipment.mend(hands.cluster, self.node)


@dataclass(frozen=True, slots=True)
class _Harmless(_Mended):
    """The node still records and reports what it does, so this causes no second delivery."""

    @property
    def touched(self) -> tuple[str, ...]:
        return ()


@dataclass(frozen=True, slots=True)
class DiskLow(_Harmless):
    """The disk has less room than the node wants: the node refuses mail and copies, and delivers."""

    def do(self, hands: Hands) -> None:
        wanted = settings(hands.cluster.node(self.node)).minimum_free_disk
        hands.equipment.disks[self.node].leave(max(wanted // 2, _LEAST))


@dataclass(frozen=True, slots=True)
class DiskFull(_Mended):
    """The disk is full again and again: at some time the node cannot write, and ends."""

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
    """The disk stalls: writes wait until it goes on."""

    def do(self, hands: Hands) -> None:
        hands.equipment.disks[self.node].stall()


@dataclass(frozen=True, slots=True)
class DiskSlow(_Mended):
    """The disk stalls most of the time, ``turns`` times."""

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
    """The wall clock is so far ``ahead``, or behind, and is then set right again."""

    ahead: timedelta

    def do(self, hands: Hands) -> None:
        hands.cluster.set_clock(self.node, self.ahead)
        hands.pause(TAKES_EFFECT)

    def undo(self, hands: Hands) -> None:
        hands.equipment.mend(hands.cluster, self.node)
        hands.pause(TAKES_EFFECT)


@dataclass(frozen=True, slots=True)
class ClockSetAtStart(_Mended):
    """Killed, and started with a wall clock that is ``ahead``, or behind; then it is set right again."""

    ahead: timedelta

    @property
    def loses(self) -> Loses:
        return Loses.WORK

    def do(self, hands: Hands) -> None:
        hands.cluster.kill(self.node)
        hands.cluster.set_clock(self.node, self.ahead)
        hands.cluster.start(self.node)
        hands.pause(TAKES_EFFECT)

    def undo(self, hands: Hands) -> None:
        hands.equipment.mend(hands.cluster, self.node)
        hands.pause(TAKES_EFFECT)


@dataclass(frozen=True, slots=True)
class HoldersClocksSet(Killed):
    """Killed; the wall clocks of all others are ``ahead``, or behind, while they promote what they hold."""

    others: tuple[str, ...]
    ahead: timedelta

    def do(self, hands: Hands) -> None:
        super(HoldersClocksSet, self).do(hands)
        for other in self.others:
            hands.cluster.set_clock(other, self.ahead)

    def undo(self, hands: Hands) -> None:
        for other in self.others:
            hands.equipment.mend(hands.cluster, other)
        hands.pause(TAKES_EFFECT)
        super(HoldersClocksSet, self).undo(hands)
