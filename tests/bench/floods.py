"""How long another client waits for its 250 while strangers drip, knock, stall or err."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext

from .attackers import attackers
from .context import Bench
from .figures import Row, Spread, percentile
from .latency import Cell, measured
from .smtp_tools import sink
from .subjects import Lab, lab

BESIDE = {
    "nothing else": None,
    "1,000 clients that drip": "drip",
    "100 connections a second, reset after EHLO": "knock",
    "100 handshakes a second that stall, at the members' port": "shake",
    "50 clients that send wrong commands": "err",
}
_CELL, _SHORT_CELL = Cell(1, 500), Cell(1, 20)
_SHARES = (("p50", 0.50), ("p99", 0.99))


def floods(bench: Bench) -> list[Row]:
    cell = _SHORT_CELL if bench.short else _CELL
    found: dict[str, list[list[float]]] = {beside: [] for beside in BESIDE}
    bench.steps.expect(bench.rounds * len(BESIDE))
    for number in range(1, bench.rounds + 1):
        for beside, kind in BESIDE.items():
            with (
                bench.steps.during(f"floods: beside {beside}, round {number}"),
                bench.room("floods") as room,
                ExitStack() as stack,
            ):
                end = stack.enter_context(sink(room, *bench.ports(1)))
                subject = stack.enter_context(lab(room / "lab", next_hop=end.address[1]))
                measured(_SHORT_CELL, subject, end)
                stack.enter_context(_attacked(kind)(subject))
                found[beside].append(measured(cell, subject, end))
    return [
        Row("floods", f"one client beside {beside}: dot to 250, {name}", "ms", ours=_spread(rounds, share))
        for beside, rounds in found.items()
        for name, share in _SHARES
    ]


def _attacked(kind: str | None) -> Callable[[Lab], AbstractContextManager[None]]:
    if kind is None:
        return lambda _: nullcontext()
    return lambda subject: attackers(kind, subject.nodes[0].smtp[1], subject.nodes[0].peer[1])


def _spread(rounds: list[list[float]], share: float) -> Spread:
    return Spread(tuple(1000 * percentile(took, share) for took in rounds))
