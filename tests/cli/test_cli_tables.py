"""Tables fit the terminal: no line is wider than it is, and nothing of an id is cut."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import pty
import re
import struct
import sys
import termios
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from admin.admin_node import (
    MX2,
    MX3,
    OURS,
    FakeNode,
    a_node,
    attempted,
    fill,
    held,
    meet,
    message_id,
    peer,
    received,
    serving,
)
from rich.cells import cell_len

from shadowrelay.admin.node import HopStatus, HostStatus, MemberState
from shadowrelay.cli.tables import laid_out
from shadowrelay.cli.viewing import local_times, short_times
from shadowrelay.core.delivery.settling import Ending
from shadowrelay.core.identifiers import NextHop
from shadowrelay.delivery.recent import RecentAttempt

NOW = datetime(2026, 11, 21, 21, 10, tzinfo=UTC)
WIDTHS = (80, 100, 200)
LONG = "451 4.7.1 " + "a reply that is long, " * 12 + "and ends"
EVENT = {
    "id": message_id(1),
    "at": "2026-11-21T10:00:00.123Z",
    "sequence": 7,
    "incarnation": "1" * 16,
    "database_id": "d1",
    "event": "DEFER",
    "source": "SMTP",
    "context": "",
    "server": "mx.outside.test",
    "client": OURS,
    "recipients": ["ann@outside.test"],
    "recipient_count": 1,
    "status": LONG,
    "custom": {},
    "columns": {"message-subject": "hello"},
}


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[FakeNode]:
    async with a_node(tmp_path) as made:
        await fill(made, meet(MX2), meet(MX3), received(1, MX2, subject="word " * 40), received(2, None))
        await fill(made, held(3, MX2), received(4, MX3), attempted(4, Ending.ACCEPTED, "250 2.0.0 ok"))
        await fill(made, attempted(1, Ending.DEFERRED, LONG))
        down = {"since": NOW, "step": "connect", "error": LONG, "failures": 4}
        made.statuses = [peer(MX2, MemberState.UNREACHABLE, **down, promoting_in=timedelta(0)), peer(MX3)]
        hosts = tuple(
            HostStatus(
                host=f"host{n}.a-long-name.outside.test:25", route=NextHop("outside"), failures=1, error=LONG
            )
            for n in range(2)
        )
        made.hops["outside"] = HopStatus(sessions=1, places=1, limit="a limit", hosts=hosts, error=LONG)
        made.attempted = [
            RecentAttempt(
                at=NOW, message=message_id(1), host=hosts[0].host, outcome="deferred", reply=LONG, seconds=1.5
            )
        ]
        made.traced = [EVENT]
        yield made


COMMANDS = [
    ("status",),
    ("status", "--here"),
    ("queue", "list"),
    ("queue", "list", "--here"),
    ("queue", "show", "outside"),
    ("message", "list"),
    ("message", "list", "--state", "safety_net"),
    ("message", "show", message_id(1)),
    ("message", "find", "bob@example.net"),
    ("message", "trace", message_id(1)),
    ("peer", "list"),
    ("shadow", "list"),
    ("safety-net", "list"),
]
SHOWN = {
    ("message", "list"): (message_id(1), message_id(2)),
    ("message", "list", "--state", "safety_net"): (message_id(4),),
    ("message", "show", message_id(1)): (message_id(1),),
    ("message", "find", "bob@example.net"): tuple(map(message_id, (1, 2, 3, 4))),
    ("message", "trace", message_id(1)): (message_id(1),),
    ("queue", "show", "outside"): (message_id(1),),
}


def on_a_terminal(width: int, *words: str, **environ: str) -> str:
    """The output of a command on a terminal of that width."""
    child, terminal = pty.fork()
    if child == 0:  # pragma: no cover
        os.environ |= {"TERM": "xterm-256color", "COLUMNS": str(width), **environ}
        os.execv(sys.executable, [sys.executable, "-m", "shadowrelay", *words])
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, width, 0, 0))
    blocks = list(_read(terminal))
    os.close(terminal)
    _, status = os.waitpid(child, 0)
    text = b"".join(blocks).decode()
    assert os.waitstatus_to_exitcode(status) == 0, text
    return text


def _read(terminal: int) -> Iterator[bytes]:
    while True:
        try:
            block = os.read(terminal, 1 << 16)
        except OSError:  # the other end is closed
            return
        if not block:
            return
        yield block


_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


@pytest.mark.slow
@pytest.mark.parametrize("width", WIDTHS)
async def test_every_table_fits_the_terminal_and_no_id_is_cut(node, width):
    async with serving(node) as port:
        for words in COMMANDS:
            given = {"SHADOWRELAY_ADMIN": f"http://127.0.0.1:{port}"}
            text = _COLOUR.sub("", await asyncio.to_thread(on_a_terminal, width, *words, **given))
            for line in text.splitlines():
                assert cell_len(line) <= width, (words, line)
            for id_ in SHOWN.get(words, ()):
                assert id_ in text, words
            if words[:2] == ("queue", "list"):
                assert f"{OURS}\\outside" in text


async def test_no_color_switches_colours_off(node):
    async with serving(node) as port:
        given = {"SHADOWRELAY_ADMIN": f"http://127.0.0.1:{port}"}
        assert _COLOUR.search(await asyncio.to_thread(on_a_terminal, 100, "status", **given))
        plain = await asyncio.to_thread(on_a_terminal, 100, "status", NO_COLOR="1", **given)
        assert not re.search(r"\x1b\[[0-9;]*3[0-9][0-9;]*m", plain)


@pytest.mark.parametrize("width", WIDTHS)
def test_columns_without_room_go_below_their_row_the_widest_first(width):
    columns, name = ("queue", "status", "why it waits"), "x" * (width - 30)
    lines = list(laid_out(columns, [[name, "resting", LONG], ["mx1.test\\inside", "ready", "–"]], width))
    assert all(cell_len(line) <= width for line in lines)
    assert lines[0].split() == ["queue", "status"]
    assert lines[1].split() == [name, "resting"]
    assert lines[2].startswith("    why it waits: 451 4.7.1")
    assert lines[-1].split() == ["mx1.test\\inside", "ready"]
    assert " ".join(" ".join(lines[2:-1]).split()) == f"why it waits: {LONG}"


def test_a_table_with_room_has_a_line_a_row():
    lines = list(laid_out(("id", "why"), [["a", LONG]], 10_000))
    assert lines == [f"id  {'why'}", f"a   {LONG}"]


def test_a_last_column_that_has_some_room_goes_on_below_itself():
    lines = list(laid_out(("time", "answer"), [["21:07:31", LONG]], 80))
    assert lines[1].startswith("21:07:31  451 4.7.1 a reply")
    assert lines[2].startswith("          ")
    assert all(cell_len(line) <= 80 for line in lines)


def test_wide_letters_are_counted_as_the_terminal_shows_them():
    lines = list(laid_out(("id", "subject"), [["a", "件名" * 60]], 80))
    assert all(cell_len(line) <= 80 for line in lines)
    assert "".join(line.strip() for line in lines[1:]).count("件") == 60


@pytest.mark.parametrize(
    ("text", "short"),
    [
        ("2026-11-21T21:07:31.000Z", "2 min ago"),
        ("2026-11-21T21:09:31.000Z", "29 s ago"),
        ("2026-11-21T21:13:00.000Z", "in 3 min"),
        ("2026-11-21T09:07:31.000Z", "09:07:31 UTC"),
        ("2026-11-20T09:07:31.000Z", "2026-11-20 09:07:31 UTC"),
        ("rests until 2026-11-21T21:13:00.000Z: it failed", "rests until 21:13:00 UTC: it failed"),
        ("no time", "no time"),
    ],
)
def test_times_are_short(text, short):
    assert short_times(text, NOW, UTC) == short


@pytest.mark.parametrize(
    ("text", "short", "whole"),
    [
        ("2026-11-21T09:07:31.000Z", "10:07:31 CET", "2026-11-21T10:07:31.000+01:00"),
        ("2026-11-20T22:59:59.000Z", "2026-11-20 23:59:59 CET", "2026-11-20T23:59:59.000+01:00"),
        ("2026-11-20T23:00:00.000Z", "00:00:00 CET", "2026-11-21T00:00:00.000+01:00"),
        ("2026-07-21T09:07:31.000Z", "2026-07-21 11:07:31 CEST", "2026-07-21T11:07:31.000+02:00"),
        (
            "until 2026-11-21T09:07:31Z, it",
            "until 10:07:31 CET, it",
            "until 2026-11-21T10:07:31.000+01:00, it",
        ),
    ],
)
def test_times_are_those_of_the_zone_with_the_date_where_it_is_not_today(text, short, whole):
    berlin = ZoneInfo("Europe/Berlin")
    assert short_times(text, NOW, berlin) == short
    assert local_times(text, berlin) == whole


async def test_lists_over_all_nodes_are_json_lines_with_a_line_for_a_silent_node(node):
    async with serving(node) as port:
        given = {**os.environ, "SHADOWRELAY_ADMIN": f"http://127.0.0.1:{port}"}
        kinds = {}
        for words in (
            ("queue", "list"),
            ("message", "find", "bob@example.net"),
            ("message", "trace", message_id(1)),
        ):
            ran = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "shadowrelay",
                *words,
                "--json",
                env=given,
                stdout=asyncio.subprocess.PIPE,
            )
            out, _ = await ran.communicate()
            kinds[words[1]] = [json.loads(line)["kind"] for line in out.splitlines()]
    assert kinds == {
        "list": ["queue", "node", "node"],
        "find": ["message"] * 4 + ["node", "node"],
        "trace": ["event", "node", "node"],
    }
