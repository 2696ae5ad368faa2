"""A small ledger for decisions: what a test puts in, and what is applied to it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from shadowrelay.core.decisions import (
    ALL,
    AcknowledgeEvents,
    AskAbout,
    CheckCopies,
    Chore,
    ChoreDone,
    ChoreKind,
    DamagedRow,
    Decision,
    DiscardEvent,
    DropCopy,
    DropDamaged,
    DropEvents,
    Found,
    Heard,
    Member,
    OpenQuestion,
    Outcome,
    Part,
    SaveCopy,
    SaveDamaged,
    Tombstone,
)
from shadowrelay.core.digests import of_content, of_envelope
from shadowrelay.core.identifiers import (
    Beginning,
    DatabaseId,
    Incarnation,
    Lineage,
    MessageId,
    NextHop,
    ServerName,
)
from shadowrelay.core.messages import (
    Confirmation,
    Copy,
    Digests,
    Envelope,
    HolderState,
    Recipient,
    Role,
    Stage,
)

NOW = datetime(2030, 1, 1, tzinfo=UTC)
A, B, C = ServerName("a"), ServerName("b"), ServerName("c")
DB = {A: DatabaseId("db-a"), B: DatabaseId("db-b"), C: DatabaseId("db-c")}
RUN = {A: Incarnation("a" * 16), B: Incarnation("b" * 16), C: Incarnation("c" * 16)}
M = MessageId("01900000-0000-7000-8000-000000000001")


def lineage(name: ServerName, sequence: int = 10) -> Lineage:
    return Lineage(DB[name], (Beginning(RUN[name], 0),), sequence)


@dataclass
class Books:
    """The Transaction protocol, as plainly as possible; ``events`` and ``told`` collect what was written."""

    name: ServerName
    lineage: Lineage
    copies: dict[MessageId, Copy] = field(default_factory=dict)
    outcomes: dict[MessageId, Outcome] = field(default_factory=dict)
    graves: dict[MessageId, Tombstone] = field(default_factory=dict)
    known: dict[ServerName, Member] = field(default_factory=dict)
    told: list[DiscardEvent] = field(default_factory=list)
    events: list[Any] = field(default_factory=list)
    forgotten: list[Any] = field(default_factory=list)
    rows: dict[MessageId, DamagedRow] = field(default_factory=dict)
    hosts: dict[ServerName, str] = field(default_factory=dict)
    left: dict[tuple[ChoreKind, ServerName], Chore] = field(default_factory=dict)
    at_once: int = 1000

    @property
    def chores(self) -> Sequence[Chore]:
        return sorted(self.left.values(), key=lambda chore: (chore.at, chore.work, chore.member))

    def copy(self, message_id: MessageId) -> Copy | None:
        found = self.copies.get(message_id)
        return None if found and found.stage is Stage.ARRIVING else found

    def arrival(self, message_id: MessageId) -> Copy | None:
        found = self.copies.get(message_id)
        return found if found and found.stage is Stage.ARRIVING else None

    def damaged(self, message_id: MessageId) -> DamagedRow | None:
        return self.rows.get(message_id)

    def outcome(self, message_id: MessageId) -> Outcome | None:
        return self.outcomes.get(message_id)

    def tombstone(self, message_id: MessageId) -> Tombstone | None:
        return self.graves.get(message_id)

    def knows(self, message_id: MessageId) -> bool:
        return any(message_id in kept for kept in (self.copies, self.outcomes, self.graves, self.rows))

    def member(self, name: ServerName) -> Member | None:
        return self.known.get(name)

    def members(self) -> Iterable[Member]:
        return self.known.values()

    def _part(self, part: Part, queue: Callable[[Copy], bool], meant: Callable[[Copy], bool]) -> Found:
        behind = sorted(
            (c for c in self.copies.values() if queue(c) and c.id > part.after), key=lambda c: c.id
        )
        looked_at = behind[: part.most]
        return Found([copy for copy in looked_at if meant(copy)], part.rest([copy.id for copy in looked_at]))

    def copies_held_for(self, owner: ServerName, part: Part = ALL, *, unclaimed: bool = False) -> Found:
        return self._part(
            part, lambda c: c.held, lambda c: c.owner == owner and not (unclaimed and c.pending is not None)
        )

    def copies_held_by(self, holder: ServerName, part: Part = ALL, *, counted: bool | None = None) -> Found:
        return self._part(part, lambda c: c.owned, lambda c: is_held_by(c, holder, counted))

    def copies_in_doubt(self, holder: ServerName, part: Part = ALL) -> Found:
        return self._part(
            part,
            lambda c: c.owned and c.confirmation is Confirmation.IN_DOUBT,
            lambda c: is_held_by(c, holder, None),
        )

    def copies_taken_from(self, former: ServerName, part: Part = ALL) -> Found:
        return self._part(part, lambda c: c.former_owner == former, lambda c: c.owned)

    def in_transit(self, part: Part) -> tuple[Sequence[MessageId], Part | None]:
        transit = {Stage.QUEUED, Stage.ARRIVING}
        ids = sorted(c.id for c in self.copies.values() if c.stage in transit and c.id > part.after)[
            : part.most
        ]
        return ids, part.rest(ids)

    def any_unclaimed(self, owner: ServerName) -> bool:
        return bool(self.copies_held_for(owner, unclaimed=True).copies)

    def _unchecked(self, owner: ServerName, at: datetime) -> list[Copy]:
        held = self.copies_held_for(owner).copies
        return [copy for copy in held if copy.check_at is None or copy.check_at > at]

    def unchecked(self, owner: ServerName, at: datetime) -> bool:
        return bool(self._unchecked(owner, at))

    def open_questions(self, after: MessageId, most: int) -> Sequence[OpenQuestion]:
        waiting = [
            copy
            for copy in self.copies.values()
            if copy.confirmation is not Confirmation.NONE and copy.stage in {Stage.QUEUED, Stage.ARRIVING}
        ]
        behind = sorted((c for c in waiting if c.id > after), key=lambda copy: copy.id)
        return [OpenQuestion(c.id, c.confirm_since, c.owner if c.pending else None) for c in behind[:most]]

    def copies_to_check(self, owner: ServerName, now: datetime, most: int) -> Iterable[Copy]:
        held = self.copies_held_for(owner).copies
        return [c for c in held if c.check_at is not None and c.check_at <= now][:most]

    def events_for(self, addressee: DatabaseId, most: int) -> Iterable[DiscardEvent]:
        return [event for event in self.told if event.addressee == addressee][:most]

    def apply(self, decision: Decision[Any]) -> Any:
        for write in decision.writes:
            match write:
                case SaveCopy(_, after):
                    self.copies[after.id] = after
                case DropCopy(copy):
                    del self.copies[copy.id]
                case SaveDamaged(row):
                    self.rows[row.message_id] = row
                case DropDamaged(message_id):
                    self.rows.pop(message_id, None)
                case CheckCopies(owner, at, most):
                    for copy in self._unchecked(owner, at)[:most]:
                        self.copies[copy.id] = replace(copy, check_at=at)
                case AskAbout(ids, since):
                    for id_ in ids:
                        asked = replace(self.copies[id_], confirmation=Confirmation.ASK, confirm_since=since)
                        self.copies[id_] = asked
                case Chore(work, member):
                    self.left[work, member] = write
                case ChoreDone(chore):
                    self.left.pop((chore.work, chore.member), None)
                case DiscardEvent():
                    self.told.append(replace(write, number=len(self.told) + 1))
                case Outcome():
                    self.outcomes[write.message_id] = write
                case Tombstone():
                    self.graves[write.message_id] = write
                case Member():
                    self.known[write.name] = write
                case Heard(name, sequence):
                    known = self.known[name]
                    assert known.lineage is not None
                    self.known[name] = replace(known, lineage=known.lineage.at(sequence))
                case AcknowledgeEvents() | DropEvents():
                    self.forgotten.append(write)
        self.events += decision.events
        return decision.then


def is_held_by(copy: Copy, holder: ServerName, counted: bool | None) -> bool:
    """``counted`` as in ``Ledger.copies_held_by``."""
    states = {one.state for one in copy.holders if one.name == holder}
    if counted is None:
        return bool(states)
    if counted:
        return HolderState.HOLDING in states
    return HolderState.LOST in states


def message(role: Role = Role.PRIMARY, **changes: Any) -> Copy:
    """A message of A's with two recipients; a shadow copy of it stands on B."""
    envelope = Envelope(sender="s@example.org", size=1)
    recipients = (Recipient(1, "x@example.net", NextHop("h")), Recipient(2, "y@example.net", NextHop("h")))
    plain = Copy(
        id=M,
        epoch=1,
        rank=0 if role is Role.PRIMARY else 1,
        role=role,
        owner=A,
        owner_database=DB[A],
        offered_in=RUN[A],
        envelope=envelope,
        recipients=recipients,
        digests=Digests(of_content(b"x"), of_envelope(envelope, recipients)),
        received_at=NOW,
    )
    return replace(plain, **changes)


def books(name: ServerName, *copies: Copy) -> Books:
    others = {other: Member(other, lineage(other)) for other in (A, B, C) if other != name}
    return Books(name, lineage(name), {copy.id: copy for copy in copies}, known=others)
