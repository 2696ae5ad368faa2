"""A node of two workers: they share what a shaped next hop takes."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from providers import Provider
from running_lab import RunningLab, wait_until

pytestmark = [pytest.mark.lab, pytest.mark.slow]


@contextmanager
def provider(**takes: int) -> Iterator[tuple[Provider, asyncio.AbstractEventLoop]]:
    """A provider in a thread of its own, which answers no content until ``hold`` is set; and its loop."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    found = Provider(**takes)
    found.hold = asyncio.Event()
    asyncio.run_coroutine_threadsafe(found.__aenter__(), loop).result(30)
    try:
        yield found, loop
    finally:
        asyncio.run_coroutine_threadsafe(found.__aexit__(), loop).result(30)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(30)
        loop.close()


def test_both_workers_together_have_the_connections_of_the_lane(lab: RunningLab) -> None:
    with provider(connections=2) as (hop, loop):
        lab.up(
            "routes.inside.host=127.0.0.1",
            f"routes.inside.port={hop.port}",
            "routes.inside.protocol=smtp",
            "routes.inside.tls=none",
            'shaping.a.match=["inside"]',
            "shaping.a.connections=2",
            nodes=2,
            workers=2,
        )
        for _ in range(40):
            lab.send()  # each in a session of its own, which either worker takes
        wait_until(lambda: hop.open == 2, "it has the connections that it may have")
        assert hop.hold is not None
        loop.call_soon_threadsafe(hop.hold.set)
        wait_until(lambda: len(hop.taken) == 40, "everything is delivered", 90)
        assert hop.refused == []
        assert hop.most_open == 2
