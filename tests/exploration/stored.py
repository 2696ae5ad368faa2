"""What a disk stores of messages, and how much of it is good: for damage, and for the rules about it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from shadowrelay.core.digests import of_content
from shadowrelay.core.messages import Copy, Role, Stage, Status
from tests.simulation.memory_ledger import MemoryLedger

from . import orders
from .alone import Alone

DONE = (Status.DELIVERED, Status.RELAYED)


@dataclass(frozen=True, slots=True)
class Stored:
    """As far as it is durable. Messages by id, recipients by that and their number."""

    contents: frozenset[str]
    rows: frozenset[str]  # that can be believed
    waiting: frozenset[tuple[str, int]]  # recipients that are unsettled, in a good copy
    knows: frozenset[tuple[str, int]]  # recipients that are known to be settled
    exposed: frozenset[str]  # of which no second copy is known here
    open: bool  # is anything unsettled, or not known to be settled because a row is damaged?
    bad: frozenset[str]  # needed, and damaged
    unseen: bool  # is a content damaged, and no row says so?
    set_aside: frozenset[str]  # because of damage
    compared: frozenset[str]  # to be promoted next, because the content was found to be good
    unasked: frozenset[str]  # held copies about which no question is planned
    owns: bool  # of a message, now or by the page that was noted
    stale: frozenset[str]  # of which a page of before was put back
    removed: frozenset[str]  # messages of which an operator removed something
    removable: frozenset[str]  # see ``orders``
    confirmed: frozenset[str]  # the same
    hit: frozenset[tuple[str, str]]  # what was ever damaged, as the simulation's rules have it


def stored(world: Alone) -> Stored:
    node = world.node
    state = node.ledger.state
    copies = durable_copies(node.ledger)
    contents = durable_contents(node.ledger)
    kept = [*copies.values(), *node.ledger.durable_arrivals().values()]
    good = [copy for copy in kept if is_good(copy, contents)]
    damaged = [copy for copy in kept if not is_good(copy, contents)]
    rows = [row for id_ in state.rotten.keys() | state.damaged.keys() if (row := node.ledger.damaged(id_))]
    knows = {(c.id, r.number) for c in copies.values() for r in c.recipients if r.status in DONE}
    knows |= {(row.message_id, number) for row in rows for number, status in row.settled if status in DONE}
    knows |= {(outcome.message_id, n) for outcome in state.outcomes.values() for n in outcome.delivered}
    sound = node.inquiry.sound if node.up else set()
    aside = {row.message_id for row in rows if row.set_aside}
    aside |= {copy.id for copy in copies.values() if copy.damaged and copy.stage is Stage.SET_ASIDE}
    return Stored(
        contents=frozenset(contents),
        rows=frozenset(copies),
        waiting=frozenset((c.id, r.number) for c in good for r in c.unsettled),
        knows=frozenset(knows),
        exposed=frozenset(
            c.id
            for c in copies.values()
            if c.owned and not any(holder.state.value == "holding" for holder in c.holders)
        ),
        open=any(copy.unsettled for copy in kept) or any(not row.set_aside for row in rows),
        bad=frozenset(copy.id for copy in damaged if copy.unsettled) | {row.message_id for row in rows},
        unseen=any(not copy.damaged for copy in damaged if copy.id in copies),
        set_aside=frozenset(aside),
        compared=frozenset(copy.id for copy in copies.values() if copy.pending and copy.id in sound),
        unasked=frozenset(c.id for c in copies.values() if c.held and not c.pending and c.check_at is None),
        owns=any(copy.role is Role.PRIMARY for copy in (*copies.values(), *filter(None, world.page[1:2]))),
        stale=frozenset(world.stale),
        removed=frozenset(
            c.id for c in copies.values() if any(one.status is Status.REMOVED for one in c.recipients)
        ),
        removable=orders.removable(world),
        confirmed=orders.confirmed(world),
        hit=frozenset(world.hit),
    )


def durable_copies(ledger: MemoryLedger) -> dict[str, Copy]:
    """Rows that can be believed."""
    found = {id_: copy for id_ in ledger.state.copies if (copy := ledger.durable_copy(id_)) is not None}
    return found | {id_: copy for id_, copy in ledger.touched().items() if copy is not None}


def durable_contents(ledger: MemoryLedger) -> dict[str, bytes]:
    """The octets that each message uses: its own, or those of another one."""
    found, shared = _durable(ledger, "contents"), _durable(ledger, "shared")
    found |= {id_: found[of] for id_, of in shared.items() if id_ not in found and of in found}
    return found


def _durable(ledger: MemoryLedger, table: str) -> dict[str, Any]:
    rows = dict(getattr(ledger.state, table)) | {
        key: old for (changed, key), old in ledger._undo.items() if changed == table
    }
    return {id_: row for id_, row in rows.items() if isinstance(row, bytes | str)}


def is_good(copy: Copy, contents: dict[str, bytes]) -> bool:
    """Is what is stored the content that its sender sent?"""
    return copy.digests is not None and of_content(contents.get(copy.id, b"")) == copy.digests.content
