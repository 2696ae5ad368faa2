"""Delayed acknowledgement: a node alone says 250 when the next hop has the message, or time is up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from receiving import RawClient
from scripted_hop import HANG, ScriptedHop
from sending import MESSAGE, sender, sent
from stations import Station, at_last, boundary, eventually, station

from shadowrelay.core.messages import Status
from shadowrelay.core.reception import acknowledging
from shadowrelay.reception import acknowledgements

DELAY: dict[str, Any] = {"receive": {"max_acknowledgement_delay": "20s"}}
BRIEF: dict[str, Any] = {"receive": {"max_acknowledgement_delay": "200ms"}}
OTHER = b"Subject: other\r\n\r\nother\r\n"


@asynccontextmanager
async def alone(
    tmp_path: Path, hop: ScriptedHop | int, *, run: bool = True, disk: int = 0, **changes: Any
) -> AsyncIterator[Station]:
    """A node alone whose 250s wait, and whose mail leaves for that hop."""
    port = hop if isinstance(hop, int) else hop.port
    out = {"domains": ["*"], "host": "127.0.0.1", "port": port, "tls": "none"}
    found = await station(tmp_path, "mx1", [], disk=disk, **{"routes": {"out": out}} | DELAY | changes)
    if run:
        found.run_queue()
    try:
        yield found
    finally:
        await found.stop()


def waits(found: Station, count: int = 1) -> Any:
    """Whether that many sessions wait for their 250."""
    return lambda: found.node.acknowledgements.waiting == count


def counted(found: Station) -> dict[str, int]:
    return {outcome: count for outcome, count in found.node.acknowledgements.counts.items() if count}


def held(event: asyncio.Event) -> Any:
    """A hop that reads no content before the event."""
    return ScriptedHop(pause=event.wait)


async def free_port() -> int:
    async with ScriptedHop() as hop:
        return hop.port


async def test_the_250_waits_until_the_next_hop_has_the_message(tmp_path: Path) -> None:
    may = asyncio.Event()
    async with held(may) as hop, alone(tmp_path, hop) as found, at_last(may):
        sending = asyncio.ensure_future(sent(found, MESSAGE))
        await eventually(waits(found))
        (copy,) = await found.copies()
        assert copy.unsettled
        assert await found.rows("unacknowledged") == 1
        assert not sending.done()
        may.set()
        assert await sending == f"250 2.6.0 {copy.id} Queued mail for delivery"
        assert [one.status for one in (await found.copies())[0].recipients] == [Status.RELAYED]
        assert await found.rows("unacknowledged") == 0
        assert counted(found) == {"settled": 1}
