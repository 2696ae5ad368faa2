"""The clocks of one node: reckoned time for its decisions, the wall clock as a label for people.

See docs/explanation/time.md.
"""

from __future__ import annotations

import asyncio
import os
import time
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import cache, partial
from pathlib import Path

import structlog

from shadowrelay.core.identifiers import ServerName
from shadowrelay.core.reckoning import (
    PATIENCE,
    SETTLES,
    ClockReading,
    Doubt,
    Endings,
    Judgement,
    Reckoning,
    agreed,
    away_longer,
    begun,
    judged,
    saved,
)
from shadowrelay.core.values import dataclass

log = structlog.get_logger(__name__)

FRESH = timedelta(minutes=15)
"""So long a member's word on the time counts."""

QUICK = timedelta(seconds=20)
"""An answer that took longer says nothing about the time."""

OFTEN = timedelta(seconds=1)

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
TOLD_BOOT_ID = "BOOT_ID"
"""The variable of the environment in which systemd's unit tells the start of the machine."""


@cache
def _boot_id() -> str:
    """Where /proc/sys is hidden (``ProcSubset=pid``) the service manager tells it in the environment.

    A start of the machine that nobody names is like no other: time before this process is then a span that
    may not have passed.
    """
    with suppress(OSError):
        return _BOOT_ID.read_text("ascii").strip().replace("-", "")
    return os.environ.get(TOLD_BOOT_ID) or uuid.uuid4().hex


def of_machine() -> ClockReading:
    """What the machine's clocks say."""
    return ClockReading(datetime.now(UTC), timedelta(microseconds=_ticks() // 1000), _boot_id())


_ticks: Callable[[], int] = partial(time.clock_gettime_ns, time.CLOCK_BOOTTIME)
_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class _Told:
    """A member told its wall clock: how far that was ahead of our boot clock, and when."""

    ahead: datetime
    at: timedelta


class NodeClock:
    """Called, it is the reckoned time. It never goes back, and no step of the wall clock moves it.

    ``settles``, ``patience``: see ``SETTLES`` and ``PATIENCE``.
    """

    settles, patience = SETTLES, PATIENCE

    def __init__(
        self, reckoning: Reckoning | None = None, read: Callable[[], ClockReading] = of_machine
    ) -> None:
        self.read = read
        # Decisions ask for the time all the time, and it takes the boot clock alone.
        self._ticks = _ticks if read is of_machine else lambda: self.read().boot // _MICROSECOND * 1000
        self._reckon(reckoning or begun(read()))
        self._told: dict[ServerName, _Told] = {}
        self._confirmed = False
        self._doubts: frozenset[Doubt] = frozenset()
        self._looked_at: timedelta | None = None

    @classmethod
    def following(cls, clock: Callable[[], datetime]) -> NodeClock:
        """A clock that is never wrong: where time is made, as in tests."""
        began = clock()
        return cls(read=lambda: ClockReading(now := clock(), now - began, ""))

    def _reckon(self, reckoning: Reckoning) -> None:
        self._reckoning, self._began = reckoning, reckoning.time - reckoning.boot
        self._doubtful = reckoning.doubtful

    def __call__(self) -> datetime:
        return self._began + timedelta(microseconds=self._ticks() // 1000)

    @property
    def reckoning(self) -> Reckoning:
        return self._reckoning

    def ahead(self) -> timedelta:
        """How far the wall clock is ahead of reckoned time."""
        return self._reckoning.ahead_now(self.read())

    def wall(self, at: datetime) -> datetime:
        """What the wall clock says for a reckoned time: for people and logs."""
        return at + self.ahead()

    def away_longer(self, than: timedelta) -> bool | None:
        """May the node have been away for longer than that before this opening? None: not known yet."""
        return away_longer(self._reckoning, than, self() - self._began, self.patience)

    def to_save(self) -> Reckoning:
        """The reckoning as the next opening carries it on."""
        self.look()
        return saved(self._reckoning, self.read())

    def endings(self) -> Endings:
        """What may end now. The wall clock is looked at once a second: ages do not depend on it."""
        now = self()
        if self._looked_at is None or now - self._began - self._looked_at >= OFTEN:
            self.look()
            now = self()
        return Endings(now, self._doubtful, bool(self._doubts))

    async def watch(self) -> None:
        """Look each second until cancelled: a node that has nothing to do doubts its clock, too."""
        while True:
            await asyncio.sleep(OFTEN.total_seconds())
            self.look()

    def look(self) -> Judgement:
        """Judge the wall clock now. A doubt that begins or ends is logged."""
        reading = self.read()
        differences = self.differences(reading)
        found = judged(
            self._reckoning,
            reading,
            list(differences.values()),
            confirmed=self._confirmed,
            settles=self.settles,
        )
        self._reckon(found.reckoning)
        self._looked_at = reading.boot
        if self._confirmed and not self._differ(differences):
            self._confirmed = False
        if found.doubts != self._doubts:
            self._doubts = found.doubts
            self.changed(found, differences)
        return found

    def changed(self, found: Judgement, differences: Mapping[ServerName, timedelta]) -> None:
        """A doubt began or ended: say so in the log."""
        tell = log.error if found.doubts else log.warning
        tell(
            "clock_in_doubt" if found.doubts else "clock_trusted",
            why=sorted(found.doubts),
            stepped=found.step.total_seconds(),
            members={name: by.total_seconds() for name, by in differences.items()},
            **(
                {"consequence": "nothing expires until that is over, or an operator confirms the time"}
                if found.doubts
                else {}
            ),
        )

    def _differ(self, differences: Mapping[ServerName, timedelta]) -> bool:
        return Doubt.DIFFERS in judged(self._reckoning, self.read(), list(differences.values())).doubts

    def differences(self, reading: ClockReading | None = None) -> dict[ServerName, timedelta]:
        """How far the wall clock of each member that told it lately is ahead of ours."""
        reading = reading or self.read()
        return {
            name: told.ahead + reading.boot - reading.wall
            for name, told in self._told.items()
            if reading.boot - told.at < FRESH
        }

    def heard(self, name: ServerName, wall: datetime, asked: timedelta) -> None:
        """A member told its wall clock, in answer to what it was asked at that time of our boot clock."""
        now = self.read().boot
        if now - asked <= QUICK:
            middle = asked + (now - asked) / 2
            self._told[name] = _Told(wall - middle, now)

    def forget(self, name: ServerName) -> None:
        """That node is no member any more."""
        self._told.pop(name, None)

    def told_before(self, name: ServerName, by: timedelta) -> bool:
        """Did the member tell its time, and is that longer ago?"""
        told = self._told.get(name)
        return told is not None and self.read().boot - told.at > by

    def confirm(self) -> Judgement:
        """An operator says that the wall clock is right now."""
        self._reckon(agreed(self._reckoning, self.read()))
        self._confirmed = True
        return self.look()
