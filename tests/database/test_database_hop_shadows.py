"""Rows of shadow queues of hops: they last, damaged ones are not believed, and none of them costs others."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pytest
from damaging import unclean
from opened import NOW, SECOND, database, message, save
from test_database_salvage import leaves, overwrite

from shadowrelay.core.decisions import (
    ALL,
    Content,
    Decision,
    DropCopy,
    DropDamaged,
    DropHopShadow,
    HopShadow,
    Part,
    SaveCopy,
)
from shadowrelay.core.delivery.hop_shadows import Tracker, given_up, taken
from shadowrelay.core.events.discard import remembered_for
from shadowrelay.core.hops import Handed, HopPeer
from shadowrelay.core.identifiers import DatabaseId, Incarnation, Mark, NextHop, ServerName
from shadowrelay.core.messages import Copy, Recipient, Stage, Status
from shadowrelay.core.policy import Policy
from shadowrelay.database.opening import FILE
from shadowrelay.database.queue import settled_before
from shadowrelay.database.transport import TransportDatabase

EDGE = ServerName("edge.example.net")
HUB = ServerName("hub.example.net")
MARK = Mark(Incarnation("e" * 16), 12)
KEPT = HopShadow(
    message().id, EDGE, DatabaseId("6f0d7a3e-0000-4000-8000-0000000000e1"), MARK, (1, 2, 3, 7), NOW
)


async def test_rows_last_and_are_counted_by_hop(tmp_path: Path) -> None:
    more = [replace(KEPT, message_id=message().id), replace(KEPT, hop=HUB)]
    async with database(tmp_path) as found:
        await found.transact(lambda ledger: ledger.apply(Decision(None, (KEPT, *more))))
        changed = replace(KEPT, recipients=(2,))
        await found.transact(lambda ledger: ledger.apply(Decision(None, (changed,))))
        assert dict(found.ledger.hop_shadow_rows.counts) == {EDGE: 2, HUB: 1}
    async with database(tmp_path) as found:
        assert dict(found.ledger.hop_shadow_rows.counts) == {EDGE: 2, HUB: 1}
        assert await found.transact(lambda ledger: ledger.hop_shadow(KEPT.message_id, EDGE)) == changed
        assert len(await found.transact(lambda ledger: ledger.hop_shadows_of(KEPT.message_id))) == 2
        gone = Decision(None, (DropHopShadow(KEPT.message_id, EDGE), DropHopShadow(KEPT.message_id, EDGE)))
        await found.transact(lambda ledger: ledger.apply(gone))
        assert dict(found.ledger.hop_shadow_rows.counts) == {EDGE: 1, HUB: 1}


async def test_what_is_rolled_back_was_never_counted(tmp_path: Path) -> None:
    async with database(tmp_path) as found:

        def fail(ledger: object) -> None:
            found.ledger.apply(Decision(None, (KEPT,)))
            raise ValueError("no")

        with pytest.raises(ValueError, match="no"):
            await found.transact(fail)
        assert not found.ledger.hop_shadow_rows.counts
        assert await found.transact(lambda ledger: ledger.hop_shadow(KEPT.message_id, EDGE)) is None


async def test_a_shadow_queue_is_read_part_by_part(tmp_path: Path) -> None:
    rows = sorted((replace(KEPT, message_id=message().id) for _ in range(5)), key=lambda row: row.message_id)
    async with database(tmp_path) as found:
        await found.transact(lambda ledger: ledger.apply(Decision(None, (*rows, replace(KEPT, hop=HUB)))))
        first, rest = await found.transact(lambda ledger: ledger.hop_shadows(EDGE, Part(most=3)))
        assert rest
        second, end = await found.transact(lambda ledger: ledger.hop_shadows(EDGE, rest))
        assert [*first, *second] == rows
        assert end is None
        assert (await found.transact(lambda ledger: ledger.hop_shadows(EDGE, ALL)))[0] == rows
        old = await found.transact(lambda ledger: ledger.hop_shadow_rows.since_before(NOW - SECOND, 9))
        assert old == []


async def test_a_message_that_is_dropped_takes_its_rows_along(tmp_path: Path) -> None:
    copy = message()
    async with database(tmp_path) as found:
        await found.transact(save(copy))
        await found.transact(
            lambda ledger: ledger.apply(Decision(None, (replace(KEPT, message_id=copy.id),)))
        )
        await found.transact(lambda ledger: ledger.apply(Decision(None, (DropCopy(copy),))))
        assert not found.ledger.hop_shadow_rows.counts


async def test_a_message_that_is_saved_anew_in_place_of_damaged_rows_keeps_them(tmp_path: Path) -> None:
    copy = message()
    handed = Handed(copy.id, HUB, KEPT.database_id, copy.id, (1,))
    async with database(tmp_path) as found:
        await found.transact(save(copy))
        await found.transact(
            lambda ledger: ledger.apply(Decision(None, (replace(KEPT, message_id=copy.id), handed)))
        )
        anew = DropDamaged(copy.id, instead=copy), SaveCopy(None, copy, Content(data=b"x"))
        await found.transact(lambda ledger: ledger.apply(Decision(None, anew)))
        assert dict(found.ledger.hop_shadow_rows.counts) == {EDGE: 1}
        assert await found.transact(lambda ledger: ledger.handed(copy.id)) == handed
        await found.transact(lambda ledger: ledger.apply(Decision(None, (DropDamaged(copy.id),))))
        assert not found.ledger.hop_shadow_rows.counts
        assert await found.transact(lambda ledger: ledger.handed(copy.id)) is None


async def test_a_row_that_differs_from_its_sum_is_not_believed(tmp_path: Path) -> None:
    async with database(tmp_path) as found:
        await found.transact(lambda ledger: ledger.apply(Decision(None, (KEPT,))))
        change = "UPDATE hop_shadow SET told = replace(told, '1-3', '1-2')"
        assert await found.transact(lambda ledger: ledger.connection.execute(change).rowcount) == 1
        assert await found.transact(lambda ledger: ledger.hop_shadow(KEPT.message_id, EDGE)) is None
        assert await found.transact(lambda ledger: ledger.hop_shadows_of(KEPT.message_id)) == []


async def with_damaged_row(found: TransportDatabase, *relayed: int) -> Copy:
    """A message in Safety Net with recipients that were relayed. The hop's row of it cannot be believed."""
    plain = message()
    recipients = tuple(
        Recipient(number, f"{number}@example.net", NextHop("h"), status=Status.RELAYED) for number in relayed
    )
    copy = replace(plain, recipients=recipients, stage=Stage.SAFETY_NET, settled_at=NOW)
    await found.transact(save(copy))
    row = replace(KEPT, message_id=copy.id, recipients=relayed)
    await found.transact(lambda ledger: ledger.apply(Decision(None, (row,))))
    change = "UPDATE hop_shadow SET row_sum = row_sum + 1"
    await found.transact(lambda ledger: ledger.connection.execute(change))
    return copy


async def test_a_row_that_is_not_believed_goes_by_age_and_its_message_with_it(tmp_path: Path) -> None:
    policy = Policy()
    async with database(tmp_path) as found:
        copy = await with_damaged_row(found, 1, 2)

        def give_up(now: datetime) -> bool:
            return found.ledger.apply(given_up(found.ledger, copy.id, policy, now))

        old = NOW + remembered_for(policy)
        assert not await found.transact(lambda _: give_up(old - SECOND))
        assert dict(found.ledger.hop_shadow_rows.counts) == {EDGE: 1}
        assert await found.transact(lambda _: give_up(old))
        assert not found.ledger.hop_shadow_rows.counts
        assert not await found.transact(lambda _: give_up(old))  # or the sweep would never end
        (left,) = await found.transact(lambda ledger: list(settled_before(ledger, old, 9, None)))
        assert left.id == copy.id


async def test_what_joins_a_row_that_is_not_believed_takes_every_relayed_recipient_along(
    tmp_path: Path,
) -> None:
    async with database(tmp_path) as found:
        copy = await with_damaged_row(found, 1, 2)
        by = Tracker(EDGE, KEPT.database_id, MARK)
        await found.transact(
            lambda ledger: ledger.apply(Decision(None, taken(ledger, copy.id, {3}, by, NOW)))
        )
        row = await found.transact(lambda ledger: ledger.hop_shadow(copy.id, EDGE))
        assert row
        assert row.recipients == (1, 2, 3)
        assert dict(found.ledger.hop_shadow_rows.counts) == {EDGE: 1}


async def test_salvage_keeps_shadow_queues_and_what_is_known_of_hops(tmp_path: Path) -> None:
    copies = [message() for _ in range(400)]
    async with database(tmp_path) as found:
        for copy in copies:
            await found.transact(save(copy))
        rows = [replace(KEPT, message_id=copy.id) for copy in copies]
        await found.transact(
            lambda ledger: ledger.apply(Decision(None, (*rows, HopPeer(EDGE, applied=MARK))))
        )
    unclean(tmp_path / FILE)
    overwrite(tmp_path / FILE, leaves(tmp_path / FILE, "recipient")[3])
    async with database(tmp_path) as found:
        assert found.opened.salvaged
        assert dict(found.ledger.hop_shadow_rows.counts) == {EDGE: 400}
        for row in rows:
            assert (
                await found.transact(lambda ledger, row=row: ledger.hop_shadow(row.message_id, EDGE)) == row
            )
        peer = await found.transact(lambda ledger: ledger.hop_peer(EDGE))
        assert peer == HopPeer(EDGE, applied=MARK)
