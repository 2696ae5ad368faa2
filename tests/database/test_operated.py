"""What operators do to messages, on a real database: what is due, and what is told, to whom and how long."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from opened import NOW, OTHER, OTHER_DATABASE, SECOND, database, incarnation, message, save

from shadowrelay.core.decisions import Decision, DropEvents, Member, Verdict, VerdictKind
from shadowrelay.core.delivery import operated, retry
from shadowrelay.core.delivery.operated import Done
from shadowrelay.core.delivery.settling import Report
from shadowrelay.core.events.reports import ReportKind, report_id
from shadowrelay.core.identifiers import Beginning, Lineage, Mark, MessageId, NextHop, RequestId
from shadowrelay.core.messages import FOREVER, Confirmation, Copy, Holder, HolderState, Stage, Status
from shadowrelay.core.operating import By
from shadowrelay.core.ownership.set_aside import set_aside
from shadowrelay.core.policy import Policy
from shadowrelay.core.reception.holding import order_held
from shadowrelay.core.reception.redundancy import Leg, OfferAttempt, repaired, reserve_rank
from shadowrelay.core.reckoning import Endings
from shadowrelay.database.ledger import SqlLedger
from shadowrelay.database.queue import (
    FRONT,
    claim,
    claim_late,
    due_hops,
    forget_expired,
    sent_to,
)
from shadowrelay.database.summed import SumRound
from shadowrelay.database.transport import TransportDatabase

INSIDE, OUTSIDE = NextHop("inside"), NextHop("outside")
BY = By("ann", "a broken queue; see the log", RequestId("01900000-0000-7000-9000-000000000001"))
LATER = NOW + timedelta(days=30)
Do = Callable[[SqlLedger], Decision[Done]]


def held(*hops: str) -> Copy:
    """A message of which another member may hold a copy."""
    return message(*hops).with_holder(Holder(OTHER, OTHER_DATABASE, None, 1, HolderState.HOLDING))


async def do(found: TransportDatabase, what: Do) -> Done:
    return await found.transact(lambda ledger: ledger.apply(what(ledger)))


async def told(found: TransportDatabase) -> list[Verdict]:
    events = await found.transact(lambda ledger: ledger.events_for(OTHER_DATABASE, 99))
    return [event.verdict for event in events]


async def pending(found: TransportDatabase, message_id: MessageId) -> list[str]:
    return list(await found.transact(lambda ledger: operated.pending(ledger, message_id)))


async def due(found: TransportDatabase, hop: NextHop = INSIDE, now: datetime = NOW) -> list[int]:
    claims = await found.transact(lambda ledger: claim(ledger, hop, now, 9))
    return [one.number for fork in claims for one in fork.recipients]


async def test_a_removed_message_is_settled_told_and_pending_until_it_is_acknowledged(
    tmp_path: Path,
) -> None:
    async with database(tmp_path) as found:
        copy = held("inside", "outside")
        await found.transact(save(copy))
        done = await do(found, lambda ledger: operated.remove(ledger, copy.id, None, BY, NOW))
        assert (done.numbers, done.waiting) == ((1, 2), ())
        stored = await found.transact(lambda ledger: ledger.read_again(copy.id))
        assert stored is not None
        assert stored.stage is Stage.SAFETY_NET
        assert {one.status for one in stored.recipients} == {Status.REMOVED}
        (verdict,) = await told(found)
        assert (verdict.kind, verdict.argument, verdict.recipients) == (VerdictKind.DELIVERED, "removed", ())
        assert await pending(found, copy.id) == [OTHER_DATABASE]
        assert await due(found) == []
        await found.transact(lambda ledger: ledger.apply(Decision(None, (DropEvents(OTHER_DATABASE),))))
        assert await pending(found, copy.id) == []


@pytest.mark.parametrize("change", ["addressee = 'another'", "epoch = 9", "recipients = '7'"])
async def test_an_order_of_which_the_row_is_damaged_is_pending_until_a_scrub_has_it_said_again(
    tmp_path: Path, change: str
) -> None:
    async with database(tmp_path) as found:
        copy = held("inside", "outside")
        await found.transact(save(copy))
        await do(found, lambda ledger: operated.suspend(ledger, copy.id, None, BY, NOW))
        (before,) = await told(found)
        await found.transact(lambda ledger: ledger.connection.execute(f"UPDATE discard_event SET {change}"))
        assert await pending(found, copy.id) == [OTHER_DATABASE]
        scrub = SumRound()
        while not scrub.done:
            await found.transact(lambda ledger: scrub.part(ledger, 100, NOW))
        assert before in await told(found)
        assert await pending(found, copy.id) == [OTHER_DATABASE]
        await found.transact(lambda ledger: ledger.apply(Decision(None, (DropEvents(OTHER_DATABASE),))))
        assert await pending(found, copy.id) == []


async def test_recipients_that_an_attempt_has_in_hand_are_left(tmp_path: Path) -> None:
    async with database(tmp_path) as found:
        copy = held("inside", "outside", "inside")
        await found.transact(save(copy))
        assert await due(found) == [1, 3]
        for verb in (operated.remove, operated.bounce):
            done = await do(
                found,
                lambda ledger, verb=verb: verb(  # type: ignore[misc]
                    ledger, copy.id, (1, 3), BY, NOW, sending=sent_to(ledger, copy.id)
                ),
            )
            assert (done.numbers, done.waiting) == ((), (1, 3))
        done = await do(
            found,
            lambda ledger: operated.remove(ledger, copy.id, None, BY, NOW, sending=sent_to(ledger, copy.id)),
        )
        assert (done.numbers, done.waiting) == ((2,), (1, 3))
        assert [one.recipients for one in await told(found)] == [(2,)]


async def test_what_is_suspended_is_not_due_before_its_end_and_its_age_counts_from_then(
    tmp_path: Path,
) -> None:
    policy = Policy()
    async with database(tmp_path) as found:
        copy = held("inside", "outside")
        await found.transact(save(copy))
        await do(found, lambda ledger: operated.suspend(ledger, copy.id, (1,), BY, NOW, until=LATER))
        await do(found, lambda ledger: operated.suspend(ledger, copy.id, (2,), BY, NOW))
        assert [(one.argument, one.recipients) for one in await told(found)] == [
            (str(int(LATER.timestamp() * 1000)), (1,)),
            ("", (2,)),
        ]
        assert await due(found) == await due(found, OUTSIDE, LATER) == []
        at = NOW + timedelta(days=9)
        for hop in (INSIDE, OUTSIDE):
            late = lambda ledger, hop=hop: claim_late(ledger, hop, at, at, at, FRONT)  # noqa: E731
            assert (await found.transact(late))[0] == []
        assert await found.transact(due_hops) == [(INSIDE, LATER)]
        late = lambda ledger: claim_late(ledger, INSIDE, LATER, LATER - SECOND, LATER - SECOND, FRONT)  # noqa: E731
        assert (await found.transact(late))[0] == []
        (fork,) = await found.transact(lambda ledger: claim(ledger, INSIDE, LATER, 9))
        since = retry.since(fork.copy, fork.recipients)
        assert since == LATER
        assert not retry.expired(since, LATER, policy)


async def test_a_resumed_message_is_due_and_its_age_begins_anew(tmp_path: Path) -> None:
    async with database(tmp_path) as found:
        copy = held("inside")
        copy = copy.with_recipients([replace(copy.recipients[0], next_attempt=LATER)])
        await found.transact(save(copy))
        await do(found, lambda ledger: operated.suspend(ledger, copy.id, None, BY, NOW))
        assert await pending(found, copy.id) == [OTHER_DATABASE]
        done = await do(found, lambda ledger: operated.resume(ledger, copy.id, None, BY, NOW + SECOND))
        assert done.copy is not None
        assert done.copy.received_at == NOW + SECOND
        assert await due(found, now=NOW + SECOND) == [1]
        assert [one.kind for one in await told(found)] == [VerdictKind.SUSPENDED, VerdictKind.RESUMED]


async def test_of_two_orders_the_one_that_was_given_last_counts(tmp_path: Path) -> None:
    async with database(tmp_path) as found:
        copy = held("inside")
        await found.transact(save(copy))
        await do(found, lambda ledger: operated.suspend(ledger, copy.id, None, BY, NOW))
        late = await do(
            found,
            lambda ledger: operated.resume(ledger, copy.id, None, BY, NOW + SECOND, ordered_at=NOW - SECOND),
        )
        assert late.numbers == ()
        assert await due(found, now=NOW + SECOND) == []
        for at, until in ((-1, None), (2, None), (1, FOREVER)):
            kind = VerdictKind.SUSPENDED if until else VerdictKind.RESUMED
            verdict = Verdict(copy.id, 1, kind, "", (), NOW + at * SECOND)

            def heard(ledger: SqlLedger, verdict: Verdict = verdict) -> None:
                known = ledger.copy(copy.id)
                assert known is not None
                ledger.apply(order_held(ledger, known, verdict, OTHER_DATABASE, NOW + 3 * SECOND))

            await found.transact(heard)
        assert await due(found, now=NOW + 4 * SECOND) == [1]


async def test_an_order_of_today_counts_even_if_the_clock_before_was_ahead(tmp_path: Path) -> None:
    async with database(tmp_path) as found:
        copy = held("inside")
        await found.transact(save(copy))
        await do(found, lambda ledger: operated.suspend(ledger, copy.id, None, BY, LATER))
        await do(found, lambda ledger: operated.resume(ledger, copy.id, None, BY, NOW))
        assert await due(found) == [1]


async def test_only_what_tells_of_orders_waits_for_a_member_however_long_it_is_away(tmp_path: Path) -> None:
    async with database(tmp_path) as found:
        copies = [held("inside") for _ in range(3)]
        for copy in copies:
            await found.transact(save(copy))
        await do(found, lambda ledger: operated.remove(ledger, copies[0].id, None, BY, NOW))
        await do(found, lambda ledger: operated.suspend(ledger, copies[1].id, None, BY, NOW))
        await do(found, lambda ledger: operated.bounce(ledger, copies[2].id, None, BY, NOW))
        await found.transact(lambda ledger: forget_expired(ledger, LATER, Endings(LATER)))
        assert [one.message_id for one in await told(found)] == [copies[0].id, copies[1].id]


async def test_a_message_that_is_set_aside_can_be_removed_and_resumed(tmp_path: Path) -> None:
    async with database(tmp_path) as found:
        first, second = held("inside"), held("inside")
        for copy in (first, second):
            await found.transact(save(copy))
            await found.transact(lambda ledger, copy=copy: ledger.apply(set_aside(copy, NOW)))  # type: ignore[misc]
        removed = await do(found, lambda ledger: operated.remove(ledger, first.id, None, BY, NOW))
        resumed = await do(found, lambda ledger: operated.resume(ledger, second.id, None, BY, NOW))
        assert (removed.numbers, resumed.numbers) == ((1,), (1,))
        assert resumed.copy is not None
        assert resumed.copy.confirmation is Confirmation.ASK, "its holders are asked first"
        assert await due(found) == []


async def test_rows_say_who_did_it_and_why_for_each_next_hop(tmp_path: Path) -> None:
    async with database(tmp_path) as found:
        copy = held("inside", "outside", "inside")
        await found.transact(save(copy))
        await do(found, lambda ledger: operated.suspend(ledger, copy.id, None, BY, NOW))
        await do(found, lambda ledger: operated.resume(ledger, copy.id, None, BY, NOW))
        await do(found, lambda ledger: operated.retry(ledger, copy.id, None, BY, NOW))
        await do(found, lambda ledger: operated.bounce(ledger, copy.id, (1,), BY, NOW))
        await do(found, lambda ledger: operated.remove(ledger, copy.id, None, BY, NOW))
        rows = await found.transact(
            lambda ledger: ledger.connection.execute(
                "SELECT columns FROM outbox ORDER BY sequence"
            ).fetchall()
        )
        mine = [columns for (columns,) in rows if '"ADMIN"' in columns]
        kinds = ["SUSPEND", "SUSPEND", "RESUME", "RESUME", "RETRY", "RETRY", "FAIL", "REMOVE"]
        assert len(mine) == len(kinds)
        signed = f"S:Operator=ann;S:Reason=a broken queue\\\\x3b see the log;S:Job={BY.job}"
        for columns, kind in zip(mine, kinds, strict=True):
            assert f'"event-id":"{kind}"' in columns
            assert signed in columns
            assert "S:Fork=" in columns


async def test_a_holder_whose_offer_was_under_way_is_told_of_the_order_once_it_has_the_copy(
    tmp_path: Path,
) -> None:
    async with database(tmp_path) as found:
        copy = message("inside")
        opening = incarnation(7)
        member = Member(OTHER, Lineage(OTHER_DATABASE, (Beginning(opening, 0),), 5))
        await found.transact(save(copy))
        await found.transact(lambda ledger: ledger.apply(Decision(None, (member,))))
        await found.transact(lambda ledger: ledger.apply(reserve_rank(ledger, copy.id, OTHER)))
        await do(found, lambda ledger: operated.suspend(ledger, copy.id, None, BY, NOW))
        await found.transact(lambda ledger: ledger.apply(Decision(None, (DropEvents(OTHER_DATABASE),))))
        attempt = OfferAttempt(OTHER, Leg.ACKNOWLEDGED, 1, "250", OTHER_DATABASE, Mark(opening, 5))
        assert await found.transact(
            lambda ledger: ledger.apply(repaired(ledger, copy.id, attempt, NOW + SECOND))
        )
        assert [one.kind for one in await told(found)] == [VerdictKind.SUSPENDED]
        assert await pending(found, copy.id) == [OTHER_DATABASE]


async def test_a_removal_whose_report_is_not_safe_yet_is_pending_before_anybody_is_told(
    tmp_path: Path,
) -> None:
    async with database(tmp_path) as found:
        copy = replace(held("inside"), offered_in=found.lineage.incarnation)
        await found.transact(save(copy))
        report = Report(
            id=report_id(copy.id, 1, ReportKind.FAILED), about=1, content=b"removed", next_hop=OUTSIDE
        )
        await do(found, lambda ledger: operated.remove(ledger, copy.id, None, BY, NOW, reports=(report,)))
        assert await told(found) == []
        assert await pending(found, copy.id) == [OTHER_DATABASE]
        assert await due(found, OUTSIDE) == [1]  # the report
