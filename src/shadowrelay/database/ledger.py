"""The ledger on SQLite: what decisions read, and how their writes and events are stored.

Synchronous and bound to one connection. In a node it runs in the database thread, inside a transaction
that the group commit owns; nothing here begins, commits or rolls back.
"""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import TypeVar, assert_never

from shadowrelay import failpoints
from shadowrelay.core.decisions import (
    AcknowledgeEvents,
    CheckCopies,
    DamagedRow,
    Decision,
    DiscardEvent,
    DropCopy,
    DropDamaged,
    DropEvents,
    Heard,
    Member,
    OpenQuestion,
    Outcome,
    SaveCopy,
    SaveDamaged,
    Tombstone,
    Write,
)
from shadowrelay.core.identifiers import Beginning, DatabaseId, Incarnation, Lineage, MessageId, ServerName
from shadowrelay.core.messages import Copy, Stage
from shadowrelay.core.tracking import RowsDamaged, SnapshotEnd
from shadowrelay.core.tracking_row import TrackingEvent
from shadowrelay.core.values import replace
from shadowrelay.database import records
from shadowrelay.database.queries import load

T = TypeVar("T")

SQL = load("queries.sql")

MOST_RECENT = 2048
"""Copies remembered as they were last saved: a message is read again within a second or two, if at all."""

FEW = 8
"""Recipients up to which a copy is remembered: bounds the memory."""

ROWS_FROM_BEFORE = "rows_from_before"
"""The key of what says that there may be rows of a version before sums and digests."""

_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


LINEAGE_FROM = "lineage_from"
"""The key of the incarnation before which messages of this database are missing: what others know of that
time is worth nothing.
"""


def _behind(openings: tuple[Beginning, ...], token: Incarnation) -> tuple[Beginning, ...]:
    """Those from that one on, as if nothing had been before it."""
    names = [opening.incarnation for opening in openings]
    if token not in names:
        return openings
    return (Beginning(token, 0), *openings[names.index(token) + 1 :])


class SqlLedger:
    """A ``Transaction`` (core.decisions) on one SQLite connection.

    ``name`` is this node's own, ``hosts`` the machines of the members and its own. ``tracked`` counts
    tracking events by event-id, for metrics. ``freed`` collects the files of dropped content: to be removed
    once the transaction is durable, never before. ``suspects``: messages whose rows were read and cannot be
    believed, and why; nothing is written down of them yet.
    """

    def __init__(
        self, connection: sqlite3.Connection, name: ServerName, hosts: Mapping[ServerName, str] | None = None
    ) -> None:
        connection.text_factory = records.tolerant
        connection.create_function("row_sum", -1, records.row_sum, deterministic=True)
        self.connection = connection
        self.name = name
        self.hosts = hosts or {}
        self.suspects: dict[MessageId, str] = {}
        self.freed: list[str] = []
        self.tracked: Counter[str] = Counter()
        self.scratch = 0  # rows changed in temporary tables, which no disk has to know of
        self.planned = 0  # recipients stored so far that this node may send, now or later
        self._recent: dict[MessageId, Copy] = {}
        self._members: dict[ServerName, Member] = {}  # as stored: read again and again for every message
        self._run = connection.execute
        self.refresh()

    def refresh(self) -> None:
        """Read what is kept in memory again: after opening, and after a rollback."""
        rows = self._run(SQL["incarnations"]).fetchall()
        self._incarnations = [(Incarnation(token), began, first) for token, began, first in rows]
        self.openings = tuple(Beginning(token, began) for token, began, _ in self._incarnations)
        broken = self._run(SQL["meta"], (LINEAGE_FROM,)).fetchone()
        self._beginnings = _behind(self.openings, Incarnation(broken[0])) if broken else self.openings
        row = self._run(SQL["meta"], ("database_id",)).fetchone()
        self._database_id = DatabaseId(row[0]) if row else DatabaseId("")
        self._old = self._run(SQL["meta"], (ROWS_FROM_BEFORE,)).fetchone() is not None
        self._sequence = self._last(SQL["last_sequence"])
        self.freed.clear()
        self._members.clear()
        self.forget_recent()

    @property
    def changes(self) -> int:
        """Rows changed so far, of those that have to be durable."""
        return self.connection.total_changes - self.scratch

    def forget_recent(self) -> None:
        """To be called by whoever changes messages or recipients without ``apply``."""
        self._recent.clear()

    def _last(self, query: str) -> int:
        row = self._run(query).fetchone()
        return int(row[0]) if row else 0

    @property
    def lineage(self) -> Lineage:
        return Lineage(self._database_id, self._beginnings, self._sequence)

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
            found = records.copy_of(row, recipients, holders, old=self._old)
        except records.Unbelievable as error:
            self.suspects.setdefault(message_id, str(error))
            return None
        self.suspects.pop(message_id, None)
        return found

    def read_again(self, message_id: MessageId) -> Copy | None:
        """As the disk has it, arriving or not, whatever memory says. None if it is gone, or cannot be
        believed.
        """
        self._recent.pop(message_id, None)
        return self._stored(message_id)

    @property
    def has_old_rows(self) -> bool:
        """May there be rows of a version before sums?"""
        return self._old

    def write_again(self, copy: Copy) -> None:
        """Every row of a message as it has to be, with its sum."""
        self._save(SaveCopy(None, copy))

    def no_old_rows(self) -> None:
        """Each row has its sum by now: one without is damaged."""
        self._run(SQL["drop_meta"], (ROWS_FROM_BEFORE,))
        self._old = False

    def damaged(self, message_id: MessageId) -> DamagedRow | None:
        row = self._run(SQL["damaged"], (message_id,)).fetchone()
        if row is None and message_id not in self.suspects:
            return None
        rows = self._run(SQL["recipients"], (message_id,)).fetchall()
        row = row or (message_id, 0, self.suspects[message_id], "", 0)
        return records.damaged_of(row, records.sound_recipients(rows))

    def _copies(self, query: str, *values: object) -> Iterator[Copy]:
        for (message_id,) in self._run(SQL[query], values).fetchall():
            if copy := self.copy(message_id):
                yield copy

    def outcome(self, message_id: MessageId) -> Outcome | None:
        row = self._run(SQL["outcome"], (message_id,)).fetchone()
        # One that cannot be read is none: then the message is unknown here, which releases nothing.
        return records.readable(records.outcome_of, row) if row else None

    def tombstone(self, message_id: MessageId) -> Tombstone | None:
        row = self._run(SQL["tombstone"], (message_id,)).fetchone()
        return records.readable(records.tombstone_of, row) if row else None

    def knows(self, message_id: MessageId) -> bool:
        return bool(self._run(SQL["knows"], (message_id,)).fetchone()[0])

    def member(self, name: ServerName) -> Member | None:
        known = self._members.get(name)
        if known is None and (row := self._run(SQL["member"], (name,)).fetchone()):
            known = self._members[name] = records.member_of(row)
        return known

    def known(self, name: ServerName) -> Member | None:
        """What memory has of that member, in a transaction or not; of None the database may know more."""
        return self._members.get(name)

    def members(self) -> Iterable[Member]:
        return [records.member_of(row) for row in self._run(SQL["members"]).fetchall()]

    def copies_held_for(self, owner: ServerName, *, unclaimed: bool = False) -> Iterable[Copy]:
        return self._copies("unclaimed" if unclaimed else "held_for", owner)

    def copies_held_by(self, holder: ServerName, *, counted: bool | None = None) -> Iterable[Copy]:
        return self._copies({None: "held_by", True: "counted", False: "missed"}[counted], holder)

    def copies_taken_from(self, former: ServerName) -> Iterable[Copy]:
        return self._copies("taken_from", former)

    def open_questions(self, after: MessageId, most: int) -> Sequence[OpenQuestion]:
        rows = self._run(SQL["open_questions"], (after, most)).fetchall()
        return [OpenQuestion(MessageId(row[0]), records.maybe_moment(row[1]), row[2]) for row in rows]

    def copies_to_check(self, owner: ServerName, now: datetime, most: int) -> Iterable[Copy]:
        return self._copies("to_check", owner, records.micros(now), most)

    def holds_for(self, owner: ServerName) -> bool:
        """Is any copy in transit held for that owner?"""
        return bool(self._run(SQL["holds_for"], (owner,)).fetchone()[0])

    def count_held_for(self, owner: ServerName) -> int:
        """How many copies in transit are held for that owner."""
        return int(self._run(SQL["count_held_for_owner"], (owner,)).fetchone()[0])

    def events_for(self, addressee: DatabaseId, most: int) -> Iterable[DiscardEvent]:
        rows = self._run(SQL["events_for"], (addressee, most)).fetchall()
        # What one that cannot be read had to say is asked for in a while, as about every copy.
        return [event for row in rows if (event := records.readable(records.event_of, row))]

    def apply(self, decision: Decision[T]) -> T:
        """Store writes and events; they count, as ``then`` does, once the transaction commits."""
        for write in decision.writes:
            self._write(write)
        for event in decision.events:
            self._track(event)
        return decision.then

    def _track(self, event: TrackingEvent | SnapshotEnd | RowsDamaged) -> None:
        row = event.columns()
        failpoints.wrote(row["event-id"])
        self.tracked[row["event-id"]] += 1
        self._sequence = self._run(SQL["put_tracking"], (_json(row),)).lastrowid or self._sequence

    def _write(self, write: Write) -> None:
        match write:
            case SaveCopy():
                self._save(write)
            case DropCopy(copy):
                self._drop(copy.id)
            case SaveDamaged(found):
                self._quarantine(found)
            case DropDamaged(message_id):
                self._run(SQL["drop_damaged"], (message_id,))
                self._drop(message_id)
            case DiscardEvent():
                self._run(SQL["put_event"], records.event_row(write))
            case CheckCopies(owner, at):
                self._run(SQL["check_copies"], (records.micros(at), owner))
                self.forget_recent()
            case AcknowledgeEvents(addressee, upto):
                last = self._last_event_of(upto.incarnation)
                if last is not None:
                    self._run(SQL["acknowledge_events"], (addressee, min(last, upto.sequence)))
            case DropEvents(addressee):
                self._run(SQL["drop_events"], (addressee,))
            case Outcome(message_id, epoch, delivered, until, refused):
                numbers = records.numbers_text(delivered)
                row = (message_id, epoch, numbers, records.micros(until), int(refused))
                self._run(SQL["put_outcome"], row)
            case Tombstone(message_id, owner, epoch, rank, until):
                self._run(SQL["put_tombstone"], (message_id, owner, epoch, rank, records.micros(until)))
            case Member(name):
                self._members[name] = write
                self._run(SQL["put_member"], records.member_row(write))
            case Heard(name, sequence):
                if (known := self.member(name)) and known.lineage:
                    self._members[name] = replace(known, lineage=known.lineage.at(sequence))
                    self._run(SQL["heard"], (sequence, name))
            case _:
                assert_never(write)

    def _save(self, write: SaveCopy) -> None:
        before, after = write.before, write.after
        if after.stage is Stage.ARRIVING:
            failpoints.wrote(failpoints.ARRIVING)
        if after.pending and not (before and before.pending):
            failpoints.wrote(failpoints.PENDING)
        row = records.message_row(after)
        if before is None or row != records.message_row(before):
            self._run(SQL["put_message"], row + records.message_sums(row))
        old = {records.recipient_row(before, item) for item in before.recipients} if before else set()
        for recipient in after.recipients:
            row = records.recipient_row(after, recipient)
            if row not in old:
                self._run(SQL["put_recipient"], (*row, records.row_sum(*row[:-1])))
                self.planned += row[-1] is not None
        old = {records.holder_row(before, item) for item in before.holders} if before else set()
        new = {records.holder_row(after, item) for item in after.holders}
        kept = {holder.database_id for holder in after.holders}
        for row in old:
            if row[1] not in kept:
                self._run(SQL["drop_holder"], row[:2])
        for row in new - old:
            self._run(SQL["put_holder"], (*row, records.row_sum(*row)))
        if write.content:
            if before:  # in place of one that is damaged
                self._free_content(after.id)
                self._run(SQL["drop_content"], (after.id,))
            self._run(SQL["put_content"], (after.id, write.content.data, write.content.path))
        self._remember(after)

    def _remember(self, copy: Copy) -> None:
        self._recent.pop(copy.id, None)
        if copy.stage is Stage.ARRIVING:
            return
        if len(copy.recipients) > FEW or len(copy.holders) > 1:  # which are read in an order of their own
            return
        if copy.stage is Stage.SAFETY_NET:  # hardly read again: its memory is of more use to the next message
            return
        if len(self._recent) >= MOST_RECENT:
            del self._recent[next(iter(self._recent))]
        self._recent[copy.id] = copy

    def _drop(self, message_id: MessageId) -> None:
        self._free_content(message_id)
        self._recent.pop(message_id, None)
        self.suspects.pop(message_id, None)
        for query in ("drop_content", "drop_holders", "drop_recipients", "drop_message"):
            self._run(SQL[query], (message_id,))

    def _free_content(self, message_id: MessageId) -> None:
        row = self._run(SQL["content"], (message_id,)).fetchone()
        if row and isinstance(row[1], str):
            self.freed.append(row[1])

    def _quarantine(self, found: DamagedRow) -> None:
        """Nobody finds those rows any more; they stay for whoever has to look at them."""
        self._run(SQL["put_damaged"], records.damaged_row(found))
        self._run(SQL["quarantine"], (found.message_id,))
        self._run(SQL["hold_back"], (found.message_id,))
        self._recent.pop(found.message_id, None)
        self.suspects.pop(found.message_id, None)

    def _last_event_of(self, incarnation: Incarnation) -> int | None:
        """The last event number that existed when that incarnation ended; None if it is not known here.

        After a rollback numbers are used again: an acknowledgement of a lost incarnation, or of numbers
        past the end of a known one, must not forget the new events.
        """
        for index, (token, _, _) in enumerate(self._incarnations):
            if token == incarnation:
                following = self._incarnations[index + 1 :]
                return following[0][2] - 1 if following else self._last(SQL["last_event"])
        return None
