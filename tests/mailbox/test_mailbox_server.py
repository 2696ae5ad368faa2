from __future__ import annotations

import asyncio
import errno
import os
import socket
import sqlite3
from collections import Counter
from datetime import timedelta
from pathlib import Path

import pytest
from mailboxes import MESSAGE, options, serving
from stations import MachineClocks

from shadowmailbox import maildir, server
from shadowmailbox.delivered_to import DeliveredTo, TableError, TableUnusable
from shadowmailbox.server import MailboxCannotListen, MailboxServer
from shadowrelay.node_clock import NodeClock

DELIVERED = "250 2.0.0 Delivered"
DROPPED = "250 2.0.0 Duplicate dropped, delivered before"
REFUSED = "451 4.3.2 Mailbox server refuses mail for now"
PORTS = pytest.mark.parametrize("port", ["inside", "outside"])


@PORTS
async def test_a_message_is_kept_byte_for_byte_below_our_trace_fields(tmp_path: Path, port: str) -> None:
    odd = MESSAGE + b"\x00\xff.\r\n.\r\n\r\n"
    async with serving(tmp_path) as lab:
        assert (await lab.send(odd, "Alice@Example.NET", port=port))[-1] == DELIVERED
        [content] = lab.contents()
        assert lab.delivered() == ["Alice@example.net"]
    trace = content.removesuffix(odd).decode().split("\r\n")
    assert trace[:2] == ["Return-Path: <s@example.org>", "Delivered-To: Alice@example.net"]
    assert trace[2] == "Received: from relay.example.net ([127.0.0.1])"
    assert trace[3].startswith(
        "\tby mailbox.example.net with UTF8" + ("LMTP" if port == "inside" else "SMTP")
    )
    assert trace[4].startswith("\tfor <Alice@example.net>; ")
    assert trace[5:] == [""]


async def test_a_text_without_header_is_not_taken_for_one(tmp_path: Path) -> None:
    async with serving(tmp_path) as lab:
        assert (await lab.send(b"hello: and\r\n"))[-1] == DELIVERED
        assert (await lab.send(b"hello\r\nworld"))[-1] == DELIVERED
        field, text = sorted(lab.contents(), key=len)
    assert b"\r\n\r\n" not in field
    assert text.endswith(b"\r\n\r\nhello\r\nworld")


async def test_a_large_message_takes_the_same_way(tmp_path: Path) -> None:
    large = MESSAGE + (b"x" * 70 + b"\r\n") * 20_000
    async with serving(tmp_path) as lab:
        assert (await lab.send(large))[-1] == DELIVERED
        assert lab.contents()[0].endswith(large)
        assert sorted(os.listdir(tmp_path))[3:] == ["example.net"]  # after the table, its log and its socket


@PORTS
async def test_the_same_message_is_delivered_once(tmp_path: Path, port: str) -> None:
    async with serving(tmp_path) as lab:
        assert (await lab.send(MESSAGE, port="outside"))[-1] == DELIVERED
        longer_way = b"Received: by elsewhere\r\n\tfor you\r\n" + MESSAGE
        assert (await lab.send(longer_way, port=port))[-1] == DROPPED
        assert lab.delivered() == ["alice@example.net"]
    async with serving(tmp_path) as lab:
        assert (await lab.send(MESSAGE, port=port))[-1] == DROPPED


@pytest.mark.parametrize("step", [timedelta(days=365), timedelta(days=-365), timedelta(hours=20)])
async def test_a_wall_clock_that_steps_forgets_no_delivery(tmp_path: Path, step: timedelta) -> None:
    clocks = MachineClocks()
    often = timedelta(milliseconds=50)
    async with serving(tmp_path, NodeClock(read=clocks.read), sweep_interval=often) as lab:
        assert (await lab.send(MESSAGE))[-1] == DELIVERED
        clocks.ahead = step
        await asyncio.sleep(0.3)  # some sweeps
        assert (await lab.send(MESSAGE))[-1] == DROPPED
        clocks.ahead = timedelta(0)
        assert (await lab.send(MESSAGE))[-1] == DROPPED
        clocks.passed = timedelta(hours=2)  # longer than track_duplicates
        assert (await lab.send(MESSAGE))[-1] == DELIVERED


async def test_copies_that_arrive_at_the_same_time_are_one(tmp_path: Path) -> None:
    async with serving(tmp_path) as lab:
        replies = await asyncio.gather(*(lab.send(MESSAGE, port="inside") for _ in range(8)))
        assert Counter(reply[-1] for reply in replies) == {DELIVERED: 1, DROPPED: 7}
        assert len(lab.delivered()) == 1


@pytest.mark.parametrize(
    ("other", "same"),
    [
        (MESSAGE.replace(b"..hello", b"other text"), True),
        (MESSAGE.replace(b"Date: today", b"date:\r\n today "), True),
        (MESSAGE.replace(b"today", b"tomorrow"), False),
        (MESSAGE.replace(b"<1@", b"<2@"), False),
    ],
    ids=["another text", "another spelling", "another time", "another id"],
)
async def test_message_id_and_date_say_what_is_the_same(tmp_path: Path, other: bytes, same: bool) -> None:
    async with serving(tmp_path) as lab:
        await lab.send(MESSAGE)
        assert (await lab.send(other))[-1] == (DROPPED if same else DELIVERED)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (b"Subject: a\r\n\r\nx\r\n", b"Received: by b\r\n\tc\r\nSubject: a\r\n\r\nx\r\n", True),
        (b"Subject: a\r\n\r\nx\r\n", b"Subject: a\r\n\r\ny\r\n", False),
        (b"Subject: a\r\nReceived: x\r\n\r\nx\r\n", b"Subject: a\r\n\r\nx\r\n", False),
        (b"\r\nx\r\n", b"Received: a\r\n\r\nx\r\n", True),
        (b"no header\r\n", b"no header\r\n", True),
        (b"", b"", True),
    ],
)
async def test_without_message_id_the_content_below_the_trace_says_it(
    tmp_path: Path, one: bytes, other: bytes, same: bool
) -> None:
    async with serving(tmp_path) as lab:
        await lab.send(one)
        assert (await lab.send(other))[-1] == (DROPPED if same else DELIVERED)


async def test_nothing_is_remembered_beyond_the_tracking_time(tmp_path: Path) -> None:
    async with serving(tmp_path, track_duplicates=timedelta(0)) as lab:
        await lab.send(MESSAGE)
        await asyncio.sleep(0.002)
        assert (await lab.send(MESSAGE))[-1] == DELIVERED


async def test_the_table_is_swept_while_the_server_runs(tmp_path: Path) -> None:
    often = timedelta(milliseconds=50)
    async with serving(tmp_path, track_duplicates=timedelta(seconds=1), sweep_interval=often) as lab:
        await lab.send(MESSAGE)
        async with asyncio.timeout(30):
            while not lab.server.counts.swept:  # noqa: ASYNC110 - a sweep tells nobody
                await asyncio.sleep(0.02)
    with sqlite3.connect(tmp_path / server.TABLE_FILE) as table:  # the server had it for itself alone
        assert table.execute("SELECT count(*) FROM delivered_to").fetchone() == (0,)
    table.close()


async def test_lmtp_answers_for_each_recipient(tmp_path: Path) -> None:
    async with serving(tmp_path) as lab:
        await lab.send(MESSAGE, "a@example.net")
        replies = await lab.send(MESSAGE, "a@example.net", "b@example.net", "b@EXAMPLE.net", port="inside")
        assert replies[-3:] == [DROPPED, DELIVERED, DROPPED]
        assert Counter(lab.delivered()) == {"a@example.net": 1, "b@example.net": 1}
        assert (await lab.send(MESSAGE, "a@example.net", "c@example.net"))[-1] == DELIVERED
        assert (await lab.send(MESSAGE, "a@example.net", "c@example.net"))[-1] == DROPPED


async def test_odd_but_valid_mailboxes_have_their_folders(tmp_path: Path) -> None:
    odd = ['""@example.net', '"../x"@example.net', "ü@bücher.example", "Postmaster", "a@[IPv6:::1]"]
    async with serving(tmp_path) as lab:
        assert (await lab.send(MESSAGE, *odd, port="inside"))[-5:] == [DELIVERED] * 5
        assert Counter(lab.delivered()) == Counter(
            [
                "@example.net",
                "../x@example.net",
                "ü@bücher.example",
                "Postmaster@mailbox.example.net",
                "a@[ipv6:::1]",
            ]
        )
        too_long = "a@" + "ü" * 60
        assert (await lab.send(MESSAGE, too_long, port="inside"))[1] == "553 5.1.3 Mailbox name too long"


@PORTS
async def test_the_refuse_file_turns_mail_away_for_now(tmp_path: Path, port: str) -> None:
    async with serving(tmp_path) as lab:
        (tmp_path / "REFUSE").touch()
        assert (await lab.send(MESSAGE, port=port))[0] == REFUSED
        (tmp_path / "REFUSE").unlink()
        assert (await lab.send(MESSAGE, port=port))[-1] == DELIVERED


async def test_a_full_disk_is_transient_and_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []

    def fsync(descriptor: int) -> None:
        calls.append(descriptor)
        raise OSError(errno.ENOSPC, "No space left on device")

    async with serving(tmp_path) as lab:
        await lab.send(b"Message-ID: <0@x>\r\n\r\n", "a@example.net", "b@example.net")
        with monkeypatch.context() as patched:
            patched.setattr(maildir.os, "fsync", fsync)
            replies = await lab.send(MESSAGE, "a@example.net", "b@example.net", port="inside")
        assert replies[-2:] == ["452 4.3.1 Insufficient system storage"] * 2
        assert calls
        assert [os.listdir(tmp_path / "example.net" / name / "tmp") for name in "ab"] == [[], []]
        assert len(lab.delivered()) == 2
        assert (await lab.send(MESSAGE, "a@example.net", "b@example.net"))[-1] == DELIVERED


async def test_a_delivered_message_is_acknowledged_though_it_could_not_be_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def record(*arguments: object) -> None:
        raise TableError("disk I/O error")

    async with serving(tmp_path) as lab:
        monkeypatch.setattr(DeliveredTo, "record", record)
        assert (await lab.send(MESSAGE))[-1] == DELIVERED
        assert (await lab.send(MESSAGE))[-1] == DELIVERED
        assert len(lab.delivered()) == 2


async def test_what_a_crash_left_unfinished_is_swept(tmp_path: Path) -> None:
    leftover = tmp_path / "example.net" / "alice" / "tmp" / "1.2.3"
    leftover.parent.mkdir(parents=True)
    leftover.touch()
    async with serving(tmp_path) as lab:
        assert not leftover.exists()
        await lab.send(MESSAGE)
        assert len(lab.delivered()) == 1


async def test_a_directory_has_one_server(tmp_path: Path) -> None:
    async with serving(tmp_path):
        with pytest.raises(TableUnusable, match="in use"):
            async with serving(tmp_path):
                pass


async def test_a_taken_port_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = taken.getsockname()
        server = MailboxServer(options(tmp_path, outside=address))
        expected = f"127.0.0.1:{address[1]} (outside): {os.strerror(errno.EADDRINUSE)}"
        with pytest.raises(MailboxCannotListen) as caught:
            await server.start()
        assert expected in str(caught.value)
    async with serving(tmp_path):
        pass
