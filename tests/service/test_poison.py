"""A message that was in hand at two crashes, which the process itself reported, waits for the operator."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.request import Request, urlopen

import pytest
from scripted_hop import ScriptedHop
from test_service import Process, wait_for

from shadowrelay.in_hand import left

pytestmark = pytest.mark.lab

CRASHING = Path(__file__).with_name("crashing.py")


class Crashing(Process):
    """A node that has the fault."""

    def start(self) -> None:
        with self.said.open("ab") as said:
            self.running = subprocess.Popen(
                [sys.executable, str(CRASHING), "run", str(self.file)], stdout=said, stderr=said
            )

    def started(self) -> int:
        return self.text().count('"node_started"') if self.said.exists() else 0

    def again(self) -> None:
        """Start once more, and wait until it takes mail."""
        before = self.started()
        self.start()
        wait_for(lambda: self.started() > before)

    def send(self, subject: str) -> str:
        """Send a message. Returns its id."""
        with self.client() as client:
            client.ehlo("client.example.org")
            client.mail("a@example.org")
            client.rcpt("b@example.net")
            code, reply = client.data(f"Subject: {subject}\r\n\r\nbody\r\n".encode())
        assert code == 250
        return reply.decode().split()[1]

    def asked(self, path: str, method: str = "GET") -> dict[str, object]:
        headers = {"Content-Type": "application/json"}
        request = Request(f"http://127.0.0.1:{self.admin}/api/v1/{path}", method=method, headers=headers)
        with urlopen(request, timeout=5) as answer:
            found: dict[str, object] = json.load(answer)
        return found


@asynccontextmanager
async def crashing(directory: Path, hop: ScriptedHop) -> AsyncIterator[Crashing]:
    out = {"domains": ["*"], "host": "127.0.0.1", "port": hop.port, "tls": "none"}
    node = Crashing(directory, delay="0s", routes={"out": out})
    try:
        yield node
    finally:
        if node.running is not None:
            node.signal(signal.SIGKILL)
            await asyncio.to_thread(node.ended)


@pytest.mark.slow
@pytest.mark.parametrize(("how", "status"), [("abort", -signal.SIGABRT), ("error", 1)])
async def test_what_was_in_hand_at_two_crashes_is_set_aside_and_all_else_is_delivered(
    tmp_path: Path, how: str, status: int
) -> None:
    async with ScriptedHop() as hop, crashing(tmp_path, hop) as node:
        await asyncio.to_thread(node.again)
        poison = await asyncio.to_thread(node.send, how)
        assert await asyncio.to_thread(node.ended) == status
        node.start()
        assert await asyncio.to_thread(node.ended) == status
        await asyncio.to_thread(node.again)
        await asyncio.to_thread(node.send, "fine")
        await asyncio.to_thread(wait_for, lambda: len(hop.contents) == 1)
        assert b"Subject: fine" in hop.contents[0]
        shown = await asyncio.to_thread(node.asked, f"messages/{poison}")
        assert shown["state"] == "set_aside"
        crashes = shown["crashes"]
        assert isinstance(crashes, list)
        expected = "Fatal Python error: Aborted" if how == "abort" else "LookupError: nobody expected this"
        assert len(crashes) == 2
        assert all(expected in line for line in crashes)
        await asyncio.to_thread(wait_for, lambda: ",SUSPEND," in node.tracked())
        row = next(line for line in node.tracked().splitlines() if ",SUSPEND," in line)
        assert poison in row
        assert "in hand at 2 crashes of the node" in row
        status_shown = await asyncio.to_thread(node.asked, "status")
        assert status_shown["set_aside"] == 1
        # Released by the operator, it is tried again: its count begins anew.
        await asyncio.to_thread(node.asked, f"messages/{poison}/resume", "POST")
        assert await asyncio.to_thread(node.ended) == status
        node.start()
        assert await asyncio.to_thread(node.ended) == status
        await asyncio.to_thread(node.again)
        shown = await asyncio.to_thread(node.asked, f"messages/{poison}")
        assert shown["state"] == "set_aside"
        assert isinstance(shown["crashes"], list)
        assert len(shown["crashes"]) == 2


@pytest.mark.slow
async def test_what_was_in_hand_whenever_the_node_was_killed_is_never_set_aside(tmp_path: Path) -> None:
    async with ScriptedHop() as hop, crashing(tmp_path, hop) as node:
        await asyncio.to_thread(node.again)
        held_up = await asyncio.to_thread(node.send, "hang")
        for _ in range(10):
            await asyncio.to_thread(wait_for, lambda: held_up in left(tmp_path / "data"))
            node.signal(signal.SIGKILL)
            await asyncio.to_thread(node.ended)
            await asyncio.to_thread(node.again)
        shown = await asyncio.to_thread(node.asked, f"messages/{held_up}")
        assert shown["state"] == "queued"
        assert shown["crashes"] == []
        assert ",SUSPEND," not in node.tracked()
