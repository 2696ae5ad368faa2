"""REQUIRETLS (RFC 8689) in a message that goes another way than planned, or is harmed and comes back."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from damaging import LARGE, QUICK, awake, damage_table, file_of, spoil, unclean
from scripted_hop import ScriptedHop
from sending import MESSAGE
from stations import Station, boundary, eventually, opened
from stations import settings as node_settings
from test_extra_hop import HOSTS
from test_requiretls import OFFERS, STRICT, Certificates, asked_for_it, here, mails, only

from shadowrelay.core.messages import Role, Status
from shadowrelay.core.ownership.set_aside import set_aside
from shadowrelay.members import reconcile, repair
from shadowrelay.operator.resume import resume

__all__ = ["here"]


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    for stage in (reconcile, repair):
        monkeypatch.setattr(stage, "INTERVAL", 0.03)


def with_alternative(
    here: Certificates, own: ScriptedHop, spare: ScriptedHop, **route: Any
) -> dict[str, Any]:
    ways = here.to(own, alternatives=["spare"])
    ways["routes"]["spare"] = {**here.to(spare, **route)["routes"]["out"], "domains": ["spare.example"]}
    return ways


async def tried(one: Station) -> bool:
    """Was it tried, and does it wait or has it failed?"""
    (recipient,) = (await first(one)).recipients
    return bool(recipient.attempts) or recipient.status is not Status.READY


async def first(one: Station) -> Any:
    """The message of the client."""
    (copy,) = [copy for copy in await one.copies() if copy.envelope.sender]
    return copy


async def test_an_alternative_gets_it_with_requiretls(tmp_path: Path, here: Certificates) -> None:
    async with (
        here.hop(*OFFERS) as unfit,
        here.hop() as spare,
        boundary(tmp_path, "mx1", **with_alternative(here, unfit, spare)) as (one,),
    ):
        one.run_queue()
        await here.required(one)
        await eventually(lambda: mails(spare))
        assert (mails(unfit), asked_for_it(spare)) == ([], [True])


@pytest.mark.parametrize("why", ["no REQUIRETLS", "tls = none", "unknown authority"])
async def test_an_alternative_that_is_not_fit_does_not_get_it(
    tmp_path: Path, here: Certificates, why: str
) -> None:
    """Its own host may be fit, and cannot be asked now: the message waits for it."""
    route: dict[str, Any] = {"tls = none": {"tls": "none"}}.get(why, {})
    offers = OFFERS if why == "no REQUIRETLS" else ()
    async with here.hop(GREETING=b"554 5.3.2 closed\r\n") as own, here.hop(*offers) as spare:
        ways = with_alternative(here, own, spare, **route)
        if why == "unknown authority":
            del ways["routes"]["spare"]["ca"]
        async with boundary(tmp_path, "mx1", **ways) as (one,):
            one.run_queue()
            await here.required(one)
            await eventually(lambda: tried(one))
            (recipient,) = (await first(one)).recipients
            assert recipient.status is Status.READY
            assert recipient.last_reply.startswith("450 4.7.")
            assert mails(own, spare) == []


async def test_it_leaves_with_it_from_the_member_that_makes_the_extra_hop(
    tmp_path: Path, here: Certificates
) -> None:
    async with here.hop() as hop:
        ways = here.to(hop, inside=True, machine="rack1")
        async with boundary(tmp_path, "mx1", "mx2", hosts=HOSTS, **ways, **STRICT) as stations:
            owner, other = stations
            for one in stations:
                one.run_links()
                one.run_reconcile()
                one.run_repair()
                one.node.connectors = one.connectors[1:]  # they say that they take mail
            assert (await here.required(owner)).startswith("250 ")
            for one in stations:
                one.run_queue()
            await eventually(lambda: mails(hop))
            await eventually(lambda: owner.node.extra_hop.counts["taken"])
            assert asked_for_it(hop) == [True]
            assert (await only(other)).role is Role.PRIMARY


async def test_it_leaves_with_it_when_an_operator_resumes_what_was_set_aside(
    tmp_path: Path, here: Certificates
) -> None:
    async with here.hop() as hop, boundary(tmp_path, "mx1", **here.to(hop)) as (one,):
        await here.required(one)
        copy = await only(one)
        now = datetime.now(UTC)
        await one.read(lambda ledger: ledger.apply(set_aside(copy, now)))
        assert await one.read(lambda ledger: resume(ledger, copy.id, now))
        one.run_queue()
        await eventually(lambda: mails(hop))
        assert asked_for_it(hop) == [True]


@asynccontextmanager
async def salvaged(tmp_path: Path, here: Certificates, ways: dict[str, Any]) -> AsyncIterator[Station]:
    """A node with the message in a database of which a page was unreadable when it was opened."""
    found = node_settings(tmp_path, "mx1", [], **ways)
    before = await opened(found, 1)
    try:
        await before.listen()
        await here.required(before)
    finally:
        await before.stop()
    unclean(before.database.file)
    damage_table(before.database.file, "outcome")
    after = await opened(found, 1, start=1)
    try:
        assert after.database.opened.salvaged is not None
        yield after
    finally:
        await after.stop()


async def test_it_leaves_with_it_from_what_was_saved_of_a_corrupt_database(
    tmp_path: Path, here: Certificates
) -> None:
    async with here.hop() as hop, salvaged(tmp_path, here, here.to(hop)) as one:
        one.run_reconcile()
        one.run_queue()
        await eventually(lambda: mails(hop))
        assert asked_for_it(hop) == [True]


@pytest.mark.parametrize("what", ["content", "rows"])
async def test_it_leaves_with_it_when_a_member_gave_a_good_copy_of_it(
    tmp_path: Path, here: Certificates, what: str
) -> None:
    async with (
        here.hop() as hop,
        boundary(tmp_path, "mx1", "mx2", **here.to(hop), **STRICT | QUICK) as stations,
    ):
        owner, holder = stations
        assert (await here.required(owner, LARGE if what == "content" else MESSAGE)).startswith("250 ")
        copy = await only(owner)
        if what == "content":
            file_of(owner, copy.id).write_bytes(b"short")
        else:
            await spoil(owner, "UPDATE message SET tls = NULL WHERE id = ?", copy.id)
        awake(owner, holder)
        await owner.read(lambda ledger: ledger.copy(copy.id))  # the scrub reads it, at the latest
        await eventually(lambda: hop.contents)
        assert "HARESTORE" in await owner.events()
        assert all(asked_for_it(hop))
