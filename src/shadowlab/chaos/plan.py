"""Plans a run of chaos: the seed decides which faults strike which nodes, in which order."""

from __future__ import annotations

import random
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from shadowlab.chaos.catalogue import CATALOGUE
from shadowlab.chaos.faults import Fault, Ground

_REFUSING = 0.5  # share of faults that strike while the mailbox server refuses mail
_LONGEST_CALM = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A run. ``seconds`` is the time for faults; ``options`` are KEY=VALUE for the settings of all nodes."""

    seed: int
    seconds: float
    faults: tuple[str, ...]
    clients: int
    rate: float  # messages per second, of all clients together
    nodes: int
    options: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Planned:
    """One fault: after ``calm`` seconds of mail on a whole cluster, for ``lasting`` seconds.

    ``refusing``: the mailbox server refuses mail from the end of the calm until the node is back, so that all
    mail sent in that time stays in transit.
    """

    number: int
    name: str
    fault: Fault
    calm: float
    lasting: float
    refusing: bool


def any_seed() -> int:
    return secrets.randbelow(1_000_000)


def schedule(seed: int, names: Sequence[str], nodes: Sequence[str], span: float) -> Iterator[Planned]:
    """Faults without end: all of ``names`` in a random order, then again in another order.

    ``span`` is the time span: seconds of silence after which an owner's messages are promoted.
    """
    chance = random.Random(seed)  # noqa: S311 - repeatable, not secret
    number = 0
    while True:
        for name in chance.sample(names, len(names)):
            number += 1
            node = chance.choice(nodes)
            ground = Ground(node, tuple(other for other in nodes if other != node))
            kind = CATALOGUE[name]
            yield Planned(
                number,
                name,
                kind.make(ground, chance),
                calm=chance.uniform(0.5, _LONGEST_CALM),
                lasting=kind.lasting(span, chance),
                refusing=(chance.random() < _REFUSING) | kind.in_transit,
            )
