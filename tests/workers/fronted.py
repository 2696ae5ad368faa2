"""A front on a loopback socket before real applications of workers, each on a Unix socket of its own."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from admin.admin_node import NOW, OURS, FakeNode
from admin.admin_node import a_node as a_fake_node

from shadowrelay.admin.access import Access
from shadowrelay.admin.api import build_app
from shadowrelay.admin.front_session import behind_front
from shadowrelay.admin.server import bind, serve
from shadowrelay.console.app import console
from shadowrelay.core.workers import worker_name
from shadowrelay.workers.front import build_front


@dataclass
class FakeWorker:
    """A worker as its supervisor sees it, and the node that answers for it."""

    number: int
    socket: Path
    node: FakeNode
    access: Access
    state: str = "serving"
    pid: int | None = 0
    restarts: int = 0
    why: str = ""
    since: datetime = NOW
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None

    @property
    def name(self) -> str:
        return self.node.name

    def begin(self) -> None:
        """Serve, as a new process."""
        self.socket.unlink(missing_ok=True)
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(str(self.socket))
            made.listen(16)
            app = build_app(self.node, access=self.access, clock=lambda: NOW)
            app = console(self.node, self.access, clock=lambda: NOW).into(app)
            self.stop = asyncio.Event()
            self.task = asyncio.create_task(serve(behind_front(app), made.dup(), self.stop))
        self.pid = (self.pid or 0) + 1
        self.state = "serving"

    async def die(self, *, told: bool = True) -> None:
        """As by a signal. ``told``: its supervisor has seen it."""
        assert self.task
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)
        if told:
            self.state, self.restarts, self.why = "waiting", self.restarts + 1, "killed by SIGKILL"

    async def end(self) -> None:
        self.node.events.close()
        self.stop.set()
        if self.task:
            await asyncio.gather(self.task, return_exceptions=True)


@dataclass
class Fronted:
    """The front, at ``port``, and its workers."""

    port: int
    each: list[FakeWorker]
    reloads: int = 0
    wrong: Sequence[str] = ()

    def workers(self) -> Sequence[Any]:
        return self.each

    async def reload(self) -> Sequence[str]:
        self.reloads += 1
        return self.wrong


@asynccontextmanager
async def a_front(tmp_path: Path, count: int = 2, access: Any = Access) -> AsyncIterator[Fronted]:
    """``access``: makes that of each process."""
    async with AsyncExitStack() as stack:
        there = Fronted(0, [])
        for number in range(1, count + 1):
            place = tmp_path / f"worker-{number}"
            place.mkdir()
            node = await stack.enter_async_context(a_fake_node(place))
            node.name = worker_name(OURS, number)
            one = FakeWorker(number, tmp_path / f"w{number}.sock", node, access())
            there.each.append(one)
            one.begin()
            stack.push_async_callback(one.end)
        sock, stop = bind("127.0.0.1", 0), asyncio.Event()
        app, passing = build_front(OURS, access(), there, stop)
        there.port = sock.getsockname()[1]
        task = asyncio.create_task(serve(app, sock, stop))
        try:
            yield there
        finally:
            for one in there.each:
                one.node.events.close()
            stop.set()
            await task
            await passing.close()
