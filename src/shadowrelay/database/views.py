"""What the admin API shows: counts, queues, pages and single messages, each read in one transaction.

Everything here runs in the database thread, as work for ``TransportDatabase.transact``, and changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum

from shadowrelay.core.decisions import Member, Outcome, Tombstone
from shadowrelay.core.identifiers import DatabaseId, Lineage, MessageId, NextHop, ServerName
from shadowrelay.core.messages import Confirmation, Copy, Role, Stage
from shadowrelay.core.values import dataclass
from shadowrelay.database import records
from shadowrelay.database.ledger import SqlLedger
from shadowrelay.database.queries import load

SQL = load("views.sql")


class State(StrEnum):
    """Which messages a page lists. EXPOSED, ASKING and IN_DOUBT are parts of QUEUED; SHADOW never is."""

    QUEUED = "queued"
    EXPOSED = "exposed"
    ASKING = "asking"
    IN_DOUBT = "in_doubt"
    SET_ASIDE = "set_aside"
    SHADOW = "shadow"
    SAFETY_NET = "safety_net"


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """Messages on this node. ``asking``: not sent before the members were asked; ``oldest_*``: reception.
    ``arriving``: no messages yet; those from before the start become some once their holder was asked.
    ``promoting``: those of ``shadow_held`` whose owner is gone, while the members are asked.
    """

    arriving: int = 0
    queued: int = 0
    exposed: int = 0
    asking: int = 0
    in_doubt: int = 0
    set_aside: int = 0
    promoting: int = 0
    shadow_held: int = 0
    safety_net: int = 0
    oldest_queued: datetime | None = None
    oldest_held: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The node's counts and what it durably knows of the members, at one moment.

    ``held_for``: copies that we hold, by owner. ``held_by``: our queued messages, by the member that holds
    a copy. ``events``: discard events that wait, by addressee. ``tracked``: tracking events since the start.
    """

    lineage: Lineage
    counts: Counts
    members: tuple[Member, ...]
    held_for: Mapping[ServerName, int]
    held_by: Mapping[ServerName, int]
    events: Mapping[DatabaseId, int]
    tracked: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    """Mail of this node for one next hop. ``due``: its first recipient; None if all wait for answers.

    ``waiting``: messages that may be sent at once, and are not being sent.
    """

    next_hop: NextHop
    messages: int
    recipients: int
    active: int  # forks that are being sent
    waiting: int
    asking: int  # recipients not sent to before the members were asked
    exposed: int
    oldest: datetime
    due: datetime | None
    last_error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ShadowQueue:
    """Copies held for one owner, whole, and by next hop."""

    primary: ServerName
    messages: int
    oldest: datetime
    next_hops: tuple[tuple[NextHop, int, int], ...]  # next hop, messages, recipients


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageView:
    """Everything that this node knows of one message; ``copy`` is None when only a memory is left."""

    id: MessageId
    copy: Copy | None
    outcome: Outcome | None
    tombstone: Tombstone | None
    active: frozenset[NextHop] = frozenset()


def snapshot(ledger: SqlLedger) -> Snapshot:
    run = ledger.connection.execute
    return Snapshot(
        lineage=ledger.lineage,
        counts=counts(ledger),
        members=tuple(ledger.members()),
        held_for={ServerName(row[0]): row[1] for row in run(SQL["held_for"])},
        held_by={ServerName(row[0]): row[1] for row in run(SQL["held_by"])},
        events={DatabaseId(row[0]): row[1] for row in run(SQL["events_waiting"])},
        tracked=dict(ledger.tracked),
    )


def counts(ledger: SqlLedger) -> Counts:
    run = ledger.connection.execute
    # As text: in a row that nobody has read yet there may be a role or a stage that there is not.
    found = {(role, stage): (count, oldest) for role, stage, count, oldest in run(SQL["transit"])}
    queued, oldest_queued = found.get((Role.PRIMARY.value, Stage.QUEUED.value), (0, None))
    held, oldest_held = found.get((Role.SHADOW.value, Stage.QUEUED.value), (0, None))
    confirming = dict(run(SQL["confirming"]).fetchall())
    return Counts(
        arriving=found.get((Role.PRIMARY.value, Stage.ARRIVING.value), (0, None))[0],
        queued=queued,
        exposed=run(SQL["exposed"]).fetchone()[0],
        asking=confirming.get(Confirmation.ASK.value, 0),
        in_doubt=confirming.get(Confirmation.IN_DOUBT.value, 0),
        promoting=run(SQL["promoting"]).fetchone()[0],
        set_aside=sum(count for (_, stage), (count, _) in found.items() if stage == Stage.SET_ASIDE.value),
        shadow_held=held,
        safety_net=run(SQL["settled"]).fetchone()[0],
        oldest_queued=records.maybe_moment(oldest_queued),
        oldest_held=records.maybe_moment(oldest_held),
    )


def queues(ledger: SqlLedger, now: datetime) -> list[Queue]:
    run = ledger.connection.execute
    errors = {row[0]: row[1] for row in run(SQL["last_errors"])}
    active = dict(run(SQL["active"]).fetchall())
    return [
        Queue(
            next_hop=NextHop(hop),
            messages=messages,
            recipients=recipients,
            active=active.get(hop, 0),
            waiting=waiting,
            asking=asking,
            exposed=exposed,
            oldest=records.moment(oldest),
            due=records.maybe_moment(due),
            last_error=errors.get(hop, ""),
        )
        for hop, messages, recipients, due, asking, oldest, exposed, waiting in run(
            SQL["queues"], (records.micros(now),)
        ).fetchall()
    ]


def shadow_queues(ledger: SqlLedger) -> list[ShadowQueue]:
    run = ledger.connection.execute
    hops: dict[str, list[tuple[NextHop, int, int]]] = {}
    for owner, hop, messages, recipients, _ in run(SQL["shadow_queues"]).fetchall():
        hops.setdefault(owner, []).append((NextHop(hop), messages, recipients))
    return [
        ShadowQueue(
            primary=ServerName(owner),
            messages=messages,
            oldest=records.moment(oldest),
            next_hops=tuple(hops.get(owner, ())),
        )
        for owner, messages, oldest in run(SQL["held_for"]).fetchall()
    ]


def page(ledger: SqlLedger, state: State, after: str, most: int) -> list[Copy]:
    """Messages of that state with an id past ``after``, in the order of their ids (that of reception)."""
    rows = ledger.connection.execute(SQL[f"page_{state.value}"], (after, most)).fetchall()
    return [copy for (message_id,) in rows if (copy := ledger.copy(message_id))]


def message(ledger: SqlLedger, message_id: MessageId) -> MessageView | None:
    """One message by its whole id; None if this node has neither a copy nor a memory of it."""
    copy = ledger.copy(message_id)
    outcome, tombstone = ledger.outcome(message_id), ledger.tombstone(message_id)
    if copy is None and outcome is None and tombstone is None:
        return None
    rows = ledger.connection.execute(SQL["active_hops"], (message_id,)).fetchall()
    hops = frozenset(NextHop(row[0]) for row in rows)
    return MessageView(id=message_id, copy=copy, outcome=outcome, tombstone=tombstone, active=hops)


def messages_like(ledger: SqlLedger, prefix: str) -> list[MessageId]:
    """At most five ids that begin so, of messages that are here or remembered as delivered."""
    rows = ledger.connection.execute(SQL["like"], (prefix, prefix + "\U0010ffff")).fetchall()
    return [MessageId(row[0]) for row in rows]


def events_waiting(ledger: SqlLedger, addressee: DatabaseId) -> int:
    return int(dict(ledger.connection.execute(SQL["events_waiting"]).fetchall()).get(addressee, 0))
