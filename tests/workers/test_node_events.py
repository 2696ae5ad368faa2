"""The event stream of a node of several workers has the events of all, and says who of them is silent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
from admin.admin_node import MX2, ask, fill, meet, received
from admin.event_streams import Stream, Told, subscribed, writing
from workers.fronted import FakeWorker, Fronted, a_front

from shadowrelay.admin.access import FixedToken
from shadowrelay.workers import node_events


@asynccontextmanager
async def three(tmp_path: Path) -> AsyncIterator[Fronted]:
    """Three workers that write their tracking logs, and have met a member."""
    async with a_front(tmp_path, 3) as front, AsyncExitStack() as stack:
        for one in front.each:
            await fill(one.node, meet(MX2))
            await stack.enter_async_context(writing(one.node))
        yield front


async def until(stream: Stream, event: str) -> Told:
    while (told := await stream.next()) is not None:
        if told.event == event:
            return told
    raise AssertionError(f"the stream ended before {event}")


async def stopped(worker: FakeWorker) -> None:
    """Its streams end, as those of a process that ends do."""
    worker.node.events.close()
    await worker.die()
    worker.node.events.closed = False


def workers_of(rows: list[Told]) -> list[str]:
    return sorted({str(one.data["worker"]) for one in rows})


def numbers(rows: list[Told]) -> list[str]:
    """The messages, in any order."""
    return sorted(one.data["network-message-id"][-2:] for one in rows if one.data["event-id"] == "RECEIVE")


async def test_the_events_of_a_node_are_those_of_all_its_workers(tmp_path: Path) -> None:
    async with three(tmp_path) as front, subscribed(front.port) as stream:
        begun = [await until(stream, "begin") for _ in front.each]
        assert sorted(one.data["worker"] for one in begun) == sorted(one.name for one in front.each)
        for number, one in enumerate(front.each, start=1):
            await fill(one.node, received(number, MX2))
        rows = await stream.rows(6)
        assert workers_of(rows) == sorted(one.name for one in front.each)
        assert numbers(rows) == ["01", "02", "03"]
        assert all(f":{one.data['log-id']}" in one.id for one in rows)


async def test_who_was_away_goes_on_with_every_worker_where_he_was(tmp_path: Path) -> None:
    async with three(tmp_path) as front:
        async with subscribed(front.port) as stream:
            for _ in front.each:
                await until(stream, "begin")
            await fill(front.each[2].node, received(1, MX2))
            last = (await stream.rows(2))[-1].id
        for number, one in enumerate(front.each, start=2):  # nobody listens
            await fill(one.node, received(number, MX2))
        async with subscribed(front.port, last=last) as stream:
            rows = await stream.rows(6)
        assert numbers(rows) == ["02", "03", "04"]


async def test_a_worker_that_ends_is_named_and_heard_again_from_where_it_was(tmp_path: Path) -> None:
    async with three(tmp_path) as front, subscribed(front.port) as stream:
        for _ in front.each:
            await until(stream, "begin")
        third = front.each[2]
        await stopped(third)
        silent = await until(stream, "silent")
        assert silent.data["worker"] == third.name
        assert "worker 3" in silent.data["why"]
        await fill(front.each[0].node, received(1, MX2))  # the others are heard all the time
        assert workers_of(await stream.rows(2)) == [front.each[0].name]
        await fill(third.node, received(2, MX2))
        third.begin()
        again = await until(stream, "begin")
        assert (again.data["worker"], again.data["resumed"]) == (third.name, True)
        assert numbers(await stream.rows(2)) == ["02"]


async def test_a_worker_that_left_and_was_started_again_is_heard_from_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_events, "LOOK", 0.02)
    async with three(tmp_path) as front, subscribed(front.port) as stream:
        for _ in front.each:
            await until(stream, "begin")
        third = front.each[2]
        third.state = "ended"
        third.node.events.close()
        await third.die(told=False)
        third.node.events.closed = False
        await asyncio.sleep(50 * node_events.LOOK)  # nobody looks for it any more
        await fill(third.node, received(1, MX2))
        third.begin()
        again = await until(stream, "begin")
        assert (again.data["worker"], again.data["resumed"]) == (third.name, True)
        assert numbers(await stream.rows(2)) == ["01"]


async def test_a_worker_that_is_heard_late_is_told_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_events, "QUICK", 0.2)
    async with three(tmp_path) as front:
        second = front.each[1]
        await second.die()
        async with subscribed(front.port) as stream:
            assert (await until(stream, "silent")).data["worker"] == second.name
            second.begin()
            assert (await until(stream, "gap")).data["worker"] == second.name
            await until(stream, "begin")
            every = stream.last_id.split(",")
        async with subscribed(front.port, last=f"{every[0]},{every[2]}") as stream:
            assert (await until(stream, "gap")).data["worker"] == second.name


async def test_the_stream_of_a_node_is_refused_as_its_workers_refuse_it(tmp_path: Path) -> None:
    async with three(tmp_path) as front:
        assert (await ask(front.port, "/api/v1/events?event=NOSUCH")).status == 400
        assert (await ask(front.port, "/api/v1/events?after=x-y")).status == 400
        for one in front.each:
            await one.die()
        got = await ask(front.port, "/api/v1/events")
        assert (got.status, "worker 3" in got.json["error"]) == (503, True)


async def test_a_stream_ends_when_a_token_is_taken_away(tmp_path: Path) -> None:
    async with three(tmp_path) as front, subscribed(front.port) as stream:
        for _ in front.each:
            await until(stream, "begin")
        front.each[0].access.replace([FixedToken("a token of sixteen")])
        await stopped(front.each[0])
        front.each[0].begin()
        assert "401" in (await until(stream, "end")).data["why"]
        assert await stream.next() is None
