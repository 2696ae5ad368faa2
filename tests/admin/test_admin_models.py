"""Every answer of the API is as its model says, to the last field."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import cast

import pytest
from admin_node import MX2, MX3, a_node, ask, fill, held, meet, message_id, received, serving
from stations import boundary
from told_by_models import exact

from shadowrelay.admin.api import build_app
from shadowrelay.admin.node import RunningNode
from shadowrelay.admin.openapi import operations
from shadowrelay.admin.server import bind, serve
from shadowrelay.shown.messages import MessageAnswer, TraceAnswer
from shadowrelay.shown.nodes import HopAnswer
from shadowrelay.shown.status import LiveAnswer

ABOUT_MAIL = {"status", "queues", "shadow-queues", "messages", "peers", "drain"}
OPERATIONS = operations(build_app(cast(RunningNode, None)).routes)
LOOKS = {
    path: one.answer
    for (method, path), one in OPERATIONS.items()
    if method == "GET" and one.content == "application/json" and not set("{}") & set(path)
}
CHANGES = {
    "/api/v1/suspensions": {"queue": "inside", "act": "suspend", "reason": "it loses mail"},
    "/api/v1/jobs": {"verb": "suspend", "filter": {"sender": "*@example.net"}, "reason": "looked at"},
    "/api/v1/jobs/preview": {"filter": {"sender": "*@example.net"}},
    "/api/v1/resubmit/preview": {
        "selector": {"since": "2026-01-01T00:00:00Z", "until": "2026-01-02T00:00:00Z", "to": "inside"}
    },
    "/api/v1/resubmit": {
        "selector": {"since": "2026-01-01T00:00:00Z", "until": "2026-01-02T00:00:00Z", "to": "inside"},
        "reason": "it lost mail",
    },
    "/api/v1/redundancy": {"value": "off", "reason": "alone"},
    "/api/v1/settings": {"key": "queue_glitch_retry_interval", "value": "5m", "reason": "less load"},
    "/api/v1/time/confirm": {"reason": "it is right"},
    "/api/v1/drain/begin": {},
    "/api/v1/drain/end": {},
    "/api/v1/scrub": {},
    "/api/v1/login": {"token": "x"},
}


async def test_answers_of_a_node_are_as_their_models_say(tmp_path: Path) -> None:
    async with boundary(tmp_path, "mx1", "mx2") as (station, _):
        sock, stop = bind("127.0.0.1", 0), asyncio.Event()
        port = sock.getsockname()[1]
        task = asyncio.create_task(serve(build_app(station.node), sock, stop))
        try:
            for (method, path), one in OPERATIONS.items():
                if method == "POST" and path in CHANGES:
                    body = json.dumps(CHANGES[path]).encode()
                    got = await ask(port, path, "POST", body, content_type="application/json")
                    assert got.status == 200, (path, got.text)
                    exact(one.answer, got.text)
            for path, answer in LOOKS.items():
                got = await ask(port, path + ("?q=inside.test" if path.endswith("find") else ""))
                assert got.status in {200, 503}, (path, got.text)
                exact(answer, got.text)
        finally:
            station.node.services.events.close()
            stop.set()
            await task


async def test_answers_about_mail_are_as_their_models_say(tmp_path: Path) -> None:
    async with a_node(tmp_path) as node, serving(node) as port:
        mail = received(1, MX2, "a@inside.test", "b@outside.test"), received(2, None), held(3, MX3)
        await fill(node, meet(MX2), meet(MX3), *mail)
        for path, answer in LOOKS.items():
            if path.rpartition("/")[2] in ABOUT_MAIL:
                exact(answer, (await ask(port, path)).text)
        for number in (1, 2, 3):
            exact(MessageAnswer, (await ask(port, f"/api/v1/messages/{message_id(number)}")).text)
        exact(HopAnswer, (await ask(port, "/api/v1/cluster/queues/inside")).text)
        exact(TraceAnswer, (await ask(port, f"/api/v1/cluster/trace/{message_id(1)}")).text)


def test_a_field_that_the_model_lacks_is_seen() -> None:
    with pytest.raises(AssertionError):
        exact(LiveAnswer, '{"live": true, "more": 1}')
