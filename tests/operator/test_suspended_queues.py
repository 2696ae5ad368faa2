"""Suspended queues on real nodes: no member delivers to that next hop until it is resumed."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

import pytest
from scripted_hop import ScriptedHop
from sending import MESSAGE, sent
from stations import Station, boundary, eventually, station

from shadowrelay.core import suspending
from shadowrelay.core.identifiers import NextHop, RequestId, ServerName
from shadowrelay.core.messages import Stage, Status
from shadowrelay.core.recipients import LISTS
from shadowrelay.core.suspensions import Suspension
from shadowrelay.members import reconcile, record_replication
from shadowrelay.operator.resubmit_estimate import CannotDo

INSIDE = NextHop("inside")
RECORD = Suspension(
    id=RequestId("01900000-0000-7000-9000-000000000001"),
    next_hop=INSIDE,
    suspended=True,
    operator="ann",
    reason="it loses mail",
    changed_by=ServerName("mx1.example.org"),
    changed_at=datetime(2026, 11, 21, tzinfo=UTC),
)


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconcile, "INTERVAL", 0.03)
    monkeypatch.setattr(record_replication, "REFRESH", 0.1)


async def meet(*stations: Station) -> None:
    for one in stations:
        one.run_links()
        one.run(one.node.replication.run())
    for one in stations:

        async def met(one: Station = one) -> bool:
            return bool(await one.read(lambda ledger: tuple(ledger.members())))

        await eventually(met)


async def suspend(one: Station, **more: Any) -> dict[str, Any]:
    return await one.node.services.suspensions.suspend(INSIDE, "ann", "it loses mail", **more)


async def test_a_queue_is_suspended_on_every_member_and_is_pending_until_all_have_it(tmp_path: Path) -> None:
    async with boundary(tmp_path, "mx1", "mx2", "mx3") as (first, second, late):
        for one in (first, second):  # nobody answers there
            addresses: Any = one.node.members.addresses
            addresses[late.name] = replace(addresses[late.name], port=9)
        await meet(first, second)
        await eventually(lambda: late.name not in first.node.boundary.reachable())
        shown = await suspend(first)
        assert (shown["suspended"], shown["pending"]) == (True, True)
        await eventually(lambda: second.node.suspended(INSIDE))
        for one in (first, second):
            one.knows(late)
        late.run_links()
        late.run(late.node.replication.run())

        async def in_force() -> bool:
            return not (await first.node.services.suspensions.show(INSIDE))["pending"]

        await eventually(in_force)
        assert late.node.suspended(INSIDE)
        (row,) = [row for row in await late.tracked() if row["event-id"] == "SUSPEND"]
        assert (row["source"], row["source-context"]) == ("ADMIN", "inside")
        assert "S:Queue=inside;S:Operator=ann;S:Reason=it loses mail" in row["custom-data"]
        assert not (await late.node.services.suspensions.resume(INSIDE, "bob", "mended"))["suspended"]
        await eventually(lambda: not any(one.node.suspended(INSIDE) for one in (first, second, late)))


async def test_nothing_is_claimed_for_a_suspended_queue_and_late_mail_does_not_expire(tmp_path: Path) -> None:
    async with boundary(tmp_path, "mx1") as (one,):
        await one.node.replication.look()
        await sent(one, MESSAGE)
        await suspend(one)
        one.clock.ahead = timedelta(days=5)
        one.run_queue()
        await one.node.queue._dispatch()
        assert await one.rows("temp.active") == 0
        one.wall.ahead = one.clock.ahead
        await one.node.services.suspensions.resume(INSIDE, "ann", "mended")

        async def tried() -> bool:
            return "DEFER" in await one.events()

        await eventually(tried)
        (copy,) = await one.copies()
        assert (copy.stage, copy.recipients[0].status) == (Stage.QUEUED, Status.READY)
        assert not {"FAIL", "DSN"} & set(await one.events())


async def test_a_delay_notice_promises_the_time_in_which_the_queue_was_suspended_besides(
    tmp_path: Path,
) -> None:
    not_yet = {"RCPT TO:<b@example.net>": b"450 4.2.1 not yet\r\n"}
    async with ScriptedHop(**not_yet) as hop:
        way = {"domains": ["*"], "host": "127.0.0.1", "port": hop.port, "tls": "none"}
        async with boundary(tmp_path, "mx1", routes={"inside": way}) as (one,):
            await one.node.replication.look()
            await sent(one, MESSAGE)
            await suspend(one)
            for clock in (one.clock, one.wall):
                clock.ahead = timedelta(days=1)
            await one.node.services.suspensions.resume(INSIDE, "ann", "mended")
            for clock in (one.clock, one.wall):
                clock.ahead += timedelta(hours=5)
            one.run_queue()
            await eventually(lambda: any(b"Will-Retry-Until" in content for content in hop.contents))
            (copy, *_) = await one.copies()
    found = re.search(rb"Will-Retry-Until: (.*)\r", b"".join(hop.contents))
    assert found
    until = parsedate_to_datetime(found[1].decode())
    promised = until - copy.received_at - one.node.policy.message_expiration_timeout
    assert abs(promised - timedelta(days=1)) < timedelta(minutes=1)


async def test_a_queue_that_is_suspended_after_the_claim_gets_no_attempt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with boundary(tmp_path, "mx1") as (one,):
        await sent(one, MESSAGE)
        queue = one.node.queue
        begin = queue._begin

        def begun(outbound: Any, claims: Any) -> None:
            """The suspension becomes known between the claim and the attempt."""
            if claims:
                queue.suspended.take([RECORD])
            begin(outbound, claims)

        monkeypatch.setattr(queue, "_begin", begun)
        one.run_queue()
        await eventually(lambda: one.node.suspended(INSIDE))

        async def given_back() -> bool:
            return await one.rows("temp.active") == 0

        await eventually(given_back)
        assert "DEFER" not in await one.events()


async def test_a_queue_that_is_not_suspended_cannot_be_resumed(tmp_path: Path) -> None:
    async with boundary(tmp_path, "mx1") as (one,):
        with pytest.raises(CannotDo, match="is not suspended"):
            await one.node.services.suspensions.resume(INSIDE, "ann", "why")


async def test_a_record_that_is_forgotten_for_another_is_gone_from_the_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(suspending, "MOST_KEPT", 1)
    async with boundary(tmp_path, "mx1") as (one,):
        await suspend(one)
        queues = one.node.services.suspensions
        with pytest.raises(CannotDo, match="resume one first"):
            await queues.suspend(LISTS, "ann", "why")
        await queues.resume(INSIDE, "ann", "mended")
        await queues.suspend(LISTS, "ann", "why")
        assert [found["queue"] for found in await queues.all()] == [LISTS]
        assert await one.rows("record") == 1


async def test_a_suspension_with_an_end_ends_by_itself(tmp_path: Path) -> None:
    async with boundary(tmp_path, "mx1") as (one,):
        await suspend(one, until=one.node.clock() + timedelta(hours=1))
        assert one.node.suspended(INSIDE)
        one.clock.ahead = timedelta(hours=2)
        assert not one.node.suspended(INSIDE)


@pytest.mark.parametrize("noticed", [False, True])
async def test_a_member_that_comes_back_without_its_disk_is_told_what_is_suspended(
    tmp_path: Path, *, noticed: bool
) -> None:
    async with boundary(tmp_path, "mx1", "mx2") as (first, lost):
        await meet(first, lost)
        await suspend(first)

        async def in_force() -> bool:
            return not (await first.node.services.suspensions.show(INSIDE))["pending"]

        await eventually(in_force)
        await lost.quiet()
        for connector in lost.connectors:
            await connector.stop(0)
        if noticed:
            await eventually(lambda: lost.name not in first.node.boundary.reachable())
        again = await station(tmp_path / "new", "mx2", ["mx1"], disk=1)
        first.knows(again)
        again.knows(first)
        try:
            await meet(again)
            await eventually(lambda: again.node.suspended(INSIDE))
            await eventually(in_force)
        finally:
            await again.stop()
