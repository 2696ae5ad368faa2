"""Keeps the shadow queues of hops: rows of ``hop_shadow``, and how many each hop has."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from shadowrelay.core.decisions import ALL, DropHopShadow, HopShadow, Part
from shadowrelay.core.identifiers import DatabaseId, MessageId, ServerName
from shadowrelay.database import records, sums
from shadowrelay.database.queries import load
from shadowrelay.wire.xqdiscard import format_recipients, parse_recipients
from shadowrelay.wire.xshadow import format_mark, parse_mark

SQL = load("queries.sql")

EVER = datetime.min.replace(tzinfo=UTC)


def hop_shadow_row(kept: HopShadow) -> sums.SqlRow:
    told = {
        "database": kept.database_id,
        "mark": format_mark(kept.mark),
        "recipients": format_recipients(kept.recipients),
    }
    return kept.message_id, kept.hop, records.micros(kept.since), json.dumps(told)


def hop_shadow_of(row: sums.SqlRow) -> HopShadow:
    """Raises one of ``sums.IMPOSSIBLE`` for a row that cannot be read."""
    message_id, hop, since, text = row
    told = json.loads(text)
    return HopShadow(
        MessageId(message_id),
        ServerName(hop),
        DatabaseId(told["database"]),
        parse_mark(told["mark"]),
        parse_recipients(told["recipients"]),
        records.moment(since),
    )


def _believed(row: sums.SqlRow) -> HopShadow | None:
    """None for a damaged row: nothing follows from it, and the message stays until it is too old."""
    return sums.sound(hop_shadow_of, row)


def _since(row: sums.SqlRow) -> datetime:
    return records.moment(row[2])


class HopShadowRows:
    """The part of the ledger for shadow queues of hops; bound to one connection.

    Nothing is asked of the database while no hop has anything of ours: most nodes never meet such a hop.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._run = connection.execute
        self._counts: Counter[ServerName] = Counter()

    def refresh(self) -> None:
        """Count again: after opening, and after a rollback."""
        self._counts = Counter({ServerName(hop): count for hop, count in self._run(SQL["hop_shadow_counts"])})

    @property
    def counts(self) -> Mapping[ServerName, int]:
        """How many messages each hop has of ours. Callable outside a transaction."""
        return self._counts

    def one(self, message_id: MessageId, hop: ServerName) -> HopShadow | None:
        if not self._counts:
            return None
        row = self._run(SQL["hop_shadow"], (message_id, hop)).fetchone()
        return _believed(row) if row else None

    def of(self, message_id: MessageId) -> Sequence[HopShadow]:
        if not self._counts:
            return ()
        rows = self._run(SQL["hop_shadows_of"], (message_id,)).fetchall()
        return [found for row in rows if (found := _believed(row))]

    def unsound(self, message_id: MessageId) -> Mapping[ServerName, datetime]:
        """The hops whose rows about the message are damaged. A time that is none counts as long ago."""
        if not self._counts:
            return {}
        rows = self._run(SQL["hop_shadows_of"], (message_id,)).fetchall()
        return {ServerName(row[1]): sums.readable(_since, row) or EVER for row in rows if not _believed(row)}

    def part(self, hop: ServerName, part: Part = ALL) -> tuple[Sequence[HopShadow], Part | None]:
        most = -1 if part.most is None else part.most
        rows = self._run(SQL["hop_shadows"], (hop, part.after, most)).fetchall()
        found = [one for row in rows if (one := _believed(row))]
        return found, part.rest([MessageId(row[0]) for row in rows])

    def since_before(self, before: datetime, most: int) -> Sequence[MessageId]:
        """Messages that a hop took before that time, the oldest first."""
        if not self._counts:
            return ()
        rows = self._run(SQL["hop_shadows_before"], (records.micros(before), most)).fetchall()
        return [MessageId(one) for one in dict.fromkeys(row[0] for row in rows)]

    def write(self, write: HopShadow | DropHopShadow) -> None:
        if isinstance(write, HopShadow):
            added = self._run(SQL["add_hop_shadow"], hop_shadow_row(write)).rowcount
            if added < 1:
                self._run(SQL["put_hop_shadow"], hop_shadow_row(write))
            self._counts[write.hop] += max(added, 0)
        else:
            self._gone(write.hop, self._run(SQL["drop_hop_shadow"], (write.message_id, write.hop)).rowcount)

    def forget(self, message_id: MessageId) -> None:
        """The message is dropped, with its content: there is nothing that could be sent again."""
        if self._counts:
            for (hop,) in self._run(SQL["drop_hop_shadows_of"], (message_id,)).fetchall():
                self._gone(ServerName(hop), 1)

    def _gone(self, hop: ServerName, rows: int) -> None:
        self._counts[hop] -= rows
        if self._counts[hop] <= 0:
            del self._counts[hop]
