"""Ids and names, and the lineage by which a member proves that its database is the one the others know."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import NewType

from shadowrelay.core.values import dataclass, replace

ServerName = NewType("ServerName", str)
"""FQDN of a member, lower case."""

DatabaseId = NewType("DatabaseId", str)
"""UUID made when a transport database is created, and stored in it."""

Incarnation = NewType("Incarnation", str)
"""Sixteen hexadecimal digits, made and durably stored at each opening of a transport database."""

MessageId = NewType("MessageId", str)
"""UUIDv7 given at reception: the tracking log's network-message-id, the same on every node and fork."""

RequestId = NewType("RequestId", str)
"""UUIDv7 of a resubmit request."""

FIRST = MessageId("")
"""Comes before every id: a walk through all messages begins after it."""
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def is_uuid(text: str) -> bool:
    """Does the text have the form of a message id or a database id?"""
    return _UUID.fullmatch(text) is not None


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def tells_its_time(message_id: MessageId) -> bool:
    """Is it of version 7 (RFC 9562 5.7), and begins with the time at which it was made?"""
    return message_id[14:15] == "7"


def id_time(message_id: MessageId) -> datetime:
    """The time that an id tells (``tells_its_time``)."""
    return _EPOCH + timedelta(milliseconds=int(message_id.replace("-", "")[:12], 16))


NextHop = NewType("NextHop", str)
"""Where a recipient goes next: the name of a route, with ``/DOMAIN`` if the DNS has the hosts."""

Digest = NewType("Digest", str)
"""``<algorithm>:<hexadecimal>``: see ``core.digests``."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A point in the life of a transport database, written ``<incarnation>:<sequence>``."""

    incarnation: Incarnation
    sequence: int

    def __str__(self) -> str:
        return f"{self.incarnation}:{self.sequence}"


@dataclass(frozen=True, slots=True)
class Beginning:
    """An incarnation and the tracking sequence at which it began."""

    incarnation: Incarnation
    sequence: int


class Continuity(Enum):
    """What a lineage says about a mark that a member remembers."""

    UNBROKEN = "unbroken"
    BROKEN = "broken"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Lineage:
    """The identity of a database: its id, and every incarnation that a member may still remember.

    ``beginnings`` runs from old to new, and its last entry is the running incarnation. ``sequence`` is the
    highest committed tracking sequence. Beginnings of incarnations whose end every member saw are pruned.
    """

    database_id: DatabaseId
    beginnings: tuple[Beginning, ...]
    sequence: int

    @property
    def incarnation(self) -> Incarnation:
        return self.beginnings[-1].incarnation

    @property
    def mark(self) -> Mark:
        return Mark(self.beginnings[-1].incarnation, self.sequence)

    def at(self, sequence: int) -> Lineage:
        """The same lineage with a later sequence; an earlier sequence changes nothing."""
        return self if sequence <= self.sequence else replace(self, sequence=sequence)

    def at_least(self, mark: Mark) -> Lineage:
        """The same lineage, if its running incarnation has reached at least that mark."""
        return self.at(mark.sequence) if mark.incarnation == self.incarnation else self

    def end_of(self, incarnation: Incarnation) -> int | None:
        """The sequence up to which that incarnation ran; None if the lineage does not name it."""
        for index, beginning in enumerate(self.beginnings):
            if beginning.incarnation == incarnation:
                following = self.beginnings[index + 1 :]
                return following[0].sequence if following else self.sequence
        return None

    def overtaken_by(self, later: Lineage) -> bool:
        """Is this an earlier lineage of the same database, shown before ``later``?"""
        if self.database_id != later.database_id:
            return False
        end = later.end_of(self.incarnation)
        return end is not None and (self.incarnation != later.incarnation or self.sequence < end)

    def continuity(self, database_id: DatabaseId, mark: Mark) -> Continuity:
        """Was this database, as it is now, ever at that mark?

        BROKEN: it has another id, the mark's incarnation did not run that far, or the lineage reaches back to
        the mark and does not name its incarnation. Then the database that we knew is gone (replaced, rolled
        back, or an old copy of itself). A lineage that does not reach back to the mark proves nothing:
        UNKNOWN.
        """
        if database_id != self.database_id:
            return Continuity.BROKEN
        end = self.end_of(mark.incarnation)
        if end is not None:
            return Continuity.UNBROKEN if mark.sequence <= end else Continuity.BROKEN
        first = self.beginnings[0].sequence
        reaches_back = first == 0 or mark.sequence > first
        return Continuity.BROKEN if reaches_back else Continuity.UNKNOWN

    def reaching_back(self, earlier: Lineage, most: int = 64) -> Lineage:
        """The same lineage, with the beginnings of an ``earlier`` lineage that come before its first one."""
        names = [beginning.incarnation for beginning in earlier.beginnings]
        first = self.beginnings[0].incarnation
        before = earlier.beginnings[: names.index(first)] if first in names else ()
        return replace(self, beginnings=(*before, *self.beginnings)[-most:]) if before else self

    def since(self, known: Incarnation | None, most: int = 64) -> Lineage:
        """The lineage back to the incarnation that the listener knows, with at most ``most`` entries."""
        names = [beginning.incarnation for beginning in self.beginnings]
        start = names.index(known) if known in names else 0
        return replace(self, beginnings=self.beginnings[start:][-most:])
