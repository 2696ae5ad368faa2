"""One message between two real nodes is one trace, with spans of both, at a collector."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from running_lab import RunningLab, wait_until

pytestmark = [pytest.mark.lab, pytest.mark.slow]


class Collected(BaseHTTPRequestHandler):
    spans: ClassVar[list[tuple[str, str, str]]] = []
    """Node, trace, name."""

    def do_POST(self) -> None:
        asked = ExportTraceServiceRequest()
        asked.ParseFromString(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(200)
        self.end_headers()
        for each in asked.resource_spans:
            named = {one.key: one.value.string_value for one in each.resource.attributes}
            self.spans += [
                (named["service.instance.id"], one.trace_id.hex(), one.name)
                for scope in each.scope_spans
                for one in scope.spans
            ]

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def collector() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Collected) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        Collected.spans.clear()
        yield f"http://127.0.0.1:{server.server_port}/v1/traces"
        server.shutdown()
        thread.join()


def test_a_message_is_one_trace_over_both_nodes(lab: RunningLab, collector: str):
    lab.up(f"traces.endpoint={collector}", nodes=2)
    lab.send(1)
    lab.settle()
    spans = {
        ("mx1", "reception"),
        ("mx1", "shadow commit"),
        ("mx2", "holder's copy"),
        ("mx1", "delivery attempt"),
        ("mx2", "settlement"),
    }
    # Each node tells its spans when it likes: whose come last is not said.
    wait_until(
        lambda: spans <= {(node.partition(".")[0], name) for node, _, name in tuple(Collected.spans)},
        "the spans of both nodes",
    )
    (trace,) = {trace for _, trace, _ in Collected.spans}
    assert len(trace) == 32
