"""The stage that carries out resubmit requests (``safety_net.resubmitting``), without asyncio."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from shadowrelay.core import switching
from shadowrelay.core.identifiers import RequestId, ServerName
from shadowrelay.core.replicating import Merging
from shadowrelay.core.safety_net import resubmission
from shadowrelay.core.safety_net.resubmission import Contacts
from shadowrelay.core.switches import Switch
from shadowrelay.members.record_replication import Spread
from shadowrelay.members.sharing import News, Shared, news_of, share
from shadowrelay.members.telling import incarnations
from shadowrelay.safety_net.resubmitting import Made, Pace, make

if TYPE_CHECKING:
    from .node import Node


@dataclass(slots=True)
class Resubmitter:
    """Of one process. It looks once a second, and when a request comes or changes."""

    node: Node
    spread: Spread
    pace: Pace
    busy: bool = False
    waits_for: set[ServerName] = field(default_factory=set)  # members that are being given the records
    left: list[tuple[RequestId, ServerName]] = field(default_factory=list)  # of this turn

    def look(self) -> None:
        """One turn: give the records to whom they are due, then make messages."""
        now = self.node.world.now
        self.settle(now)
        news = news_of(self.node.ledger)
        if self.busy or not news:
            return
        self.busy = True
        runs = incarnations(self.node.ledger.member, self.contacts().reachable)
        due = self.spread.due(runs, news, now)
        self.waits_for = set(due)
        for name in due:
            script = share(name, self.about)
            self.node.start(script, partial(self.given, name, news))
        if not due:
            self.work()

    def settle(self, now: float) -> None:
        """Spans that every member has for long enough count as they were set."""
        switches = self.node.ledger.records(Switch)
        for one in self.spread.settled(switches, self.contacts().members, now):
            self.node.transact(
                lambda ledger, one=one: ledger.apply(switching.settled(ledger, one)),  # type: ignore[misc]
                lambda _: self.node.take_switches(),
            )

    def about(self) -> Merging:
        return Merging(self.node.world.policy, self.node.time.endings())

    def contacts(self) -> Contacts:
        return self.node.boundary.contacts(self.node.world.now)

    def given(self, name: ServerName, news: News, shared: Shared) -> None:
        self.spread.answered(name, shared, news, self.node.world.now)
        self.waits_for.discard(name)
        if not self.waits_for:
            self.work()

    def work(self) -> None:
        node = self.node
        running = [
            one.id
            for one in node.ledger.requests()
            if one.runs(node.time.endings(), node.policy.resubmit_request_age)
        ]
        if running and self.spread.heard(node.policy.reconcile_timeout, node.world.now):
            owners = resubmission.owners(node.ledger, self.contacts())
            self.left = [(request, owner) for request in self.pace.in_turn(running) for owner in owners]
        self.go_on()

    def go_on(self) -> None:
        most = self.pace.most(self.node.world.now)
        if not self.left or most < 1 or not self.node.may_resubmit():
            self.left.clear()
            self.busy = False
            return
        node = self.node
        request, owner = self.left[0]
        others = node.boundary.others(owner)
        script = make(request, owner, most, self.contacts, others, node.policy, node.time.endings)
        node.start(script, self.made)

    def made(self, made: Made) -> None:
        self.pace.made(made.count)
        if not made.more:
            self.left.pop(0)
        self.go_on()
