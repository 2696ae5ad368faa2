"""The verbs as operators give them: commands against the API of real nodes, and what becomes of the mail."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import structlog
from click.testing import CliRunner, Result
from scripted_hop import ScriptedHop
from sending import MESSAGE, sent
from stations import Station, boundary, eventually
from test_jobs import away, came_to, give, running, statuses

from shadowrelay.admin.api import build_app
from shadowrelay.admin.server import bind, serve
from shadowrelay.cli import main
from shadowrelay.core.identifiers import NextHop
from shadowrelay.core.jobs import Verb
from shadowrelay.core.messages import Status
from shadowrelay.database.queue import claim, unclaim
from shadowrelay.members import reconcile, record_replication, repair
from shadowrelay.operator import job_runner
from shadowrelay.operator.jobs import Jobs
from shadowrelay.signals import INTERRUPTED

INSIDE = NextHop("inside")
WHY = ("--reason", "a broken queue")


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    for stage in (reconcile, repair):
        monkeypatch.setattr(stage, "INTERVAL", 0.03)
    monkeypatch.setattr(job_runner, "INTERVAL", 0.05)
    monkeypatch.setattr(record_replication, "REFRESH", 0.1)


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """The nodes run in the process whose output is that of the command."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    yield
    structlog.reset_defaults()


@asynccontextmanager
async def admin(one: Station) -> AsyncIterator[str]:
    """Where the node's API is served."""
    sock, stop = bind("127.0.0.1", 0), asyncio.Event()
    task = asyncio.create_task(serve(build_app(one.node), sock, stop))
    try:
        yield f"http://127.0.0.1:{sock.getsockname()[1]}"
    finally:
        one.node.services.events.close()
        stop.set()
        await task


async def command(url: str, *arguments: str, answer: str = "") -> Result:
    """The command in a thread of its own: it waits for the node, which lives in our loop."""
    runner = CliRunner(env={"SHADOWRELAY_ADMIN": url, "SHADOWRELAY_ADMIN_TOKEN": None})
    return await asyncio.to_thread(runner.invoke, main, list(arguments), answer)


async def in_time(url: str, member: Station, *arguments: str) -> Result:
    """The same, once that member is neither late nor says that it was asked too much in a second."""
    late = re.compile(rf"{re.escape(member.name)} does not answer, and is not counted: (connect: |.*4\.4\.5)")
    done: list[Result] = []

    async def answered() -> bool:
        done[:] = [await command(url, *arguments)]
        return not late.search(done[0].output)

    await eventually(answered)
    return done[0]


async def test_nothing_happens_after_no_or_a_dry_run_and_yes_removes_what_was_shown(tmp_path: Path) -> None:
    async with boundary(tmp_path, "mx1") as (one,), admin(one) as url:
        await running(one)
        await sent(one, MESSAGE, "b@example.net", "c@example.net")
        verb = ("queue", "remove", "inside")
        refused = await command(url, *verb, *WHY, answer="n\n")
        assert refused.exit_code == 1
        assert "1 message to 2 recipients, " in refused.stderr
        assert "remove 1 message? [y/N]" in refused.stderr
        dry = await command(url, *verb, "--dry-run")
        assert (dry.exit_code, dry.stderr) == (0, "")
        assert dry.stdout.startswith("1 message to 2 recipients, ")
        tree = json.loads((await command(url, *verb, "--dry-run", "--json")).stdout)
        assert (tree["messages"], tree["whole"]) == (1, True)
        nameless = await command(url, *verb, "--yes")
        assert nameless.exit_code == 2
        assert "a reason is required" in nameless.stderr
        assert await one.node.services.jobs.all() == []
        assert set(await statuses(one)) == {Status.READY}
        done = await command(url, *verb, *WHY, answer="y\n")
        assert done.exit_code == 0, done.output
        assert "1 message removed, 0 settled before, 0 in hand now" in done.stdout
        assert set(await statuses(one)) == {Status.REMOVED}


async def test_a_filter_that_matches_nothing_ends_the_command_without_a_question(tmp_path: Path) -> None:
    async with boundary(tmp_path, "mx1") as (one,), admin(one) as url:
        await running(one)
        ended = await command(url, "message", "remove", "--sender", "nobody@example.org", *WHY)
        assert ended.exit_code == 1
        assert "nothing to remove: no message matches" in ended.stderr
        assert "[y/N]" not in ended.output
        assert await one.node.services.jobs.all() == []


async def test_ctrl_c_leaves_the_job_running_and_says_how_to_stop_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked, show = asyncio.Event(), Jobs.show

    async def seen(of: Jobs, job_id: str, operator: str = "") -> dict[str, Any]:
        looked.set()
        return await show(of, job_id, operator)

    monkeypatch.setattr(Jobs, "show", seen)
    async with boundary(tmp_path, "mx1") as (one,), admin(one) as url:
        await running(one)
        await sent(one, MESSAGE)
        now = one.node.clock()
        (fork,) = await one.read(lambda ledger: claim(ledger, INSIDE, now, 5))  # so that the job is not done
        environ = {**os.environ, "SHADOWRELAY_ADMIN": url}
        waits = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "shadowrelay", "queue", "remove", "inside", "--yes", *WHY,
            env=environ, stderr=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        try:

            async def in_hand() -> bool:
                return [job["waiting"] for job in await one.node.services.jobs.all()] == [1]

            await eventually(in_hand)
            at_once = await command(url, "queue", "remove", "inside", "--yes", "--no-wait", *WHY)
            assert at_once.exit_code == 0
            assert "0 messages removed" in at_once.stdout
            await asyncio.wait_for(looked.wait(), 20)
            waits.send_signal(signal.SIGINT)
            _, said = await asyncio.wait_for(waits.communicate(), 20)
        finally:
            if waits.returncode is None:
                waits.kill()
                await waits.wait()
        (first, *_) = sorted(job["id"] for job in await one.node.services.jobs.all())
        assert waits.returncode == INTERRUPTED
        assert f"The job goes on. To stop it: shadowrelay job stop {first}." in said.decode()
        await one.read(lambda ledger: unclaim(ledger, fork.copy.id, INSIDE))
        assert (await came_to(one, first, "done"))["phase"] == "done"
        assert await statuses(one) == [Status.REMOVED]


@pytest.mark.parametrize(("verb", "event"), [("bounce", "FAIL"), ("remove", "REMOVE")])
async def test_a_sender_gets_one_report_of_what_a_job_ended_by_a_filter(
    tmp_path: Path, verb: str, event: str
) -> None:
    report = ["--with-report"] if verb == "remove" else []
    async with boundary(tmp_path, "mx1", "mx2") as (one, other), admin(other) as url:
        await running(one, other)
        one.run_repair()  # which makes the second copy of a report
        await sent(one, MESSAGE, "b@example.net")
        await sent(one, MESSAGE, "c@example.com")
        meant = ["--recipient", "*@example.net", "--subject", "HELLO"]
        done = await command(url, "message", verb, *meant, *report, "--yes", *WHY, "--operator", "ann")
        assert done.exit_code == 0, done.output
        await command(url, "message", verb, *meant, *report, "--yes", *WHY)  # once more
        (first, _) = sorted(job["id"] for job in await one.node.services.jobs.all())
        (row,) = [row for row in await one.tracked() if row["event-id"] == event]
        assert (row["source"], row["recipient-address"]) == ("ADMIN", "b@example.net")
        assert f"S:Operator=ann;S:Reason=a broken queue;S:Job={first}" in row["custom-data"]
        (dsn,) = [row for row in await one.tracked() if row["event-id"] == "DSN"]
        assert (dsn["recipient-address"], dsn["reference"]) == ("a@example.org", row["network-message-id"])
        assert sorted(await statuses(one)).count(Status.READY) == 2  # the report, and the other message


async def test_a_retry_of_a_queue_ends_its_rest_on_every_node_and_each_notes_it(tmp_path: Path) -> None:
    async with ScriptedHop(GREETING=b"421 4.3.2 not now\r\n") as hop:
        way = {"domains": ["*"], "host": "127.0.0.1", "port": hop.port, "tls": "none"}
        changes: dict[str, Any] = {"routes": {"inside": way}, "queue_glitch_retry_interval": "10m"}
        async with boundary(tmp_path, "mx1", "mx2", **changes) as (one, other):
            await running(one, other)
            for each in (one, other):
                each.run_queue()
                await sent(each, MESSAGE)
                await eventually(lambda each=each: each.node.hop(INSIDE).rests_until)  # type: ignore[misc]
            hop.script["GREETING"] = [b"220 hop.example ESMTP\r\n"]
            shown = await came_to(one, await give(one, Verb.RETRY), "done")
            await eventually(lambda: len(hop.contents) == 2)
            for each in (one, other):
                rows = [row for row in await each.tracked() if row["event-id"] == "RETRY"]
                (row,) = [row for row in rows if not row.get("network-message-id")]
                assert (row["source"], row["source-context"]) == ("ADMIN", "inside")
                signed = f"S:Operator=ann;S:Reason=a broken queue;S:Job={shown['id']};S:ChangedBy={one.name}"
                assert row["custom-data"].startswith(f"S:Queue=inside;{signed}")
                assert [row["network-message-id"] for row in rows if row.get("network-message-id")]


@pytest.mark.parametrize("scope", ["read", "none"])
async def test_a_member_that_takes_no_acts_and_one_that_is_away_are_lines_that_say_so(
    tmp_path: Path, scope: str
) -> None:
    own = {"mx2": {"peer": {"peer_operate": scope}}}
    async with boundary(tmp_path, "mx1", "mx2", "mx3", own=own) as (one, closed, gone), admin(one) as url:
        await running(one, closed, gone)
        await sent(closed, MESSAGE)
        await away(gone)
        await eventually(lambda: gone.name not in one.node.boundary.reachable())
        dry = (await in_time(url, closed, "queue", "remove", "inside", "--dry-run")).stdout
        assert f"{gone.name} does not answer, and is not counted: " in dry
        silent = f"{closed.name} does not answer, and is not counted: it refuses: preview-job takes the scope"
        assert (silent in dry) == (scope == "none")
        assert dry.startswith("1 message" if scope == "read" else "0 messages")
        job = await give(one, Verb.REMOVE)
        await came_to(one, job, "pending")

        async def refused() -> bool:
            return "it refuses" in (await command(url, "job", "show", job)).stdout

        await eventually(refused)
        lines = (await command(url, "job", "show", job[:12])).stdout.splitlines()
        assert lines[0] == f"Job {job}: remove, pending"
        gives = f"peer_operate here gives {scope}"
        (why,) = [
            line for line in lines if line.startswith(f"{closed.name} does not have the job: it refuses: ")
        ]
        assert why.endswith(gives)
        assert any(line.startswith(f"{gone.name} does not have the job: ") for line in lines)
        assert await statuses(closed) == [Status.READY]
