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
from shadowrelay.database.ledger import SqlLedger

HOLDS = Holder(OTHER, OTHER_DATABASE, None, 1, HolderState.HOLDING)


def held() -> Copy:
    return replace(message(), holders=(HOLDS,), ranks_given=1)


def states(*wanted: Copy) -> Callable[[SqlLedger], list[HolderState]]:
    """Of the first holder of each."""

    def work(ledger: SqlLedger) -> list[HolderState]:
        return [copy.holders[0].state for one in wanted if (copy := ledger.copy(one.id))]

    return work


def lost(ledger: SqlLedger) -> list[str]:
    """Lose the holder; the statements that this ran."""
    ran: list[str] = []
    ledger.connection.set_trace_callback(ran.append)
    rest = lose_holder(ledger, OTHER)
    ledger.connection.set_trace_callback(None)
    assert rest is None
    return ran


async def test_a_heartbeat_that_fails_again_reads_no_message_while_no_copy_counts(tmp_path: Path) -> None:
    async with database(tmp_path) as found:
        first, second = held(), held()
        await found.transact(save(first))
        assert await found.transact(lost)
        assert not await found.transact(lost)
        await found.transact(save(second))  # its 250 came behind the first failure
        assert await found.transact(lost)
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
        await again.transact(lost)
        assert await again.transact(states(second)) == [HolderState.LOST]


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
