"""An operator removes the message on a node that owns it, at any time: what must then be true of it.

The removal is *confirmed* when its node can show it as done (``delivery.operated.pending``), as in the
simulation (``tests.simulation.by_hand``). From then on nobody delivers the message to whom it was removed
for; before, whoever sends it at that moment may. What was acknowledged is delivered, waits, or was removed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shadowrelay.core.delivery.operated import pending
from shadowrelay.core.messages import Copy, Status
from tests.simulation.checks import Broken

from .setup import Move

if TYPE_CHECKING:
    from .alone import Alone
    from .automaton import View
    from .rules import Rules
    from .situation import Situation

NUMBERS = (1,)
"""The recipients for which it is removed; another one gets the message."""

WENT_BACK = ("rolled back", "stale page")
"""A disk that forgot what it has acknowledged may have its node deliver all the same."""


def removable(world: Alone) -> frozenset[str]:
    """Messages that a removal on this node would remove now: no attempt of its own has them in hand."""
    if not world.node.up or world.node.frozen:
        return frozenset()
    copies = world.node.ledger.state.copies.values()
    return frozenset(c.id for c in copies if c.owned and _unsettled(c) and not _sends(world, c))


def confirmed(world: Alone) -> frozenset[str]:
    """Messages of which this node can show the removal as done."""
    node = world.node
    if not node.up or node.ledger.dirty:
        return frozenset()
    copies = node.ledger.state.copies.values()
    return frozenset(
        c.id
        for c in copies
        if any(one.status is Status.REMOVED for one in c.recipients)
        and not _sends(world, c)
        and not pending(node.ledger, c.id)
    )


def _unsettled(copy: Copy) -> bool:
    return any(one.number in NUMBERS for one in copy.unsettled)


def _sends(world: Alone, copy: Copy) -> bool:
    return any(message_id == copy.id for message_id, _ in world.node.active)


def moves(at: Situation, views: list[View]) -> list[Move]:
    """It is given once, on any node that would do it."""
    if at.order:
        return []
    ids = [mail.id for mail in at.mail]
    return [("remove", view.node.name, id_) for view in views for id_ in ids if id_ in view.stored.removable]


def noted(at: Situation, views: list[View]) -> Situation:
    """The same, with what is now durable, and confirmed, of the removal."""
    if not at.order:
        return at
    removed = at.removed or any(view.stored.removed for view in views)
    shown = any(view.node.name == at.order and view.stored.confirmed for view in views)
    return at._replace(removed=removed, confirmed=at.confirmed or shown)


def check_delivery(rules: Rules, at: Situation, packet: tuple[Any, ...]) -> None:
    """A next hop takes what a process that runs has sent. (What one that is gone left behind nobody can call
    back.)
    """
    _, source, generation, _, message_id, _, recipients, _ = packet
    if not at.confirmed or not set(recipients) & set(NUMBERS) or all(message_id != m.id for m in at.mail):
        return
    view = rules.views(at)[rules.index[source]]
    if not view.up or view.generation != generation:
        return
    if any(item.one == source and item.kind in WENT_BACK for item in at.wrong):
        return
    raise Broken("delivered after its removal was confirmed")
