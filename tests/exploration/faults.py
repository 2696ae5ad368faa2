"""What can go wrong, one thing at a time: how each fault begins, and how it ends."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

KINDS = {
    "crash": "killed, restarts with its database (at any later moment, the time span included)",
    "disk": "killed, restarts with a new database",
    "rollback": "killed, restarts with a snapshot of any earlier moment, of this very incarnation too",
    "freeze": "stops, goes on later",
    "cut": "partition, both ways or one way",
    "lost": "a packet between members is lost: an offer, a greeting, a question, or the answer to it",
    "late": "a packet between members comes later, whenever it likes",
    "hop": "the next hop takes the message, its reply is lost",
    "drain": "no fault: told to hand its queue over, as a node is before it is stopped",
}
"""Every kind of fault, and what it means."""

AT_ONCE = ("lost", "hop", "drain")
"""Over as soon as they happened."""


def every(names: tuple[str, ...], kinds: tuple[str, ...] = tuple(KINDS)) -> Iterator[str]:
    """All faults of those kinds: ``crash mx1``, ``cut mx1 > mx2``, ``lost`` …"""
    for kind in kinds:
        if kind in ("crash", "disk", "rollback", "freeze", "drain"):
            yield from (f"{kind} {name}" for name in names)
        elif kind == "cut":
            for one, other in combinations(names, 2):
                yield from (f"cut {one} {other}", f"cut {one} > {other}", f"cut {other} > {one}")
        else:
            yield kind


BESIDE = ("late", "drain")
"""Another fault may come at any time after it: nothing has to be repaired."""

KILLS = ("crash", "disk", "rollback")
"""The process ends."""

LASTING = {
    "crash": "crash",
    "disk": "disk lost",
    "rollback": "rolled back",
    "freeze": "freeze",
    "cut": "partition",
}
"""What the simulation's verdict calls a fault."""

DISK = {"disk": "new_disk", "rollback": "roll_back"}
"""What happens to the disk of a killed node before it starts again."""
