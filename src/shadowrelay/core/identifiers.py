"""Names, and the lineage by which a member proves that its database is the one the others knew."""

from __future__ import annotations

import re
from enum import Enum
from typing import NewType

from shadowrelay.core.values import dataclass, replace

ServerName = NewType("ServerName", str)
"""FQDN of a member, lower case."""

DatabaseId = NewType("DatabaseId", str)
"""UUID minted when a transport database is created, stored in it."""

Incarnation = NewType("Incarnation", str)
"""Sixteen hexadecimal digits, minted and stored durably at each open of a transport database."""

MessageId = NewType("MessageId", str)
"""UUIDv7 given at reception: the tracking log's network-message-id, the same on every node and fork."""

FIRST = MessageId("")
"""Before all of them: where a look through messages begins that goes on behind the last one."""
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def is_uuid(text: str) -> bool:
    """Has it the form of an id: of a message, or of a database?"""
    return _UUID.fullmatch(text) is not None


NextHop = NewType("NextHop", str)
"""Name of the route that a recipient takes."""

Digest = NewType("Digest", str)
"""``<algorithm>:<hexadecimal>``: see ``core.digests``."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A point in the life of a transport database: ``<incarnation>:<sequence>`` wherever it is written."""

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
    """What a lineage says of a mark that somebody remembers."""

    UNBROKEN = "unbroken"
    BROKEN = "broken"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Lineage:
    """Who a database is, and every incarnation of it that somebody may still remember.

    ``beginnings`` runs from old to new, its last entry is the incarnation that speaks; ``sequence`` is
    the highest tracking sequence committed. Beginnings that every member saw the end of are pruned.
    """

    database_id: DatabaseId
    beginnings: tuple[Beginning, ...]
    sequence: int

    @property
    def incarnation(self) -> Incarnation:
        return self.beginnings[-1].incarnation

    @property
    def mark(self) -> Mark:
        return Mark(self.incarnation, self.sequence)

    def at(self, sequence: int) -> Lineage:
        """The same lineage, heard at a later sequence; an earlier one changes nothing."""
        return self if sequence <= self.sequence else replace(self, sequence=sequence)

    def at_least(self, mark: Mark) -> Lineage:
        """The same lineage, knowing that its running incarnation reached that mark."""
        return self.at(mark.sequence) if mark.incarnation == self.incarnation else self

    def end_of(self, incarnation: Incarnation) -> int | None:
        """The sequence up to which that incarnation ran, None when the list does not name it."""
        for index, beginning in enumerate(self.beginnings):
            if beginning.incarnation == incarnation:
                following = self.beginnings[index + 1 :]
                return following[0].sequence if following else self.sequence
        return None

    def overtaken_by(self, later: Lineage) -> bool:
        """Is this what that database said of itself earlier, before it said ``later``?"""
        if self.database_id != later.database_id:
            return False
        end = later.end_of(self.incarnation)
        return end is not None and (self.incarnation != later.incarnation or self.sequence < end)

    def continuity(self, database_id: DatabaseId, mark: Mark) -> Continuity:
        """Was this database, as it is now, ever at that mark?

        Another database id, an incarnation that did not run that far, or one that has no place in the
        list: the database that we knew is gone (replaced, rolled back, or an old copy of itself). A list
        that does not reach back to the mark proves nothing.
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
        """The same lineage, with what an earlier list says of the time before this one begins."""
        names = [beginning.incarnation for beginning in earlier.beginnings]
        first = self.beginnings[0].incarnation
        before = earlier.beginnings[: names.index(first)] if first in names else ()
        return replace(self, beginnings=(*before, *self.beginnings)[-most:]) if before else self

    def since(self, known: Incarnation | None, most: int = 64) -> Lineage:
        """The lineage back to the incarnation that the listener said it knows, at most ``most`` entries."""
        names = [beginning.incarnation for beginning in self.beginnings]
        start = names.index(known) if known in names else 0
        return replace(self, beginnings=self.beginnings[start:][-most:])
