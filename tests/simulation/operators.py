"""Operators: they make resubmit requests, pause, resume and remove them, and say that members are gone."""

from __future__ import annotations

import random
from datetime import timedelta

from shadowrelay.core.identifiers import NextHop, RequestId, ServerName
from shadowrelay.core.requests import Request, RequestState, Selector
from shadowrelay.core.safety_net import requesting

from .given_back import due
from .node import Node
from .world import Asked, World, seconds

AGAIN = 1.0
"""Seconds after which an operator tries again where a node does not answer."""


def add(node: Node, request_id: RequestId, selector: Selector, gone: tuple[ServerName, ...] = ()) -> None:
    """Make a request on that node."""
    now = node.clock()
    request = Request(
        id=request_id,
        number=0,
        made_by=node.name,
        made_at=now,
        operator="op",
        reason="the store is lost",
        selector=selector,
        gone=gone,
        changed_by=node.name,
        changed_at=now,
    )
    put(node, request)


def put(node: Node, request: Request) -> None:
    """The same, of a whole record."""
    world, now = node.world, node.clock()
    asked = Asked(request.id, node.name, world.now, request.selector, due(world, request.selector))
    world.requests[request.id] = asked
    world.say(
        "operator", f"makes request {request.id} at {node.name}: {request.selector}, gone {request.gone}"
    )

    def added(result: Request | requesting.Declined) -> None:
        if isinstance(result, requesting.Declined):
            del world.requests[request.id]
        node.resubmit()

    ready, result = node.transact(
        lambda ledger: ledger.apply(requesting.add(ledger, request, node.policy, now)), added
    )
    if ready:
        added(result)


def change(
    node: Node, request_id: RequestId, state: RequestState | None, gone: tuple[ServerName, ...] = ()
) -> None:
    """Pause, resume or remove it on that node, or say that members are gone."""
    node.world.say("operator", f"changes request {request_id} at {node.name}: {state}, gone {gone}")
    now = node.clock()
    ready, _ = node.transact(
        lambda ledger: ledger.apply(
            requesting.change(ledger, request_id, state, node.name, now, "ann", gone=gone)
        ),
        lambda _: node.resubmit(),
    )
    if ready:
        node.resubmit()


class Operator:
    """What operators do in the run of one seed, drawn apart from everything else."""

    def __init__(self, world: World, draw: random.Random) -> None:
        self.world = world
        self.draw = draw
        self.made: list[RequestId] = []

    def plan(self, start: float) -> None:
        """Some requests while a fault comes and goes."""
        for _ in range(self.draw.choice((1, 1, 2))):
            self.world.after(start - self.world.now + self.draw.uniform(2.0, 16.0), self.request)

    def request(self) -> None:
        """Make one, and perhaps change it later."""
        node = self._node()
        if node is None:
            self.world.after(AGAIN, self.request)
            return
        draw, world = self.draw, self.world
        id_ = RequestId(world.uuid())
        gone = (draw.choice(sorted(world.nodes)),) if draw.random() < 0.25 else ()
        self.made.append(id_)
        node.attend(add, node, id_, self._selector(node), gone)
        if draw.random() < 0.4:
            later = draw.uniform(0.0, 6.0)
            world.after(later, self._change, id_, RequestState.PAUSED)
            if draw.random() < 0.7:
                world.after(later + draw.uniform(0.1, 8.0), self._change, id_, RequestState.RUNNING)
        if draw.random() < 0.12:
            world.after(draw.uniform(0.0, 8.0), self._change, id_, RequestState.REMOVED)
        if draw.random() < 0.15:
            world.after(draw.uniform(0.0, 8.0), self._change, id_, None)

    def finish(self) -> None:
        """All is healed: most of what is paused goes on, and perhaps there is one request more."""
        for id_ in self.made:
            if self.draw.random() < 0.8:
                self._change(id_, RequestState.RUNNING)
        if self.draw.random() < 0.5:
            self.request()

    def _change(self, id_: RequestId, state: RequestState | None) -> None:
        gone = () if state else (self.draw.choice(sorted(self.world.nodes)),)
        knowing = [node for node in self._nodes() if id_ in node.ledger.state.requests]
        if not knowing:
            return
        node = self.draw.choice(knowing)
        node.attend(change, node, id_, state, gone)

    def _nodes(self) -> list[Node]:
        return [node for node in self.world.nodes.values() if node.up and not node.opening]

    def _node(self) -> Node | None:
        nodes = self._nodes()
        return self.draw.choice(nodes) if nodes else None

    def _selector(self, node: Node) -> Selector:
        draw, now = self.draw, node.clock()
        until = now - seconds(draw.choice((0.0, 0.0, 0.0, draw.uniform(0.0, 4.0))))
        since = until - draw.choice((timedelta(days=1), timedelta(days=1), seconds(draw.uniform(1.0, 9.0))))
        match draw.randrange(8):
            case 0:
                return Selector(since=since, until=until, next_hops=(NextHop("inside.example"),))
            case 1:
                return Selector(since=since, until=until, recipient="*@inside.example")
            case 2:
                return Selector(since=since, until=until, recipient="user1@inside.example")
            case 3:
                return Selector(since=since, until=until, sender="sender@example.org")
            case 4 if self.world.submissions:
                one = draw.choice(sorted(self.world.submissions))
                return Selector(since=since, until=until, network_message_id=one)
            case _:
                return Selector(since=since, until=until)
