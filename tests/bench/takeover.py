"""A node dies with a full queue: how long until all is delivered, by who took over or by itself."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from shadowlab.layout import LabNode

from .client import letter, session
from .context import Bench
from .figures import Row, Spread
from .smtp_tools import BenchError, Load, Sink, generate, sink
from .subjects import Lab, lab, wait_until
from .throughput import KIB

_ROUNDS = 3  # at most
_QUEUED, _SHORT_QUEUED = Load(20, 10_000, 4 * KIB, True), Load(10, 200, 4 * KIB, True)
_POLL = 0.1  # seconds: the nodes have better things to do than to answer us


@dataclass(frozen=True, slots=True)
class FullQueue:
    """So many messages at the owner, whose next hop is down, each with a copy at the holder."""

    lab: Lab
    messages: int
    acknowledged: float  # a second, while it was filled
    next_hop: int

    @property
    def owner(self) -> LabNode:
        return self.lab.nodes[0]

    @property
    def holder(self) -> LabNode:
        return self.lab.nodes[1]

    def wait(self, node: LabNode, what: str, *, queued: int, held: int, asking: int = 0) -> None:
        """Until it has so many; at most, where mail may leave meanwhile."""

        def come_about() -> bool:
            found = self.lab.status(node)
            return found is not None and (
                found.queued <= queued and found.shadow_held == held and found.asking <= asking
            )

        wait_until(come_about, what, poll=_POLL)

    def wait_for_delivery(self, end: Sink, messages: int, last: LabNode) -> None:
        wait_until(lambda: end.messages() >= messages, "every message is delivered")
        self.wait(last, f"{last.short} has nothing left", queued=0, held=0)
        if (arrived := end.messages()) != messages:
            raise BenchError(f"{arrived - messages} messages more than were sent arrived")


Times = dict[tuple[str, str], float]
"""What one round gave, by measure and unit."""


def takeover(bench: Bench) -> list[Row]:
    load = _SHORT_QUEUED if bench.short else _QUEUED
    rounds = min(bench.rounds, _ROUNDS)
    bench.steps.expect(2 * rounds)
    found: dict[tuple[str, str], list[float]] = {}
    for number in range(1, rounds + 1):
        for name, fate in (("takeover", _disk_lost), ("restart", _started_again)):
            with (
                bench.steps.during(f"{name} with {load.messages:,} messages, round {number}"),
                bench.room(f"{name}-{number}") as room,
                _full_queue(load, room, *bench.ports(1)) as queue,
            ):
                for measure, value in fate(queue).items():
                    found.setdefault(measure, []).append(value)
    return [
        Row("takeover", f"{load.messages:,} messages, {measure}", unit, ours=Spread(tuple(values)))
        for (measure, unit), values in found.items()
    ]


@contextmanager
def _full_queue(load: Load, room: Path, hop: int) -> Iterator[FullQueue]:
    """Raises BenchError."""
    with lab(room / "lab", next_hop=hop) as nodes:
        found = FullQueue(nodes, load.messages, load.messages / generate(load, nodes.address), hop)
        found.wait(found.holder, "every message has two copies", queued=0, held=load.messages)
        yield found


def _disk_lost(queue: FullQueue) -> Times:
    nodes, fate = queue.lab, "their owner killed, its disk lost"
    nodes.cluster.kill(queue.owner.short)
    since = _stopwatch()
    nodes.cluster.wipe(queue.owner.short)
    with sink(nodes.cluster.directory.parent, queue.next_hop) as end:
        queue.wait(queue.holder, "every copy is promoted", queued=queue.messages, held=0)
        promoted = since()
        queue.wait_for_delivery(end, queue.messages, queue.holder)
        return {
            ("the next hop down: acknowledged", "messages/s"): queue.acknowledged,
            (f"{fate}: all promoted after", "s"): promoted,
            (f"{fate}: all delivered after", "s"): since(),
        }


def _started_again(queue: FullQueue) -> Times:
    nodes, fate = queue.lab, "their owner killed, started again"
    nodes.cluster.kill(queue.owner.short)
    since = _stopwatch()
    nodes.cluster.start(queue.owner.short)
    asyncio.run(_one_more(queue))
    accepted = since()
    queue.wait(queue.owner, "all were asked about", queued=queue.messages + 1, held=0)
    asked = since()
    with sink(nodes.cluster.directory.parent, queue.next_hop) as end:
        queue.wait_for_delivery(end, queue.messages + 1, queue.owner)
        return {
            (f"{fate}: the 250 of the next message after", "s"): accepted,
            (f"{fate}: all asked about after", "s"): asked,
            (f"{fate}, then the next hop: all delivered after", "s"): since(),
        }


async def _one_more(queue: FullQueue) -> None:
    async with session(queue.lab.address) as opened:
        await opened.send(letter(4 * KIB))


def _stopwatch() -> Callable[[], float]:
    began = time.perf_counter()
    return lambda: time.perf_counter() - began
