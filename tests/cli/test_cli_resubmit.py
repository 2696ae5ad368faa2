"""``shadowrelay resubmit`` and ``safety-net list``, against real nodes."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import re
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from settled import settled
from stations import Station, boundary, eventually, full

from shadowrelay.admin.api import build_app
from shadowrelay.admin.server import bind, serve
from shadowrelay.cli import main
from shadowrelay.core.messages import Status

WINDOW = ("--since", "2h", "--until", "10m")
ADD = ("resubmit", "add", *WINDOW, "--reason", "disk lost")


@asynccontextmanager
async def api(station: Station) -> AsyncIterator[str]:
    """The URL of the node's API."""
    sock, stop = bind("127.0.0.1", 0), asyncio.Event()
    port = sock.getsockname()[1]
    task = asyncio.create_task(serve(build_app(station.node), sock, stop))
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        stop.set()
        await task


async def run(url: str, *arguments: str) -> Result:
    """The command in a thread of its own, without a terminal."""
    runner = CliRunner(env={"SHADOWRELAY_ADMIN": url, "SHADOWRELAY_ADMIN_TOKEN": None})
    return await asyncio.to_thread(runner.invoke, main, list(arguments))


async def good(url: str, *arguments: str) -> str:
    result = await run(url, *arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


async def told(url: str, *arguments: str) -> Any:
    """The answer as JSON, behind what the node logs meanwhile in the same process."""
    text = await good(url, *arguments, "--json")
    return json.loads(text[text.index("{\n") :])


async def refused(url: str, *arguments: str) -> str:
    """What it says; nothing was done."""
    result = await run(url, *arguments)
    assert result.exit_code == 2, result.output
    return " ".join(result.output.replace("│", "").split())


async def requests(url: str) -> Any:
    return (await told(url, "resubmit", "list"))["requests"]


@asynccontextmanager
async def on_a_terminal(url: str, *arguments: str) -> AsyncIterator[tuple[asyncio.subprocess.Process, int]]:
    """The command as a process on a terminal, and the other end of that terminal."""
    ours, theirs = pty.openpty()
    environment = os.environ | {"SHADOWRELAY_ADMIN": url, "COLUMNS": "160", "TERM": "xterm"}
    command = (sys.executable, "-m", "shadowrelay", *arguments)
    process = await asyncio.create_subprocess_exec(
        *command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment
    )
    os.close(theirs)
    try:
        yield process, ours
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
        os.close(ours)


async def says(terminal: int, wanted: str, within: float = 30) -> str:
    """Read from a terminal until it says that."""
    found = ""
    async with asyncio.timeout(within):
        while wanted not in found:
            found += (await asyncio.to_thread(os.read, terminal, 65536)).decode()
    return found


async def test_a_dry_run_says_what_a_request_would_do_and_makes_none(tmp_path: Path) -> None:
    async with boundary(tmp_path, "mx1") as (node,), api(node) as url:
        await settled(node, number=1, to=("anna@inside.test", "berta@inside.test"))
        await settled(node, number=2, status=Status.RELAYED)
        text = await good(url, *ADD, "--all", "--dry-run")
        assert "The request would resubmit 1 message to 2 recipients" in text
        assert "1  recipients beyond the boundary" in text
        assert "Warning: This node has no members" in text
        found = await told(url, *ADD, "--to", "inside", "--dry-run")
        assert (found["messages"], found["recipients"]) == (1, 2)
        assert await requests(url) == []


async def test_without_a_terminal_a_request_takes_yes(tmp_path: Path) -> None:
    async with boundary(tmp_path, "mx1") as (node,), api(node) as url:
        await settled(node)
        assert "Give --yes to make the request" in await refused(url, *ADD, "--all")
        assert await requests(url) == []
        text = await good(url, *ADD, "--all", "--yes", "--operator", "ann")
        (made,) = await requests(url)
        assert f"Request 1 is made ({made['request']['id']})" in text
        assert "shadowrelay resubmit show 1 --watch" in text
        assert (made["request"]["operator"], made["request"]["reason"]) == ("ann", "disk lost")
        found = await told(url, *ADD, "--recipient", "*@Inside.test", "--yes")
        assert found["preview"]["messages"] == 1
        assert found["request"]["selector"]["recipient"] == "*@inside.test"
        assert found["request"]["operator"]


async def test_on_a_terminal_it_asks_first(tmp_path: Path) -> None:
    async with boundary(tmp_path, "mx1") as (node,), api(node) as url:
        await settled(node)
        for answer, status, count in ((b"n\n", 1, 0), (b"y\n", 0, 1)):
            async with on_a_terminal(url, *ADD, "--all") as (process, terminal):
                assert "would resubmit 1 message" in await says(terminal, "Resubmit 1 message? [y/N]")
                os.write(terminal, answer)
                await says(terminal, "Request 1 is made" if count else "Aborted")
                assert await asyncio.wait_for(process.wait(), 30) == status
            assert len(await requests(url)) == count


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ((*WINDOW, "--reason", "x"), "say --all"),
        ((*WINDOW, "--reason", "x", "--all", "--to", "inside"), "without other conditions"),
        ((*WINDOW, "--reason", " ", "--all"), "--reason is empty"),
        ((*WINDOW, "--all"), "Missing option '--reason'"),
        (("--since", "10m", "--until", "2h", "--reason", "x", "--all"), "earlier than --until"),
        (("--since", "2h", "--until", "2100-01-01T00:00:00Z", "--reason", "x", "--all"), "in the past"),
        (("--since", "soon", "--until", "1h", "--reason", "x", "--all"), "such as 2026-11-26T09:00:00Z"),
        (("--since", "2026-11-26T09:00", "--until", "1h", "--reason", "x", "--all"), "is no time"),
        ((*WINDOW, "--reason", "x", "--to", "nowhere"), "the routes are: inside (127.0.0.1:9)"),
        ((*WINDOW, "--reason", "x", "--sender", "ann"), "*@DOMAIN"),
    ],
)
async def test_what_is_missing_or_wrong_is_said_and_nothing_is_done(
    tmp_path: Path, arguments: tuple[str, ...], why: str
) -> None:
    async with boundary(tmp_path, "mx1") as (node,), api(node) as url:
        assert why in await refused(url, "resubmit", "add", *arguments, "--yes")
        assert await requests(url) == []


async def test_a_time_is_a_moment_or_how_long_ago_it_was(tmp_path: Path) -> None:
    async with boundary(tmp_path, "mx1") as (node,), api(node) as url:
        now = datetime.now(UTC)
        window = ("--since", "1h30m", "--until", (now - timedelta(minutes=5)).isoformat())
        await good(url, "resubmit", "add", *window, "--all", "--reason", "x", "--yes")
        (made,) = await requests(url)
        since, until = (
            datetime.fromisoformat(made["request"]["selector"][end]) for end in ("since", "until")
        )
        assert until == now - timedelta(minutes=5)
        assert abs(since - (now - timedelta(minutes=90))) < timedelta(seconds=30)


async def test_a_request_is_paused_resumed_and_removed_and_listed_as_that(tmp_path: Path) -> None:
    async with boundary(tmp_path, "mx1") as (node,), api(node) as url:
        assert "There are no resubmit requests." in await good(url, "resubmit", "list")
        await good(url, *ADD, "--all", "--yes", "--operator", "ann")
        for verb, state in (("pause", "paused"), ("resume", "running"), ("remove", "removed")):
            assert f"is {state}; gone: –" in await good(url, "resubmit", verb, "1", "--operator", "bob")
            assert state in await good(url, "resubmit", "list")
        assert "was removed: that is final" in await refused(url, "resubmit", "pause", "1")
        assert "no resubmit request 7" in await refused(url, "resubmit", "show", "7")


async def test_a_number_of_two_requests_shows_both_uuids_and_does_nothing(tmp_path: Path) -> None:
    async with boundary(tmp_path, "mx1", "mx2") as (first, second):
        for node in (first, second):
            async with api(node) as url:
                await good(url, *ADD, "--all", "--yes")
        for node in (first, second):
            node.run_links()
            node.resubmit()
        async with api(first) as url:

            async def both() -> bool:
                return len(await requests(url)) == 2

            await eventually(both)
            ids = [one["request"]["id"] for one in await requests(url)]
            for verb in ("show", "pause", "remove"):
                text = await refused(url, "resubmit", verb, "1")
                assert all(id_ in text for id_ in ids)
            assert {one["request"]["state"] for one in await requests(url)} == {"running"}
            shown = await good(url, "resubmit", "show", ids[1])
            assert ids[1] in shown


async def test_show_says_how_far_each_node_is_and_who_has_the_request(tmp_path: Path) -> None:
    async with boundary(tmp_path, "mx1", "mx2", resubmit_rate=500) as (first, second):
        for number in range(1, 6):
            await settled(second, first, number=number)
        await settled(second, number=9, status=Status.RELAYED)
        for node in (first, second):
            node.run_links()
            node.resubmit()
        async with api(first) as url:
            await good(url, *ADD, "--all", "--yes")
            lines = (await good(url, "resubmit", "show", "1", "--watch")).splitlines()
            assert lines[-1] == "done: 5 made, 1 skipped, 0 left"
            text = await good(url, "resubmit", "show", "1")
            found = await told(url, "resubmit", "show", "1", "--watch")
    assert all(word in text for word in ("done", "disk lost", full("mx2"), "1 outside"))
    assert (found["made"], found["skipped"], found["members"][0]["has"]) == (5, {"outside": 1}, True)


async def test_a_watch_is_redrawn_until_ctrl_c_ends_it_and_not_the_request(tmp_path: Path) -> None:
    async with boundary(tmp_path, "mx1") as (node,), api(node) as url:
        await settled(node)
        await good(url, *ADD, "--all", "--yes")
        async with on_a_terminal(url, "resubmit", "show", "1", "--watch") as (process, terminal):
            text = await says(terminal, "delivered by")
            process.send_signal(signal.SIGINT)
            text += await says(terminal, "interrupted")
            assert await asyncio.wait_for(process.wait(), 30) == 130
            assert "Traceback" not in text
            assert text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l")  # the cursor is back
        assert [one["request"]["state"] for one in await requests(url)] == ["running"]


async def test_a_member_that_is_gone_is_named_by_its_first_label(tmp_path: Path) -> None:
    async with boundary(tmp_path, "mx1", "mx2") as (away, holder):
        await settled(away, holder)
        for connector in away.connectors:
            await connector.stop(0)
        holder.run_links()
        await eventually(lambda: away.name not in holder.node.boundary.reachable())
        async with api(holder) as url:
            text = await good(url, *ADD, "--all", "--dry-run")
            assert f"{away.name} cannot be reached since" in text
            assert f"{holder.name} would resubmit 1 message to 1 recipient" in text
            assert re.search(r"in 1[12]h", text)
            assert f"or with --now {away.name}" in text
            text = await good(url, *ADD, "--all", "--yes", "--now", "mx1")
            assert f"held for {away.name}: you say that it is gone" in text
            assert (await requests(url))[0]["request"]["gone"] == [away.name]


async def test_safety_net_is_listed_by_the_conditions_of_a_request(tmp_path: Path) -> None:
    async with boundary(tmp_path, "mx1") as (node,), api(node) as url:
        first = await settled(node, number=1, ago=timedelta(minutes=50))
        second = await settled(node, number=2, ago=timedelta(minutes=40))
        third = await settled(node, number=3, to=("carl@other.test",))
        text = await good(url, "safety-net", "list", "--recipient", "*@inside.test")
        assert [id_ in text for id_ in (first, second, third)] == [True, True, False]
        result = await run(url, "safety-net", "list", "--to", "inside", "--since", "1d", "--limit", "1")
        assert third in result.stdout
        after = result.stderr.split("--after ")[1].strip()
        text = await good(url, "safety-net", "list", "--to", "inside", "--since", "1d", "--after", after)
        assert [id_ in text for id_ in (first, second, third)] == [True, True, False]
        found = await told(url, "safety-net", "list", "--since", "1d")
        assert len(found["messages"]) == 3
        assert first in await good(url, "safety-net", "list")
        assert "hello" in await good(url, "safety-net", "show", first)
        assert "Safety Net has none." in await good(url, "safety-net", "list", "--sender", "x@y.test")
