"""Operators' orders about single messages, at any moment and under any fault; and what must then be true.

An order is *confirmed* when its node can show it as done: it is durable there, no attempt is under way, and
no database that may hold a copy still has to acknowledge it. From then on a removed or bounced message is
never delivered, and a suspended one only after an operator has asked to resume it.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from shadowrelay.core.decisions import Decision
from shadowrelay.core.delivery import operated
from shadowrelay.core.delivery.journal import JournalCopy
from shadowrelay.core.delivery.operated import Done
from shadowrelay.core.delivery.settling import Ending, Report
from shadowrelay.core.identifiers import DatabaseId, MessageId, RequestId
from shadowrelay.core.jobs import Verb
from shadowrelay.core.ledger import Transaction
from shadowrelay.core.messages import Copy, Status
from shadowrelay.core.operating import By
from shadowrelay.core.steps import WriteReports

from . import rot
from .world import World

if TYPE_CHECKING:
    from .node import Node

LOOK = 0.02
"""Seconds between looks at what is still pending."""

WENT_BACK = frozenset({"rolled back", rot.PAGE, rot.ROW})
"""Faults that may make a disk forget what it has acknowledged, and yet keep the message."""

BY = By("op", "it is spam", RequestId("01900000-0000-7000-9000-0000000000aa"))


@dataclass(slots=True)
class Order:
    """An order that is durable on the node that did it."""

    verb: Verb
    node: str
    database: DatabaseId
    message_id: MessageId
    numbers: tuple[int, ...]
    given: float
    confirmed: float | None = None
    processes: dict[str, int] = field(default_factory=dict)  # of each node, when it was confirmed
    ended: float = float("inf")  # when somebody asked to resume it


def give(
    node: Node, verb: Verb, message_id: MessageId, numbers: tuple[int, ...] | None, *, tell: bool = False
) -> None:
    """Do it on that node, as a job does it. ``tell``: the senders of what is removed are told."""
    world, now = node.world, node.clock()
    sending = [hop for one, hop in node.active if one == message_id]
    if verb is Verb.RESUME:
        if message_id in world.quarantined:
            world.quarantined[message_id] = True
        for order in world.orders:
            if order.message_id == message_id and order.verb is Verb.SUSPEND:
                order.ended = min(order.ended, world.now)
    world.say("operator", f"{verb.value} {message_id} {numbers or 'all'} at {node.name}")

    def decide(ledger: Transaction) -> Decision[Done]:
        copy = ledger.copy(message_id)
        ending = Ending.REMOVED if verb is Verb.REMOVE else Ending.REJECTED
        reports: tuple[Report | JournalCopy, ...] = ()
        if copy and (tell or verb is Verb.BOUNCE):
            told = operated.results(copy.unsettled, ending)
            reports = node.write_reports(WriteReports(copy, told, operated.NOBODY, dsn_offered=True))
        match verb:
            case Verb.REMOVE:
                return operated.remove(ledger, message_id, numbers, BY, now, sending=sending, reports=reports)
            case Verb.BOUNCE:
                return operated.bounce(ledger, message_id, numbers, BY, now, sending=sending, reports=reports)
            case Verb.SUSPEND:
                return operated.suspend(ledger, message_id, numbers, BY, now)
            case Verb.RESUME:
                return operated.resume(ledger, message_id, numbers, BY, now)
            case Verb.RETRY:
                return operated.retry(ledger, message_id, numbers, BY, now, sending=sending)

    def durable(done: Done) -> None:
        if done.numbers and verb in (Verb.REMOVE, Verb.BOUNCE, Verb.SUSPEND):
            order = Order(verb, node.name, node.ledger.state.database_id, message_id, done.numbers, world.now)
            world.orders.append(order)
        node.pump()

    node.transact(lambda ledger: ledger.apply(decide(ledger)), durable)


def look(world: World) -> None:
    """Which orders are confirmed by now?"""
    for order in world.orders:
        node = world.nodes.get(order.node)  # type: ignore[call-overload]
        if order.confirmed is not None or not node.up or node.ledger.dirty:
            continue
        if node.ledger.state.database_id != order.database:
            continue
        copy = node.ledger.copy(order.message_id)
        if copy is None or not all(_shows(copy, order, number) for number in order.numbers):
            continue  # the node forgot it, or something overtook it
        busy = any(one == order.message_id for one, _ in node.active)
        if not busy and not _pending(node, copy, order):
            order.confirmed = world.now
            order.processes = {str(name): one.generation for name, one in world.nodes.items()}
            world.say("operator", f"{order.verb.value} of {order.message_id} is confirmed")
            world.point("confirmed", order.verb.value, order.message_id)


def _pending(node: Node, copy: Copy, order: Order) -> bool:
    """As ``job_selection.unacknowledged`` has it of a job."""
    if order.verb is not Verb.BOUNCE:
        return bool(operated.pending(node.ledger, order.message_id))
    waits = any(one.waits for one in copy.recipients if one.number in order.numbers)
    events = node.ledger.state.events.values()
    return waits or any(
        (told.verdict.message_id, told.verdict.argument) == (copy.id, "failed") for told in events
    )


def _shows(copy: Copy, order: Order, number: int) -> bool:
    """Does the node have the recipient as the order wants it?"""
    (one,) = (one for one in copy.recipients if one.number == number)
    ended = {Verb.REMOVE: Status.REMOVED, Verb.BOUNCE: Status.FAILED}.get(order.verb)
    return one.status is ended if ended else one.suspended is not None


def against(world: World) -> list[str]:
    """Deliveries against a confirmed order, by nodes whose disks did not go back. Not the octets that a
    process left behind which had ended before: nobody can call them back.
    """
    found = []
    back = [(one.one, one.start) for one in world.impairments if one.kind in WENT_BACK]
    for order in world.orders:
        if order.confirmed is None:
            continue
        for number in order.numbers:
            for one in world.deliveries.get((order.message_id, number), ()):
                late = order.confirmed < one.taken < order.ended
                late = late and one.generation >= order.processes[one.node]
                if late and not any(name == one.node and at < one.taken for name, at in back):
                    found.append(
                        f"{one.node} delivered {order.message_id} to {number} at {one.taken:.3f}, "
                        f"{order.verb.value} was confirmed at {order.confirmed:.3f}"
                    )
    return found


LOSSES = ("away", "disk lost", "disk lost", "freeze", "partition", "crash at commit", "rolled back")
"""Faults in which a copy is promoted."""

APART = ("partition", "partition", "freeze", "away")
"""Faults in which two members may own a message."""


def is_slow(seed: int) -> bool:
    """Are attempts under way when members hear what was ordered?"""
    return seed % 4 == 1


class Hand:
    """What operators do to messages in the run of one seed, drawn apart from everything else."""

    def __init__(self, world: World, draw: random.Random) -> None:
        self.world = world
        self.draw = draw
        self.finished = False
        self.slow = is_slow(world.seed)
        world.after(0.0, self._look)

    def meanwhile(self) -> None:
        """A fault ends: what next hops are being sent now they take."""
        for sink in self.world.hops.values():
            sink.closed_until = min(sink.closed_until, self.world.now)

    def plan(self, start: float) -> None:
        """Orders while a fault comes and goes."""
        for _ in range(self.draw.randint(4, 12)):
            self.world.after(start - self.world.now + self.draw.uniform(0.1, 14.0), self._order)

    def finish(self) -> None:
        """All is healed: nothing stays suspended."""
        self.finished = True
        self._resume_all()

    def _look(self) -> None:
        look(self.world)
        self.world.after(LOOK, self._look)

    def _order(self) -> None:
        if self.finished:
            return
        draw = self.draw
        found: list[tuple[Node, Copy]] = [
            (node, copy)
            for node in self._nodes()
            for copy in node.ledger.state.copies.values()
            if copy.owned and copy.id in self.world.submissions
        ]
        if not found:
            return
        if self.slow:  # rather what a member has taken over from another that does not know
            owners = Counter(copy.id for _, copy in found)
            found = [one for one in found if owners[one[1].id] > 1] or found
        node, copy = draw.choice(found)
        verb = draw.choice((Verb.REMOVE, Verb.REMOVE, Verb.SUSPEND, Verb.SUSPEND, Verb.RESUME, Verb.BOUNCE))
        some = draw.random() < 0.3
        numbers = tuple(one.number for one in copy.unsettled if draw.random() < 0.5) if some else None
        node.attend(self._give, node, verb, copy.id, numbers, draw.random() < 0.4)
        if verb is Verb.SUSPEND and draw.random() < 0.5:
            self.world.after(draw.uniform(0.0, 8.0), self._resume, copy.id)

    def _give(
        self, node: Node, verb: Verb, message_id: MessageId, numbers: tuple[int, ...] | None, tell: Any
    ) -> None:
        give(node, verb, message_id, numbers, tell=bool(tell))

    def _resume(self, message_id: MessageId) -> None:
        for node in self._nodes():
            copy = node.ledger.state.copies.get(message_id)
            if copy is not None and copy.owned:
                node.attend(self._give, node, Verb.RESUME, message_id, None, False)

    def _resume_all(self) -> None:
        for node in self._nodes():
            for copy in tuple(node.ledger.state.copies.values()):
                if copy.owned and any(one.suspended for one in copy.unsettled):
                    node.attend(self._give, node, Verb.RESUME, copy.id, None, False)
        self.world.after(1.0, self._resume_all)

    def _nodes(self) -> list[Node]:
        return [
            node for node in self.world.nodes.values() if node.up and not node.opening and not node.frozen
        ]


def removes(told: tuple[Any, ...]) -> set[tuple[MessageId, int]]:
    """The recipients that these tracking events say an operator removed."""
    return {
        (event.copy.id, one.number)
        for event in told
        if getattr(event, "event_id", "") == "REMOVE"
        for one in event.recipients
    }
