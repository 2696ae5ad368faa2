"""A node dies with its disk and a full queue: how long until all is promoted, and until all is delivered."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from .context import Bench
from .figures import Row, Spread
from .smtp_tools import BenchError, Load, generate, sink
from .subjects import lab, wait_until
from .throughput import KIB

_ROUNDS = 3  # at most
_QUEUED, _SHORT_QUEUED = Load(20, 10_000, 4 * KIB, True), Load(10, 200, 4 * KIB, True)
_POLL = 0.1  # seconds: the holder has better things to do than to answer us


@dataclass(frozen=True, slots=True)
class Takeover:
    """Messages a second that were acknowledged before; then seconds since the kill."""

    acknowledged: float
    promoted: float
    delivered: float


def takeover(bench: Bench) -> list[Row]:
    load = _SHORT_QUEUED if bench.short else _QUEUED
    rounds = min(bench.rounds, _ROUNDS)
    bench.steps.expect(rounds)
    found = []
    for number in range(1, rounds + 1):
        with (
            bench.steps.during(f"takeover of {load.messages:,} messages, round {number}"),
            bench.room(f"takeover-{number}") as room,
        ):
            found.append(_measured(load, room, *bench.ports(1)))
    what, fate = f"{load.messages:,} messages", "their owner killed, its disk lost"
    rows = {
        f"{what}, the next hop down: acknowledged": ("messages/s", [one.acknowledged for one in found]),
        f"{what}, {fate}: all promoted after": ("s", [one.promoted for one in found]),
        f"{what}, {fate}: all delivered after": ("s", [one.delivered for one in found]),
    }
    return [
        Row("takeover", measure, unit, ours=Spread(tuple(values))) for measure, (unit, values) in rows.items()
    ]


def _measured(load: Load, room: Path, hop: int) -> Takeover:
    """The next hop is down until the owner is. Raises BenchError."""
    with lab(room / "lab", next_hop=hop) as nodes:
        owner, holder = nodes.nodes

        def holder_has(*, queued: int, held: int) -> bool:  # at most so many queued
            found = nodes.status(holder)
            return found is not None and (found.queued <= queued and found.shadow_held == held)

        def wait_for_holder(what: str, *, queued: int, held: int) -> None:
            wait_until(lambda: holder_has(queued=queued, held=held), what, poll=_POLL)

        acknowledged = load.messages / generate(load, nodes.address)
        wait_for_holder("every message has two copies", queued=0, held=load.messages)
        nodes.cluster.kill(owner.short)
        killed = time.perf_counter()
        nodes.cluster.wipe(owner.short)
        with sink(room, hop) as end:
            wait_for_holder("every copy is promoted", queued=load.messages, held=0)
            promoted = time.perf_counter() - killed
            wait_until(lambda: end.messages() >= load.messages, "every message is delivered")
            delivered = time.perf_counter() - killed
            wait_for_holder("the holder's queue is empty", queued=0, held=0)
            if (arrived := end.messages()) != load.messages:
                raise BenchError(f"{arrived - load.messages} messages more than were sent arrived")
            return Takeover(acknowledged, promoted, delivered)
