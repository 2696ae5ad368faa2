"""What is asked again and again costs by what changed, and not by how much is queued."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from opened import NOW, OTHER, OTHER_DATABASE, SECOND, database, message, save, shadow

from shadowrelay.core.decisions import CheckCopies, Decision
from shadowrelay.core.messages import Copy, Holder, HolderState
from shadowrelay.core.ownership.heartbeat import lose_holder
from shadowrelay.core.values import replace
from shadowrelay.database.ledger import SQL, SqlLedger

HOLDS = Holder(OTHER, OTHER_DATABASE, None, 1, HolderState.HOLDING)


def held() -> Copy:
    return replace(message(), holders=(HOLDS,), ranks_given=1)


def states(*wanted: Copy) -> Callable[[SqlLedger], list[HolderState]]:
    """Of the first holder of each."""

    def work(ledger: SqlLedger) -> list[HolderState]:
        return [copy.holders[0].state for one in wanted if (copy := ledger.copy(one.id))]

    return work


def lose(ledger: SqlLedger) -> None:
    assert lose_holder(ledger, OTHER) is None


async def test_a_holder_whose_copies_are_lost_is_known_to_hold_none_until_a_copy_counts_again(
    tmp_path: Path,
) -> None:
    async with database(tmp_path) as found:
        first, second = held(), held()
        await found.transact(save(first))
        assert not found.ledger.tally.holds_none(OTHER)
        await found.transact(lose)
        assert found.ledger.tally.holds_none(OTHER)
        await found.transact(save(second))  # its 250 came behind the first failure
        assert not found.ledger.tally.holds_none(OTHER)
        await found.transact(lose)
        assert await found.transact(states(first, second)) == [HolderState.LOST, HolderState.LOST]


async def test_before_all_are_counted_a_lost_holder_is_looked_for_in_the_whole_queue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone, second = message(), held()
    async with database(tmp_path) as found:
        for copy in (alone, second):
            await found.transact(save(copy))
    monkeypatch.setattr("shadowrelay.database.ledger.AT_ONCE", 1)
    async with database(tmp_path) as again:
        assert again.ledger.chores  # the opening has counted the first of them
        assert not again.ledger.tally.holds_none(OTHER)


async def test_every_copy_is_checked_whenever_its_check_was_planned(tmp_path: Path) -> None:
    planned = (None, NOW - SECOND, NOW + SECOND, None, NOW + 2 * SECOND)
    copies = [shadow(check_at=at) for at in planned]
    async with database(tmp_path) as found:
        for copy in copies:
            await found.transact(save(copy))
        parts = 0
        while await found.transact(lambda ledger: ledger.unchecked(OTHER, NOW)):
            await found.transact(lambda ledger: ledger.apply(Decision(None, (CheckCopies(OTHER, NOW, 1),))))
            parts += 1
            assert parts <= len(copies)
        seen = await found.transact(lambda ledger: [ledger.copy(one.id) for one in copies])
        assert [copy and copy.check_at for copy in seen] == [NOW, NOW - SECOND, NOW, NOW, NOW]


async def test_copies_to_check_are_not_sorted(tmp_path: Path) -> None:
    """After a return of their owner a million have the same time, and a poll asks for sixty."""
    async with database(tmp_path) as found:
        query = f"EXPLAIN QUERY PLAN {SQL['to_check']}"
        rows = await found.transact(
            lambda ledger: ledger.connection.execute(query, (OTHER, 1, 60)).fetchall()
        )
        assert not any("TEMP B-TREE" in row[3] for row in rows), rows
