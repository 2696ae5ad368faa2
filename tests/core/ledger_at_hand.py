"""A small ledger for decisions: what a test puts in, and what is applied to it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

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

    def copies_held_for(self, owner: ServerName, *, unclaimed: bool = False) -> Iterable[Copy]:
        held = [c for c in self.copies.values() if c.held and c.owner == owner]
        return [copy for copy in held if not (unclaimed and copy.pending)]

    def copies_held_by(self, holder: ServerName, *, counted: bool | None = None) -> Iterable[Copy]:
        return [c for c in self.copies.values() if c.owned and is_held_by(c, holder, counted)]

    def copies_taken_from(self, former: ServerName) -> Iterable[Copy]:
        return [c for c in self.copies.values() if c.owned and c.former_owner == former]

    def open_questions(self, after: MessageId, most: int) -> Sequence[OpenQuestion]:
        waiting = [
            copy
            for copy in self.copies.values()
            if copy.confirmation is not Confirmation.NONE and copy.stage in {Stage.QUEUED, Stage.ARRIVING}
        ]
        behind = sorted((c for c in waiting if c.id > after), key=lambda copy: copy.id)
        return [OpenQuestion(c.id, c.confirm_since, c.owner if c.pending else None) for c in behind[:most]]

    def copies_to_check(self, owner: ServerName, now: datetime, most: int) -> Iterable[Copy]:
        held = self.copies_held_for(owner)
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
                case CheckCopies(owner, at):
                    for copy in self.copies_held_for(owner):
                        if copy.check_at is None or copy.check_at > at:
                            self.copies[copy.id] = replace(copy, check_at=at)
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
    return HolderState.LOST in states or (bool(states) and copy.confirmation is Confirmation.IN_DOUBT)


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
