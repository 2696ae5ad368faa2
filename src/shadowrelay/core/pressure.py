"""Back pressure: the level of each resource, and what is refused meanwhile.

A level rises at one threshold and falls at a lower one, so that a reading between the two changes nothing.
What helps least is refused last (docs/decisions/0050-back-pressure.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum, StrEnum

from shadowrelay.core.values import dataclass

ENOUGH = 1.25
"""How many times a minimum is enough again, once there was less."""

LEAST_DELAY, MOST_DELAY = 10.0, 55.0
"""Seconds that MAIL waits while a queue is under pressure: at first, and at most."""

_STEP, _STEPS_EVERY = 5.0, 30.0  # seconds: it waits so much longer after each such time


class PressureLevel(IntEnum):
    """How scarce a resource is. FULL: what is left is for the mail that is here."""

    LOW = 0
    MEDIUM = 1
    HIGH = 2
    FULL = 3


class Resource(StrEnum):
    """What may become scarce. Disks and memory in percent, the others as counts."""

    DATA_DISK = "data_disk"
    LOG_DISK = "log_disk"
    MEMORY = "memory"
    QUEUE = "queue"
    UNCOMMITTED = "uncommitted"


PERCENT = frozenset({Resource.DATA_DISK, Resource.LOG_DISK, Resource.MEMORY})
"""Those whose readings are percent; the others are counts."""


class Inflow(IntEnum):
    """Kinds of what comes in, in the order in which pressure refuses them.

    OUTSIDE: from clients that did not log in and are in no relay network. TRUSTED: from all other clients,
    and whatever this node takes of its own accord. COPIES: of members, for their mail.
    """

    NONE = 0
    OUTSIDE = 1
    TRUSTED = 2
    COPIES = 3


DELAYED = frozenset({Resource.QUEUE, Resource.UNCOMMITTED})
"""Scarce as long as mail comes faster than it goes: mail that comes slowly helps, before it is refused."""


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Readings at which a level begins, MEDIUM first, and below which it ends."""

    begins: tuple[float, float, float]
    ends: tuple[float, float, float]

    def level(self, before: PressureLevel, reading: float) -> PressureLevel:
        """The level at that reading, after the level ``before``."""
        marks = (self.ends[one - 1] if one <= before else self.begins[one - 1] for one in range(1, 4))
        return PressureLevel(max((at for at, mark in enumerate(marks, 1) if reading >= mark), default=0))


@dataclass(frozen=True, slots=True)
class PressureStanding:
    """The level of one resource. ``since``: when it was LOW last, in seconds of the caller's clock."""

    level: PressureLevel = PressureLevel.LOW
    since: float = 0.0

    def after(self, thresholds: Thresholds, reading: float, now: float) -> PressureStanding:
        """The standing with a new reading."""
        level = thresholds.level(self.level, reading)
        return PressureStanding(level, self.since if self.level and level else now)


@dataclass(frozen=True, slots=True)
class Pressure:
    """How one resource is, as it is shown. ``limits``: the readings of low to medium, medium to high, high to
    medium and medium to low.
    """

    resource: Resource
    level: PressureLevel
    reading: float
    limits: tuple[float, float, float, float]


@dataclass(frozen=True, slots=True)
class Stance:
    """What pressure comes to. ``refuses``: that, and what is refused before it. ``delay``: seconds that MAIL
    waits. ``pauses``: nothing is resubmitted.
    """

    refuses: Inflow = Inflow.NONE
    delay: float = 0.0
    pauses: bool = False


def stance(standings: Mapping[Resource, PressureStanding], now: float) -> Stance:
    """What all resources together come to."""
    delays = [_delay(one, now) for what, one in standings.items() if what in DELAYED and one.level]
    return Stance(
        max((_refused(what, one, now) for what, one in standings.items()), default=Inflow.NONE),
        min(MOST_DELAY, max(delays, default=0.0)),
        any(one.level for one in standings.values()),
    )


def _refused(what: Resource, standing: PressureStanding, now: float) -> Inflow:
    if standing.level is PressureLevel.MEDIUM and what in DELAYED and _delay(standing, now) <= MOST_DELAY:
        return Inflow.NONE
    return Inflow(standing.level)


def _delay(standing: PressureStanding, now: float) -> float:
    """It grows as long as the pressure lasts. Beyond the most, slowness did not help."""
    return LEAST_DELAY + _STEP * ((now - standing.since) // _STEPS_EVERY)


NEVER = float("inf")


def counted(medium: float, high: float, high_ends: float, medium_ends: float) -> Thresholds:
    """Of a count: no copy of a member makes it lower, so it is never FULL."""
    return Thresholds((medium, high, NEVER), (medium_ends, high_ends, NEVER))


def of_memory(medium: float, high: float, high_ends: float, medium_ends: float) -> Thresholds:
    """Of memory, in percent: copies are refused halfway between HIGH and the limit."""
    return Thresholds((medium, high, (high + 100) / 2), (medium_ends, high_ends, high))


def of_disk(
    medium: float, high: float, high_ends: float, medium_ends: float, *, minimum: int, size: int
) -> Thresholds:
    """Of a disk of ``size`` octets, in percent: it is FULL when fewer than ``minimum`` octets are free."""
    full, ends = ((100 * (1 - least / size) if minimum else NEVER) for least in (minimum, minimum * ENOUGH))
    return Thresholds((medium, high, full), (medium_ends, high_ends, ends))


def of_log_disk(
    medium: float, high: float, high_ends: float, medium_ends: float, *, minimum: int, size: int
) -> Thresholds:
    """The same of a disk that has the tracking log alone. However small it is, copies are refused last."""
    marks = of_disk(medium, high, high_ends, medium_ends, minimum=minimum, size=size)
    full, ends = max((high + 100) / 2, marks.begins[2]), max(high, marks.ends[2])
    return Thresholds((medium, high, full), (medium_ends, high_ends, ends))
