"""What an operator ordered at the owner holds on every member, also where a copy was promoted meanwhile."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from sending import MESSAGE, sent
from stations import Station, boundary, eventually

from shadowrelay.core.decisions import Decision
from shadowrelay.core.delivery import operated
from shadowrelay.core.delivery.operated import NOBODY, Done
from shadowrelay.core.delivery.settling import AttemptResult, Ending, settle
from shadowrelay.core.identifiers import MessageId, RequestId
from shadowrelay.core.messages import FOREVER, Confirmation, Copy, Reason, Stage, Status
from shadowrelay.core.operating import By
from shadowrelay.core.ownership.heartbeat import take_over
from shadowrelay.core.ownership.transfer import promote, saved
from shadowrelay.database.ledger import SqlLedger
from shadowrelay.database.queue import ActiveFork, claim, sent_to, unclaim
from shadowrelay.members import reconcile, repair
from shadowrelay.operator.retire import retire

BY = By("ann", "it is spam", RequestId("01900000-0000-7000-9000-000000000001"))
Verb = Callable[..., Decision[Done]]


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    for stage in (reconcile, repair):
        monkeypatch.setattr(stage, "INTERVAL", 0.03)


@asynccontextmanager
async def two_copies(
    directory: Path, *names: str, **changes: Any
) -> AsyncIterator[tuple[list[Station], Copy]]:
    """Members, and a message that the first owns and the second holds. Nobody talks to anybody yet."""
    async with boundary(directory, *(names or ("mx1", "mx2")), **changes) as stations:
        assert (await sent(stations[0], MESSAGE)).startswith("250 ")
        (copy,) = await stations[0].copies()
        (holder,) = copy.holders
        first, *others = stations
        found = [first, *sorted(others, key=lambda one: one.name != holder.name)]
        yield found, copy


async def order(one: Station, verb: Verb, copy: Copy) -> Done:
    def work(ledger: SqlLedger) -> Done:
        more = (
            {}
            if verb is operated.suspend or verb is operated.resume
            else {"sending": sent_to(ledger, copy.id)}
        )
        return ledger.apply(verb(ledger, copy.id, None, BY, datetime.now(UTC), **more))

    return await one.read(work)


async def pending(one: Station, message_id: MessageId) -> tuple[str, ...]:
    return await one.read(lambda ledger: operated.pending(ledger, message_id))


def settled(one: Station, copy: Copy) -> Callable[[], Any]:
    async def there() -> bool:
        (here,) = [other for other in await one.copies() if other.id == copy.id]
        return here.stage is Stage.SAFETY_NET and here.recipients[0].status is Status.REMOVED

    return there


def acknowledged(one: Station, copy: Copy) -> Callable[[], Any]:
    async def there() -> bool:
        return not await pending(one, copy.id)

    return there


async def taken_over(holder: Station, owner: Station) -> None:
    """The holder promotes its copy, though its owner is well: it could not reach it."""
    now = datetime.now(UTC)
    await holder.read(lambda ledger: take_over(ledger, owner.name, Reason.HEARTBEAT_LOST, now))

    def promoted(ledger: SqlLedger) -> None:
        (row,) = ledger.connection.execute("SELECT id FROM message").fetchall()
        copy = ledger.copy(row[0])
        assert copy is not None
        ledger.apply(promote(ledger, copy, now))

    await holder.read(promoted)


async def test_a_removal_is_pending_until_the_holder_has_heard_of_it(tmp_path: Path) -> None:
    async with two_copies(tmp_path) as ((owner, holder), copy):
        assert (await order(owner, operated.remove, copy)).numbers == (1,)
        assert await pending(owner, copy.id) == (holder.database.lineage.database_id,)
        holder.run_links()
        await eventually(settled(holder, copy))
        await eventually(acknowledged(owner, copy))
        assert (await holder.events())[-1] == "HADISCARD"


async def test_a_holder_that_promoted_its_copy_hears_of_the_removal_and_delivers_nothing(
    tmp_path: Path,
) -> None:
    async with two_copies(tmp_path) as ((owner, holder), copy):
        await order(owner, operated.remove, copy)
        await taken_over(holder, owner)
        assert await pending(owner, copy.id) != ()
        holder.run_links()
        await eventually(settled(holder, copy))
        await eventually(acknowledged(owner, copy))
        assert not {"SEND", "SENDEXTERNAL", "DELIVER"} & {*await owner.events(), *await holder.events()}


async def test_a_copy_that_is_promoted_stays_suspended_until_an_operator_resumes_it(tmp_path: Path) -> None:
    async with two_copies(tmp_path) as ((owner, holder), copy):
        await order(owner, operated.suspend, copy)
        assert await pending(owner, copy.id) == (holder.database.lineage.database_id,)
        await taken_over(holder, owner)
        holder.run_links()

        async def suspended() -> bool:
            return (await holder.copies())[0].recipients[0].suspended == FOREVER

        await eventually(suspended)
        await eventually(acknowledged(owner, copy))
        (here,) = await holder.copies()
        assert here.owned
        waiting = "SELECT count(*) FROM recipient WHERE due_at IS NOT NULL"
        assert (await holder.read(lambda ledger: ledger.connection.execute(waiting).fetchone()))[0] == 0
        await order(holder, operated.resume, copy)
        assert (await holder.copies())[0].recipients[0].suspended is None


async def test_a_copy_that_is_made_later_is_suspended_too(tmp_path: Path) -> None:
    async with two_copies(tmp_path, "mx1", "mx2", "mx3") as ((owner, holder, third), copy):
        await order(owner, operated.suspend, copy)
        await holder.quiet()
        for connector in holder.connectors:
            await connector.stop(0)
        await owner.read(lambda ledger: ledger.apply(retire_of(ledger, holder)))
        owner.run_repair()

        async def copied() -> bool:
            return bool(await third.copies())

        await eventually(copied)
        (made,) = await third.copies()
        (original,) = await owner.copies()
        ordered = original.recipients[0]
        assert (made.recipients[0].suspended, made.recipients[0].ordered_at) == (FOREVER, ordered.ordered_at)


def retire_of(ledger: SqlLedger, gone: Station) -> Decision[None]:
    retire(ledger, gone.name, datetime.now(UTC))
    return Decision(None)


async def test_a_member_that_is_retired_counts_as_having_acknowledged(tmp_path: Path) -> None:
    async with two_copies(tmp_path) as ((owner, holder), copy):
        await order(owner, operated.remove, copy)
        assert await pending(owner, copy.id) != ()
        await owner.read(lambda ledger: ledger.apply(retire_of(ledger, holder)))
        assert await pending(owner, copy.id) == ()


async def test_a_claim_that_has_not_begun_does_not_begin_once_the_message_is_suspended(
    tmp_path: Path,
) -> None:
    async with two_copies(tmp_path) as ((owner, _), copy):
        hop = copy.recipients[0].next_hop
        (fork,) = await owner.read(lambda ledger: claim(ledger, hop, datetime.now(UTC), 9))
        assert await owner.node.queue._still_ours(fork)
        assert (await order(owner, operated.suspend, copy)).numbers == (1,)
        assert not await owner.node.queue._still_ours(fork)
        await order(owner, operated.resume, copy)
        assert await owner.node.queue._still_ours(replace(fork))


async def test_the_owner_from_which_the_message_was_taken_over_has_to_hear_of_a_removal_too(
    tmp_path: Path,
) -> None:
    async with two_copies(tmp_path) as ((owner, holder), copy):
        await taken_over(holder, owner)
        assert (await order(holder, operated.remove, copy)).numbers == (1,)
        assert await pending(holder, copy.id) == (owner.database.lineage.database_id,)
        owner.run_links()
        await eventually(settled(owner, copy))
        await eventually(acknowledged(holder, copy))


async def test_a_member_that_was_retired_before_is_not_waited_for(tmp_path: Path) -> None:
    async with two_copies(tmp_path) as ((owner, holder), copy):
        await owner.read(lambda ledger: ledger.apply(retire_of(ledger, holder)))
        assert (await order(owner, operated.remove, copy)).numbers == (1,)
        assert await pending(owner, copy.id) == ()


async def under_way(holder: Station, owner: Station, copy: Copy) -> ActiveFork:
    """The holder has promoted its copy, waited for answers in vain, and is sending it in doubt."""
    await taken_over(holder, owner)
    hop = copy.recipients[0].next_hop

    def doubted(ledger: SqlLedger) -> None:
        mine = ledger.copy(copy.id)
        assert mine is not None
        ledger.apply(saved(mine, replace(mine, confirmation=Confirmation.IN_DOUBT)))

    await holder.read(doubted)
    (fork,) = await holder.read(lambda ledger: claim(ledger, hop, datetime.now(UTC), 9))
    return fork


async def polled(holder: Station, owner: Station, times: int = 3) -> None:
    """The holder has asked its member so often from now on."""
    link = holder.node.links[owner.name]
    for _ in range(times):
        before = link.contact_at

        async def again(before: datetime | None = before) -> bool:
            return link.contact_at != before

        link.nudge()
        await eventually(again)


async def ended(holder: Station, fork: ActiveFork, *, accepted: bool) -> None:
    """The attempt ends as it does in the queue: what came of it is written down first."""
    copy, hop = fork.copy, fork.next_hop
    if accepted:
        result = AttemptResult(copy.recipients[0].number, Ending.ACCEPTED, "250 2.0.0 Taken")
        await holder.read(
            lambda ledger: ledger.apply(
                settle(ledger, copy.id, [result], (), NOBODY, datetime.now(UTC), sent=copy)
            )
        )
    await holder.read(lambda ledger: unclaim(ledger, copy.id, hop))


async def test_a_removal_is_not_acknowledged_while_an_attempt_is_under_way_and_applied_when_it_failed(
    tmp_path: Path,
) -> None:
    async with two_copies(tmp_path) as ((owner, holder), copy):
        await order(owner, operated.remove, copy)
        fork = await under_way(holder, owner, copy)
        holder.run_links()
        await polled(holder, owner)
        assert await pending(owner, copy.id) == (holder.database.lineage.database_id,)
        assert (await holder.copies())[0].unsettled
        await ended(holder, fork, accepted=False)
        await eventually(settled(holder, copy))
        await eventually(acknowledged(owner, copy))


async def test_what_an_attempt_delivered_before_the_removal_was_acknowledged_stays_delivered(
    tmp_path: Path,
) -> None:
    async with two_copies(tmp_path) as ((owner, holder), copy):
        await order(owner, operated.remove, copy)
        fork = await under_way(holder, owner, copy)
        holder.run_links()
        await polled(holder, owner)
        assert await pending(owner, copy.id) != ()
        await ended(holder, fork, accepted=True)
        await eventually(acknowledged(owner, copy))
        (here,) = await holder.copies()
        assert [one.status for one in here.recipients] == [Status.RELAYED]
        assert "HADISCARD" not in await holder.events()


async def test_a_suspension_is_not_acknowledged_while_an_attempt_is_under_way(tmp_path: Path) -> None:
    async with two_copies(tmp_path) as ((owner, holder), copy):
        await order(owner, operated.suspend, copy)
        fork = await under_way(holder, owner, copy)
        holder.run_links()
        await polled(holder, owner)
        assert await pending(owner, copy.id) != ()
        assert (await holder.copies())[0].recipients[0].suspended is None
        await ended(holder, fork, accepted=False)
        await eventually(acknowledged(owner, copy))
        assert (await holder.copies())[0].recipients[0].suspended == FOREVER


async def test_what_became_of_other_messages_does_not_wait_for_the_attempt(tmp_path: Path) -> None:
    async with two_copies(tmp_path) as ((owner, holder), copy):
        await order(owner, operated.remove, copy)
        fork = await under_way(holder, owner, copy)
        assert (await sent(owner, MESSAGE)).startswith("250 ")
        (other,) = [one for one in await owner.copies() if one.id != copy.id]
        await order(owner, operated.remove, other)
        holder.run_links()
        await eventually(settled(holder, other))
        assert await pending(owner, copy.id) != ()
        assert await pending(owner, other.id) != ()  # what comes later is acknowledged later
        await ended(holder, fork, accepted=False)
        await eventually(acknowledged(owner, copy))
        await eventually(acknowledged(owner, other))


async def test_an_answer_that_tells_of_a_removal_during_an_attempt_leaves_the_question_open(
    tmp_path: Path,
) -> None:
    async with two_copies(tmp_path) as ((owner, holder), copy):
        await order(owner, operated.remove, copy)
        fork = await under_way(holder, owner, copy)
        holder.run_links()
        await polled(holder, owner)
        assert (await holder.copies())[0].unsettled
        assert holder.node.inquiry.has_questions(holder.database.ledger, owner.name)
        await ended(holder, fork, accepted=False)
        await eventually(settled(holder, copy))
