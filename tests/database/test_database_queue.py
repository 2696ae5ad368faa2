"""What the stages take out of the database: claims in due order, and what may not be sent yet."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from opened import NOW, OTHER, OTHER_DATABASE, SECOND, database, message, save, shadow

from shadowrelay.core.decisions import (
    DamagedRow,
    Decision,
    DiscardEvent,
    Outcome,
    Tombstone,
    Verdict,
    VerdictKind,
)
from shadowrelay.core.identifiers import FIRST, MessageId, NextHop
from shadowrelay.core.members.damage import found_rows
from shadowrelay.core.messages import Confirmation, Copy, Holder, HolderState, Stage, Status
from shadowrelay.core.reckoning import Endings
from shadowrelay.database.ledger import SqlLedger
from shadowrelay.database.queue import (
    FRONT,
    QueuePlace,
    claim,
    claim_late,
    due_hops,
    exposed,
    forget_expired,
    held_since_before,
    settled_before,
    unclaim,
)
from shadowrelay.database.transport import TransportDatabase

INSIDE, OUTSIDE = NextHop("inside"), NextHop("outside")


async def claimed(found: TransportDatabase, hop: NextHop = INSIDE, most: int = 10) -> list[str]:
    return [one.copy.id for one in await found.transact(lambda ledger: claim(ledger, hop, NOW, most))]


def without_copy(ledger: SqlLedger) -> list[MessageId]:
    return exposed(ledger, MessageId(""), 99)


def due_at(copy: Copy, seconds: int) -> Copy:
    return copy.with_recipients(
        replace(recipient, next_attempt=NOW + seconds * SECOND) for recipient in copy.recipients
    )


async def test_a_fork_is_claimed_once_until_it_is_given_back(tmp_path: Path) -> None:
    async with database(tmp_path) as found:
        copy = message("inside", "outside", "inside")
        await found.transact(save(copy))
        (fork,) = await found.transact(lambda ledger: claim(ledger, INSIDE, NOW, 10))
        assert (fork.copy, fork.next_hop, fork.content.data) == (copy, INSIDE, b"hello")
        assert [recipient.number for recipient in fork.recipients] == [1, 3]
        assert await claimed(found) == []
        assert await claimed(found, OUTSIDE) == [copy.id]  # the other fork is on its own
        await found.transact(lambda ledger: unclaim(ledger, copy.id, INSIDE))
        assert await claimed(found) == [copy.id]


async def test_claims_end_with_the_process(tmp_path: Path) -> None:
    copy = message()
    async with database(tmp_path) as found:
        await found.transact(save(copy))
        await claimed(found)
    async with database(tmp_path) as found:
        now = await found.transact(lambda ledger: ledger.copy(copy.id))
        await found.transact(
            save(replace(now, confirmation=Confirmation.NONE, confirm_since=None), before=now)
        )
        assert await claimed(found) == [copy.id]


@pytest.mark.parametrize("key", ["", "CAST(message_id AS BLOB)"], ids=["no row", "a key of another kind"])
async def test_mail_goes_on_behind_recipients_of_a_message_that_is_not_there(
    tmp_path: Path, key: str
) -> None:
    """As if a bit of a key had flipped, and nothing were found by it any more."""
    first, second = due_at(message(), -2), due_at(message(), -1)

    def unfindable(ledger: SqlLedger) -> None:
        run = ledger.connection.execute
        run("DELETE FROM message WHERE id = ?", (first.id,))
        if key:
            run(f"UPDATE recipient SET message_id = {key} WHERE message_id = ?", (first.id,))
        ledger.forget_recent()

    async with database(tmp_path) as found:
        for copy in (first, second):
            await found.transact(save(copy))
        await found.transact(unfindable)
        assert await claimed(found, most=1) == []
        for message_id, what in tuple(found.ledger.suspects.items()):
            decision = found_rows(DamagedRow(message_id, NOW, what))
            await found.transact(lambda ledger, decision=decision: ledger.apply(decision))
        assert await claimed(found, most=1) == [second.id]
        seen = await found.transact(lambda ledger: ledger.damaged(first.id))
    assert (seen is None) is bool(key)


async def test_what_is_due_first_leaves_first(tmp_path: Path) -> None:
    async with database(tmp_path) as found:
        last, first, middle = (due_at(message(), seconds) for seconds in (-1, -30, -10))
        for copy in (last, first, middle, due_at(message(), 1)):
            await found.transact(save(copy))
        assert await claimed(found, most=1) == [first.id]
        assert await claimed(found) == [middle.id, last.id]


async def test_only_recipients_whose_time_has_come_are_claimed(tmp_path: Path) -> None:
    async with database(tmp_path) as found:
        copy = message("inside", "inside", "inside")
        first, second, third = copy.recipients
        copy = copy.with_recipients(
            [
                replace(first, status=Status.DELIVERED),
                replace(second, next_attempt=NOW + SECOND),
                replace(third, next_attempt=NOW - SECOND),
            ]
        )
        await found.transact(save(copy))
        (fork,) = await found.transact(lambda ledger: claim(ledger, INSIDE, NOW, 10))
        assert [recipient.number for recipient in fork.recipients] == [3]


@pytest.mark.parametrize(
    "copy",
    [
        shadow(),
        message(confirmation=Confirmation.ASK),
        message(stage=Stage.SAFETY_NET),
        message(stage=Stage.SET_ASIDE),
    ],
    ids=["held for another member", "asking", "settled", "set aside"],
)
async def test_some_messages_are_never_due(tmp_path: Path, copy: Copy) -> None:
    async with database(tmp_path) as found:
        await found.transact(save(copy))
        assert await found.transact(due_hops) == []
        assert await claimed(found) == []


async def test_a_message_is_due_again_once_its_question_is_answered(tmp_path: Path) -> None:
    async with database(tmp_path) as found:
        asking = message(confirmation=Confirmation.ASK)
        await found.transact(save(asking))
        await found.transact(save(replace(asking, confirmation=Confirmation.IN_DOUBT), before=asking))
        assert await claimed(found) == [asking.id]


async def test_every_next_hop_with_mail_is_listed_with_its_first_due_time(tmp_path: Path) -> None:
    async with database(tmp_path) as found:
        for copy in (due_at(message("a"), 50), due_at(message("c", "a"), 20), message("b"), shadow("d")):
            await found.transact(save(copy))
        assert await found.transact(due_hops) == [
            ("a", NOW + 20 * SECOND),
            ("b", NOW),
            ("c", NOW + 20 * SECOND),
        ]


async def test_messages_without_a_second_copy_are_found(tmp_path: Path) -> None:
    def held(state: HolderState) -> Copy:
        return message(holders=(Holder(OTHER, OTHER_DATABASE, None, 1, state),))

    async with database(tmp_path) as found:
        bare, lost, uncertain = message(), held(HolderState.LOST), held(HolderState.UNCERTAIN)
        safe = held(HolderState.HOLDING)
        for copy in (bare, lost, uncertain, safe, shadow(), message(stage=Stage.SAFETY_NET)):
            await found.transact(save(copy))
        assert await found.transact(without_copy) == [bare.id, lost.id, uncertain.id]
        assert await found.transact(lambda ledger: exposed(ledger, bare.id, 1)) == [lost.id]
        # The loss of a holder, and its return, show in the same transaction.
        gone = held(HolderState.LOST)
        await found.transact(save(replace(safe, holders=gone.holders), before=safe))
        assert safe.id in await found.transact(without_copy)


async def test_what_was_kept_long_enough_is_found(tmp_path: Path) -> None:
    async with database(tmp_path) as found:
        old = message(stage=Stage.SAFETY_NET, settled_at=NOW - 10 * SECOND)
        young = message(stage=Stage.SAFETY_NET, settled_at=NOW)
        older = message(stage=Stage.SAFETY_NET, settled_at=NOW - 11 * SECOND)
        waits = replace(older, recipients=tuple(replace(one, report=old.id) for one in older.recipients))
        forgotten, held = shadow(received_at=NOW - 10 * SECOND), shadow()
        for copy in (old, young, waits, forgotten, held):
            await found.transact(save(copy))
        before = NOW - 5 * SECOND
        assert await found.transact(lambda ledger: list(settled_before(ledger, before, 1))) == [old]
        assert await found.transact(lambda ledger: held_since_before(ledger, before, FIRST, 9)) == (
            [forgotten],
            FIRST,
        )
        first = min(forgotten.id, held.id)
        _, place = await found.transact(lambda ledger: held_since_before(ledger, before, FIRST, 1))
        assert place == first  # the next look goes on behind it


async def test_what_need_not_be_remembered_is_forgotten_but_not_a_takeover(tmp_path: Path) -> None:
    async with database(tmp_path) as found:
        copy = message()
        kinds = (VerdictKind.DELIVERED, VerdictKind.TAKEN, VerdictKind.SUPERSEDED)
        writes = [DiscardEvent(OTHER_DATABASE, Verdict(copy.id, 1, kind), NOW) for kind in kinds]
        writes += [DiscardEvent(OTHER_DATABASE, Verdict(copy.id, 2, VerdictKind.DELIVERED), NOW + 2 * SECOND)]
        ids = [message().id for _ in range(4)]
        graves = [Tombstone(ids[0], OTHER, 1, 1, NOW), Tombstone(ids[1], OTHER, 1, 1, NOW + 5 * SECOND)]
        outcomes = [Outcome(ids[2], 1, (), NOW), Outcome(ids[3], 1, (), NOW + 5 * SECOND)]
        await found.transact(lambda ledger: ledger.apply(Decision(None, (*writes, *graves, *outcomes))))
        await found.transact(lambda ledger: forget_expired(ledger, NOW + SECOND, Endings(NOW + SECOND)))
        events = await found.transact(lambda ledger: ledger.events_for(OTHER_DATABASE, 9))
        assert [(event.verdict.kind, event.verdict.epoch) for event in events] == [
            (VerdictKind.TAKEN, 1),
            (VerdictKind.DELIVERED, 2),
        ]
        graves_left = await found.transact(lambda ledger: [ledger.tombstone(one) for one in ids[:2]])
        outcomes_left = await found.transact(lambda ledger: [ledger.outcome(one) for one in ids[2:]])
        assert [bool(one) for one in graves_left + outcomes_left] == [False, True, False, True]


async def test_late_mail_is_looked_for_part_by_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shadowrelay.database.queue.LATE_LOOK", 3)
    async with database(tmp_path) as found:
        copies = [message() for _ in range(7)]
        copies[4] = replace(copies[4], received_at=NOW - 9 * SECOND)
        for number, copy in enumerate(copies):
            await found.transact(save(due_at(copy, number - 7)))
        here: QueuePlace = FRONT

        async def look(delayed: int, expired: int) -> list[str]:
            nonlocal here
            times = (NOW, NOW - delayed * SECOND, NOW - expired * SECOND)
            claims, here = await found.transact(lambda ledger: claim_late(ledger, INSIDE, *times, here))
            return [one.copy.id for one in claims]

        assert await look(8, 20) == []
        assert await look(8, 20) == [copies[4].id]
        assert await look(8, 20) == []  # the last two
        assert here == FRONT
        assert [await look(8, 20) for _ in range(3)] == [[], [], []]  # it is claimed already
        await found.transact(lambda ledger: unclaim(ledger, copies[4].id, INSIDE))
        told = found.ledger.copy(copies[4].id)
        assert told is not None
        await found.transact(
            save(told.with_recipients([replace(told.recipients[0], delay_notified=True)]), before=told)
        )
        assert [await look(8, 20) for _ in range(3)] == [[], [], []]  # its sender was told
        assert [await look(8, 9) for _ in range(3)] == [[], [copies[4].id], []]
