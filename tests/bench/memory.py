"""What it takes to hold many large messages, or many silent clients, at a time."""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from .client import idle
from .context import Bench
from .figures import Row, Spread, Target
from .postfix import Postfix, postfix
from .proc import forget_peak, highest, peak, proportional, resident
from .smtp_tools import Load, Sink, generate, sink
from .subjects import Lab, Subject, lab, wait_until
from .throughput import KIB, MB, run

LIMIT = 150.0
"""MB by which no node may grow with a hundred messages of 25 MB at a time."""

IDLE, SHORT_IDLE, IDLE_AT_POSTFIX = 5_000, 200, 200
_ROUNDS = 3  # at most: each writes gigabytes
_RESERVE = 500  # descriptors that are not for idle sessions
_SETTLING = 2.0  # seconds that a relay gets between the last greeting and the measure
_WARMING = Load(10, 200, 4 * KIB, True)
_BURST, _SHORT_BURST = Load(100, 100, 25 * MB, True), Load(10, 10, 5 * MB, True)


def memory(bench: Bench) -> list[Row]:
    return [*_burst(bench), *_idle(bench)]


def _burst(bench: Bench) -> list[Row]:
    load = _SHORT_BURST if bench.short else _BURST
    rounds = min(bench.rounds, _ROUNDS)
    bench.steps.expect(rounds * (1 + bench.with_postfix))
    nodes, theirs = [], []
    for number in range(1, rounds + 1):
        with bench.room(f"burst-{number}") as room, ExitStack() as stack:
            hop, port = bench.ports(2)
            end = stack.enter_context(sink(room, hop))
            with bench.steps.during(f"memory, large messages: two copies, round {number}"):
                nodes.append(_growth_of_nodes(load, room, end))
            if bench.with_postfix:
                with bench.steps.during(f"memory, large messages: Postfix, round {number}"):
                    theirs.append(_growth_of_postfix(load, room, end, port))
    what = f"{load.messages} × {load.size // MB} MB at a time: growth of"
    bound = None if bench.short else Target("<=", LIMIT, of_ratio=False)
    return [
        Row("memory", f"{what} the first node", "MB", ours=_spread(nodes, lambda g: g[0]), target=bound),
        Row("memory", f"{what} its shadow server", "MB", ours=_spread(nodes, lambda g: g[1]), target=bound),
        Row(
            "memory",
            f"{what} all processes",
            "MB",
            ours=_spread(nodes, sum),
            postfix=Spread(tuple(theirs)) if theirs else None,
        ),
    ]


def _growth_of_nodes(load: Load, room: Path, end: Sink) -> list[float]:
    """MB, the peak of each node above what it had after a little ordinary mail."""
    with lab(room / "lab", next_hop=end.address[1]) as subject:
        run(_WARMING, subject, end)
        pids = subject.pids()
        before = [resident(pid) for pid in pids]
        for pid in pids:
            forget_peak(pid)
        run(load, subject, end)
        return [(peak(pid) - had) / MB for pid, had in zip(pids, before, strict=True)]


def _growth_of_postfix(load: Load, room: Path, end: Sink, port: int) -> float:
    """MB of all its processes, memory that they share counted once; looked at now and then."""
    with postfix(room / "postfix", port=port, next_hop=end.address[1]) as subject:
        run(_WARMING, subject, end)
        before = proportional(subject.pids())
        with highest(lambda: proportional(subject.pids())) as most:
            run(load, subject, end)
        return (most[0] - before) / MB


def _idle(bench: Bench) -> list[Row]:
    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    count = SHORT_IDLE if bench.short else min(IDLE, descriptors - _RESERVE)
    at_postfix = min(count, IDLE_AT_POSTFIX)
    rounds = min(bench.rounds, _ROUNDS)
    bench.steps.expect(rounds * (1 + bench.with_postfix))
    ours, theirs = [], []
    for number in range(1, rounds + 1):
        with bench.room(f"idle-{number}") as room, ExitStack() as stack:
            hop, port = bench.ports(2)
            end = stack.enter_context(sink(room, hop))
            with (
                bench.steps.during(f"memory, {count:,} idle sessions: two copies, round {number}"),
                lab(room / "lab", next_hop=hop) as nodes,
            ):
                ours.append(_per_session(nodes, end, count, lambda of: resident(of.pids()[0])))
            if bench.with_postfix:
                with (
                    bench.steps.during(f"memory, {at_postfix} idle sessions: Postfix, round {number}"),
                    postfix(room / "postfix", port=port, next_hop=hop) as other,
                ):
                    theirs.append(_per_session(other, end, at_postfix, lambda of: proportional(of.pids())))
    return [
        Row(
            "memory",
            f"{count:,} idle sessions: each ({at_postfix} at Postfix)",
            "KB",
            ours=Spread(tuple(ours)),
            postfix=Spread(tuple(theirs)) if theirs else None,
        )
    ]


def _per_session(subject: Lab | Postfix, end: Sink, count: int, measure: Callable[[Subject], int]) -> float:
    """KB. Mail goes through beside them, or BenchError."""
    run(_WARMING, subject, end)
    before = measure(subject)

    async def with_idle_sessions() -> int:
        async with idle(subject.address, count):
            await asyncio.sleep(_SETTLING)
            after = measure(subject)
            await asyncio.to_thread(generate, Load(1, 1, 4 * KIB, True), subject.address)
            return after

    expected = end.messages() + 1
    grown = asyncio.run(with_idle_sessions()) - before
    wait_until(lambda: end.messages() == expected, "mail is delivered beside idle sessions")
    return grown / 1000 / count


def _spread(rounds: list[list[float]], of: Callable[[list[float]], float]) -> Spread:
    return Spread(tuple(map(of, rounds)))
