"""Keeps the ledger on SQLite: reads for decisions, and stores their writes and events.

It is synchronous and bound to one connection. In a node it runs inside a transaction that the group commit
owns; nothing here begins, commits or rolls back.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TypeVar, assert_never

from pydantic_core import to_json

from shadowrelay import failpoints
from shadowrelay.core.decisions import (
    ALL,
    Acknowledged,
    AcknowledgeEvents,
    AskAbout,
    CheckCopies,
    Chore,
    ChoreDone,
    Decision,
    DiscardEvent,
    DropCopy,
    DropDamaged,
    DropEvent,
    DropEvents,
    DropHopShadow,
    Found,
    Heard,
    HopShadow,
    Member,
    OpenQuestion,
    Outcome,
    Part,
    SaveCopy,
    SaveDamaged,
    Tombstone,
    Unacknowledged,
    UnsoundEvent,
    Write,
)
from shadowrelay.core.hops import Handed, HopPeer
from shadowrelay.core.identifiers import (
    Beginning,
    DatabaseId,
    Incarnation,
    Lineage,
    MessageId,
    NextHop,
    ServerName,
)
from shadowrelay.core.members.damage import counted
from shadowrelay.core.messages import AsSent, Copy, Role, Stage
from shadowrelay.core.records import Record, RecordPart
from shadowrelay.core.requests import Place, Selected, Selector
from shadowrelay.core.safety_net import selection
from shadowrelay.core.shared_records import ForgetRecord, ForgetTold
from shadowrelay.core.tracking import Load, Tracked
from shadowrelay.core.values import replace
from shadowrelay.database import member_rows, meta, records, sums
from shadowrelay.database.copies import Copies
from shadowrelay.database.hop_rows import HopRows
from shadowrelay.database.listing import Listing
from shadowrelay.database.queries import load
from shadowrelay.database.record_rows import RecordRows
from shadowrelay.database.selectors import parameters, part
from shadowrelay.database.sums import SqlRow

T = TypeVar("T")

SQL = load("queries.sql")

_MILLISECOND = timedelta(milliseconds=1)
AT_ONCE = 500
"""Messages that one transaction goes through; all other writes wait meanwhile."""

LINEAGE_FROM = "lineage_from"
"""The meta key of the first incarnation since messages were lost: what members know of earlier ones no longer
counts.
"""


def _behind(openings: tuple[Beginning, ...], token: Incarnation) -> tuple[Beginning, ...]:
    """The openings from ``token`` on, as if the database began with it."""
    names = [opening.incarnation for opening in openings]
    if token not in names:
        return openings
    return (Beginning(token, 0), *openings[names.index(token) + 1 :])


class EventRows:
    """The part of a ledger that reads and writes discard events, on the ledger's ``connection``."""

    connection: sqlite3.Connection
    _incarnations: list[tuple[Incarnation, int, int]]  # token, first sequence, first event
    _event = 0  # the last number that was given
    _unsound: dict[int, UnsoundEvent]  # that were read, and are not said again yet

    def forget_events(self) -> None:
        """Read again what is kept in memory."""
        self._event = int(self.connection.execute(SQL["last_event"]).fetchone()[0])
        self._unsound = {}

    def events_for(self, addressee: DatabaseId, most: int) -> Iterable[DiscardEvent]:
        found = []
        for row in self.connection.execute(SQL["events_for"], (addressee, most)).fetchall():
            if event := sums.sound(records.event_of, row):
                found.append(event)
            else:
                self._unsound[row[0]] = UnsoundEvent(row[0], addressee, row[2])
        return found

    def take_unsound_events(self) -> Sequence[UnsoundEvent]:
        if not self._unsound:
            return ()
        found = tuple(self._unsound.values())
        self._unsound.clear()
        return found

    def unacknowledged_orders(self, message_id: MessageId) -> Sequence[DatabaseId]:
        rows = self.connection.execute(SQL["orders_of"], (message_id,)).fetchall()
        events = [sums.sound(records.event_of, row) for row in rows]
        return list(dict.fromkeys(event.addressee if event else DatabaseId("") for event in events))

    def _write_event(self, write: DiscardEvent | DropEvent | AcknowledgeEvents | DropEvents) -> None:
        run = self.connection.execute
        match write:
            case DiscardEvent():
                self._event += 1
                run(SQL["put_event"], (self._event, *records.event_row(write)))
            case DropEvent(number):
                run(SQL["drop_event"], (number,))
            case AcknowledgeEvents(addressee, upto):
                last = self._last_event_of(upto.incarnation)
                if last is not None:
                    run(SQL["acknowledge_events"], (addressee, min(last, upto.sequence)))
            case DropEvents(addressee):
                run(SQL["drop_events"], (addressee,))

    def _last_event_of(self, incarnation: Incarnation) -> int | None:
        """The last event number when ``incarnation`` ended; None if this node does not know it.

        After a rollback the numbers are used again: an acknowledgement from a lost incarnation, or of numbers
        past the end of a known one, must not drop the new events.
        """
        for index, (token, _, _) in enumerate(self._incarnations):
            if token == incarnation:
                following = self._incarnations[index + 1 :]
                return following[0][2] - 1 if following else self._event
        return None


class SqlLedger(EventRows, Copies, RecordRows):
    """A ``Transaction`` (core.decisions) on one SQLite connection.

    ``name`` is this node's own, ``hosts`` the machines of the members and its own. ``tracked`` counts
    tracking events by event-id, for metrics.
    """

    def __init__(
        self, connection: sqlite3.Connection, name: ServerName, hosts: Mapping[ServerName, str] | None = None
    ) -> None:
        super().__init__(connection)
        self.hop_rows = HopRows(connection)
        self.name = name
        self.hosts = hosts or {}
        self.tracked: Counter[str] = Counter()
        self.scratch = 0  # rows changed in temporary tables, which need not be durable
        self.chores: list[Chore] = []
        self.listing: Listing | None = None
        self.at_once = AT_ONCE
        self.ahead: Callable[[], timedelta] = timedelta  # of the wall clock, of which rows of the log tell
        self.wall_ahead: timedelta | None = None  # the same, once the open transaction has asked
        self._members: dict[ServerName, Member] = {}  # as stored; every message reads them
        self.refresh()

    def refresh(self) -> None:
        """Read again what is kept in memory: after opening, and after a rollback."""
        super().refresh()
        rows = [
            sums.needed(sums.one, row, "an incarnation") for row in self._run(SQL["incarnations"]).fetchall()
        ]
        self._incarnations = [(Incarnation(token), began, first) for _, token, began, first, _ in rows]
        self.openings = tuple(Beginning(token, began) for token, began, _ in self._incarnations)
        broken = meta.needed(self._run, LINEAGE_FROM)
        self._beginnings = _behind(self.openings, Incarnation(broken)) if broken else self.openings
        self._database_id = DatabaseId(meta.needed(self._run, "database_id") or "")
        if self.openings and not self._database_id:
            raise sums.corrupt("there is no database id")
        self._sequence = self._last(SQL["last_sequence"])
        self.forget_events()
        self._members.clear()
        self.hop_rows.refresh()
        self.forget_records()
        self.listing = None
        self._read_chores()

    def _read_chores(self) -> None:
        self.chores = [member_rows.chore_of(row) for row in self._run(SQL["chores"]).fetchall()]

    @property
    def changes(self) -> int:
        """Rows changed so far that have to be durable."""
        return self.connection.total_changes - self.scratch

    def _last(self, query: str) -> int:
        row = self._run(query).fetchone()
        return int(row[0]) if row else 0

    @property
    def lineage(self) -> Lineage:
        return Lineage(self._database_id, self._beginnings, self._sequence)

    def outcome(self, message_id: MessageId) -> Outcome | None:
        row = self._run(SQL["outcome"], (message_id,)).fetchone()
        # A damaged row counts as none: the message is unknown here, and nothing is released for delivery.
        return sums.sound(records.outcome_of, row) if row else None

    def sent_to(self, message_id: MessageId) -> frozenset[NextHop]:
        return frozenset(NextHop(hop) for (hop,) in self._run(SQL["sent_to"], (message_id,)).fetchall())

    def tombstone(self, message_id: MessageId) -> Tombstone | None:
        row = self._run(SQL["tombstone"], (message_id,)).fetchone()
        return sums.sound(records.tombstone_of, row) if row else None

    def knows(self, message_id: MessageId) -> bool:
        return bool(self._run(SQL["knows"], (message_id,)).fetchone()[0])

    def member(self, name: ServerName) -> Member | None:
        known = self._members.get(name)
        if known is None and (row := self._run(SQL["member"], (name,)).fetchone()):
            known = self._members[name] = member_rows.member_of(row)
        return known

    def known(self, name: ServerName) -> Member | None:
        """The member as memory has it; callable outside a transaction. On None the database may know more."""
        return self._members.get(name)

    def members(self) -> Iterable[Member]:
        return [member_rows.member_of(row) for row in self._run(SQL["members"]).fetchall()]

    def hop_peer(self, name: ServerName) -> HopPeer | None:
        return self.hop_rows.peer(name)

    def handed(self, message_id: MessageId) -> Handed | None:
        return self.hop_rows.handed(message_id)

    def handed_as(self, database_id: DatabaseId, their_id: MessageId) -> Sequence[Handed]:
        return self.hop_rows.handed_as(database_id, their_id)

    def _part(self, query: str, name: ServerName, part: Part) -> Found:
        rows = self._run(SQL[query], (name, part.after, -1 if part.most is None else part.most)).fetchall()
        return self._found(rows, part)

    def _found(self, rows: Sequence[SqlRow], part: Part) -> Found:
        """``rows``: ids in order, and whether each is meant."""
        copies = (self.copy(message_id) for message_id, meant in rows if meant)
        return Found([copy for copy in copies if copy], part.rest([row[0] for row in rows]))

    def copies_held_for(self, owner: ServerName, part: Part = ALL, *, unclaimed: bool = False) -> Found:
        return self._part("unclaimed" if unclaimed else "held_for", owner, part)

    def copies_held_by(self, holder: ServerName, part: Part = ALL, *, counted: bool | None = None) -> Found:
        query = SQL[{None: "held_by", True: "counted", False: "lost"}[counted]]
        most = -1 if part.most is None else part.most
        rows = [
            row
            for stage in (Stage.QUEUED, Stage.SET_ASIDE)
            for row in self._run(query, (holder, stage, part.after, most)).fetchall()
        ]
        return self._found(sorted(rows, key=lambda row: str(row[0]))[: part.most], part)

    def copies_in_doubt(self, holder: ServerName, part: Part = ALL) -> Found:
        return self._part("in_doubt", holder, part)

    def copies_taken_from(self, former: ServerName, part: Part = ALL) -> Found:
        return self._part("taken_from", former, part)

    def in_transit(self, part: Part) -> tuple[Sequence[MessageId], Part | None]:
        most = -1 if part.most is None else part.most
        kinds = [(Stage.QUEUED, Role.PRIMARY), (Stage.QUEUED, Role.SHADOW), (Stage.ARRIVING, Role.PRIMARY)]
        rows = [
            row
            for kind in kinds
            for row in self._run(SQL["in_transit"], (*kind, part.after, most)).fetchall()
        ]
        ids = sorted(MessageId(row[0]) for row in rows)[: part.most]
        return ids, part.rest(ids)

    def any_unclaimed(self, owner: ServerName) -> bool:
        return bool(self._run(SQL["any_unclaimed"], (owner,)).fetchone()[0])

    def unchecked(self, owner: ServerName, at: datetime) -> bool:
        asked = {"owner": owner, "at": records.micros(at)}
        return bool(self._run(SQL["unchecked"], asked).fetchone()[0])

    def open_questions(self, after: MessageId, most: int) -> Sequence[OpenQuestion]:
        rows = self._run(SQL["open_questions"], (after, most)).fetchall()
        return [OpenQuestion(MessageId(row[0]), records.maybe_moment(row[1]), row[2]) for row in rows]

    def copies_to_check(self, owner: ServerName, now: datetime, most: int) -> Iterable[Copy]:
        return self._copies("to_check", owner, records.micros(now), most)

    def holds_for(self, owner: ServerName) -> bool:
        """Whether this node holds a copy in transit for ``owner``."""
        return bool(self._run(SQL["holds_for"], (owner,)).fetchone()[0])

    def unacknowledged(self, sent: AsSent, since: datetime) -> Sequence[MessageId]:
        asked = (sent.content, sent.envelope, sent.client, records.micros(since))
        # A damaged row is none: then a repeat is a message of its own.
        rows = self._run(SQL["unacknowledged"], asked).fetchall()
        return [MessageId(row[0]) for row in rows if sums.sound(sums.one, row)]

    def queued_for(self, next_hop: NextHop, most: int) -> int:
        rows = self._run(SQL["queued_for"], (next_hop, most)).fetchall()
        if len(rows) == most > len(set(rows)):  # messages with several recipients
            # Few messages have so many recipients that this counts too few of them.
            rows = self._run(SQL["queued_for"], (next_hop, 20 * most)).fetchall()
        return min(most, len(set(rows)))

    def resubmitting(self) -> int:
        return int(self._run(SQL["resubmitting"]).fetchone()[0])

    def resubmittable(
        self, selector: Selector, owner: ServerName | None, place: Place, most: int
    ) -> Selected:
        if selector.network_message_id:
            copy = self.copy(selector.network_message_id)
            return selection.selected(selector, [copy] if copy else [], owner, place)
        asked = parameters(selector, place) | {"owner": owner, "most": most}
        return part(self._run(SQL["resubmittable"], asked).fetchall(), most)

    def apply(self, decision: Decision[T]) -> T:
        """Store writes and events; they and ``then`` are valid once the transaction commits."""
        for write in decision.writes:
            self._write(write)
        for event in decision.events:
            self._track(event)
        if self.listing is not None:
            for copy in self.listing.newcomers(decision.writes):
                self.list_copy(copy, self.listing.at)
        return decision.then

    def list_copy(self, copy: Copy, at: datetime) -> None:
        """Add a row to the snapshot that is being taken."""
        if self.listing is not None:
            self.listing.count += 1
            self._track(Load(at=at, copy=copy, recipients=copy.unsettled, snapshot=self.listing.id))

    def _track(self, event: Tracked) -> None:
        if self.wall_ahead is None:
            self.wall_ahead = self.ahead()
        right = -_MILLISECOND <= self.wall_ahead <= _MILLISECOND
        row = (event if right else replace(event, at=event.at + self.wall_ahead)).columns()
        failpoints.wrote(row["event-id"])
        self.tracked[row["event-id"]] += 1
        if what := counted(event, self.name):
            self.damage[what] += 1
        self._sequence += 1
        self._run(SQL["put_tracking"], (self._sequence, to_json(row).decode()))

    def _write(self, write: Write) -> None:
        match write:
            case SaveCopy():
                self._save(write)
            case DropCopy(copy):
                self.tally.changed(copy, None)
                self._drop(copy.id)
            case SaveDamaged(found):
                self._quarantine(found)
            case DropDamaged(message_id, instead):
                self.tally.forget(self.connection, message_id)
                self._run(SQL["drop_damaged"], (message_id,))
                self._drop(message_id, instead)
            case DiscardEvent() | DropEvent() | AcknowledgeEvents() | DropEvents():
                self._write_event(write)
            case CheckCopies(owner, at, most):
                part = {"at": records.micros(at), "owner": owner, "most": -1 if most is None else most}
                self._run(SQL["check_copies"], part)
                self.forget_recent()
            case AskAbout(ids, since):
                self.connection.executemany(SQL["ask_about"], [(records.micros(since), id_) for id_ in ids])
                self.connection.executemany(SQL["hold_back"], [(id_,) for id_ in ids])
                self.forget_recent()
            case Chore() | ChoreDone():
                self._write_of_chore(write)
            case Outcome(message_id, epoch, delivered, until, refused):
                numbers = records.numbers_text(delivered)
                row = (message_id, epoch, numbers, records.micros(until), int(refused))
                self._run(SQL["put_outcome"], row)
            case Tombstone(message_id, owner, epoch, rank, until):
                self._run(SQL["put_tombstone"], (message_id, epoch, rank, records.micros(until), owner))
            case Member(name):
                self._members[name] = write
                self._run(SQL["put_member"], member_rows.member_row(write))
            case Heard(name, sequence):
                if (known := self.member(name)) and known.lineage:
                    self._write(replace(known, lineage=known.lineage.at(sequence)))
            case Record() | RecordPart() | ForgetRecord() | ForgetTold():
                self._write_record(write)
            case HopShadow() | DropHopShadow() | HopPeer() | Handed() | Unacknowledged() | Acknowledged():
                self._write_of_senders(write)
            case _:
                assert_never(write)

    def _drop(self, message_id: MessageId, instead: Copy | None = None) -> None:
        super()._drop(message_id)
        if instead is None:
            self.hop_shadow_rows.forget(message_id)
            self.hop_rows.drop(message_id)

    def _write_of_senders(
        self, write: HopPeer | Handed | HopShadow | DropHopShadow | Unacknowledged | Acknowledged
    ) -> None:
        """What concerns those who hand mail over to us, or take it from us, beyond the boundary."""
        match write:
            case HopShadow() | DropHopShadow():
                self.hop_shadow_rows.write(write)
            case HopPeer() | Handed():
                self.hop_rows.write(write)
            case Unacknowledged(message_id, sent, at):
                row = (message_id, sent.client, sent.envelope, sent.content, records.micros(at))
                self._run(SQL["put_unacknowledged"], row)
            case Acknowledged(message_id):
                self._run(SQL["drop_unacknowledged"], (message_id,))

    def _write_of_chore(self, write: Chore | ChoreDone) -> None:
        match write:
            case Chore():
                self._run(SQL["put_chore"], member_rows.chore_row(write))
            case ChoreDone(chore):
                self._run(SQL["drop_chore"], (chore.work, chore.member))
        self._read_chores()


SQL = load("queries.sql")
