"""Resubmit requests as an operator has them: previews, requests and pages, over HTTP on real nodes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from admin_node import Got, ask
from settled import OCTETS, settled
from stations import Station, boundary, eventually, full

from shadowrelay.admin.api import build_app
from shadowrelay.admin.server import bind, serve
from shadowrelay.core.identifiers import DatabaseId, RequestId, ServerName
from shadowrelay.core.messages import Damage, Stage, Status
from shadowrelay.core.requests import Progress, Request, Selector
from shadowrelay.operator.resubmit import Having, Shown

JSON = {"content_type": "application/json"}
MX1, MX2, MX3 = map(full, ("mx1", "mx2", "mx3"))


@asynccontextmanager
async def api(station: Station) -> AsyncIterator[int]:
    """The port of the node's API."""
    sock, stop = bind("127.0.0.1", 0), asyncio.Event()
    port = sock.getsockname()[1]
    task = asyncio.create_task(serve(build_app(station.node), sock, stop))
    try:
        yield port
    finally:
        stop.set()
        await task


def window(*, since: float = 7200, until: float = 60, **more: Any) -> dict[str, Any]:
    """A selector; ``since`` and ``until`` in seconds ago."""
    now = datetime.now(UTC)
    times = {"since": now - timedelta(seconds=since), "until": now - timedelta(seconds=until)}
    return {name: at.isoformat() for name, at in times.items()} | more


async def post(port: int, path: str, **body: Any) -> Got:
    return await ask(port, f"/api/v1/resubmit{path}", "POST", json.dumps(body).encode(), **JSON)


async def previewed(port: int, selector: dict[str, Any] | None = None, **more: Any) -> Any:
    got = await post(port, "/preview", selector=selector or window(), **more)
    assert got.status == 200, got.text
    return got.json


async def meet(*nodes: Station) -> None:
    """Let the nodes reach each other."""
    for one in nodes:
        one.run_links()
    for one in nodes:
        await eventually(
            lambda one=one: len(one.node.boundary.reachable()) == len(nodes) - 1  # type: ignore[misc]
        )


async def lose(node: Station, *others: Station) -> None:
    """The node is away, and the others have noticed."""
    await node.quiet()
    for connector in node.connectors:
        await connector.stop(0)
    for other in others:
        await eventually(lambda other=other: node.name not in other.node.boundary.reachable())  # type: ignore[misc]


def made(found: Any) -> tuple[int, int, int]:
    return found["messages"], found["recipients"], found["octets"]


async def test_a_preview_counts_what_each_node_delivered_and_nothing_twice(tmp_path: Path) -> None:
    async with boundary(tmp_path, "mx1", "mx2") as (first, second):
        await settled(first, second, number=1, to=("anna@inside.test", "berta@inside.test"))
        await settled(second, first, number=2)
        await settled(second, number=3, ago=timedelta(hours=3))
        await meet(first, second)
        async with api(first) as port:
            found = await previewed(port)
        assert made(found) == (2, 3, 2 * len(OCTETS))
        assert [(one["node"], *made(one)) for one in found["nodes"]] == [
            (MX1, 1, 2, len(OCTETS)),
            (MX2, 1, 1, len(OCTETS)),
        ]
        assert (found["held"], found["unreachable"], found["warnings"]) == ([], [], [])
        assert not found["at_most"]


async def test_a_preview_says_what_is_refused_and_why(tmp_path: Path) -> None:
    async with boundary(tmp_path, "mx1", "mx2") as (first, second):
        await settled(first, number=1, status=Status.RELAYED, to=("a@outside.test", "b@outside.test"))
        await settled(first, number=2, request=RequestId("01900000-0000-7000-9000-000000000009"))
        await settled(first, number=3, damage=Damage.CONTENT)
        await settled(first, number=4, stage=Stage.QUEUED, settled_at=None)
        await settled(first, number=5)
        await meet(first, second)
        async with api(second) as port:
            found = await previewed(port)
        assert made(found)[:2] == (1, 1)
        assert found["refused"] == {
            "outside": 2, "resubmitted": 1, "damaged": 1, "untimed": 0, "in_transit": 1
        }  # fmt: skip
        assert "still in a queue" in found["warnings"][0]


async def test_a_preview_says_what_cannot_be_reached_and_when_its_holders_answer(tmp_path: Path) -> None:
    async with boundary(tmp_path, "mx1", "mx2", "mx3") as (away, second, third):
        for number in range(1, 4):
            await settled(away, second, number=number)
        await settled(away, second, third, number=4)
        await meet(away, second, third)
        await lose(away, second, third)
        async with api(second) as port:
            found = await previewed(port)
            (missing,) = found["unreachable"]
            assert made(found) == (0, 0, 0)
            assert missing["member"] == MX1
            assert missing["why"].startswith("connect: [Errno")
            assert 11 * 3600 < missing["answered_in"] < 12 * 3600
            assert (missing["held"]["messages"], missing["held"]["at_most"]) == (5, True)
            now = await previewed(port, gone=[MX1])
        assert (now["messages"], now["at_most"], now["unreachable"]) == (5, True, [])
        (held,) = now["held"]
        assert (held["owner"], held["why"]) == (MX1, "you say that it is gone")
        assert {name: one["messages"] for name, one in held["holders"].items()} == {MX2: 4, MX3: 1}


async def test_what_an_owner_lost_with_its_database_its_holder_is_to_make(tmp_path: Path) -> None:
    async with boundary(tmp_path, "mx1", "mx2") as (owner, holder):
        await settled(owner, holder, number=1)
        await settled(holder, number=2)
        old = DatabaseId("6f0d7a3e-0000-4000-8000-0000000000ff")
        await holder.read(
            lambda ledger: ledger.connection.execute(
                "UPDATE message SET owner_database = ? WHERE role = 'shadow'", (old,)
            )
        )
        await meet(owner, holder)
        async with api(owner) as port:
            found = await previewed(port)
        (held,) = found["held"]
        assert (held["owner"], held["messages"]) == (MX1, 1)
        assert "another database" in held["why"]


async def test_an_owner_that_was_retired_is_answered_for(tmp_path: Path) -> None:
    async with boundary(tmp_path, "mx1", "mx2") as (owner, holder):
        await settled(owner, holder)
        await meet(owner, holder)
        await lose(owner, holder)
        async with api(holder) as port:
            got = await ask(port, f"/api/v1/peers/{MX1}/retire", "POST", b"{}", **JSON)
            assert got.status == 200, got.text
            found = await previewed(port)
        assert found["messages"] == 1
        assert found["held"][0]["why"] == "it was retired"
        assert found["warnings"] == [
            "This node has no members: each message leaves with one copy, exposed, while the original stays "
            "in Safety Net"
        ]


async def test_a_window_older_than_safety_net_and_a_node_alone_are_warned_about(
    tmp_path: Path,
) -> None:
    async with boundary(tmp_path, "mx1", "mx2") as (first, second), api(first) as port:
        await settled(first)
        await meet(first, second)
        await lose(second, first)
        found = await previewed(port, window(since=3 * 86400))
        assert [one.partition(":")[0] for one in found["warnings"]] == [
            "The window begins before what Safety Net keeps (safety_net_hold_time)",
            "No other member can be reached",
        ]
        (missing,) = found["unreachable"]
        assert (missing["member"], missing["held"]["messages"]) == (MX2, 0)


@pytest.mark.parametrize(
    ("ago", "told"),
    [(timedelta(minutes=90), "since"), (timedelta(days=1), "would drop all of it"), (None, "")],
)
async def test_a_mailbox_service_that_would_drop_what_comes_back_is_warned_about(
    tmp_path: Path, ago: timedelta | None, told: str
) -> None:
    since = (
        (datetime.now(UTC) - ago).isoformat(timespec="milliseconds").replace("+00:00", "Z") if ago else "-"
    )

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 mailbox.test LMTP\r\n")
        while line := await reader.readline():
            known = {b"LHLO": f"250-mailbox.test\r\n250 XDELIVEREDTO {since}\r\n".encode()}
            writer.write(known.get(line.strip()[:4].upper(), b"221 2.0.0 bye\r\n"))
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    route = {"domains": ["*"], "host": "127.0.0.1", "port": server.sockets[0].getsockname()[1], "tls": "none"}
    routes = {"routes": {"inside": route | {"protocol": "lmtp", "inside": True}}}
    async with server, boundary(tmp_path, "mx1", **routes) as (node,), api(node) as port:
        warnings = (await previewed(port))["warnings"]
    found = [one for one in warnings if "shadowmailbox forget" in one]
    assert len(found) == (1 if told else 0)
    assert all(told in one for one in found)


def test_a_request_is_done_when_each_node_that_has_it_has_told_so() -> None:
    now = datetime(2026, 11, 26, 12, tzinfo=UTC)
    request = Request(
        id=RequestId(UUID(int=1)),
        number=1,
        made_by=MX1,
        made_at=now,
        operator="ann",
        reason="disk lost",
        selector=Selector(since=now - timedelta(hours=2), until=now - timedelta(hours=1)),
        changed_by=MX1,
        changed_at=now,
    )

    def shown(*told: ServerName, left: int = 0) -> Shown:
        return Shown(
            request=request,
            open=True,
            progress=tuple(Progress(request=request.id, node=node, owner=node, done=True) for node in told),
            left={MX1: {MX1: left}},
            rates={},
            having=(Having(member=MX2, has=True), Having(member=ServerName("mx3.example.net"), has=False)),
        )

    assert not shown(MX1).done
    assert not shown(MX2).done
    assert not shown(MX1, MX2, left=1).done
    assert shown(MX1, MX2).done


async def test_a_request_is_made_on_any_node_and_shown_with_how_far_each_node_is(tmp_path: Path) -> None:
    async with boundary(tmp_path, "mx1", "mx2", resubmit_rate=200) as (first, second):
        for number in range(1, 21):
            await settled(second, first, number=number)
        await settled(second, number=30, status=Status.RELAYED)
        await meet(first, second)
        async with api(first) as port:
            got = await post(port, "", selector=window(), reason="disk lost", operator="ann")
            assert got.status == 200, got.text
            request = got.json["request"]
            assert (request["number"], request["state"], request["operator"]) == (1, "running", "ann")

            async def shown() -> Any:
                return (await ask(port, "/api/v1/resubmit/1")).json

            found = await shown()
            assert (found["made"], found["left"], found["done"]) == (0, 20, False)
            for one in (first, second):
                one.resubmit()

            async def done() -> bool:
                return bool((await shown())["done"])

            await eventually(done)
            found = await shown()
            assert (found["made"], found["left"], found["skipped"]) == (20, 0, {"outside": 1})
            parts = {(one["node"], one["owner"]): one for one in found["progress"]}
            assert (parts[MX2, MX2]["made"], parts[MX2, MX2]["done"]) == (20, True)
            assert parts[MX2, MX2]["rate"] > 0
            (member,) = found["members"]
            assert (member["name"], member["has"], member["why"]) == (MX2, True, "")
            listed = (await ask(port, "/api/v1/resubmit")).json["requests"]
            assert [one["request"]["id"] for one in listed] == [request["id"]]


async def test_a_request_is_paused_resumed_and_removed_and_that_is_final(tmp_path: Path) -> None:
    async with boundary(tmp_path, "mx1") as (node,), api(node) as port:
        id_ = (await post(port, "", selector=window(), reason="why")).json["request"]["id"]
        assert (await ask(port, "/api/v1/resubmit/1")).json["request"]["operator"] == "anonymous"
        for verb, state in (("pause", "paused"), ("resume", "running"), ("remove", "removed")):
            got = await post(port, f"/{id_[:13]}/{verb}", operator="ann")
            assert (got.status, got.json["request"]["state"]) == (200, state)
        got = await post(port, "/1/resume")
        assert (got.status, got.json["error"]) == (400, "request 1 was removed: that is final")


async def test_a_number_that_two_nodes_gave_names_no_request(tmp_path: Path) -> None:
    async with boundary(tmp_path, "mx1", "mx2") as (first, second):
        ids = []
        for node in (first, second):
            async with api(node) as port:
                ids.append((await post(port, "", selector=window(), reason="why")).json["request"]["id"])
        for one in (first, second):
            one.resubmit()
        await meet(first, second)
        async with api(second) as port:

            async def both() -> bool:
                return (await ask(port, "/api/v1/resubmit/1")).status == 409

            await eventually(both)
            got = await post(port, "/1/pause")
            assert got.status == 409
            assert all(id_ in got.json["error"] for id_ in ids)
            assert sorted(one["id"] for one in got.json["requests"]) == sorted(ids)
            assert (await ask(port, f"/api/v1/resubmit/{ids[0]}")).json["request"]["made_by"] == MX1
            assert (await ask(port, "/api/v1/resubmit/7")).status == 404


async def test_only_a_member_that_is_away_can_be_called_gone(tmp_path: Path) -> None:
    async with boundary(tmp_path, "mx1", "mx2") as (first, second):
        await meet(first, second)
        async with api(first) as port:
            await post(port, "", selector=window(), reason="why")
            for name, why in ((MX2, "answers"), (MX1, "answers you"), ("mx9.example.org", "no member")):
                got = await post(port, "/1/gone", member=name)
                assert got.status == 400
                assert why in got.json["error"] or "not a member" in got.json["error"]
            await lose(second, first)
            assert (await post(port, "/1/gone", member=MX2)).json["request"]["gone"] == [MX2]


@pytest.mark.parametrize(
    ("selector", "why"),
    [
        (window(since=60, until=60), "start before it ends"),
        (window(until=-3600), "end in the past"),
        (window(to="nowhere"), "the routes are: inside (127.0.0.1:9)"),
        (window(sender="not an address"), "*@DOMAIN"),
        (window(recipient="*@*.test"), "*@DOMAIN"),
        (window(network_message_id="7"), "a UUID"),
        (window(colour="red"), "unknown condition colour"),
        ({"since": "yesterday", "until": "now"}, "such as 2026"),
        ({"since": "2026-11-26T09:00:00", "until": "2026-11-26T09:00:00"}, "offset"),
        (window(to=7), "a list of them"),
    ],
)
async def test_a_selector_that_makes_no_sense_is_refused_with_the_reason(
    tmp_path: Path, selector: dict[str, Any], why: str
) -> None:
    async with boundary(tmp_path, "mx1") as (node,), api(node) as port:
        for path, more in (("/preview", {}), ("", {"reason": "why"})):
            got = await post(port, path, selector=selector, **more)
            assert got.status in (400, 422)
            assert why in got.json["error"]
        assert (await ask(port, "/api/v1/resubmit")).json["requests"] == []


async def test_a_request_needs_a_reason_and_room(tmp_path: Path) -> None:
    async with boundary(tmp_path, "mx1", resubmit_most_requests=1) as (node,), api(node) as port:
        assert (await post(port, "", selector=window(), reason=" ")).status == 400
        assert (await post(port, "", selector=window(), reason="x" * 600)).status == 400
        assert (await post(port, "", selector=window(), reason="why")).status == 200
        assert (
            "resubmit_most_requests" in (await post(port, "", selector=window(), reason="why")).json["error"]
        )
        assert (await ask(port, "/api/v1/resubmit", "POST", b"[1]", **JSON)).status == 400
        assert (await ask(port, "/api/v1/resubmit", "POST", b" " * 70_000, **JSON)).status == 413


async def test_where_safety_net_is_off_nothing_is_previewed_or_asked_for(tmp_path: Path) -> None:
    async with boundary(tmp_path, "mx1", safety_net_hold_time="15s") as (node,), api(node) as port:
        for path, more in (("/preview", {}), ("", {"reason": "why"})):
            got = await post(port, path, selector=window(since=10, until=1), **more)
            assert (got.status, "Safety Net is off" in got.json["error"]) == (400, True)


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ({}, [3, 2, 1]),
        ({"to": "inside"}, [3, 2]),
        ({"to": "127.0.0.1"}, [3, 2]),
        ({"to": "127.0.0.1:9"}, [3, 2]),
        ({"sender": "*@sender.test"}, [2, 1]),
        ({"sender": "<>"}, [3]),
        ({"recipient": "ANNA@inside.test"}, [2]),
        ({"message_id": "1@sender.test"}, [1]),
        ({"network_message_id": "01900000-0000-7000-8000-000000000002"}, [2]),
        ({"since": "2100-01-01T00:00:00Z"}, []),
    ],
)
async def test_safety_net_is_found_by_the_same_conditions_page_by_page(
    tmp_path: Path, query: dict[str, str], found: Sequence[int]
) -> None:
    async with boundary(tmp_path, "mx1") as (node,), api(node) as port:
        await settled(node, number=1, to=("dora@out.test",), route="out", ago=timedelta(minutes=10))
        await settled(node, number=2, to=("Anna@Inside.test",), ago=timedelta(minutes=20))
        await settled(node, number=3, sender="", to=("carl@inside.test",), ago=timedelta(minutes=30))
        told, after = [], ""
        while True:
            given = query | {"limit": "1"} | ({"after": after} if after else {})
            text = "&".join(f"{name}={value.replace('+', '%2B')}" for name, value in given.items())
            got = await ask(port, f"/api/v1/safety-net?{text}")
            assert got.status == 200, got.text
            told += [int(one["id"][-3:], 16) for one in got.json["messages"]]
            if not (after := got.json["next"]):
                break
        assert told == found
        assert (await ask(port, "/api/v1/safety-net?limit=0")).status == 400
        assert (await ask(port, "/api/v1/safety-net?after=x")).status == 400
        assert (await ask(port, "/api/v1/safety-net?all=1")).status == 400


async def test_a_member_that_allows_nothing_is_shown_with_its_refusal(tmp_path: Path) -> None:
    own = {"mx2": {"peer": {"peer_operate": "none"}}}
    async with boundary(tmp_path, "mx1", "mx2", own=own) as (first, second):
        await meet(first, second)
        async with api(first) as port:
            (missing,) = (await previewed(port))["unreachable"]
    assert missing["member"] == MX2
    assert "it refuses: preview takes the scope read; peer_operate here gives none" in missing["why"]
