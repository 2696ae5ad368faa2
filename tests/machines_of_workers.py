"""Nodes of several workers in the process of the test: each worker is a station, with real sockets, real
databases and, if asked for, certificates that name the node alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stations import Station, authority, full, opened, settings

from shadowlab.ports import free_ports
from shadowrelay.service.reloading import Reloading
from shadowrelay.settings import Settings
from shadowrelay.settings.workers import for_worker

MOST = 4
"""Workers of a node for which there are ports."""


class _NoWriter:
    def limit(self, limits: object) -> None:
        """Of a tracking log that nobody writes."""


class _Group:
    """Takes the tasks of a station, as the task group of a process does."""

    def __init__(self, station: Station) -> None:
        self._station = station

    def create_task(self, work: Coroutine[Any, Any, None], *, name: str) -> asyncio.Task[None]:
        task = asyncio.create_task(work, name=name)
        self._station.tasks.append(task)
        return task


@dataclass
class Cluster:
    """Nodes by their short names. ``workers``: those that run, by name and number."""

    directory: Path
    names: tuple[str, ...]
    tls: Path | None = None
    changes: Mapping[str, Any] = field(default_factory=dict)
    workers: dict[tuple[str, int], Station] = field(default_factory=dict)
    stack: AsyncExitStack = field(default_factory=AsyncExitStack)
    starts: int = 0

    def __post_init__(self) -> None:
        ports = free_ports(16 * len(self.names))
        self.ports = {name: ports[16 * at] for at, name in enumerate(self.names)}

    def file(self, name: str, workers: int, counts: Mapping[str, int]) -> Settings:
        """The settings file of a node, which knows so many workers of each other one."""
        members = [
            {
                "name": full(other),
                "address": f"127.0.0.1:{self.ports[other]}",
                "host": other,
                "workers": counts.get(other, 1),
            }
            for other in self.names
            if other != name
        ]
        changes: dict[str, Any] = {
            "admin": {"listen": "127.0.0.1:3"},
            **self.changes,
            "peer": {"listen": f"127.0.0.1:{self.ports[name]}", **self.changes.get("peer", {})},
        }
        return settings(self.directory, name, (), tls=self.tls, workers=workers, members=members, **changes)

    async def start(self, name: str, number: int, file: Settings) -> Station:
        """Start one worker of a node, which listens."""
        found = for_worker(file, number)
        made = await opened(found, MOST * int(name[-1]) + number, start=self.starts)
        self.starts += 1
        self.stack.push_async_callback(made.stop)
        self.workers[name, number] = made
        assert found.peer
        await made.listen(peer_port=found.peer.listen.port)
        return made

    async def converse(self, *which: tuple[str, int]) -> None:
        """These workers, or all, talk with the other members, and with those that are announced to them."""
        for each in which or tuple(self.workers):
            worker = self.workers[each]
            await worker.node.services.workers.begin()
            worker.node.membership.start(_Group(worker))  # type: ignore[arg-type]
            worker.run(worker.node.services.workers.run())

    async def reload(self, name: str, number: int, file: Settings) -> None:
        """The worker reads its settings file, in which that is now."""
        node = self.workers[name, number].node
        found = for_worker(file, number)
        shown = await Reloading(node, lambda: found, {}, _NoWriter(), asyncio.Event()).reload()  # type: ignore[arg-type]
        assert shown.taken, shown.wrong

    async def stop(self, name: str, number: int) -> None:
        """Stop one worker; its database stays."""
        gone = self.workers.pop((name, number))
        await gone.stop()
        kept = AsyncExitStack()
        for other in self.workers.values():
            kept.push_async_callback(other.stop)
        self.stack.pop_all()
        self.stack = kept

    async def quiet(self) -> None:
        for one in self.workers.values():  # or the connectors would wait for idle sessions to be closed
            await one.quiet()


@asynccontextmanager
async def cluster(
    directory: Path, counts: Mapping[str, int], *, tls: bool = False, run: bool = True, **changes: Any
) -> AsyncIterator[Cluster]:
    """Nodes that know each other, each on a machine of its own, with so many workers each. ``tls``: each node
    has one certificate, for its name alone. ``run``: start all their workers.
    """
    issued = authority(directory / "ca", *counts) if tls else None
    made = Cluster(directory, tuple(counts), issued, changes)
    try:
        for name, workers in counts.items() if run else ():
            file = made.file(name, workers, counts)
            for number in range(1, workers + 1):
                await made.start(name, number, file)
        yield made
        await made.quiet()
    finally:
        await made.stack.aclose()
