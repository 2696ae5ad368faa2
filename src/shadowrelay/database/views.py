"""What the admin API shows: counts, queues, pages and single messages, each read in one transaction.

Everything here runs in the database thread, as work for ``TransportDatabase.transact``, and changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum

from shadowrelay.core.decisions import DamagedRow, Member, Outcome, Tombstone
from shadowrelay.core.identifiers import DatabaseId, Lineage, MessageId, NextHop, ServerName
from shadowrelay.core.members.damage import Counted
from shadowrelay.core.messages import Confirmation, Copy, Role, Stage
from shadowrelay.core.values import dataclass
from shadowrelay.database import records
from shadowrelay.database.ledger import SqlLedger
from shadowrelay.database.queries import load

SQL = load("views.sql")


class MessageState(StrEnum):
    """Which messages a page lists. EXPOSED, ASKING and IN_DOUBT are parts of QUEUED; SHADOW never is.

    DAMAGED: those of any of these that wait for a good copy, or of which no member has one, and those whose
    rows cannot be believed.
    """

    QUEUED = "queued"
    EXPOSED = "exposed"
    ASKING = "asking"
    IN_DOUBT = "in_doubt"
    SET_ASIDE = "set_aside"
    DAMAGED = "damaged"
    SHADOW = "shadow"
    SAFETY_NET = "safety_net"


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """Messages on this node. ``asking``: not sent before the members were asked; ``oldest_*``: reception.
    ``arriving``: no messages yet; those from before the start become some once their holder was asked.
    ``promoting``: those of ``shadow_held`` whose owner is gone, while the members are asked. ``damaged``:
    those that wait for a good copy; ``damaged_aside``: those of ``set_aside`` of which no member has one.
    """

    arriving: int = 0
    queued: int = 0
    exposed: int = 0
    asking: int = 0
    in_doubt: int = 0
    set_aside: int = 0
    damaged: int = 0
    damaged_aside: int = 0
    promoting: int = 0
    shadow_held: int = 0
    safety_net: int = 0
    oldest_queued: datetime | None = None
    oldest_held: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The node's counts and what it durably knows of the members, at one moment.

    ``held_for``: copies that we hold, by owner. ``held_by``: our queued messages, by the member that holds
    a copy. ``events``: discard events that wait, by addressee. ``tracked``, ``damage``: tracking events since
    the start, and what they say of damage.
    """

    lineage: Lineage
    counts: Counts
    members: tuple[Member, ...]
    held_for: Mapping[ServerName, int]
    held_by: Mapping[ServerName, int]
    events: Mapping[DatabaseId, int]
    tracked: Mapping[str, int]
    damage: Mapping[Counted, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageView:
    """Everything that this node knows of one message; ``copy`` is None when only a memory is left, or its
    rows are ``damaged``.
    """

    id: MessageId
    copy: Copy | None
    damaged: DamagedRow | None
    outcome: Outcome | None
    tombstone: Tombstone | None
    active: frozenset[NextHop] = frozenset()


def snapshot(ledger: SqlLedger) -> Snapshot:
    run = ledger.connection.execute
    return Snapshot(
        lineage=ledger.lineage,
        counts=counts(ledger),
        members=tuple(ledger.members()),
        held_for=ledger.tally.held_for_each(),
        held_by=ledger.tally.held_by_each(),
        events={DatabaseId(row[0]): row[1] for row in run(SQL["events_waiting"])},
        tracked=dict(ledger.tracked),
        damage=dict(ledger.damage),
    )


def counts(ledger: SqlLedger) -> Counts:
    """From the tally, however long a queue is. While the database is being opened: of what was counted."""
    run, tally = ledger.connection.execute, ledger.tally
    oldest_queued, oldest_held = (
        run(SQL["oldest"], (role.value,)).fetchone()[0] for role in (Role.PRIMARY, Role.SHADOW)
    )
    damage = {(what, bool(aside)): count for what, aside, count in run(SQL["damage"])}
    rows_aside = damage.get(("rows", True), 0)
    return Counts(
        arriving=tally.staged(Role.PRIMARY, Stage.ARRIVING),
        queued=tally.staged(Role.PRIMARY, Stage.QUEUED),
        exposed=tally.exposed,
        asking=tally.confirming(Confirmation.ASK),
        in_doubt=tally.confirming(Confirmation.IN_DOUBT),
        promoting=run(SQL["promoting"]).fetchone()[0],
        set_aside=sum(tally.staged(role, Stage.SET_ASIDE) for role in Role) + rows_aside,
        damaged=sum(count for (_, aside), count in damage.items() if not aside),
        damaged_aside=damage.get(("content", True), 0) + rows_aside,
        shadow_held=tally.staged(Role.SHADOW, Stage.QUEUED),
        safety_net=run(SQL["settled"]).fetchone()[0],
        oldest_queued=records.maybe_moment(oldest_queued),
        oldest_held=records.maybe_moment(oldest_held),
    )


def page(ledger: SqlLedger, state: MessageState, after: str, most: int) -> list[Copy | DamagedRow]:
    """Messages of that state with an id past ``after``, in the order of their ids (that of reception)."""
    rows = ledger.connection.execute(SQL[f"page_{state.value}"], (after, most)).fetchall()
    found = (ledger.copy(message_id) or ledger.damaged(message_id) for (message_id,) in rows)
    return [item for item in found if item]


def message(ledger: SqlLedger, message_id: MessageId) -> MessageView | None:
    """One message by its whole id; None if this node has neither a copy nor a memory of it."""
    copy = ledger.copy(message_id)
    damaged = None if copy else ledger.damaged(message_id)
    outcome, tombstone = ledger.outcome(message_id), ledger.tombstone(message_id)
    if not (copy or damaged or outcome or tombstone):
        return None
    rows = ledger.connection.execute(SQL["active_hops"], (message_id,)).fetchall()
    hops = frozenset(NextHop(row[0]) for row in rows)
    return MessageView(
        id=message_id, copy=copy, damaged=damaged, outcome=outcome, tombstone=tombstone, active=hops
    )


def messages_like(ledger: SqlLedger, prefix: str) -> list[MessageId]:
    """At most five ids that begin so, of messages that are here or remembered as delivered."""
    rows = ledger.connection.execute(SQL["like"], (prefix, prefix + "\U0010ffff")).fetchall()
    return [MessageId(row[0]) for row in rows]


def events_waiting(ledger: SqlLedger, addressee: DatabaseId) -> int:
    return int(dict(ledger.connection.execute(SQL["events_waiting"]).fetchall()).get(addressee, 0))
