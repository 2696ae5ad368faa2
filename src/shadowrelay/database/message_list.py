"""Lists messages of this node: those in a state, or those that a filter means, sorted, with their number.

A page begins behind a place, or ends before one: a place is what the message there is sorted by, and its id.
So the pages of several nodes can be put together.
"""

from __future__ import annotations

import heapq
import json
import sqlite3
from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum
from typing import TypeAlias

from shadowrelay.core.identifiers import FIRST, MessageId
from shadowrelay.core.jobs import Filter
from shadowrelay.core.values import dataclass
from shadowrelay.database import job_selection, views
from shadowrelay.database.ledger import SqlLedger
from shadowrelay.database.queries import load
from shadowrelay.database.selectors import know_folded
from shadowrelay.database.views import Counts, MessageState, counts

SQL = load("message_list.sql")
_ALL = -1

SortValue: TypeAlias = int | str
ListPlace: TypeAlias = tuple[SortValue, MessageId]


class SortBy(StrEnum):
    """What a list is sorted by. RECEIVED: the id, which tells when the message came."""

    RECEIVED = "received"
    SIZE = "size"
    SENDER = "sender"
    SUBJECT = "subject"
    RECIPIENT = "recipient"
    NEXT_HOP = "next_hop"
    REASON = "reason"
    ATTEMPTS = "attempts"


@dataclass(frozen=True, slots=True, kw_only=True)
class ListOf:
    """Which page of which messages. ``down``: the greatest first. ``after`` or ``before``: a place.
    ``owners``, ``holders``: those that are away, for AT_RISK.
    """

    state: MessageState = MessageState.QUEUED
    filter: Filter | None = None
    by: SortBy = SortBy.RECEIVED
    down: bool = False
    after: ListPlace | None = None
    before: ListPlace | None = None
    most: int = 50
    owners: tuple[str, ...] = ()
    holders: tuple[str, ...] = ()

    @property
    def simple(self) -> bool:
        """Is it answered by an index, however long the list is?"""
        by_id = self.filter is None and self.by is SortBy.RECEIVED and self.state is not MessageState.AT_RISK
        return by_id and (self.in_safety_net or self.forward)

    @property
    def in_safety_net(self) -> bool:
        return self.filter is None and self.state is MessageState.SAFETY_NET

    @property
    def forward(self) -> bool:
        return not self.down and self.before is None


@dataclass(frozen=True, slots=True)
class ListPage:
    """The rows of a page in their order, one more if there are more; and how many are in the list."""

    rows: Sequence[ListPlace]
    total: int


def page(rows: Sequence[ListPlace], wanted: ListOf) -> list[ListPlace]:
    """The page of all rows, with the next one. Of a page before a place, the one before it is the first."""
    if wanted.before is not None:
        place = wanted.before
        kept = [one for one in rows if (one > place if wanted.down else one < place)]
        nearest = heapq.nsmallest if wanted.down else heapq.nlargest
        return nearest(wanted.most + 1, kept)[::-1]
    if wanted.after is not None:
        place = wanted.after
        rows = [one for one in rows if (one < place if wanted.down else one > place)]
    return (heapq.nlargest if wanted.down else heapq.nsmallest)(wanted.most + 1, rows)


def by_index(ledger: SqlLedger, wanted: ListOf) -> ListPage:
    """A simple one: work for ``TransportDatabase.transact``."""
    place = wanted.after or wanted.before
    up = wanted.down == (wanted.before is not None)
    if up:
        start = place[1] if place else FIRST
        ids = views.ids(ledger.connection, wanted.state, start, wanted.most + 1)
    else:
        start = place[1] if place else MessageId("~")
        found = ledger.connection.execute(SQL["before_in_safety_net"], (start, wanted.most + 1))
        ids = [MessageId(id_) for (id_,) in found]
    rows: list[ListPlace] = [(id_, id_) for id_ in ids]
    return ListPage(rows if wanted.before is None else rows[::-1], _total(counts(ledger, 0), wanted.state))


def sorted_page(readers: Sequence[sqlite3.Connection], wanted: ListOf, now: datetime) -> ListPage:
    """Any other but of Safety Net: work for ``TransportDatabase.read``."""
    reader = readers[0]
    know_folded(reader)
    if wanted.filter is not None:
        ids = job_selection.meant(reader, wanted.filter, now)
    else:
        away = {"owners": wanted.owners, "holders": wanted.holders}
        ids = views.ids(reader, wanted.state, FIRST, _ALL, **away)
    rows: list[ListPlace]
    if wanted.by is SortBy.RECEIVED:
        rows = [(id_, id_) for id_ in ids]
    else:
        asked = {"ids": json.dumps(ids)}
        rows = [(value, MessageId(id_)) for id_, value in reader.execute(SQL[f"by_{wanted.by.value}"], asked)]
    return ListPage(page(rows, wanted), len(ids))


def _total(seen: Counts, state: MessageState) -> int:
    return {
        MessageState.QUEUED: seen.queued,
        MessageState.EXPOSED: seen.exposed,
        MessageState.ASKING: seen.asking,
        MessageState.IN_DOUBT: seen.in_doubt,
        MessageState.SET_ASIDE: seen.set_aside,
        MessageState.DAMAGED: seen.damaged + seen.damaged_aside,
        MessageState.SHADOW: seen.shadow_held,
        MessageState.SAFETY_NET: seen.safety_net,
    }[state]
