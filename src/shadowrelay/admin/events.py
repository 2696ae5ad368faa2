"""Answers ``GET /api/v1/events``: tracking events as server-sent events (docs/reference/api.md)."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

import structlog
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Send
from starlette.types import Scope as AsgiScope

from shadowrelay.admin.answering import PRIVATE
from shadowrelay.admin.body import session_of
from shadowrelay.admin.guard import RequestRefused
from shadowrelay.admin.metrics import EVENT_IDS
from shadowrelay.admin.node import RunningNode
from shadowrelay.admin.streaming import until_gone
from shadowrelay.tracking.events import EventBatch, Subscription, TooManySubscribers, TrackingEvents

HEARTBEAT = 15.0
"""Seconds without an event after which a comment says that the stream is alive."""

SLOW = 30.0
"""Seconds in which a subscriber has to take what it is sent, before it is dropped."""

RETRY = 2000
"""Milliseconds after which a browser asks again when the stream ends."""

_GONE = "rows before this one are no longer in this node's files, or were never written"
_ELSEWHERE = "this node's database has no event with the id given: the stream begins here"
_STOPS = "this node stops"

_log = structlog.get_logger(__name__)


class EventRoutes:
    """The handler. Raises RequestRefused."""

    def __init__(self, node: RunningNode) -> None:
        self._node = node

    async def stream(self, request: Request) -> Response:
        given = request.query_params
        if unknown := sorted(set(given) - {"after", "event"}):
            raise RequestRefused(400, f"unknown parameter {', '.join(unknown)}; known are after and event")
        wanted = {name for text in given.getlist("event") for name in text.upper().split(",") if name}
        if strange := sorted(wanted - EVENT_IDS):
            known = ", ".join(sorted(EVENT_IDS))
            raise RequestRefused(400, f"there is no event {', '.join(strange)}; there are {known}")
        # A browser that asks again names the last event that it has; the URL is still the first one.
        after = request.headers.get("last-event-id") or given.get("after") or None
        events, stack = self._node.services.events, contextlib.ExitStack()
        try:
            subscription = stack.enter_context(events.subscribe(after, wanted))
        except ValueError as error:
            raise RequestRefused(400, f"after: {error}") from error
        except TooManySubscribers as error:
            raise RequestRefused(503, f"{error}: try again later") from error
        return EventStream(events, subscription, stack, session_of(request).operator)


class EventStream(Response):
    """The answer that does not end before the subscriber or the node does."""

    media_type = "text/event-stream"

    def __init__(
        self,
        events: TrackingEvents,
        subscription: Subscription,
        subscribed: contextlib.ExitStack,
        operator: str,
    ) -> None:
        """``subscribed`` is closed at the end."""
        super().__init__(headers={**PRIVATE, "x-accel-buffering": "no"})
        del self.headers["content-length"]
        self._events, self._subscription, self._operator = events, subscription, operator
        self._subscribed = subscribed

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        with self._subscribed:
            await until_gone(receive, self._send(scope, send))

    async def _send(self, scope: AsgiScope, send: Send) -> None:
        head = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        await send(head)
        if scope["method"] == "HEAD":
            await send({"type": "http.response.body", "body": b""})
            return
        try:
            async for part in self._parts():
                async with asyncio.timeout(SLOW):
                    await send({"type": "http.response.body", "body": part, "more_body": True})
        except TimeoutError:
            # It takes nothing, not even a last word; with its last id it may go on later.
            _log.warning(
                "event_subscriber_dropped",
                operator=self._operator,
                why=f"it took nothing for {SLOW:g} s",
                place=self._subscription.place,
            )
            raise
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _parts(self) -> AsyncIterator[bytes]:
        begun = {
            "node": self._events.log.node,
            "place": self._subscription.place,
            "resumed": self._subscription.resumed,
        }
        yield f"retry: {RETRY}\n".encode() + _frame(self._subscription.place, begun, "begin")
        if not self._subscription.resumed:
            yield _frame(self._subscription.place, {"why": _ELSEWHERE}, "gap")
        async for batch in self._subscription.batches(HEARTBEAT):
            yield await asyncio.to_thread(_text, batch) if batch.rows else _quiet(batch)
        yield _frame(self._subscription.place, {"why": _STOPS}, "end")


def _text(batch: EventBatch) -> bytes:
    """The rows of a batch. This takes a while for many rows, so a thread does it."""
    parts = [_frame("", {"why": _GONE}, "gap")] if batch.gap else []
    for row in batch.rows:
        told = {"sequence": row.sequence, "incarnation": row.incarnation, **row.columns()}
        parts.append(_frame(row.id, told))
    if batch.place != batch.rows[-1].id:
        parts.append(_place(batch.place))
    return b"".join(parts)


def _quiet(batch: EventBatch) -> bytes:
    """A comment, with the place: whoever asks again goes on from there."""
    gap = _frame("", {"why": _GONE}, "gap") if batch.gap else b""
    return gap + b": nothing new\n" + _place(batch.place)


def _place(place: str) -> bytes:
    return f"id: {place}\n\n".encode("ascii")


def _frame(id_: str, told: Mapping[str, Any], event: str = "") -> bytes:
    """One event. JSON in ASCII has no line end."""
    lines = [f"id: {id_}"] if id_ else []
    lines += [f"event: {event}"] if event else []
    lines += [f"data: {json.dumps(told, separators=(',', ':'))}"]
    return ("\n".join(lines) + "\n\n").encode("ascii")
