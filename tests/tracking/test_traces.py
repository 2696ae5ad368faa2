"""Traces: one for each message, bounded in every way, and no reason for anybody to wait."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import ClassVar

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from shadowrelay.tracking import traces
from shadowrelay.tracking.traces import Began, Traces, trace_of

ID = "01939e00-0000-7000-8000-000000000001"


def row(event: str, number: int = 1, **more: str) -> dict[str, str]:
    found = {
        "date-time": "2026-11-27T03:00:00.500Z",
        "event-id": event,
        "network-message-id": ID,
        "source": "SMTP",
        "log-id": f"{number}",
        "sender-address": "bob@example.net",
        "recipient-address": "ann@example.com",
        "message-subject": "a secret",
    }
    return found | {name.replace("_", "-"): value for name, value in more.items()}


def span(of: Traces, event: str, **more: str) -> ReadableSpan:
    of.see(row(event, **more))
    return of._waiting[-1]


def test_all_nodes_agree_on_the_trace_and_what_follows_stands_below_the_reception() -> None:
    owner = Traces("mx1", "1", InMemorySpanExporter(), Began())
    holder = Traces("mx2", "1", InMemorySpanExporter(), Began())
    received, sent = span(owner, "RECEIVE"), span(owner, "SENDEXTERNAL", log_id="2")
    held, settled = span(holder, "HARECEIVE", log_id="3"), span(holder, "HADISCARD", log_id="4")
    assert [one.name for one in (received, sent, held, settled)] == [
        "reception",
        "delivery attempt",
        "holder's copy",
        "settlement",
    ]
    assert {one.context.trace_id for one in (received, sent, held, settled)} == {trace_of(ID)}
    assert received.parent is None
    assert {one.parent.span_id for one in (sent, held, settled) if one.parent} == {received.context.span_id}
    assert len({one.context.span_id for one in (received, sent, held, settled)}) == 4
    assert trace_of(ID) != trace_of(ID[:-1] + "2")


def test_a_span_has_no_address_and_no_subject_unless_the_settings_say_so() -> None:
    shown = str(span(Traces("mx1", "1", InMemorySpanExporter(), Began()), "RECEIVE").attributes)
    assert "example" not in shown
    assert "secret" not in shown
    told = span(Traces("mx1", "1", InMemorySpanExporter(), Began(), addresses=True), "RECEIVE", x="y" * 999)
    assert told.attributes
    assert told.attributes["shadowrelay.recipients"] == "ann@example.com"
    assert max(len(str(value)) for value in told.attributes.values()) <= 256


def test_a_span_begins_when_the_message_came_in_hand() -> None:
    began = Began()
    slot = began.take(ID)
    began.leave(slot)
    ended = time.time_ns() + 3_000_000_000
    assert 2_900_000_000 < ended - began.before(ID, ended) < 3_100_000_000
    assert began.before("another", ended) == ended


def test_what_is_remembered_of_messages_in_hand_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Began, "KEPT", 10)
    began = Began()
    for number in range(100):
        began.leave(began.take(f"id-{number}"))
        began.leave(began.take("again"))
    assert len(began._began) <= 10
    assert all(len(moments) <= 8 for moments in began._began.values())


class Collector(BaseHTTPRequestHandler):
    taken: ClassVar[list[ExportTraceServiceRequest]] = []

    def do_POST(self) -> None:
        asked = ExportTraceServiceRequest()
        asked.ParseFromString(self.rfile.read(int(self.headers["Content-Length"])))
        self.taken.append(asked)
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def collecting() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), Collector) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        Collector.taken.clear()
        try:
            yield f"http://127.0.0.1:{server.server_port}/v1/traces"
        finally:
            server.shutdown()
            thread.join()


def exported(of: Traces, within: float = 10.0) -> None:
    """Run its thread until nothing waits."""
    of._over.set()
    of._some.set()
    of._thread.start()
    of._thread.join(within)
    assert not of._thread.is_alive()


def test_a_collector_gets_spans_by_otlp_over_http() -> None:
    with collecting() as endpoint:
        made = Traces.to(endpoint, "mx1", "1", Began(), addresses=False)
        for number, event in enumerate(("RECEIVE", "HAREDIRECT", "SENDEXTERNAL")):
            made.see(row(event, number))
        exported(made)
    spans = [
        one
        for ask in Collector.taken
        for each in ask.resource_spans
        for s in each.scope_spans
        for one in s.spans
    ]
    assert [one.name for one in spans] == ["reception", "shadow commit", "delivery attempt"]
    assert {one.trace_id.hex() for one in spans} == {f"{trace_of(ID):032x}"}
    assert made.counts == {"exported": 3, "dropped": 0}


def test_a_collector_that_hangs_costs_spans_and_nobody_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traces, "PATIENCE", 0.3)
    monkeypatch.setattr(traces, "MOST_WAITING", 20)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        made = Traces.to(f"http://127.0.0.1:{silent.getsockname()[1]}", "mx1", "1", Began(), addresses=False)
        began = time.monotonic()
        for number in range(50):
            made.see(row("SEND", number))
        assert time.monotonic() - began < 0.5
        assert len(made._waiting) == 20
        assert made.counts["dropped"] == 30
        exported(made)
    assert made.counts == {"exported": 0, "dropped": 50}


@pytest.mark.slow
def test_without_an_endpoint_the_library_is_not_even_loaded() -> None:
    code = "import sys, shadowrelay.service.running; sys.exit('opentelemetry' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
