"""What operators are told of Safety Net: counts and pages of the messages that a selector means.

Everything here is work for ``TransportDatabase.read``, and may take a second for a million messages. Sums of
rows are not compared: a decision compares them before a message is made.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import datetime, timedelta

from shadowrelay.core.identifiers import DatabaseId, MessageId, NextHop, ServerName
from shadowrelay.core.messages import Role
from shadowrelay.core.requests import BEGIN, Place, Selector
from shadowrelay.core.spelling import decoded
from shadowrelay.core.values import dataclass
from shadowrelay.database.queries import load
from shadowrelay.database.records import maybe_moment, micros, moment
from shadowrelay.database.selectors import know_folded, parameters
from shadowrelay.database.sums import SqlRow

SQL = load("resubmission.sql")

_FIRST, _RELAYED, _MADE, _DAMAGED, _QUEUED, _CURRENT = (1 << bit for bit in range(6))
_OWNER = 64  # what follows the flags is the place of the owner
_OWNERS = 8  # that one query tells apart
_PARTS = 16
_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeCount:
    """What a request would make: ``messages`` with ``recipients`` and ``octets`` of content; and what not.

    ``outside`` counts recipients that crossed the boundary. The others count messages: ``resubmitted`` by an
    earlier request, ``damaged``, settled at an unknown time (``untimed``), and still in transit for other
    recipients (``in_transit``).
    """

    messages: int = 0
    recipients: int = 0
    octets: int = 0
    outside: int = 0
    resubmitted: int = 0
    damaged: int = 0
    untimed: int = 0
    in_transit: int = 0

    def __add__(self, other: MadeCount) -> MadeCount:
        return MadeCount(**{name: getattr(self, name) + getattr(other, name) for name in MadeCount.__slots__})


@dataclass(frozen=True, slots=True)
class OwnerKnown:
    """An owner as this node knows it: its database, and the time before which it has lost what it settled.

    Of this node itself and of an owner never met, both are None.
    """

    name: ServerName
    database: DatabaseId | None = None
    lost_before: datetime | None = None


@dataclass(frozen=True, slots=True)
class OwnerCount:
    """The messages of one owner: ``lost`` by it with a database of it that is gone, and the ``rest``."""

    owner: ServerName
    lost: MadeCount = MadeCount()
    rest: MadeCount = MadeCount()


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """A message in Safety Net. ``recipients``: those that the selector means, with next hop and status."""

    id: MessageId
    settled_at: datetime
    role: Role
    owner: ServerName
    sender: str
    size: int
    subject: str
    message_id: str
    request: str | None
    damaged: bool
    recipients: tuple[tuple[str, NextHop, str], ...]

    @property
    def subject_read(self) -> str:
        return decoded(self.subject)


def earliest(connection: sqlite3.Connection) -> datetime | None:
    """When the first of the recipients that are still in Safety Net was settled."""
    return maybe_moment(connection.execute(SQL["earliest"]).fetchone()[0])


def count(
    readers: Sequence[sqlite3.Connection], selector: Selector, owners: Sequence[OwnerKnown]
) -> Mapping[ServerName, OwnerCount]:
    """What a request would make of the messages of these owners; each message counts once. The readers share
    the work.
    """
    found: dict[ServerName, OwnerCount] = {}
    for at in range(0, len(owners), _OWNERS):
        found |= _count(readers, selector, owners[at : at + _OWNERS])
    return found


def _count(
    readers: Sequence[sqlite3.Connection], selector: Selector, owners: Sequence[OwnerKnown]
) -> dict[ServerName, OwnerCount]:
    asked = parameters(selector)
    for place in range(_OWNERS):
        owner = owners[place] if place < len(owners) else None
        asked |= {f"owner{place + 1}": owner and owner.name, f"database{place + 1}": owner and owner.database}
    parts = _parts(selector, owners)
    found = {owner.name: OwnerCount(owner.name) for owner in owners}

    def counted(reader: sqlite3.Connection) -> list[tuple[datetime, SqlRow]]:
        know_folded(reader)
        rows = []
        while parts:
            with suppress(IndexError):
                begin, end = parts.pop()
                part = {"begin": micros(begin), "end": micros(end)}
                rows += [(end, row) for row in reader.execute(SQL["count"], asked | part).fetchall()]
        return rows

    with ThreadPoolExecutor() as pool:
        others = [pool.submit(counted, reader) for reader in readers[1:]]
        rows = counted(readers[0]) + [row for other in others for row in other.result()]
    for end, (told, recipients, octets) in rows:
        if place := told // _OWNER:
            owner = owners[place - 1]
            one = _counted(told, recipients, octets)
            found[owner.name] = _with(found[owner.name], one, lost=_lost(owner, told, end))
    for place, messages in readers[0].execute(SQL["untimed"], asked).fetchall():
        if place:
            name = owners[place - 1].name
            found[name] = _with(found[name], MadeCount(untimed=messages), lost=False)
    return found


def _parts(selector: Selector, owners: Sequence[OwnerKnown]) -> list[tuple[datetime, datetime]]:
    """The window in parts: cut where an owner has lost what it settled before, and to share the work."""
    length = (selector.until - selector.since) / _PARTS
    cuts = {owner.lost_before for owner in owners if owner.lost_before}
    cuts |= {selector.since + number * length for number in range(1, _PARTS)}
    begins = [selector.since, *sorted(cut for cut in cuts if selector.since < cut <= selector.until)]
    ends = [cut - _MICROSECOND for cut in begins[1:]] + [selector.until]
    return list(zip(begins, ends, strict=True))


def _lost(owner: OwnerKnown, told: int, end: datetime) -> bool:
    """Is a message that was settled in a part of the window with that ``end`` lost to its owner?"""
    if owner.database is None:
        return False
    return not told & _CURRENT or (owner.lost_before is not None and end < owner.lost_before)


def _counted(told: int, recipients: int, octets: int) -> MadeCount:
    messages = recipients if told & _FIRST else 0
    if told & _QUEUED:
        return MadeCount(in_transit=0 if told & _RELAYED else messages)
    if told & _RELAYED:
        return MadeCount(outside=recipients)
    if told & _MADE:
        return MadeCount(resubmitted=messages)
    if told & _DAMAGED:
        return MadeCount(damaged=messages)
    return MadeCount(messages=messages, recipients=recipients, octets=octets if messages else 0)


def _with(found: OwnerCount, more: MadeCount, *, lost: bool) -> OwnerCount:
    if lost:
        return OwnerCount(found.owner, found.lost + more, found.rest)
    return OwnerCount(found.owner, found.lost, found.rest + more)


def page(
    connection: sqlite3.Connection, selector: Selector, place: Place = BEGIN, most: int = 100
) -> list[Kept]:
    """Messages that a selector means, this node's own and held ones, in the order of (time, id)."""
    know_folded(connection)
    rows = connection.execute(SQL["page"], parameters(selector, place) | {"most": most}).fetchall()
    return [
        Kept(
            id=MessageId(row[1]),
            settled_at=moment(row[0]),
            role=Role(row[2]),
            owner=ServerName(row[3]),
            sender=row[4],
            size=row[5],
            subject=row[6],
            message_id=row[7],
            request=row[8],
            damaged=row[9] is not None,
            recipients=tuple((to, NextHop(hop), status) for to, hop, status in json.loads(row[10])),
        )
        for row in rows
    ]
