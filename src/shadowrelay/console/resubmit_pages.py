"""Safety Net in the console: resubmit requests, and the form that makes one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from shadowrelay.admin import render
from shadowrelay.admin.body import form_of, session_of
from shadowrelay.admin.guard import RequestRefused
from shadowrelay.admin.node import RunningNode
from shadowrelay.admin.resubmit import ResubmitRoutes, refusing
from shadowrelay.console.acting import plain_act
from shadowrelay.console.filters import duration
from shadowrelay.console.pages import PageFrame
from shadowrelay.console.site import HEADERS
from shadowrelay.console.words import many, octets
from shadowrelay.core.operating import Scope, Told
from shadowrelay.core.requests import RequestState, Selector

_FIELDS = (
    ("since", "Settled since", "1h, or 2026-11-27T09:00Z", "1h"),
    ("until", "Until", "now", ""),
    ("to", "To the route or server", "world", ""),
    ("sender", "From", "ann@example.org, *@example.org", ""),
    ("recipient", "To the recipient", "bob@example.com", ""),
    ("message_id", "Message-ID", "<…>", ""),
)
_CHANGES = {
    "pause": (RequestState.PAUSED, "What was sent again stays. The rest waits until somebody resumes."),
    "resume": (RequestState.RUNNING, "The rest is sent again."),
    "remove": (RequestState.REMOVED, "What was sent again stays. The rest is not sent; that is final."),
}


class SafetyNetPages:
    """Resubmit requests: list, make with a preview, pause, resume and remove."""

    def __init__(self, frame: PageFrame, node: RunningNode, clock: Callable[[], datetime]) -> None:
        self._frame, self._node, self._clock = frame, node, clock
        self._api = ResubmitRoutes(lambda: node.resubmission, clock)

    def routes(self) -> list[Route]:
        look, act = self._frame.look, self._frame.act
        return [
            look("/safety-net", self._list),
            look("/safety-net/new", self._ask),
            act("/safety-net/new", self._make),
            look("/safety-net/{id}/change", self._ask_change),
            act("/safety-net/{id}/change", self._change),
        ]

    async def _list(self, request: Request) -> Response:
        found = [render.request(one) for one in await self._node.resubmission.all()]
        shown = {
            "requests": [{**one, "about": _about(one["request"]["selector"])} for one in found],
            "fields": _FIELDS,
        }
        return self._frame.show(request, "safety_net.html", shown)

    async def _ask(self, request: Request) -> Response:
        session_of(request).require(Scope.OPERATE)
        return await self._form(request, dict(request.query_params))

    async def _make(self, request: Request) -> Response:
        given = await form_of(request)
        try:
            reason = given.get("reason", "").strip()
            if not reason:
                raise RequestRefused(400, "Give a reason: members and their logs show it.")
            selector = self._selector(given)
            with refusing():
                await self._node.resubmission.add(selector, (), session_of(request).operator, reason)
        except RequestRefused as refused:
            return await self._form(request, given, why=refused.sentence, status=refused.status)
        return RedirectResponse("/safety-net", 303, headers=HEADERS)

    async def _form(
        self, request: Request, given: Mapping[str, str], *, why: str = "", status: int = 200
    ) -> Response:
        """What a request would do, or why it cannot be made."""
        hidden = {name: given[name].strip() for name, *_ in _FIELDS if given.get(name, "").strip()}
        shown = plain_act("Bring mail back?", "", "/safety-net/new", "/safety-net", "", hidden)
        try:
            now = self._clock()
            hidden["since"] = _moment(hidden.get("since", "1h"), now)
            hidden["until"] = _moment(hidden.get("until", "0s"), now)
            selector = self._selector(hidden)
            with refusing():
                found = await self._node.resubmission.preview(selector, (), session_of(request).operator)
        except RequestRefused as refused:
            shown |= {"why": refused.sentence, "possible": False}
            return self._frame.show(request, "act.html", shown, status=refused.status)
        told = render.preview(found, now)
        count = many(told["messages"], "message")
        away = ", ".join(one["member"] for one in told["unreachable"])
        meaning = f"{count} with {octets(told['octets'])} would be sent again to {_about(hidden)}."
        meaning += f" {away} does not answer, and is not counted." if away else ""
        shown |= {
            "title": f"Send {count} again?",
            "meaning": " ".join((meaning, *told["warnings"])),
            "button": f"Send {count} again",
            "asks_reason": True,
            "given": {"reason": given.get("reason", "")},
            "why": why,
        }
        return self._frame.show(request, "act.html", shown, status=status)

    def _selector(self, given: Mapping[str, str]) -> Selector:
        found: dict[str, Any] = {name: given[name] for name, *_ in _FIELDS if given.get(name)}
        return self._api.selector(found)

    async def _ask_change(self, request: Request) -> Response:
        session_of(request).require(Scope.OPERATE)
        return self._frame.show(request, "act.html", await self._question(request, request.query_params))

    async def _change(self, request: Request) -> Response:
        given = await form_of(request)
        state, _ = _CHANGES[_wanted(given)]
        try:
            with refusing():
                found = await self._node.resubmission.find(request.path_params["id"])
                await self._node.resubmission.change(found, state, session_of(request).operator)
        except RequestRefused as refused:
            shown = await self._question(request, given) | {"why": refused.sentence}
            return self._frame.show(request, "act.html", shown, status=refused.status)
        return RedirectResponse("/safety-net", 303, headers=HEADERS)

    async def _question(self, request: Request, given: Mapping[str, str]) -> dict[str, Any]:
        to = _wanted(given)
        with refusing():
            found = await self._node.resubmission.find(request.path_params["id"])
        shown = plain_act(
            f"{to.capitalize()} request {found.number}?",
            _CHANGES[to][1],
            f"/safety-net/{found.id}/change",
            "/safety-net",
            f"{to.capitalize()} the request",
            {"to": to},
        )
        return shown | {"danger": to == "remove"}


def _wanted(given: Mapping[str, str]) -> str:
    if given.get("to") not in _CHANGES:
        raise RequestRefused(400, f"to is one of {', '.join(_CHANGES)}")
    return given["to"]


def _moment(text: str, now: datetime) -> str:
    """A time as the API takes it: given so, or as a duration before now."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        at = now - max(duration(text, "a time"), timedelta(milliseconds=1))
    if at.tzinfo is None:
        raise RequestRefused(400, f"a time needs its offset, such as 2026-11-27T09:00Z: {text}")
    return at.astimezone(UTC).isoformat().replace("+00:00", "Z")


def _about(selector: Told) -> str:
    to = selector.get("to") or "all next hops"
    parts = [to if isinstance(to, str) else ", ".join(to) or "all next hops"]
    parts += [
        f"{name} {selector[name]}" for name in ("sender", "recipient", "message_id") if selector.get(name)
    ]
    return ", ".join(parts)
