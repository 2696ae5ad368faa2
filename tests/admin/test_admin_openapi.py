"""The OpenAPI document: it has every route, and what nodes answer is as it says."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote

import pytest
import schemathesis
from admin_node import MX2, a_node, ask, fill, meet, received, serving
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.checks import load_all_checks
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from stations import boundary

from shadowrelay.admin.api import build_app
from shadowrelay.admin.node import RunningNode
from shadowrelay.admin.openapi import document, served
from shadowrelay.admin.server import bind, serve
from shadowrelay.service.node import Node

ENDLESS = "/api/v1/events"
EXAMPLES = 30


def test_every_route_is_in_the_document() -> None:
    routes = build_app(cast(RunningNode, None)).routes
    told = document("1", routes)
    shown = {(method.upper(), path) for path, item in told["paths"].items() for method in item}
    assert shown == served(routes), "describe it: use api.read, api.change or DescribedRoute"
    assert len(shown) > 50
    names = [one["operationId"] for item in told["paths"].values() for one in item.values()]
    assert len(names) == len(set(names))


async def test_the_document_is_served(tmp_path: Path) -> None:
    async with a_node(tmp_path) as node, serving(node) as port:
        got = await ask(port, "/api/v1/openapi.json")
    assert got.status == 200
    told = got.json
    assert told["openapi"] == "3.1.0"
    pages = {
        path
        for path, item in told["paths"].items()
        if "next" in _success(told, item.get("get", {})).get("properties", {})
    }
    assert len(pages) > 2
    for path in pages:  # whatever has a next page takes its place
        assert "after" in {one["name"] for one in told["paths"][path]["get"]["parameters"]}, path


def test_counts_of_the_document_are_never_below_zero() -> None:
    shapes = document("1", build_app(cast(RunningNode, None)).routes)["components"]["schemas"]
    for model, field in (("StatusAnswer", "queued"), ("QueueEntry", "failures"), ("MessageSummary", "size")):
        told = shapes[model]["properties"][field]
        assert told.get("anyOf", [told])[0] == {"type": "integer", "minimum": 0}, field
    assert "minimum" not in shapes["FoundCopy"]["properties"]["rank"]


def _success(told: dict[str, Any], operation: dict[str, Any]) -> dict[str, Any]:
    content = operation.get("responses", {}).get("200", {}).get("content", {})
    shape = content.get("application/json", {}).get("schema", {})
    found: dict[str, Any] = told["components"]["schemas"].get(shape.get("$ref", "").rpartition("/")[2], {})
    return found


async def test_a_list_is_whole_or_comes_page_by_page(tmp_path: Path) -> None:
    async with a_node(tmp_path) as node, serving(node) as port:
        await fill(node, meet(MX2), received(1, MX2, "a@inside.test", "b@outside.test"))
        whole = (await ask(port, "/api/v1/queues")).json
        first = (await ask(port, "/api/v1/queues?limit=1")).json
        after = quote(first["next"])
        second = (await ask(port, f"/api/v1/queues?limit=1&after={after}")).json
        assert (len(whole["queues"]), whole["next"], second["next"]) == (2, None, None)
        assert first["queues"] + second["queues"] == whole["queues"]
        for wrong in ("after=nothing", "limit=0", "limit=501"):
            assert (await ask(port, f"/api/v1/queues?{wrong}")).status == 400


async def test_a_path_with_a_slash_at_its_end_is_no_other_path(tmp_path: Path) -> None:
    async with a_node(tmp_path) as node, serving(node) as port:
        assert (await ask(port, "/api/v1/status/")).status == 404


def fuzz(url: str) -> int:
    """Send generated requests to every operation of the document; returns how many were sent."""
    load_all_checks()
    schema = schemathesis.openapi.from_url(f"{url}/api/v1/openapi.json")
    sent = 0
    checks: list[Any] = [status_code_conformance, content_type_conformance, response_schema_conformance]
    for result in schema.get_all_operations():
        operation = result.ok()
        if operation.path == ENDLESS:
            continue

        @settings(
            max_examples=EXAMPLES,
            deadline=None,
            database=None,
            derandomize=True,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation.as_strategy())
        def sends(case: schemathesis.Case) -> None:
            nonlocal sent
            starting = case.path.startswith(("/healthz", "/api/v1/reload"))  # this node listens for no mail
            response = case.call(base_url=url, timeout=20)
            sent += 1
            case.validate_response(response, checks=checks)
            assert starting or response.status_code < 500, (case.method, case.path, response.text)

        sends()
    return sent


@pytest.mark.slow
async def test_a_node_answers_whatever_is_sent_as_its_document_says(tmp_path: Path) -> None:
    async with boundary(tmp_path, "mx1") as (station,):
        node: Node = station.node
        sock, stop = bind("127.0.0.1", 0), asyncio.Event()
        url = f"http://127.0.0.1:{sock.getsockname()[1]}"
        task = asyncio.create_task(serve(build_app(node), sock, stop))
        try:
            async with asyncio.timeout(240):  # a busy machine is slow
                sent = await asyncio.to_thread(fuzz, url)
        finally:
            node.services.events.close()
            stop.set()
            await task
    assert sent > 200
