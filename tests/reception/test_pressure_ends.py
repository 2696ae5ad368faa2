"""Back pressure on real nodes: how a wait ends, limits that change, copies while a node opens."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from receiving import RawClient
from stations import Station, boundary, eventually, settings
from test_back_pressure import (
    OTHERS,
    REFUSED,
    SHARES,
    STRANGER,
    given,
    look,
    memory,
    refused_by,
    sent_by_trusted,
)
from test_member_session import HELLO, MAIL, MARK, talking

from shadowlab.ports import free_ports
from shadowrelay import signals
from shadowrelay.core import pressure
from shadowrelay.core.pressure import Inflow
from shadowrelay.readings import memory_in_use
from shadowrelay.service import running
from shadowrelay.service.node import Node
from shadowrelay.service.reloading import Reloading
from shadowrelay.settings import Settings, load_settings, to_toml


class NoWriter:
    def limit(self, limits: object) -> None:
        """Of a tracking log that nobody writes."""


async def test_limits_that_the_settings_file_raises_end_the_refusal_without_a_restart(tmp_path: Path) -> None:
    file = tmp_path / "node.toml"
    low = int(memory_in_use() / SHARES["high"])
    async with boundary(tmp_path, "mx2", "mx1", **OTHERS, **memory("high")) as (node, _):
        base = node.node.settings.model_dump(mode="json", exclude_none=True)

        def write(**marks: Any) -> None:
            file.write_text(to_toml(base | given(memory="10/20/15/5", **marks)), "utf-8")

        def read() -> Settings:
            return load_settings(file, {})

        reloading = Reloading(node.node, read, {}, NoWriter(), asyncio.Event())  # type: ignore[arg-type]
        pressing = asyncio.create_task(node.node.back_pressure.run())
        try:
            room = node.node.room
            await eventually(lambda: room.stance.refuses is Inflow.TRUSTED)
            assert await refused_by(node) == {"strangers", "trusted"}
            write(memory_limit="wide")
            assert not (await reloading.reload()).taken
            write(memory_limit=low * 100)
            assert (await reloading.reload()).taken
            await eventually(lambda: room.stance.refuses is Inflow.NONE)
            assert await refused_by(node) == set()
            write(memory_limit=low)
            assert (await reloading.reload()).taken
            await eventually(lambda: room.stance.refuses is Inflow.TRUSTED)
            assert await refused_by(node) == {"strangers", "trusted"}
        finally:
            pressing.cancel()


async def held(node: Station) -> tuple[RawClient, asyncio.Task[str]]:
    """A client whose MAIL waits since the queue is long, and the reply."""
    assert (await sent_by_trusted(node)).startswith("250 ")
    await look(node)
    came = await asyncio.open_connection("127.0.0.1", node.port, local_addr=(STRANGER, 0))
    client = RawClient(*came)
    await client.reply()
    await client.say("EHLO client.example")
    reply = asyncio.create_task(client.say("MAIL FROM:<a@example.org>"))
    await eventually(lambda: node.node.room.delayed == 1)
    return client, reply


@pytest.fixture
def _a_long_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pressure, "LEAST_DELAY", 3600.0)
    monkeypatch.setattr(pressure, "MOST_DELAY", 3600.0)


@pytest.mark.usefixtures("_a_long_wait")
async def test_a_stop_ends_the_wait_of_mail_with_421(tmp_path: Path) -> None:
    async with boundary(tmp_path, "mx2", "mx1", **OTHERS, **given(queue="1/9/5/1")) as (node, _):
        client, reply = await held(node)
        stopping = asyncio.create_task(node.connectors[1].refuse(3600.0))
        await eventually(reply.done)
        assert await reply == "421 4.3.2 Service is shutting down"
        await stopping
        await client.close()


@pytest.mark.usefixtures("_a_long_wait")
async def test_mail_that_waits_is_refused_as_soon_as_the_pressure_refuses_it(tmp_path: Path) -> None:
    async with boundary(tmp_path, "mx2", "mx1", **OTHERS, **given(queue="1/9/5/1")) as (node, _):
        client, reply = await held(node)
        await look(node, **OTHERS, **given(queue="1/1/1/1"))
        await eventually(reply.done)
        assert await reply == REFUSED
        await client.close()


@pytest.mark.usefixtures("_a_long_wait")
async def test_mail_waits_no_longer_than_its_client(tmp_path: Path) -> None:
    async with boundary(tmp_path, "mx2", "mx1", **OTHERS, **given(queue="1/9/5/1")) as (node, _):
        client, reply = await held(node)
        client.writer.transport.abort()
        await eventually(lambda: node.connectors[1].sessions == 0)
        reply.cancel()


async def test_pressure_counts_for_copies_that_come_while_the_node_opens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    never, stop = asyncio.Event(), asyncio.Event()

    async def opens(_: Node) -> None:
        await never.wait()

    @contextmanager
    def heard(_: asyncio.Event) -> Iterator[asyncio.Event]:
        yield stop

    monkeypatch.setattr(running, "opened", opens)
    monkeypatch.setattr(signals, "heard", heard)
    smtp, peer, admin = free_ports(3)
    found = settings(
        tmp_path,
        "mx2",
        ["mx1"],
        peer={"listen": f"127.0.0.1:{peer}"},
        receive={"listen": f"127.0.0.1:{smtp}"},
        admin={"listen": f"127.0.0.1:{admin}"},
        **memory("full"),
    )
    node = asyncio.create_task(running.run_node(found))
    try:
        await eventually(lambda: node.done() or accepts(peer))
        async with talking(SimpleNamespace(peer_port=peer)) as member:  # type: ignore[arg-type]
            assert MARK.sub("", await member.say(HELLO, MAIL)) == REFUSED
    finally:
        stop.set()
        await node


async def accepts(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    return True
