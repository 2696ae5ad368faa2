"""Two members on one machine, a third elsewhere: what one machine alone has is exposed, and shown so."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from scripted_hop import ScriptedHop
from sending import sent
from stations import Station, boundary, eventually, full, station

from shadowrelay.core.identifiers import ServerName
from shadowrelay.core.messages import Copy, HolderState
from shadowrelay.core.ownership import heartbeat
from shadowrelay.database import views

OCTETS = b"Subject: on one machine\r\n\r\n" + b"a line of the body\r\n" * 20
HOSTS = {"mx1": "rack1", "mx2": "rack1", "mx3": "rack2"}
QUICK = {
    "shadow_heartbeat_frequency": "1s",
    "discard_poll_interval": "0.2s",
    "orphan_check_interval": "1s",
    "shadow_resubmit_time_span": "2s",
    "reconcile_timeout": "2s",
}


async def the_copy(on: Station) -> Copy:
    (copy,) = await on.copies()
    return copy


async def exposed(on: Station) -> int:
    """As the API, the metrics and the command line show it."""
    return (await on.read(views.snapshot)).counts.exposed


def holders(copy: Copy) -> dict[ServerName, HolderState]:
    return {one.name: one.state for one in copy.holders}


@pytest.mark.slow
async def test_what_one_machine_has_is_exposed_until_another_one_has_it_too(tmp_path: Path) -> None:
    """Its owner, elsewhere, is lost when both members of a machine have copies, and comes back without."""
    route = {"domains": ["*"], "host": "127.0.0.1", "port": 9, "tls": "none"}
    changes = {"hosts": HOSTS, "routes": {"out": route}, **QUICK}
    async with boundary(tmp_path, "mx1", "mx2", "mx3", **changes) as (mx1, mx2, mx3):
        assert (await sent(mx3, OCTETS, "b@example.net")).startswith("250 ")
        await eventually(lambda: the_first(mx3))
        (first,) = [one for one in (mx1, mx2) if await one.copies()]
        await mx3.read(lambda ledger: heartbeat.lose_holder(ledger, first.name))
        mx3.run_repair()
        await eventually(lambda: both(mx1, mx2))
        await gone(mx3)

        for one in (mx1, mx2):
            one.run_links()
            one.run_reconcile()
            one.run_repair()
        await eventually(lambda: one_owns(mx1, mx2))
        owner, fellow = (mx1, mx2) if (await the_copy(mx1)).owned else (mx2, mx1)
        await eventually(lambda: follows(fellow, owner))
        assert holders(await the_copy(owner)) == {fellow.name: HolderState.BESIDE}
        assert await exposed(owner) == 1

        back = await station(tmp_path / "new", "mx3", ["mx1", "mx2"], disk=1, **changes)
        try:
            for one in (mx1, mx2):
                one.knows(back)
                back.knows(one)
            back.run_links()

            async def elsewhere() -> bool:
                return holders(await the_copy(owner)).get(full("mx3")) is HolderState.HOLDING

            await eventually(elsewhere)
            assert await exposed(owner) == 0
            await eventually(lambda: released(fellow))
            assert [copy.owner for copy in await back.copies()] == [owner.name]
        finally:
            await back.stop()
        told = [row for row in await fellow.tracked() if row["event-id"] == "HADISCARD"]
        assert [row["source-context"].partition(";")[0] for row in told] == ["Superseded"]
        machines = [row["custom-data"] for row in await owner.tracked() if row["event-id"] == "HAREDIRECT"]
        assert "S:Host=rack1;S:ShadowHost=rack1" in machines[0]
        assert "S:Host=rack1;S:ShadowHost=rack2" in machines[-1]


async def the_first(owner: Station) -> bool:
    return [one.exposed for one in await owner.copies()] == [False]


async def both(*stations: Station) -> bool:
    return all([len(await one.copies()) == 1 for one in stations])


async def gone(one: Station) -> None:
    """It neither calls nor answers any more."""
    await one.quiet()
    for connector in one.connectors:
        await connector.stop(0)


async def one_owns(*stations: Station) -> bool:
    return [(await the_copy(one)).owned for one in stations].count(True) == 1


async def follows(fellow: Station, owner: Station) -> bool:
    return (await the_copy(fellow)).owner == owner.name


async def released(one: Station) -> bool:
    return await one.copies() == []


async def test_a_member_on_the_senders_own_machine_takes_no_first_copy(tmp_path: Path) -> None:
    async with boundary(tmp_path, "mx1", "mx2", "mx3", hosts=HOSTS) as (mx1, mx2, mx3):
        for _ in range(6):
            assert (await sent(mx1, OCTETS, "b@example.net")).startswith("250 ")
        await eventually(lambda: six(mx3))
        assert await mx2.copies() == []


async def six(one: Station) -> bool:
    return len(await one.copies()) == 6


async def test_a_cut_off_machine_promotes_nothing_though_its_members_answer_each_other(
    tmp_path: Path,
) -> None:
    hosts = {**HOSTS, "mx4": "rack3"}
    async with boundary(tmp_path, "mx1", "mx2", "mx3", "mx4", hosts=hosts, **QUICK) as stations:
        mx1, mx2, mx3, mx4 = stations
        assert (await sent(mx3, OCTETS, "b@example.net")).startswith("250 ")
        holding = [one for one in (mx1, mx2, mx4) if await one.copies()]
        if holding == [mx4]:  # whom it chose is of no matter here
            await mx3.read(lambda ledger: heartbeat.lose_holder(ledger, mx4.name))
            mx3.run_repair()
            await eventually(lambda: any_of(mx1, mx2))
        for one in (mx3, mx4):
            await gone(one)
        for one in (mx1, mx2):
            one.run_links()
            one.run_reconcile()

        def waits() -> bool:
            links = [one.node.links[full("mx3")] for one in (mx1, mx2)]
            return any(link.opinion.alone for link in links)

        await eventually(waits)
        for one in (mx1, mx2):
            assert [copy.held for copy in await one.copies()] in ([], [True])
            assert "RESUBMIT" not in await one.events()


async def any_of(*stations: Station) -> bool:
    return any([await one.copies() for one in stations])


@pytest.mark.slow
async def test_where_only_its_own_machine_can_be_reached_a_drain_does_not_wait_for_it(tmp_path: Path) -> None:
    async with ScriptedHop() as hop:
        hop.script["RCPT TO:<b@example.net>"] = [b"451 4.2.1 later\r\n"] * 50
        route = {"domains": ["*"], "host": "127.0.0.1", "port": hop.port, "tls": "none"}
        changes = {"hosts": HOSTS, "routes": {"out": route}, **QUICK}
        async with boundary(tmp_path, "mx1", "mx2", "mx3", **changes) as (mx1, mx2, mx3):
            assert (await sent(mx1, OCTETS, "b@example.net")).startswith("250 ")
            await gone(mx3)
            mx1.run_links()
            mx2.run_links()
            boundary_of = mx1.node.boundary
            await eventually(lambda: boundary_of.reachable() == {mx2.name})
            loop = asyncio.get_running_loop()
            began = loop.time()
            remains = await mx1.drain().run(began + 30, lambda: False)
            assert loop.time() - began < 15
            assert (remains.queued, remains.handed_over) == (1, {})
