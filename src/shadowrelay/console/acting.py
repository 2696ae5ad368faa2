"""What an operator does from the console: a form with what it is about and a reason, then a job.

A form that is refused comes back as it was, with the reason beside its button.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from shadowrelay.admin.body import form_of, session_of
from shadowrelay.admin.guard import NO_SUCH_QUEUE, RequestRefused
from shadowrelay.admin.node import NodeServices, RunningNode
from shadowrelay.admin.sessions import local_path
from shadowrelay.console import filters
from shadowrelay.console.filters import about
from shadowrelay.console.pages import PageFrame
from shadowrelay.console.site import HEADERS
from shadowrelay.console.words import many, sentence
from shadowrelay.core.identifiers import NextHop
from shadowrelay.core.jobs import PAST, Filter, Verb
from shadowrelay.core.operating import Scope, Told
from shadowrelay.operator.queue_names import NoSuchQueue
from shadowrelay.operator.resubmit_estimate import CannotDo
from shadowrelay.shown.records import job_nodes

_MEANINGS = {
    Verb.RETRY: "The mail is tried now, also what waits for its next attempt.",
    Verb.SUSPEND: "The mail is not delivered until somebody resumes it, and it does not expire meanwhile.",
    Verb.RESUME: "The mail is delivered again, as soon as it is due.",
    Verb.REMOVE: "The mail is never delivered. A removal is final once every member that may hold a copy has "
    "heard of it; until then it is shown as pending.",
    Verb.BOUNCE: "The mail fails now, and its senders are told.",
}
_QUEUE_MEANINGS = {
    Verb.SUSPEND: "No member delivers to this next hop until somebody resumes the queue. Its mail does not "
    "expire meanwhile, and new mail for it is still accepted.",
    Verb.RESUME: "All members deliver to this next hop again.",
}


@dataclass(frozen=True, slots=True)
class _Order:
    """What a form is about. ``queue``: a queue as a whole, for what is done to queues and not to messages."""

    verb: Verb
    filter: Filter
    queue: NextHop | None
    hidden: Mapping[str, str]
    back: str


class JobPages:
    """Jobs, and the acts that make one."""

    def __init__(self, frame: PageFrame, node: RunningNode, clock: Callable[[], datetime]) -> None:
        self._frame, self._node, self._clock = frame, node, clock

    def routes(self) -> list[Route]:
        look, act = self._frame.look, self._frame.act
        return [
            look("/act", self._ask),
            act("/act", self._do),
            look("/jobs", self._list),
            look("/jobs/{id}", self._show),
            look("/jobs/{id}/stop", self._ask_stop),
            act("/jobs/{id}/stop", self._stop),
        ]

    @property
    def _services(self) -> NodeServices:
        return self._node.services

    async def suspensions(self, hop: str, operator: str = "") -> Sequence[Told]:
        """The suspensions in force that are about a next hop."""
        route = hop.partition("/")[0]
        found = await self._services.suspensions.all(operator)
        return [one for one in found if one["suspended"] and one["queue"] in (hop, route)]

    async def _ask(self, request: Request) -> Response:
        session_of(request).require(Scope.OPERATE)
        given = dict(request.query_params)
        order = _order(given, request.query_params.getlist("id"))
        return await self._form(request, order, given)

    async def _do(self, request: Request) -> Response:
        given = await form_of(request)
        order = _order(given, [one for one in given.get("ids", "").split(",") if one])
        operator, reason = session_of(request).operator, given.get("reason", "").strip()
        try:
            if not reason:
                raise RequestRefused(400, "Give a reason: members and their tracking logs show it.")
            until = (
                filters.until(given.get("until", ""), self._clock()) if order.verb is Verb.SUSPEND else None
            )
            with _refusing():
                if order.queue is not None:
                    if order.verb is Verb.SUSPEND:
                        await self._services.suspensions.suspend(order.queue, operator, reason, until)
                    else:
                        await self._services.suspensions.resume(order.queue, operator, reason)
                    return _to(order.back)
                report = order.verb is Verb.REMOVE and given.get("with_report") == "yes"
                made = await self._services.jobs.add(
                    order.verb, order.filter, operator, reason, until=until, with_report=report
                )
        except RequestRefused as refused:
            return await self._form(request, order, given, why=refused.sentence, status=refused.status)
        return _to(f"/jobs/{made['id']}")

    async def _form(
        self, request: Request, order: _Order, given: Mapping[str, str], *, why: str = "", status: int = 200
    ) -> Response:
        verb = order.verb.value
        shown: dict[str, Any] = {
            "action": "/act",
            "hidden": {**order.hidden, "verb": verb, "back": order.back},
            "back": order.back,
            "given": {name: given.get(name, "") for name in ("reason", "until", "with_report")},
            "why": why,
            "asks_reason": True,
            "asks_until": order.verb is Verb.SUSPEND,
            "asks_report": order.verb is Verb.REMOVE,
            "danger": order.verb in (Verb.REMOVE, Verb.BOUNCE),
            "nodes": (),
            "sample": (),
            "count": 0,
            "possible": True,
        }
        if order.queue is not None:
            with _refusing():
                queue = await self._services.queue_names.named(order.queue)
            shown |= {
                "title": f"{verb.capitalize()} the queue {queue}?",
                "meaning": _QUEUE_MEANINGS[order.verb],
                "button": f"{verb.capitalize()} the queue",
            }
            return self._frame.show(request, "act.html", shown, status=status)
        with _refusing():
            found = await self._services.jobs.preview(order.filter, session_of(request).operator)
        count = found["messages"]
        shown |= {
            "title": f"{verb.capitalize()} {many(count, 'message')}?",
            "meaning": _MEANINGS[order.verb] if count else "No message that waits now matches.",
            "button": f"{verb.capitalize()} {many(count, 'message')}",
            "nodes": found["nodes"],
            "sample": [_line(one) for one in found["sample"]],
            "count": count,
            "possible": bool(count) or not found["whole"],
        }
        return self._frame.show(request, "act.html", shown, status=status)

    async def _list(self, request: Request) -> Response:
        operator = session_of(request).operator
        jobs = await self._services.jobs.all()
        shown = {
            "jobs": [{**one, "about": about(one["filter"])} for one in jobs],
            "suspensions": await self._services.suspensions.all(operator),
        }
        return self._frame.show(request, "jobs.html", shown)

    async def _job(self, request: Request) -> Told:
        with _refusing():
            found = await self._services.jobs.show(request.path_params["id"], session_of(request).operator)
        return {**found, "about": about(found["filter"]), "past": PAST[Verb(found["verb"])]}

    async def _show(self, request: Request) -> Response:
        job = await self._job(request)
        return self._frame.show(request, "job.html", {"job": job, "nodes": job_nodes(job["nodes"])})

    async def _ask_stop(self, request: Request) -> Response:
        session_of(request).require(Scope.OPERATE)
        job = await self._job(request)
        back = f"/jobs/{job['id']}"
        shown = plain_act(
            f"Stop the job “{job['verb']} {job['about']}”?",
            "What was done stays done. The rest is left as it is.",
            f"{back}/stop",
            back,
            "Stop the job",
        )
        return self._frame.show(request, "act.html", shown)

    async def _stop(self, request: Request) -> Response:
        with _refusing():
            job = await self._services.jobs.stop(request.path_params["id"], session_of(request).operator)
        return _to(f"/jobs/{job['id']}")


def plain_act(
    title: str, meaning: str, action: str, back: str, button: str, hidden: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """The form of an act that is confirmed, and needs nothing else."""
    asks = dict.fromkeys(("asks_reason", "asks_until", "asks_report", "danger"), False)
    more = {"nodes": (), "sample": (), "count": 0, "why": "", "given": {}, "possible": True}
    told = {"title": title, "meaning": meaning, "action": action, "back": back, "button": button}
    return {**asks, **more, **told, "hidden": hidden or {}}


def _order(given: Mapping[str, str], ids: Sequence[str]) -> _Order:
    """What a form orders. Raises RequestRefused."""
    if given.get("verb") not in {*Verb}:
        raise RequestRefused(400, f"verb is one of {', '.join(Verb)}")
    verb, back = Verb(given["verb"]), local_path(given.get("back", "/"))
    hidden = {name: given[name] for name in (*filters.NAMES, "of") if given.get(name)}
    if ids:
        hidden["ids"] = ",".join(ids)
    whole = given.get("of") == "queue" and verb in _QUEUE_MEANINGS
    queue = NextHop(given["queue"]) if whole and given.get("queue") else None
    wanted = filters.filter_in(given, ids)
    if wanted == Filter():
        raise RequestRefused(400, "Choose messages, or give a filter: else it would mean all mail.")
    return _Order(verb, wanted, queue, hidden, back)


def _line(one: Told) -> dict[str, Any]:
    recipients = one.get("recipients") or ()
    more = f" and {len(recipients) - 1} more" if len(recipients) > 1 else ""
    to = f"{recipients[0]['address']}{more}" if recipients else "–"
    return {**one, "to": to, "state": "queued", "exposed": False}


def _to(path: str) -> Response:
    return RedirectResponse(path, 303, headers=HEADERS)


class _refusing:
    """Turns what an operator's verb refuses into an answer."""

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, CannotDo):
            status = 404 if type(error).__name__.startswith("NoSuch") else 409
            status = NO_SUCH_QUEUE if isinstance(error, NoSuchQueue) else status
            raise RequestRefused(status, sentence(str(error))) from error
