"""What is measured: two nodes of a lab, as a client and the kernel see them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol
from urllib.request import urlopen

from shadowlab.cluster import Cluster, up
from shadowlab.layout import Address, LabNode
from shadowlab.probing import NodeStatus, status
from shadowlab.processes import last_lines

from .smtp_tools import CONNECTIONS, BenchError

POLL = 0.005
_PATIENCE = 600.0
_ANSWER = 10.0


class Subject(Protocol):
    """A relay under test."""

    label: str
    address: Address

    def queue_is_empty(self) -> bool:
        """Nothing is left to deliver."""

    def is_quiet(self) -> bool:
        """Nothing is left to do at all: what follows does not pay for what was."""

    def pids(self) -> list[int]:
        """Its processes at this moment."""

    def sides(self) -> list[list[int]]:
        """The processes of the first node, and those of its shadow server; empty where there is one side."""

    def waits(self) -> Waited | None:
        """How long senders waited until now; None where nobody tells."""


@dataclass(frozen=True, slots=True)
class Waited:
    """Seconds that all senders have waited for their 250, and all copies for their holder's commit."""

    acknowledgement: float
    shadow_commit: float

    def since(self, before: Waited) -> float | None:
        """The holder's part of the wait between the two moments, 0 to 1; None if nobody waited."""
        waited = self.acknowledgement - before.acknowledgement
        return (self.shadow_commit - before.shadow_commit) / waited if waited > 0 else None


class Lab:
    """Mail goes to the first node, the second one holds the copies."""

    def __init__(self, directory: Path, label: str) -> None:
        self.cluster = Cluster(directory)
        self.nodes: Sequence[LabNode] = self.cluster.layout.nodes
        self.label, self.address = label, self.nodes[0].smtp

    def status(self, node: LabNode) -> NodeStatus | None:
        """None when it is too busy to answer. Raises BenchError when it has ended."""
        found = status(node)
        if found is None and not self.cluster.process(node.short).alive:
            said = last_lines(self.cluster.layout.log(node.short), since=0, count=3)
            raise BenchError(f"{node.short} has ended: {' / '.join(said)}")
        return found

    def queue_is_empty(self) -> bool:
        found = self.status(self.nodes[0])
        return found is not None and found.queued == 0

    def is_quiet(self) -> bool:
        found = [self.status(node) for node in self.nodes]
        return all(one is not None and one.queued == one.shadow_held == 0 for one in found)

    def pids(self) -> list[int]:
        """One process each."""
        return [pid for side in self.sides() for pid in side]

    def sides(self) -> list[list[int]]:
        found = [self.cluster.process(node.short).pid for node in self.nodes]
        return [[pid] for pid in found if pid is not None]

    def waits(self) -> Waited | None:
        """Of the first node, as its metrics tell."""
        with urlopen(f"{self.nodes[0].admin}/metrics", timeout=_ANSWER) as page:
            lines = [one for one in page.read().decode().splitlines() if one[:1] != "#"]
        named = "shadowrelay_acknowledgement_seconds_sum", "shadowrelay_shadow_commit_seconds_sum"
        told = [[float(one.rsplit(" ", 1)[1]) for one in lines if one.startswith(name)] for name in named]
        return Waited(*map(sum, told)) if all(told) else None


@contextmanager
def lab(
    directory: Path, *, next_hop: int, shadowing: bool = True, options: Sequence[str] = ()
) -> Iterator[Lab]:
    """Two nodes of a lab as it ships, their next hop on port ``next_hop``, while the block runs.

    A 250 means two copies: the lab sets ``reject_message_on_shadow_failure``.
    """
    settings = [
        f"routes.inside.port={next_hop}",
        "routes.inside.protocol=smtp",
        f"receive.default.max_inbound_connection={CONNECTIONS}",
        f"receive.default.max_inbound_connection_per_source={CONNECTIONS}",
        f"shadow_redundancy_enabled={str(shadowing).lower()}",
        *options,
    ]
    try:
        up(directory, nodes=2, options=settings)
        yield Lab(directory, "two copies" if shadowing else "without shadowing")
    finally:
        if (directory / "lab.json").exists():
            Cluster(directory).down()


def in_turn(subjects: Sequence[Subject], number: int) -> Sequence[Subject]:
    """Those of that round, one after the other; in every second round the other way round, so that what one
    leaves to the disk and to the processor meets each of them.
    """
    return subjects if number % 2 else subjects[::-1]


def wait_until(
    condition: Callable[[], bool], what: str, *, patience: float = _PATIENCE, poll: float = POLL
) -> None:
    """Raises BenchError when it does not come about in time."""
    deadline = time.monotonic() + patience
    while not condition():
        if time.monotonic() > deadline:
            raise BenchError(f"not within {patience:.0f} s: {what}")
        time.sleep(poll)
