"""Messages of a node of several workers: each is at one of them, and a client need not know at which."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from shadowrelay.admin.answering import PRIVATE, Guarded, Handler, json_response
from shadowrelay.admin.body import octets_of
from shadowrelay.admin.guard import RequestRefused, page_limit
from shadowrelay.admin.passing import Call, Passing, Said
from shadowrelay.shown.messages import kept_together, together

PATIENCE = 10.0
"""Seconds that a worker may take to look for a message."""

_NOT_THIS_ONE = frozenset({404, 409})
_BASE = "/api/v1/messages"


class MessageRoutes:
    """The handlers. ``call``: a request as a worker is to see it, with that body."""

    def __init__(self, guarded: Guarded, passing: Passing, call: Callable[[Request, bytes], Call]) -> None:
        self._guarded, self._passing, self._call = guarded, passing, call

    def routes(self) -> list[Route]:
        reads, changes = self._guarded.reads, self._guarded.changes
        return [
            Route(_BASE, reads(self._list(together))),
            Route("/api/v1/safety-net", reads(self._list(kept_together))),
            Route(f"{_BASE}/{{id}}", reads(self._one)),
            *(
                Route(f"{_BASE}/{{id}}/{verb}", changes(self._act), methods=["POST"])
                for verb in ("resume", "bounce", "drop")
            ),
        ]

    def _list(self, joined: Callable[[Mapping[str, Any], int], Any]) -> Handler:
        """The handler of a list of all workers, page by page."""

        async def listed(request: Request) -> Response:
            said = await self._passing.to_all(self._call(request, b""), PATIENCE)
            if refused := next((one for one in said if one.body and not one.done), None):
                return _as_said(refused)
            pages = {one.worker.name: one.json for one in said if one.done}
            if not pages:
                raise RequestRefused(503, self._passing.nobody())
            shown = joined(pages, page_limit(request.query_params))
            if silent := [one.sentence for one in said if not one.done]:
                shown["silent"] = silent
            return json_response(shown)

        return listed

    async def _one(self, request: Request) -> Response:
        said = await self._passing.to_all(self._call(request, b""), PATIENCE)
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
        said: list[Said] = []
        for worker in self._passing.order():
            said.append(await self._passing.read(worker, call, PATIENCE))
            if said[-1].body and said[-1].status not in _NOT_THIS_ONE:
                return _as_said(said[-1])
        return self._best(said)

    def _best(self, said: list[Said]) -> Response:
        """What was done, or the refusal that says most. That nobody has it, only all workers can say."""
        if silent := [one for one in said if not one.body]:
            if not any(one.done for one in said):
                told = "; ".join(one.sentence for one in silent)
                raise RequestRefused(503, f"no worker that answers has it, and not all answer: {told}")
        elif not said:
            raise RequestRefused(503, self._passing.nobody())
        return _as_said(min(said, key=lambda one: (not one.done, one.status in _NOT_THIS_ONE)))


def _as_said(one: Said) -> Response:
    headers = {**PRIVATE, "content-type": one.headers.get("content-type", "application/json")}
    return Response(one.body, one.status, headers)
