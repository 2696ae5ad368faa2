"""``shadowrelay top``: its figures, its frames at several widths, and its screen on a real terminal."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import pty
import struct
import subprocess
import sys
import termios
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from admin_node import MX2, MX3, OURS, FakeNode, a_node, attempted, fill, meet, received, serving
from click.testing import CliRunner
from stations import eventually
from test_admin_events import writing

from shadowrelay.admin.client import AdminClient, ApiError, NodeEvent
from shadowrelay.admin.node import HopStatus
from shadowrelay.cli import main
from shadowrelay.cli.top_app import TopApp
from shadowrelay.cli.top_figures import (
    Look,
    NodesWatch,
    SeenNode,
    Sorted,
    TopFrame,
    TopLine,
    draw,
    figures,
    looks,
    pace,
    quantile,
    told,
)
from shadowrelay.core.delivery.settling import Ending
from shadowrelay.core.identifiers import NextHop, ServerName
from shadowrelay.core.pressure import Pressure, PressureLevel, Resource
from shadowrelay.core.workers import worker_name

PAGE = """
shadowrelay_ready 1.0
shadowrelay_start_time_seconds 5.0
shadowrelay_queued_messages {queued}
shadowrelay_exposed_messages 2.0
shadowrelay_tracking_events_total{{event="RECEIVE"}} {received}
shadowrelay_tracking_events_total{{event="SEND"}} {sent}
shadowrelay_tracking_events_total{{event="DELIVER"}} {sent}
shadowrelay_acknowledgement_seconds_bucket{{le="0.01"}} {received}
shadowrelay_acknowledgement_seconds_bucket{{le="0.1"}} {received}
shadowrelay_acknowledgement_seconds_bucket{{le="+Inf"}} {received}
shadowrelay_queue_messages{{next_hop="inside"}} 3.0
shadowrelay_queue_oldest_seconds{{next_hop="inside"}} 200.0
shadowrelay_queue_messages{{next_hop="outside"}} {queued}
shadowrelay_queue_oldest_seconds{{next_hop="outside"}} 20.0
shadowrelay_peer_reachable{{peer="mx2.example.net"}} 0.0
"""
NOW = datetime(2026, 11, 27, 2, 0, 7, tzinfo=UTC)


def page(*, received: int = 10, sent: int = 4, queued: int = 7) -> str:
    return PAGE.format(received=received, sent=sent, queued=queued)


def look(text: str, at: float) -> Look:
    """That of a node of one worker."""
    (found,) = looks(text, at).values()
    return found


def seen() -> SeenNode:
    first, second = look(page(), 1.0), look(page(received=30, sent=10), 3.0)
    return SeenNode("http://mx1:1", "mx1.example.net", second, pace(first, second))


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[FakeNode]:
    async with a_node(tmp_path) as made:
        await fill(made, meet(MX2))
        yield made


def test_two_looks_tell_what_happens_in_a_second() -> None:
    found = seen().pace
    assert found.rates == {"accepted": 10.0, "delivered": 6.0, "deferred": 0.0, "failed": 0.0}
    assert quantile(0.5, found.latency) == pytest.approx(0.005)
    assert quantile(0.5, {}) is None
    assert quantile(0.99, {0.1: 0.0, float("inf"): 4.0}) == 0.1
    began_again = look(page().replace("seconds 5.0", "seconds 9.0"), 9.0)
    assert pace(seen().look, began_again).rates == {}
    with pytest.raises(ValueError, match="not that of a shadowrelay node"):
        look("x 1\n", 0.0)


@pytest.mark.parametrize("width", [80, 100, 200])
def test_a_frame_fits_its_width_and_says_what_is_not_safe_and_who_is_away(width: int) -> None:
    away = SeenNode("http://mx3:1", "mx3.example.net", why="no answer from the node: connection refused")
    events = ["02:00:00 mx1 FAIL 000000000001 " + "x" * 300]
    lines = draw(TopFrame(nodes=[seen(), away], events=events, now=NOW), width, 30)
    text = "\n".join(line.text for line in lines)
    assert max(len(line.text) for line in lines) <= width
    assert len(lines) <= 30
    assert "accepted 10.0/s   delivered 6.0/s   deferred 0.0/s   failed 0.0/s" in text
    assert "250 after: p50 5 ms  p95 10 ms  p99 10 ms" in text
    assert [line.text for line in lines if line.bad and "AT RISK 2" in line.text]
    assert [line.text for line in lines if line.bad and line.text.startswith("mx3.example.net: no answer")]
    assert [line.text for line in lines if line.bad and "unreachable" in line.text]
    assert lines[-1].text.startswith("02:00:00 mx1 FAIL")


def test_a_frame_tells_who_was_held_back_within_a_minute_and_no_others() -> None:
    held = [
        {"connector": "mx", "limit": "messages", "who": who, "times": 7, "last": at.isoformat()}
        for who, at in (("user alice", NOW), ("192.0.2.0/24", NOW - timedelta(minutes=2)))
    ]
    text = "\n".join(
        line.text for line in draw(TopFrame(nodes=[seen()], events=(), now=NOW, held_back=held), 100)
    )
    assert "user alice: messages a minute, at mx, 7 times" in text
    assert "192.0.2" not in text


def test_a_frame_tells_what_is_scarce_at_which_node_and_its_limits() -> None:
    def entry(node: str, resource: str, level: str, reading: float) -> dict[str, Any]:
        return {
            "node": node,
            "resource": resource,
            "level": level,
            "reading": reading,
            "limits": [9, 12, 9, 8],
        }

    pressure = [
        entry("mx1.example.net", "data_disk", "low", 5.2),
        entry("mx1.example.net", "queue", "low", 1234.0),
        entry("mx2.example.net", "memory", "high", 12.0),
    ]
    lines = draw(TopFrame(nodes=[seen()], events=(), now=NOW, pressure=pressure), 100)
    assert TopLine("mx1.example.net: data disk 5.2 %, queue 1,234") in lines
    assert TopLine("mx2.example.net: memory 12 % HIGH (9/12/9/8)", bad=True) in lines
    assert "resources" not in [line.text for line in draw(TopFrame(nodes=[seen()], events=(), now=NOW), 100)]


async def test_top_shows_the_resources_of_all_nodes_that_look_at_them(tmp_path: Path) -> None:
    async with a_node(tmp_path) as node, serving(node) as port:
        node.pressed = [Pressure(Resource.QUEUE, PressureLevel.MEDIUM, 100.0, (90, 120, 90, 80))]
        asked = ["top", "--once", "--interval", "200ms", "--admin", f"http://127.0.0.1:{port}"]
        text = (await asyncio.to_thread(CliRunner().invoke, main, asked)).output
        told = json.loads((await asyncio.to_thread(CliRunner().invoke, main, [*asked, "--json"])).output)
    assert f"{OURS}: queue 100 MEDIUM (90/120/90/80)" in text
    entry = {"resource": "queue", "level": "medium", "reading": 100.0, "limits": [90, 120, 90, 80]}
    assert told["pressure"] == [{"node": OURS, **entry}]


def test_workers_of_a_member_are_one_line_and_siblings_none() -> None:
    peers = """
shadowrelay_peer_reachable{peer="w2.mx1.example.net"} 1.0
shadowrelay_peer_reachable{peer="mx2.example.net"} 1.0
shadowrelay_peer_reachable{peer="w2.mx2.example.net"} 0.0
"""
    text = page().replace('shadowrelay_peer_reachable{peer="mx2.example.net"} 0.0', peers.strip())
    lines = draw(
        TopFrame(nodes=[SeenNode("http://mx1:1", "mx1.example.net", look(text, 1.0))], events=(), now=NOW),
        100,
    )
    members = [one.text for one in lines if one.text.startswith(("mx", "w2"))]
    assert [one.split()[:2] for one in members] == [
        ["mx1.example.net", "ready"],
        ["mx2.example.net", "unreachable"],
    ]


class Fronted:
    """The API of a node of two workers, and of a third that does not answer."""

    url, token = "http://mx1:1", None
    received = 10

    def metrics(self) -> str:
        self.received += 4
        given = page(received=self.received).strip().splitlines()
        told = [f'shadowrelay_worker_serving{{worker="{one}"}} {one < 3:d}' for one in (1, 2, 3)]
        for number in ("1", "2"):
            mark = f'{{worker="{number}"'
            told += [
                line.replace("{", f"{mark},", 1) if "{" in line else line.replace(" ", f"{mark}}} ", 1)
                for line in given
            ]
        return "\n".join(told) + "\n"

    def get(self, model: type, *path: str) -> dict[str, Any]:
        if path != ("workers",):
            raise ApiError("an older release", 404)
        return {"workers": [{"number": 1}, {"number": 2}]}

    def events(
        self, names: Sequence[str], after: str = "", *, worker: int | None = None
    ) -> Iterator[NodeEvent]:
        yield NodeEvent("", "begin", {"node": worker_name(ServerName("mx1.example.net"), worker or 1)})
        if not after and worker:
            row = {"date-time": "2026-11-27T02:00:00.000Z", "event-id": "FAIL", "source-context": f"{worker}"}
            yield NodeEvent(f"{worker}-1", "", row)


def test_each_worker_is_a_line_if_asked_and_all_of_them_are_heard() -> None:
    fronted: Any = Fronted()
    watch = NodesWatch([fronted], 0.01, workers=True)
    watch.once()
    assert [(one.name, one.why) for one in watch.nodes] == [
        ("mx1.example.net", ""),
        ("w2.mx1.example.net", ""),
        ("w3.mx1.example.net", "it does not answer"),
    ]
    assert figures(watch.nodes)["waiting"]["queued"] == 14
    lines = draw(TopFrame(nodes=watch.nodes, events=(), now=NOW), 100)
    assert [one.text.split()[:3] for one in lines if "mx1.example.net  " in one.text][-3:] == [
        ["mx1.example.net", "ready", "7"],
        ["w2.mx1.example.net", "ready", "7"],
        ["w3.mx1.example.net", "no", "answer"],
    ]
    watch.start()
    deadline = time.monotonic() + 30
    while len(watch.events) < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert sorted(watch.events) == ["02:00:00 mx1 FAIL 1", "02:00:00 mx1 FAIL 2"]


def test_a_node_of_several_workers_is_one_line_with_their_sums_if_none_is_asked_for() -> None:
    fronted: Any = Fronted()
    watch = NodesWatch([fronted], 0.01)
    watch.once()
    (node,) = watch.nodes
    assert (node.name, node.why) == ("mx1.example.net", "")
    assert node.silent == "worker 3 of 3 does not answer"
    lines = draw(TopFrame(nodes=watch.nodes, events=(), now=NOW), 100)
    assert "mx1.example.net: worker 3 of 3 does not answer" in [one.text for one in lines]
    assert node.look
    assert (node.look.value("queued_messages"), node.look.value("ready")) == (14, 1)
    told = figures(watch.nodes)
    assert told["waiting"]["exposed"] == 4
    assert {one["next_hop"]: (one["messages"], one["oldest"]) for one in told["queues"]} == {
        "inside": (6, 200.0),
        "outside": (14, 20.0),
    }
    each = NodesWatch([fronted], 0.01, workers=True)
    each._seen = watch._seen
    assert told["rates"]["accepted"] == sum(one.pace.rates.get("accepted", 0) for one in each.nodes) > 0
    fronted.metrics = lambda: 'shadowrelay_worker_serving{worker="1"} 0\n'
    watch._look(fronted)
    assert [one.why for one in watch.nodes] == ["none of its workers answers"]


def test_a_node_of_one_worker_is_its_first_worker() -> None:
    assert looks(page(), 1.0) == {1: look(page(), 1.0)}


def test_queues_are_sorted_by_messages_by_age_or_by_name() -> None:
    firsts = []
    by = Sorted.MESSAGES
    for _ in range(3):
        lines = [line.text for line in draw(TopFrame(nodes=[seen()], events=[], now=NOW, sorted_by=by), 80)]
        firsts.append(lines[lines.index(next(x for x in lines if x.startswith("queue"))) + 1].split()[0])
        by = by.next()
    assert firsts == ["outside", "inside", "inside"]
    assert by is Sorted.MESSAGES


def test_an_event_is_one_line_without_control_characters() -> None:
    row = {"date-time": "2026-11-27T02:00:00.123Z", "event-id": "FAIL", "source-context": "no\x1b[31m"}
    assert told("mx1.example.net", row) == "02:00:00 mx1 FAIL no\\x1b[31m"


async def test_one_frame_is_printed_and_its_figures_as_json(node: FakeNode) -> None:
    await fill(node, received(1, MX2), received(2, None))
    async with writing(node), serving(node) as port:
        url = f"http://127.0.0.1:{port}"
        asked = ["top", "--once", "--interval", "200ms", "--admin", url]
        text = (await asyncio.to_thread(CliRunner().invoke, main, asked)).output
        assert "shadowrelay top   mx1.example.net" in text
        assert "AT RISK 1   queued 2" in text
        figures = json.loads((await asyncio.to_thread(CliRunner().invoke, main, [*asked, "--json"])).output)
    assert figures["exposed"] == 1
    here, *members = figures["nodes"]
    assert here == {"name": "mx1.example.net", "url": url, "answers": True, "why": ""}
    assert [(one["name"], one["answers"]) for one in members] == [(MX2, False), (MX3, False)]


def test_before_the_second_look_nothing_is_known_of_a_rate() -> None:
    first = SeenNode("http://mx1:1", "mx1.test", look(page(), 1.0), pace(None, look(page(), 1.0)))
    lines = [one.text for one in draw(TopFrame(nodes=[first], events=(), now=NOW), 100)]
    assert "accepted –/s   delivered –/s   deferred –/s   failed –/s" in lines
    assert next(one for one in lines if one.startswith("mx1.test")).split()[-2:] == ["–", "–"]
    assert not [one for one in lines if "0.0" in one]


async def test_it_finds_the_members_and_tells_the_state_of_each_queue(tmp_path: Path) -> None:
    (tmp_path / "1").mkdir()
    (tmp_path / "2").mkdir()
    async with a_node(tmp_path / "1") as first, a_node(tmp_path / "2") as second:
        await fill(first, meet(MX2), meet(MX3), received(1, MX2))
        second.name = MX2
        await fill(second, meet(MX2), received(2, MX2), received(3, MX2))
        second.hops[NextHop("outside")] = HopStatus(
            sessions=0, places=4, limit="", rests_until=NOW + timedelta(days=999), error="it loses mail"
        )
        first.elsewhere[MX2] = second
        async with writing(first), serving(first) as port:
            asked = ["top", "--once", "--interval", "200ms", "--admin", f"http://127.0.0.1:{port}"]
            text = (await asyncio.to_thread(CliRunner().invoke, main, asked)).output
            told = (await asyncio.to_thread(CliRunner().invoke, main, [*asked, "--json"])).output
    figures = json.loads(told[: told.rindex("}") + 1])
    assert figures["queued"] == 3
    assert [(one["name"], one["answers"]) for one in figures["nodes"]] == [
        (OURS, True), (MX2, True), (MX3, False),
    ]  # fmt: skip
    (queue,) = figures["queues"]
    assert (queue["messages"], queue["state"]) == (3, "resting")
    assert "it loses mail" in queue["reason"]
    assert "resting: " in text


def test_without_an_address_the_settings_file_says_where_the_node_is(tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    file.write_text(
        'name = "mx1.test"\n[receive.default]\nlisten = "127.0.0.1:2525"\n[admin]\n'
        'listen = "127.0.0.1:1"\ntoken = "a token of sixteen"\n'
    )
    environ = {"SHADOWRELAY_CONFIG": str(file), "SHADOWRELAY_ADMIN": None}
    result = CliRunner(env=environ).invoke(main, ["top", "--once", "--interval", "200ms"])
    assert "no answer from the node at http://127.0.0.1:1:" in result.output


def test_a_node_that_is_not_there_is_told_and_ends_the_command() -> None:
    asked = ["top", "--once", "--interval", "200ms", "--admin", "http://127.0.0.1:1"]
    result = CliRunner().invoke(main, asked)
    assert (result.exit_code, "no answer from the node" in result.output) == (1, True)


@pytest.mark.parametrize(
    "width", [80, pytest.param(100, marks=pytest.mark.slow), pytest.param(200, marks=pytest.mark.slow)]
)
async def test_the_screen_shows_figures_and_events_and_obeys_its_keys(node: FakeNode, width: int) -> None:
    await fill(node, received(1, MX2), received(2, MX2))
    async with writing(node), serving(node) as port:
        watch = NodesWatch([AdminClient(f"http://127.0.0.1:{port}", timeout=5)], 0.2)
        app = TopApp(watch, 0.2)

        def shown() -> str:
            return str(app.query_one("#frame").render())  # type: ignore[attr-defined]

        async with app.run_test(size=(width, 30)) as pilot:
            await eventually(lambda: "mx1.example.net" in shown() and "queued 2" in shown())
            await fill(node, attempted(1, Ending.REJECTED, "550 no such user"))
            await eventually(lambda: " FAIL " in shown())
            assert max(len(line) for line in shown().splitlines()) <= width
            await pilot.press("p")
            assert "PAUSED" in shown()
            await fill(node, received(3, None))
            await eventually(lambda: figures(watch.nodes)["waiting"]["exposed"] == 1)
            assert "at risk 0" in shown()
            await pilot.press("p")
            await eventually(lambda: "AT RISK 1" in shown() and "PAUSED" not in shown())
            await pilot.press("q")
        assert app.return_code == 0


async def test_on_a_terminal_it_draws_a_node_that_comes_back_and_ends_by_q(node: FakeNode) -> None:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
    async with serving(node) as port:
        url = f"http://127.0.0.1:{port}"
    environ = {**os.environ, "SHADOWRELAY_ADMIN": url, "TERM": "xterm-256color"}
    environ.pop("SHADOWRELAY_ADMIN_TOKEN", None)
    process = await asyncio.to_thread(
        subprocess.Popen,
        [sys.executable, "-m", "shadowrelay", "top", "--interval", "200ms"],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=environ,
    )
    os.close(theirs)
    text = ""

    async def says(*wanted: str) -> None:
        nonlocal text
        async with asyncio.timeout(30):
            while not any(one in text for one in wanted):
                text += (await asyncio.to_thread(os.read, ours, 65536)).decode("utf-8", "replace")

    try:
        await says("it is asked again")
        async with serving(node, port=port):
            await says("no message waits", "No message waits")
            os.write(ours, b"q")
            assert await asyncio.wait_for(asyncio.to_thread(process.wait), 20) == 0
    finally:
        if process.poll() is None:
            process.kill()
        os.close(ours)


def test_no_other_command_imports_textual() -> None:
    code = "import sys, shadowrelay.cli.top; sys.exit('textual' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_without_a_terminal_top_says_what_to_type_instead() -> None:
    ran = CliRunner().invoke(main, ["top"])
    assert (ran.exit_code, "--once" in ran.output) == (2, True)
