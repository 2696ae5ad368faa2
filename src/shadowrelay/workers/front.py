"""The admin address of a node of several workers (docs/reference/api.md).

The front answers what the node as a whole knows: its workers, metrics, health and sessions, and what is asked
of all workers. All else goes to one worker. The front touches no mail and no database.
"""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from shadowrelay.admin.access import Access, cookie_name
from shadowrelay.admin.answering import PRIVATE, Guarded, Handler, json_response, no_route, refusal
from shadowrelay.admin.body import body_of, octets_of
from shadowrelay.admin.front_session import handing
from shadowrelay.admin.guard import FORM, RequestRefused, check_host, kind_of, page_limit
from shadowrelay.admin.openapi import DescribedRoute, Operation
from shadowrelay.admin.paging import paged
from shadowrelay.admin.server import LIVE, bind, serve
from shadowrelay.admin.sessions import SessionRoutes
from shadowrelay.core.identifiers import ServerName
from shadowrelay.core.tracking_row import timestamp
from shadowrelay.settings import Settings
from shadowrelay.settings.outputs import tokens_of
from shadowrelay.shown.fold import fold
from shadowrelay.shown.messages import kept_together, together
from shadowrelay.shown.nodes import WorkerEntry, WorkersAnswer
from shadowrelay.shown.queues import QueuesLook, QueuesPage, ShadowQueuesPage
from shadowrelay.shown.reading import read
from shadowrelay.shown.records import RedundancyEntry
from shadowrelay.shown.status import (
    DrainEntry,
    PeersAnswer,
    RedirectEntry,
    ReloadEntry,
    ScrubAnswer,
    StatusAnswer,
    TimeEntry,
)
from shadowrelay.workers.node_events import NodeEvents
from shadowrelay.workers.proxy import PATIENCE, QUICK, Call, WorkerProxy, WorkerReply, call_of
from shadowrelay.workers.worker import WorkerState

READY = "/healthz/ready"
SCRAPE = 5.0
"""Seconds that a worker may take for its metrics: a scraper waits for ten by default."""

PLAIN = "text/plain; version=0.0.4"
"""The format in which workers are asked for their metrics."""

_LOOKING = 10.0
"""Seconds that a worker may take to look for a message."""

_NOT_THIS_ONE = frozenset({404, 409})
_MESSAGES = "/api/v1/messages"

_METHODS = ["GET", "POST", "DELETE", "PUT", "PATCH", "OPTIONS"]
_OF_ONE = re.compile(rb"/api/v1/workers/[0-9]+(/.*)")


class Supervising(Protocol):
    """The supervisor, as the front knows it."""

    def workers(self) -> Sequence[WorkerState]: ...

    async def reload(self) -> Sequence[str]:
        """Read the settings again; returns what is wrong with them."""
        ...


class Fronting:
    """Binds the address when it is made: raises NodeFailed. ``take`` takes other tokens. ``stop``: serves
    until then.
    """

    def __init__(self, settings: Settings, supervisor: Supervising, stop: asyncio.Event) -> None:
        self._stop = stop
        self._access = Access(tuple(tokens_of(settings.admin)))
        self._app, self._proxy = build_front(ServerName(settings.name), self._access, supervisor, stop)
        self._listening: socket.socket = bind(settings.admin.listen.host, settings.admin.listen.port)

    def take(self, settings: Settings) -> None:
        self._access.replace(tuple(tokens_of(settings.admin)))

    async def run(self) -> None:
        try:
            await serve(self._app, self._listening, self._stop)
        finally:
            await self._proxy.close()


def build_front(
    name: ServerName, access: Access, supervisor: Supervising, stop: asyncio.Event
) -> tuple[Starlette, WorkerProxy]:
    """The application for the node of that name, and what asks its workers: to be closed at the end. Streams
    end when ``stop`` is set.
    """
    proxy = WorkerProxy(supervisor.workers)
    front = Front(name, access, supervisor, proxy, stop)
    app = Starlette(routes=front.routes(), exception_handlers={HTTPException: no_route})
    app.router.redirect_slashes = False
    return app, proxy


class Front(Guarded):
    """The handlers. A request with a session reaches a worker with the session's name and scope."""

    def __init__(
        self,
        name: ServerName,
        access: Access,
        supervisor: Supervising,
        proxy: WorkerProxy,
        stop: asyncio.Event,
    ) -> None:
        super().__init__(lambda: name, access)
        self._stop = stop
        self._supervisor = supervisor
        self._proxy = proxy
        self._sessions = SessionRoutes(self)

    def own_routes(self) -> list[Route]:
        """What the front answers by itself, or asks of all workers. Workers describe what they answer too."""
        v1 = "/api/v1"
        return [
            Route(LIVE, self._live),
            Route(READY, self._ready),
            Route("/metrics", self.reads(self._scraped)),
            Route("/login", self._begin_session, methods=["POST"]),
            Route("/logout", self._sessions.logout, methods=["POST"]),
            self.read(f"{v1}/workers", self._workers, "The workers of a node of several.", WorkersAnswer),
            self.read(f"{v1}/workers/{{number}}", self._worker, "One worker.", WorkerEntry),
            *(self._of_worker(method) for method in ("GET", "POST", "DELETE")),
            Route(f"{v1}/openapi.json", self.reads(self._openapi)),
            Route(f"{v1}/events", self.reads(self._events)),
            self._all_read(f"{v1}/status", StatusAnswer),
            self._all_list(f"{v1}/queues", "queues", QueuesPage),
            self._all_list(f"{v1}/shadow-queues", "shadow_queues", ShadowQueuesPage),
            self._all_read(f"{v1}/peers", PeersAnswer),
            self._all_read(f"{v1}/drain", DrainEntry),
            self._all_change(f"{v1}/drain/begin", DrainEntry),
            self._all_change(f"{v1}/drain/end", DrainEntry),
            self._all_read(f"{v1}/scrub", ScrubAnswer),
            self._all_change(f"{v1}/scrub", ScrubAnswer),
            self._all_change(f"{v1}/scrub", ScrubAnswer, "DELETE"),
            self._all_read(f"{v1}/redirect", RedirectEntry),
            self._all_change(f"{v1}/redirect", RedirectEntry, "DELETE"),
            self._all_change(f"{v1}/redirect/{{name}}", RedirectEntry),
            self._all_read(f"{v1}/redundancy", RedundancyEntry),
            self._all_read(f"{v1}/time", TimeEntry),
            self._all_change(f"{v1}/time/confirm", TimeEntry),
            Route(f"{v1}/reload", self.changes(self._reload), methods=["POST"]),
            *MessageRoutes(self, self._proxy, self._call).routes(),
        ]

    def _of_worker(self, method: str) -> Route:
        told = Operation(
            "What one worker answers at that path of the API.",
            Any,
            body=dict[str, Any] if method == "POST" else None,
            statuses=(400, 409),
        )
        return DescribedRoute("/api/v1/workers/{number}/{path:path}", self._of_one, told, method)

    def routes(self) -> list[Route]:
        return [
            *self.own_routes(),
            *(Route(f"/node/{act}", self._form_for_all, methods=["POST"]) for act in ("drain", "undrain")),
            Route("/{path:path}", self._pass, methods=_METHODS),
        ]

    # Health and metrics

    async def _live(self, request: Request) -> Response:
        del request
        return json_response({"live": True})

    async def _ready(self, request: Request) -> Response:
        """The node takes mail while one of its workers does."""
        del request
        call = Call(method="GET", target=READY.encode(), headers=())
        said = await self._proxy.to_all(call, QUICK)
        ready = any(one.done for one in said)
        away = [
            f"worker {one.worker.number}: {one.json.get('reason') or one.sentence}"
            for one in said
            if not one.done
        ]
        warnings = [str(one.json["warning"]) for one in said if one.done and one.json.get("warning")]
        told: dict[str, Any] = {
            "ready": ready,
            "reason": "" if ready else "; ".join(away) or "the node starts",
        }
        if ready and (away or warnings):
            told["warning"] = "; ".join(dict.fromkeys([*away, *warnings]))
        return json_response(told, 200 if ready else 503)

    async def _scraped(self, request: Request) -> Response:
        """The metrics of all workers, each with its number as a label: who scrapes them adds them up."""
        asked = self._call(request, target=b"/metrics")
        kept = [(key, value) for key, value in asked.headers if not key.startswith(b"accept")]
        call = Call(method="GET", target=asked.target, headers=[*kept, (b"accept", PLAIN.encode())])
        workers = self._supervisor.workers()
        pages = await asyncio.gather(*(self._page(one, call) for one in workers))
        page, content_type = await asyncio.to_thread(
            metrics_of, list(zip(workers, pages, strict=True)), request.headers.get("accept", "")
        )
        return Response(page, headers={**PRIVATE, "content-type": content_type})

    async def _page(self, worker: WorkerState, call: Call) -> str:
        if worker.state not in ("serving", "leaving"):  # one that starts may be silent for long
            return ""
        said = await self._proxy.read(worker, call, SCRAPE)
        return said.body.decode("utf-8", "replace") if said.done else ""

    # Workers

    async def _workers(self, request: Request) -> dict[str, Any]:
        del request
        return {"name": self.name, "workers": [_shown(one) for one in self._supervisor.workers()]}

    async def _worker(self, request: Request) -> dict[str, Any]:
        return _shown(self._numbered(request))

    def _numbered(self, request: Request) -> WorkerState:
        number = request.path_params["number"]
        if not (number.isascii() and number.isdigit() and len(number) < 4):
            raise RequestRefused(404, "a worker is called by its number, from 1")
        return self._proxy.numbered(int(number))

    async def _of_one(self, request: Request) -> Response:
        """The worker checks who asks as well: it knows what is asked."""

        async def answered(request: Request) -> Response:
            self._identify(request)
            check_host(request.headers, self.name, anybody=self.access.open)
            worker = self._numbered(request)
            rest = _OF_ONE.fullmatch(request.scope.get("raw_path") or b"")
            if rest is None:
                raise RequestRefused(404, f"there is nothing at {request.url.path}")
            query: bytes = request.scope["query_string"]
            target = b"/api/v1" + rest[1] + (b"?" + query if query else b"")
            call = self._call(request, await octets_of(request), target)
            return await self._proxy.to(worker, call)

        return await self._answered(answered, _refused)(request)

    async def _openapi(self, request: Request) -> Response:
        own = await self.described(self.own_routes)
        try:
            said = await self._first(self._call(request))
        except RequestRefused:
            return json_response(own)
        found = said.json
        schemas = {**found["components"]["schemas"], **own["components"]["schemas"]}
        components = {**found["components"], "schemas": schemas}
        paths = {**found["paths"], **own["paths"]}
        return json_response({**found, "paths": paths, "components": components})

    async def _events(self, request: Request) -> Response:
        """The tracking events of all workers, as one stream."""
        after = request.headers.get("last-event-id") or request.query_params.get("after", "")
        call = self._call(request)
        headers = [(key, value) for key, value in call.headers if key != b"last-event-id"]
        return await NodeEvents(self._proxy, replace(call, headers=headers), after, self._stop).begun()

    async def _first(self, call: Call) -> WorkerReply:
        for worker in self._proxy.order():
            said = await self._proxy.read(worker, call, SCRAPE)
            if said.done:
                return said
        raise RequestRefused(503, self._proxy.nobody())

    # What is asked of all workers

    def _all_read(self, path: str, model: type) -> Route:
        return Route(path, self.reads(self._of_all(model)))

    def _all_change(self, path: str, model: type, method: str = "POST") -> Route:
        return Route(path, self.changes(self._of_all(model)), methods=[method])

    def _all_list(self, path: str, of: str, page: type) -> Route:
        """A list of the queues of all workers, of which each is asked for all: the front cuts the pages."""

        async def listed(request: Request) -> Response:
            said = await self._proxy.to_all(self._call(request, target=path.encode()), _LOOKING)
            if not (answer := self._fold(QueuesLook, said, page)):
                return self._none(said)
            silent = [one.sentence for one in said if not one.done]
            shown = paged(request.query_params, answer, of, "identity")
            return json_response({**shown, "silent": silent} if silent else shown)

        return Route(path, self.reads(listed))

    def _of_all(self, model: type) -> Handler:
        async def asked(request: Request) -> Response:
            call = self._call(request, await octets_of(request))
            within = PATIENCE if call.changes else _LOOKING
            return self._folded(model, await self._proxy.to_all(call, within))

        return asked

    def _folded(self, model: type, said: Sequence[WorkerReply]) -> Response:
        """One answer of all that did it, and of each."""
        if answer := self._fold(model, said):
            return json_response({**answer, "workers": [_of_each(one) for one in said]})
        return self._none(said)

    def _fold(self, model: type, said: Sequence[WorkerReply], page: type | None = None) -> Any:
        """What those that did it answer, as one; empty if none did. ``page``: what each answers, if it is but
        a part of the model.
        """
        done: list[Any] = [read(page or model, one.json) for one in said if one.done]
        return fold(model, done, self.name, silent=len(said) - len(done))

    def _none(self, said: Sequence[WorkerReply]) -> Response:
        """None of them did it: what the first says that says something."""
        for one in said:
            if one.body:
                return _as_said(one)
        raise RequestRefused(503, self._proxy.nobody())

    async def _reload(self, request: Request) -> Response:
        """All workers read the file, and the supervisor: it alone takes another number of workers."""
        octets = await octets_of(request)
        asked = await body_of(_again(request, octets), {"dry_run", "cluster", "operator"})
        call = self._call(request, octets)
        if asked.get("cluster") is True:
            said = [await self._first_of_all(call)]
            answer = _as_said(said[0])
        else:
            said = await self._proxy.to_all(call)
            answer = self._folded(ReloadEntry, said)
        if any(one.done for one in said) and asked.get("dry_run") is not True:
            await self._supervisor.reload()
        return answer

    async def _first_of_all(self, call: Call) -> WorkerReply:
        """A reload of the cluster reaches the siblings as members: one worker is asked."""
        for worker in self._proxy.order():
            said = await self._proxy.read(worker, call, 60.0)
            if said.body:
                return said
        raise RequestRefused(503, self._proxy.nobody())

    async def _form_for_all(self, request: Request) -> Response:
        """A form of the console that is for the whole node; the first worker's answer counts."""

        async def answered(request: Request) -> Response:
            call = self._call(request, await octets_of(request))
            said = [one for one in await self._proxy.to_all(call) if one.body or one.status < 400]
            if not said:
                raise RequestRefused(503, self._proxy.nobody())
            headers = {k: v for k, v in said[0].headers.items() if k in ("location", "content-type")}
            return Response(said[0].body, said[0].status, {**PRIVATE, **headers})

        return await self._answered(answered, _refused)(request)

    # Sessions, and all else

    async def _begin_session(self, request: Request) -> Response:
        """A session is the front's, so it outlives a worker. A form that is refused is a page of a worker."""

        async def answered(request: Request) -> Response:
            octets = await octets_of(request)
            response = await self._sessions.login(_again(request, octets))
            if response.status_code < 400 or kind_of(request.headers) != FORM:
                return response
            return await self._proxy.to_one(self._call(request, octets))

        return await self._answered(answered, _refused)(request)

    async def _pass(self, request: Request) -> Response:
        async def answered(request: Request) -> Response:
            call = self._call(request, await octets_of(request))
            try:
                return await self._proxy.to_one(call)
            except RequestRefused as refused:
                try:
                    self._identify(request)
                except RequestRefused:  # a stranger hears nothing about workers
                    raise RequestRefused(refused.status, "no worker of this node answers now") from None
                raise

        return await self._answered(answered, _refused)(request)

    def _call(self, request: Request, body: bytes = b"", target: bytes = b"") -> Call:
        return call_of(request, body, self._handed(request), target)

    def _handed(self, request: Request) -> bytes | None:
        """Who asks, if a session says so. A bearer token goes on as it is: the worker looks at it itself."""
        if request.headers.get("authorization") and not self.access.open:
            return None
        try:
            return handing(self.access.who("", request.cookies.get(cookie_name(self.name), "")))
        except RequestRefused:
            return None


class MessageRoutes:
    """The handlers. ``call``: a request as a worker is to see it, with that body."""

    def __init__(self, guarded: Guarded, proxy: WorkerProxy, call: Callable[[Request, bytes], Call]) -> None:
        self._guarded, self._proxy, self._call = guarded, proxy, call

    def routes(self) -> list[Route]:
        reads, changes = self._guarded.reads, self._guarded.changes
        return [
            Route(_MESSAGES, reads(self._list(together))),
            Route("/api/v1/safety-net", reads(self._list(kept_together))),
            Route(f"{_MESSAGES}/{{id}}", reads(self._one)),
            *(
                Route(f"{_MESSAGES}/{{id}}/{verb}", changes(self._act), methods=["POST"])
                for verb in ("resume", "bounce", "drop")
            ),
        ]

    def _list(self, joined: Callable[[Mapping[str, Any], int], Any]) -> Handler:
        """The handler of a list of all workers, page by page."""

        async def listed(request: Request) -> Response:
            said = await self._proxy.to_all(self._call(request, b""), _LOOKING)
            if refused := next((one for one in said if one.body and not one.done), None):
                return _as_said(refused)
            pages = {one.worker.name: one.json for one in said if one.done}
            if not pages:
                raise RequestRefused(503, self._proxy.nobody())
            shown = joined(pages, page_limit(request.query_params))
            if silent := [one.sentence for one in said if not one.done]:
                shown["silent"] = silent
            return json_response(shown)

        return listed

    async def _one(self, request: Request) -> Response:
        said = await self._proxy.to_all(self._call(request, b""), _LOOKING)
        found = [one for one in said if one.done]
        ids = dict.fromkeys(str(one.json["id"]) for one in found)
        if len(ids) > 1:
            wanted = request.path_params["id"].lower()
            raise RequestRefused(400, f"several messages begin with {wanted}: {', '.join(ids)}")
        ambiguous = [one for one in said if one.status == 400]
        return self._best(ambiguous or found or list(said))

    async def _act(self, request: Request) -> Response:
        """One worker after another, until one has the message in the state that the verb is for."""
        call = self._call(request, await octets_of(request))
        said: list[WorkerReply] = []
        for worker in self._proxy.order():
            said.append(await self._proxy.read(worker, call, _LOOKING))
            if said[-1].body and said[-1].status not in _NOT_THIS_ONE:
                return _as_said(said[-1])
        return self._best(said)

    def _best(self, said: list[WorkerReply]) -> Response:
        """What was done, or the refusal that says most. That nobody has it, only all workers can say."""
        if silent := [one for one in said if not one.body]:
            if not any(one.done for one in said):
                told = "; ".join(one.sentence for one in silent)
                raise RequestRefused(503, f"no worker that answers has it, and not all answer: {told}")
        elif not said:
            raise RequestRefused(503, self._proxy.nobody())
        return _as_said(min(said, key=lambda one: (not one.done, one.status in _NOT_THIS_ONE)))


def _as_said(one: WorkerReply) -> Response:
    headers = {**PRIVATE, "content-type": one.headers.get("content-type", "application/json")}
    return Response(one.body, one.status, headers)


def metrics_of(scraped: Sequence[tuple[WorkerState, str]], accept: str) -> tuple[bytes, str]:
    """The page of metrics of these workers, made of their own pages, and its content type, in the format that
    the scraper accepts. Nothing is added up.
    """
    encode: Callable[[CollectorRegistry], bytes]
    encode, content_type = choose_encoder(accept)
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Families([*_of_front(scraped), *_labelled(scraped)]))
    return encode(registry), content_type


class _Families(Collector):
    def __init__(self, families: Sequence[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


def _of_front(scraped: Sequence[tuple[WorkerState, str]]) -> Iterator[Metric]:
    """What the front itself knows. A node of which no worker gives its metrics is not ready."""
    serving = GaugeMetricFamily(
        "shadowrelay_worker_serving",
        "1 while this worker of the node serves and answers; none of a worker that leaves or has left.",
        labels=["worker"],
    )
    restarts = CounterMetricFamily(
        "shadowrelay_worker_restarts",
        "Ends of this worker's process that nobody asked for, since the node's start.",
        labels=["worker"],
    )
    for worker, page in scraped:
        if worker.state not in ("leaving", "ended"):
            serving.add_metric([str(worker.number)], int(worker.state == "serving" and bool(page)))
        restarts.add_metric([str(worker.number)], worker.restarts)
    yield serving
    yield restarts
    if not any(page for _, page in scraped):
        yield GaugeMetricFamily("shadowrelay_ready", "1 while this node takes mail.", value=0)


def _labelled(scraped: Sequence[tuple[WorkerState, str]]) -> Iterable[Metric]:
    made: dict[str, Metric] = {}
    for worker, page in scraped:
        for family in text_string_to_metric_families(page):
            into = made.setdefault(family.name, Metric(family.name, family.documentation, family.type))
            for sample in family.samples:
                labels = {"worker": str(worker.number), **sample.labels}
                into.samples.append(Sample(sample.name, labels, sample.value))
    return made.values()


def _shown(worker: WorkerState) -> dict[str, Any]:
    return {
        "number": worker.number,
        "name": worker.name,
        "state": str(worker.state),
        "pid": worker.pid,
        "since": timestamp(worker.since),
        "restarts": worker.restarts,
        "why": worker.why,
    }


def _of_each(said: WorkerReply) -> dict[str, Any]:
    """What one worker answers, or why it does not."""
    return {
        **(said.json if said.done else {}),
        "worker": said.worker.number,
        "name": said.worker.name,
        "answers": said.done,
        "why": "" if said.done else said.sentence,
    }


def _again(request: Request, octets: bytes) -> Request:
    """The request with its body before it again."""

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": octets, "more_body": False}

    return Request(request.scope, receive)


def _refused(request: Request, refused: RequestRefused) -> Response:
    if "text/html" in request.headers.get("accept", ""):
        return PlainTextResponse(refused.sentence + "\n", refused.status, PRIVATE)
    return refusal(refused.status, refused.sentence, refused.details)
