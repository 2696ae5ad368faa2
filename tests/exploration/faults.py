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
    "content": "the disk damages the content of a message, which it stores",
    "row": "the disk damages the row of a message, so that its sum is wrong",
    "page": "the page of a message is the one of any earlier moment again, or of before there was anything",
    "drain": "no fault: told to hand its queue over, as a node is before it is stopped",
}
"""Every kind of fault, and what it means."""

OF_NODES = ("crash", "disk", "rollback", "freeze", "content", "row", "page", "drain")
"""A fault for each node."""

AT_ONCE = ("lost", "hop", "drain", "content", "row")
"""Over as soon as they happened."""

ROT = ("content", "row", "page")
"""What a disk does by itself to what it stores of one message."""


def every(names: tuple[str, ...], kinds: tuple[str, ...] = tuple(KINDS)) -> Iterator[str]:
    """All faults of those kinds: ``crash mx1``, ``cut mx1 > mx2``, ``lost`` …"""
    for kind in kinds:
        if kind in OF_NODES:
            yield from (f"{kind} {name}" for name in names)
        elif kind == "cut":
            for one, other in combinations(names, 2):
                yield from (f"cut {one} {other}", f"cut {one} > {other}", f"cut {other} > {one}")
        else:
            yield kind


BESIDE = ("late", "drain", *ROT)
"""Another fault may come at any time after it: nothing has to be repaired. (After damage, not one that takes
away what another disk has: see ``Rules._is_safe``.)
"""

KILLS = ("crash", "disk", "rollback")
"""The process ends."""

LASTING = {
    "crash": "crash",
    "disk": "disk lost",
    "rollback": "rolled back",
    "freeze": "freeze",
    "cut": "partition",
    "page": "stale page",
}
"""What the simulation's verdict calls a fault."""

DISK = {"disk": "new_disk", "rollback": "roll_back"}
"""What happens to the disk of a killed node before it starts again."""
