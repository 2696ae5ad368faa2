"""The scrub: damage is found before the message is needed, in whatever state that is."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import pytest
from damaging import from_before_sums
from sending import sent
from stations import Station, boundary, eventually

from shadowrelay.core.decisions import Decision, DropCopy, SaveCopy
from shadowrelay.core.identifiers import MessageId
from shadowrelay.core.messages import Damage, HolderState, Status
from shadowrelay.core.ownership.transfer import settled_now
from shadowrelay.core.values import replace
from shadowrelay.database import scrubbing
from shadowrelay.database.ledger import SqlLedger
from shadowrelay.database.queue import due_hops, exposed
from shadowrelay.members.scrub import Scrub

SMALL = b"Subject: small\r\n\r\nbody\r\n"
LARGE = b"Subject: large\r\n\r\n" + (b"y" * 78 + b"\r\n") * 2500


@asynccontextmanager
async def two(tmp_path: Path, *contents: bytes) -> AsyncIterator[tuple[Station, Station, list[MessageId]]]:
    """An owner and a holder with those messages; nothing is sent."""
    async with boundary(tmp_path, "mx1", "mx2", scrub_interval="0s") as (owner, holder):
        for content in contents:
            assert (await sent(owner, content)).startswith("250 ")

        async def recorded() -> bool:
            return len(await owner.copies()) == len(contents)

        await eventually(recorded)
        yield owner, holder, [copy.id for copy in await owner.copies()]


async def scrubbed(on: Station) -> Scrub:
    """A whole round, at once."""
    scrub = on.node.scrub
    before = scrub.last
    on.run(scrub.run())
    scrub.begin_at_once()
    await eventually(lambda: scrub.last is not before)
    return scrub


def scrub_of(on: Station, interval: timedelta) -> Scrub:
    """One that takes that long for a round."""
    node = on.node
    return Scrub(node.examiner, node.inquiry, node.boundary.reachable, interval, on.clock, node.indexes)


async def run(on: Station, statement: str, *values: object) -> None:
    def work(ledger: SqlLedger) -> None:
        ledger.connection.execute(statement, values)
        ledger.forget_recent()

    await on.read(work)


def file_of(on: Station, message_id: MessageId) -> Path:
    (name,) = [name for name in on.files() if name.startswith(message_id)]
    return on.node.spool / name


async def test_what_is_sound_is_only_read(tmp_path: Path) -> None:
    async with two(tmp_path, SMALL, LARGE) as (owner, holder, _):
        for node in (owner, holder):
            events = await node.events()
            last = (await scrubbed(node)).last
            assert last
            assert (last.done.messages, last.damaged, last.mended, last.unreadable) == (2, 0, 0, 0)
            assert last.done == last.of
            assert last.done.octets > len(LARGE)
            assert await node.events() == events


async def test_damaged_contents_of_queue_shadow_copies_and_safety_net_are_found(tmp_path: Path) -> None:
    async with two(tmp_path, LARGE, SMALL) as (owner, holder, (large, small)):
        file_of(holder, large).write_bytes(b"short")
        await run(owner, "UPDATE content SET data = zeroblob(length(data)) WHERE message_id = ?", small)
        await run(holder, "UPDATE content SET data = zeroblob(length(data)) WHERE message_id = ?", small)

        def settle(ledger: SqlLedger) -> None:
            copy = ledger.copy(small)
            assert copy
            sent_on = copy.with_recipients(replace(one, status=Status.DELIVERED) for one in copy.recipients)
            after = settled_now(sent_on, copy.received_at)
            ledger.apply(Decision(None, (SaveCopy(copy, after),)))

        await holder.read(settle)
        for node, bad in ((owner, {small}), (holder, {large, small})):
            scrub = await scrubbed(node)
            assert scrub.last
            assert scrub.last.contents == scrub.last.damaged == len(bad)
            assert {copy.id for copy in await node.copies() if copy.damage is Damage.CONTENT} == bad


async def test_rows_that_nobody_else_would_read_are_found(tmp_path: Path) -> None:
    """A stage that there is not: no query of a queue ever finds the message."""
    async with two(tmp_path, SMALL, SMALL) as (owner, _, (one, _)):
        await run(owner, "UPDATE message SET stage = 'sayety_net' WHERE id = ?", one)
        scrub = await scrubbed(owner)
        assert scrub.last
        assert (scrub.last.rows, scrub.last.damaged) == (1, 1)
        owner.run_mend()

        async def quarantined() -> bool:
            return await owner.read(lambda ledger: ledger.damaged(one)) is not None

        await eventually(quarantined)


async def test_a_derived_column_is_what_it_has_to_be_afterwards(tmp_path: Path) -> None:
    async with two(tmp_path, SMALL, SMALL) as (owner, _, (_, other)):
        await run(owner, "UPDATE recipient SET due_at = NULL")
        await run(owner, "UPDATE message SET exposed = 1 WHERE id = ?", other)
        assert await owner.read(due_hops) == []
        scrub = await scrubbed(owner)
        assert scrub.last
        assert (scrub.last.damaged, scrub.last.mended) == (0, 2)
        assert [hop for hop, _ in await owner.read(due_hops)] == ["inside"]
        assert await owner.read(lambda ledger: exposed(ledger, MessageId(""), 9)) == []
        assert {copy.holders[0].state for copy in await owner.copies()} == {HolderState.HOLDING}


async def test_rows_of_a_version_before_sums_and_digests_have_them_afterwards(tmp_path: Path) -> None:
    async with two(tmp_path, SMALL, LARGE) as (owner, _, _):
        await owner.read(from_before_sums)
        scrub = await scrubbed(owner)
        assert scrub.last
        assert scrub.last.damaged == 0
        for copy in await owner.copies():
            assert copy.digests
            assert copy.digests.late
        assert not owner.database.ledger.has_old_rows
        for table in ("message", "recipient", "holder"):
            assert await owner.rows(f"{table} WHERE row_sum IS NULL") == 0


async def test_where_nothing_is_kept_there_is_nothing_to_hurry_for(tmp_path: Path) -> None:
    async with two(tmp_path) as (owner, _, _):
        scrub = owner.node.scrub = scrub_of(owner, timedelta(days=1))
        owner.run(scrub.run())
        await eventually(lambda: scrub.now.began_at is not None)
        await asyncio.sleep(0.2)
        assert (scrub.now.number, scrub.last) == (1, None)
        assert scrub.begin_at_once() == 2
        await eventually(lambda: scrub.last is not None)
        assert scrub.last
        assert scrub.last.number == 2


async def test_with_no_interval_nothing_is_read_until_it_is_asked_for(tmp_path: Path) -> None:
    async with two(tmp_path, SMALL) as (owner, _, _):
        owner.run(owner.node.scrub.run())
        await asyncio.sleep(0.2)
        assert owner.node.scrub.now.began_at is None
        owner.node.scrub.begin_at_once()
        await eventually(lambda: owner.node.scrub.last is not None)


async def test_a_round_rests_between_messages_and_is_replaced_by_one_at_once(tmp_path: Path) -> None:
    async with two(tmp_path, SMALL, SMALL) as (owner, _, _):
        scrub = owner.node.scrub = scrub_of(owner, timedelta(days=1))
        owner.run(scrub.run())
        await eventually(lambda: scrub.now.done.messages == 1)
        await asyncio.sleep(0.2)
        assert (scrub.now.done.messages, scrub.now.at_once) == (1, False)
        scrub.begin_at_once()
        await eventually(lambda: scrub.last is not None)
        assert scrub.last
        assert (scrub.last.at_once, scrub.last.done.messages) == (True, 2)


async def test_a_node_that_has_nothing_rests_as_long_as_any_other(tmp_path: Path) -> None:
    async with two(tmp_path) as (owner, _, _):
        scrub = owner.node.scrub = scrub_of(owner, timedelta(days=1))
        owner.run(scrub.run())
        await eventually(lambda: scrub.now.began_at is not None)
        commits = owner.database.commits
        await asyncio.sleep(0.3)
        assert scrub.last is None
        assert owner.database.commits <= commits + 2
        scrub.begin_at_once()
        await eventually(lambda: scrub.last is not None)


async def test_nobody_waits_for_it_any_more_and_it_goes_on_slowly(tmp_path: Path) -> None:
    async with two(tmp_path, SMALL, SMALL) as (owner, _, _):
        scrub = owner.node.scrub = scrub_of(owner, timedelta(days=1))
        scrub.begin_at_once()
        owner.run(scrub.run())
        while not scrub.now.at_once:  # noqa: ASYNC110
            await asyncio.sleep(0)
        scrub.go_on_slowly()
        await asyncio.sleep(0.3)
        assert scrub.last is None
        assert scrub.now.done.messages < 2


async def test_after_a_restart_it_goes_on_where_it_was(tmp_path: Path) -> None:
    async with two(tmp_path, SMALL, SMALL, SMALL) as (owner, _, ids):
        place = scrubbing.ScrubPlace(behind=sorted(ids)[1])
        await owner.read(lambda ledger: scrubbing.note(ledger, place))
        scrub = owner.node.scrub = scrub_of(owner, timedelta(seconds=1))
        owner.run(scrub.run())
        await eventually(lambda: scrub.last is not None)
        assert scrub.last
        assert scrub.last.done.messages == 3
        assert (await owner.read(scrubbing.place)).behind == ""


@pytest.mark.parametrize("spoil", [lambda path: path.unlink(), lambda path: path.write_bytes(b"")])
async def test_a_file_that_is_gone_or_empty_is_damaged(
    tmp_path: Path, spoil: Callable[[Path], object]
) -> None:
    async with two(tmp_path, LARGE) as (owner, _, (large,)):
        spoil(file_of(owner, large))
        last = (await scrubbed(owner)).last
        assert last
        assert last.contents == 1


async def forgets(on: Station, message_id: MessageId) -> None:
    """As a page from before the message would have it."""

    def work(ledger: SqlLedger) -> None:
        copy = ledger.copy(message_id)
        assert copy
        ledger.apply(Decision(None, (DropCopy(copy),)))

    await on.read(work)


async def test_a_copy_that_its_holder_has_forgotten_is_made_again(tmp_path: Path) -> None:
    async with two(tmp_path, SMALL) as (owner, holder, (message_id,)):
        await forgets(holder, message_id)
        for node in (owner, holder):
            node.run_links()
        owner.run_repair()
        owner.run_reconcile()
        await scrubbed(owner)

        async def there_again() -> bool:
            return [copy.id for copy in await holder.copies()] == [message_id]

        await eventually(there_again)


async def test_a_message_that_its_owner_has_forgotten_is_promoted_by_its_holder(tmp_path: Path) -> None:
    async with two(tmp_path, SMALL) as (owner, holder, (message_id,)):
        for node in (owner, holder):
            node.run_links()
        await forgets(owner, message_id)
        holder.run_reconcile()
        await scrubbed(holder)

        async def promoted() -> bool:
            return [copy.owned for copy in await holder.copies()] == [True]

        await eventually(promoted)
