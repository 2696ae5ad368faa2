"""A ledger for decisions: what a test puts in, and what is applied to it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from simulation.memory_ledger import MemoryLedger, State, _ordered

from shadowrelay.core.decisions import DamagedRow, DiscardEvent, Member, Outcome, Tombstone
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
from shadowrelay.core.messages import Copy, Digests, Envelope, Recipient, Role, Stage
from shadowrelay.core.steps import Script, Transact

NOW = datetime(2030, 1, 1, tzinfo=UTC)
A, B, C = ServerName("a"), ServerName("b"), ServerName("c")
DB = {A: DatabaseId("db-a"), B: DatabaseId("db-b"), C: DatabaseId("db-c")}
RUN = {A: Incarnation("a" * 16), B: Incarnation("b" * 16), C: Incarnation("c" * 16)}
M = MessageId("01900000-0000-7000-8000-000000000001")


def lineage(name: ServerName, sequence: int = 10) -> Lineage:
    return Lineage(DB[name], (Beginning(RUN[name], 0),), sequence)


class LedgerAtHand(MemoryLedger):
    """The simulation's ledger with these copies. Nothing commits: all that was written is at hand."""

    def __init__(self, name: ServerName, copies: Iterable[Copy] = ()) -> None:
        at = lineage(name)
        others = {other: Member(other, lineage(other)) for other in (A, B, C) if other != name}
        runs = tuple((run.incarnation, run.sequence, 1) for run in at.beginnings)
        super().__init__(name, State(at.database_id, known=others, sequence=at.sequence, incarnations=runs))
        for copy in copies:
            self.put(copy)
        self._undo.clear()

    def put(self, copy: Copy) -> None:
        """Whatever was there before."""
        self._put("arriving" if copy.stage is Stage.ARRIVING else "copies", copy.id, _ordered(copy))

    @property
    def copies(self) -> dict[MessageId, Copy]:
        return self.state.copies

    @property
    def known(self) -> dict[ServerName, Member]:
        return self.state.known

    @property
    def outcomes(self) -> dict[MessageId, Outcome]:
        return self.state.outcomes

    @property
    def graves(self) -> dict[MessageId, Tombstone]:
        return self.state.tombstones

    @property
    def rows(self) -> dict[MessageId, DamagedRow]:
        return self.state.damaged

    @property
    def told(self) -> list[DiscardEvent]:
        """The discard events that wait."""
        return list(self.state.events.values())

    @property
    def events(self) -> list[Any]:
        """The tracking events."""
        return self.tracked


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


def ledger_of(name: ServerName, *copies: Copy) -> LedgerAtHand:
    return LedgerAtHand(name, copies)


def steps(script: Script[Any], on: LedgerAtHand, answer: Callable[[Any], object]) -> Iterator[Any]:
    """Each step once it is performed on the ledger, or has that answer. The result comes last."""
    try:
        step = script.send(None)
        while True:
            result = step.work(on) if isinstance(step, Transact) else answer(step)
            yield step
            step = script.send(result)
    except StopIteration as done:
        yield done.value
