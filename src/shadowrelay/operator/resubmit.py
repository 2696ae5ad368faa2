"""What an operator does with resubmit requests: add, change, find one, and see how far it is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import field
from datetime import datetime, timedelta

import structlog

from shadowrelay.core.identifiers import NextHop, RequestId, ServerName
from shadowrelay.core.requests import Progress, Request, RequestState, Selector, Skipped
from shadowrelay.core.safety_net import requesting
from shadowrelay.core.safety_net.requesting import Declined
from shadowrelay.core.values import dataclass
from shadowrelay.database.transport import DatabaseFailed
from shadowrelay.operator.preview import Preview
from shadowrelay.operator.queue_names import NoSuchQueue, QueueNames
from shadowrelay.operator.resubmit_estimate import CannotDo, Left, ResubmitEstimate
from shadowrelay.wire.records import record_from, record_told
from shadowrelay.wire.xshadow import Malformed

log = structlog.get_logger(__name__)

_LEFT_AGE = timedelta(seconds=30)
_PACE = timedelta(minutes=1)
"""A rate is measured over at most this time."""


class Ambiguous(CannotDo):
    """A number, or the beginning of a UUID, names several requests; ``found`` are these."""

    def __init__(self, given: str, found: Sequence[Request]) -> None:
        listed = ", ".join(f"{one.id} (number {one.number}, made by {one.made_by})" for one in found)
        super().__init__(f"several requests are called {given}: {listed}. Give the UUID")
        self.found = found


class NoSuchRequest(CannotDo):
    """There is none with that number or UUID."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Having:
    """Whether a member has a request as it is now. ``at``: when it said so last; ``why``: why it does not."""

    member: ServerName
    has: bool
    at: datetime | None = None
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """A request, and how far each node is with it.

    ``left``: messages by node and owner, of the nodes that were asked. ``rates``: messages a second, of the
    last minute; of a node and owner that was seen at least twice.
    """

    request: Request
    open: bool
    progress: tuple[Progress, ...]
    left: Mapping[ServerName, Left]
    rates: Mapping[tuple[ServerName, ServerName], float]
    having: tuple[Having, ...]

    @property
    def done(self) -> bool:
        """Has every part ended that was begun, with nothing left, and each node that has the request told so?

        What a node has made is known here a moment after nothing is left there.
        """
        told = {one.node for one in self.progress if one.node == one.owner and one.done}
        asked = {*self.left, *(one.member for one in self.having if one.has)}
        parts = all(one.done for one in self.progress)
        left = any(sum(left.values()) for left in self.left.values())
        return bool(self.progress) and parts and asked <= told and not left


@dataclass(frozen=True, slots=True)
class Figures:
    """This node's part in all requests on record. ``left``: messages of the open ones, None while it is not
    known.
    """

    open: int = 0
    made: int = 0
    skipped: Mapping[Skipped, int] = field(default_factory=dict)
    left: int | None = 0


@dataclass(slots=True, kw_only=True)
class Resubmission:
    """One node's. ``having``: which members have a request. ``wake``: a request changed. ``names``: what
    queues are called.
    """

    counting: ResubmitEstimate
    having: Callable[[Request], Sequence[Having]]
    wake: Callable[[], None]
    names: QueueNames
    _left: tuple[datetime, int] | None = None
    _leaving: asyncio.Task[None] | None = None  # counts what is left
    _looked: dict[RequestId, datetime] = field(default_factory=dict)
    _seen: dict[tuple[RequestId, ServerName, ServerName], list[tuple[datetime, int]]] = field(
        default_factory=dict
    )

    def routes_to(self, given: str) -> tuple[NextHop, ...]:
        """The queues that a name means: a queue (``queue_names``), or those of routes that lead to a server.
        Raises NoSuchQueue.
        """
        host, _, port = given.lower().partition(":")
        servers = self.counting.servers
        there = (one.route for one in servers if one.host == host and port in ("", str(one.port)))
        try:
            return (self.names.of_settings(given),)
        except NoSuchQueue as unknown:
            if found := tuple(dict.fromkeys(there)):
                return found
            named = ", ".join(f"{one.route} ({one})" for one in servers)
            raise NoSuchQueue(f"{unknown}; no server is called so, the routes are: {named}") from None

    async def preview(self, selector: Selector, gone: Sequence[ServerName], operator: str) -> Preview:
        """What a request would do. Raises CannotDo."""
        return await self.counting.preview(selector, gone, operator)

    async def find(self, given: str) -> Request:
        """The request with that number, UUID, or beginning of a UUID (four characters or more). Raises
        NoSuchRequest, Ambiguous.
        """
        wanted = given.lower()
        records = await self.counting.database.transact(lambda ledger: tuple(ledger.requests()))
        by_number = wanted.isascii() and wanted.isdigit() and len(wanted) < 8
        found = [one for one in records if one.id == wanted]
        found = found or [one for one in records if by_number and one.number == int(wanted)]
        found = found or [one for one in records if len(wanted) >= 4 and one.id.startswith(wanted)]
        if not found:
            raise NoSuchRequest(f"this node has no resubmit request {given}")
        if len(found) > 1:
            raise Ambiguous(given, found)
        return found[0]

    async def all(self) -> list[Shown]:
        """All requests, the open ones first, without what is left."""
        read = await self.counting.database.transact(
            lambda ledger: [(one, tuple(ledger.progress(one.id))) for one in ledger.requests()]
        )
        shown = [self._shown(request, progress, {}) for request, progress in read]
        return sorted(shown, key=lambda one: (not one.open, one.request.made_at))

    async def show(self, request: Request, operator: str) -> Shown:
        """A request, with what is left on every node that answers."""
        left = await self.counting.left(request, operator) if self._open(request) else {}
        progress = await self.counting.database.transact(lambda ledger: tuple(ledger.progress(request.id)))
        return self._shown(request, progress, left)

    def _open(self, request: Request) -> bool:
        return request.open(self.counting.endings(), self.counting.policy.resubmit_request_age)

    def _shown(
        self, request: Request, progress: tuple[Progress, ...], left: Mapping[ServerName, Left]
    ) -> Shown:
        return Shown(
            request=request,
            open=self._open(request),
            progress=progress,
            left=left,
            rates=self._rates(request, progress),
            having=tuple(self.having(request)),
        )

    def _rates(
        self, request: Request, progress: Sequence[Progress]
    ) -> dict[tuple[ServerName, ServerName], float]:
        """How fast each part is, from what was seen of it before in the last minute."""
        now, found = self.counting.clock(), {}
        looked = self._looked.get(request.id)
        for one in progress:
            key = (one.request, one.node, one.owner)
            if key not in self._seen:  # it had made nothing at the look before
                self._seen[key] = [(looked, 0)] if looked else []
            seen = self._seen[key] = [(at, made) for at, made in self._seen[key] if now - at < _PACE]
            if seen and now > seen[0][0]:
                at, made = seen[0]
                found[one.node, one.owner] = max(0, one.made - made) / (now - at).total_seconds()
            if not seen or now - seen[-1][0] >= timedelta(seconds=1):
                seen.append((now, one.made))
        self._looked[request.id] = now
        return found

    async def figures(self) -> Figures:
        """For metrics. What is left takes a second to count: it is counted in the background, and may be half
        a minute old.
        """
        name, now = self.counting.name, self.counting.clock()
        shown = await self.all()
        own = [part for one in shown for part in one.progress if part.node == name]
        skipped: dict[Skipped, int] = dict.fromkeys(Skipped, 0)
        for part in own:
            for cause, count in part.skipped:
                skipped[cause] += count
        opened = [one.request for one in shown if one.open]
        idle = self._leaving is None or self._leaving.done()
        if opened and idle and (self._left is None or now - self._left[0] > _LEFT_AGE):
            self._leaving = asyncio.create_task(self._count_left(opened), name="what is left of requests")
        left = (self._left[1] if self._left else None) if opened else 0
        return Figures(len(opened), sum(part.made for part in own), skipped, left)

    async def _count_left(self, requests: Sequence[Request]) -> None:
        with suppress(DatabaseFailed):
            parts = [await self.counting.left_here(request) for request in requests]
            self._left = self.counting.clock(), sum(sum(part.values()) for part in parts)

    async def add(
        self, selector: Selector, gone: Sequence[ServerName], operator: str, reason: str
    ) -> Request:
        """Make a request. Raises CannotDo."""
        if not reason.strip():
            raise CannotDo("a request needs a reason: members and their logs show it")
        request = self.counting.request(selector, gone, operator, reason)
        try:
            record_from(Request, record_told(request))
        except Malformed as error:  # too long for a line between members
            raise CannotDo(f"the request cannot be given to members: {error}") from error
        policy, now = self.counting.policy, request.made_at
        result = await self.counting.database.transact(
            lambda ledger: ledger.apply(requesting.add(ledger, request, policy, now))
        )
        if isinstance(result, Declined):
            raise CannotDo(result.why)
        log.warning(
            "resubmit_request_added",
            request=result.id,
            number=result.number,
            operator=operator,
            reason=reason,
            selector=record_told(selector),
            gone=list(gone),
        )
        self.wake()
        return result

    async def change(
        self, request: Request, state: RequestState | None, operator: str, gone: Sequence[ServerName] = ()
    ) -> Request:
        """Pause, resume or remove a request (None: its state stays), or say that members are gone. Raises
        CannotDo.
        """
        counting = self.counting
        counting.request(request.selector, gone)  # checks the members
        now = counting.clock()
        after = await counting.database.transact(
            lambda ledger: ledger.apply(
                requesting.change(ledger, request.id, state, counting.name, now, operator, gone=tuple(gone))
            )
        )
        if after is None:
            raise NoSuchRequest(f"this node has no resubmit request {request.id} any more")
        if after.state is RequestState.REMOVED and state is not RequestState.REMOVED:
            raise CannotDo(f"request {after.number} was removed: that is final")
        log.warning(
            "resubmit_request_changed",
            request=after.id,
            number=after.number,
            operator=operator,
            state=after.state.value,
            gone=list(after.gone),
        )
        self.wake()
        return after
