"""The admin address of a node of several workers: real applications on real Unix sockets behind it."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import time
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote, urlencode

import pytest
from admin.admin_node import MX2, MX3, NOW, OURS, Got, ask, attempted, fill, held, meet, message_id, received
from prometheus_client.parser import text_string_to_metric_families
from told_by_models import exact
from workers.fronted import Fronted, a_front

from shadowrelay.admin.access import access_by
from shadowrelay.admin.api import build_app
from shadowrelay.admin.node import RunningNode
from shadowrelay.admin.openapi import operations, served
from shadowrelay.core.delivery.settling import Ending
from shadowrelay.core.members.pace import Amount, Round
from shadowrelay.core.ownership.handover import Remains
from shadowrelay.shown.messages import SafetyNetPage
from shadowrelay.workers import proxy
from shadowrelay.workers.front import build_front

TOKEN = "a token of sixteen"
BEARER = {"authorization": f"Bearer {TOKEN}"}
JSON = {"content_type": "application/json"}
FORM = {"content_type": "application/x-www-form-urlencoded"}


def with_token():
    return access_by(TOKEN)


async def answering(front: Fronted) -> str:
    """The worker that is asked what one alone answers."""
    return str((await ask(front.port, "/api/v1/cluster/status")).json["node"])


async def test_a_request_goes_to_the_lowest_worker_that_serves(tmp_path: Path) -> None:
    async with a_front(tmp_path, 3) as front:
        assert await answering(front) == OURS
        await front.each[0].die()
        assert await answering(front) == f"w2.{OURS}"
        await front.each[1].die(told=False)  # before its supervisor sees it
        assert await answering(front) == f"w3.{OURS}"
        front.each[0].begin()
        assert await answering(front) == OURS


async def test_a_worker_that_was_silent_is_asked_last(tmp_path: Path) -> None:
    """Health checks find out, so that nobody waits for it."""
    async with a_front(tmp_path) as front:
        await front.each[0].die(told=False)
        front.each[0].socket.unlink()
        with socket.socket(socket.AF_UNIX) as frozen:
            frozen.bind(str(front.each[0].socket))
            frozen.listen(16)
            ready = await ask(front.port, "/healthz/ready")
            assert (ready.status, ready.json["ready"]) == (200, True)
            assert "did not answer within" in ready.json["warning"]
            async with asyncio.timeout(proxy.PATIENCE / 4):
                assert await answering(front) == f"w2.{OURS}"


async def test_a_worker_that_gives_a_sign_of_life_is_waited_for_and_one_that_does_not_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proxy, "GLANCE", 0.05)
    async with a_front(tmp_path, 3) as front:
        slow = front.each[1].node
        look = slow.ready

        def slowly() -> Any:  # the look at this one takes longer than a glance, and it lives
            time.sleep(0.2)
            return look()

        monkeypatch.setattr(slow, "ready", slowly, raising=False)
        await front.each[2].die(told=False)
        front.each[2].socket.unlink()
        with socket.socket(socket.AF_UNIX) as frozen:
            frozen.bind(str(front.each[2].socket))
            frozen.listen(16)
            told = (await ask(front.port, "/api/v1/status")).json["workers"]
            assert [one["answers"] for one in told] == [True, True, False]
            assert "worker 3" in told[2]["why"]
            assert "did not answer within" in told[2]["why"]
            found = await scraped(front)
            assert [found[f"shadowrelay_worker_serving,worker={one}"] for one in (1, 2, 3)] == [1, 1, 0]


async def test_without_a_worker_the_answer_says_why_and_the_list_of_workers_too(tmp_path: Path) -> None:
    async with a_front(tmp_path) as front:
        for one in front.each:
            await one.die()
        got = await ask(front.port, "/api/v1/status")
        assert got.status == 503
        assert "worker 2 (w2.mx1.example.net) is waiting (killed by SIGKILL)" in got.json["error"]
        ready = await ask(front.port, "/healthz/ready")
        assert (ready.status, ready.json["ready"]) == (503, False)
        assert "worker 1" in ready.json["reason"]
        assert (await ask(front.port, "/healthz/live")).status == 200
        listed = (await ask(front.port, "/api/v1/workers")).json
        assert listed["name"] == OURS
        assert listed["workers"][1] == {
            "number": 2,
            "name": f"w2.{OURS}",
            "state": "waiting",
            "pid": 1,
            "since": "2026-11-21T10:00:00.000Z",
            "restarts": 1,
            "why": "killed by SIGKILL",
        }
        assert (await ask(front.port, "/api/v1/workers/2")).json == listed["workers"][1]
        assert (await ask(front.port, "/api/v1/workers/2/status")).status == 503
        scraped = await ask(front.port, "/metrics")
        assert scraped.status == 200
        assert "shadowrelay_ready 0.0" in scraped.text
        assert 'shadowrelay_worker_serving{worker="1"} 0.0' in scraped.text


async def test_one_worker_answers_where_its_number_is_in_the_path(tmp_path: Path) -> None:
    async with a_front(tmp_path) as front:
        for number, name in ((1, OURS), (2, f"w2.{OURS}")):
            assert (await ask(front.port, f"/api/v1/workers/{number}/status")).json["name"] == name
        await fill(front.each[1].node, meet(MX2), received(1, MX2), received(2, MX2))
        page = (await ask(front.port, "/api/v1/workers/2/messages?limit=1")).json
        assert len(page["messages"]) == 1
        assert page["next"]
        for wrong in ("3/status", "zero/status", "1/nothing", "99999", "-1", "2/../../../metrics"):
            assert (await ask(front.port, f"/api/v1/workers/{wrong}")).status == 404, wrong


async def test_the_node_is_ready_while_one_worker_is_and_says_which_is_not(tmp_path: Path) -> None:
    async with a_front(tmp_path) as front:
        assert (await ask(front.port, "/healthz/ready")).json == {"ready": True, "reason": ""}
        front.each[1].node.readiness = (False, "less than minimum_free_disk is free")
        got = await ask(front.port, "/healthz/ready")
        assert got.status == 200
        assert got.json["warning"] == "worker 2: less than minimum_free_disk is free"
        await front.each[0].die()
        got = await ask(front.port, "/healthz/ready")
        assert got.status == 503
        assert "worker 1 (mx1.example.net) is waiting" in got.json["reason"]


def own_targets() -> list[tuple[str, str]]:
    """Every operation that the front itself answers and that needs a token."""
    app, _ = build_front(OURS, with_token(), Fronted(0, []), asyncio.Event())
    paths = [(method, path) for method, path in served(app.routes) if path != "/{path}"]
    open_ = {"/login", "/logout", "/healthz/live", "/healthz/ready"}
    return sorted(
        (method, re.sub(r"\{\w+\}", "1", path))
        for method, path in paths
        if path not in open_ and not path.startswith("/node/")
    )


async def test_a_wrong_token_is_refused_at_every_route_of_the_front(tmp_path: Path) -> None:
    async with a_front(tmp_path, access=with_token) as front:
        targets = own_targets()
        assert len(targets) > 15
        for method, target in targets:
            for given in ({}, {"authorization": "Bearer wrong"}, {"cookie": f"shadowrelay-{OURS}=wrong"}):
                got = await ask(front.port, target, method, **given, **JSON)
                assert (got.status, method, target) == (401, method, target)
            for one in front.each:
                assert not one.node.active
        await front.each[0].die()
        await front.each[1].die()
        for target in ("/api/v1/workers/1/status", "/api/v1/status", "/"):
            assert "SIGKILL" not in (await ask(front.port, target)).text
        assert (await ask(front.port, "/api/v1/workers", **BEARER)).status == 200


async def test_without_a_token_a_rebound_page_reads_and_changes_nothing(tmp_path: Path) -> None:
    async with a_front(tmp_path) as front:
        evil = {"host": "evil.example.com"}
        for target in ("/api/v1/workers", "/api/v1/workers/2/status", "/api/v1/status", "/api/v1/drain"):
            assert (await ask(front.port, target, **evil)).status == 403, target
            assert (await ask(front.port, target, host=OURS)).status == 200, target
        assert (await ask(front.port, "/api/v1/drain/begin", "POST", **evil, **JSON)).status == 403
        elsewhere = {"origin": "http://evil.example.com", **JSON}
        assert (await ask(front.port, "/api/v1/drain/begin", "POST", **elsewhere)).status == 403
        assert (await ask(front.port, "/api/v1/workers/2/drain/begin", "POST", **elsewhere)).status == 403
        assert not any(one.node.active for one in front.each)
        await front.each[0].die()  # the second worker has another name, and the same guard
        assert (await ask(front.port, "/api/v1/status", host=OURS)).status == 200


async def test_a_drain_is_of_all_workers_and_its_numbers_are_sums(tmp_path: Path) -> None:
    async with a_front(tmp_path) as front:
        first, second = (one.node for one in front.each)
        await fill(first, meet(MX2), received(1, MX2))
        await fill(second, meet(MX2), meet(MX3), received(2, MX2), received(3, None), held(4, MX3))
        got = (await ask(front.port, "/api/v1/drain/begin", "POST", **JSON)).json
        assert first.active
        assert second.active
        assert (got["name"], got["draining"], got["done"]) == (OURS, True, False)
        assert (got["queued"], got["exposed"]) == (3, 1)
        assert got["held_by"] == {MX2: 2}
        assert got["held_for"] == {MX3: 1}
        assert got["handed_over"] == {MX2: 4}
        assert [(one["worker"], one["queued"]) for one in got["workers"]] == [(1, 1), (2, 2)]
        assert (await ask(front.port, "/api/v1/drain")).json == got
        await front.each[1].die()
        got = (await ask(front.port, "/api/v1/drain")).json
        assert not got["done"]
        assert got["workers"][1]["why"] == f"worker 2 (w2.{OURS}) is waiting (killed by SIGKILL)"
        assert not (await ask(front.port, "/api/v1/drain/end", "POST", **JSON)).json["draining"]
        assert not first.active


async def test_a_drain_is_not_done_while_a_worker_does_not_answer(tmp_path: Path) -> None:
    async def nothing() -> Remains:
        return Remains(
            queued=0,
            exposed=0,
            set_aside=0,
            held_for={},
            held_by={},
            handed_over={},
            awaited={},
            reachable=frozenset(),
        )

    async with a_front(tmp_path) as front:
        for one in front.each:
            one.node.remains = nothing  # type: ignore[method-assign]
        assert (await ask(front.port, "/api/v1/drain/begin", "POST", **JSON)).json["done"]
        await front.each[1].die()
        assert not (await ask(front.port, "/api/v1/drain")).json["done"]


async def test_what_a_worker_may_have_done_is_asked_of_no_other(tmp_path: Path) -> None:
    async def hears_and_ends(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.close()

    async with a_front(tmp_path) as front:
        await front.each[0].die(told=False)
        front.each[0].socket.unlink()
        async with await asyncio.start_unix_server(hears_and_ends, front.each[0].socket):
            assert await answering(front) == f"w2.{OURS}"
            got = await ask(front.port, f"/api/v1/peers/{MX2}/retire", "POST", **JSON)
        assert (got.status, "not known" in got.json["error"]) == (503, True)


async def test_a_scrub_is_of_all_workers(tmp_path: Path) -> None:
    async with a_front(tmp_path) as front:
        got = (await ask(front.port, "/api/v1/scrub", "POST", **JSON)).json
        assert [one["begun"] for one in got["workers"]] == [1, 1]
        assert got["begun"] == 1
        got = (await ask(front.port, "/api/v1/scrub")).json
        assert got["last"] is None
        got = (await ask(front.port, "/api/v1/scrub", "DELETE", **JSON)).json
        assert not got["at_once"]


async def test_a_refusal_of_all_workers_is_one_refusal(tmp_path: Path) -> None:
    async with a_front(tmp_path, access=with_token) as front:
        got = await ask(front.port, "/api/v1/drain/begin", "POST", **BEARER, content_type="text/plain")
        assert got.status == 415
        for one in front.each:
            one.node.opening = True
        got = await ask(front.port, "/api/v1/drain/begin", "POST", **BEARER, **JSON)
        assert (got.status, "opening" in got.json["error"]) == (503, True)


async def form(front: Fronted, target: str, cookie: str = "", **fields: str) -> Got:
    body = urlencode(fields).encode()
    return await ask(front.port, target, "POST", body, **FORM, **({"cookie": cookie} if cookie else {}))


async def test_a_session_of_a_browser_outlives_the_worker_that_answered_it(tmp_path: Path) -> None:
    async with a_front(tmp_path, access=with_token) as front:
        assert (await ask(front.port, "/")).status == 401
        assert "<form" in (await ask(front.port, "/login")).text
        wrong = await form(front, "/login", token="wrong", operator="Ann")
        assert (wrong.status, "<form" in wrong.text) == (401, True)
        begun = await form(front, "/login", token=TOKEN, operator="Ann", next="/node")
        assert (begun.status, begun.headers["location"]) == (303, "/node")
        cookie = begun.raw_headers["set-cookie"].partition(";")[0]
        assert cookie.startswith(f"shadowrelay-{OURS}=")
        page = await ask(front.port, "/node/drain", cookie=cookie)
        assert page.status == 200
        assert "Ann" in page.text
        csrf = re.findall(r'name="csrf" value="([^"]+)"', page.text)[-1]
        await front.each[0].die()
        assert (await ask(front.port, "/api/v1/workers", cookie=cookie)).status == 200
        assert (await form(front, "/node/drain", cookie, csrf="wrong")).status == 403
        assert not front.each[1].node.active
        done = await form(front, "/node/drain", cookie, csrf=csrf)
        assert done.status == 303
        assert front.each[1].node.active
        changed = {"cookie": cookie, "x_csrf_token": csrf, **JSON}
        assert (await ask(front.port, "/api/v1/drain/end", "POST", cookie=cookie, **JSON)).status == 403
        assert (await ask(front.port, "/api/v1/drain/end", "POST", **changed)).status == 200
        assert not front.each[1].node.active
        assert (await form(front, "/logout", cookie, csrf=csrf)).status == 303
        assert (await ask(front.port, "/api/v1/workers", cookie=cookie)).status == 401


async def test_a_form_of_the_console_drains_all_workers(tmp_path: Path) -> None:
    async with a_front(tmp_path) as front:
        page = await ask(front.port, "/node/drain")
        csrf = re.findall(r'name="csrf" value="([^"]+)"', page.text)[-1]
        assert (await form(front, "/node/drain", csrf=csrf)).status == 303
        assert [one.node.active for one in front.each] == [True, True]


async def test_a_client_cannot_say_that_the_front_vouches_for_it(tmp_path: Path) -> None:
    async with a_front(tmp_path, access=with_token) as front:
        vouched = '{"operator":"eve","scope":"operate","csrf":"x","shared":false,"cookie":true}'
        for target in ("/api/v1/status", "/api/v1/workers/1/status", "/api/v1/drain"):
            assert (await ask(front.port, target, x_shadowrelay_session=vouched)).status == 401


async def test_events_stream_through_the_front_until_the_client_goes(tmp_path: Path) -> None:
    async with a_front(tmp_path) as front:
        reader, writer = await asyncio.open_connection("127.0.0.1", front.port)
        writer.write(f"GET /api/v1/events HTTP/1.1\r\nhost: {OURS}\r\n\r\n".encode())
        async with asyncio.timeout(30):
            head = await reader.readuntil(b"\r\n\r\n")
            assert b"content-type: text/event-stream" in head
            told = b""
            while b"event: begin" not in told:
                told += await reader.read(4096)
        assert front.each[0].node.events.wanted
        writer.close()
        async with asyncio.timeout(30):
            while front.each[0].node.events.wanted:  # noqa: ASYNC110 – nobody tells of it
                await asyncio.sleep(0.01)


async def scraped(front: Fronted, target: str = "/metrics") -> dict[str, float]:
    got = await ask(front.port, target)
    assert got.status == 200
    return {
        sample.name + "".join(f",{key}={value}" for key, value in sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(got.text)
        for sample in family.samples
    }


async def test_metrics_and_status_say_the_progress_of_a_scrub_alike(tmp_path: Path) -> None:
    """The first worker has read all it has, and the second little of much."""
    async with a_front(tmp_path) as front:
        for one, done, of in zip(front.each, ((2, 100), (1, 5_000)), ((2, 100), (9, 800_000)), strict=True):
            one.node.scrub.now = Round(number=1, began_at=NOW, done=Amount(*done), of=Amount(*of))
        found = await scraped(front)
        status = (await ask(front.port, "/api/v1/status")).json
    read, of_all = (
        sum(value for key, value in found.items() if key.startswith(f"shadowrelay_scrub_round_{what},"))
        for what in ("read_octets", "octets")
    )
    assert round(read / of_all, 4) == status["scrub"]["progress"] == 0.0206


async def test_metrics_are_those_of_each_worker_with_its_number_and_nothing_is_added_up(
    tmp_path: Path,
) -> None:
    async with a_front(tmp_path) as front:
        first, second = (one.node for one in front.each)
        await fill(first, meet(MX2), received(1, MX2))
        await fill(second, meet(MX2), received(7, MX2), received(9, None))
        second.measured.acknowledgement.observe(0.3)
        found = await scraped(front)
        assert [found[f"shadowrelay_queued_messages,worker={one}"] for one in (1, 2)] == [1, 2]
        counted = "shadowrelay_acknowledgement_seconds"
        assert [found[f"{counted}_count,worker={one}"] for one in (1, 2)] == [0, 1]
        assert found[f"{counted}_bucket,le=+Inf,worker=2"] == 1
        assert found["shadowrelay_logins_total,result=failed,worker=2"] == 2
        assert [one for one in found if "worker=" not in one] == []
        front.each[1].state = "leaving"  # an alarm for workers that do not serve must not name it
        assert "shadowrelay_worker_serving,worker=2" not in await scraped(front)


async def test_metrics_of_a_worker_that_does_not_answer_are_missing(tmp_path: Path) -> None:
    async with a_front(tmp_path) as front:
        await front.each[1].die()
        found = await scraped(front)
        assert found["shadowrelay_worker_restarts_total,worker=2"] == 1
        assert found["shadowrelay_worker_serving,worker=2"] == 0
        assert "shadowrelay_ready,worker=2" not in found
        assert found["shadowrelay_ready,worker=1"] == 1


async def test_a_body_that_is_too_long_goes_to_no_worker(tmp_path: Path) -> None:
    async with a_front(tmp_path) as front:
        for target in ("/api/v1/jobs", "/api/v1/workers/1/jobs", "/login", "/api/v1/reload"):
            got = await ask(front.port, target, "POST", b"{" + b" " * 70_000, **JSON)
            assert got.status == 413, target


async def test_the_document_of_the_api_has_what_the_front_answers_and_what_a_worker_does(
    tmp_path: Path,
) -> None:
    app, _ = build_front(OURS, with_token(), Fronted(0, []), asyncio.Event())
    own = {
        (method, path)
        for method, path in served(app.routes)
        if path != "/{path}" and not path.startswith("/node/")
    }
    of_worker = operations(build_app(cast(RunningNode, None)).routes)
    assert sorted(own - set(operations(app.routes)) - set(of_worker)) == []
    async with a_front(tmp_path) as front:
        paths = (await ask(front.port, "/api/v1/openapi.json")).json["paths"]
        assert {"/api/v1/workers", "/api/v1/members", "/api/v1/status", "/api/v1/drain"} <= set(paths)
        assert set(paths["/api/v1/redundancy"]) == {"get", "post"}  # of the front, and of a worker
        for one in front.each:
            await one.die()
        paths = (await ask(front.port, "/api/v1/openapi.json")).json["paths"]
        assert "/api/v1/workers" in paths
        assert "/api/v1/members" not in paths


async def test_a_message_is_found_at_whichever_worker_has_it(tmp_path: Path) -> None:
    async with a_front(tmp_path) as front:
        await fill(front.each[1].node, meet(MX2), received(2, MX2))
        await fill(front.each[0].node, meet(MX2), received(1, MX2), received(3, MX2))
        target = f"/api/v1/messages/{message_id(2)}"
        assert (await ask(front.port, target)).json["id"] == message_id(2)
        assert (await ask(front.port, target[:-1])).status == 400  # several begin so, on both workers
        assert (await ask(front.port, f"/api/v1/messages/{message_id(9)}")).status == 404
        assert (await ask(front.port, f"{target}/resume", "POST", **JSON)).status == 409
        await front.each[1].die()
        gone = await ask(front.port, target)
        assert (gone.status, "worker 2" in gone.json["error"]) == (503, True)


async def test_the_safety_net_of_all_workers_is_one_list_page_by_page(tmp_path: Path) -> None:
    async with a_front(tmp_path, 3) as front:
        for number in range(1, 8):
            settled = attempted(number, Ending.ACCEPTED, "250 ok")
            await fill(front.each[number % 3].node, meet(MX2), received(number, MX2), settled)
        window = "since=2026-11-01T00:00:00Z&until=2026-12-01T00:00:00Z&limit=2"
        pages, after = [], ""
        while after is not None:
            got = (
                await ask(front.port, f"/api/v1/safety-net?{window}{after and '&after=' + quote(after)}")
            ).json
            exact(SafetyNetPage, json.dumps(got))
            pages.append([one["id"] for one in got["messages"]])
            after = got["next"]
        assert pages == [[message_id(n) for n in some] for some in ((1, 2), (3, 4), (5, 6), (7,))]
        await front.each[0].die()
        got = (await ask(front.port, f"/api/v1/safety-net?{window}")).json
        assert len(got["silent"]) == 1


async def test_the_messages_of_all_workers_are_one_list_page_by_page(tmp_path: Path) -> None:
    async with a_front(tmp_path) as front:
        for place, one in enumerate(front.each):
            await fill(one.node, meet(MX2), *(received(number, MX2) for number in range(1 + place, 9, 2)))
        found, after = [], ""
        while True:
            page = (await ask(front.port, f"/api/v1/messages?limit=3&after={after}")).json
            found += [(one["id"], one["worker"]) for one in page["messages"]]
            assert len(page["messages"]) <= 3
            after = page["next"]
            if after is None:
                break
        names = (OURS, f"w2.{OURS}")
        assert found == [(message_id(number), names[(number - 1) % 2]) for number in range(1, 9)]
        assert (await ask(front.port, "/api/v1/messages?limit=0")).status == 400
