"""No page and no command shows one worker as the node: three workers, and all mail is in the third."""

from __future__ import annotations

import asyncio
import json
import re
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from html import unescape
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from urllib.parse import quote

import pytest
from admin.admin_node import MX2, OURS, ask, attempted, damaged, fill, held, meet, message_id, peer, received
from click.testing import CliRunner
from starlette.routing import Route
from told_by_models import exact
from workers.fronted import Fronted, a_front

from shadowrelay.admin.access import Access
from shadowrelay.admin.api import build_app
from shadowrelay.admin.node import RunningNode
from shadowrelay.cli import main
from shadowrelay.console.app import Console
from shadowrelay.core.delivery.settling import Ending
from shadowrelay.core.ownership.handover import Remains
from shadowrelay.core.workers import worker_name
from shadowrelay.operator.announcing import MemberShown
from shadowrelay.shown.queues import QueuesPage, ShadowQueuesPage
from shadowrelay.shown.status import PeersAnswer, StatusAnswer
from shadowrelay.workers import proxy

THIRD = worker_name(OURS, 3)
JSON = {"content_type": "application/json"}
IDS = [message_id(number) for number in range(1, 6)]


@asynccontextmanager
async def three(tmp_path: Path) -> AsyncIterator[Fronted]:
    """Queued and exposed mail, mail set aside, and a copy held for a member: all at worker 3."""
    async with a_front(tmp_path, 3) as front:
        made = {one.node.name: one.node for one in front.each}
        for name, node in made.items():
            others = [other for other in made if other != name]
            node.statuses = [*(peer(other) for other in others), peer(MX2)]
            node.elsewhere = {other: made[other] for other in others}
            node.announced = [
                MemberShown(name=other, address=f"{other}:2526", site="here", host="rack1", source="workers")
                for other in (*others, MX2)
            ]
        for one in front.each:
            one.node.rates.sample()
        mail = received(1, MX2, subject="of three"), received(2, None, "b@inside.test"), held(3, MX2)
        await fill(made[THIRD], meet(MX2), *mail, received(4, MX2), damaged(4, aside=True))
        await fill(made[THIRD], received(5, MX2), attempted(5, Ending.ACCEPTED, "250 ok"))
        for one in front.each:
            one.node.rates.sample()
        yield front


async def page(front: Fronted, path: str) -> str:
    """The text of a page."""
    got = await ask(front.port, path, accept="text/html")
    assert got.status == 200, (path, got.text)
    main_part = re.search(r"<main.*</main>", got.text, re.DOTALL)
    assert main_part, path
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", main_part[0])).split())


async def typed(front: Fronted, *words: str) -> str:
    runner = CliRunner(
        env={"SHADOWRELAY_ADMIN_TOKEN": None, "SHADOWRELAY_ADMIN": f"http://127.0.0.1:{front.port}"}
    )
    done = await asyncio.to_thread(runner.invoke, main, list(words))
    return done.output


PAGES = [
    ("/", "Queued 2 "),
    ("/", "The last five minutes at mx1, messages per second"),
    ("/", "Accepted 0.8 4 in all"),
    ("/", "Delivered 0.2 1 in all"),
    ("/queues", "outside"),
    ("/queues/outside", "mx1"),
    ("/messages", IDS[0]),
    ("/messages?state=exposed", IDS[1]),
    ("/messages?state=set_aside", IDS[3]),
    ("/messages?state=shadow", IDS[2]),
    (f"/messages/{IDS[0]}", "of three"),
    (f"/messages/{IDS[0]}", "ann@outside.test outside"),
    ("/messages?q=of+three", IDS[0]),
    ("/node", "Queued 2 Here alone 1 Waits for you 1 Copies for others 1"),
]
ANSWERS = [
    ("/api/v1/status", '"queued":2'),
    ("/api/v1/queues", '"outside"'),
    ("/api/v1/shadow-queues", MX2),
    ("/api/v1/peers", MX2),
    ("/api/v1/drain", '"queued":2'),
    ("/api/v1/scrub", '"messages_of"'),
    ("/api/v1/messages?state=exposed", IDS[1]),
    (f"/api/v1/messages/{IDS[0]}", "of three"),
    ("/api/v1/safety-net", IDS[4]),
    ("/api/v1/cluster/status", '"queued":2'),
    ("/api/v1/cluster/queues", '"outside"'),
    ("/api/v1/cluster/rates", '"accepted"'),
    ("/api/v1/cluster/tls", '"results"'),
    ("/api/v1/cluster/queues/outside", '"messages":1'),
    ("/api/v1/cluster/find?q=ann@outside.test", IDS[0]),
    (f"/api/v1/cluster/messages/{IDS[0]}", "of three"),
    ("/api/v1/cluster/messages?state=set_aside", IDS[3]),
    ("/metrics", 'shadowrelay_queued_messages{worker="3"} 2.0'),
]
"""What each answer of the node has of the mail of its third worker."""

NOT_OF_MAIL = {
    "/act": "its form counts what a job is about: operator/test_jobs.py, over all members",
    "/jobs": "records, which every worker has",
    "/jobs/{id}": "records",
    "/jobs/{id}/stop": "a question",
    "/login": "a form",
    "/tls": "what became of sessions: shown/test_shown_fold.py",
    "/node/announce": "a form",
    **{
        f"{base}/{act}": "a question"
        for base in ("/node", "/nodes/{name}")
        for act in ("drain", "undrain", "reload")
    },
    "/nodes/{name}": "console/test_console_nodes.py, of a member of two workers",
    "/safety-net": "resubmit requests, which are records",
    "/safety-net/new": "operator/test_resubmit.py: what a request is about is counted over all members",
    "/safety-net/{id}/change": "a question",
    "/api/v1/resubmit": "records",
    "/api/v1/resubmit/{id}": "records",
    "/api/v1/redundancy": "a switch: workers/test_front.py adds up its counts",
    "/api/v1/settings": "records",
    "/api/v1/time": "clocks",
    "/api/v1/redirect": "an order, with the sums of its workers",
    "/api/v1/members": "members",
    "/api/v1/jobs": "records",
    "/api/v1/jobs/{id}": "records",
    "/api/v1/suspensions": "records",
    "/api/v1/cluster/trace/{id}": "tracking logs of all members: operator/test_trace_order.py",
    "/api/v1/events": "a stream: workers/test_node_events.py",
    "/api/v1/openapi.json": "a description",
    "/healthz/live": "the process",
    "/healthz/ready": "whether any worker takes mail",
}
"""The routes that tell of no mail, or where else it is shown that they tell of all workers."""

COMMANDS = [
    ("status", r"queued +2"),
    ("status", r"set aside +1"),
    ("status --here", r"queued +2"),
    ("queue list", "outside"),
    ("queue list --here", "outside"),
    ("queue show outside", r"messages +1"),
    ("shadow list", MX2),
    ("peer list", MX2),
    ("message list", IDS[0]),
    (f"message show {IDS[0]}", "ann@outside.test"),
    ("message find ann@outside.test", IDS[0]),
    ("safety-net list", IDS[4]),
    ("safety-net list --since 2026-11-01T00:00:00Z", IDS[4]),
]


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("path", "text"), PAGES)
async def test_a_page_shows_the_mail_of_the_third_worker(path: str, text: str, tmp_path: Path) -> None:
    async with three(tmp_path) as front:
        found = await page(front, path)
    assert text in found, found


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("path", "text"), ANSWERS)
async def test_an_answer_has_the_mail_of_the_third_worker(path: str, text: str, tmp_path: Path) -> None:
    async with three(tmp_path) as front:
        got = await ask(front.port, path)
    assert got.status == 200, got.text
    assert text in got.text, got.text


def test_every_route_is_shown_to_have_the_mail_of_all_workers_or_says_why_not() -> None:
    node = cast(RunningNode, SimpleNamespace(name=OURS, services=None))
    console = Console(node=node, access=Access(()), clock=lambda: datetime.now(UTC))
    routes = [*console.routes(), *build_app(node).routes]
    looks = [one for one in routes if isinstance(one, Route) and "GET" in (one.methods or ())]
    paths = {one.path for one in looks if not one.path.startswith("/static/")}
    asked = {path.partition("?")[0] for path, _ in [*PAGES, *ANSWERS]}
    shown = {next(one.path for one in looks if one.path_regex.match(path)) for path in asked}
    assert paths - shown == set(NOT_OF_MAIL)
    assert not shown & set(NOT_OF_MAIL)


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("command", "text"), COMMANDS)
async def test_a_command_shows_the_mail_of_the_third_worker(command: str, text: str, tmp_path: Path) -> None:
    async with three(tmp_path) as front:
        found = await typed(front, *command.split())
    assert re.search(text, found), found


MODELS = {
    "status": StatusAnswer,
    "peers": PeersAnswer,
    "queues": QueuesPage,
    "shadow-queues": ShadowQueuesPage,
}


async def answer(front: Fronted, path: str) -> dict[str, Any]:
    got = await ask(front.port, f"/api/v1/{path}")
    assert got.status == 200, (path, got.text)
    exact(MODELS[path.partition("?")[0]], got.text)
    return got.json


async def test_an_answer_of_the_node_has_the_mail_of_its_third_worker(tmp_path: Path) -> None:
    async with three(tmp_path) as front:
        status, listed, held_for = [await answer(front, one) for one in ("status", "queues", "shadow-queues")]
        peers = (await answer(front, "peers"))["peers"]
    counts = ("queued", "exposed", "set_aside", "shadow_held", "safety_net")
    assert [status[one] for one in ("name", *counts)] == [OURS, 2, 1, 1, 1, 1]
    assert [one["queued"] for one in status["workers"]] == [0, 0, 2]
    assert [one["identity"] for one in listed["queues"]] == [f"{OURS}\\inside", f"{OURS}\\outside"]
    assert [one["identity"] for one in held_for["shadow_queues"]] == [f"{OURS}\\Shadow\\{MX2}"]
    assert [one["name"] for one in peers] == [one["name"] for one in status["peers"]] == [MX2]


async def test_the_queues_of_a_node_are_one_list_with_the_sums_of_its_workers_page_by_page(
    tmp_path: Path,
) -> None:
    async with three(tmp_path) as front:
        await fill(front.each[0].node, meet(MX2), received(9, MX2))
        first = await answer(front, "queues?limit=1")
        second = await answer(front, f"queues?limit=1&after={quote(first['next'])}")
        wrong = await ask(front.port, "/api/v1/queues?after=nothing")
    queues = [*first["queues"], *second["queues"]]
    assert {one["next_hop"]: one["messages"] for one in queues} == {"outside": 2, "inside": 1}
    assert (second["next"], wrong.status) == (None, 400)


async def test_an_answer_of_the_node_says_which_worker_is_silent(tmp_path: Path) -> None:
    async with three(tmp_path) as front:
        await front.each[0].die()
        status = await answer(front, "status")
        assert (status["name"], status["queued"]) == (OURS, 2)
        assert [one["answers"] for one in status["workers"]] == [False, True, True]
        for path in ("queues", "shadow-queues"):
            assert "worker 1" in (await answer(front, path))["silent"][0]
        for one in front.each[1:]:
            await one.die()
        for path in ("status", "queues", "shadow-queues", "peers"):
            got = await ask(front.port, f"/api/v1/{path}")
            assert (got.status, "worker 3" in got.json["error"]) == (503, True)


@pytest.mark.parametrize("path", ["status", "peers", "queues", "shadow-queues", "drain"])
async def test_a_worker_that_starts_is_named_as_silent_and_not_waited_for(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proxy, "SIGN", 0.5)
    async with three(tmp_path) as front:
        first = front.each[0]
        await first.die()
        first.socket.unlink(missing_ok=True)
        with socket.socket(socket.AF_UNIX) as silent:
            silent.bind(str(first.socket))
            silent.listen()
            first.state = "starting"
            found = (await ask(front.port, f"/api/v1/{path}")).json
    told = found.get("silent") or [one["why"] for one in found["workers"] if not one["answers"]]
    assert told == [f"worker 1 ({OURS}) did not answer within 0.5 s"]


async def test_a_node_is_not_empty_while_its_third_worker_has_mail(tmp_path: Path) -> None:
    async def nothing() -> Remains:
        none: dict[str, Any] = {key: {} for key in ("held_for", "held_by", "handed_over", "awaited")}
        return Remains(queued=0, exposed=0, set_aside=0, reachable=frozenset(), **none)

    async with three(tmp_path) as front:
        first, second, third = (one.node for one in front.each)
        first.remains = second.remains = nothing  # type: ignore[method-assign]
        await ask(front.port, "/api/v1/drain/begin", "POST", **JSON)
        assert "It empties its queue" in await page(front, "/node")
        del first.elsewhere[THIRD]  # silent: for all we know it has mail
        found = await page(front, "/node")
        assert "It empties its queue" in found
        assert "1 of its 3 workers does not answer" in found
        first.elsewhere[THIRD] = third
        third.remains = nothing  # type: ignore[method-assign]
        assert "It is empty" in await page(front, "/node")


async def test_the_charts_say_which_worker_they_are_without(tmp_path: Path) -> None:
    async with three(tmp_path) as front:
        del front.each[0].node.elsewhere[THIRD]
        found = await page(front, "/")
    assert "The last five minutes at mx1, without worker 3, messages" in found
    assert "Accepted 0 0 in all" in found


async def test_a_node_is_no_member_of_its_own_list(tmp_path: Path) -> None:
    async with three(tmp_path) as front:
        found = await page(front, "/node")
    members = found[found.index("Members that this node knows") :]
    assert MX2 in members
    assert OURS not in members


async def test_a_message_looked_at_without_its_copy_has_its_next_hop(tmp_path: Path) -> None:
    async with three(tmp_path) as front:
        await fill(front.each[0].node, meet(MX2), held(1, MX2, "ann@outside.test"))
        told: dict[str, Any] = json.loads(await typed(front, "message", "show", IDS[0], "--json"))
        found = await page(front, f"/messages/{IDS[0]}")
    assert told["recipients"][0]["next_hop"] in found
    assert "ann@outside.test outside ready" in found
