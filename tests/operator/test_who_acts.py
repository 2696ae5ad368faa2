"""Who acts is kept with the act: the name that a command gives, or the token's own."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from html import unescape
from pathlib import Path

import click
import httpx
import pytest
import structlog
from click.testing import CliRunner
from sending import MESSAGE, sent
from stations import Station, boundary, eventually
from structlog.testing import capture_logs
from test_jobs import away, came_to, give, running
from test_verbs_by_command import WHY, admin, command

from shadowrelay.admin.access import Access, FixedToken
from shadowrelay.admin.api import build_app
from shadowrelay.cli import main
from shadowrelay.cli.viewing import _user
from shadowrelay.console.app import Console
from shadowrelay.core.identifiers import NextHop
from shadowrelay.core.jobs import Verb
from shadowrelay.core.operating import Scope
from shadowrelay.core.ownership.set_aside import set_aside
from shadowrelay.database.queue import claim
from shadowrelay.members import record_replication
from shadowrelay.operator import job_runner


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(job_runner, "INTERVAL", 0.05)
    monkeypatch.setattr(record_replication, "REFRESH", 0.1)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(20))
    yield
    structlog.reset_defaults()


ACTS: tuple[tuple[tuple[str, ...], str], ...] = (
    (("queue", "retry", "inside", "--yes", *WHY), "/api/v1/jobs"),
    (("queue", "suspend", "inside", *WHY), "/api/v1/suspensions"),
    (("queue", "resume", "inside", *WHY), "/api/v1/suspensions"),
    (("message", "suspend", "--queue", "inside", "--yes", *WHY), "/api/v1/jobs"),
    (("drain",), "/api/v1/drain/begin"),
    (("drain", "--end"), "/api/v1/drain/end"),
    (("redundancy", "off", "--reason", "x"), "/api/v1/redundancy"),
    (("settings", "set", "shadow_retry_interval", "1s", "--reason", "x"), "/api/v1/settings"),
    (("time", "confirm", "--reason", "x"), "/api/v1/time/confirm"),
)


@pytest.mark.parametrize(("words", "path"), ACTS, ids=[" ".join(words[:2]) for words, _ in ACTS])
async def test_the_node_notes_the_name_that_a_command_gives(
    tmp_path: Path, words: tuple[str, ...], path: str
) -> None:
    async with boundary(tmp_path, "mx1") as (one,), admin(one) as url:
        await running(one)
        with capture_logs() as logs:
            done = await command(url, *words, "--operator", "Zoë Müller")
        noted = [row["operator"] for row in logs if row["event"] == "operator_asked" and row["path"] == path]
        assert noted[:1] == ["Zoë Müller"], (done.output, logs)


async def test_the_name_is_in_the_record_the_log_and_what_is_shown_of_the_act(tmp_path: Path) -> None:
    async with boundary(tmp_path, "mx1") as (one,), admin(one) as url:
        await running(one)
        await sent(one, MESSAGE)
        (copy,) = await one.copies()
        await command(url, "message", "suspend", copy.id, "--yes", *WHY, "--operator", "ann")
        (job,) = await one.node.services.jobs.all()
        assert job["operator"] == "ann"
        assert "ann" in (await command(url, "job", "list")).stdout
        await one.read(lambda ledger: ledger.apply(set_aside(copy, one.node.clock())))
        await command(url, "message", "resume", copy.id, "--operator", "bob")
        await one.read(lambda ledger: ledger.apply(set_aside(copy, one.node.clock())))
        await command(url, "message", "bounce", copy.id, "--operator", "eve")
        rows = [
            (row["event-id"], row["custom-data"])
            for row in await one.tracked()
            if row["source"] == "ADMIN" and row.get("network-message-id") == copy.id
        ]
        assert [event for event, _ in rows] == ["SUSPEND", "RESUME", "FAIL"]
        for (_, custom), name in zip(rows, ("ann", "bob", "eve"), strict=True):
            assert f"S:Operator={name}" in custom
        life = (await command(url, "message", "trace", copy.id)).stdout
        assert f"by ann: {WHY[1]}" in life
        assert "by bob" in life
        assert "by eve" in life


@pytest.mark.parametrize(
    ("sudo", "user", "name"), [("ann", "root", "ann"), ("", "bob", "bob"), (None, "bob", "bob")]
)
def test_who_acts_by_sudo_is_who_called_it(
    monkeypatch: pytest.MonkeyPatch, sudo: str | None, user: str, name: str
) -> None:
    monkeypatch.setattr("getpass.getuser", lambda: user)
    monkeypatch.delenv("SUDO_USER", raising=False)
    if sudo is not None:
        monkeypatch.setenv("SUDO_USER", sudo)
    assert _user() == name


@pytest.mark.parametrize(("shared", "operator"), [(True, "ann"), (False, "carol")])
async def test_the_name_of_a_token_of_ones_own_counts_over_what_is_said(
    tmp_path: Path, *, shared: bool, operator: str
) -> None:
    async with boundary(tmp_path, "mx1") as (one,):
        token = FixedToken("s" * 32, "carol", Scope.OPERATE, shared)
        app = build_app(one.node, access=Access((token,)))
        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(app=app), base_url=f"http://{one.name}"
        ) as client:
            said = {"Authorization": f"Bearer {'s' * 32}", "X-Shadowrelay-Operator": "ann"}
            body = {"queue": "inside", "act": "suspend", "reason": "why"}
            answer = await client.post("/api/v1/suspensions", json=body, headers=said)
            assert answer.json()["operator"] == operator
            wrong = {**said, "X-Shadowrelay-Operator": "a%00b"}
            refused = await client.post("/api/v1/suspensions", json=body, headers=wrong)
            assert refused.status_code == (400 if shared else 200)


def commands(
    of: click.Command, words: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    if isinstance(of, click.Group):
        context = click.Context(of)
        for name in of.list_commands(context):
            found = of.get_command(context, name)
            assert found is not None
            yield from commands(found, (*words, name))
    else:
        yield words, of


LOOKS = {"list", "show", "status", "find", "trace", "top", "suspensions", "completion"}


def test_every_command_that_acts_takes_the_name_of_who_does() -> None:
    without = []
    for words, one in commands(main):
        options = {name for each in one.params for name in each.opts}
        if "--admin" in options and "--operator" not in options:
            without.append(words)
    assert {words[-1] for words in without} <= LOOKS, without
    assert CliRunner().invoke(main, ["queue", "suspend", "x", *WHY, "--operator", "a\nb"]).exit_code == 2


@asynccontextmanager
async def console(one: Station) -> AsyncIterator[Callable[[str], Awaitable[str]]]:
    """What a page of its console says."""
    access = Access((FixedToken("s" * 32),))
    app = Console(node=one.node, access=access, clock=one.node.clock).into(build_app(one.node, access=access))
    transport = httpx.ASGITransport(app=app)
    headers = {"Authorization": f"Bearer {'s' * 32}"}
    async with httpx.AsyncClient(
        transport=transport, base_url=f"http://{one.name}", headers=headers
    ) as client:

        async def page(path: str) -> str:
            answer = await client.get(path)
            assert answer.status_code == 200, answer.text
            return " ".join(unescape(re.sub(r"<[^>]*>", " ", answer.text)).split())

        yield page


async def test_who_drains_a_node_or_has_it_take_mail_again_is_told_with_the_drain(tmp_path: Path) -> None:
    async with boundary(tmp_path, "mx1") as (one,), admin(one) as url, console(one) as page:
        await running(one)
        begun = await command(url, "drain", "--operator", "ann")
        assert f"{one.name} is being drained, as ann ordered at 20" in begun.stdout
        again = await command(url, "drain", "--operator", "bob")
        assert "as ann ordered at" in again.stdout, "a drain that runs is that of who began it"
        assert "BEING DRAINED by ann since 20" in (await command(url, "status")).stdout
        assert "It is empty: nothing is left to deliver or to hand over. By ann, " in await page("/node")
        ended = await command(url, "drain", "--end", "--operator", "bob")
        assert f"{one.name} takes mail, as bob ordered at 20" in ended.stdout
        assert "DRAINED" not in (await command(url, "status")).stdout
        assert "A drain was ended. By bob, " in await page("/node")


async def test_who_has_all_be_read_at_once_is_told_with_the_scrub(tmp_path: Path) -> None:
    async with boundary(tmp_path, "mx1") as (one,), admin(one) as url, console(one) as page:
        await running(one)
        one.run(one.node.scrub.run())
        done = await command(url, "scrub", "--operator", "ann")
        assert re.search(r"begun by +ann", done.stdout), done.output
        tree = json.loads((await command(url, "status", "--json")).stdout)
        assert (tree["scrub"]["operator"], tree["scrub"]["last"]["operator"]) == ("", "ann")
        assert ", begun by ann" in await page("/node")


async def test_a_name_that_no_record_could_keep_stops_nothing(tmp_path: Path) -> None:
    async with (
        boundary(tmp_path, "mx1") as (one,),
        admin(one) as url,
        httpx.AsyncClient(base_url=url) as client,
    ):
        await running(one)
        await sent(one, MESSAGE)
        filled = {"filter": {"queue": "inside"}, "operator": "ann", "reason": "spam"}
        job = (await client.post("/api/v1/jobs", json={"verb": "suspend", **filled})).json()["id"]
        window = {"since": "2026-11-21T00:00:00Z", "until": "2026-11-21T10:00:00Z", "all": True}
        made = {"selector": window, "operator": "ann", "reason": "lost"}
        request = (await client.post("/api/v1/resubmit", json=made)).json()["request"]["id"]
        longer = await client.post("/api/v1/resubmit", json=made | {"reason": "x" * 501})
        assert (longer.status_code, "500 characters" in longer.text) == (400, True), longer.text
        for path in (f"jobs/{job}/stop", f"resubmit/{request}/pause"):
            refused = await client.post(f"/api/v1/{path}", json={"operator": "b" * 501})
            assert (refused.status_code, "500 characters" in refused.text) == (400, True), refused.text
            assert (await client.post(f"/api/v1/{path}", json={"operator": "b" * 500})).status_code == 200


async def test_who_redirects_a_queue_and_who_stops_that_is_told_with_the_redirect(tmp_path: Path) -> None:
    async with boundary(tmp_path, "mx1", "mx2") as (one, other), admin(one) as url:
        await running(one, other)
        other.node.connectors = other.connectors[1:]  # it says that it takes mail
        await sent(one, MESSAGE)
        (copy,) = await one.copies()
        await one.read(lambda ledger: claim(ledger, NextHop("inside"), one.node.clock(), 5))
        moving = asyncio.create_task(command(url, "redirect", "--to", "mx2", "--operator", "ann"))

        async def begun() -> bool:
            return one.node.redirecting.running

        await eventually(begun)
        stopped = await command(url, "redirect", "--stop", "--operator", "bob")
        assert f"The redirect to {other.name} was stopped by bob\nann began it at 20" in stopped.stdout
        await moving
        assert copy.id in {found.id for found in await one.copies()}


async def test_who_stops_a_job_is_kept_with_it_on_every_member(tmp_path: Path) -> None:
    async with boundary(tmp_path, "mx1", "mx2") as (one, other), admin(other) as url, console(other) as page:
        await running(one, other)
        await sent(one, MESSAGE)
        now = one.node.clock()
        await one.read(lambda ledger: claim(ledger, NextHop("inside"), now, 5))  # an attempt: the job waits
        job = await give(one, Verb.REMOVE)
        await one.node.services.jobs.stop(job, "bob")
        await came_to(other, job, "stopped")
        await other.read(lambda ledger: ledger.forget_records())  # and read again from the disk
        shown = (await command(url, "job", "show", job)).stdout
        assert f"Stopped by bob on {one.name} at 20" in shown
        assert f"By ann on {one.name}" in shown
        assert "Stopped by bob, " in await page(f"/jobs/{job}")
        assert "ann stopped by bob" in await page("/jobs")


async def test_who_changes_a_resubmit_request_is_kept_with_it(tmp_path: Path) -> None:
    async with boundary(tmp_path, "mx1") as (one,), admin(one) as url, console(one) as page:
        await running(one)
        window = ("--since", "1h", "--until", "1s", "--all")
        made = await command(url, "resubmit", "add", *window, *WHY, "--yes", "--operator", "ann")
        assert made.exit_code == 0, made.output
        before = (await command(url, "resubmit", "show", "1")).stdout
        assert re.search(rf"last change +on {one.name}", before), before
        await command(url, "resubmit", "pause", "1", "--operator", "bob")
        after = (await command(url, "resubmit", "show", "1")).stdout
        assert re.search(rf"last change +bob on {one.name}", after), after
        assert re.search(r"made by +ann on", after), after
        assert "ann changed by bob" in await page("/safety-net")


async def test_who_retires_a_member_is_told_with_the_member(tmp_path: Path) -> None:
    async with boundary(tmp_path, "mx1", "mx2") as (one, other), admin(one) as url:
        await running(one, other)
        await away(other)

        async def gone() -> bool:
            return other.name not in one.node.boundary.reachable()

        await eventually(gone)
        done = await command(url, "peer", "retire", other.name, "--yes", "--operator", "ann")
        assert done.exit_code == 0, done.output
        assert "retired by ann" in (await command(url, "peer", "list")).stdout
