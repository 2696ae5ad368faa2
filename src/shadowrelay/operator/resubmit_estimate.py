"""Asks this node and every member that can be reached what a resubmit request would make, and what is left.

Members are asked by XOPERATE, with the scope read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime

import structlog

from shadowrelay.core.identifiers import MessageId, NextHop, RequestId, ServerName
from shadowrelay.core.ledger import own_progress
from shadowrelay.core.operating import Act, ActAnswer, Scope, Told, act_about
from shadowrelay.core.policy import Policy
from shadowrelay.core.reckoning import Endings
from shadowrelay.core.requests import BEGIN, Place, Progress, Request, Selector
from shadowrelay.core.safety_net import requesting
from shadowrelay.core.safety_net.resubmission import Contacts
from shadowrelay.core.steps import Operate, Unanswered
from shadowrelay.core.values import dataclass, replace
from shadowrelay.database import resubmission
from shadowrelay.database.ledger import SqlLedger
from shadowrelay.database.resubmission import OwnerCount, OwnerKnown
from shadowrelay.database.transport import TransportDatabase
from shadowrelay.operator import preview
from shadowrelay.operator.acts import Action, ActRefused
from shadowrelay.operator.asking import AskMember
from shadowrelay.operator.preview import Away, NodeCount, Preview
from shadowrelay.wire.records import record_from, record_told
from shadowrelay.wire.xshadow import Malformed, server_name

log = structlog.get_logger(__name__)

PREVIEW, LEFT = "preview", "left"
"""Actions of XOPERATE: what a node would make, and how many messages of a request are left."""

PATIENCE = 15.0  # seconds that a member may take to count
HOP_PATIENCE = 5.0  # seconds that a next hop may take to say what it remembers

Left = Mapping[ServerName, int]
"""Messages that are left, by owner."""


class CannotDo(Exception):
    """What the operator asks for is not done; the text says why."""


@dataclass(frozen=True, slots=True)
class RouteServer:
    """A host of a route; '' if the DNS has its hosts. ``inside``: it belongs to the boundary."""

    route: NextHop
    host: str
    port: int
    inside: bool

    def __str__(self) -> str:
        return f"{self.host}:{self.port}" if self.host else "MX"


@dataclass(slots=True, kw_only=True)
class ResubmitEstimate:
    """One node's. The callables are the node's (service.node).

    ``away``: members that cannot be reached. ``ask``: asks a member, within that many seconds.
    ``remembers``: from when on that host drops what it delivered.
    """

    database: TransportDatabase
    policy: Policy
    clock: Callable[[], datetime]
    endings: Callable[[], Endings]
    mint: Callable[[datetime], MessageId]
    servers: Sequence[RouteServer]
    contacts: Callable[[], Contacts]
    away: Callable[[], Mapping[ServerName, Away]]
    ask: AskMember
    remembers: Callable[[RouteServer, float], Awaitable[datetime | None]]

    @property
    def name(self) -> ServerName:
        return self.database.ledger.name

    def request(
        self, selector: Selector, gone: Sequence[ServerName], operator: str = "", reason: str = ""
    ) -> Request:
        """A new request, without a number. Raises CannotDo if a member named as gone is not."""
        now, contacts = self.clock(), self.contacts()
        for name in gone:
            if name == self.name:
                raise CannotDo("this node is not gone: it answers you")
            if name not in contacts.members:
                members = ", ".join(sorted(contacts.members)) or "none"
                raise CannotDo(f"{name} is not a member here; the members are: {members}")
            if name in contacts.reachable:
                raise CannotDo(f"{name} answers: it is not gone, and resubmits what it has settled itself")
        return Request(
            id=RequestId(self.mint(now)),
            number=0,
            made_by=self.name,
            made_at=now,
            operator=operator,
            reason=reason,
            selector=selector,
            gone=tuple(sorted(gone)),
            changed_by=self.name,
            changed_at=now,
        )

    async def preview(self, selector: Selector, gone: Sequence[ServerName], operator: str) -> Preview:
        """What a request would do. Raises CannotDo."""
        now, contacts = self.clock(), self.contacts()
        if why := requesting.fault(selector, self.policy, now):
            raise CannotDo(why)
        request = self.request(selector, gone, operator)
        arguments = {"selector": record_told(selector), "gone": list(gone)}
        act = act_about(request, PREVIEW, Scope.READ, arguments)
        asking = asyncio.gather(*(self._asked(name, act) for name in sorted(contacts.reachable)))
        remembered = asyncio.ensure_future(self._remembered(selector))
        counts = [await self._count(request)]
        away = {name: found for name, found in self.away().items() if name not in contacts.reachable}
        for name, answer in await asking:
            if isinstance(answer, NodeCount):
                counts.append(answer)
            else:
                away[name] = answer
        return preview.summed_up(counts, away, selector, self.policy, now, await remembered)

    async def _asked(self, member: ServerName, act: Act) -> tuple[ServerName, NodeCount | Away]:
        answer = await self.ask(Operate(member, act), PATIENCE)
        if isinstance(answer, Unanswered):
            return member, Away(None, f"{answer.step}: {answer.error}")
        if answer.refused:
            return member, Away(None, f"it refuses: {answer.refused}")
        try:
            return member, replace(preview.read_count(answer.told), node=member)
        except Malformed as error:
            log.error("preview_not_understood", member=member, error=str(error))
            return member, Away(None, "its answer is not understood")

    async def _count(self, request: Request) -> NodeCount:
        """What this node says."""
        contacts, policy = self.contacts(), self.policy
        owners = await self.database.transact(lambda ledger: preview.owners_known(ledger, contacts, policy))
        earliest, counted = await self.database.read(
            lambda readers: (
                resubmission.earliest(readers[0]),
                resubmission.count(readers, request.selector, owners),
            )
        )
        return await self.database.transact(
            lambda ledger: preview.node_count(ledger, request, counted, contacts, earliest)
        )

    async def _remembered(self, selector: Selector) -> list[str]:
        """Warnings about mailbox services that would drop what comes back."""
        concerned = [
            server
            for server in self.servers
            if server.inside and server.host
            if not selector.next_hops or server.route in selector.next_hops
        ]
        found = await asyncio.gather(
            *(self.remembers(server, HOP_PATIENCE) for server in concerned), return_exceptions=True
        )
        told = []
        for server, since in zip(concerned, found, strict=True):
            if isinstance(since, BaseException):  # it says nothing: delivery will tell
                log.info("next_hop_not_asked", next_hop=server.route, error=str(since))
            elif warning := preview.remembered(server.route, server.host, server.port, since, selector):
                told.append(warning)
        return told

    async def left(self, request: Request, operator: str) -> dict[ServerName, Left]:
        """Messages of a request that are left, by node: of this node and of all that answer."""
        arguments = {"request": record_told(request)}
        act = act_about(replace(request, operator=operator), LEFT, Scope.READ, arguments)
        members = sorted(self.contacts().reachable)
        asking = asyncio.gather(*(self.ask(Operate(name, act), PATIENCE) for name in members))
        found = {self.name: await self.left_here(request)}
        for name, answer in zip(members, await asking, strict=True):
            if isinstance(answer, ActAnswer) and not answer.refused:
                told = answer.told.get("left")
                if isinstance(told, dict):
                    found[name] = {ServerName(str(owner)): int(count) for owner, count in told.items()}
        return found

    async def left_here(self, request: Request) -> Left:
        """Messages that this node would still make, by owner; a few more, where it is about to make them."""
        contacts, policy = self.contacts(), self.policy

        def read(ledger: SqlLedger) -> tuple[tuple[OwnerKnown, ...], dict[ServerName, Progress]]:
            own = {one.owner: one for one in own_progress(ledger, request.id)}
            return preview.owners_known(ledger, contacts, policy), own

        owners, progress = await self.database.transact(read)
        by_place: dict[Place, list[OwnerKnown]] = {}
        for owner in owners:
            known = progress.get(owner.name)
            if known is None or not known.done:
                by_place.setdefault(known.place if known else BEGIN, []).append(owner)
        left: dict[ServerName, int] = {}
        for place, some in by_place.items():
            counted = await self._counted_from(request.selector, place, some)
            found = await self.database.transact(
                lambda ledger, counted=counted: preview.node_count(ledger, request, counted, contacts, None)  # type: ignore[misc]
            )
            left |= {one.owner: one.now.messages for one in found.held if one.now.messages}
            if found.own.messages:
                left[self.name] = found.own.messages
        return left

    async def _counted_from(
        self, selector: Selector, place: Place, owners: Sequence[OwnerKnown]
    ) -> Mapping[ServerName, OwnerCount]:
        window = replace(selector, since=max(selector.since, place.at or selector.since))
        counted = await self.database.read(lambda readers: resubmission.count(readers, window, owners))
        return {self.name: OwnerCount(self.name), **counted}

    def actions(self) -> dict[str, Action]:
        """What members may ask here, for operators on their nodes."""
        return {
            PREVIEW: Action(Scope.READ, self._preview_for, quiet=True),
            LEFT: Action(Scope.READ, self._left_for, quiet=True),
        }

    async def _preview_for(self, member: ServerName, act: Act) -> Told:
        del member
        try:
            selector = record_from(Selector, act.arguments.get("selector"))
            given = act.arguments.get("gone")
            gone = [server_name(str(name)) for name in given] if isinstance(given, list) else []
        except Malformed as error:
            raise ActRefused(str(error)) from error
        request = replace(self.request(selector, ()), gone=tuple(gone))
        return preview.told_count(await self._count(request))

    async def _left_for(self, member: ServerName, act: Act) -> Told:
        del member
        try:
            request = record_from(Request, act.arguments.get("request"))
        except Malformed as error:
            raise ActRefused(str(error)) from error
        return {"left": await self.left_here(request)}
