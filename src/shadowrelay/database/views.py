"""Reads what the admin API shows: counts, pages and single messages, each in one transaction.

Everything here runs as work for ``TransportDatabase.transact``, and changes nothing.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Mapping
from dataclasses import field
from datetime import datetime
from enum import StrEnum
from typing import Any

from shadowrelay.core.decisions import DamagedRow, HopShadow, Member, Outcome, Tombstone
from shadowrelay.core.hops import Handed
from shadowrelay.core.identifiers import DatabaseId, Lineage, MessageId, NextHop, ServerName
from shadowrelay.core.members.damage import Counted
from shadowrelay.core.messages import Confirmation, Copy, Role, Stage
from shadowrelay.core.retirements import RetiredMember
from shadowrelay.core.values import dataclass
from shadowrelay.database import poison, records
from shadowrelay.database.ledger import SqlLedger
from shadowrelay.database.queries import load

SQL = load("views.sql")


class MessageState(StrEnum):
    """Which messages a page lists. EXPOSED, ASKING and IN_DOUBT are parts of QUEUED; SHADOW never is.

    AT_RISK: messages in transit of which one copy can be reached now, here or at a holder.
    DAMAGED: messages in any state that wait for a good copy, messages of which no member has a good copy, and
    messages with damaged rows.
    """

    QUEUED = "queued"
    EXPOSED = "exposed"
    AT_RISK = "at_risk"
    ASKING = "asking"
    IN_DOUBT = "in_doubt"
    SET_ASIDE = "set_aside"
    DAMAGED = "damaged"
    SHADOW = "shadow"
    SAFETY_NET = "safety_net"


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """Messages on this node. ``asking``: wait until the members are asked. ``oldest_*``: times of reception.
    ``arriving``: no messages yet; one from before the start becomes a message once its holder was asked.
    ``promoting``: the part of ``shadow_held`` whose promotion is pending. ``damaged``: wait for a good copy.
    ``unread``: a next hop took the content, and its answer cannot be read.
    ``damaged_aside``: the part of ``set_aside`` of which no member has a good copy.
    """

    arriving: int = 0
    queued: int = 0
    exposed: int = 0
    asking: int = 0
    in_doubt: int = 0
    unread: int = 0  # recipients
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

    ``held_for``: copies that this node holds, by owner; ``promoting``: the part of it whose promotion is
    pending. ``held_by``: queued messages of this node, by holder; ``together``: those that several hold.
    ``events``: waiting discard events, by addressee. ``tracked``, ``damage``: tracking events since the
    start, and what they say of damage. ``hops``: messages that hops track for this node, by hop. ``unsent``:
    when the first of the oldest messages was or will be due that is not being sent, by next hop.
    ``retired_by``: who retired a member.
    """

    lineage: Lineage
    counts: Counts
    members: tuple[Member, ...]
    held_for: Mapping[ServerName, int]
    held_by: Mapping[ServerName, int]
    events: Mapping[DatabaseId, int]
    tracked: Mapping[str, int]
    damage: Mapping[Counted, int]
    promoting: Mapping[ServerName, int] = field(default_factory=dict)
    together: Mapping[tuple[ServerName, ...], int] = field(default_factory=dict)
    hops: Mapping[ServerName, int] = field(default_factory=dict)
    unsent: Mapping[NextHop, datetime] = field(default_factory=dict)
    retired_by: Mapping[ServerName, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageView:
    """Everything that this node knows of one message. ``copy`` is None if only an outcome or tombstone is
    left, or its rows are ``damaged``. ``hops``: what hops beyond the boundary have of it. ``crashes``: those
    of this node with the message in hand, a line each.
    """

    id: MessageId
    copy: Copy | None
    damaged: DamagedRow | None
    outcome: Outcome | None
    tombstone: Tombstone | None
    active: frozenset[NextHop] = frozenset()
    hops: tuple[HopShadow, ...] = ()
    handed: Handed | None = None
    crashes: tuple[str, ...] = ()


def snapshot(ledger: SqlLedger) -> Snapshot:
    run, pending = ledger.connection.execute, promoting(ledger)
    return Snapshot(
        lineage=ledger.lineage,
        counts=counts(ledger, sum(pending.values())),
        members=tuple(ledger.members()),
        held_for=ledger.tally.held_for_each(),
        held_by=ledger.tally.held_by_each(),
        promoting=pending,
        together=ledger.tally.held_together(),
        events={DatabaseId(row[0]): row[1] for row in run(SQL["events_waiting"])},
        tracked=dict(ledger.tracked),
        damage=dict(ledger.damage),
        hops=dict(ledger.hop_shadow_rows.counts),
        unsent={
            NextHop(hop): at
            for hop, due_at in run(SQL["unsent"], (Role.PRIMARY.value,))
            if (at := records.possible_moment(due_at))
        },
        retired_by={one.member: one.operator for one in ledger.records(RetiredMember)},
    )


def counts(ledger: SqlLedger, pending: int) -> Counts:
    """Counts from the tally, however long a queue is. During the opening: only what is counted so far.
    ``pending``: copies whose promotion is.
    """
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
        unread=run(SQL["unread"]).fetchone()[0],
        promoting=pending,
        set_aside=sum(tally.staged(role, Stage.SET_ASIDE) for role in Role) + rows_aside,
        damaged=sum(count for (_, aside), count in damage.items() if not aside),
        damaged_aside=damage.get(("content", True), 0) + rows_aside,
        shadow_held=tally.staged(Role.SHADOW, Stage.QUEUED),
        safety_net=run(SQL["settled"]).fetchone()[0],
        oldest_queued=records.maybe_moment(oldest_queued),
        oldest_held=records.maybe_moment(oldest_held),
    )


def promoting(ledger: SqlLedger) -> dict[ServerName, int]:
    """Copies whose promotion is pending, by owner."""
    # After an unclean stop the whole queue is to be confirmed, and the query would look at all of it.
    run, held_for = ledger.connection.execute, ledger.tally.held_for_each()
    pending = run(SQL["promoting"]).fetchone()[0] if ledger.tally.promoting else 0
    if not pending or len(held_for) == 1:
        return dict.fromkeys(held_for, pending) if pending else {}
    return {ServerName(owner): count for owner, count in run(SQL["promoting_for"])}


def page(
    ledger: SqlLedger,
    state: MessageState,
    after: str,
    most: int,
    *,
    owners: Collection[str] = (),
    holders: Collection[str] = (),
) -> list[Copy | DamagedRow]:
    """Messages of that state with an id past ``after``, in the order of ids, which is that of reception.

    ``owners``, ``holders``: those that are away, for AT_RISK.
    """
    rows = ids(ledger.connection, state, after, most, owners=owners, holders=holders)
    found = (ledger.copy(message_id) or ledger.damaged(message_id) for message_id in rows)
    return [item for item in found if item]


def ids(
    reader: sqlite3.Connection,
    state: MessageState,
    after: str,
    most: int,
    *,
    owners: Collection[str] = (),
    holders: Collection[str] = (),
) -> list[MessageId]:
    """The same, their ids alone. ``most``: -1 for all."""
    given: Any = (after, most)
    if state is MessageState.AT_RISK:
        away = {"owners": json.dumps(sorted(owners)), "holders": json.dumps(sorted(holders))}
        given = {"after": after, "most": most, **away}
    return [MessageId(one) for (one,) in reader.execute(SQL[f"page_{state.value}"], given)]


def message(ledger: SqlLedger, message_id: MessageId) -> MessageView | None:
    """One message by its whole id; None if this node knows nothing of it."""
    copy = ledger.copy(message_id)
    damaged = None if copy else ledger.damaged(message_id)
    outcome, tombstone = ledger.outcome(message_id), ledger.tombstone(message_id)
    if not (copy or damaged or outcome or tombstone):
        return None
    return MessageView(
        id=message_id,
        copy=copy,
        damaged=damaged,
        outcome=outcome,
        tombstone=tombstone,
        active=active_hops(ledger, message_id),
        hops=tuple(ledger.hop_shadows_of(message_id)),
        handed=ledger.handed(message_id),
        crashes=poison.crashes(ledger, message_id),
    )


def active_hops(ledger: SqlLedger, message_id: MessageId) -> frozenset[NextHop]:
    """The next hops to which a message is being sent."""
    rows = ledger.connection.execute(SQL["active_hops"], (message_id,)).fetchall()
    return frozenset(NextHop(row[0]) for row in rows)


def messages_like(ledger: SqlLedger, prefix: str) -> list[MessageId]:
    """At most five ids with that prefix, of messages that are here or have an outcome."""
    rows = ledger.connection.execute(SQL["like"], (prefix, prefix + "\U0010ffff")).fetchall()
    return [MessageId(row[0]) for row in rows]


def events_waiting(ledger: SqlLedger, addressee: DatabaseId) -> int:
    return int(dict(ledger.connection.execute(SQL["events_waiting"]).fetchall()).get(addressee, 0))
