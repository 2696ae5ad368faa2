"""An index decides nothing alone: on a running node, what a damaged one hides is found again."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from random import Random

import pytest
from damaging import QUICK
from scripted_hop import ScriptedHop
from sending import MESSAGE, sent
from settled import settled
from stations import Station, boundary, eventually, full

from shadowrelay.core.decisions import Decision, SaveCopy
from shadowrelay.core.delivery import operated
from shadowrelay.core.identifiers import MessageId, NextHop, RequestId
from shadowrelay.core.members.damage import Counted
from shadowrelay.core.operating import By
from shadowrelay.core.requests import Request, Selector
from shadowrelay.core.safety_net import requesting
from shadowrelay.core.values import replace
from shadowrelay.database import indexes, queue, scrubbing, views
from shadowrelay.database.content import sweep
from shadowrelay.database.ledger import SqlLedger
from shadowrelay.database.offline import IndexWay, spoil_tree
from shadowrelay.database.queue_views import Queues
from shadowrelay.database.transport import DatabaseFailed

DUE, SETTLED = queue.DUE, indexes.SETTLED
PAGE = 4096
POINTERS = 2  # the page that says which page leads to which
NO_ENTRY = b"\x0a\0\0\0\0\x10\0\0"  # the head of a page of an index
MANY = 100  # messages: then their index has several pages
REQUEST = RequestId("01900000-0000-7000-9000-000000000001")


async def root(on: Station, name: str) -> int:
    """The first page of an index, once the log is in the file."""
    await on.database.touch(datetime.now(UTC))
    asked = "SELECT rootpage FROM sqlite_schema WHERE name = ?"
    found: int = await on.read(lambda ledger: ledger.connection.execute(asked, (name,)).fetchone()[0])
    return found


async def put_page(on: Station, page: int, octets: bytes) -> None:
    """The disk has these octets as a page; the open database reads it again."""
    with on.database.file.open("r+b") as disk:
        disk.seek((page - 1) * PAGE)
        disk.write(octets)
    await on.read(scrubbing.forget_cached)


async def spoil(on: Station, name: str, way: IndexWay, seed: int = 1) -> None:
    """What a disk makes of an index of an open database, which then reads it again."""
    assert spoil_tree(on.database.file, await root(on, name), way, Random(seed))
    await on.read(scrubbing.forget_cached)


async def claimable(on: Station) -> int:
    def work(ledger: SqlLedger) -> int:
        found = queue.claim(ledger, NextHop("inside"), datetime.now(UTC), 100)
        for one in found:
            queue.unclaim(ledger, one.copy.id, one.next_hop)
        return len(found)

    return await on.read(work)


async def test_mail_that_a_damaged_index_hides_is_found_again_and_delivered(
    tmp_path: Path,
) -> None:
    async with ScriptedHop() as hop:
        route = {"domains": ["*"], "host": "127.0.0.1", "port": hop.port, "tls": "none"}
        async with boundary(tmp_path, "mx1", routes={"inside": route}, **QUICK) as (node,):
            for _ in range(MANY):
                assert (await sent(node, MESSAGE)).startswith("250 ")
            await spoil(node, DUE, IndexWay.DOUBLE)
            assert await claimable(node) < MANY
            node.node.indexes.rest = 0.0
            node.run(node.node.indexes.run())
            node.run_queue()
            await eventually(lambda: len(hop.contents) == MANY, within=30)
            assert node.database.ledger.damage[Counted.INDEX] == 1


async def test_mail_that_a_damaged_index_hides_is_seen_as_unsent(tmp_path: Path) -> None:
    async with boundary(tmp_path, "mx1", **QUICK) as (node,):
        assert (await sent(node, MESSAGE)).startswith("250 ")
        await put_page(node, await root(node, DUE), NO_ENTRY + bytes(PAGE - len(NO_ENTRY)))
        assert await claimable(node) == 0
        view = Queues(datetime.now(UTC))
        assert await node.read(view.read)
        (found,) = view.result()
        assert (found.messages, found.waiting, found.due) == (1, 0, None)
        unsent = await node.read(lambda ledger: views.snapshot(ledger).unsent)
        assert unsent == {found.next_hop: found.unsent}
        assert found.unsent == found.oldest


@pytest.mark.parametrize("together", [False, True], ids=["alone", "with others"])
async def test_an_index_over_which_sqlite_stumbles_is_built_again_and_the_work_goes_on(
    tmp_path: Path, *, together: bool
) -> None:
    async with boundary(tmp_path, "mx1", **QUICK) as (node,):
        ids = [(await sent(node, MESSAGE)).split()[2] for _ in range(3)]
        for index in (DUE, "message_transit"):
            await put_page(node, await root(node, index), NO_ENTRY + bytes(PAGE - len(NO_ENTRY)))
        works = [partial(removed, message_id=MessageId(one)) for one in ids]
        if together:
            assert all(await asyncio.gather(*map(node.database.transact, works)))
        else:
            assert all([await node.database.transact(work) for work in works])
        assert not node.database.failed.is_set()
        assert node.database.ledger.damage[Counted.INDEX] == 1
        assert await claimable(node) == 0
        counted = (await node.read(views.snapshot)).counts
        assert (counted.queued, counted.safety_net) == (0, 3)
        assert (await sent(node, MESSAGE)).startswith("250 ")
        assert await claimable(node) == 1


def removed(ledger: SqlLedger, message_id: MessageId) -> bool:
    by = By("ann", "spam", RequestId("01900000-0000-7000-9000-0000000000aa"))
    done = ledger.apply(operated.remove(ledger, message_id, None, by, datetime.now(UTC)))
    return bool(done.numbers)


async def test_a_file_of_which_the_structure_is_bad_still_ends_the_process(tmp_path: Path) -> None:
    async with boundary(tmp_path, "mx1", **QUICK) as (node,):
        sent_as = (await sent(node, MESSAGE)).split()[2]
        await put_page(node, await root(node, DUE), NO_ENTRY + bytes(PAGE - len(NO_ENTRY)))
        await put_page(node, POINTERS, bytes(PAGE))
        with pytest.raises(DatabaseFailed, match="corrupt"):
            await node.database.transact(partial(removed, message_id=MessageId(sent_as)))
        assert node.database.failed.is_set()


def request() -> Request:
    now = datetime.now(UTC)
    return Request(
        id=REQUEST,
        number=1,
        made_by=full("mx1"),
        made_at=now,
        operator="ann",
        reason="the store is lost",
        selector=Selector(since=now - timedelta(hours=2), until=now),
        changed_by=full("mx1"),
        changed_at=now,
    )


@pytest.mark.parametrize("way", IndexWay)
async def test_a_request_is_not_done_before_it_has_found_what_a_damaged_index_hides(
    tmp_path: Path, way: IndexWay
) -> None:
    async with boundary(tmp_path, "mx1", resubmit_rate=500) as (node,):
        for number in range(1, 61):
            await settled(node, number=number)
        await spoil(node, SETTLED, way)

        def done(ledger: SqlLedger) -> tuple[int, ...]:
            return tuple(one.made for one in ledger.progress(REQUEST) if one.done)

        add = partial(requesting.add, request=request(), policy=node.node.policy, now=datetime.now(UTC))
        found = await node.read(lambda ledger: ledger.apply(add(ledger)))
        assert isinstance(found, Request)
        node.resubmit()
        await eventually(lambda: node.read(done), within=30)
        assert await node.read(done) == (60,)
        assert node.database.ledger.damage[Counted.INDEX] == 1


async def test_a_scrub_compares_every_index_as_the_disk_has_it_and_says_which_it_built_again(
    tmp_path: Path,
) -> None:
    async with boundary(tmp_path, "mx1", scrub_interval="0s") as (node,):
        for number in range(1, MANY + 1):
            await settled(node, number=number)
        for name in (SETTLED, "message_header"):
            await spoil(node, name, IndexWay.DOUBLE)
        scrub = node.node.scrub
        node.run(scrub.run())
        scrub.begin_at_once()
        await eventually(lambda: scrub.last, within=30)
        assert scrub.last
        assert set(scrub.last.rebuilt) == {SETTLED, "message_header"}
        assert scrub.last.damaged == 2
        assert scrub.last.compared > 9 * MANY
        scrub.begin_at_once()
        await eventually(lambda: scrub.last and not scrub.last.rebuilt, within=30)


async def test_a_content_whose_row_no_index_finds_is_not_swept(tmp_path: Path) -> None:
    large = b"Subject: large\r\n\r\n" + (b"y" * 78 + b"\r\n") * 2500
    async with boundary(tmp_path, "mx1") as (node,):
        assert (await sent(node, large)).startswith("250 ")
        await put_page(node, await root(node, "content_file"), NO_ENTRY)
        assert await node.read(lambda ledger: sweep(ledger, node.node.spool)) == 0
        assert len(node.files()) == 1


async def test_an_index_that_says_that_mail_is_due_which_is_not_is_compared_at_once(tmp_path: Path) -> None:
    """Or each look for due mail would find the same ids, for ever: a page that the disk did not write."""
    async with boundary(tmp_path, "mx1") as (node,):
        for _ in range(5):
            assert (await sent(node, MESSAGE)).startswith("250 ")
        assert await claimable(node) == 5
        page = await root(node, DUE)
        former = node.database.file.read_bytes()[(page - 1) * PAGE : page * PAGE]

        def put_off(ledger: SqlLedger) -> None:
            for one in queue.claim(ledger, NextHop("inside"), datetime.now(UTC), 100):
                queue.unclaim(ledger, one.copy.id, one.next_hop)
                later = replace(one.recipients[0], next_attempt=datetime.now(UTC) + timedelta(hours=1))
                ledger.apply(Decision(None, (SaveCopy(one.copy, replace(one.copy, recipients=(later,))),)))

        await node.read(put_off)
        await node.database.touch(datetime.now(UTC))
        await put_page(node, page, former)
        node.run(node.node.indexes.heed())
        assert await claimable(node) == 0
        await eventually(lambda: node.database.ledger.damage[Counted.INDEX] == 1, within=30)
        assert await claimable(node) == 0
        assert not node.database.ledger.doubted
