"""Which points are passed where, and by whom: the table that the kill points are run from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from shadowrelay.failpoints import POINTS, Point


class Role(StrEnum):
    """Of the node that is killed, towards the mail under way."""

    OWNER = "owner"
    HOLDER = "holder"


class Course(StrEnum):
    """What goes on when the point is passed."""

    STREAM = "stream"  # mail comes in and goes out
    ALONE = "alone"  # the same on a node without members, whose 250s wait for the next hop
    DISK_LOST = "owner's disk lost"  # the holder takes over at the first contact
    SILENCE = "owner silent"  # the holder takes over by time
    RETURN = "owner returns"  # with its data, after others took over


@dataclass(frozen=True, slots=True)
class Case:
    """``disk_lost``: the killed node comes back without its data."""

    point: Point
    role: Role
    course: Course
    disk_lost: bool = False

    def __str__(self) -> str:
        return f"{self.point}, {self.role}, {self.course}, disk {'lost' if self.disk_lost else 'kept'}"

    @property
    def passages(self) -> float:
        """At least how often the point is passed for each message."""
        if "-log-" in self.point:
            return 0.08
        return 0.5 if "redirect" in self.point else 1.0  # not every copy has to be with this holder


_HOLDS = ("before-shadow-commit", "after-shadow-commit", "after-shadow-reply")
_LEARNS = ("before-discard-commit", "after-discard-commit")
_ACCEPTS = (
    "before-local-commit",
    "after-local-commit",
    "before-250",
    "before-record-commit",
    "after-record-commit",
)
_DELIVERS = ("after-next-hop-reply", "before-settling-commit", "after-settling-commit")


def cases() -> Iterator[Case]:
    """Every one, in the order of the points. A lost disk only where another node has, or gets, a copy, or the
    sender still has the message.
    """
    for point in POINTS:
        if point in _HOLDS or point in _LEARNS:
            yield Case(point, Role.HOLDER, Course.STREAM)
            yield Case(point, Role.HOLDER, Course.STREAM, disk_lost=True)
        elif point in _ACCEPTS or point in _DELIVERS:
            yield Case(point, Role.OWNER, Course.STREAM)
            yield Case(point, Role.OWNER, Course.STREAM, disk_lost=True)
            if point in _DELIVERS:
                yield Case(point, Role.HOLDER, Course.DISK_LOST)
            if "-local-" not in point:  # it knows no member that would be offered a copy meanwhile
                yield Case(point, Role.OWNER, Course.ALONE)
                yield Case(point, Role.OWNER, Course.ALONE, disk_lost=True)
        elif "pending" in point or "promotion" in point:
            yield Case(point, Role.HOLDER, Course.DISK_LOST)
            yield Case(point, Role.HOLDER, Course.SILENCE)
        elif "swap" in point:
            yield Case(point, Role.OWNER, Course.RETURN)
            yield Case(point, Role.OWNER, Course.RETURN, disk_lost=True)
        elif "redirect" in point:
            yield Case(point, Role.HOLDER, Course.RETURN)
            yield Case(point, Role.HOLDER, Course.RETURN, disk_lost=True)
        else:
            yield Case(point, Role.OWNER, Course.STREAM)
            yield Case(point, Role.HOLDER, Course.STREAM)
