"""What a supervisor does next with the workers of its node: decisions alone, on a clock that is passed in.

Times are seconds of a monotonic clock.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

SHORTEST = 1.0
"""Seconds until a worker that ended is started again. Each failure in a row doubles them."""

LONGEST = 60.0
"""Seconds between two starts of a worker, at most."""

STEADY = 60.0
"""A worker that has served for so many seconds is well: the next failure is the first one again."""

ASK = 5.0
"""Seconds between two questions to a worker that serves: does it still answer?"""

SILENT = 12
"""Questions in a row without an answer: the worker hangs. A supervisor that was frozen itself asks anew."""


class State(StrEnum):
    """How a worker is."""

    STARTING = "starting"  # its process runs, and does not serve yet
    SERVING = "serving"  # it takes mail
    LEAVING = "leaving"  # it is being emptied, and ends for good
    WAITING = "waiting"  # its process ended, and starts again later
    ENDED = "ended"  # it has no process, and gets none


class Do(StrEnum):
    """What the supervisor does with a worker next."""

    START = "start"  # start its process
    LEAVE = "leave"  # tell the worker to leave
    END = "end"  # tell its process to end
    ASK = "ask"  # ask whether it still answers
    KILL = "kill"  # end its process, which hangs


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """What the supervisor knows of one worker. Times are those of the clock that is passed in."""

    number: int
    state: State = State.WAITING
    since: float = 0.0  # the state began
    again_at: float = 0.0  # a WAITING worker is started
    failures: int = 0  # ends in a row that nobody asked for
    restarts: int = 0  # all such ends
    why: str = ""  # the reason of the last one
    leaves: bool = False  # the node does not want the worker any more
    empty: bool = False  # it owns nothing and holds nothing
    told: bool = False  # its process was told to end
    ask_at: float = 0.0  # the next question whether it answers
    silent: int = 0  # questions in a row that it did not answer
    hangs: bool = False  # its process was killed for its silence


WatchedWorkers = Mapping[int, Watched]


def wanted(workers: WatchedWorkers, count: int, with_data: Collection[int], now: float) -> dict[int, Watched]:
    """The node is to have that many workers. ``with_data``: the numbers of those that may have mail.

    Those above the number leave; one that has no data is forgotten, if it does not run. One that was to leave
    stays.
    """
    new = {one: Watched(number=one, since=now, again_at=now) for one in {*range(1, count + 1), *with_data}}
    known = {number: one for number, one in workers.items() if one.state is not State.ENDED}
    return {
        number: replace(one, leaves=number > count)
        for number, one in sorted({**new, **known}.items())
        if number <= count or number in with_data or has_process(one)
    }


def has_process(one: Watched) -> bool:
    return one.state in {State.STARTING, State.SERVING, State.LEAVING}


def due(workers: WatchedWorkers, now: float) -> list[tuple[Do, int]]:
    """What is to be done now, lowest number first. Nothing is named twice once it was done."""
    found = ((_due(one, now), number) for number, one in sorted(workers.items()))
    return [(do, number) for do, number in found if do is not None]


def _due(one: Watched, now: float) -> Do | None:
    if _asked(one) and one.ask_at <= now:
        return Do.KILL if one.silent >= SILENT else Do.ASK
    if one.told:
        return None
    if one.state is State.WAITING:
        return Do.START if one.again_at <= now else None
    if one.state is State.SERVING and one.leaves:
        return Do.LEAVE
    if one.state is State.LEAVING and (one.empty or not one.leaves):
        return Do.END  # a worker that is to stay after all starts again
    return None


def _asked(one: Watched) -> bool:
    """One that starts may be busy for long: it is not asked."""
    return one.state in {State.SERVING, State.LEAVING} and not one.hangs


def next_at(workers: WatchedWorkers) -> float | None:
    """When something is due by itself."""
    again = (one.again_at for one in workers.values() if one.state is State.WAITING)
    asks = (one.ask_at for one in workers.values() if _asked(one))
    return min((*again, *asks), default=None)


def started(one: Watched, now: float) -> Watched:
    return replace(one, state=State.STARTING, since=now, empty=False, told=False, silent=0, hangs=False)


def serves(one: Watched, now: float) -> Watched:
    """Its process says that it takes mail."""
    if one.state is not State.STARTING:
        return one
    return replace(one, state=State.SERVING, since=now, ask_at=now + ASK)


def asked(one: Watched, now: float) -> Watched:
    """It was asked whether it answers."""
    return replace(one, ask_at=now + ASK, silent=one.silent + 1)


def answered(one: Watched) -> Watched:
    return replace(one, silent=0)


def killed(one: Watched) -> Watched:
    """Its process was killed because it hangs."""
    return replace(one, hangs=True)


def leaving(one: Watched, now: float) -> Watched:
    """It was told to leave."""
    return replace(one, state=State.LEAVING, since=now)


def emptied(one: Watched) -> Watched:
    """Its process says that it owns nothing and holds nothing."""
    return replace(one, empty=one.state is State.LEAVING)


def told_to_end(one: Watched) -> Watched:
    return replace(one, told=True)


def ended(one: Watched, why: str, now: float) -> Watched:
    """Its process ended: as it was told, or by itself; then it starts again after a while.

    A worker that has left is ENDED: it was empty.
    """
    if one.told and one.leaves and one.empty:
        return replace(one, state=State.ENDED, since=now, told=False)
    if one.told:
        return replace(one, state=State.WAITING, since=now, again_at=now, told=False, failures=0)
    well = one.state in {State.SERVING, State.LEAVING} and now - one.since >= STEADY
    failures = 1 if well else one.failures + 1
    if one.hangs:
        why = f"it hung: no answer for {SILENT * ASK:.0f} s; {why}"
    return replace(
        one,
        state=State.WAITING,
        since=now,
        again_at=now + pause(failures),
        failures=failures,
        restarts=one.restarts + 1,
        why=why,
    )


def pause(failures: int) -> float:
    """Seconds until the next start, after so many failures in a row."""
    return float(min(LONGEST, SHORTEST * 2.0 ** min(failures - 1, 16)))
