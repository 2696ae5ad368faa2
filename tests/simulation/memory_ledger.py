"""Ledgers of the simulation: one in memory, and the node's own on SQLite beside it.

Both follow one life: transactions are applied at once, ``commit`` makes them durable as a group, and
``rollback`` (a crash) takes back whatever no commit has covered. The memory ledger always runs: it knows
what is durable and what a group has touched, which the invariants need. On top of it a seed may run
``SqlLedger``, which then takes the decisions while every commit compares the two.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import lru_cache
from operator import attrgetter
from typing import Any, TypeVar

from shadowrelay.core.decisions import (
    ALL,
    Acknowledged,
    AcknowledgeEvents,
    AskAbout,
    CheckCopies,
    Chore,
    ChoreDone,
    ChoreKind,
    Content,
    DamagedRow,
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
    Verdict,
    VerdictKind,
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
    RequestId,
    ServerName,
)
from shadowrelay.core.messages import AsSent, Confirmation, Copy, HolderState, Role, Stage, Status
from shadowrelay.core.ownership import chores
from shadowrelay.core.policy import Policy
from shadowrelay.core.reckoning import Endings, Reckoning
from shadowrelay.core.records import Record, RecordPart
from shadowrelay.core.requests import Place, Request, Selected, Selector
from shadowrelay.core.safety_net import selection
from shadowrelay.core.shared_records import ForgetRecord, ForgetTold, P, R, RecordLedger
from shadowrelay.core.tracking import Tracked
from shadowrelay.database import opening
from shadowrelay.database.ledger import SqlLedger
from shadowrelay.database.queue import forget_expired
from shadowrelay.database.tally import Tally

T = TypeVar("T")
_ABSENT: Any = object()
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
ROTTEN = "the sum of a row differs"
OPEN = {Stage.QUEUED, Stage.ARRIVING}


class Disagreement(AssertionError):
    """The two ledgers, or a decision and the ledger it was taken on, do not say the same."""


def is_held_by(copy: Copy, holder: ServerName, counted: bool | None) -> bool:
    """``counted`` as in ``Ledger.copies_held_by``."""
    states = {one.state for one in copy.holders if one.name == holder}
    if counted is None:
        return bool(states)
    if counted:
        return HolderState.HOLDING in states
    return HolderState.LOST in states


@dataclass(slots=True)
class State:
    """Everything that a transport database holds, as immutable values in dictionaries."""

    database_id: DatabaseId
    copies: dict[MessageId, Copy] = field(default_factory=dict)
    arriving: dict[MessageId, Copy] = field(default_factory=dict)
    contents: dict[MessageId, bytes] = field(default_factory=dict)
    shared: dict[MessageId, MessageId] = field(default_factory=dict)  # whose content a message uses
    rotten: dict[MessageId, Copy] = field(default_factory=dict)  # rows that nobody has read since they rotted
    damaged: dict[MessageId, DamagedRow] = field(default_factory=dict)
    outcomes: dict[MessageId, Outcome] = field(default_factory=dict)
    tombstones: dict[MessageId, Tombstone] = field(default_factory=dict)
    known: dict[ServerName, Member] = field(default_factory=dict)
    events: dict[int, DiscardEvent] = field(default_factory=dict)
    rotten_events: dict[int, DiscardEvent] = field(default_factory=dict)  # of which nobody is told
    last_event: int = 0
    sequence: int = 0
    incarnations: tuple[tuple[Incarnation, int, int], ...] = ()
    alive_at: datetime | None = None
    reckoning: Reckoning | None = None  # as it was saved last
    chores: dict[tuple[ChoreKind, ServerName], Chore] = field(default_factory=dict)
    records: dict[tuple[type[Record], str], Record] = field(default_factory=dict)
    parts: dict[tuple[type[RecordPart], tuple[RequestId, ServerName, str]], RecordPart] = field(
        default_factory=dict
    )
    hop_peers: dict[ServerName, HopPeer] = field(default_factory=dict)
    hop_shadows: dict[tuple[MessageId, ServerName], HopShadow] = field(default_factory=dict)
    handed: dict[MessageId, Handed] = field(default_factory=dict)
    unacknowledged: dict[MessageId, Unacknowledged] = field(default_factory=dict)

    @property
    def requests(self) -> dict[RequestId, Request]:
        return {one.id: one for one in self.records.values() if isinstance(one, Request)}

    def keeper(self, message_id: MessageId) -> MessageId:
        """The message that has the octets."""
        return message_id if message_id in self.contents else self.shared.get(message_id, message_id)

    def content(self, message_id: MessageId) -> bytes | None:
        return self.contents.get(self.keeper(message_id))

    def users(self, keeper: MessageId) -> list[MessageId]:
        """The messages that use what ``keeper`` has, in order, without ``keeper``."""
        return sorted(user for user, of in self.shared.items() if of == keeper and user not in self.contents)

    def snapshot(self) -> State:
        return replace(
            self,
            shared=dict(self.shared),
            copies=dict(self.copies),
            arriving=dict(self.arriving),
            contents=dict(self.contents),
            rotten=dict(self.rotten),
            damaged=dict(self.damaged),
            outcomes=dict(self.outcomes),
            tombstones=dict(self.tombstones),
            known=dict(self.known),
            events=dict(self.events),
            rotten_events=dict(self.rotten_events),
            chores=dict(self.chores),
            records=dict(self.records),
            parts=dict(self.parts),
            hop_peers=dict(self.hop_peers),
            hop_shadows=dict(self.hop_shadows),
            handed=dict(self.handed),
            unacknowledged=dict(self.unacknowledged),
        )


class MemoryLedger(RecordLedger):
    """The Transaction protocol on dictionaries, with what the current group would undo."""

    def __init__(self, name: ServerName, state: State, hosts: Mapping[ServerName, str] | None = None) -> None:
        self.name = name
        self.state = state
        self.hosts = hosts or {}
        self.tracked: list[Tracked] = []  # of the group that is not yet durable
        self._undo: dict[tuple[str, Any], Any] = {}
        self._counters = (state.last_event, state.sequence)
        self._unsound: dict[int, UnsoundEvent] = {}
        self._lineage: Lineage | None = None
        self._back_at: datetime | None = None  # the opening ended in the group that is not yet durable
        self.at_once = 1000
        self.active: set[tuple[MessageId, NextHop]] = set()  # attempts of the process, which shares it

    # What decisions read.

    @property
    def lineage(self) -> Lineage:
        if self._lineage is None or self._lineage.sequence != self.state.sequence:
            beginnings = tuple(Beginning(token, began) for token, began, _ in self.state.incarnations)
            self._lineage = Lineage(self.state.database_id, beginnings, self.state.sequence)
        return self._lineage

    def copy(self, message_id: MessageId) -> Copy | None:
        return self.state.copies.get(message_id)

    def arrival(self, message_id: MessageId) -> Copy | None:
        return self.state.arriving.get(message_id)

    def damaged(self, message_id: MessageId) -> DamagedRow | None:
        rows, rotten = self.state.damaged.get(message_id), self.state.rotten.get(message_id)
        if rows is None and rotten is None:
            return None
        rows = rows or DamagedRow(message_id, EPOCH, ROTTEN)
        settled = (_sound(rotten) if rotten else {}) | dict(rows.settled)
        return replace(rows, settled=tuple(sorted(settled.items())))

    @property
    def suspects(self) -> dict[MessageId, str]:
        """Rows that cannot be believed, and of which nothing is written down."""
        return dict.fromkeys(self.state.rotten.keys() - self.state.damaged.keys(), ROTTEN)

    def outcome(self, message_id: MessageId) -> Outcome | None:
        return self.state.outcomes.get(message_id)

    def unacknowledged_orders(self, message_id: MessageId) -> Sequence[DatabaseId]:
        there = (*self.state.events.values(), *self.state.rotten_events.values())
        waiting = (event for event in there if event.verdict.message_id == message_id)
        return sorted({event.addressee for event in waiting if _is_order(event.verdict)})

    def sent_to(self, message_id: MessageId) -> Collection[NextHop]:
        return [hop for one, hop in self.active if one == message_id]

    def tombstone(self, message_id: MessageId) -> Tombstone | None:
        return self.state.tombstones.get(message_id)

    def knows(self, message_id: MessageId) -> bool:
        state = self.state
        found = (state.copies, state.arriving, state.outcomes, state.tombstones, state.rotten, state.damaged)
        return any(message_id in kept for kept in found)

    def member(self, name: ServerName) -> Member | None:
        return self.state.known.get(name)

    def members(self) -> Iterable[Member]:
        return [self.state.known[name] for name in sorted(self.state.known)]

    def hop_peer(self, name: ServerName) -> HopPeer | None:
        return self.state.hop_peers.get(name)

    def handed(self, message_id: MessageId) -> Handed | None:
        return self.state.handed.get(message_id)

    def handed_as(self, database_id: DatabaseId, their_id: MessageId) -> Sequence[Handed]:
        found = [self.state.handed[key] for key in sorted(self.state.handed)]
        return [one for one in found if (one.database_id, one.their_id) == (database_id, their_id)]

    def _sorted(self, chosen: Iterable[Copy], part: Part = ALL) -> list[Copy]:
        return sorted((c for c in chosen if c.id > part.after), key=lambda copy: copy.id)[: part.most]

    @property
    def chores(self) -> Sequence[Chore]:
        return sorted(self.state.chores.values(), key=lambda chore: (chore.at, chore.work, chore.member))

    def _part(self, part: Part, queue: Iterable[Copy], meant: Callable[[Copy], bool]) -> Found:
        looked_at = self._sorted(queue, part)
        return Found([copy for copy in looked_at if meant(copy)], part.rest([copy.id for copy in looked_at]))

    def copies_held_for(self, owner: ServerName, part: Part = ALL, *, unclaimed: bool = False) -> Found:
        held = (copy for copy in self.state.copies.values() if copy.held)
        return self._part(
            part, held, lambda c: c.owner == owner and not (unclaimed and c.pending is not None)
        )

    def copies_held_by(self, holder: ServerName, part: Part = ALL, *, counted: bool | None = None) -> Found:
        ours = (copy for copy in self.state.copies.values() if copy.unfinished)
        return self._part(part, ours, lambda c: is_held_by(c, holder, counted))

    def copies_in_doubt(self, holder: ServerName, part: Part = ALL) -> Found:
        doubted = (
            c for c in self.state.copies.values() if c.owned and c.confirmation is Confirmation.IN_DOUBT
        )
        return self._part(part, doubted, lambda c: is_held_by(c, holder, None))

    def copies_taken_from(self, former: ServerName, part: Part = ALL) -> Found:
        taken = (c for c in self.state.copies.values() if c.former_owner == former)
        return self._part(part, taken, lambda c: c.owned)

    def in_transit(self, part: Part) -> tuple[Sequence[MessageId], Part | None]:
        queued = (copy for copy in self.state.copies.values() if copy.queued)
        ids = [copy.id for copy in self._sorted((*queued, *self.state.arriving.values()), part)]
        return ids, part.rest(ids)

    def any_unclaimed(self, owner: ServerName) -> bool:
        return bool(MemoryLedger.copies_held_for(self, owner, unclaimed=True).copies)

    def unchecked(self, owner: ServerName, at: datetime) -> bool:
        return bool(self._unchecked(owner, at))

    def _unchecked(self, owner: ServerName, at: datetime, most: int | None = None) -> list[Copy]:
        """In the order in which SQL finds them: those that have no time, then those that have a later one."""
        held = MemoryLedger.copies_held_for(self, owner).copies
        none = sorted((c for c in held if c.check_at is None), key=lambda c: (_pending(c), c.id))
        later = [c for c in held if c.check_at is not None and c.check_at > at]
        later.sort(key=lambda c: (c.check_at, _pending(c), c.id))
        return [*none[:most], *later[:most]]

    def open_questions(self, after: MessageId, most: int) -> Sequence[OpenQuestion]:
        asked = self._sorted(
            c
            for c in (*self.state.copies.values(), *self.state.arriving.values())
            if c.confirmation is not Confirmation.NONE and c.stage in OPEN and c.id > after
        )
        return [OpenQuestion(c.id, c.confirm_since, c.owner if c.pending else None) for c in asked[:most]]

    def copies_to_check(self, owner: ServerName, now: datetime, most: int) -> Iterable[Copy]:
        due = [
            (c.check_at, _pending(c), c.id, c)
            for c in self.state.copies.values()
            if c.check_at is not None and c.owner == owner and c.check_at <= now and c.held
        ]
        return [entry[3] for entry in sorted(due, key=lambda entry: entry[:3])[:most]]

    def records(self, kind: type[R]) -> Sequence[R]:
        found = self.state.records
        return [found[key] for key in sorted(found, key=lambda key: key[1]) if key[0] is kind]  # type: ignore[misc]

    def record(self, kind: type[R], key: str) -> R | None:
        return self.state.records.get((kind, key))  # type: ignore[return-value]

    def parts(self, kind: type[P], record: RequestId) -> Sequence[P]:
        found = [(key[1], part) for key, part in self.state.parts.items() if key[0] is kind]
        return [part for key, part in sorted(found, key=lambda one: one[0]) if key[0] == record]  # type: ignore[misc]

    def hop_shadow(self, message_id: MessageId, hop: ServerName) -> HopShadow | None:
        return self.state.hop_shadows.get((message_id, hop))

    def hop_shadows_of(self, message_id: MessageId) -> Sequence[HopShadow]:
        found = self.state.hop_shadows
        return [found[key] for key in sorted(found) if key[0] == message_id]

    def hop_shadows_unsound(self, message_id: MessageId) -> Mapping[ServerName, datetime]:
        return {}  # the simulation damages no such row

    def hop_shadows(self, hop: ServerName, part: Part = ALL) -> tuple[Sequence[HopShadow], Part | None]:
        found = self.state.hop_shadows
        keys = [key for key in sorted(found) if key[1] == hop and key[0] > part.after][: part.most]
        return [found[key] for key in keys], part.rest([key[0] for key in keys])

    def unacknowledged(self, sent: AsSent, since: datetime) -> Sequence[MessageId]:
        rows = self.state.unacknowledged.values()
        found = sorted(
            (row.received_at, row.message_id) for row in rows if row.sent == sent and row.received_at > since
        )
        return [message_id for _, message_id in found]

    def queued_for(self, next_hop: NextHop, most: int) -> int:
        waiting = (copy for copy in self.state.copies.values() if copy.owned)
        return min(most, sum(any(one.next_hop == next_hop for one in copy.unsettled) for copy in waiting))

    def resubmitting(self) -> int:
        return sum(copy.owned and copy.request is not None for copy in self.state.copies.values())

    def resubmittable(
        self, selector: Selector, owner: ServerName | None, place: Place, most: int
    ) -> Selected:
        copies = list(self.state.copies.values())
        found = selection.selected(selector, copies, owner, place)
        if selector.network_message_id:
            return found
        looked_at = sorted(
            (one.settled_at, copy.id)
            for copy in (*copies, *self.state.rotten.values())
            for one in copy.recipients
            if one.settled_at is not None and selector.covers(one.settled_at)
            if place.at is None or (one.settled_at, copy.id) > place
        )[:most]
        rest = None if len(looked_at) < most else Place(*looked_at[-1])
        return Selected([one for one in found.messages if one in set(looked_at)], rest)

    def events_for(self, addressee: DatabaseId, most: int) -> Iterable[DiscardEvent]:
        for number, rotten in self.state.rotten_events.items():
            if rotten.addressee == addressee:
                self._unsound[number] = UnsoundEvent(number, addressee, rotten.verdict.message_id)
        return [event for event in self.state.events.values() if event.addressee == addressee][:most]

    def take_unsound_events(self) -> Sequence[UnsoundEvent]:
        found = tuple(self._unsound.values())
        self._unsound.clear()
        return found

    # What decisions write.

    def apply(self, decision: Decision[T]) -> T:
        for write in decision.writes:
            self._write(write)
        if decision.events:
            self.state.sequence += len(decision.events)
            self.tracked += decision.events
        return decision.then

    def _put(self, table: str, key: Any, value: Any) -> None:
        rows = getattr(self.state, table)
        self._undo.setdefault((table, key), rows.get(key, _ABSENT))
        if value is _ABSENT:
            rows.pop(key, None)
        else:
            rows[key] = value

    def _write(self, write: Write) -> None:
        match write:
            case SaveCopy(before, after, content):
                arrived = before is not None and before.stage is Stage.ARRIVING
                stored = (self.state.arriving if arrived else self.state.copies).get(after.id)
                if arrived:
                    self._put("arriving", after.id, _ABSENT)
                if stored != (before and _ordered(before)):
                    raise Disagreement(f"{self.name}: a decision on {after.id} was taken on an old copy")
                mended = before is not None and before.damage is not None and after.damage is None
                other = before is not None and before.digests != after.digests
                if (content is None and before is None) or (
                    content is not None and not (before is None or mended or other)
                ):
                    raise Disagreement(f"{self.name}: content of {after.id} is stored again without need")
                table = "arriving" if after.stage is Stage.ARRIVING else "copies"
                self._put(table, after.id, _ordered(after))
                if content is not None and before is None:
                    self._store(after.id, content)
                elif content is not None:
                    self._renew(after, content)
            case DropCopy(copy):
                self._put("arriving" if copy.stage is Stage.ARRIVING else "copies", copy.id, _ABSENT)
                self._put("handed", copy.id, _ABSENT)
                self._leave(copy.id)
                self._forget_hops(copy.id)
            case SaveDamaged(rows):
                self._put("damaged", rows.message_id, rows)
            case DropDamaged(message_id, instead):
                for table in ("damaged", "rotten"):
                    self._put(table, message_id, _ABSENT)
                self._leave(message_id)
                if instead is None:
                    self._put("handed", message_id, _ABSENT)
                    self._forget_hops(message_id)
            case CheckCopies(owner, at, most):
                for copy in self._unchecked(owner, at, most):
                    self._put("copies", copy.id, replace(copy, check_at=at))
            case AskAbout(ids, since):
                for id_ in ids:
                    table = "arriving" if id_ in self.state.arriving else "copies"
                    copy = getattr(self.state, table)[id_]
                    asked = replace(copy, confirmation=Confirmation.ASK, confirm_since=since)
                    self._put(table, id_, asked)
            case Chore(work, member):
                self._put("chores", (work, member), write)
            case ChoreDone(chore):
                self._put("chores", (chore.work, chore.member), _ABSENT)
            case DiscardEvent():
                self.state.last_event += 1
                number = self.state.last_event
                self._put("events", number, replace(write, number=number))
            case AcknowledgeEvents(addressee, upto):
                last = self._last_event_of(upto.incarnation)
                if last is not None:
                    self._drop_events(addressee, min(last, upto.sequence))
            case DropEvent(number):
                self._put("events", number, _ABSENT)
                self._put("rotten_events", number, _ABSENT)
            case DropEvents(addressee):
                self._drop_events(addressee, None)
            case Outcome():
                self._put("outcomes", write.message_id, write)
            case Tombstone():
                self._put("tombstones", write.message_id, write)
            case Member():
                self._put("known", write.name, write)
            case Record():
                self._put("records", (type(write), write.key), write)
            case RecordPart():
                self._put("parts", (type(write), write.key), write)
            case ForgetRecord(kind, id_):
                for key in [key for key in self.state.parts if key[0].kind is kind and key[1][0] == id_]:
                    self._put("parts", key, _ABSENT)
                self._put("records", (kind, id_), _ABSENT)
            case ForgetTold(member):
                for key in [key for key in self.state.parts if key[1][1] == member]:
                    self._put("parts", key, _ABSENT)
            case HopPeer():
                self._put("hop_peers", write.name, write)
            case HopShadow(message_id, hop):
                self._put("hop_shadows", (message_id, hop), write)
            case DropHopShadow(message_id, hop):
                self._put("hop_shadows", (message_id, hop), _ABSENT)
            case Handed():
                self._put("handed", write.message_id, write)
            case Unacknowledged():
                self._put("unacknowledged", write.message_id, write)
            case Acknowledged(message_id):
                self._put("unacknowledged", message_id, _ABSENT)
            case Heard(name, sequence):
                known = self.state.known[name]
                assert known.lineage is not None
                self._put("known", name, replace(known, lineage=known.lineage.at(sequence)))

    def _forget_hops(self, message_id: MessageId) -> None:
        for row in MemoryLedger.hop_shadows_of(self, message_id):
            self._put("hop_shadows", (message_id, row.hop), _ABSENT)

    def _store(self, message_id: MessageId, content: Content) -> None:
        if content.of is None:
            self._put("contents", message_id, content.data or b"")
        else:
            self._put("shared", message_id, self.state.keeper(content.of))

    def _leave(self, message_id: MessageId) -> None:
        """As ``sharing.leave`` does it."""
        users, octets = self.state.users(message_id), self.state.contents.get(message_id, _ABSENT)
        self._put("contents", message_id, _ABSENT)
        self._put("shared", message_id, _ABSENT)
        if users:
            self._put("shared", users[0], _ABSENT)
            self._put("contents", users[0], octets)
        for user in users[1:]:
            self._put("shared", user, users[0])

    def _renew(self, after: Copy, content: Content) -> None:
        """As ``sharing.renew`` does it."""
        state = self.state
        former = state.keeper(after.id)
        if content.of is not None:
            if state.keeper(content.of) != former:
                self._leave(after.id)
                self._store(after.id, content)
            return
        wanted = after.digests and after.digests.content
        alike = [
            user
            for user in (former, *state.users(former))
            if user != after.id
            for kept in (state.copies, state.arriving, state.rotten)
            if user in kept and (digests := kept[user].digests) and digests.content == wanted
        ]
        for user in (after.id, *alike):
            self._leave(user)
        self._store(after.id, content)
        for user in alike:
            self._put("shared", user, after.id)

    def _drop_events(self, addressee: DatabaseId, upto: int | None) -> None:
        for table in ("events", "rotten_events"):
            for number, event in list(getattr(self.state, table).items()):
                if event.addressee == addressee and (upto is None or number <= upto):
                    self._put(table, number, _ABSENT)

    def _last_event_of(self, incarnation: Incarnation) -> int | None:
        for index, (token, _, _) in enumerate(self.state.incarnations):
            if token == incarnation:
                following = self.state.incarnations[index + 1 :]
                return following[0][2] - 1 if following else self.state.last_event
        return None

    # What a disk does by itself, between two groups.

    def rot_row(self, message_id: MessageId) -> None:
        """A bit of the message's row is another one. Nobody knows before it is read."""
        assert not self.dirty
        self.state.rotten[message_id] = self.state.copies.pop(message_id)

    def rot_event(self, number: int) -> None:
        """A bit of a waiting event is another one. Nobody knows before it is to be told."""
        assert not self.dirty
        self.state.rotten_events[number] = self.state.events.pop(number)

    def put_back(self, message_id: MessageId, former: Copy | None, content: bytes | None) -> None:
        """A page is the one of before: what it says of the message is sound, and out of date."""
        assert not self.dirty
        self.state.copies.pop(message_id, None)
        self._leave(message_id)
        self._undo.clear()
        if former is not None and content is not None:
            self.state.copies[message_id] = former
            self.state.contents[message_id] = content

    # The life of a group.

    @property
    def dirty(self) -> bool:
        return bool(self._undo or self.tracked)

    def touched(self) -> dict[MessageId, Copy | None]:
        """Messages that the open group changed, with what is durable of them."""
        return {
            key: None if old is _ABSENT else old
            for (table, key), old in self._undo.items()
            if table == "copies"
        }

    def durably_arriving(self, message_id: MessageId) -> bool:
        """Is what a sender may be answered for durable, though it is no message yet?"""
        return message_id in self.durable_arrivals()

    def durable_arrivals(self) -> dict[MessageId, Copy]:
        """What is durable of what arrives, or arrived when a process ended."""
        found = dict(self.state.arriving)
        for (table, key), old in self._undo.items():
            if table == "arriving":
                found.pop(key, None)
                if old is not _ABSENT:
                    found[key] = old
        return found

    def durable_copy(self, message_id: MessageId) -> Copy | None:
        old = self._undo.get(("copies", message_id), _ABSENT) if self._undo else _ABSENT
        if old is _ABSENT and ("copies", message_id) not in self._undo:
            return self.state.copies.get(message_id)
        return None if old is _ABSENT else old

    def commit(self) -> tuple[Tracked, ...]:
        told = tuple(self.tracked)
        self.state.alive_at, self._back_at = self._back_at or self.state.alive_at, None
        self._undo.clear()
        self.tracked.clear()
        self._counters = (self.state.last_event, self.state.sequence)
        return told

    def nothing_to_keep(self) -> None:
        """A transaction ended that changed nothing, and no group is open."""

    def rollback(self) -> None:
        for (table, key), old in self._undo.items():
            rows = getattr(self.state, table)
            if old is _ABSENT:
                rows.pop(key, None)
            else:
                rows[key] = old
        if any(table == "events" for table, _ in self._undo):
            self.state.events = dict(sorted(self.state.events.items()))
        self.state.last_event, self.state.sequence = self._counters
        self._back_at = None
        self._undo.clear()
        self.tracked.clear()

    def open(self, token: Incarnation, now: datetime) -> datetime | None:
        """Begin an incarnation as ``opening.begin_incarnation`` does; returns when the node last ran."""
        state = self.state
        known = [member.knows_ours for member in state.known.values() if not member.retired]
        tokens = [entry[0] for entry in state.incarnations]
        if known and all(item in tokens for item in known):
            oldest = min(tokens.index(item) for item in known if item)
            state.incarnations = state.incarnations[oldest:]
        state.incarnations = (*state.incarnations, (token, state.sequence, state.last_event + 1))
        self._lineage = None
        away_since = state.alive_at
        plain = MemoryLedger(self.name, state)
        plain.at_once = self.at_once
        chores.begin(plain, Chore(ChoreKind.OPENED, self.name, now))
        plain.commit()
        if not plain.unfinished():
            state.alive_at = now
        return away_since

    def unfinished(self) -> Chore | None:
        """What is left of the opening."""
        return next((chore for chore in self.chores if chore.work is ChoreKind.OPENED), None)

    def carry_on(self) -> bool:
        """As ``opening.carry_on`` does it."""
        opened = self.unfinished()
        more = chores.carry_on(self)
        if opened and not self.unfinished():
            self._back_at = opened.at
        return more

    def expire(self, policy: Policy, ends: Endings) -> None:
        """What a stage forgets by age: events nobody fetched, outcomes and tombstones."""
        for event in list(self.state.events.values()):
            old = event.created_at <= ends.before(policy.shadow_message_auto_discard_interval)
            told = event.verdict
            if old and told.kind is not VerdictKind.TAKEN and not _is_order(told):
                self._put("events", event.number, _ABSENT)
        for table in ("outcomes", "tombstones"):
            for row in list(getattr(self.state, table).values()):
                if row.keep_until <= ends.planned_by:
                    self._put(table, row.message_id, _ABSENT)

    def settled_copies(self) -> list[Copy]:
        return [c for c in self.state.copies.values() if c.stage is Stage.SAFETY_NET or c.role is Role.SHADOW]

    def snapshot(self) -> Any:
        return self.state.snapshot()

    def restore(self, snapshot: Any) -> None:
        self.state = snapshot.snapshot()
        self._undo.clear()
        self.tracked.clear()
        self._counters = (self.state.last_event, self.state.sequence)
        self._lineage = None


def _is_order(told: Verdict) -> bool:
    """Does it tell of what an operator ordered? Such an event does not expire."""
    return told.kind in (VerdictKind.SUSPENDED, VerdictKind.RESUMED) or told.argument == "removed"


def _sound(rotten: Copy) -> dict[int, Status]:
    """The rot is in the row of the message: those of its recipients can be believed."""
    return {one.number: one.status for one in rotten.recipients if one.settled}


def _ordered(copy: Copy) -> Copy:
    """Holders in the order in which SQL returns them."""
    if len(copy.holders) < 2:
        return copy
    in_order = sorted(copy.holders, key=lambda holder: (holder.rank, holder.name, holder.database_id))
    return replace(copy, holders=tuple(in_order))


@lru_cache(maxsize=1)
def _empty_database() -> bytes:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    opening.migrate(connection)
    return connection.serialize()


def _connect(image: bytes) -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:", isolation_level=None, cached_statements=256)
    connection.deserialize(image)
    connection.execute("PRAGMA temp_store=memory")
    return connection


class CheckedLedger(MemoryLedger):
    """SqlLedger decides; the dictionaries follow every write, and each commit compares what it touched."""

    def __init__(self, name: ServerName, state: State, hosts: Mapping[ServerName, str] | None = None) -> None:
        super().__init__(name, state, hosts)
        self.connection = _connect(_empty_database())
        self.sql: SqlLedger | None = None

    def _begin(self) -> SqlLedger:
        assert self.sql is not None
        if not self.connection.in_transaction:
            self.connection.execute("BEGIN IMMEDIATE")
        return self.sql

    def carry_on(self) -> bool:
        assert self.sql is not None
        opened = self.unfinished()
        more = super().carry_on()
        if opened:
            opening.count(self.sql, opened.at)
        return more

    def apply(self, decision: Decision[T]) -> T:
        if decision.writes or decision.events:
            self._begin().apply(decision)
        return super().apply(decision)

    def commit(self) -> tuple[Tracked, ...]:
        for message_id in self.touched():
            if self.copy(message_id) != self.state.copies.get(message_id):
                raise Disagreement(f"{self.name}: SQLite and memory differ on {message_id}")
        if self.lineage.sequence != self.state.sequence:
            raise Disagreement(f"{self.name}: SQLite and memory differ in the tracking sequence")
        if self.connection.in_transaction:
            self.connection.execute("DELETE FROM outbox")  # the tracking log holds the rows at once
            self.connection.execute("COMMIT")
        if self.sql:
            self.sql.tally.keep()
        return super().commit()

    def nothing_to_keep(self) -> None:
        if self.connection.in_transaction:
            self.connection.execute("COMMIT")

    def rollback(self) -> None:
        if self.connection.in_transaction:
            self.connection.execute("ROLLBACK")
        if self.sql:
            self.sql.refresh()
            self.sql.tally.undo(0)
        super().rollback()

    def open(self, token: Incarnation, now: datetime) -> datetime | None:
        self.sql, found = opening.begin_incarnation(
            self.connection, self.name, token, self.state.database_id, now, at_once=self.at_once
        )
        self.sql.hosts = self.hosts
        away_since = super().open(token, now)
        if found.away_since != away_since:
            raise Disagreement(f"{self.name}: {found.away_since} is not {away_since}")
        self.compare()
        return away_since

    def rot_row(self, message_id: MessageId) -> None:
        super().rot_row(message_id)
        self.connection.execute(
            "UPDATE message SET received_at = received_at + 4096 WHERE id = ?", (message_id,)
        )
        assert self.sql is not None
        self.sql.forget_recent()

    def rot_event(self, number: int) -> None:
        super().rot_event(number)
        # It names another recipient, or one where it meant all.
        self.connection.execute(
            "UPDATE discard_event SET recipients = iif(recipients = '2', '1', '2') WHERE number = ?",
            (number,),
        )

    def put_back(self, message_id: MessageId, former: Copy | None, content: bytes | None) -> None:
        assert self.sql is not None
        if now := self.sql.read_again(message_id):
            self.sql.apply(Decision(None, (DropCopy(now),)))
        if former is not None:
            self.sql.apply(Decision(None, (SaveCopy(None, former, Content(data=content)),)))
        self.sql.forget_recent()
        super().put_back(message_id, former, content)

    def compare(self) -> None:
        """Everything there is to compare, after an opening and at the end."""
        assert self.sql is not None
        state = self.state
        dbids = {event.addressee for event in state.events.values()}
        pairs: list[tuple[Any, Any]] = [
            (self.sql.lineage, super().lineage),
            (list(self.sql.members()), list(super().members())),
            *(
                (list(self.sql.records(kind)), list(super(CheckedLedger, self).records(kind)))
                for kind in {kind for kind, _ in state.records}
            ),
            *(
                (list(self.sql.parts(kind, key[0])), list(super(CheckedLedger, self).parts(kind, key[0])))
                for kind, key in state.parts
            ),
            ([self.sql.copy(key) for key in state.copies], list(state.copies.values())),
            ([self.sql.arrival(key) for key in state.arriving], list(state.arriving.values())),
            (
                [self.sql.damaged(key) for key in state.damaged],
                [super(CheckedLedger, self).damaged(key) for key in state.damaged],
            ),
            (
                [self.sql.hop_shadow(*key) for key in state.hop_shadows],
                list(state.hop_shadows.values()),
            ),
            ([self.sql.outcome(key) for key in state.outcomes], list(state.outcomes.values())),
            ([self.sql.tombstone(key) for key in state.tombstones], list(state.tombstones.values())),
            *(
                (list(self.sql.events_for(d, 999)), list(super(CheckedLedger, self).events_for(d, 999)))
                for d in dbids
            ),
        ]
        if self.sql.tally.place is None:
            fresh = Tally()
            fresh.count(self.connection, None)
            pairs.append((self.sql.tally.all(), fresh.all()))
        count = self.connection.execute("SELECT COUNT(*) FROM message").fetchone()[0]
        pairs.append((count, len(state.copies) + len(state.arriving) + len(state.rotten)))
        for mine, other in pairs:
            if mine != other:
                raise Disagreement(f"{self.name}: SQLite says {mine}, memory {other}")

    def compare_contents(self) -> None:
        """Who has which octets, and who uses those of whom: no decision reads that."""
        run = self.connection.execute
        kept = dict(run("SELECT message_id, data FROM content").fetchall())
        shared = dict(run("SELECT message_id, content_of FROM shared_content").fetchall())
        if (kept, shared) != (self.state.contents, self.state.shared):
            raise Disagreement(f"{self.name}: SQLite says {kept} {shared}, memory {self.state}")

    def expire(self, policy: Policy, ends: Endings) -> None:
        forget_expired(self._begin(), ends.before(policy.shadow_message_auto_discard_interval), ends)
        super().expire(policy, ends)

    def snapshot(self) -> Any:
        assert not self.connection.in_transaction
        return self.connection.serialize(), self.state.snapshot()

    def restore(self, snapshot: Any) -> None:
        image, state = snapshot
        self.connection.close()
        self.connection = _connect(image)
        self.sql = None
        super().restore(state)


# What decisions read, SQLite answers.
_READ = """unacknowledged_orders
copy arrival damaged outcome tombstone knows member members hop_peer handed handed_as
copies_held_for copies_held_by
copies_in_doubt copies_taken_from in_transit any_unclaimed unchecked open_questions copies_to_check
records record parts
resubmitting resubmittable events_for take_unsound_events
hop_shadow hop_shadows_of hop_shadows_unsound hop_shadows"""


def _pending(copy: Copy) -> str:
    """As SQL sorts it."""
    return copy.pending.value if copy.pending else ""


def _asked(name: str) -> Callable[..., Any]:
    return lambda self, *which, **more: getattr(self.sql, name)(*which, **more)


for _name in _READ.split():
    setattr(CheckedLedger, _name, _asked(_name))
for _name in ("lineage", "suspects", "chores"):
    setattr(CheckedLedger, _name, property(attrgetter(f"sql.{_name}")))
