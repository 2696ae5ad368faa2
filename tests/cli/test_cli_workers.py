"""The commands that look at nodes, where nodes have several workers: they show nodes, or workers if asked."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path

import pytest
from admin.admin_node import MX2, NOW, OURS, FakeNode, a_node, fill, held, meet, peer, received, serving
from click.testing import CliRunner
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from shadowrelay.admin.node import MemberState
from shadowrelay.cli import main
from shadowrelay.core.identifiers import ServerName
from shadowrelay.core.workers import worker_name

SECOND, MX2_SECOND = worker_name(OURS, 2), worker_name(MX2, 2)


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[FakeNode]:
    """Worker 1 of two nodes of two workers each; the second worker of the other node is away."""
    async with AsyncExitStack() as stack:
        made = {}
        for name in (OURS, SECOND, MX2):
            (tmp_path / name).mkdir()
            made[name] = one = await stack.enter_async_context(a_node(tmp_path / name))
            one.name = name
        away = peer(
            MX2_SECOND,
            MemberState.UNREACHABLE,
            since=NOW - timedelta(minutes=12),
            step="connect",
            error="refused",
            failures=4,
            promoting_in=timedelta(hours=2, minutes=48),
        )
        first = made[OURS]
        first.statuses = [peer(SECOND), peer(MX2), away]
        made[SECOND].statuses = [peer(OURS), peer(MX2), away]
        made[MX2].statuses = [peer(OURS), peer(SECOND), away]
        await fill(first, meet(MX2), meet(MX2_SECOND), received(1, MX2), held(3, MX2_SECOND))
        await fill(made[SECOND], meet(MX2), meet(MX2_SECOND), received(2, None), held(5, MX2))
        first.elsewhere = {name: one for name, one in made.items() if name != OURS}
        yield first


async def shown(node: FakeNode, *arguments: str, routes: Sequence[Route] = ()) -> str:
    async with serving(node, routes=routes) as port:
        runner = CliRunner(
            env={"SHADOWRELAY_ADMIN_TOKEN": None, "SHADOWRELAY_ADMIN": f"http://127.0.0.1:{port}"}
        )
        result = await asyncio.to_thread(runner.invoke, main, list(arguments))
    assert result.exit_code == 0, result.output
    return result.stdout


def cells(text: str, first: str) -> list[list[str]]:
    """The rows of tables that begin with that cell."""
    rows = [[cell for cell in line.split("  ") if cell] for line in text.splitlines()]
    return [[cell.strip() for cell in row] for row in rows if row and row[0].strip() == first]


async def test_status_sums_the_workers_of_a_node_and_lists_nodes(node):
    text = await shown(node, "status")
    assert text.startswith(f"{OURS} (site here, host rack1), ready\n")
    assert "2 workers; all answer\n" in text
    assert "EXPOSED: 1 message in transit has no second copy" in text
    assert cells(text, "queued")[0][1] == "2"
    (member, row) = cells(text, MX2)
    assert member[1] == "unreachable (1 of 2 workers)"
    assert member[3] == "2"
    assert "connect: refused" in text
    assert not cells(text, SECOND)
    assert cells(text, OURS)[0][2:4] == ["yes", "2"]
    assert f"{MX2}: 1 of its 2 workers does not answer: worker 2: it is silent" in text
    assert row[2] == "yes"


async def test_workers_are_shown_each_if_asked(node):
    text = await shown(node, "status", "--workers")
    assert [cells(text, name)[-1][3] for name in (OURS, SECOND, MX2)] == ["1", "1", "0"]
    assert f"\n{MX2_SECOND}: it is silent" in text
    rows = text[text.index("\nnode ") :].splitlines()[2:5]
    assert [row.split()[0] for row in rows] == [OURS, SECOND, MX2]


async def test_the_json_of_a_status_has_nodes_or_workers(node):
    nodes = json.loads(await shown(node, "status", "--json"))
    assert (nodes["name"], nodes["queued"]) == (OURS, 2)
    assert [one["node"] for one in nodes["nodes"]] == [OURS, MX2]
    workers = json.loads(await shown(node, "status", "--json", "--workers"))
    assert (workers["name"], workers["queued"]) == (OURS, 1)
    assert [one["node"] for one in workers["nodes"]] == [OURS, MX2, SECOND, MX2_SECOND]


async def test_here_is_the_node_with_all_its_workers(node):
    for command in (("status", "--here"), ("queue", "list", "--here")):
        found = json.loads(await shown(node, *command, "--json"))
        assert (found["queued"] if "queued" in found else found["queues"][0]["messages"]) == 2
    found = json.loads(await shown(node, "queue", "list", "--here", "--workers", "--json"))
    assert [one["messages"] for one in found["queues"]] == [1]


async def test_queues_are_those_of_nodes(node):
    text = await shown(node, "queue", "list")
    (row,) = cells(text, f"{OURS}\\outside")
    assert row[2] == "2"
    assert SECOND not in text
    assert f"{MX2}: 1 of its 2 workers does not answer" in text
    assert cells(await shown(node, "queue", "list", "--workers"), f"{SECOND}\\outside")[0][2] == "1"


async def test_one_queue_is_that_of_the_node(node):
    text = await shown(node, "queue", "show", "outside", "--here")
    assert f"{OURS}\\outside" in text
    assert cells(text, "messages") == [["messages", "2"]]
    assert len(cells(await shown(node, "queue", "show", "outside", "--workers"), "messages")) == 2


async def test_members_and_shadow_queues_are_those_of_nodes(node):
    (row,) = cells(await shown(node, "peer", "list"), MX2)
    assert row[1] == "unreachable (1 of 2 workers)"
    assert len(cells(await shown(node, "peer", "list", "--workers"), MX2_SECOND)) == 1
    (row,) = cells(await shown(node, "shadow", "list"), f"{OURS}\\Shadow\\{MX2}")
    assert row[1] == "2"
    text = await shown(node, "shadow", "list", "--workers")
    assert cells(text, f"{OURS}\\Shadow\\{MX2_SECOND}")[0][1] == "1"


async def test_a_worker_that_answers_for_its_node_is_named_as_the_node(node):
    second = node.elsewhere[SECOND]
    second.elsewhere = {OURS: node, MX2: node.elsewhere[MX2]}
    text = await shown(second, "status")
    assert text.startswith(f"{OURS} (site here, host rack1), ready\n")
    assert ServerName(SECOND) not in text


async def test_a_node_is_retired_with_all_its_workers_at_all_workers_of_the_node_that_is_asked(node):
    retired: list[tuple[str, str]] = []

    async def workers(request: Request) -> Response:
        states = {1: "serving", 2: "serving", 3: "waiting"}
        return JSONResponse({"workers": [{"number": one, "state": state} for one, state in states.items()]})

    async def retire(request: Request) -> Response:
        retired.append((request.path_params["number"], request.path_params["name"]))
        return JSONResponse(
            {"did": [f"{request.path_params['name']} is retired"], "to_do": "say it elsewhere"}
        )

    routes = [
        Route("/api/v1/workers", workers),
        Route("/api/v1/workers/{number}/peers/{name}/retire", retire, methods=["POST"]),
    ]
    text = await shown(node, "peer", "retire", "mx2", "--yes", routes=routes)
    assert retired == [(number, name) for number in ("1", "2") for name in (MX2, MX2_SECOND)]
    assert text.splitlines() == [f"{MX2} is retired", "say it elsewhere", f"{MX2_SECOND} is retired"]
    retired.clear()
    await shown(node, "peer", "retire", "w2.mx2", "--yes", routes=routes)
    assert retired == [(number, MX2_SECOND) for number in ("1", "2")]
