"""Messages that were accepted with one copy: how fast they get a second one, once there is a member again."""

from __future__ import annotations

import time

from .context import Bench
from .figures import Row, Spread, Target
from .smtp_tools import Load, generate
from .subjects import Lab, lab, wait_until
from .throughput import KIB

_ROUNDS = 3  # at most
_EXPOSED, _SHORT_EXPOSED = Load(50, 10_000, 4 * KIB, True), Load(10, 400, 4 * KIB, True)
_POLL = 0.05  # seconds
_OPTIONS = (
    "reject_message_on_shadow_failure=false",
    "shadow_resubmit_time_span=1h",
    "queue_glitch_retry_interval=1h",
    "receive.default.max_acknowledgement_delay=0s",
    "shadow_retry_interval=10ms",  # as it ships, the messages of the first 1.5 s wait for the pauses
)


def exposure(bench: Bench) -> list[Row]:
    load = _SHORT_EXPOSED if bench.short else _EXPOSED
    rounds = min(bench.rounds, _ROUNDS)
    bench.steps.expect(rounds)
    taken: list[float] = []
    repaired: list[float] = []
    for number in range(1, rounds + 1):
        (hop,) = bench.ports(1)
        with (
            bench.steps.during(f"exposure of {load.messages:,} messages, round {number}"),
            bench.room(f"exposure-{number}") as room,
            lab(room / "lab", next_hop=hop, options=_OPTIONS) as nodes,
        ):
            nodes.cluster.kill(nodes.nodes[1].short)
            taken.append(load.messages / generate(load, nodes.address))
            nodes.cluster.start(nodes.nodes[1].short)
            repaired.append(_repaired(nodes, load.messages))
    measure = f"{load.messages:,} messages taken with one copy, then given a second one"
    once, twice = Spread(tuple(taken)), Spread(tuple(repaired))
    return [Row("exposure", measure, "messages/s", ours=twice, without=once, target=Target(">=", 0.7))]


def _repaired(nodes: Lab, messages: int) -> float:
    """How many a second, from the first on."""

    def exposed() -> int:
        found = nodes.status(nodes.nodes[0])
        return messages if found is None else found.exposed

    wait_until(lambda: exposed() < messages, "the first one has a second copy", poll=_POLL)
    began, left = time.perf_counter(), exposed()
    wait_until(lambda: exposed() == 0, "every message has a second copy", poll=_POLL)
    return left / (time.perf_counter() - began)
