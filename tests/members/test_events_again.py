"""A damaged discard event tells nobody anything wrong: what is known of its message is told instead."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from sending import sent
from stations import Station, boundary, eventually

from shadowrelay.core.decisions import Decision, SaveCopy
from shadowrelay.core.events.discard_notices import announced
from shadowrelay.core.identifiers import MessageId
from shadowrelay.core.messages import Copy, Status
from shadowrelay.core.values import replace
from shadowrelay.database.ledger import SqlLedger

SMALL = b"Subject: small\r\n\r\nbody\r\n"
TO = tuple(f"user{number}@example.net" for number in range(1, 6))


def deliver(message_id: MessageId, *numbers: int) -> Any:
    """These recipients are delivered, and the holder is to be told."""

    def work(ledger: SqlLedger) -> None:
        copy, now = ledger.copy(message_id), datetime.now(UTC)
        assert copy
        done = [replace(copy.recipients[n - 1], status=Status.DELIVERED, settled_at=now) for n in numbers]
        after = copy.with_recipients(done)
        ledger.apply(Decision(None, (SaveCopy(copy, after), *announced(ledger, after, done, now))))

    return work


@asynccontextmanager
async def half_delivered(tmp_path: Path) -> AsyncIterator[tuple[Station, Station, MessageId]]:
    """An owner that has delivered to the first recipient, and a holder that has not heard of it."""
    async with boundary(tmp_path, "mx1", "mx2", orphan_check_interval="60s") as (owner, holder):
        assert (await sent(owner, SMALL, *TO)).startswith("250 ")
        await eventually(lambda: recorded(owner))
        (copy,) = await owner.copies()
        await owner.read(deliver(copy.id, 1))
        yield owner, holder, copy.id


async def recorded(owner: Station) -> bool:
    return len(await owner.copies()) == 1


async def spoil(on: Station, statement: str, *values: object) -> None:
    assert await on.read(lambda ledger: ledger.connection.execute(statement, values).rowcount) == 1


async def settled(on: Station) -> set[int]:
    copies: list[Copy] = await on.copies()
    return {one.number for copy in copies for one in copy.recipients if one.settled}


DAMAGES = {
    "another recipient": "recipients = '3'",
    "all recipients": "recipients = ''",
    "an earlier epoch": "epoch = 0",
    "another kind": "kind = 'rejected'",
    "another outcome": "argument = 'failed'",
    "another time": "settled_at = settled_at + 4096",
    "no kind at all": "kind = 'delivere'",
    "numbers that are none": "recipients = '1,x'",
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
async def test_the_holder_of_a_damaged_event_learns_what_was_delivered_and_nothing_else(
    tmp_path: Path, damage: str
) -> None:
    async with half_delivered(tmp_path) as (owner, holder, _):
        await spoil(owner, f"UPDATE discard_event SET {damage}")
        holder.run_links()

        async def told() -> set[int]:
            return await settled(holder)

        await eventually(told)
        assert await settled(holder) == {1}
        (copy,) = await holder.copies()
        assert {one.status for one in copy.recipients if one.settled} == {Status.DELIVERED}


async def test_a_damaged_event_about_a_message_that_nobody_knows_is_told_to_nobody(tmp_path: Path) -> None:
    async with half_delivered(tmp_path) as (owner, holder, message_id):
        await spoil(owner, "UPDATE discard_event SET message_id = '01890000-0000-7000-8000-000000000000'")
        holder.run_links()

        async def gone() -> bool:
            return await owner.rows("discard_event") == 0

        await eventually(gone)
        assert await settled(holder) == set()
        await owner.read(deliver(message_id, 2))

        async def told() -> set[int]:
            return await settled(holder)

        await eventually(told)
        assert await settled(holder) == {2}


async def test_an_event_of_a_version_before_sums_is_told_as_it_is(tmp_path: Path) -> None:
    async with half_delivered(tmp_path) as (owner, holder, _):
        await spoil(owner, "UPDATE discard_event SET row_sum = NULL")
        holder.run_links()

        async def told() -> set[int]:
            return await settled(holder)

        await eventually(told)
        assert await settled(holder) == {1}


@pytest.mark.parametrize("damage", ["addressee = 'nobody'", "recipients = '3'"])
async def test_a_scrub_finds_a_damaged_event_whoever_it_is_for(tmp_path: Path, damage: str) -> None:
    """Nobody asks for the events of a database that there is not."""
    async with half_delivered(tmp_path) as (owner, holder, _):
        await spoil(owner, f"UPDATE discard_event SET {damage}")
        scrub = owner.node.scrub
        owner.run(scrub.run())
        scrub.begin_at_once()
        await eventually(lambda: scrub.last)
        assert scrub.last
        assert scrub.last.rows == 1
        events = await owner.read(lambda ledger: ledger.events_for(holder.database.lineage.database_id, 9))
        assert [one.verdict.recipients for one in events] == [(1,)]
        assert await owner.rows("discard_event") == 1
