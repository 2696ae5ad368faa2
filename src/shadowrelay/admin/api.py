"""Answers the node's HTTP API: what is on this node, in JSON, and metrics (docs/reference/api.md)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from importlib.metadata import version as installed
from time import monotonic
from typing import Any, TypeVar

import structlog
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from shadowrelay.admin import render
from shadowrelay.admin.access import Access, access_by
from shadowrelay.admin.answering import PRIVATE, Answers, json_response, no_route
from shadowrelay.admin.body import session_of
from shadowrelay.admin.cluster import ClusterRoutes
from shadowrelay.admin.cluster_settings import SettingsRoutes
from shadowrelay.admin.confirming import TimeRoutes
from shadowrelay.admin.events import EventRoutes
from shadowrelay.admin.guard import RequestRefused, page_limit
from shadowrelay.admin.jobs import JobRoutes
from shadowrelay.admin.looking import Looking
from shadowrelay.admin.metrics import Metrics, Scrape
from shadowrelay.admin.node import MemberState, RunningNode
from shadowrelay.admin.openapi import document
from shadowrelay.admin.paging import paged
from shadowrelay.admin.redirect import RedirectRoutes
from shadowrelay.admin.redundancy import RedundancyRoutes
from shadowrelay.admin.reloading import MemberRoutes, ReloadRoutes
from shadowrelay.admin.resubmit import ResubmitRoutes
from shadowrelay.admin.server import LIVE
from shadowrelay.admin.sessions import SessionRoutes
from shadowrelay.core.identifiers import MessageId, ServerName
from shadowrelay.database import views
from shadowrelay.database.ledger import SqlLedger
from shadowrelay.database.queue_views import depths
from shadowrelay.database.views import MessageState
from shadowrelay.operator.drop import drop
from shadowrelay.operator.resume import resume
from shadowrelay.shown.records import RetiredAnswer
from shadowrelay.shown.rendering import rendered

T = TypeVar("T")
_log = structlog.get_logger(__name__)
NOBODY_TO_TELL = "its sender is unknown. If no member has a good copy, it can be dropped"


def build_app(
    node: RunningNode,
    *,
    token: str | None = None,
    access: Access | None = None,
    clock: Callable[[], datetime] | None = None,
) -> Starlette:
    """The application for one node. All routes but the health checks require a token of ``access``, or
    ``token`` alone.
    """
    api = _Api(node, access or access_by(token), clock or (lambda: datetime.now(UTC)))
    routes = [
        Route("/api/v1/status", api.reads(api.status)),
        Route("/api/v1/queues", api.reads(api.queues)),
        Route("/api/v1/messages", api.reads(api.messages)),
        Route("/api/v1/messages/{id}", api.reads(api.message)),
        Route("/api/v1/shadow-queues", api.reads(api.shadow_queues)),
        Route("/api/v1/peers", api.reads(api.peers)),
        Route("/api/v1/messages/{id}/resume", api.changes(api.resume), methods=["POST"]),
        Route("/api/v1/messages/{id}/bounce", api.changes(api.bounce), methods=["POST"]),
        Route("/api/v1/messages/{id}/drop", api.changes(api.drop), methods=["POST"]),
        Route("/api/v1/peers/{name}/retire", api.changes(api.retire), methods=["POST"]),
        Route("/api/v1/drain", api.reads(api.drain)),
        Route("/api/v1/drain/begin", api.changes(api.begin_drain), methods=["POST"]),
        Route("/api/v1/drain/end", api.changes(api.end_drain), methods=["POST"]),
        Route("/api/v1/scrub", api.reads(api.scrub)),
        Route("/api/v1/scrub", api.changes(api.begin_scrub), methods=["POST"]),
        Route("/api/v1/scrub", api.changes(api.end_scrub), methods=["DELETE"]),
        *_resubmit_routes(api, ResubmitRoutes(lambda: node.resubmission, api.clock)),
        *_redirect_routes(api, RedirectRoutes(node)),
        *_redundancy_routes(api, RedundancyRoutes(node)),
        api.read("/api/v1/settings", SettingsRoutes(node).show),
        api.change("/api/v1/settings", SettingsRoutes(node).change),
        api.read("/api/v1/time", TimeRoutes(node).show),
        api.change("/api/v1/time/confirm", TimeRoutes(node).confirm),
        *SessionRoutes(api).routes(),
        api.change("/api/v1/reload", ReloadRoutes(node).reload),
        *JobRoutes(api).routes(),
        api.read("/api/v1/members", MemberRoutes(node).list),
        api.change("/api/v1/members", MemberRoutes(node).announce),
        *_cluster_routes(api, ClusterRoutes(node)),
        Route("/api/v1/events", api.reads(EventRoutes(node).stream)),
        api.read("/api/v1/openapi.json", api.openapi),
        Route("/metrics", api.reads(api.metrics)),
        Route(LIVE, api.live),
        Route("/healthz/ready", api.ready),
    ]
    app = Starlette(routes=routes, exception_handlers={HTTPException: no_route})
    app.router.redirect_slashes = False  # a path that is not there is 404, and nothing else
    api.routes = app.routes
    return app


def _resubmit_routes(api: Answers, of: ResubmitRoutes) -> list[Route]:
    base = "/api/v1/resubmit"
    return [
        api.read(base, of.list),
        api.change(base, of.add),
        api.change(f"{base}/preview", of.preview),
        api.read(f"{base}/{{id}}", of.show),
        api.change(f"{base}/{{id}}/pause", of.pause),
        api.change(f"{base}/{{id}}/resume", of.resume),
        api.change(f"{base}/{{id}}/remove", of.remove),
        api.change(f"{base}/{{id}}/gone", of.gone),
        api.read("/api/v1/safety-net", of.safety_net),
    ]


def _redirect_routes(api: Answers, of: RedirectRoutes) -> list[Route]:
    base = "/api/v1/redirect"
    return [
        api.read(base, of.show),
        api.change(base, of.end, "DELETE"),
        api.change(f"{base}/{{name}}", of.begin),
    ]


def _redundancy_routes(api: Answers, of: RedundancyRoutes) -> list[Route]:
    base = "/api/v1/redundancy"
    return [api.read(base, of.show), api.change(base, of.turn)]


def _cluster_routes(api: Answers, of: ClusterRoutes) -> list[Route]:
    base = "/api/v1/cluster"
    return [
        api.read(f"{base}/status", of.status),
        api.read(f"{base}/queues", of.queues),
        api.read(f"{base}/queues/{{hop:path}}", of.queue),
        api.read(f"{base}/find", of.find),
        api.read(f"{base}/trace/{{id}}", of.trace),
    ]


class _Api(Answers):
    def __init__(self, node: RunningNode, access: Access, clock: Callable[[], datetime]) -> None:
        super().__init__(node, access)
        self.clock = clock
        self.routes: Sequence[BaseRoute] = ()
        self._looking = Looking(node, self.clock, monotonic)
        self._metrics = Metrics(installed("shadowrelay"))

    async def _ask(self, work: Callable[[SqlLedger], T]) -> T:
        return await self.node.database.transact(work)

    async def status(self, request: Request) -> Response:
        del request
        return json_response(await self._looking.status())

    async def queues(self, request: Request) -> Response:
        found = await self._looking.queues()
        return json_response(paged(request.query_params, found, "queues", "identity"))

    async def shadow_queues(self, request: Request) -> Response:
        found = await self._looking.shadow_queues()
        return json_response(paged(request.query_params, found, "shadow_queues", "identity"))

    async def messages(self, request: Request) -> Response:
        state, after, limit = _page_of(request)
        return json_response(await self._looking.messages(state, after, limit))

    async def message(self, request: Request) -> Response:
        wanted = request.path_params["id"].lower()
        found = await self._looking.message(wanted)
        if not isinstance(found, list):
            return json_response(found)
        if not found:
            raise RequestRefused(404, f"this node knows no message {wanted}; another node may have it")
        listed = ", ".join(found) + (", …" if len(found) == 5 else "")
        raise RequestRefused(400, f"several messages begin with {wanted}: {listed}")

    async def peers(self, request: Request) -> Response:
        del request
        seen = await self._ask(views.snapshot)
        return json_response({"peers": render.peers(self.node, seen)})

    async def retire(self, request: Request) -> Response:
        name = ServerName(request.path_params["name"].lower())
        peers = {peer.name: peer for peer in self.node.member_statuses()}
        known = await self._ask(lambda ledger: ledger.member(name))
        if name not in peers and known is None:
            raise RequestRefused(
                404, f"{name} is not a member here; the members are: {', '.join(peers) or 'none'}"
            )
        state = peers[name].state if name in peers else MemberState.NOT_CONFIGURED
        if state is MemberState.REACHABLE:
            raise RequestRefused(409, f"{name} answers: it is not gone. Stop it first")
        if state is MemberState.UNTRIED and not (known and known.retired):
            raise RequestRefused(409, f"{name} was not tried yet: wait for the first heartbeat")
        done = await self.node.retire(name, session_of(request).operator)
        to_do = f"The other members are told. Take {name} out of the settings."
        return json_response(rendered(RetiredAnswer, done, retired=True, did=done.told(), to_do=to_do))

    async def resume(self, request: Request) -> Response:
        wanted, now = MessageId(request.path_params["id"].lower()), self.clock()
        did = await self._ask(lambda ledger: resume(ledger, wanted, now))
        if did is None:
            raise RequestRefused(409, f"message {wanted} is not set aside on this node")
        _log.warning("message_resumed", message=wanted)
        return json_response({"id": wanted, "did": did})

    async def bounce(self, request: Request) -> Response:
        wanted = MessageId(request.path_params["id"].lower())
        if not await self.node.give_up(wanted):
            if await self._ask(lambda ledger: ledger.damaged(wanted)):
                raise RequestRefused(409, f"the rows of message {wanted} are damaged: {NOBODY_TO_TELL}")
            raise RequestRefused(409, f"message {wanted} is not set aside on this node")
        _log.warning("message_given_up", message=wanted)
        return json_response({"id": wanted, "did": "it failed; its sender is told, if it has one"})

    async def drop(self, request: Request) -> Response:
        wanted, now = MessageId(request.path_params["id"].lower()), self.clock()
        if not await self._ask(lambda ledger: drop(ledger, wanted, now)):
            if await self._ask(lambda ledger: ledger.damaged(wanted)):
                raise RequestRefused(409, f"members are still asked for a good copy of message {wanted}")
            raise RequestRefused(409, f"message {wanted} is not set aside for damaged rows on this node")
        _log.warning("message_dropped", message=wanted)
        return json_response(
            {"id": wanted, "did": "it is forgotten, and nobody was told; the tracking log has DROP"}
        )

    async def scrub(self, request: Request) -> Response:
        del request
        return json_response(render.scrub(self.node.scrub))

    async def begin_scrub(self, request: Request) -> Response:
        del request
        number = self.node.scrub.begin_at_once()
        return json_response({**render.scrub(self.node.scrub), "begun": number})

    async def end_scrub(self, request: Request) -> Response:
        del request
        self.node.scrub.go_on_slowly()
        return json_response(render.scrub(self.node.scrub))

    async def drain(self, request: Request) -> Response:
        del request
        return json_response(render.drain(self.node, await self.node.remains()))

    async def begin_drain(self, request: Request) -> Response:
        del request
        return json_response(render.drain(self.node, await self.node.begin_drain()))

    async def end_drain(self, request: Request) -> Response:
        del request
        return json_response(render.drain(self.node, await self.node.end_drain()))

    async def openapi(self, request: Request) -> dict[str, Any]:
        del request
        return await asyncio.to_thread(document, installed("shadowrelay"), self.routes)

    async def metrics(self, request: Request) -> Response:
        seen = await self._ask(views.snapshot)
        node = self.node
        measured = node.measures()
        scrape = Scrape(
            seen=seen,
            peers=tuple(node.member_statuses()),
            scrub=node.scrub,
            opened=node.database.opened,
            logins=node.login_counts(),
            extra_hops=node.extra_hops(),
            redundancy=node.redundancy_on(),
            clock_in_doubt=bool(node.clock.look().doubts),
            late=node.late(),
            commits=node.database.commits,
            resubmit=await node.resubmission.figures(),
            free=node.room.free,
            minimum_free=node.room.minimum,
            ready=node.ready()[0],
            started_at=node.started_at,
            now=self.clock(),
            hops={hop: node.hop_watch(hop) for hop in seen.hops},
            measures=measured,
            certificates=node.hand.certificates(),
            queues=await self._ask(lambda ledger: depths(ledger, measured.delivery.fixed)),
        )
        page, content_type = self._metrics.render(scrape, request.headers.get("accept", ""))
        return Response(page, headers={**PRIVATE, "content-type": content_type})

    async def live(self, request: Request) -> Response:
        del request
        alive = self.node.live()
        return json_response({"live": alive}, 200 if alive else 503)

    async def ready(self, request: Request) -> Response:
        del request
        ready, why = self.node.ready()
        told: dict[str, Any] = {"ready": ready, "reason": "" if ready else why}
        if warning := self.node.warning():
            told["warning"] = warning
        return json_response(told, 200 if ready else 503)


def _page_of(request: Request) -> tuple[MessageState, str, int]:
    given = request.query_params
    unknown = sorted(set(given) - {"state", "after", "limit"})
    if unknown:
        raise RequestRefused(400, f"unknown parameter {', '.join(unknown)}; known are state, after and limit")
    if given.get("state", MessageState.QUEUED) not in {*MessageState}:
        raise RequestRefused(400, f"state is one of {', '.join(MessageState)}")
    limit = page_limit(given)
    return MessageState(given.get("state", MessageState.QUEUED)), given.get("after", "").lower(), limit
