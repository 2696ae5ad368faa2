"""Boundaries of nodes with several workers: each worker is a member, and a host fails with all of them."""

from __future__ import annotations

import random
from dataclasses import dataclass

from shadowrelay.core.identifiers import ServerName
from shadowrelay.core.reception.shadow_servers import MemberPlace
from shadowrelay.core.workers import worker_name

KINDS = ("host killed", "host away", "host disks lost", "host cut off", "host frozen")
"""Faults of a machine. One is drawn twice as often as all faults of a single worker."""

OF_ONE = ("crash", "crash at commit", "away", "disk lost", "rolled back", "partition", "freeze")


@dataclass(frozen=True, slots=True)
class Machines:
    """What a seed decided about machines and their workers. ``among``: how many members holders are chosen
    among.
    """

    places: tuple[MemberPlace, ...]
    kinds: tuple[str, ...]
    among: int


def workers(hosts: int, each: int, *, sites: int = 2) -> tuple[MemberPlace, ...]:
    """So many hosts, with a node of so many workers on each; the hosts take turns over the sites."""
    return tuple(
        MemberPlace(worker_name(ServerName(f"mx{host}"), number), f"site{host % sites}", f"rack{host}")
        for host in range(1, hosts + 1)
        for number in range(1, each + 1)
    )


def planned(seed: int) -> Machines:
    """Mostly two hosts of four workers; some have a third host, which sees around a cut."""
    draw = random.Random(seed ^ 0x4057)
    hosts, each = draw.choice(((2, 4), (2, 4), (2, 4), (3, 2), (3, 3), (3, 4)))
    faults = 2 if draw.random() < 0.3 else 1
    kinds = tuple(draw.choice(KINDS if draw.random() < 0.67 else OF_ONE) for _ in range(faults))
    return Machines(workers(hosts, each, sites=draw.choice((1, 2))), kinds, draw.choice((0, 0, 1, 2)))
