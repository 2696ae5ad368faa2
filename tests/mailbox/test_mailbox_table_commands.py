"""``shadowmailbox forget`` and ``show``, while the service runs and while it does not."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sqlite3
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from mailboxes import Lab, serving

from shadowmailbox.cli import mailbox
from shadowmailbox.delivered_to import Delivered, DeliveredTo
from shadowmailbox.server import TABLE_FILE

NOW = datetime.now(UTC)
ROWS = [
    (Delivered("<1@x>", "", "anna@inside.test"), NOW - timedelta(days=2)),
    (Delivered("<2@x>", "", "Anna@inside.test"), NOW - timedelta(hours=1)),
    (Delivered("<1@x>", "", "b@other.test"), NOW - timedelta(minutes=5)),
]
STATES = pytest.mark.parametrize("running", [True, False], ids=["running", "stopped"])


@pytest.fixture
async def filled(tmp_path: Path) -> Path:
    path = tmp_path / TABLE_FILE
    table = await DeliveredTo.open(path, track=timedelta(days=10))
    for key, at in ROWS:
        await table.record([key], at)
    await table.close()
    return path


async def commanded(path: Path, command: str, *arguments: str, says: str = "") -> Result:
    words = [command, "--table", str(path), *arguments]
    return await asyncio.to_thread(CliRunner().invoke, mailbox, words, says)


def printed(done: Result) -> dict[str, Any]:
    """The JSON; the service in this process may have logged something before it, on whichever stream."""
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = json.loads(done.stdout[done.stdout.index("{") :])
    return found


async def left(path: Path) -> list[str]:
    found = printed(await commanded(path, "show", "--json"))
    return [one["domain"] for one in found["domains"] for _ in range(one["rows"])]


class Service:
    """Runs beside a test, or does not."""

    def __init__(self, directory: Path, running: bool) -> None:
        self._serving = serving(directory, track_duplicates=timedelta(days=10)) if running else None

    async def __aenter__(self) -> Lab | None:
        return await self._serving.__aenter__() if self._serving else None

    async def __aexit__(self, *_: object) -> None:
        if self._serving:
            await self._serving.__aexit__(None, None, None)


@STATES
@pytest.mark.parametrize(
    ("arguments", "rest"),
    [
        (["--all"], []),
        (["--recipient", "anna@INSIDE.test"], ["other.test"]),
        (
            ["--recipient", "anna@inside.test", "--recipient", "b@other.test", "--since", "1d"],
            ["inside.test"],
        ),
        (["--all", "--since", "30m"], ["inside.test", "inside.test"]),
        (["--all", "--until", (NOW - timedelta(days=1)).isoformat()], ["inside.test", "other.test"]),
    ],
)
async def test_what_was_named_is_forgotten_and_told(
    filled: Path, running: bool, arguments: list[str], rest: list[str]
) -> None:
    async with Service(filled.parent, running):
        done = await commanded(filled, "forget", *arguments, "--yes", "--json")
        assert printed(done) == {"forgotten": len(ROWS) - len(rest)}
        assert await left(filled) == rest


@STATES
async def test_without_yes_it_says_how_many_and_asks(filled: Path, running: bool) -> None:
    async with Service(filled.parent, running):
        refused = await commanded(filled, "forget", "--all", says="n\n")
        assert "3 deliveries would be forgotten: all recipients." in refused.output
        assert refused.exit_code == 1
        assert len(await left(filled)) == 3
        done = await commanded(filled, "forget", "--recipient", "b@other.test", says="y\n")
        assert "1 delivery would be forgotten: b@other.test." in done.output
        assert (done.exit_code, done.stdout.splitlines()[-1]) == (0, "1 delivery forgotten.")
        again = await commanded(filled, "forget", "--recipient", "b@other.test")
        assert (again.exit_code, again.stdout.splitlines()[-1]) == (0, "Nothing to forget.")


async def test_what_is_forgotten_is_delivered_again_by_the_service_that_runs(tmp_path: Path) -> None:
    message = b"Message-ID: <1@x>\r\n\r\nhello\r\n"
    async with serving(tmp_path) as lab:
        await lab.send(message)
        assert "Duplicate" in (await lab.send(message))[-1]
        await commanded(tmp_path / TABLE_FILE, "forget", "--all", "--yes")
        assert (await lab.send(message))[-1] == "250 2.0.0 Delivered"
        assert lab.server.counts.forgotten == 1


@STATES
async def test_show_sums_up_by_domain(filled: Path, running: bool) -> None:
    async with Service(filled.parent, running):
        shown = (await commanded(filled, "show")).stdout.splitlines()
    assert [line.split()[:2] for line in shown] == [
        ["domain", "rows"],
        ["inside.test", "2"],
        ["other.test", "1"],
        ["all", "3"],
    ]


async def test_an_empty_table_is_shown_as_empty(tmp_path: Path) -> None:
    async with serving(tmp_path):
        assert (await commanded(tmp_path / TABLE_FILE, "show")).stdout == "It is empty.\n"


async def test_no_table_is_made_where_there_is_none(tmp_path: Path) -> None:
    done = await commanded(tmp_path / "none", "forget", "--all", "--yes")
    assert (done.exit_code, "there is no such table" in done.output) == (1, True)
    assert os.listdir(tmp_path) == []


async def test_a_file_that_is_no_table_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no table\n" * 1000)
    done = await commanded(tmp_path / "text", "forget", "--all", "--yes")
    assert (done.exit_code, "file is not a database" in done.output) == (1, True)


async def test_a_process_that_has_the_table_and_does_not_answer_is_named(
    filled: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shadowmailbox.control._STARTS_WITHIN", 0.2)
    with sqlite3.connect(filled, isolation_level=None) as other:
        other.execute("PRAGMA locking_mode = EXCLUSIVE")
        other.execute("DELETE FROM delivered_to WHERE 0")
        done = await commanded(filled, "forget", "--all", "--yes")
    other.close()
    assert done.exit_code == 1
    assert "in use by another process, which does not answer" in done.output


async def test_the_socket_is_its_users_alone_and_goes_with_the_service(filled: Path) -> None:
    path = filled.with_name(filled.name + ".control")
    with socket.socket(socket.AF_UNIX) as old:  # of a service that was killed
        old.bind(str(path))
    async with serving(filled.parent):
        assert path.stat().st_mode & 0o777 == 0o600
    assert not path.exists()


async def test_the_path_of_a_table_may_be_long(tmp_path: Path) -> None:
    deep = tmp_path / ("x" * 120)
    async with serving(deep):
        assert (await commanded(deep / TABLE_FILE, "show")).stdout == "It is empty.\n"


@pytest.mark.parametrize("asked", [b"nonsense\n", b'{"do": "drop"}\n', b"{}\n", b"\xff\n"])
async def test_what_is_not_understood_changes_nothing(filled: Path, asked: bytes) -> None:
    async with serving(filled.parent, track_duplicates=timedelta(days=10)) as lab:
        path = filled.with_name(filled.name + ".control")
        descriptor = os.open(filled.parent, os.O_RDONLY)
        reader, writer = await asyncio.open_unix_connection(f"/proc/self/fd/{descriptor}/{path.name}")
        os.close(descriptor)
        writer.write(asked)
        assert "not understood" in json.loads(await reader.readline())["error"]
        writer.close()
        assert lab.server.table is not None
        assert await lab.server.table.rows() == 3


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--table", "t"], "--recipient ADDRESS, or --all"),
        (["--table", "t", "--all", "--recipient", "a@x.test"], "--recipient ADDRESS, or --all"),
        (["--all"], "one of --config, --dir and --table"),
        (["--all", "--table", "t", "--dir", "d"], "one of --config, --dir and --table"),
        (["--all", "--table", "t", "--since", "yesterday"], "is no time such as"),
        (["--all", "--table", "t", "--since", "1h", "--until", "2h"], "--since is not before --until"),
        (["--table", "t", "--recipient", "a b@x"], "--recipient"),
        (["--all", "--config", "/nonexistent"], "there is no such file"),
    ],
)
def test_wrong_usage_ends_with_status_2(arguments: list[str], why: str) -> None:
    done = CliRunner().invoke(mailbox, ["forget", *arguments])
    assert (done.exit_code, why in done.output) == (2, True), done.output


async def test_the_settings_of_the_service_name_its_table(tmp_path: Path, filled: Path) -> None:
    file = tmp_path / "mailbox.toml"
    file.write_text(f'deliver = "lmtp://127.0.0.1:24"\ninside = "127.0.0.1:0"\ntable = "{TABLE_FILE}"\n')
    done = await asyncio.to_thread(CliRunner().invoke, mailbox, ["show", "--config", str(file), "--json"])
    assert printed(done)["rows"] == 3


def test_options_of_the_service_come_without_a_command(tmp_path: Path) -> None:
    done = CliRunner().invoke(mailbox, ["--dir", str(tmp_path), "show", "--dir", str(tmp_path)])
    assert (done.exit_code, "give the options behind show" in done.output) == (2, True)
