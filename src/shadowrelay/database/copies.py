"""Reads and saves copies on SQLite, compares each row with its sum, and remembers recent copies."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime

from shadowrelay import failpoints
from shadowrelay.core.decisions import ALL, DamagedRow, HopShadow, Part, SaveCopy
from shadowrelay.core.identifiers import MessageId, ServerName
from shadowrelay.core.members.damage import Counted
from shadowrelay.core.messages import Copy, Stage
from shadowrelay.database import records, sharing, sums
from shadowrelay.database.hop_shadow_rows import HopShadowRows
from shadowrelay.database.queries import load
from shadowrelay.database.selectors import know_folded
from shadowrelay.database.tally import Tally

SQL = load("queries.sql")

MOST_RECENT = 2048
"""Copies remembered as last saved: a message is read again within a second or two, if at all."""

FEW = 8
"""Most recipients of a remembered copy: bounds the memory."""

ROWS_FROM_BEFORE = "rows_from_before"
"""The meta key that says: there may be rows from a version before sums and digests."""


class Copies:
    """The part of the ledger for messages, their recipients and holders; bound to one connection.

    ``suspects``: messages whose rows differ from their sums, and why; not written down yet. ``freed``: files
    of dropped content, to be removed only once the transaction is durable. ``damage`` counts, for metrics,
    what was found and what became of it.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        connection.text_factory = sums.tolerant
        sums.know_sums(connection)
        know_folded(connection)
        self.connection = connection
        self.suspects: dict[MessageId, str] = {}
        self.freed: list[str] = []
        self.damage: Counter[Counted] = Counter()
        self.doubted: set[str] = set()  # indexes that said what no row says
        self.awaited: set[MessageId] = set()  # messages for which a sender's 250 waits
        self.awaited_changes: list[Copy] = []  # what became of those since the last commit
        self.planned = 0  # recipients stored so far that this node may send, now or later
        self.tally = Tally()
        self.hop_shadow_rows = HopShadowRows(connection)
        self._old = False
        self._recent: dict[MessageId, Copy] = {}
        self._undisturbed: set[MessageId] = set()
        self._run = connection.execute

    def take_changes(self) -> Sequence[Copy]:
        """What became of awaited messages since the last call."""
        changes, self.awaited_changes = self.awaited_changes, []
        return changes

    def refresh(self) -> None:
        """Read what is kept in memory again."""
        self._old = self._run(SQL["meta"], (ROWS_FROM_BEFORE,)).fetchone() is not None
        self.freed.clear()
        self.hop_shadow_rows.refresh()
        self.forget_recent()

    def copy(self, message_id: MessageId) -> Copy | None:
        if recent := self._recent.get(message_id):
            return recent
        found = self._stored(message_id)
        return None if found is None or found.stage is Stage.ARRIVING else found

    def arrival(self, message_id: MessageId) -> Copy | None:
        found = self._stored(message_id)
        return found if found is not None and found.stage is Stage.ARRIVING else None

    def _stored(self, message_id: MessageId) -> Copy | None:
        row = self._run(SQL["message"], (message_id,)).fetchone()
        if row is None or row[4] == Stage.DAMAGED:
            return None
        recipients = self._run(SQL["recipients"], (message_id,)).fetchall()
        holders = self._run(SQL["holders"], (message_id,)).fetchall()
        try:
            found = records.copy_of(row[:-1], recipients, holders, old=self._old)
        except sums.Unbelievable as error:
            self.suspects.setdefault(message_id, str(error))
            return None
        self.suspects.pop(message_id, None)
        if row[-1] != found.exposed:  # or a holder's row is gone: now it counts as exposed, and is repaired
            self.write_again(found, derived=True)
        return found

    def read_again(self, message_id: MessageId) -> Copy | None:
        """The copy as the disk has it, arriving or not, past what memory remembers. None if it is gone or its
        rows differ from their sums.
        """
        self._recent.pop(message_id, None)
        return self._stored(message_id)

    def expected(self, message_id: MessageId) -> Copy | None:
        """Like ``copy``, for an id that another table or index gave. If there is no such message, one of the
        two is damaged: for instance, a page on which rows are not found by their keys any more.
        """
        if not isinstance(message_id, str):
            self._run(SQL["hold_back"], (message_id,))
            return None
        found = self.copy(message_id)
        if found is None and self._run(SQL["message"], (message_id,)).fetchone() is None:
            self.suspects.setdefault(message_id, "its row is missing")
        return found

    def derived_differ(self, copy: Copy) -> bool:
        """Is a stored time at which a recipient is due another one than follows from the copy?"""
        due = self._run(SQL["derived_due"], (copy.id,)).fetchall()
        return due != [(records.due_at(copy, one),) for one in copy.recipients]

    @property
    def has_old_rows(self) -> bool:
        """Whether there may be rows from a version before sums."""
        return self._old

    def write_again(self, copy: Copy, *, derived: bool = False) -> None:
        """Write every row of a message anew, with its sum. ``derived``: one of its derived columns was
        wrong.
        """
        self.damage[Counted.DERIVED] += derived
        self.tally.forget(self.connection, copy.id)
        self._save(SaveCopy(None, copy))

    def no_old_rows(self) -> None:
        """Every row has a sum by now: from here on a row without one is damaged."""
        self._run(SQL["drop_meta"], (ROWS_FROM_BEFORE,))
        self._old = False

    def damaged(self, message_id: MessageId) -> DamagedRow | None:
        row = self._run(SQL["damaged"], (message_id,)).fetchone()
        if row is None and message_id not in self.suspects:
            return None
        rows = self._run(SQL["recipients"], (message_id,)).fetchall()
        row = row or (message_id, 0, self.suspects[message_id], "", 0, None)
        return records.damaged_of(row, records.sound_recipients(rows))

    def _copies(self, query: str, *values: object) -> Iterator[Copy]:
        for (message_id,) in self._run(SQL[query], values).fetchall():
            if copy := self.expected(message_id):
                yield copy

    def hop_shadow(self, message_id: MessageId, hop: ServerName) -> HopShadow | None:
        return self.hop_shadow_rows.one(message_id, hop)

    def hop_shadows_of(self, message_id: MessageId) -> Sequence[HopShadow]:
        return self.hop_shadow_rows.of(message_id)

    def hop_shadows_unsound(self, message_id: MessageId) -> Mapping[ServerName, datetime]:
        return self.hop_shadow_rows.unsound(message_id)

    def hop_shadows(self, hop: ServerName, part: Part = ALL) -> tuple[Sequence[HopShadow], Part | None]:
        return self.hop_shadow_rows.part(hop, part)

    def forget_recent(self) -> None:
        """Forget remembered copies. Call it after changing messages or recipients without ``apply``."""
        self._recent.clear()
        self._undisturbed.clear()

    def follow(self, message_id: MessageId) -> None:
        """Watch a message: ``undisturbed`` tells whether it was changed since."""
        self._undisturbed.add(message_id)

    def let_be(self, message_id: MessageId) -> None:
        """Stop watching a message."""
        self._undisturbed.discard(message_id)

    def undisturbed(self, message_id: MessageId) -> bool:
        """Whether nothing was written about the message since ``follow``. False if it is not followed.

        Callable outside a transaction: it reads memory alone.
        """
        return message_id in self._undisturbed

    def _save(self, write: SaveCopy) -> None:
        before, after = write.before, write.after
        self._undisturbed.discard(after.id)
        if before is not None and before.stage is Stage.SET_ASIDE and after.stage is not Stage.SET_ASIDE:
            self._run(SQL["forget_crashes"], (after.id,))
        if after.stage is Stage.ARRIVING:
            failpoints.wrote(failpoints.ARRIVING)
        if after.pending and not (before and before.pending):
            failpoints.wrote(failpoints.PENDING)
        row = records.message_row(after)
        # Most writes change the stage: then no comparison is needed.
        if before is None or before.stage is not after.stage or row != records.message_row(before):
            self._run(SQL["put_message"], row + records.message_sums(row))
        old = {records.recipient_row(before, item) for item in before.recipients} if before else set()
        for recipient in after.recipients:
            row = records.recipient_row(after, recipient)
            if row not in old:
                self._run(SQL["put_recipient"], (*row, records.recipient_sum(row)))
                self.planned += row[-1] is not None
        known = before.holders if before else ()
        for holder in after.holders:
            if holder not in known:
                row = records.holder_row(after, holder)
                self._run(SQL["put_holder"], (*row, sums.row_sum(*row)))
        for holder in known:
            if holder not in after.holders and after.holder(holder.database_id) is None:
                self._run(SQL["drop_holder"], (after.id, holder.database_id))
        if write.content and before:  # it replaces what is there
            digest = after.digests.content if after.digests else None
            self.freed.extend(sharing.renew(self._run, after.id, write.content, digest))
        elif write.content:
            sharing.put(self._run, after.id, write.content)
        self.tally.changed(before, after)
        if after.id in self.awaited:
            self.awaited_changes.append(after)
        self._remember(after)

    def _remember(self, copy: Copy) -> None:
        self._recent.pop(copy.id, None)
        if copy.stage is Stage.ARRIVING or copy.stage is Stage.SAFETY_NET:
            return  # what is settled is hardly read again: leave the room to others
        if copy.recipients[FEW:] or copy.holders[1:]:  # SQL reads those in its own order
            return
        if len(self._recent) >= MOST_RECENT:
            del self._recent[next(iter(self._recent))]
        self._recent[copy.id] = copy

    def _drop(self, message_id: MessageId) -> None:
        self.freed.extend(sharing.leave(self._run, message_id))
        self._recent.pop(message_id, None)
        self._undisturbed.discard(message_id)
        self.suspects.pop(message_id, None)
        for query in ("drop_holders", "drop_recipients", "drop_message"):
            self._run(SQL[query], (message_id,))

    def _quarantine(self, found: DamagedRow) -> None:
        """Hide the rows from the queries of decisions; they stay stored, for an operator to look at."""
        self.tally.forget(self.connection, found.message_id)
        self._run(SQL["put_damaged"], records.damaged_row(found))
        self._run(SQL["quarantine"], (found.message_id,))
        self._run(SQL["hold_back"], (found.message_id,))
        self._recent.pop(found.message_id, None)
        self._undisturbed.discard(found.message_id)
        self.suspects.pop(found.message_id, None)
