"""The transport database as the rules see it; what they decide is in ``decisions``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Protocol, TypeVar

from shadowrelay.core.decisions import (
    ALL,
    Chore,
    DamagedRow,
    Decision,
    DiscardEvent,
    Found,
    Member,
    OpenQuestion,
    Outcome,
    Part,
    Tombstone,
)
from shadowrelay.core.identifiers import DatabaseId, Lineage, MessageId, ServerName
from shadowrelay.core.messages import Copy

T = TypeVar("T")


class Ledger(Protocol):
    """The transport database as decisions see it: a mapping that does not change under them."""

    @property
    def name(self) -> ServerName: ...

    @property
    def lineage(self) -> Lineage: ...

    @property
    def hosts(self) -> Mapping[ServerName, str]:
        """The machine of every member, and our own: copies on one machine fail together."""
        ...

    def copy(self, message_id: MessageId) -> Copy | None: ...

    def arrival(self, message_id: MessageId) -> Copy | None:
        """What is arriving, or was when the process before ended, and is no message."""
        ...

    def damaged(self, message_id: MessageId) -> DamagedRow | None:
        """A message whose rows cannot be believed; it is then no ``copy`` and no ``arrival``."""
        ...

    def outcome(self, message_id: MessageId) -> Outcome | None: ...

    def tombstone(self, message_id: MessageId) -> Tombstone | None: ...

    def knows(self, message_id: MessageId) -> bool:
        """Is there a copy, sound or not, the rest of one, an outcome or a tombstone? One look for all."""
        ...

    def member(self, name: ServerName) -> Member | None: ...

    def members(self) -> Iterable[Member]: ...

    @property
    def chores(self) -> Sequence[Chore]:
        """What is left to be done to very many messages."""
        ...

    @property
    def at_once(self) -> int:
        """How many messages one transaction may go through."""
        ...

    def in_transit(self, part: Part) -> tuple[Sequence[MessageId], Part | None]:
        """Queued or held for others, arrivals too; and the next part."""
        ...

    def copies_held_for(self, owner: ServerName, part: Part = ALL, *, unclaimed: bool = False) -> Found:
        """Shadow copies still in transit, of every epoch. ``unclaimed``: those of no pending promotion."""
        ...

    def any_unclaimed(self, owner: ServerName) -> bool:
        """Is there a shadow copy in transit, held for that owner, of no pending promotion?"""
        ...

    def unchecked(self, owner: ServerName, at: datetime) -> bool:
        """Is there a copy held for that owner that is not to be asked about at that time at the latest?"""
        ...

    def copies_held_by(self, holder: ServerName, part: Part = ALL, *, counted: bool | None = None) -> Found:
        """Owned messages with a holder of that name. ``counted``: only those whose copy there is HOLDING; not
        ``counted``: those whose copy is LOST while it is out of reach.
        """
        ...

    def copies_in_doubt(self, holder: ServerName, part: Part = ALL) -> Found:
        """Owned messages with a holder of that name that go out in doubt."""
        ...

    def copies_taken_from(self, former: ServerName, part: Part = ALL) -> Found:
        """Owned messages that were promoted from copies held for that member."""
        ...

    def open_questions(self, after: MessageId, most: int) -> Sequence[OpenQuestion]:
        """What members have to be asked about, arrivals too: confirmation is ASK or IN_DOUBT. Those behind
        that id, by id.
        """
        ...

    def copies_to_check(self, owner: ServerName, now: datetime, most: int) -> Iterable[Copy]:
        """Copies held for that owner whose ``check_at`` has come, oldest first."""
        ...

    def events_for(self, addressee: DatabaseId, most: int) -> Iterable[DiscardEvent]:
        """Oldest first."""
        ...


class Transaction(Ledger, Protocol):
    """A ledger that decisions can be applied to, one after the other; all of it commits together."""

    def apply(self, decision: Decision[T]) -> T: ...
