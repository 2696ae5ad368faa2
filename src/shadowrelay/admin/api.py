"""Answers the node's HTTP API: what is on this node, in JSON, and metrics (docs/reference/api.md)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from time import monotonic
from typing import Any, TypeVar

import structlog
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from shadowrelay import __version__
from shadowrelay.admin import asked, render
from shadowrelay.admin.access import Access, access_by
from shadowrelay.admin.answering import PRIVATE, Answers, json_response, no_route
from shadowrelay.admin.body import session_of
from shadowrelay.admin.cluster import ClusterRoutes
from shadowrelay.admin.cluster_settings import SettingsRoutes
from shadowrelay.admin.confirming import TimeRoutes
from shadowrelay.admin.events import EventRoutes
from shadowrelay.admin.guard import NO_SUCH_QUEUE, RequestRefused, page_limit
from shadowrelay.admin.jobs import JobRoutes
from shadowrelay.admin.metrics import Metrics, Scrape
from shadowrelay.admin.node import MemberState, RunningNode
from shadowrelay.admin.node_view import NodeView
from shadowrelay.admin.openapi import PAGE, DescribedRoute, Operation
from shadowrelay.admin.paging import paged
from shadowrelay.admin.redirect import RedirectRoutes
from shadowrelay.admin.redundancy import RedundancyRoutes
from shadowrelay.admin.reloading import MemberRoutes, ReloadRoutes
from shadowrelay.admin.resubmit import ResubmitRoutes
from shadowrelay.admin.server import LIVE
from shadowrelay.admin.sessions import SessionRoutes
from shadowrelay.core.identifiers import MessageId, ServerName
from shadowrelay.core.pressure import Inflow
from shadowrelay.database import views
from shadowrelay.database.ledger import SqlLedger
from shadowrelay.database.queue_views import depths
from shadowrelay.database.views import MessageState
from shadowrelay.operator.drop import drop
from shadowrelay.operator.resume import resume
from shadowrelay.shown import records
from shadowrelay.shown.messages import (
    DidAnswer,
    FoundAnswer,
    ListAnswer,
    MessageAnswer,
    MessagesPage,
    SafetyNetPage,
    TraceAnswer,
)
from shadowrelay.shown.nodes import (
    HopAnswer,
    QueuesAnswer,
    RatesAnswer,
    ReloadsAnswer,
    StatusesAnswer,
    TlsAnswer,
)
from shadowrelay.shown.queues import QueuesPage, ShadowQueuesPage
from shadowrelay.shown.records import RetiredAnswer
from shadowrelay.shown.status import (
    DrainEntry,
    LiveAnswer,
    OpenApiAnswer,
    PeersAnswer,
    ReadyAnswer,
    RedirectEntry,
    ReloadEntry,
    ScrubAnswer,
    StatusAnswer,
    TimeEntry,
)

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
        *api.about_node(),
        *api.about_messages(),
        *_resubmit_routes(api, ResubmitRoutes(lambda: node.resubmission, api.clock)),
        *_settled_routes(api, node),
        *JobRoutes(api).routes(),
        *_cluster_routes(api, ClusterRoutes(node)),
        *SessionRoutes(api).routes(),
        *api.about_process(),
    ]
    app = Starlette(routes=routes, exception_handlers={HTTPException: no_route})
    app.router.redirect_slashes = False  # a path that is not there is 404, and nothing else
    api.routes = app.routes
    return app


def _resubmit_routes(api: Answers, of: ResubmitRoutes) -> list[Route]:
    base = "/api/v1/resubmit"
    selector = dict.fromkeys(
        ("since", "until", "to", "sender", "recipient", "message_id", "network_message_id"), str
    )
    changed, asked_of = records.ResubmitChanged, asked.OperatorAsked
    return [
        api.read(
            "/api/v1/safety-net",
            of.safety_net,
            "Messages that may be resubmitted, page by page.",
            SafetyNetPage,
            query={**selector, **PAGE},
            statuses=(NO_SUCH_QUEUE,),
        ),
        api.read(base, of.list, "The resubmit requests.", records.ResubmitsPage, query=PAGE),
        api.change(
            base,
            of.add,
            "Bring delivered mail back from Safety Net.",
            changed,
            asked.ResubmitAsked,
            statuses=(NO_SUCH_QUEUE,),
        ),
        api.change(
            f"{base}/preview",
            of.preview,
            "What a request would do.",
            records.ResubmitPreview,
            asked.ResubmitPreviewAsked,
            statuses=(NO_SUCH_QUEUE,),
        ),
        api.read(f"{base}/{{id}}", of.show, "One request.", records.ResubmitEntry, statuses=(409,)),
        api.change(f"{base}/{{id}}/pause", of.pause, "Pause a request.", changed, asked_of),
        api.change(f"{base}/{{id}}/resume", of.resume, "Go on with a request.", changed, asked_of),
        api.change(f"{base}/{{id}}/remove", of.remove, "Remove a request.", changed, asked_of),
        api.change(
            f"{base}/{{id}}/gone",
            of.gone,
            "Say that a member is away for that request.",
            changed,
            asked.GoneAsked,
        ),
    ]


def _settled_routes(api: Answers, node: RunningNode) -> list[Route]:
    """What an operator settles for the node, or for all."""
    redundancy, time, redirect = RedundancyRoutes(node), TimeRoutes(node), RedirectRoutes(node)
    members, settings, switch = MemberRoutes(node), SettingsRoutes(node), records.RedundancyEntry
    moving = RedirectEntry
    return [
        api.read("/api/v1/redundancy", redundancy.show, "The switch of shadow redundancy.", switch),
        api.change(
            "/api/v1/redundancy",
            redundancy.turn,
            "Switch shadow redundancy for all members.",
            switch,
            asked.RedundancyAsked,
        ),
        api.read(
            "/api/v1/settings",
            settings.show,
            "The settings that may be set for all members.",
            records.SettingsAnswer,
        ),
        api.change(
            "/api/v1/settings",
            settings.change,
            "Set a setting for all members, or let each settings file count again.",
            records.SettingEntry,
            asked.SettingAsked,
        ),
        api.read("/api/v1/time", time.show, "What this node knows of the time.", TimeEntry),
        api.change(
            "/api/v1/time/confirm",
            time.confirm,
            "Say that the wall clock is right.",
            TimeEntry,
            asked.ReasonAsked,
        ),
        api.read("/api/v1/redirect", redirect.show, "The redirect that runs, or ran last.", moving),
        api.change("/api/v1/redirect/{name}", redirect.begin, "Move the queue to a member.", moving),
        api.change("/api/v1/redirect", redirect.end, "Stop the redirect.", moving, method="DELETE"),
        api.change(
            "/api/v1/reload",
            ReloadRoutes(node).reload,
            "Read the settings file again.",
            ReloadEntry | ReloadsAnswer,
            asked.ReloadAsked,
        ),
        api.read(
            "/api/v1/members", members.list, "The members, and where each is from.", records.MembersAnswer
        ),
        api.change(
            "/api/v1/members",
            members.announce,
            "Take a member that the authority announces.",
            records.AnnouncedAnswer,
            asked.AnnounceAsked,
        ),
    ]


def _cluster_routes(api: Answers, of: ClusterRoutes) -> list[Route]:
    base = "/api/v1/cluster"
    return [
        api.read(f"{base}/status", of.status, "How all nodes are.", StatusesAnswer),
        api.read(f"{base}/queues", of.queues, "The queues of all nodes.", QueuesAnswer),
        api.read(f"{base}/rates", of.rates, "What came at all nodes, second by second.", RatesAnswer),
        api.read(f"{base}/tls", of.tls, "What became of TLS with next hops, at all nodes.", TlsAnswer),
        api.read(
            f"{base}/queues/{{hop:path}}",
            of.queue,
            "One next hop, as each node sees it.",
            HopAnswer,
            statuses=(400, NO_SUCH_QUEUE),
        ),
        api.read(
            f"{base}/find",
            of.find,
            "Messages on all nodes, page by page.",
            FoundAnswer,
            query={"q": str, **PAGE},
        ),
        api.read(
            f"{base}/messages/{{id}}",
            of.message,
            "All that is known of a message where most is known: at its owner, if that answers.",
            MessageAnswer,
            statuses=(400,),
        ),
        api.read(
            f"{base}/messages",
            of.listed,
            "The messages of all nodes in a state, sorted, page by page.",
            ListAnswer,
            query={"state": str, "sort": str, "before": str, **PAGE},
        ),
        api.read(
            f"{base}/trace/{{id}}",
            of.trace,
            "The life of a message over all nodes.",
            TraceAnswer,
            query={"after": str},
        ),
    ]


class _Api(Answers):
    def __init__(self, node: RunningNode, access: Access, clock: Callable[[], datetime]) -> None:
        super().__init__(node, access)
        self.clock = clock
        self.routes: Sequence[BaseRoute] = ()
        self._view = NodeView(node, self.clock, monotonic)
        self._metrics = Metrics(__version__)

    def about_node(self) -> list[Route]:
        v1 = "/api/v1"
        return [
            self.read(f"{v1}/status", self.status, "How this node is.", StatusAnswer),
            self.read(f"{v1}/queues", self.queues, "The queues.", QueuesPage, query=PAGE),
            self.read(
                f"{v1}/shadow-queues",
                self.shadow_queues,
                "Copies for other members.",
                ShadowQueuesPage,
                query=PAGE,
            ),
            self.read(f"{v1}/peers", self.peers, "The other members.", PeersAnswer),
            self.change(
                f"{v1}/peers/{{name}}/retire",
                self.retire,
                "Say that a member is gone for good.",
                RetiredAnswer,
            ),
            self.read(f"{v1}/drain", self.drain, "What is left of a drain.", DrainEntry),
            self.change(f"{v1}/drain/begin", self.begin_drain, "Begin to empty this node.", DrainEntry),
            self.change(f"{v1}/drain/end", self.end_drain, "End the drain.", DrainEntry),
            self.read(f"{v1}/scrub", self.scrub, "The scrub of what is kept.", ScrubAnswer),
            self.change(f"{v1}/scrub", self.begin_scrub, "Read all that is kept now.", ScrubAnswer),
            self.change(
                f"{v1}/scrub", self.end_scrub, "Go on at the usual pace.", ScrubAnswer, method="DELETE"
            ),
        ]

    def about_messages(self) -> list[Route]:
        base = "/api/v1/messages"
        return [
            self.read(
                base,
                self.messages,
                "Messages by state, page by page.",
                MessagesPage,
                query={"state": MessageState, **PAGE},
            ),
            self.read(
                f"{base}/{{id}}",
                self.message,
                "All that this node knows of a message; a beginning of its id is enough.",
                MessageAnswer,
                statuses=(400,),
            ),
            self.change(
                f"{base}/{{id}}/resume", self.resume, "Try a message that was set aside again.", DidAnswer
            ),
            self.change(
                f"{base}/{{id}}/bounce", self.bounce, "Give a message that was set aside up.", DidAnswer
            ),
            self.change(
                f"{base}/{{id}}/drop", self.drop, "Forget a message whose rows are damaged.", DidAnswer
            ),
        ]

    def about_process(self) -> list[Route]:
        """What is read by machines."""
        live = Operation("Whether the process lives.", LiveAnswer, open=True)
        ready = Operation("Whether the node takes mail.", ReadyAnswer, open=True)
        return [
            self.read(
                "/api/v1/events",
                EventRoutes(self.node).stream,
                "Tracking events as they are committed: server-sent events without end.",
                str,
                query={"after": str, "event": str},
                content="text/event-stream",
            ),
            self.read("/api/v1/openapi.json", self.openapi, "This document.", OpenApiAnswer),
            self.read("/metrics", self.metrics, "Metrics for Prometheus.", str, content="text/plain"),
            DescribedRoute(LIVE, self.live, live),
            DescribedRoute("/healthz/ready", self.ready, ready),
        ]

    async def _ask(self, work: Callable[[SqlLedger], T]) -> T:
        return await self.node.database.transact(work)

    async def status(self, request: Request) -> Response:
        del request
        return json_response(await self._view.status())

    async def queues(self, request: Request) -> Response:
        found = await self._view.queues()
        return json_response(paged(request.query_params, found, "queues", "identity"))

    async def shadow_queues(self, request: Request) -> Response:
        found = await self._view.shadow_queues()
        return json_response(paged(request.query_params, found, "shadow_queues", "identity"))

    async def messages(self, request: Request) -> Response:
        state, after, limit = _page_of(request)
        return json_response(await self._view.messages(state, after, limit))

    async def message(self, request: Request) -> Response:
        wanted = request.path_params["id"].lower()
        found = await self._view.message(wanted)
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

    async def retire(self, request: Request) -> RetiredAnswer:
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
        return await self.node.retire(name, session_of(request).operator)

    async def resume(self, request: Request) -> Response:
        wanted, now = MessageId(request.path_params["id"].lower()), self.clock()
        operator = session_of(request).operator
        did = await self._ask(lambda ledger: resume(ledger, wanted, now, operator))
        if did is None:
            raise RequestRefused(409, f"message {wanted} is not set aside on this node")
        _log.warning("message_resumed", message=wanted, operator=operator)
        return json_response({"id": wanted, "did": did})

    async def bounce(self, request: Request) -> Response:
        wanted = MessageId(request.path_params["id"].lower())
        operator = session_of(request).operator
        if not await self.node.give_up(wanted, operator):
            if await self._ask(lambda ledger: ledger.damaged(wanted)):
                raise RequestRefused(409, f"the rows of message {wanted} are damaged: {NOBODY_TO_TELL}")
            raise RequestRefused(409, f"message {wanted} is not set aside on this node")
        _log.warning("message_given_up", message=wanted, operator=operator)
        return json_response({"id": wanted, "did": "it failed; its sender is told, if it has one"})

    async def drop(self, request: Request) -> Response:
        wanted, now = MessageId(request.path_params["id"].lower()), self.clock()
        operator = session_of(request).operator
        if not await self._ask(lambda ledger: drop(ledger, wanted, now, operator)):
            if await self._ask(lambda ledger: ledger.damaged(wanted)):
                raise RequestRefused(409, f"members are still asked for a good copy of message {wanted}")
            raise RequestRefused(409, f"message {wanted} is not set aside for damaged rows on this node")
        _log.warning("message_dropped", message=wanted, operator=operator)
        return json_response(
            {"id": wanted, "did": "it is forgotten, and nobody was told; the tracking log has DROP"}
        )

    async def scrub(self, request: Request) -> Response:
        del request
        return json_response(render.scrub(self.node.scrub))

    async def begin_scrub(self, request: Request) -> Response:
        number = self.node.scrub.begin_at_once(session_of(request).operator)
        return json_response({**render.scrub(self.node.scrub), "begun": number})

    async def end_scrub(self, request: Request) -> Response:
        del request
        self.node.scrub.go_on_slowly()
        return json_response(render.scrub(self.node.scrub))

    async def drain(self, request: Request) -> Response:
        del request
        return json_response(await self._view.drain(await self.node.remains()))

    async def begin_drain(self, request: Request) -> Response:
        return json_response(
            await self._view.drain(await self.node.begin_drain(session_of(request).operator))
        )

    async def end_drain(self, request: Request) -> Response:
        return json_response(await self._view.drain(await self.node.end_drain(session_of(request).operator)))

    async def openapi(self, request: Request) -> dict[str, Any]:
        del request
        return await self.described(lambda: self.routes)

    async def metrics(self, request: Request) -> Response:
        seen = await self._ask(views.snapshot)
        node = self.node
        measured = node.measures()
        scrape = Scrape(
            seen=seen,
            peers=tuple(node.member_statuses()),
            at_risk=sum(one.messages for one in render.at_risk(node, seen, self.clock())),
            scrub=node.scrub,
            opened=node.database.opened,
            logins=node.login_counts(),
            held_back=node.held_back_counts(),
            filters=node.filters(),
            back_offs=node.back_offs(),
            tls=node.tls_results.counts,
            tls_reports=node.tls_reports.counts,
            pressures=node.pressures(),
            pressed={one.name.lower(): node.room.refused[one] for one in Inflow if one}
            | {"delayed": node.room.delayed},
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
            certificates=node.services.certificates(),
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
