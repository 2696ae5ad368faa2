"""The wall clock of a node steps by hours or a year. No mail ends by it, and none waits for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from scripted_hop import ScriptedHop
from sending import sent
from stations import MachineClocks, Station, boundary, eventually, full, opened, settings, station
from structlog.testing import capture_logs

from shadowrelay.core.identifiers import Incarnation, NextHop
from shadowrelay.core.messages import Reason, Stage
from shadowrelay.core.ownership.transfer import intend
from shadowrelay.core.reckoning import Doubt
from shadowrelay.database.ledger import SqlLedger
from shadowrelay.safety_net.expiry import Expiry
from shadowrelay.service.adapters import tracking_writer
from shadowrelay.tracking.files import LogFile, LogName

SECOND, MINUTE, HOUR, DAY = timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
YEAR, NOTHING = 365 * DAY, timedelta(0)
MESSAGE = b"Subject: time\r\n\r\nbody\r\n"
NOT_NOW = b"451 4.2.1 not now\r\n"
MANY = 20


def route(port: int) -> dict[str, Any]:
    return {"domains": ["*"], "host": "127.0.0.1", "port": port, "tls": "none"}


class Refusing(ScriptedHop):
    """Takes no mail until it is told to."""

    def __init__(self) -> None:
        super().__init__(DOT=NOT_NOW)

    def accept(self) -> None:
        del self.script["DOT"]


@asynccontextmanager
async def alone(
    directory: Path, hop: ScriptedHop, clocks: MachineClocks, **changes: Any
) -> AsyncIterator[Station]:
    found = await station(directory, "mx1", [], clocks=clocks, routes={"out": route(hop.port)}, **changes)
    found.run_queue()
    try:
        yield found
    finally:
        await found.stop()


async def fill(node: Station, count: int = MANY) -> None:
    for _ in range(count):
        assert (await sent(node, MESSAGE)).startswith("250 ")


def sweeping(node: Station) -> Expiry:
    return Expiry(node.database, node.node.policy, node.node.clock.endings, node.node.boundary.reachable)


async def looked(node: Station) -> None:
    """The queue and the expiry stage have looked at all that there is."""
    node.node.queue.wake.set()
    await asyncio.sleep(0.3)
    await node.read(sweeping(node)._sweep)


async def all_tried(node: Station, times: int = 1) -> bool:
    return all(copy.recipients[0].attempts >= times for copy in await node.copies())


async def delivered(node: Station) -> bool:
    return all(copy.stage is Stage.SAFETY_NET for copy in await node.copies())


async def ended(node: Station) -> set[str]:
    """What nobody wants to read in the log."""
    return {"FAIL", "DSN", "HADISCARD"} & set(await node.events())


@pytest.mark.parametrize("step", [YEAR, -YEAR, 20 * HOUR, -20 * HOUR])
async def test_an_owner_whose_clock_is_wrong_for_four_seconds_expires_none_of_twenty(
    tmp_path: Path, step: timedelta
) -> None:
    clocks = MachineClocks()
    async with Refusing() as hop, alone(tmp_path, hop, clocks) as node:
        await fill(node)
        await eventually(lambda: all_tried(node))
        clocks.ahead, clocks.passed = step, 2 * SECOND
        await looked(node)
        assert node.node.clock.look().doubts == {Doubt.STEPPED}
        clocks.ahead, clocks.passed = NOTHING, 4 * SECOND
        await looked(node)
        assert not node.node.clock.look().doubts
        assert not await ended(node)
        hop.accept()
        clocks.passed = 2 * HOUR
        node.node.queue.wake.set()
        await eventually(lambda: delivered(node))
        assert not await ended(node)


@pytest.mark.parametrize("wrong", [-YEAR, -20 * HOUR, YEAR])
@pytest.mark.parametrize("at", ["its start", "reception"])
async def test_mail_that_was_taken_by_a_wrong_clock_expires_when_it_is_old_and_not_before(
    tmp_path: Path, wrong: timedelta, at: str
) -> None:
    clocks = MachineClocks(ahead=wrong if at == "its start" else NOTHING)
    async with Refusing() as hop, alone(tmp_path, hop, clocks) as node:
        clocks.ahead = wrong
        await fill(node)
        await eventually(lambda: all_tried(node))
        clocks.ahead = NOTHING
        node.node.clock.confirm()
        await looked(node)
        clocks.passed = node.node.policy.message_expiration_timeout - HOUR
        await looked(node)
        assert "FAIL" not in await node.events()
        clocks.passed += 2 * HOUR
        node.node.queue.wake.set()
        await eventually(lambda: failed(node, MANY))


async def failed(node: Station, count: int) -> bool:
    return (await node.events()).count("FAIL") == count


async def test_a_retry_that_was_planned_by_a_clock_that_is_ahead_is_due_in_time(tmp_path: Path) -> None:
    clocks = MachineClocks()
    async with Refusing() as hop, alone(tmp_path, hop, clocks) as node:
        clocks.ahead = DAY
        await fill(node)
        await eventually(lambda: all_tried(node))
        clocks.ahead = NOTHING
        hop.accept()
        node.node.queue.wake.set()
        await eventually(lambda: delivered(node))  # at the glitch interval of a second


async def test_while_the_clock_is_in_doubt_even_old_mail_waits_until_an_operator_confirms_the_time(
    tmp_path: Path,
) -> None:
    clocks = MachineClocks()
    async with Refusing() as hop, alone(tmp_path, hop, clocks) as node:
        await fill(node, 3)
        await eventually(lambda: all_tried(node))
        clocks.passed, clocks.ahead = 3 * DAY, YEAR  # it is old, and the clock stepped too
        await looked(node)
        await eventually(lambda: all_tried(node, 2))  # it is tried as ever
        assert "FAIL" not in await node.events()
        node.node.clock.confirm()
        clocks.passed += 2 * HOUR
        node.node.queue.wake.set()
        await eventually(lambda: failed(node, 3))


@pytest.mark.parametrize("wall", [NOTHING, -YEAR, YEAR], ids=["right", "behind", "ahead"])
async def test_after_a_boot_mail_has_the_age_that_is_certain(tmp_path: Path, wall: timedelta) -> None:
    clocks = MachineClocks()
    async with Refusing() as hop:
        async with alone(tmp_path, hop, clocks) as node:
            await fill(node, 3)
            await eventually(lambda: all_tried(node))
            await node.node.save_time()
        clocks.passed, clocks.boot_id, clocks.ahead = 3 * DAY, "two", wall
        again = await opened(
            settings(tmp_path, "mx1", [], routes={"out": route(hop.port)}), 1, start=1, clocks=clocks
        )
        try:
            again.run_reconcile()
            again.run_queue()
            await looked(again)
            await looked(again)
            assert "FAIL" not in await again.events()
        finally:
            await again.stop()


@pytest.mark.parametrize("wrong", [YEAR, -YEAR, 20 * HOUR, -20 * HOUR])
async def test_a_holder_whose_clock_is_wrong_at_a_promotion_delivers_all_and_expires_none(
    tmp_path: Path, wrong: timedelta
) -> None:
    clocks = {"mx1": MachineClocks(), "mx2": MachineClocks()}
    async with ScriptedHop() as hop:
        changes = {"reconcile_timeout": "1s", "routes": {"out": route(hop.port)}}
        async with boundary(tmp_path, "mx1", "mx2", clocks=clocks, **changes) as (owner, holder):
            await fill(owner)
            clocks["mx2"].ahead = wrong

            def gone(ledger: SqlLedger) -> None:
                for copy in list(ledger.copies_held_for(owner.name)[0]):
                    ledger.apply(intend(copy, Reason.DATABASE_REPLACED, holder.node.clock()))

            await owner.quiet()
            await asyncio.gather(*(connector.stop(0) for connector in owner.connectors))
            await holder.read(gone)
            holder.run_links()
            holder.run_reconcile()
            holder.run_queue()
            await eventually(lambda: len(hop.contents) == MANY, within=30)
            assert {"FAIL", "DSN"}.isdisjoint(await holder.events())


async def test_a_holder_that_is_a_year_ahead_for_seventy_seconds_keeps_what_it_holds(tmp_path: Path) -> None:
    clocks = {"mx1": MachineClocks(), "mx2": MachineClocks()}
    async with (
        Refusing() as hop,
        boundary(tmp_path, "mx1", "mx2", clocks=clocks, routes={"out": route(hop.port)}) as (owner, holder),
    ):
        await fill(owner)
        clocks["mx2"].ahead = YEAR
        for passed in (NOTHING, 35 * SECOND, 70 * SECOND):
            clocks["mx2"].passed = passed
            await looked(holder)
        clocks["mx2"].ahead = NOTHING
        await looked(holder)
        assert [copy.held for copy in await holder.copies()] == [True] * MANY
        assert not await ended(holder)


async def test_an_owner_that_returns_after_its_holder_was_a_year_ahead_delivers_all_once(
    tmp_path: Path,
) -> None:
    clocks = {"mx1": MachineClocks(), "mx2": MachineClocks()}
    changes: dict[str, Any] = {"reconcile_timeout": "1s"}
    async with Refusing() as hop, AsyncExitStack() as stack:
        changes["routes"] = {"out": route(hop.port)}
        holder = await station(tmp_path, "mx2", ["mx1"], clocks=clocks["mx2"], **changes)
        stack.push_async_callback(holder.stop)
        owner = await station(tmp_path, "mx1", ["mx2"], clocks=clocks["mx1"], **changes)
        owner.knows(holder)
        await fill(owner)
        assert [copy.held for copy in await holder.copies()] == [True] * MANY
        await owner.node.save_time()
        await owner.stop()
        clocks["mx2"].ahead = YEAR
        for passed in (NOTHING, 35 * SECOND, 70 * SECOND):
            for each in clocks.values():
                each.passed = passed
            await looked(holder)
        clocks["mx2"].ahead = NOTHING
        await looked(holder)
        returned = await opened(
            settings(tmp_path, "mx1", ["mx2"], **changes), 1, start=1, clocks=clocks["mx1"]
        )
        stack.push_async_callback(returned.stop)
        await returned.listen()
        returned.knows(holder)
        holder.knows(returned)
        hop.accept()
        for node in (returned, holder):
            node.run_links()
            node.run_reconcile()
            node.run_queue()
        await eventually(lambda: delivered(returned), within=30)
        await eventually(lambda: delivered(holder), within=30)
        assert len(hop.contents) == MANY
        assert {"FAIL", "DSN"}.isdisjoint([*await returned.events(), *await holder.events()])
        for node in (returned, holder):
            await node.quiet()


async def test_a_node_that_has_nothing_to_do_looks_at_its_wall_clock_each_second(tmp_path: Path) -> None:
    clocks = MachineClocks()
    node = await station(tmp_path, "mx1", [], clocks=clocks)
    try:
        with capture_logs() as logged:
            node.run(node.node.clock.watch())
            clocks.ahead = YEAR
            await eventually(lambda: bool(logged), within=30)
            clocks.ahead = NOTHING
            await eventually(lambda: len(logged) > 1, within=30)
        assert [(line["event"], line["why"]) for line in logged] == [
            ("clock_in_doubt", ["stepped"]),
            ("clock_trusted", []),
        ]
    finally:
        await node.stop()


async def test_what_the_tracking_log_says_is_what_the_wall_clock_said(tmp_path: Path) -> None:
    clocks = MachineClocks()
    async with Refusing() as hop, alone(tmp_path, hop, clocks) as node:
        await fill(node, 1)
        clocks.ahead = YEAR
        await fill(node, 1)
        times = [row["date-time"] for row in await node.tracked() if row["event-id"] == "RECEIVE"]
        assert [int(time[:4]) for time in times] == [
            (clocks.read().wall - ahead).year for ahead in (YEAR, NOTHING)
        ]


@pytest.mark.parametrize("names", [("mx1", "mx2"), ("mx1", "mx2", "mx3")])
async def test_members_tell_their_time_and_a_node_that_differs_from_them_knows_it(
    tmp_path: Path, names: tuple[str, ...]
) -> None:
    clocks = {name: MachineClocks() for name in names}
    clocks["mx1"].ahead = 5 * MINUTE
    async with boundary(tmp_path, *names, clocks=clocks) as nodes:
        for node in nodes:
            node.run_links()
        count = len(names) - 1
        await eventually(lambda: all(len(node.node.clock.differences()) == count for node in nodes))
        found = [node.node.clock.look().doubts for node in nodes]
        others = frozenset() if count > 1 else {Doubt.DIFFERS}  # of two, neither is believed
        assert found == [{Doubt.DIFFERS}, *[others] * count]
        assert abs(nodes[0].node.clock.differences()[nodes[1].name] + 5 * MINUTE) < MINUTE
        nodes[0].node.clock.confirm()
        assert not nodes[0].node.clock.look().doubts


async def test_nothing_in_the_queue_view_is_due_later_for_a_step(tmp_path: Path) -> None:
    clocks = MachineClocks()
    async with Refusing() as hop, alone(tmp_path, hop, clocks) as node:
        clocks.ahead = YEAR
        await fill(node, 1)
        await eventually(lambda: all_tried(node))
        retry_at = node.node.queue.hops[NextHop("out")].retry_at
        due = (await node.copies())[0].recipients[0].next_attempt
        now = node.node.clock()
        assert all(moment is None or moment - now < HOUR for moment in (retry_at, due))


async def test_a_new_database_under_a_clock_a_year_ahead_deletes_no_log_file_of_the_one_before(
    tmp_path: Path,
) -> None:
    logs = tmp_path / "logs"
    before = LogName(full("mx1"), Incarnation("00112233445566aa"), 1)
    logs.mkdir()
    LogFile.create(logs, before, opened=datetime.now(UTC)).close(datetime.now(UTC))
    tracking = {"tracking": {"directory": str(logs)}}
    async with ScriptedHop() as hop, alone(tmp_path, hop, MachineClocks(ahead=YEAR), **tracking) as node:

        async def wrote() -> bool:
            """A writer that has nothing to write looks after the directory all the same."""
            found, ended = node.node, asyncio.Event()
            ended.set()
            events = found.services.events
            await tracking_writer(found.settings, node.database, events, found.clock, print).run(ended)
            return (logs / before.closed).exists()

        assert await wrote()
        found = node.node.clock.confirm()
        assert found.reckoning.settled
        assert not await wrote()
