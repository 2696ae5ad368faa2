"""Exposure is repaired, and what peers were asked is concluded."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest
from sending import MESSAGE, sent
from stations import Station, boundary, eventually

from shadowrelay.core.decisions import Chore, ChoreKind, Content, Decision, SaveCopy
from shadowrelay.core.digests import of_content, of_envelope
from shadowrelay.core.identifiers import MessageId, NextHop
from shadowrelay.core.messages import Confirmation, Copy, Digests, Envelope, HolderState, Recipient, Stage
from shadowrelay.core.ownership.transfer import made_here
from shadowrelay.database.ledger import SqlLedger
from shadowrelay.members import repair
from shadowrelay.members.chores import Chores
from shadowrelay.members.pool import seconds
from shadowrelay.smtp.members.session import MemberSession
from shadowrelay.smtp.receiving.session import ReceiveSession

ROUTED = "user%host@example.org"
LARGE = b"Subject: large\r\n\r\n" + (b"y" * 78 + b"\r\n") * 1000


async def test_an_exposed_message_gets_a_second_copy_when_a_member_is_there(tmp_path: Path) -> None:
    async with boundary(tmp_path, "mx1", "mx2") as (owner, holder):
        addresses = dict(owner.node.members.addresses)
        owner.node.members.addresses[holder.name] = replace(addresses[holder.name], port=1)  # type: ignore[index]
        for content in (MESSAGE, LARGE):
            assert (await sent(owner, content)).startswith("250 ")
        assert all(copy.exposed for copy in await owner.copies())
        owner.knows(holder)
        owner.run_repair()

        async def safe() -> bool:
            return not any(copy.exposed for copy in await owner.copies())

        await eventually(safe)
        for ours, held in zip(await owner.copies(), await holder.copies(), strict=True):
            assert (held.id, held.rank) == (ours.id, ours.holders[-1].rank)
            assert await holder.octets(ours.id) == await owner.octets(ours.id)
        assert (await owner.events())[-2:] == ["HAREDIRECT"] * 2


@pytest.mark.parametrize("page", [1, 500])
async def test_a_message_that_cannot_be_copied_neither_ends_the_repair_nor_keeps_others_exposed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, page: int
) -> None:
    monkeypatch.setattr(repair, "PAGE", page)
    async with boundary(tmp_path, "mx1", "mx2") as (owner, holder):
        owner.node.members.addresses[holder.name] = replace(  # type: ignore[index]
            owner.node.members.addresses[holder.name], port=1
        )
        for content in (LARGE, MESSAGE):
            await sent(owner, content)
        (file,) = owner.files()
        (owner.node.spool / file).unlink()
        owner.knows(holder)
        owner.run_repair()

        async def one_is_safe() -> bool:
            return [copy.exposed for copy in await owner.copies()] == [True, False]

        await eventually(one_is_safe)
        assert len(await holder.copies()) == 1
        assert not owner.tasks[0].done()


async def report_to(owner: Station, address: str) -> Copy:
    """A report in its queue, exposed as each new one is."""

    def work(ledger: SqlLedger) -> Copy:
        envelope = Envelope(sender="", size=len(MESSAGE))
        recipients = (Recipient(1, address, NextHop("inside")),)
        digests = Digests(of_content(MESSAGE), of_envelope(envelope, recipients))
        about = MessageId("01900000-0000-8000-8000-000000000001")
        made = made_here(ledger, about, envelope, recipients, digests, owner.clock())
        return ledger.apply(Decision(made, (SaveCopy(None, made, Content(data=MESSAGE)),)))

    return await owner.read(work)


async def test_a_copy_that_is_refused_says_nothing_of_its_member_and_why_is_remembered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next hop of a report may be anywhere; a member of an earlier version refuses to route there."""
    monkeypatch.setattr(MemberSession, "judge", ReceiveSession.judge)
    monkeypatch.setattr(repair, "INTERVAL", 0.02)
    strict = {"reject_message_on_shadow_failure": True, "member_skip_interval": "10m"}
    async with boundary(tmp_path, "mx1", "mx2", **strict) as (owner, holder):
        await sent(owner, MESSAGE)
        made = await report_to(owner, ROUTED)
        owner.run_repair()
        known = owner.node.repair.refusals
        await eventually(lambda: known.of(made.id))
        for _ in range(5):
            assert (await sent(owner, MESSAGE)).startswith("250 ")
        await asyncio.sleep(0.2)
        (refusal,) = known.of(made.id)
        assert (refusal.attempt.name, refusal.attempt.reply[:10]) == (holder.name, "550 5.7.1 ")
        (report,) = (copy for copy in await owner.copies() if copy.exposed)
        assert (report.id, report.ranks_given) == (made.id, 1)  # nobody asks again at once


async def test_who_refused_a_copy_is_asked_again_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MemberSession, "judge", ReceiveSession.judge)
    async with boundary(tmp_path, "mx1", "mx2") as (owner, holder):
        await sent(owner, MESSAGE)
        made = await report_to(owner, ROUTED)
        owner.node.repair.refusals.rest = 0.2
        owner.run_repair()
        await eventually(lambda: owner.node.repair.refusals.messages)
        monkeypatch.undo()

        async def safe() -> bool:
            return not any(copy.exposed for copy in await owner.copies())

        await eventually(safe)
        assert made.id in {copy.id for copy in await holder.copies()}
        await eventually(lambda: not owner.node.repair.refusals.messages)


async def test_many_exposed_messages_follow_one_another_without_a_pause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repair, "PAGE", 2)
    monkeypatch.setattr(repair, "INTERVAL", 60.0)
    async with boundary(tmp_path, "mx1", "mx2") as (owner, holder):
        addresses = dict(owner.node.members.addresses)
        owner.node.members.addresses[holder.name] = replace(addresses[holder.name], port=1)  # type: ignore[index]
        for _ in range(7):
            await sent(owner, MESSAGE)
        owner.knows(holder)
        owner.node.boundary.answered(holder.name, seconds())
        owner.run_repair()
        await eventually(lambda: owner.database.ledger.tally.exposed == 0)
        assert len(await holder.copies()) == 7


async def test_nothing_is_repaired_while_it_is_not_known_what_is_lost(tmp_path: Path) -> None:
    async with boundary(tmp_path, "mx1", "mx2") as (owner, holder):
        addresses = dict(owner.node.members.addresses)
        owner.node.members.addresses[holder.name] = replace(addresses[holder.name], port=1)  # type: ignore[index]
        await sent(owner, MESSAGE)
        owner.knows(holder)
        owner.node.boundary.answered(holder.name, seconds())
        left = Chore(ChoreKind.COUNTED, holder.name, owner.clock())
        await owner.read(lambda ledger: ledger.apply(Decision(None, (left,))))
        owner.run_repair()
        await asyncio.sleep(0.3)
        assert await holder.copies() == []
        owner.run(Chores(owner.database, lambda: None).run())
        await eventually(lambda: owner.database.ledger.tally.exposed == 0)


async def test_a_message_is_released_once_every_member_answered(tmp_path: Path) -> None:
    async with boundary(tmp_path, "mx1", "mx2") as (owner, _):
        await sent(owner, MESSAGE)
        (ours,) = await owner.copies()
        asking = replace(ours, confirmation=Confirmation.ASK, confirm_since=ours.received_at)
        await owner.read(lambda ledger: ledger.apply(Decision(None, (SaveCopy(ours, asking),))))
        owner.run_reconcile()
        owner.run_links()

        async def confirmed() -> bool:
            return (await owner.copies())[0].confirmation is Confirmation.NONE

        await eventually(confirmed)


async def test_a_message_whose_holder_is_silent_goes_out_in_doubt(tmp_path: Path) -> None:
    async with boundary(tmp_path, "mx1", "mx2", reconcile_timeout="1s") as (owner, holder):
        await sent(owner, MESSAGE)
        (ours,) = await owner.copies()
        asking = replace(ours, confirmation=Confirmation.ASK, confirm_since=ours.received_at)
        await owner.read(lambda ledger: ledger.apply(Decision(None, (SaveCopy(ours, asking),))))
        owner.node.boundary.failed(holder.name, seconds(), "connect: refused")
        owner.run_reconcile()

        async def in_doubt() -> bool:
            return (await owner.copies())[0].confirmation is Confirmation.IN_DOUBT

        await eventually(in_doubt)
        assert (await owner.copies())[0].holders[0].state is HolderState.HOLDING


async def test_of_a_long_absence_only_what_was_queued_then_is_set_aside(tmp_path: Path) -> None:
    async with boundary(tmp_path, "mx1", "mx2") as (owner, holder):
        opened = owner.database.opened
        owner.node.inquiry.returned, owner.node.inquiry.long = opened.at, lambda: True
        owner.node.members.addresses[holder.name] = replace(  # type: ignore[index]
            owner.node.members.addresses[holder.name], port=1
        )
        for since in (opened.at, opened.at + timedelta(seconds=1)):
            await sent(owner, MESSAGE)
            ours = (await owner.copies())[-1]
            asking = replace(ours, confirmation=Confirmation.ASK, confirm_since=since)
            asked = Decision(None, (SaveCopy(ours, asking),))
            await owner.read(partial(SqlLedger.apply, decision=asked))
        owner.node.boundary.failed(holder.name, seconds(), "connect: refused")
        owner.run_reconcile()

        async def concluded() -> bool:
            return all(copy.confirmation is Confirmation.NONE for copy in await owner.copies())

        await eventually(concluded)
        assert [copy.stage for copy in await owner.copies()] == [Stage.SET_ASIDE, Stage.QUEUED]
