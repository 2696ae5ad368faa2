"""A redirect empties a queue to the member that the operator names, whether or not it holds copies."""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import pytest
from sending import MESSAGE, sent
from stations import Station, boundary, eventually

from shadowrelay.core.decisions import Decision, SaveCopy, Tombstone
from shadowrelay.core.identifiers import MessageId, NextHop, ServerName
from shadowrelay.core.messages import Confirmation, HolderState, Role, Stage
from shadowrelay.core.ownership.set_aside import set_aside
from shadowrelay.database.queue import claim, unclaim
from shadowrelay.members import reconcile, repair
from shadowrelay.operator import redirect
from shadowrelay.operator.redirect import DONE, STOPPED, RedirectProgress, RedirectRefused


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    for stage in (redirect, reconcile, repair):
        monkeypatch.setattr(stage, "INTERVAL", 0.03)


async def running(*stations: Station) -> None:
    """All talk, and know each other's databases."""
    for one in stations:
        one.run_links()
        one.run_reconcile()
        one.node.connectors = one.connectors[1:]  # they say that they take mail
    for one in stations:
        others = {place.name for place in one.node.boundary.places}

        async def met(one: Station = one, others: set[ServerName] = others) -> bool:
            return {member.name for member in await one.read(lambda led: tuple(led.members()))} == others

        await eventually(met)


async def over(one: Station, within: float = 8.0) -> RedirectProgress:
    async def ended() -> bool:
        found = await one.node.redirecting.progress()
        return found is not None and bool(found.ended)

    await eventually(ended, within=within)
    found = await one.node.redirecting.progress()
    assert found is not None
    return found


async def owners(*stations: Station) -> dict[MessageId, list[ServerName]]:
    """Of each message, the nodes that take it for their own."""
    found: dict[MessageId, list[ServerName]] = {}
    for one in stations:
        for copy in await one.copies():
            found.setdefault(copy.id, [])
            if copy.owned:
                found[copy.id].append(one.name)
    return found


async def test_the_queue_goes_to_the_named_member_and_what_has_no_copy_there_is_copied_first(
    tmp_path: Path,
) -> None:
    async with boundary(tmp_path, "mx1", "mx2", "mx3") as (owner, other, target):
        await running(owner, other, target)
        for _ in range(8):
            assert (await sent(owner, MESSAGE)).startswith("250 ")
        there = {copy.id for copy in await target.copies()}
        assert 0 < len(there) < 8, "both members hold copies"
        await owner.node.redirecting.begin(target.name)
        ended = await over(owner)
        assert (ended.ended, ended.done, ended.handed_over, ended.copied) == (DONE, True, 8, 8 - len(there))
        assert set(map(tuple, (await owners(owner, other, target)).values())) == {(target.name,)}
        for copy in await owner.copies():
            assert (copy.role, copy.owner) == (Role.SHADOW, target.name)
            assert await target.octets(copy.id) == await owner.octets(copy.id)

        async def two_copies() -> bool:
            return not any(copy.exposed for copy in await target.copies() if copy.owned)

        await eventually(two_copies)


async def test_shadow_copies_and_what_is_set_aside_stay(tmp_path: Path) -> None:
    async with boundary(tmp_path, "mx1", "mx2") as (owner, target):
        await running(owner, target)
        for _ in range(2):
            await sent(owner, MESSAGE)
        await sent(target, MESSAGE)  # mx1 holds a copy
        (held,) = [copy for copy in await owner.copies() if copy.held]
        aside, moved = [copy for copy in await owner.copies() if copy.owned]
        await owner.read(lambda ledger: ledger.apply(set_aside(aside, owner.wall())))
        await owner.node.redirecting.begin(target.name)
        ended = await over(owner)
        assert (ended.done, ended.handed_over, dict(ended.left)) == (True, 1, {})
        here = {copy.id: copy for copy in await owner.copies()}
        assert here[aside.id].stage is Stage.SET_ASIDE
        assert (here[held.id].owner, here[held.id].epoch) == (target.name, held.epoch)
        assert (here[moved.id].owner, here[moved.id].epoch) == (target.name, moved.epoch + 1)


async def test_a_message_is_not_taken_out_of_its_delivery_attempt(tmp_path: Path) -> None:
    async with boundary(tmp_path, "mx1", "mx2") as (owner, target):
        await running(owner, target)
        await sent(owner, MESSAGE)
        (fork,) = await owner.read(lambda ledger: claim(ledger, NextHop("inside"), owner.wall(), 9))
        await owner.node.redirecting.begin(target.name)

        async def looked_at() -> bool:
            found = await owner.node.redirecting.progress()
            return found is not None and dict(found.left) == {"being_sent": 1}

        await eventually(looked_at)
        assert (await owners(owner, target))[fork.copy.id] == [owner.name]
        await owner.read(lambda ledger: unclaim(ledger, fork.copy.id, fork.next_hop))
        assert (await over(owner)).handed_over == 1


async def test_a_message_that_is_claimed_while_it_is_copied_stays_until_the_attempt_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with boundary(tmp_path, "mx1", "mx2", "mx3") as (owner, other, target):
        await running(owner, other, target)
        await sent(owner, MESSAGE)
        (copy,) = await owner.copies()
        (holder,) = copy.holders
        to = other if holder.name == target.name else target
        offer = owner.node.members.offer

        async def claimed_meanwhile(step, content):  # type: ignore[no-untyped-def]
            await owner.read(lambda ledger: claim(ledger, NextHop("inside"), owner.wall(), 9))
            return await offer(step, content)

        monkeypatch.setattr(owner.node.members, "offer", claimed_meanwhile)
        await owner.node.redirecting.begin(to.name)

        async def copied() -> bool:
            found = await owner.node.redirecting.progress()
            return found is not None and found.copied == 1

        await eventually(copied)
        assert (await owners(owner, other, target))[copy.id] == [owner.name]
        await owner.read(lambda ledger: unclaim(ledger, copy.id, NextHop("inside")))
        ended = await over(owner)
        assert (ended.handed_over, ended.copied, ended.done) == (1, 1, True)


async def test_new_mail_stays_unless_the_node_is_being_drained(tmp_path: Path) -> None:
    async with boundary(tmp_path, "mx1", "mx2") as (owner, target):
        await running(owner, target)
        await sent(owner, MESSAGE)
        (fork,) = await owner.read(lambda ledger: claim(ledger, NextHop("inside"), owner.wall(), 9))
        await owner.node.redirecting.begin(target.name)  # waits for the attempt
        await sent(owner, MESSAGE)
        await owner.read(lambda ledger: unclaim(ledger, fork.copy.id, fork.next_hop))
        ended = await over(owner)
        assert (ended.handed_over, ended.queued, ended.done) == (1, 0, True)
        assert [copy.owned for copy in await owner.copies()] == [False, True]
        owner.node.draining.active = True
        found = await owner.node.redirecting.progress()
        assert found is not None
        assert found.queued == 1
        await owner.node.redirecting.begin(target.name)
        assert (await over(owner)).handed_over == 1


async def test_what_the_members_are_asked_about_first_waits_and_a_stop_says_what_is_left(
    tmp_path: Path,
) -> None:
    async with boundary(tmp_path, "mx1", "mx2") as (owner, target):
        await running(owner, target)
        for _ in range(2):
            await sent(owner, MESSAGE)
        asked, _ = await owner.copies()
        later = replace(asked, confirmation=Confirmation.ASK, confirm_since=None, holders=())
        owner.tasks[1].cancel()  # nobody concludes the question
        await owner.read(lambda ledger: ledger.apply(Decision(None, (SaveCopy(asked, later),))))
        await owner.node.redirecting.begin(target.name)

        async def one_waits() -> bool:
            found = await owner.node.redirecting.progress()
            return found is not None and (found.handed_over, dict(found.left)) == (1, {"asked": 1})

        await eventually(one_waits)
        ended = await owner.node.redirecting.end()
        assert ended is not None
        assert (ended.ended, ended.done, ended.queued, ended.handed_over) == (STOPPED, False, 1, 1)
        assert not owner.node.redirecting.running


async def test_a_member_that_refuses_one_message_gets_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its reply is told; the redirect ends with what is left."""
    async with boundary(tmp_path, "mx1", "mx2") as (owner, target):
        addresses = dict(owner.node.members.addresses)
        owner.node.members.addresses[target.name] = replace(addresses[target.name], port=1)  # type: ignore[index]
        for _ in range(3):
            await sent(owner, MESSAGE)  # exposed
        owner.knows(target)
        await running(owner, target)
        revoked = (await owner.copies())[-1].id
        grave = Tombstone(revoked, owner.name, 1, 99, owner.wall().replace(year=2099))
        await target.read(lambda ledger: ledger.apply(Decision(None, (grave,))))
        (fork, *others) = await owner.read(lambda ledger: claim(ledger, NextHop("inside"), owner.wall(), 9))
        for one in others:
            await owner.read(lambda ledger, one=one: unclaim(ledger, one.copy.id, one.next_hop))  # type: ignore[misc]
        assert fork.copy.id != revoked
        looks, offers = [], []
        find, offer = redirect.to_redirect, owner.node.members.offer
        monkeypatch.setattr(redirect, "to_redirect", lambda *given: (looks.append(given), find(*given))[1])
        monkeypatch.setattr(
            owner.node.members, "offer", lambda *given: (offers.append(given), offer(*given))[1]
        )
        await owner.node.redirecting.begin(target.name)
        await eventually(lambda: len(looks) > 9)
        await owner.read(lambda ledger: unclaim(ledger, fork.copy.id, fork.next_hop))
        ended = await over(owner)
        assert len(offers) == 3
        assert (ended.handed_over, ended.copied, dict(ended.left)) == (2, 2, {"refused": 1})
        assert ended.reply[:1] in "45"
        assert not ended.done


@pytest.mark.parametrize(
    ("whom", "why"),
    [
        ("mx1", "is this node"),
        ("mx9", "is not a member here; the members are: mx2.example.org"),
        ("mx2 retired", "was retired"),
        ("mx2 away", "cannot be reached"),
        ("mx2 full", "takes no mail now: mail is put off"),
        ("mx2 drained", "takes no mail now: the node is being drained"),
    ],
)
async def test_a_member_that_cannot_take_the_queue_is_refused_with_the_reason(
    tmp_path: Path, whom: str, why: str
) -> None:
    name, _, how = whom.partition(" ")
    async with AsyncExitStack() as stack:
        owner, target = await stack.enter_async_context(boundary(tmp_path, "mx1", "mx2"))
        await running(owner, target)
        if how == "retired":
            known = await owner.read(lambda ledger: ledger.member(target.name))
            assert known is not None
            retired = replace(known, retired=True)
            await owner.read(lambda ledger: ledger.apply(Decision(None, (retired,))))
        elif how == "away":
            await target.quiet()
            await target.connectors[0].stop(0)
            await eventually(lambda: target.name not in owner.node.boundary.reachable())
        elif how == "full":
            target.node.room.minimum = 1 << 62
        elif how == "drained":
            target.node.draining.active = True
        with pytest.raises(RedirectRefused, match=why):
            await owner.node.redirecting.begin(ServerName(f"{name}.example.org"))
        assert await owner.node.redirecting.progress() is None


async def test_a_member_on_our_own_machine_is_taken_with_a_warning_and_the_message_counts_as_exposed(
    tmp_path: Path,
) -> None:
    hosts = {"mx1": "rack1", "mx3": "rack1"}
    async with boundary(tmp_path, "mx1", "mx2", "mx3", hosts=hosts) as (owner, other, target):
        await running(owner, other, target)
        await sent(owner, MESSAGE)
        assert not await target.copies()
        begun = await owner.node.redirecting.begin(target.name)
        assert begun is not None
        assert "on this machine" in begun.warning
        ended = await over(owner)
        assert (ended.done, ended.copied) == (True, 1)
        (copy,) = await target.copies()
        assert copy.owned

        target.run_repair()

        async def second_copy_elsewhere() -> bool:
            (found,) = await target.copies()
            return [one.name for one in found.holders if one.state is HolderState.HOLDING] == [other.name]

        await eventually(second_copy_elsewhere)


async def test_a_second_redirect_to_another_member_is_refused_and_to_the_same_changes_nothing(
    tmp_path: Path,
) -> None:
    async with boundary(tmp_path, "mx1", "mx2", "mx3") as (owner, other, target):
        await running(owner, other, target)
        await sent(owner, MESSAGE)
        await owner.read(lambda ledger: claim(ledger, NextHop("inside"), owner.wall(), 9))
        begun = await owner.node.redirecting.begin(target.name)
        again = await owner.node.redirecting.begin(target.name)
        assert begun is not None
        assert again is not None
        assert begun.began_at == again.began_at
        with pytest.raises(RedirectRefused, match="stop that first"):
            await owner.node.redirecting.begin(other.name)
        await owner.node.redirecting.end()


async def test_a_member_that_goes_away_meanwhile_ends_it_and_the_rest_stays_ours(tmp_path: Path) -> None:
    async with boundary(tmp_path, "mx1", "mx2") as (owner, target):
        await running(owner, target)
        await sent(owner, MESSAGE)
        (fork,) = await owner.read(lambda ledger: claim(ledger, NextHop("inside"), owner.wall(), 9))
        await owner.node.redirecting.begin(target.name)
        await target.quiet()
        await target.connectors[0].stop(0)
        ended = await over(owner)
        assert "cannot be reached" in ended.ended
        assert (ended.queued, ended.handed_over) == (1, 0)
        assert (await owners(owner))[fork.copy.id] == [owner.name]
