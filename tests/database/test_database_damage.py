"""Rows that cannot be believed: only who looks for damage finds them, and nothing of them is deleted."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from opened import NOW, database, message, save

from shadowrelay.core.decisions import DamagedRow
from shadowrelay.core.identifiers import MessageId, NextHop
from shadowrelay.core.members.damage import found_rows
from shadowrelay.core.messages import Confirmation, Status
from shadowrelay.core.tracking_row import Taken
from shadowrelay.database.ledger import SqlLedger
from shadowrelay.database.outbox import Outbox
from shadowrelay.database.queue import claim, damaged_messages, due_hops
from shadowrelay.database.snapshot import take_snapshot


def flip(ledger: SqlLedger, message_id: MessageId) -> None:
    """One bit of the first recipient's address, on the disk."""
    ledger.connection.execute(
        "UPDATE recipient SET address = 'q' || substr(address, 2) WHERE message_id = ? AND number = 1",
        (message_id,),
    )
    ledger.forget_recent()


async def test_what_cannot_be_believed_is_no_copy_to_any_decision(tmp_path: Path) -> None:
    async with database(tmp_path) as found:
        copy = message("a", "b")
        await found.transact(save(copy))
        await found.transact(lambda ledger: flip(ledger, copy.id))
        assert await found.transact(lambda ledger: ledger.copy(copy.id)) is None
        rows = await found.transact(lambda ledger: ledger.damaged(copy.id))
        assert rows is not None
        assert (rows.message_id, rows.what) == (copy.id, "the sum of a row differs")


async def test_what_sound_rows_say_is_settled_is_known(tmp_path: Path) -> None:
    async with database(tmp_path) as found:
        copy = message("a", "b")
        half = copy.with_recipients([replace(copy.recipients[1], status=Status.RELAYED)])
        await found.transact(save(half))
        await found.transact(lambda ledger: flip(ledger, copy.id))
        await found.transact(lambda ledger: ledger.copy(copy.id))
        rows = await found.transact(lambda ledger: ledger.damaged(copy.id))
        assert rows is not None
        assert rows.settled == ((2, Status.RELAYED),)


async def test_rows_that_cannot_be_believed_are_never_due(tmp_path: Path) -> None:
    async with database(tmp_path) as found:
        copy, other = message("a"), message("a")
        await found.transact(save(copy))
        await found.transact(save(other))
        await found.transact(lambda ledger: flip(ledger, copy.id))
        rows = DamagedRow(copy.id, NOW, "the sum of a row differs")
        await found.transact(lambda ledger: ledger.apply(found_rows(rows)))
        assert await found.transact(lambda ledger: damaged_messages(ledger, MessageId(""), 9)) == [copy.id]
        due = await found.transact(lambda ledger: claim(ledger, NextHop("a"), NOW, 1))  # nothing hinders it
        assert [claimed.copy.id for claimed in due] == [other.id]
        kept = await found.transact(
            lambda ledger: ledger.connection.execute(
                "SELECT count(*) FROM recipient WHERE message_id = ?", (copy.id,)
            ).fetchone()
        )
        assert kept == (1,)


@pytest.mark.parametrize(
    "change",
    [
        "next_hop = CAST(x'61ff' AS TEXT)",
        "next_hop = x'61'",
        "due_at = 1 << 62",
        "due_at = 'soon'",
    ],
)
async def test_what_says_that_a_message_is_due_may_be_damaged_as_well(tmp_path: Path, change: str) -> None:
    """Neither does that end the look at the queue, nor is a message forgotten by it."""
    async with database(tmp_path) as found:
        copy, other = message("a"), message("b")
        await found.transact(save(copy))
        await found.transact(save(other))

        def spoil(ledger: SqlLedger) -> None:
            ledger.connection.execute(f"UPDATE recipient SET {change} WHERE message_id = ?", (copy.id,))
            ledger.forget_recent()

        await found.transact(spoil)
        first = await found.transact(due_hops)
        assert ("b", NOW) in first
        again = await found.transact(due_hops)
        if "due_at" in change:  # it is derived, and written again
            assert again == [("a", NOW), ("b", NOW)]
        else:
            assert again == [("b", NOW)]
            assert copy.id in found.ledger.suspects


async def test_what_is_not_to_be_sent_is_not_sent_because_a_column_says_so(tmp_path: Path) -> None:
    async with database(tmp_path) as found:
        asking = message("a", confirmation=Confirmation.ASK)
        await found.transact(save(asking))

        def spoil(ledger: SqlLedger) -> None:
            ledger.connection.execute("UPDATE recipient SET due_at = 1")

        await found.transact(spoil)
        assert await found.transact(lambda ledger: claim(ledger, NextHop("a"), NOW, 9)) == []
        assert await found.transact(due_hops) == []


@pytest.mark.parametrize("taken", list(Taken))
async def test_the_last_snapshot_names_what_nobody_comes_to_write_down_any_more(
    tmp_path: Path, taken: Taken
) -> None:
    """Or the log would say of a message that it is nowhere, and that is here."""
    async with database(tmp_path) as found:
        copy = message("a")
        await found.transact(save(copy))
        await Outbox(found).forget(99)
        await found.transact(lambda ledger: flip(ledger, copy.id))
        await found.transact(lambda ledger: take_snapshot(ledger, "snap", NOW, taken))
        rows = [row.columns for row in await Outbox(found).rows_after(0, 99)]
    told = [row["network-message-id"] for row in rows if row["event-id"] == "HADAMAGE"]
    assert told == ([copy.id] if taken is Taken.STOP else [])
    assert "S:Count=0" in rows[-1]["custom-data"]
