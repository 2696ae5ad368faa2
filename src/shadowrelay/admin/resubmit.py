"""Answers the routes about resubmit requests and Safety Net (docs/reference/api.md)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from starlette.requests import Request as HttpRequest

from shadowrelay.admin import render
from shadowrelay.admin.body import (
    address_pattern,
    body_of,
    listed,
    maybe_text_of,
    operator_of,
    reason_of,
    session_of,
    text_of,
)
from shadowrelay.admin.guard import NO_SUCH_QUEUE, RequestRefused, page_limit
from shadowrelay.admin.paging import paged
from shadowrelay.core.identifiers import MessageId, NextHop, ServerName, is_uuid
from shadowrelay.core.requests import BEGIN, Place, RequestState, Selector
from shadowrelay.database import resubmission
from shadowrelay.operator.queue_names import NoSuchQueue
from shadowrelay.operator.resubmit import Ambiguous, NoSuchRequest, Resubmission
from shadowrelay.operator.resubmit_estimate import CannotDo
from shadowrelay.shown.messages import SafetyNetPage
from shadowrelay.shown.records import ResubmitChanged, ResubmitEntry, ResubmitPreview

_NAMES = {"since", "until", "to", "sender", "recipient", "message_id", "network_message_id"}
_BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)


class ResubmitRoutes:
    """The handlers: each takes a request and returns JSON. Raise RequestRefused."""

    def __init__(self, resubmission: Callable[[], Resubmission], clock: Callable[[], datetime]) -> None:
        self._resubmission = resubmission
        self._clock = clock

    async def list(self, request: HttpRequest) -> dict[str, Any]:
        shown = {"requests": [render.request(one) for one in await self._resubmission().all()]}
        return paged(request.query_params, shown, "requests", "id")

    async def show(self, request: HttpRequest) -> ResubmitEntry:
        found = await self._found(request)
        return render.request(await self._resubmission().show(found, session_of(request).operator))

    async def preview(self, request: HttpRequest) -> ResubmitPreview:
        body = await body_of(request, {"selector", "gone", "operator"})
        selector, gone = self.selector(_object(body, "selector")), _gone(body)
        with refusing():
            found = await self._resubmission().preview(selector, gone, operator_of(body))
        return render.preview(found, self._clock())

    async def add(self, request: HttpRequest) -> ResubmitChanged:
        body = await body_of(request, {"selector", "gone", "operator", "reason"})
        selector, gone = self.selector(_object(body, "selector")), _gone(body)
        with refusing():
            made = await self._resubmission().add(selector, gone, operator_of(body), reason_of(body))
        return {"request": render.told(made)}

    async def pause(self, request: HttpRequest) -> ResubmitChanged:
        return await self._change(request, RequestState.PAUSED)

    async def resume(self, request: HttpRequest) -> ResubmitChanged:
        return await self._change(request, RequestState.RUNNING)

    async def remove(self, request: HttpRequest) -> ResubmitChanged:
        return await self._change(request, RequestState.REMOVED)

    async def gone(self, request: HttpRequest) -> ResubmitChanged:
        return await self._change(request, None)

    async def _change(self, request: HttpRequest, state: RequestState | None) -> ResubmitChanged:
        body = await body_of(request, {"operator"} if state else {"operator", "member"})
        gone = () if state else (ServerName(text_of(body, "member").lower()),)
        found = await self._found(request)
        with refusing():
            changed = await self._resubmission().change(found, state, operator_of(body), gone)
        return {"request": render.told(changed)}

    async def safety_net(self, request: HttpRequest) -> SafetyNetPage:
        given = dict(request.query_params)
        unknown = sorted(set(given) - _NAMES - {"after", "limit"})
        if unknown:
            raise RequestRefused(
                400, f"unknown parameter {', '.join(unknown)}; known are {listed(_NAMES)}, after and limit"
            )
        most = page_limit(given)
        given.pop("limit", None)
        place = _place(given.pop("after", ""))
        now = self._clock()
        selector = self.selector({"since": _BEGINNING.isoformat(), "until": now.isoformat()} | given)
        found = await self._resubmission().counting.database.read(
            lambda readers: resubmission.page(readers[0], selector, place, most + 1)
        )
        shown = [render.kept(one) for one in found[:most]]
        following = shown[-1]["place"] if len(found) > most else None
        return {"messages": shown, "next": following}

    async def _found(self, request: HttpRequest):  # type: ignore[no-untyped-def]
        with refusing():
            return await self._resubmission().find(request.path_params["id"])

    def selector(self, given: Mapping[str, Any]) -> Selector:
        """The selector with these conditions. Raises RequestRefused."""
        unknown = sorted(set(given) - _NAMES - {"all"})
        if unknown:
            raise RequestRefused(400, f"unknown condition {', '.join(unknown)}; known are {listed(_NAMES)}")
        to = given.get("to") or []
        to = [to] if isinstance(to, str) else to
        if not isinstance(to, list) or not all(isinstance(one, str) for one in to):
            raise RequestRefused(400, "to is the name of a route or of a server, or a list of them")
        hops: list[NextHop] = []
        with refusing():
            for one in to:
                hops += self._resubmission().routes_to(one)
        id_ = maybe_text_of(given, "network_message_id")
        if id_ is not None and not is_uuid(id_.lower()):
            raise RequestRefused(400, f"network_message_id is the id of a message, a UUID, and not {id_}")
        return Selector(
            since=_moment(given, "since"),
            until=_moment(given, "until"),
            next_hops=tuple(dict.fromkeys(hops)),
            sender=address_pattern(maybe_text_of(given, "sender"), "sender"),
            recipient=address_pattern(maybe_text_of(given, "recipient"), "recipient"),
            message_id=_bracketed(maybe_text_of(given, "message_id")),
            network_message_id=MessageId(id_.lower()) if id_ else None,
        )


class refusing:
    """Turns what an operator's verb refuses into an answer."""

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, NoSuchRequest):
            raise RequestRefused(404, str(error)) from error
        if isinstance(error, Ambiguous):
            raise RequestRefused(
                409, str(error), {"requests": [render.told(one) for one in error.found]}
            ) from error
        if isinstance(error, NoSuchQueue):
            raise RequestRefused(NO_SUCH_QUEUE, str(error)) from error
        if isinstance(error, CannotDo):
            raise RequestRefused(400, str(error)) from error


def _object(found: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = found.get(name)
    if not isinstance(value, dict):
        raise RequestRefused(400, f"{name} has to be an object")
    return value


def _gone(found: Mapping[str, Any]) -> tuple[ServerName, ...]:
    value = found.get("gone", [])
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise RequestRefused(400, "gone is a list of members")
    return tuple(ServerName(one.lower()) for one in value)


def _moment(found: Mapping[str, Any], name: str) -> datetime:
    text = text_of(found, name)
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is None:
            raise ValueError("no offset")
        return moment.astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise RequestRefused(
            400, f"{name} is a time with its offset, such as 2026-11-26T09:00:00Z, and not {text}"
        ) from error


def _bracketed(message_id: str | None) -> str | None:
    if message_id is None or message_id.startswith("<"):
        return message_id
    return f"<{message_id}>"


def _place(text: str) -> Place:
    if not text:
        return BEGIN
    at, _, id_ = text.partition("/")
    try:
        moment = datetime.fromisoformat(at)
        if moment.tzinfo is None or not is_uuid(id_):
            raise ValueError
        return Place(moment.astimezone(UTC), MessageId(id_))
    except (ValueError, OverflowError) as error:
        raise RequestRefused(400, "after is what the page before gave as next") from error
