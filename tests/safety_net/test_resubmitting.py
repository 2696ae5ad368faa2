"""Resubmit requests on real nodes: shared, carried out by whom they concern, each message made once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from math import inf
from pathlib import Path
from typing import Any

import pytest
from stations import Station, boundary, eventually, full, offer

from shadowrelay.core.decisions import Content, Decision, SaveCopy
from shadowrelay.core.events.reports import resubmitted_id
from shadowrelay.core.identifiers import MessageId, RequestId
from shadowrelay.core.members.conversation import Answered
from shadowrelay.core.messages import Copy, Role, Stage, Status
from shadowrelay.core.reckoning import Endings
from shadowrelay.core.requests import Progress, Request, RequestState, Selector, Skipped
from shadowrelay.core.safety_net import requesting
from shadowrelay.core.steps import Ask
from shadowrelay.database.records import micros
from shadowrelay.readings import memory_in_use
from shadowrelay.safety_net.expiry import Expiry

REQUEST = RequestId("01900000-0000-7000-9000-000000000001")
OCTETS = b"Subject: x\r\n\r\nbody\r\n"


def request(**changes: Any) -> Request:
    now = datetime.now(UTC)
    return replace(
        Request(
            id=REQUEST,
            number=1,
            made_by=full("mx1"),
            made_at=now,
            operator="ann",
            reason="the store is lost",
            selector=Selector(since=now - timedelta(hours=2), until=now),
            changed_by=full("mx1"),
            changed_at=now,
        ),
        **changes,
    )


async def settle(
    owner: Station, holder: Station | None = None, *, count: int = 1, status: Status = Status.DELIVERED
) -> list[MessageId]:
    """Messages in the owner's Safety Net and in the holder's."""
    at = datetime.now(UTC) - timedelta(hours=1)
    made = []
    for number in range(1, count + 1):
        step = offer(owner.name, number, OCTETS)
        plain = Copy(
            id=step.message_id,
            epoch=1,
            rank=0,
            role=Role.PRIMARY,
            stage=Stage.SAFETY_NET,
            owner=owner.name,
            owner_database=owner.database.lineage.database_id,
            offered_in=owner.database.lineage.incarnation,
            envelope=step.envelope,
            recipients=tuple(replace(one, status=status, settled_at=at) for one in step.recipients),
            digests=step.digests,
            received_at=at,
            settled_at=at,
        )
        made.append(plain.id)
        for where, copy in ((owner, plain), (holder, replace(plain, role=Role.SHADOW, rank=1))):
            if where is not None:
                stored = Decision(None, (SaveCopy(None, copy, Content(data=OCTETS)),))
                await where.read(lambda ledger, stored=stored: ledger.apply(stored))  # type: ignore[misc]
    return made


async def ask(node: Station, asked: Request) -> None:
    found = await node.read(
        lambda ledger: ledger.apply(requesting.add(ledger, asked, node.node.policy, datetime.now(UTC)))
    )
    assert isinstance(found, Request)
    node.node.replication.wake.set()


async def change(node: Station, state: RequestState | None, **how: Any) -> None:
    await node.read(
        lambda ledger: ledger.apply(
            requesting.change(ledger, REQUEST, state, node.name, datetime.now(UTC), "ann", **how)
        )
    )
    node.node.replication.wake.set()


def known_as(node: Station, state: RequestState) -> Callable[[], Any]:
    async def known() -> bool:
        found = await node.read(lambda ledger: ledger.request(REQUEST))
        return found is not None and found.state is state

    return known


def made_by(node: Station, count: int) -> Callable[[], Any]:
    async def made() -> bool:
        return (await node.events()).count("RESUBMIT") == count

    return made


def done(node: Station, *, teller: Station | None = None) -> Callable[[], Any]:
    async def told() -> bool:
        return any(one.done for one in await progress(node, teller or node))

    return told


async def progress(node: Station, teller: Station) -> list[Progress]:
    found = await node.read(lambda ledger: ledger.progress(REQUEST))
    return [one for one in found if one.node == teller.name]


async def test_a_request_reaches_every_member_and_each_makes_what_it_settled(tmp_path: Path) -> None:
    async with boundary(tmp_path, "mx1", "mx2") as (first, second):
        (original,) = await settle(second, first)
        for one in (first, second):
            one.run_links()
            one.resubmit()
        await ask(first, request())
        await eventually(known_as(second, RequestState.RUNNING))
        await eventually(made_by(second, 1))
        new = await second.read(lambda ledger: ledger.copy(resubmitted_id(REQUEST, original)))
        assert new is not None
        assert (new.request, new.content_of) == (REQUEST, original)
        assert await second.octets(new.id) == OCTETS
        assert await second.rows("content") == 1
        await eventually(done(second, teller=first))
        await eventually(done(first, teller=second))
        assert await made_by(first, 0)()


async def test_it_gets_its_second_copy_and_is_sent_when_the_members_have_answered(tmp_path: Path) -> None:
    async with boundary(tmp_path, "mx1", "mx2") as (owner, holder):
        (original,) = await settle(owner, holder)
        for one in (owner, holder):
            one.run_links()
            one.resubmit()
        owner.run_repair()
        owner.run_reconcile()
        await ask(owner, request())
        new = resubmitted_id(REQUEST, original)

        async def may_leave() -> bool:
            due = await owner.read(
                lambda ledger: ledger.connection.execute(
                    "SELECT due_at FROM recipient WHERE message_id = ?", (new,)
                ).fetchone()
            )
            return bool(due and due[0] and due[0] <= micros(datetime.now(UTC)))

        await eventually(may_leave)
        copy = await owner.read(lambda ledger: ledger.copy(new))
        assert copy is not None
        assert not copy.exposed
        held = await holder.read(lambda ledger: ledger.copy(new))
        assert held is not None
        assert held.held


async def test_many_messages_are_made_within_the_rate_and_each_once(tmp_path: Path) -> None:
    async with boundary(tmp_path, "mx1", "mx2", resubmit_rate=500) as (owner, holder):
        originals = await settle(owner, holder, count=120)
        for one in (owner, holder):
            one.run_links()
            one.resubmit()
        await ask(holder, request())
        await eventually(done(owner))
        rows = [row for row in await owner.tracked() if row["event-id"] == "RESUBMIT"]
        assert sorted(row["reference"] for row in rows) == sorted(originals)
        assert await made_by(holder, 0)()


async def test_a_holder_answers_for_an_owner_that_the_operator_says_is_gone(tmp_path: Path) -> None:
    async with boundary(tmp_path, "mx1", "mx2") as (owner, holder):
        await settle(owner, holder)
        await owner.quiet()
        for connector in owner.connectors:
            await connector.stop(0)
        holder.run_links()
        holder.resubmit()
        await eventually(lambda: owner.name not in holder.node.boundary.reachable())
        await ask(holder, request(made_by=holder.name, changed_by=holder.name))
        await eventually(done(holder))
        assert await made_by(holder, 0)()
        await change(holder, None, gone=[owner.name])
        await eventually(made_by(holder, 1))


async def test_what_the_holder_made_its_owner_does_not_make_again(tmp_path: Path) -> None:
    async with boundary(tmp_path, "mx1", "mx2") as (owner, holder):
        await settle(owner, holder)
        holder.resubmit()
        holder.node.boundary.watches[owner.name] = replace(
            holder.node.boundary.watches[owner.name], failures=9, failing_since=1.0, greeted=False
        )
        await ask(holder, request(made_by=holder.name, changed_by=holder.name, gone=(owner.name,)))
        await eventually(made_by(holder, 1))
        owner.run_links()
        owner.resubmit()
        await ask(owner, request(made_by=holder.name, changed_by=holder.name, gone=(owner.name,)))
        await eventually(done(owner))
        (own,) = await progress(owner, owner)
        assert (own.made, own.skipped) == (0, ((Skipped.ELSEWHERE, 1),))


async def test_a_holder_leaves_it_to_a_silent_owner_that_a_third_member_sees(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    short = {"unresponsive_primary_interval": "1s"}
    async with boundary(tmp_path, "mx1", "mx2", "mx3", **short) as (owner, holder, third):
        await settle(owner, holder)
        owner.run_links()
        third.run_links()

        async def met() -> bool:
            known = await holder.read(lambda ledger: ledger.member(owner.name))
            seen = third.node.boundary.watches[owner.name].heard_at
            return seen is not None and known is not None and known.lineage is not None

        await eventually(met)
        for one in (owner, third):
            await one.quiet()

        def silent_but_for_third(heard_at: float | None) -> bool:
            """What was on its way when the owner fell silent may still come in: so this is said again."""
            for one, known in (
                (holder, {"failures": 9, "failing_since": 0.0}),
                (third, {"heard_at": heard_at}),
            ):
                watches = one.node.boundary.watches
                watches[owner.name] = replace(watches[owner.name], greeted=False, **known)
            return True

        opinions: list[object] = []
        ask_member = holder.node.members.ask

        async def noted(step: Ask, patience: float) -> Any:
            said = await ask_member(step, patience)
            opinions.append(said.seen if isinstance(said, Answered) else said)
            return said

        monkeypatch.setattr(holder.node.members, "ask", noted)
        silent_but_for_third(inf)
        holder.resubmit()
        await ask(holder, request(made_by=holder.name, changed_by=holder.name))
        await eventually(lambda: silent_but_for_third(inf) and opinions.count(owner.name) >= 2)
        assert await made_by(holder, 0)()
        holder_made = made_by(holder, 1)
        await eventually(lambda: silent_but_for_third(None) and holder_made())


async def test_a_member_that_was_away_asks_about_its_requests_before_it_goes_on(tmp_path: Path) -> None:
    async with boundary(tmp_path, "mx1", "mx2") as (first, second):
        await settle(second)
        await ask(first, request())
        await ask(second, request())
        await change(first, RequestState.REMOVED)
        for one in (first, second):
            one.run_links()
            one.resubmit()
        await eventually(known_as(second, RequestState.REMOVED))
        assert await made_by(second, 0)()


@pytest.mark.slow
async def test_a_request_that_is_paused_makes_nothing_until_it_is_resumed_anywhere(tmp_path: Path) -> None:
    async with boundary(tmp_path, "mx1", "mx2", resubmit_rate=5) as (first, second):
        await settle(second, count=30)
        for one in (first, second):
            one.run_links()
            one.resubmit()
        await ask(second, request())
        await eventually(known_as(first, RequestState.RUNNING))

        async def begun() -> bool:
            return "RESUBMIT" in await second.events()

        await eventually(begun)
        await change(first, RequestState.PAUSED)
        await eventually(known_as(second, RequestState.PAUSED))
        count = (await second.events()).count("RESUBMIT")
        told = second.node.replication.given[first.name].at
        await eventually(lambda: second.node.replication.given[first.name].at != told)
        assert (await second.events()).count("RESUBMIT") == count < 30
        await change(first, RequestState.RUNNING)
        await eventually(made_by(second, 30))


async def test_a_member_that_takes_no_acts_of_others_keeps_no_request_and_says_why(tmp_path: Path) -> None:
    own = {"mx2": {"peer": {"peer_operate": "read"}}}
    async with boundary(tmp_path, "mx1", "mx2", own=own) as (first, second):
        first.run_links()
        first.resubmit()
        await ask(first, request())

        def refused() -> bool:
            given = first.node.replication.given.get(second.name)
            return given is not None and "peer_operate" in given.refused.get(REQUEST, "")

        await eventually(refused)
        assert await second.rows("record") == 0


async def test_a_node_without_room_makes_nothing(tmp_path: Path) -> None:
    async with boundary(tmp_path, "mx1", "mx2") as (owner, holder):
        await settle(owner, holder)
        owner.node.room.minimum = 1 << 60
        owner.run_links()
        holder.run_links()
        owner.resubmit()
        await ask(owner, request())

        def given() -> bool:
            known = owner.node.replication.given.get(holder.name)
            return known is not None and known.at is not None

        await eventually(given)
        assert await made_by(owner, 0)()
        owner.node.room.minimum = 0
        await eventually(made_by(owner, 1))


async def test_what_a_request_asks_for_does_not_expire_and_the_rest_does(tmp_path: Path) -> None:
    async with boundary(tmp_path, "mx1", "mx2", safety_net_hold_time="20s") as (owner, holder):
        del holder
        (kept,) = await settle(owner)
        at = datetime.now(UTC) - timedelta(hours=3)
        step = offer(owner.name, 2, OCTETS)
        copy = await owner.read(lambda ledger: ledger.copy(kept))
        assert copy is not None
        old = tuple(replace(one, settled_at=at) for one in copy.recipients)
        older = replace(copy, id=step.message_id, recipients=old, settled_at=at)
        await owner.read(
            lambda ledger: ledger.apply(Decision(None, (SaveCopy(None, older, Content(data=OCTETS)),)))
        )
        await ask(owner, request())
        expiry = Expiry(owner.database, owner.node.policy, lambda: Endings(datetime.now(UTC)), frozenset)
        await owner.read(expiry._sweep)
        assert [one.id for one in await owner.copies()] == [kept]
        await change(owner, RequestState.REMOVED)
        await owner.read(expiry._sweep)
        assert await owner.copies() == []


async def test_under_pressure_nothing_is_made_until_it_is_over(tmp_path: Path) -> None:
    """The node would take the mail of a client that is trusted: what nobody waits for waits first."""
    limit = int(memory_in_use() / 0.15)
    pressure = {"enabled": True, "memory": "10/30/15/5", "memory_limit": limit}
    async with boundary(tmp_path, "mx1", "mx2", own={"mx1": {"back_pressure": pressure}}) as (owner, holder):
        back = owner.node.back_pressure
        await back.look()
        assert owner.node.has_room()
        await settle(owner, holder, count=2)
        await ask(owner, request())
        for node in (owner, holder):
            node.run_links()
            node.resubmit()
        await eventually(known_as(holder, RequestState.RUNNING))
        await eventually(owner.node.replication.heard)
        turns = owner.node.resubmitting._pace._turn
        await eventually(lambda: owner.node.resubmitting._pace._turn >= turns + 3)
        assert await made_by(owner, 0)()
        back.limits = None
        await back.look()
        await eventually(made_by(owner, 2))
