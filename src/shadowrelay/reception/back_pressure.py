"""Looks at the resources of the node every two seconds, and tells the room what to refuse meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from pathlib import Path

import structlog

from shadowrelay.core.decisions import Decision
from shadowrelay.core.messages import Role, Stage
from shadowrelay.core.pressure import (
    PERCENT,
    Pressure,
    PressureStanding,
    Resource,
    Thresholds,
    counted,
    of_disk,
    of_log_disk,
    of_memory,
    stance,
)
from shadowrelay.core.tracking import PressureChanged
from shadowrelay.core.values import dataclass
from shadowrelay.database.room import Room
from shadowrelay.database.transport import TransportDatabase
from shadowrelay.readings import (
    PATIENCE,
    ReadingsBoard,
    ThreadedQuestion,
    WorkerPart,
    disk,
    give_memory_back,
    memory_in_use,
)

log = structlog.get_logger(__name__)

LOOK = 2.0
"""Seconds between two looks."""

_SOON = 0.05

_NOT_LOOKED_AT = (-1.0, None)

DiskReading = tuple[int, int, int]

_NO_ANSWER: DiskReading = (-1, 1, 0)
"""A mount that hangs: a disk of its own without any room."""

_NAMES = {
    Resource.DATA_DISK: "disk of data_dir",
    Resource.LOG_DISK: "disk of the tracking log",
    Resource.MEMORY: "memory",
    Resource.QUEUE: "queued messages",
    Resource.UNCOMMITTED: "transactions not yet committed",
}


@dataclass(frozen=True, slots=True)
class PressureLimits:
    """``memory``: octets that the processes of the node may have. ``of``: for each resource the readings of
    low to medium, medium to high, high to medium and medium to low.
    """

    memory: int
    of: Mapping[Resource, tuple[float, float, float, float]]


class BackPressure:
    """The stage. ``limits``: None while nothing is to be looked at. All workers go by one ``board``."""

    def __init__(
        self,
        room: Room,
        database: TransportDatabase,
        log_directory: Path,
        limits: PressureLimits | None,
        clock: Callable[[], datetime],
        seconds: Callable[[], float],
    ) -> None:
        """``seconds``: a clock that all workers have in common, and nobody sets."""
        self._room = room
        self._database = database
        directories = {Resource.DATA_DISK: room.directory, Resource.LOG_DISK: log_directory}
        self._disks = {what: (place, _asking(place, seconds)) for what, place in directories.items()}
        self._troubles: dict[Resource, str] = {}
        self.limits = limits
        self._clock = clock
        self._seconds = seconds

    @property
    def board(self) -> ReadingsBoard:
        """What all workers read."""
        return self._room.board

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self.look()
            await asyncio.sleep(LOOK)

    async def begin(self) -> None:
        """Look, and wait until it is known how much room there is: another worker may look at the disk, and
        may hear nothing.
        """
        await self.look()
        for _ in range(int(PATIENCE / _SOON)):
            if self.board.room[0] >= 0 or self.board.decides(self._seconds()):
                break
            await asyncio.sleep(_SOON)

    async def look(self) -> None:
        """Look at what is scarce, if this worker is the one that does, and go by what was decided."""
        now = self._seconds()
        self._room.about_to_measure(now)
        if self.board.standing(Resource.MEMORY).level:
            give_memory_back()  # or it would read as in use for ever, once a flood is over
        self.board.say(self._part(), now)
        if self.board.decides(now):
            asked = tuple(self._disks) if self.limits else (Resource.DATA_DISK,)
            read = await asyncio.gather(*map(self._disk, asked))
            self._decide(dict(zip(asked, read, strict=True)), now)
        self._room.measured()
        self._follow(now)

    def _follow(self, now: float) -> None:
        """The room goes by what was decided."""
        standings = {what: self.board.standing(what) for what in Resource}
        told = ", ".join(self._told(one) for one in self.pressures() if one.level)
        self._room.take(stance(standings, now), told)

    def pressures(self) -> list[Pressure]:
        """How each resource is, as of the last look; none while nothing is looked at. A disk is one resource,
        whatever it has.
        """
        if self.limits is None:
            return []
        board, marks = self.board, self.limits.of
        return [
            Pressure(what, board.standing(what).level, board.reading(what), marks[what])
            for what in Resource
            if board.reading(what) >= 0
        ]

    def _part(self) -> WorkerPart:
        queued = self._database.ledger.tally.staged(Role.PRIMARY, Stage.QUEUED)
        return WorkerPart(memory=memory_in_use(), queue=queued, uncommitted=self._database.waiting)

    @staticmethod
    def _told(one: Pressure) -> str:
        unit = " %" if one.resource in PERCENT else ""
        return f"{_NAMES[one.resource]} {one.reading:,.0f}{unit} ({one.level.name.lower()})"

    def _decide(self, disks: Mapping[Resource, DiskReading | None], now: float) -> None:
        found, changes = dict(self._readings(disks)), []
        for what in Resource:
            if (seen := found.get(what, _NOT_LOOKED_AT)) is None:  # what was known last stands
                continue
            before, (reading, thresholds) = self.board.standing(what), seen
            after = before.after(thresholds, reading, now) if thresholds else PressureStanding(since=now)
            self.board.decide(what, after, reading)
            if after.level is not before.level:
                changes.append(
                    PressureChanged(
                        at=self._clock(),
                        resource=what,
                        before=before.level,
                        level=after.level,
                        reading=reading,
                    )
                )
        if changes:
            self._record(tuple(changes))

    def _record(self, changes: tuple[PressureChanged, ...]) -> None:
        for one in changes:
            became = one.level.name.lower()
            log.warning("pressure_changed", resource=one.resource.value, became=became, reading=one.reading)
        writing = self._database.transact_briefly(lambda ledger: ledger.apply(Decision(None, (), changes)))
        writing.add_done_callback(lambda done: done.cancelled() or done.exception())

    async def _disk(self, what: Resource) -> DiskReading | None:
        """As ``disk`` does; None: it cannot be read. What is wrong is told once."""
        directory, asking = self._disks[what]
        free, asked = None, 0.0
        try:
            (asked, read), trouble = await asking.answer(), ""
            free = read[2]
        except TimeoutError:
            read, trouble = _NO_ANSWER, f"no answer in {PATIENCE:.0f} s: it counts as full"
        except OSError as error:
            read, trouble = None, str(error)
        if what is Resource.DATA_DISK and read is not None:
            self.board.measured(free, asked)
        if trouble and trouble != self._troubles.get(what):
            log.error("resource_not_read", resource=what.value, directory=str(directory), error=trouble)
        self._troubles[what] = trouble
        return read

    def _readings(
        self, disks: Mapping[Resource, DiskReading | None]
    ) -> Iterator[tuple[Resource, tuple[float, Thresholds] | None]]:
        """Each resource that counts; None: it cannot be read."""
        limits, room = self.limits, self._room
        if limits is None or len(disks) < len(self._disks):  # they were changed while the disks were asked
            return
        # A disk is one resource: where it has both, the marks of the database count.
        seen = set()
        for what, marks_of in ((Resource.DATA_DISK, of_disk), (Resource.LOG_DISK, of_log_disk)):
            if (read := disks[what]) is None:
                yield what, None
            elif read[0] not in seen:
                device, size, free = read
                seen.add(device)
                marks = marks_of(*limits.of[what], minimum=room.minimum, size=size)
                yield what, (100 * (1 - free / size), marks)
        all_of_us = self.board.together()
        yield (
            Resource.MEMORY,
            (
                100 * all_of_us.memory / limits.memory,
                of_memory(*limits.of[Resource.MEMORY]),
            ),
        )
        yield Resource.QUEUE, (all_of_us.queue, counted(*limits.of[Resource.QUEUE]))
        yield Resource.UNCOMMITTED, (all_of_us.uncommitted, counted(*limits.of[Resource.UNCOMMITTED]))


def _asking(directory: Path, seconds: Callable[[], float]) -> ThreadedQuestion[tuple[float, DiskReading]]:
    return ThreadedQuestion(lambda: (seconds(), disk(directory)))
