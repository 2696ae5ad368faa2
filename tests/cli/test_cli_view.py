"""The commands that look at a running node, against a real API on a loopback socket."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from admin.admin_node import (
    MX2,
    MX3,
    NOW,
    OURS,
    FakeNode,
    a_node,
    ask,
    attempted,
    fill,
    gone,
    held,
    meet,
    message_id,
    peer,
    received,
    serving,
    tls_result,
    without_digests,
)
from click.testing import CliRunner, Result
from rich.console import Console
from starlette.responses import PlainTextResponse

from shadowrelay.admin.node import MemberState, RefusalView
from shadowrelay.admin.server import MOST, bind, serve
from shadowrelay.cli import main, viewing
from shadowrelay.core.decisions import Decision
from shadowrelay.core.delivery.settling import Ending
from shadowrelay.core.digests import of_content
from shadowrelay.core.hops import Handed
from shadowrelay.core.identifiers import DatabaseId, ServerName
from shadowrelay.core.members.damage import digested
from shadowrelay.settings import SettingsInvalid, load_settings
from shadowrelay.shown import flow_text
from shadowrelay.smtp.receiving.rates import HeldBack

TWINS = ("mx2.north.test", "mx2.south.test")
EVIL = "\x1b]0;title\x07\x9b31m [bold]red[/bold] :smile:"


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[FakeNode]:
    async with a_node(tmp_path) as made:
        await fill(made, meet(MX2), meet(MX3), received(1, MX2), received(2, None), held(3, MX2))
        await fill(made, received(4, MX3), attempted(4, Ending.ACCEPTED, "250 2.0.0 ok"))
        await fill(made, attempted(1, Ending.DEFERRED, f"451 4.7.1 {EVIL}"))
        made.statuses = [
            peer(
                MX2,
                MemberState.UNREACHABLE,
                since=NOW - timedelta(minutes=12),
                step="connect",
                error="refused",
                failures=4,
                promoting_in=timedelta(hours=2, minutes=48),
            ),
            peer(MX3),
        ]
        yield made


async def run(*arguments: str, port: int | None = None, **environ: str) -> Result:
    """The command in a thread of its own: it waits for the node, which lives in our loop."""
    if port is not None:
        environ.setdefault("SHADOWRELAY_ADMIN", f"http://127.0.0.1:{port}")
    runner = CliRunner(env={"SHADOWRELAY_ADMIN_TOKEN": None, **environ})
    return await asyncio.to_thread(runner.invoke, main, list(arguments))


async def good(node: FakeNode, *arguments: str, **environ: str) -> str:
    async with serving(node) as port:
        result = await run(*arguments, port=port, **environ)
    assert result.exit_code == 0, result.output
    return result.stdout


async def test_status_shows_exposure_before_the_backlog_and_shadow_copies_apart(node):
    text = await good(node, "status")
    exposed = text.index("EXPOSED: 1 message in transit has no second copy on another machine; lost if this")
    backlog, other = text.index("\nBacklog"), text.index("\nNot backlog")
    copies, members = text.index("shadow copies"), text.index(f"\n{MX2}")
    assert exposed < backlog < text.index("queued ") < other < copies < members
    assert "AT RISK: 3 messages have one copy that can be reached, since 2026-11-21T09:48:00.000Z" in text
    away = f"  {MX2} is away since 2026-11-21T09:48:00.000Z: 1 message has one copy that can be reached, "
    assert f"{away}the one kept for it\n" in text
    assert text.startswith(f"{OURS} (site here, host rack1), ready\n")
    assert "connect: refused" in text
    assert "promoted in 2 h 48 min" in text
    assert "acknowledged late" not in text


async def test_status_does_not_call_safe_what_only_two_silent_members_may_have(tmp_path):
    async with a_node(tmp_path) as node:
        node.statuses = [peer(name, MemberState.UNREACHABLE, since=NOW) for name in (MX2, MX3)]
        await fill(node, meet(MX2), meet(MX3))
        text = await good(node, "status")
    assert f"UNREACHED: mail of which both copies are at {MX2}, {MX3} cannot be reached" in text
    assert "At risk: 0" not in text


async def test_status_tells_who_is_held_back(tmp_path):
    async with a_node(tmp_path) as node:
        node.held = [
            HeldBack("mx", "messages", f"192.0.2.{number}", number, NOW)
            for number in range(1, flow_text.MOST + 3)
        ]
        text = await good(node, "status")
        whole = json.loads(await good(node, "status", "--json"))
    assert "Held back 1 time: 192.0.2.1, for messages a minute at mx, last at 2026-11-21T10:00" in text
    assert "and 2 clients more" in text
    assert len(whole["held_back"]) == flow_text.MOST + 2


async def test_a_copy_that_a_member_refused_is_shown_with_the_reason(node):
    node.refused = {message_id(2): [RefusalView(MX3, "550 5.7.1 not that", NOW)]}
    assert "A member refused the copy of 1 message of these" in await good(node, "status")
    shown = await good(node, "message", "show", message_id(2))
    assert f"refused by {MX3}" in shown
    assert "550 5.7.1 not that (2026-11-21T10:00:00.000Z)" in shown


async def test_status_tls_shows_what_domains_ask_for_and_what_became_of_it(node):
    assert "No session with a host of a route that has dane or mta_sts" in await good(node, "status", "tls")
    node.tls_results.note(tls_result("a.test", "certificate-host-mismatch"))
    node.tls_results.note(tls_result("b.test", testing=True))
    text = await good(node, "status", "tls", "--utc")
    assert "b.test mail.b.test pkix, testing mta-sts as wanted 2026-11-21T10:00:00" in " ".join(text.split())
    assert "mta-sts certificate-host-mismatch" in " ".join(text.split())
    assert f"{MX2}: it is silent" in text
    alone = json.loads(await good(node, "status", "tls", "--here", "--json"))
    assert [one["domain"] for one in alone["nodes"][0]["results"]] == ["b.test", "a.test"]
    assert len(alone["nodes"]) == 1
    assert len(json.loads(await good(node, "status", "tls", "--json"))["nodes"]) == 3


async def test_status_of_a_node_without_exposure_says_so(tmp_path):
    async with a_node(tmp_path) as fresh:
        fresh.readiness, fresh.statuses = (False, "the disk is full"), []
        text = await good(fresh, "status")
    assert "At risk: 0; every message in transit has a second copy that can be reached" in text
    assert "NOT READY: the disk is full" in text
    assert "This node has no members." in text
    assert "Messages are acknowledged late: a sender hears 250 when the next hops have" in text


async def test_status_says_that_copies_of_a_lost_member_are_perhaps_the_only_ones(node):
    await fill(node, gone(MX2))
    text = await good(node, "status")
    assert (
        "PROMOTING: 1 copy of members that are gone is about to be promoted; there may be no others" in text
    )


async def test_a_node_that_has_copies_to_promote_says_of_nothing_that_it_has_two(tmp_path):
    async with a_node(tmp_path) as fresh:
        await fill(fresh, meet(MX2), held(1, MX2), held(2, MX2), gone(MX2))
        text = await good(fresh, "status")
    assert "PROMOTING: 2 copies of members that are gone are about to be promoted" in text
    assert "At risk: 0" not in text


async def test_a_list_says_which_digests_were_made_late_or_not_at_all(node):
    await fill(node, received(5, MX3), without_digests(5), received(6, MX3), without_digests(6))
    await fill(node, lambda ledger: ledger.apply(digested(ledger, message_id(6), of_content(b"body"))))
    text = await good(node, "message", "list")
    assert "queued, no digest" in text
    assert "queued, digest late" in text
    assert "made here, from what was stored" in await good(node, "message", "show", message_id(6))


async def test_json_is_the_answer_of_the_api(node):
    async with serving(node) as port:
        for command, key in [
            (("status",), "exposed"),
            (("queue", "list", "--here"), "queues"),
            (("shadow", "list"), "shadow_queues"),
            (("safety-net", "list"), "messages"),
            (("message", "list"), "messages"),
            (("message", "show", message_id(1)), "recipients"),
            (("peer", "list"), "peers"),
        ]:
            result = await run(*command, "--json", port=port)
            assert key in json.loads(result.stdout), command
            assert result.stdout.isascii()


async def test_queues_and_shadow_queues_are_separate_lists(node):
    queues = await good(node, "queue", "list")
    shadows = await good(node, "shadow", "list")
    assert f"{OURS}\\outside" in queues
    assert "Shadow" not in queues
    assert f"{OURS}\\Shadow\\{MX2}" in shadows
    assert "unreachable" in shadows


async def test_safety_net_lists_settled_messages_with_whole_ids_when_piped(node):
    text = await good(node, "safety-net", "list")
    lines = text.splitlines()
    assert len(lines) == 2
    assert lines[1].startswith(f"{message_id(4)} ")
    assert "safety_net" in lines[1]


async def test_a_page_tells_how_to_get_the_next_one(node):
    async with serving(node) as port:
        first = await run("message", "list", "--limit", "1", port=port)
        second = await run("message", "list", "--after", message_id(1), port=port)
    assert first.stderr == f"There are more: --after {message_id(1)}\n"
    assert message_id(2) in second.stdout
    assert second.stderr == ""


async def test_show_accepts_the_beginning_of_an_id(node):
    await fill(node, received(21, MX2))
    async with serving(node) as port:
        shown = await run("message", "show", message_id(21)[:-1], port=port)
        several = await run("message", "show", "0193", port=port)
        none = await run("message", "show", "ffff", port=port)
    assert message_id(21) in shown.stdout
    assert "holding" in shown.stdout
    assert (several.exit_code, none.exit_code) == (1, 1)
    assert "several messages begin with 0193" in several.stderr
    assert "no node that answers knows a message ffff" in none.stderr


async def test_show_says_who_beyond_the_boundary_handed_a_message_over(node):
    handed = Handed(message_id(1), ServerName("hub.example.net"), DatabaseId("d9"), message_id(77), (1,))
    await fill(node, lambda ledger: ledger.apply(Decision(None, (handed,))))
    text = await good(node, "message", "show", message_id(1))
    assert f"hub.example.net as {message_id(77)}" in text
    assert "handed over by" not in await good(node, "message", "show", message_id(2))


async def test_what_strangers_wrote_cannot_command_the_terminal_or_the_table(node):
    text = await good(node, "message", "show", message_id(1))
    assert "\\x1b]0;title\\x07\\x9b31m [bold]red[/bold] :smile:" in text
    assert "\x1b" not in text
    assert "\x9b" not in text


async def test_a_narrow_terminal_keeps_ids_whole(node, monkeypatch):
    def narrow() -> Console:
        return Console(width=80, force_terminal=True, highlight=False, markup=False, emoji=False)

    monkeypatch.setattr(viewing, "console", narrow)
    assert message_id(4) in await good(node, "safety-net", "list")


async def test_peer_list_says_since_when_why_and_what_follows(node):
    lines = (await good(node, "peer", "list")).splitlines()
    assert lines[1].startswith(f"{MX2} ")
    assert "2026-11-21T09:48:00.000Z" in lines[1]
    assert lines[2].split()[:2] == [MX3, "reachable"]


async def test_retire_says_what_it_did_and_what_is_left_to_do(node):
    text = await good(node, "peer", "retire", MX2, "--yes")
    assert f"{MX2} was marked retired on this node: its copies no longer count\n" in text
    assert "1 message held for it is promoted, once the other members were asked\n" in text
    assert "The other members are told" in text
    assert node.told_of == [MX2]


async def test_a_member_is_retired_by_its_first_label_and_the_question_names_it_whole(node):
    async with serving(node) as port:
        asked = await run("peer", "retire", "mx2", port=port)
        done = await run("peer", "retire", "MX2", "--yes", port=port)
        unknown = await run("peer", "retire", "mx9", port=port)
    assert f"Is {MX2} gone for good?" in asked.stderr
    assert done.exit_code == 0
    assert node.told_of == [MX2]
    assert "mx9 is not a member here; the members are: mx2.example.net, mx3.example.net" in unknown.stderr
    assert "gone for good" not in unknown.stderr


async def test_a_label_that_two_members_have_retires_neither(node):
    node.statuses = [
        replace(one, name=ServerName(name)) for one, name in zip(node.statuses, TWINS, strict=True)
    ]
    async with serving(node) as port:
        result = await run("peer", "retire", "mx2", "--yes", port=port)
    assert result.exit_code == 1
    assert "mx2 may be mx2.north.test, mx2.south.test" in result.stderr
    assert node.told_of == []


async def test_retire_asks_first_and_does_nothing_without_a_yes(node):
    async with serving(node) as port:
        result = await run("peer", "retire", MX2, port=port)
    assert result.exit_code == 1
    assert "gone for good?" in result.stderr
    assert node.told_of == []


async def test_retiring_a_member_that_answers_fails_with_the_reason(node):
    async with serving(node) as port:
        result = await run("peer", "retire", MX3, "--yes", port=port)
    assert result.exit_code == 1
    assert result.stderr == f"Error: {MX3} answers: it is not gone. Stop it first\n"


async def test_the_token_comes_from_the_environment_and_is_never_shown(node):
    async with serving(node, token="sesame") as port:
        refused = await run("status", port=port)
        wrong = await run("status", port=port, SHADOWRELAY_ADMIN_TOKEN="mellon")
        right = await run("status", port=port, SHADOWRELAY_ADMIN_TOKEN="sesame")
    assert (refused.exit_code, wrong.exit_code, right.exit_code) == (1, 1, 0)
    assert "set SHADOWRELAY_ADMIN_TOKEN to its admin.token" in refused.stderr
    assert "mellon" not in wrong.output


async def test_a_node_that_is_not_there_is_told_with_its_url_and_a_remedy():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    result = await run("status", "--admin", f"http://127.0.0.1:{port}")
    assert result.exit_code == 1
    assert f"no answer from the node at http://127.0.0.1:{port}: " in result.stderr
    assert "Is it running?" in result.stderr
    assert "--admin or SHADOWRELAY_ADMIN" in result.stderr
    assert "Traceback" not in result.output


@asynccontextmanager
async def stranger(answer: bytes, *, at_once: bool) -> AsyncIterator[int]:
    """The port of a server that says this, at once or when asked, and closes."""

    async def reply(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not at_once:
            await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        await writer.drain()
        if answer:
            await reader.read(1)
        writer.close()

    async with await asyncio.start_server(reply, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1]


@pytest.mark.parametrize(
    ("greeting", "scheme", "told"),
    [
        (
            b"220 mx1.example.net ESMTP\r\n",
            "http",
            "what answers at {url} is an SMTP server: it says '220 mx1.example.net ESMTP'",
        ),
        (b"220 mx1.example.net ESMTP\r\n", "https", "no TLS session with what answers at {url}"),
        (
            b"SSH-2.0-\x1b[31m" + b"x" * 5000 + b"\r\n",
            "http",
            "is not an HTTP server: it says 'SSH-2.0-\\x1b[31mx",
        ),
        (b"", "http", "what listens at {url} closed the connection without an answer"),
    ],
)
async def test_a_port_of_something_else_is_told_by_what_it_says(greeting, scheme, told):
    async with stranger(greeting, at_once=bool(greeting)) as port:
        url = f"{scheme}://127.0.0.1:{port}"
        result = await run("status", "--admin", url)
    assert result.exit_code == 1
    assert told.format(url=url) in result.stderr
    assert "the URL of a node's setting admin.listen, such as http://127.0.0.1:8025" in result.stderr
    assert len(result.stderr) < 500
    assert "\x1b" not in result.stderr


@pytest.mark.parametrize(
    "url",
    [
        "foo",
        "127.0.0.1:8025",
        "ftp://mx1",
        "http://",
        "http://mx1:port",
        "http://mx1:99999",
        "http://[::1",
        "http://m x",
    ],
)
async def test_what_is_no_url_of_a_node_is_a_usage_error_that_says_how_one_looks(url):
    result = await run("status", "--admin", url)
    assert result.exit_code == 2
    assert f"'{url}' is not a node's URL: give one such as http://127.0.0.1:8025" in result.stderr


@pytest.mark.parametrize(
    "answer",
    [
        b"220 mail.example.net ESMTP\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n[]",
        b"HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/1.1 500 Oh\r\ncontent-length: 3\r\n\r\nno!",
        b"",
    ],
)
async def test_what_answers_but_is_no_node_is_told(answer):
    async def reply(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        writer.close()

    async with await asyncio.start_server(reply, "127.0.0.1", 0) as server:
        result = await run("status", port=server.sockets[0].getsockname()[1])
    assert result.exit_code == 1
    assert result.stderr.startswith("Error: ")
    assert isinstance(result.exception, SystemExit)


async def test_a_node_with_too_many_requests_is_told_from_what_is_no_node():
    sock, stop, entered = bind("127.0.0.1", 0), asyncio.Event(), asyncio.Semaphore(0)
    port = sock.getsockname()[1]

    async def busy(scope, receive, send) -> None:
        entered.release()
        await stop.wait()
        await PlainTextResponse("late")(scope, receive, send)

    server = asyncio.create_task(serve(busy, sock, stop))
    waiting = [asyncio.create_task(ask(port, "/")) for _ in range(MOST)]
    for _ in waiting:
        await asyncio.wait_for(entered.acquire(), 10)
    result = await run("status", port=port)
    stop.set()
    await asyncio.gather(server, *waiting)
    assert result.exit_code == 1
    assert f"http://127.0.0.1:{port} has more connections than it serves" in result.stderr


async def test_no_proxy_is_asked(node):
    assert OURS in await good(
        node, "status", http_proxy="http://127.0.0.1:1", HTTP_PROXY="http://127.0.0.1:1"
    )


def test_the_variables_of_the_viewers_are_no_settings(tmp_path):
    file = tmp_path / "mx1.toml"
    file.write_text('name = "mx1.example.net"\n[receive.default]\nlisten = "127.0.0.1:2525"\n')
    ours = {"SHADOWRELAY_ADMIN": "http://mx2.example.net:8025", "SHADOWRELAY_ADMIN_TOKEN": "sesame"}
    settings = load_settings(file, ours)
    assert settings.admin.token is None
    table = load_settings(file, {"SHADOWRELAY_ADMIN": '{"token": "sesame is a plant"}'})
    assert table.admin.token is not None
    with pytest.raises(SettingsInvalid):
        load_settings(file, {"SHADOWRELAY_ADMIN": "mx2.example.net:8025"})


def test_how_long_to_wait_is_no_option_where_nothing_is_waited_for() -> None:
    result = CliRunner().invoke(main, ["drain", "--end", "--within", "5s", "--admin", "http://127.0.0.1:1"])
    assert result.exit_code == 2
    assert "--end waits for nothing" in result.output


@pytest.mark.parametrize(
    ("more", "told"), [((), "2026-11-21T10:39:00.000+01:00"), (("--utc",), "2026-11-21T09:39:00.000Z")]
)
async def test_a_command_shows_times_in_the_zone_of_who_reads_or_in_utc(node, monkeypatch, more, told):
    """JSON has them in UTC in any case."""
    await fill(node, received(21, MX2))
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    try:
        assert told in await good(node, "message", "list", *more)
        assert told in await good(node, "message", "show", message_id(21), *more)
        in_json = await good(node, "message", "list", "--json", *more)
        assert "2026-11-21T09:39:00.000Z" in in_json
    finally:
        monkeypatch.undo()
        time.tzset()
