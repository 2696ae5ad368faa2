"""Decides whether there is room for new mail: stored mail must always find enough to be settled."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import field
from pathlib import Path

from shadowrelay.core.pressure import ENOUGH, Inflow, Stance
from shadowrelay.core.values import dataclass
from shadowrelay.readings import ReadingsBoard

_LITTLE = 2  # times the minimum

_PUT_OFF = {
    Inflow.NONE: "nothing is put off",
    Inflow.OUTSIDE: "mail from outside is put off",
    Inflow.TRUSTED: "mail is put off",
    Inflow.COPIES: "mail and copies of members are put off",
}


@dataclass(slots=True)
class Room:
    """What this node has room for; all connectors of a node share one.

    Once fewer than ``minimum`` octets are free on the disk with ``directory``, it admits nothing until a
    quarter more than that is free: as of the last look, of which all workers read on ``board``. What was
    written since is taken off. ``stance``: what the pressure on all resources comes to, as of that look;
    ``presses``: whether anything at all, and ``told``: of which ones, in words. ``delayed``, ``refused``: how
    much, since the start.
    ``without_descriptors``: rows of the tracking log wait for a descriptor; until it is over nothing is
    admitted either, for each message makes more of them.
    """

    directory: Path
    minimum: int
    board: ReadingsBoard = field(default_factory=ReadingsBoard)
    _short: bool = False
    _written: memoryview[float] = field(init=False)
    _mark: tuple[float, float] | None = None
    without_descriptors: bool = False
    presses: bool = False
    stance: Stance = field(default_factory=Stance)
    told: str = ""
    delayed: int = 0
    refused: Counter[Inflow] = field(default_factory=Counter)
    _another: asyncio.Event = field(default_factory=asyncio.Event)  # stance than when it was made

    def __post_init__(self) -> None:
        self.share(self.board)

    def share(self, board: ReadingsBoard) -> None:
        """From now on this is the board."""
        self.board, self._written = board, board.written

    @property
    def free(self) -> int:
        """Free octets as of the last look, less what was written since."""
        return max(int(self.board.room[1]), 0)

    @property
    def shortage(self) -> str:
        """The shortage in words, for the operator."""
        if self.without_descriptors:
            return "mail is put off: the process has no file descriptor left for its tracking log"
        if self.stance.refuses >= Inflow.TRUSTED:
            return f"{_PUT_OFF[self.stance.refuses]}: {self.told}"
        if self.board.room[0] < 0:
            return f"mail is put off: the disk of {self.directory} does not say what is free"
        return (
            f"mail is put off: {self.free / 2**20:,.0f} MiB are free on the disk of {self.directory}, "
            f"minimum_free_disk is {self.minimum / 2**20:,.0f} MiB; a quarter more free space ends it"
        )

    @property
    def warning(self) -> str:
        """What an operator has to know before there is a shortage; empty while there is plenty."""
        stance = self.stance
        if stance.pauses and stance.refuses < Inflow.TRUSTED:
            slow = f", and MAIL waits {stance.delay:.0f} s" if stance.delay else ""
            return f"under pressure: {_PUT_OFF[stance.refuses]}{slow}: {self.told}"
        free = self.free
        if self.board.room[0] < 0 or free >= _LITTLE * self.minimum or self._short:
            return ""
        return (
            f"little room: {free / 2**20:,.0f} MiB are free on the disk of {self.directory}; mail is put off "
            f"below {self.minimum / 2**20:,.0f} MiB (minimum_free_disk)"
        )

    def admits(self, size: int = 0, inflow: Inflow = Inflow.TRUSTED) -> bool:
        """Whether ``size`` octets (0: unknown) may be taken. Refusing by size affects no others."""
        free, left = self.board.room
        if free < 0:
            return False
        self._short = free < self.minimum * (ENOUGH if self._short else 1)
        if self._short or self.without_descriptors or inflow <= self.stance.refuses:
            return False
        return left - size >= self.minimum

    def wrote(self, octets: int) -> None:
        """The disk may have these: no look that began before has seen them."""
        self._written[0] += octets

    def about_to_measure(self, now: float) -> None:
        """Whoever asks the disk from now on sees all that is written."""
        self._mark = self._mark or (now, self._written[0])

    def measured(self) -> None:
        """The disk may have answered: what was written before it was asked counts no more."""
        if self._mark and self._mark[0] <= self.board.asked:
            self._written[0] -= self._mark[1]
            self._mark = None

    def admits_copy(self) -> bool:
        """Whether a copy of a member may be taken. What pressure refuses is counted."""
        admitted = self.admits(inflow=Inflow.COPIES)
        self.refused[Inflow.COPIES] += not admitted and self.stance.refuses >= Inflow.COPIES
        return admitted

    async def hold_back(self, inflow: Inflow) -> bool:
        """Wait as MAIL has to, or until pressure ends or refuses it. Returns whether it is then refused."""
        if delay := self.delay(inflow):
            try:
                async with asyncio.timeout(delay):
                    while self.stance.delay and inflow > self.stance.refuses:
                        await self._another.wait()
            except TimeoutError:
                pass
        return self.refuses(inflow)

    def delay(self, inflow: Inflow) -> float:
        """Seconds that MAIL has to wait now, at most; 0: none, or it is refused at once. It is counted."""
        delay = self.stance.delay if inflow > self.stance.refuses else 0.0
        self.delayed += bool(delay)
        return delay

    def refuses(self, inflow: Inflow) -> bool:
        """Whether pressure refuses it. It is counted."""
        refused = inflow <= self.stance.refuses
        self.refused[inflow] += refused
        return refused

    def take(self, stance: Stance, told: str = "") -> None:
        """The pressure comes to that from now on."""
        before, self.stance, self.told = self.stance, stance, told
        self.presses = bool(stance.refuses or stance.delay)
        if stance != before:
            self._another.set()
            self._another = asyncio.Event()

    def wait_for_descriptors(self, waits: bool) -> None:  # noqa: FBT001
        """Rows of the tracking log wait for a descriptor, or do so no more."""
        self.without_descriptors = waits
