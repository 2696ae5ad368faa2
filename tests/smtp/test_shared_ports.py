"""An address that several workers serve, and the counts that they share."""

from __future__ import annotations

import asyncio
import mmap
import os
import ssl
import threading
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace

import pytest
from receiving import QUICK, Loops, MemoryReceiver, RawClient, eventually

from shadowrelay.shared_counts import (
    SIZE,
    ConnectorCounts,
    OwnCounts,
    SharedCounts,
    new_counts,
)
from shadowrelay.smtp.receiving.connector import Connector, held
from shadowrelay.smtp.receiving.limits import Register
from shadowrelay.workers.worker import WorkerPlace, counts_of


@pytest.fixture
def memory() -> memoryview:
    """What a supervisor gives its workers."""
    descriptor = os.memfd_create("counts")
    os.ftruncate(descriptor, SIZE)
    os.pwrite(descriptor, os.urandom(16), 0)
    mapped = memoryview(mmap.mmap(descriptor, SIZE))
    os.close(descriptor)
    return mapped


def workers(memory: memoryview, count: int) -> list[SharedCounts]:
    return [SharedCounts(memory, number) for number in range(1, count + 1)]


@asynccontextmanager
async def served(
    count: int, *, each: int | None = None, tls: ssl.SSLContext | None = None
) -> AsyncIterator[list[Connector]]:
    """So many connectors at one address, with one count. ``tls``: from the first octet."""
    memory = memoryview(bytearray(os.urandom(16) + bytes(SIZE - 16)))
    made: list[Connector] = []
    holder = await held("127.0.0.1", 0)
    port = holder[0].getsockname()[1]
    options = replace(QUICK, port=port, max_inbound_connections_per_source=each)
    options = replace(options, tls=tls, implicit_tls=tls is not None)
    try:
        for counts in workers(memory, count):
            one = Connector(options, MemoryReceiver(), shared=ConnectorCounts(counts, "default"))
            made.append(one)
            await one.start()
        yield made
    finally:
        for one in made:
            await one.stop(0)
        for sock in holder:
            sock.close()


async def called(stack: AsyncExitStack, port: int, tls: ssl.SSLContext | None = None) -> RawClient:
    name = "mx.example.net" if tls else None
    client = RawClient(*await asyncio.open_connection("127.0.0.1", port, ssl=tls, server_hostname=name))
    stack.push_async_callback(client.close)
    return client


def port_of(connectors: list[Connector]) -> int:
    return connectors[-1].options.port


def test_what_two_workers_count_is_one_sum(memory: memoryview) -> None:
    first, second = workers(memory, 2)
    assert first.take("a", 3)
    assert second.take("a", 3)
    assert second.take("a", 3)
    assert not first.take("a", 3)
    assert first.take("b", 1)
    assert (first.of("a"), second.of("b"), first.of("c")) == (3, 1, 0)
    second.give("a")
    assert first.take("a", 3)
    assert not second.take("a", 3)


def test_a_session_that_is_turned_away_is_not_counted(memory: memoryview) -> None:
    first, second = workers(memory, 2)
    assert first.take("a", 1)
    for _ in range(5):
        assert not second.take("a", 1)
    first.give("a")
    assert (first.of("a"), second.take("a", 1)) == (0, True)


def test_a_worker_that_died_counts_no_more(memory: memoryview) -> None:
    first, second, third = workers(memory, 3)
    for one in (first, second, second, third):
        assert one.take("a", None)
    first.forget(2)
    assert third.of("a") == 2
    third.forget()
    assert first.of("a") == 1


def test_a_worker_that_is_started_again_has_no_sessions() -> None:
    descriptor = new_counts()
    try:
        first, second = (WorkerPlace(number=number, of=2, counts=descriptor) for number in (1, 2))
        died, other = counts_of(first), counts_of(second)
        assert died is not None
        assert other is not None
        assert died.take("a", 1)
        assert not other.take("a", 1)
        again = counts_of(first)
        assert again is not None
        assert other.take("a", 1)
        assert not again.take("a", 1)
    finally:
        os.close(descriptor)


def test_of_two_workers_that_count_at_the_same_moment_one_sees_both(memory: memoryview) -> None:
    other = SharedCounts(memory, 2)
    found: list[bool] = []

    class Interrupted(SharedCounts):
        """Another worker counts after this one has looked."""

        def _seen(self, cells: list[int]) -> int:
            seen = super()._seen(cells)
            found.append(other.take("a", 1))
            return seen

    found.append(Interrupted(memory, 1).take("a", 1))
    assert sum(found) <= 1


def test_never_more_than_the_limit_whoever_counts_at_the_same_time(memory: memoryview) -> None:
    most, found, wrong = 3, threading.Barrier(4), []
    inside: Counter[int] = Counter()

    def visiting(counts: SharedCounts) -> None:
        found.wait()
        for _ in range(400):
            if counts.take("a", most):
                inside[id(counts)] = 1
                if sum(inside.values()) > most:
                    wrong.append(dict(inside))
                inside[id(counts)] = 0
                counts.give("a")

    tasks = [threading.Thread(target=visiting, args=(one,)) for one in workers(memory, 4)]
    for task in tasks:
        task.start()
    for task in tasks:
        task.join()
    assert wrong == []
    assert SharedCounts(memory, 1).of("a") == 0


def test_a_thousand_sources_hardly_ever_count_for_one_another(memory: memoryview) -> None:
    memory[:16] = bytes(range(16))  # with one salt of forty there are more than five
    [counts] = workers(memory, 1)
    for number in range(1000):
        counts.take(f"192.0.2.{number}", None)
    more = sum(counts.of(f"198.51.100.{number}") > 0 for number in range(1000))
    assert more <= 5  # expected: 2.2


def test_a_source_is_counted_for_each_connector(memory: memoryview) -> None:
    [counts] = workers(memory, 1)
    one, other = (ConnectorCounts(counts, name) for name in ("default", "submission"))
    assert one.take("a", 1)
    assert other.take("a", 1)
    assert not one.take("a", 1)


class Nobody:
    def drain(self) -> None: ...

    def expire(self) -> None: ...


@pytest.mark.parametrize("alone", [True, False])
async def test_who_leaves_gives_back_the_place_in_all_and_that_of_the_source(
    memory: memoryview, alone: bool
) -> None:
    counts = OwnCounts() if alone else SharedCounts(memory, 1)
    register = Register(2, 1, counts)
    task = asyncio.create_task(asyncio.sleep(0))
    await task
    first, second, third = Nobody(), Nobody(), Nobody()
    assert register.enter(first, task, "192.0.2.1") is None
    assert register.enter(second, task, "192.0.2.1") is not None  # its source is full
    assert register.enter(third, task, None) is None  # behind a proxy
    register.leave(second)
    fourth = Nobody()
    assert register.enter(fourth, task, "192.0.2.2") is not None  # all places are taken
    register.leave(fourth)
    register.leave(third)
    register.leave(first)
    assert register.enter(first, task, "192.0.2.1") is None


async def test_two_workers_serve_one_port_and_each_gets_some() -> None:
    async with served(2) as connectors, AsyncExitStack() as stack:
        for _ in range(40):
            client = await called(stack, port_of(connectors))
            assert (await client.line()).startswith("220 ")
        assert sum(one.sessions for one in connectors) == 40
        assert all(one.sessions for one in connectors)


async def test_a_source_has_its_number_of_connections_at_all_workers() -> None:
    async with served(2, each=5) as connectors, AsyncExitStack() as stack:
        greetings = [await (await called(stack, port_of(connectors))).line() for _ in range(30)]
        assert sum(greeting.startswith("220 ") for greeting in greetings) == 5
        assert all(greeting.startswith("421 4.7.0") for greeting in greetings[5:])


async def test_an_address_that_is_kept_for_workers_is_nobody_elses() -> None:
    async with served(1) as connectors:
        port = port_of(connectors)
        with pytest.raises(OSError, match="in use"):
            await held("127.0.0.1", port)
        with pytest.raises(OSError, match="in use"):
            await Connector(connectors[0].options, MemoryReceiver()).start()
        await connectors[0].stop(0)
        with pytest.raises(OSError, match="in use"):
            await Connector(connectors[0].options, MemoryReceiver()).start()


async def test_a_worker_that_is_not_ready_gets_no_connection() -> None:
    async with served(1) as connectors, AsyncExitStack() as stack:
        late = Connector(connectors[0].options, MemoryReceiver(), shared=OwnCounts())
        await late.listen()
        for _ in range(20):
            assert (await (await called(stack, port_of(connectors))).line()).startswith("220 ")
        await late.stop(0)


@pytest.mark.parametrize("secure", [False, True], ids=["plain", "implicit TLS"])
async def test_who_drains_leaves_the_port_to_the_others_and_comes_back(
    contexts: tuple[ssl.SSLContext, ssl.SSLContext], secure: bool
) -> None:
    server, client = contexts if secure else (None, None)
    async with served(2, tls=server) as connectors, AsyncExitStack() as stack:
        first, second = connectors
        await first.refuse(0)
        for _ in range(20):
            assert (await (await called(stack, port_of(connectors), client)).line()).startswith("220 ")
        assert (first.sessions, second.sessions) == (0, 20)
        await first.admit()
        await first.admit()  # once more changes nothing
        for _ in range(30):
            await called(stack, port_of(connectors), client)
        await eventually(lambda: first.sessions > 0)


@pytest.mark.parametrize("turns", [0, 1, 3])
def test_whoever_waits_at_a_worker_that_stops_is_answered(loops: Loops, turns: int) -> None:
    """A connection that the system has accepted is not broken: 421 tells the client to try again."""

    async def many() -> list[bytes]:
        async with served(2) as connectors:
            port = port_of(connectors)
            calls = [asyncio.create_task(asyncio.open_connection("127.0.0.1", port)) for _ in range(40)]
            for _ in range(turns):
                await asyncio.sleep(0)
            await connectors[0].stop(0)
            said = []
            for reader, writer in await asyncio.gather(*calls):
                said.append((await reader.readline())[:4])
                writer.close()
            return said

    with asyncio.Runner(loop_factory=loops) as runner:
        said = runner.run(many())
    assert set(said) <= {b"220 ", b"421 "}, said
