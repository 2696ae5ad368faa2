"""Who acts is kept with the act: the name that a command gives, or the token's own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click
import pytest
import structlog
from click.testing import CliRunner
from sending import MESSAGE, sent
from stations import boundary
from structlog.testing import capture_logs
from test_jobs import running
from test_verbs_by_command import WHY, admin, command

from shadowrelay.admin.access import Access, FixedToken
from shadowrelay.admin.api import build_app
from shadowrelay.cli import main
from shadowrelay.cli.viewing import _user
from shadowrelay.core.operating import Scope
from shadowrelay.core.ownership.set_aside import set_aside
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
    import httpx

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
