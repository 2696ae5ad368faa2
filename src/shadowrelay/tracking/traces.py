"""OpenTelemetry traces: one for each message, over all nodes, made of tracking events and of when work began.

The id of a trace follows from the id of the message, so that all nodes agree without a word. Each tracking
event is a span. No mail waits for the collector: spans wait in a bounded queue, and what does not fit,
or is not taken, is dropped and counted. The library is an extra, and only this module imports it.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import threading
import time
from collections import Counter, deque
from collections.abc import Mapping
from datetime import datetime
from typing import Protocol

import structlog
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, TraceFlags
from opentelemetry.trace.status import Status, StatusCode

from shadowrelay.in_hand import InHand, Page
from shadowrelay.tracking.events import TrackingEvents

log = structlog.get_logger(__name__)

MOST_WAITING = 8192
"""Spans that wait for the collector at most: some 10 MB."""

BATCH = 512
EXPORTED, DROPPED = "exported", "dropped"
GOODBYE = 2.0
"""Seconds that a stop waits for the last spans."""

PATIENCE = 5.0
"""Seconds that one export may take."""

SPANS = {
    "RECEIVE": "reception",
    "HAREDIRECT": "shadow commit",
    "HAREDIRECTFAIL": "no shadow copy",
    "HARECEIVE": "holder's copy",
    "SEND": "delivery attempt",
    "SENDEXTERNAL": "delivery attempt",
    "DELIVER": "delivery attempt",
    "DEFER": "delivery attempt",
    "FAIL": "delivery attempt",
    "RESUBMIT": "promotion",
    "HADISCARD": "settlement",
}
"""The names of spans. Other events have their own, in small letters."""

_FAILED = frozenset({"FAIL", "HAREDIRECTFAIL", "DEFER"})
_TAKEN = frozenset({"reception", "shadow commit", "holder's copy", "delivery attempt"})
_ADDRESSES = {"sender-address": "sender", "recipient-address": "recipients", "message-subject": "subject"}
_MOST = 256  # characters of an attribute


class Began(InHand):
    """The messages in hand, with when each came in hand: when the work of a span began."""

    KEPT = 16_384

    def __init__(self, page: Page | None = None) -> None:
        super().__init__(page)
        self._began: dict[str, list[int]] = {}

    def take(self, message_id: str) -> int:
        moments = self._began.setdefault(message_id, [])
        moments.append(time.time_ns())
        del moments[:-8]
        if len(self._began) > self.KEPT:
            del self._began[next(iter(self._began))]
        return super().take(message_id)

    def before(self, message_id: str, end: int) -> int:
        """When the message last came in hand before ``end``, in nanoseconds since 1970; else ``end``."""
        return max((at for at in self._began.get(message_id, ()) if at <= end), default=end)


class Taking(Protocol):
    """What spans ask about when work began."""

    def before(self, message_id: str, end: int) -> int: ...


def trace_of(message_id: str) -> int:
    """The id of a message's trace, the same on every node."""
    return int.from_bytes(hashlib.sha256(f"trace {message_id}".encode()).digest()[:16], "big") or 1


def _span_id(text: str) -> int:
    return int.from_bytes(hashlib.sha256(f"span {text}".encode()).digest()[:8], "big") or 1


class Traces:
    """The stage that makes spans of this node's tracking events, and gives them to the collector.

    ``addresses``: whether spans have addresses and subjects.
    """

    def __init__(
        self, node: str, version: str, exporter: SpanExporter, began: Taking, *, addresses: bool = False
    ) -> None:
        self.counts: Counter[str] = Counter({EXPORTED: 0, DROPPED: 0})
        self._began, self._addresses, self._exporter = began, addresses, exporter
        self._resource = Resource({"service.name": "shadowrelay", "service.instance.id": node})
        self._scope = InstrumentationScope("shadowrelay", version)
        self._waiting: deque[ReadableSpan] = deque()
        self._some = threading.Event()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._export, name="traces", daemon=True)

    @classmethod
    def to(cls, endpoint: str, node: str, version: str, began: Taking, *, addresses: bool) -> Traces:
        """Spans go to the collector at that address, by OTLP over HTTP."""
        exporter = OTLPSpanExporter(endpoint=endpoint, timeout=PATIENCE)
        return cls(node, version, exporter, began, addresses=addresses)

    async def run(self, events: TrackingEvents) -> None:
        """Until cancelled."""
        self._thread.start()
        try:
            with events.subscribe(None) as subscribed:
                async for batch in subscribed.batches(60.0):
                    for row in batch.rows:
                        self.see(row.columns())
        finally:
            self._over.set()
            self._some.set()
            with contextlib.suppress(Exception):
                await asyncio.to_thread(self._thread.join, GOODBYE)

    def see(self, row: Mapping[str, str]) -> None:
        """A tracking event: a span, if it is one of a message."""
        if not row.get("network-message-id"):
            return
        if len(self._waiting) >= MOST_WAITING:
            self.counts[DROPPED] += 1
            return
        self._waiting.append(self._span(row))
        if len(self._waiting) >= BATCH:
            self._some.set()

    def _span(self, row: Mapping[str, str]) -> ReadableSpan:
        message_id, event = row["network-message-id"], row["event-id"]
        name = SPANS.get(event, event.lower())
        trace, flags = trace_of(message_id), TraceFlags(TraceFlags.SAMPLED)
        root = _span_id(message_id)
        own = root if event == "RECEIVE" else _span_id(row.get("log-id") or repr(sorted(row.items())))
        end = int(datetime.fromisoformat(row["date-time"]).timestamp() * 1_000_000) * 1000
        attributes = {
            "shadowrelay.event": event,
            "shadowrelay.source": row.get("source", ""),
            "shadowrelay.message_id": message_id,
            "server.address": row.get("server-hostname", ""),
            "shadowrelay.connector": row.get("connector-id", ""),
        }
        if self._addresses:
            attributes |= {f"shadowrelay.{told}": row.get(name_, "") for name_, told in _ADDRESSES.items()}
        return ReadableSpan(
            name=name,
            context=SpanContext(trace, own, is_remote=False, trace_flags=flags),
            parent=None if own == root else SpanContext(trace, root, is_remote=True, trace_flags=flags),
            resource=self._resource,
            attributes={key: value[:_MOST] for key, value in attributes.items() if value},
            kind=SpanKind.INTERNAL,
            status=Status(StatusCode.ERROR) if event in _FAILED else Status(StatusCode.UNSET),
            start_time=self._began.before(message_id, end) if name in _TAKEN else end,
            end_time=end,
            instrumentation_scope=self._scope,
        )

    def _export(self) -> None:
        """The thread that waits for the collector, so that nobody else does."""
        while not self._over.is_set() or self._waiting:
            self._some.wait(1.0)
            self._some.clear()
            while self._waiting:
                spans = [self._waiting.popleft() for _ in range(min(BATCH, len(self._waiting)))]
                try:
                    taken = self._exporter.export(spans) is SpanExportResult.SUCCESS
                except Exception as error:  # of any kind: a trace is no reason to end
                    log.warning("traces_not_exported", error=str(error)[:200])
                    taken = False
                self.counts[EXPORTED if taken else DROPPED] += len(spans)
        self._exporter.shutdown()
