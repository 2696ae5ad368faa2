"""Lists every fault of chaos: how it is made, how long it lasts, and what it needs."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta

from shadowlab.chaos.damage_faults import (
    EXCHANGE,
    BodiesFlipped,
    ContentSpoilt,
    HoldersSpoilt,
    IndexesSpoilt,
    RowsFlipped,
    RowsOfBefore,
)
from shadowlab.chaos.equipment import Need
from shadowlab.chaos.equipped_faults import (
    ClockSet,
    ClockSetAtStart,
    DiskFails,
    DiskFull,
    DiskLow,
    DiskSlow,
    DiskStalls,
    HoldersClocksSet,
    PowerCut,
    PowerFails,
)
from shadowlab.chaos.faults import (
    AllKilled,
    Cut,
    DiskLost,
    Fault,
    Frozen,
    Ground,
    Killed,
    OldDisk,
    Slow,
    Stopped,
    WritesFail,
)
from shadowlab.chaos.spoiling import WAYS
from shadowlab.clocks import STEPS as CLOCK_STEPS
from shadowlab.layout import Manner, Way


@dataclass(frozen=True, slots=True)
class FaultKind:
    """A fault in the catalogue: how it is made, how long it lasts for a time span, and what it needs."""

    text: str
    make: Callable[[Ground, random.Random], Fault]
    lasting: Callable[[float, random.Random], float]
    needs: Need | None = None
    in_transit: bool = False  # it strikes mail in transit: the mailbox server refuses mail meanwhile


def _short(span: float, chance: random.Random) -> float:
    """Well within the time span, so that nothing is promoted by time."""
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


def _by_turns(make: Callable[[str, int], Fault]) -> Callable[[Ground, random.Random], Fault]:
    return lambda ground, chance: make(ground.node, chance.randint(8, 40))


def _ahead(chance: random.Random) -> timedelta:
    return chance.choice((1, -1)) * chance.choice(CLOCK_STEPS)


def _old(*, live: bool) -> Callable[[Ground, random.Random], Fault]:
    return lambda ground, chance: OldDisk(ground.node, chance.uniform(0.5, 5.0), live)


def _everybody(ground: Ground) -> tuple[str, ...]:
    return tuple(sorted((ground.node, *ground.others)))


def _content(text: str, way: str) -> FaultKind:
    return FaultKind(
        f"files of contents, under the running node: {text}",
        lambda ground, chance: ContentSpoilt(ground.node, ground.others, way, _draw(chance)),
        _moment,
        in_transit=True,
    )


def _rows(text: str, make: Callable[[Ground, random.Random], Fault]) -> FaultKind:
    return FaultKind(f"killed; {text}", make, _moment, in_transit=True)


def _holders(ground: Ground, chance: random.Random) -> HoldersSpoilt:
    return HoldersSpoilt(ground.node, ground.others, chance.choice([*WAYS, EXCHANGE]), _draw(chance))


def _before(ground: Ground, chance: random.Random) -> RowsOfBefore:
    return RowsOfBefore(ground.node, ground.others, _draw(chance), chance.uniform(0.5, 3.0))


def _draw(chance: random.Random) -> int:
    return chance.getrandbits(32)


CATALOGUE: Mapping[str, FaultKind] = {
    "kill": FaultKind("killed, back at once", lambda ground, _: Killed(ground.node), _moment),
    "stop": FaultKind("stopped gracefully, back at once", lambda ground, _: Stopped(ground.node), _moment),
    "away": FaultKind("killed, back after the time span", lambda ground, _: Killed(ground.node), _long),
    "freeze": FaultKind("frozen for a while", lambda ground, _: Frozen(ground.node), _short),
    "freeze-long": FaultKind("frozen past the time span", lambda ground, _: Frozen(ground.node), _long),
    "slow": FaultKind("gets a fifth of the processor time for a while", _by_turns(Slow), _moment),
    "writes-fail": FaultKind(
        "no write to a file succeeds any more", lambda g, _: WritesFail(g.node), _moment
    ),
    "disk-lost": FaultKind("killed, its disk lost", lambda ground, _: DiskLost(ground.node), _moment),
    "disk-lost-away": FaultKind("the same, back after the time span", lambda g, _: DiskLost(g.node), _long),
    "old-disk": FaultKind("killed, back with an older state of its disk", _old(live=False), _moment),
    "snapshot": FaultKind("killed, back with a snapshot of this very incarnation", _old(live=True), _moment),
    "power-cut": FaultKind("its power is cut", lambda g, _: PowerCut(g.node), _moment, Need.DISK),
    "disk-fails": FaultKind("its disk fails", lambda g, _: DiskFails(g.node), _moment, Need.DISK),
    "disk-low": FaultKind(
        "little room on its disk for a while", lambda g, _: DiskLow(g.node), _short, Need.DISK
    ),
    "disk-full": FaultKind("no room at all on its disk", lambda g, _: DiskFull(g.node), _moment, Need.DISK),
    "disk-slow": FaultKind("its disk stalls most of the time", _by_turns(DiskSlow), _moment, Need.DISK),
    "disk-stalls": FaultKind(
        "its disk stalls for a while", lambda g, _: DiskStalls(g.node), _short, Need.DISK
    ),
    "disk-stalls-long": FaultKind(
        "the same past the time span", lambda g, _: DiskStalls(g.node), _long, Need.DISK
    ),
    "clock": FaultKind(
        "its wall clock is minutes, hours or a year off for a while",
        lambda g, chance: ClockSet(g.node, _ahead(chance)),
        _short,
        Need.CLOCK,
    ),
    "clock-start": FaultKind(
        "killed, started with a wall clock that is wrong for a while",
        lambda g, chance: ClockSetAtStart(g.node, _ahead(chance)),
        _short,
        Need.CLOCK,
    ),
    "clock-away": FaultKind(
        "killed, back after the time span; the wall clocks of the others are wrong meanwhile",
        lambda g, chance: HoldersClocksSet(g.node, g.others, _ahead(chance)),
        _long,
        Need.CLOCK,
    ),
    "content-flip": _content("one bit is flipped", "flip"),
    "content-cut": _content("the second half is gone", "cut"),
    "content-empty": _content("nothing is left in them", "empty"),
    "content-zero": _content("zeros of the same length", "zero"),
    "content-line": _content("one line is added", "line"),
    "content-exchange": _content("they are exchanged in pairs", EXCHANGE),
    "content-gone": _content("they are removed", "gone"),
    "body-flip": _rows(
        "one bit of each content in its database is flipped",
        lambda g, chance: BodiesFlipped(g.node, g.others, _draw(chance)),
    ),
    "row-flip": _rows(
        "one bit of a row of each message is flipped",
        lambda g, chance: RowsFlipped(g.node, g.others, _draw(chance)),
    ),
    "row-before": _rows("some rows of messages are as they were a moment before", _before),
    "index-spoilt": FaultKind(
        "stopped; pages of the index of due mail and of two others are damaged",
        lambda g, chance: IndexesSpoilt(g.node, _draw(chance)),
        _moment,
        in_transit=True,
    ),
    "holders-away": FaultKind(
        "what others hold of its mail is damaged, and it is killed, back after the time span",
        _holders,
        _long,
        in_transit=True,
    ),
    "all-killed": FaultKind("all nodes are killed at once", lambda g, _: AllKilled(_everybody(g)), _moment),
    "all-power": FaultKind(
        "the power of all nodes is cut at once", lambda g, _: PowerFails(_everybody(g)), _moment, Need.DISK
    ),
    "cut-off": FaultKind("cut off from all others for a while", _around, _short),
    "cut-off-long": FaultKind("cut off from all others past the time span", _around, _long),
    "pair": FaultKind("two nodes do not reach each other for a while", _between, _short),
    "pair-long": FaultKind("two nodes do not reach each other past the time span", _between, _long),
    "one-way": FaultKind("what it sends, or what is sent to it, is dropped for a while", _one_way, _short),
    "one-way-long": FaultKind("the same past the time span", _one_way, _long),
    "reset": FaultKind("its connections are reset and refused for a while", _reset, _short),
}
