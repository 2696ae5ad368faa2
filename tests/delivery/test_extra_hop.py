"""Mail for a destination on the owner's machine is delivered by a member on another one, if there is one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from scripted_hop import ScriptedHop
from sending import MESSAGE, sent
from stations import Station, boundary, eventually

from shadowrelay.core.identifiers import NextHop
from shadowrelay.core.messages import Copy, Stage
from shadowrelay.database.queue import claim, unclaim
from shadowrelay.delivery import extra_hop
from shadowrelay.members import reconcile, repair

HOSTS = {"mx1": "rack1", "mx2": "rack2", "mx3": "rack3"}


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    for stage in (reconcile, repair):
        monkeypatch.setattr(stage, "INTERVAL", 0.03)


def to(hop: ScriptedHop, machine: str = "rack1", *domains: str, **more: Any) -> dict[str, Any]:
    way = {"domains": list(domains or ("*",)), "host": "127.0.0.1", "port": hop.port, "tls": "none"}
    return way | {"inside": True} | ({"machine": machine} if machine else {}) | more


@asynccontextmanager
async def nodes(
    tmp_path: Path, *names: str, routes: dict[str, Any], **changes: Any
) -> AsyncIterator[list[Station]]:
    """Members that talk and deliver."""
    async with boundary(tmp_path, *names, routes=routes, hosts=HOSTS, **changes) as made:
        for one in made:
            one.run_links()
            one.run_reconcile()
            one.run_repair()
            one.node.connectors = one.connectors[1:]  # they say that they take mail
        for one in made:

            async def met(one: Station = one) -> bool:
                return len(await one.read(lambda ledger: tuple(ledger.members()))) == len(made) - 1

            await eventually(met)
        yield made


async def delivered(one: Station, count: int = 1) -> list[dict[str, str]]:
    """Rows of the node's deliveries, once there are so many."""

    async def rows() -> list[dict[str, str]]:
        return [row for row in await one.tracked() if row["event-id"] == "SEND"]

    async def enough() -> bool:
        return len(await rows()) >= count

    await eventually(enough)
    return await rows()


async def test_a_member_on_another_machine_delivers_and_the_owner_keeps_the_copy(tmp_path: Path) -> None:
    async with (
        ScriptedHop() as hop,
        nodes(tmp_path, "mx1", "mx2", routes={"mailboxes": to(hop)}) as (owner, other),
    ):
        owner.run_queue()
        other.run_queue()
        assert (await sent(owner, MESSAGE)).startswith("250 ")
        await delivered(other)
        assert "SEND" not in await owner.events()
        assert owner.node.extra_hop.counts == {"taken": 1, "alone": 0}
        assert other.node.extra_hop.counts == {"taken": 0, "alone": 0}

        async def both_have_it() -> bool:
            copies = [*await owner.copies(), *await other.copies()]
            return [copy.stage for copy in copies] == [Stage.SAFETY_NET] * 2

        await eventually(both_have_it)
        assert hop.verbs().count("DATA") + hop.verbs().count("BDAT") == 1


async def test_a_member_without_a_copy_gets_one_if_the_holder_takes_no_mail(tmp_path: Path) -> None:
    async with (
        ScriptedHop() as hop,
        nodes(tmp_path, "mx1", "mx2", "mx3", routes={"mailboxes": to(hop)}) as (owner, second, third),
    ):
        await sent(owner, MESSAGE)
        (copy,) = await owner.copies()
        (holder,) = copy.holders
        holding, other = (second, third) if holder.name == second.name else (third, second)
        holding.node.draining.active = True
        for one in (owner, second, third):
            one.run_queue()
        await delivered(other)
        assert not {"SEND"} & {*await owner.events(), *await holding.events()}


async def test_the_extra_hop_stays_within_the_site_where_it_can(tmp_path: Path) -> None:
    """The copy is in the other site, by preference; the mail does not follow it."""
    async with (
        ScriptedHop() as hop,
        nodes(tmp_path, "mx1", "mx2", "mx3", routes={"mailboxes": to(hop)}) as (owner, far, near),
    ):
        known = owner.node.boundary
        known.places = tuple(
            replace(one, site="elsewhere") if one.name == far.name else one for one in known.places
        )
        for _ in range(3):
            await sent(owner, MESSAGE)
        assert {holder.name for copy in await owner.copies() for holder in copy.holders} == {far.name}
        for one in (owner, far, near):
            one.run_queue()
        await delivered(near, 3)
        assert not {"SEND"} & {*await owner.events(), *await far.events()}

        await near.quiet()
        await near.connectors[0].stop(0)
        await sent(owner, MESSAGE)
        await delivered(far)


async def test_who_accepts_a_message_delivers_it_and_one_copy_anywhere_in_the_boundary_suffices(
    tmp_path: Path,
) -> None:
    async with (
        ScriptedHop() as hop,
        nodes(tmp_path, "mx1", "mx2", "mx3", routes={"mailboxes": to(hop, "")}) as (owner, *others),
    ):
        for one in (owner, *others):
            one.run_queue()
        for _ in range(3):
            assert (await sent(owner, MESSAGE)).startswith("250 ")
        await delivered(owner, 3)
        events = [event for one in others for event in await one.events()]
        assert events.count("HARECEIVE") == 3
        assert not {"SEND", "RECEIVE", "RESUBMIT"} & set(events)
        assert len(hop.contents) == 3


async def test_if_nobody_elsewhere_can_be_reached_the_owner_delivers_and_says_so(tmp_path: Path) -> None:
    async with (
        ScriptedHop() as hop,
        nodes(tmp_path, "mx1", "mx2", routes={"mailboxes": to(hop)}) as (owner, other),
    ):
        await other.quiet()
        await other.connectors[0].stop(0)
        await sent(owner, MESSAGE)
        owner.run_queue()
        await delivered(owner)
        assert owner.node.extra_hop.counts == {"taken": 0, "alone": 1}


async def test_nodes_whose_settings_contradict_each_other_do_not_pass_a_message_to_and_fro(
    tmp_path: Path,
) -> None:
    async with ScriptedHop() as hop:
        own = {name: {"routes": {"mailboxes": to(hop, HOSTS[name])}} for name in HOSTS}
        async with nodes(tmp_path, "mx1", "mx2", routes={}, own=own) as (owner, other):
            owner.run_queue()
            other.run_queue()
            await sent(owner, MESSAGE)
            await delivered(other)
            (copy,) = await other.copies()
            assert copy.epoch == 2


@pytest.mark.parametrize("machine", ["", "rack2"])
async def test_a_route_whose_destination_stands_elsewhere_or_nowhere_makes_no_extra_hop(
    tmp_path: Path, machine: str
) -> None:
    async with (
        ScriptedHop() as hop,
        nodes(tmp_path, "mx1", "mx2", routes={"mailboxes": to(hop, machine)}) as (owner, _),
    ):
        owner.run_queue()
        await sent(owner, MESSAGE)
        await delivered(owner)
        assert owner.node.extra_hop.counts == {"taken": 0, "alone": 0}


async def forked(owner: Station) -> Copy:
    await sent(owner, MESSAGE, "a@inside.test", "b@outside.test")
    (copy,) = await owner.copies()
    return copy


OUT = {"inside": False}


async def test_it_waits_for_an_attempt_of_another_fork(tmp_path: Path) -> None:
    async with ScriptedHop() as hop, ScriptedHop() as out:
        routes = {"mailboxes": to(hop, "rack1", "inside.test"), "out": to(out, "", **OUT)}
        async with nodes(tmp_path, "mx1", "mx2", routes=routes) as (owner, other):
            copy = await forked(owner)
            await owner.read(lambda ledger: claim(ledger, NextHop("out"), owner.wall(), 1))
            owner.run_queue()
            other.run_queue()
            await eventually(lambda: owner.node.queue._workers)  # the fork for this machine is claimed
            assert (await owner.copies())[0].owned
            await owner.read(lambda ledger: unclaim(ledger, copy.id, NextHop("out")))
            await delivered(other)
            assert owner.node.extra_hop.counts["taken"] == 1


async def test_it_does_not_wait_for_another_fork_for_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(extra_hop, "OTHER_FORKS", 0.1)
    async with ScriptedHop() as hop, ScriptedHop() as out:
        routes = {"mailboxes": to(hop, "rack1", "inside.test"), "out": to(out, "", **OUT)}
        async with nodes(tmp_path, "mx1", "mx2", routes=routes) as (owner, _):
            await forked(owner)
            await owner.read(lambda ledger: claim(ledger, NextHop("out"), owner.wall(), 1))
            owner.run_queue()
            await delivered(owner)
            assert owner.node.extra_hop.counts == {"taken": 0, "alone": 1}
