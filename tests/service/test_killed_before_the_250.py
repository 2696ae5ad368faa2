"""A node alone that is killed before its 250: what its client sends again is known after the restart."""

from __future__ import annotations

import asyncio
import shutil
import signal
import smtplib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from scripted_hop import HANG, ScriptedHop
from test_service import MESSAGE, Process, wait_for

from shadowrelay.failpoints import VARIABLE

pytestmark = pytest.mark.lab


def sent(node: Process, message: bytes = MESSAGE) -> str:
    """The reply to the content; '' if the connection ended without one."""
    with node.client() as client:
        client.ehlo("client.example.org")
        client.mail("a@example.org")
        client.rcpt("b@example.net")
        try:
            return " ".join(map(str, client.data(message))) if client.sock else ""
        except smtplib.SMTPServerDisconnected:
            return ""


@asynccontextmanager
async def alone(directory: Path, hop: ScriptedHop) -> AsyncIterator[Process]:
    out = {"domains": ["*"], "host": "127.0.0.1", "port": hop.port, "tls": "none"}
    node = Process(directory, delay="8s", routes={"out": out})
    try:
        yield node
    finally:
        if node.running is not None:
            node.signal(signal.SIGKILL)
            await asyncio.to_thread(node.ended)


def repeats(node: Process) -> int:
    return node.tracked().count(",DUPLICATERECEIVE,")


@pytest.mark.slow
async def test_killed_after_the_delivery_nothing_is_delivered_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with ScriptedHop() as hop, alone(tmp_path, hop) as node:
        monkeypatch.setenv(VARIABLE, "before-250")
        await asyncio.to_thread(node.up)
        assert await asyncio.to_thread(sent, node) == ""
        assert await asyncio.to_thread(node.ended) == -signal.SIGKILL
        monkeypatch.delenv(VARIABLE)
        await asyncio.to_thread(node.start)
        await asyncio.to_thread(wait_for, lambda: node.text().count('"node_started"') == 2)
        reply = await asyncio.to_thread(sent, node)
        assert reply.startswith("250 ")
        await asyncio.to_thread(wait_for, lambda: repeats(node) == 1)
        # Its 250 was written: the next one is a message of its own.
        assert (await asyncio.to_thread(sent, node)).startswith("250 ")
        assert len(hop.contents) == 2
        assert repeats(node) == 1


@pytest.mark.slow
async def test_if_its_disk_is_lost_while_it_waits_the_client_still_has_the_message(tmp_path: Path) -> None:
    """Nothing that was acknowledged is lost with the only copy: it was not acknowledged."""
    async with ScriptedHop(DATA=[HANG, b"354 go ahead\r\n"]) as hop, alone(tmp_path, hop) as node:
        await asyncio.to_thread(node.up)
        sending = asyncio.ensure_future(asyncio.to_thread(sent, node))
        await asyncio.to_thread(wait_for, lambda: "DATA" in hop.verbs())
        node.signal(signal.SIGKILL)
        await asyncio.to_thread(node.ended)
        assert await sending == ""
        shutil.rmtree(tmp_path / "data")
        await asyncio.to_thread(node.start)
        await asyncio.to_thread(wait_for, lambda: node.text().count('"node_started"') == 2)
        assert (await asyncio.to_thread(sent, node)).startswith("250 ")
        assert len(hop.contents) == 1


async def test_killed_while_it_waits_it_delivers_once(tmp_path: Path) -> None:
    may = asyncio.Event()
    answers = [HANG, b"354 go ahead\r\n"]
    async with ScriptedHop(DATA=answers, pause=may.wait) as hop, alone(tmp_path, hop) as node:
        await asyncio.to_thread(node.up)
        sending = asyncio.ensure_future(asyncio.to_thread(sent, node))
        await asyncio.to_thread(wait_for, lambda: "DATA" in hop.verbs())
        node.signal(signal.SIGKILL)
        await asyncio.to_thread(node.ended)
        assert await sending == ""
        await asyncio.to_thread(node.start)
        await asyncio.to_thread(wait_for, lambda: hop.verbs().count("DATA") == 2)
        again = asyncio.ensure_future(asyncio.to_thread(sent, node))
        await asyncio.to_thread(wait_for, lambda: repeats(node) == 1)
        assert not again.done()
        may.set()
        assert (await again).startswith("250 ")
        assert len(hop.contents) == 1
