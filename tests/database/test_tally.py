"""How many messages there are of each kind is known without a look at them."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from opened import NOW, OTHER, OTHER_DATABASE, database, message, save, shadow

from shadowrelay.core.decisions import DamagedRow, Decision, DropCopy, SaveCopy
from shadowrelay.core.identifiers import DatabaseId, MessageId, NextHop, ServerName
from shadowrelay.core.members.damage import found_rows
from shadowrelay.core.messages import Confirmation, Copy, Holder, HolderState, Role, Stage, Status
from shadowrelay.core.values import replace
from shadowrelay.database import views
from shadowrelay.database.ledger import SqlLedger
from shadowrelay.database.queue import exposed
from shadowrelay.database.queue_views import oldest_to
from shadowrelay.database.tally import HopCounts
from shadowrelay.database.transport import TransportDatabase

HELD = Holder(OTHER, OTHER_DATABASE, None, 1, HolderState.HOLDING)


def delivered(copy: Copy, hop: str) -> Copy:
    """The next hop took it for its recipients."""
    settled = [replace(one, status=Status.DELIVERED) for one in copy.recipients if one.next_hop == hop]
    after = copy.with_recipients(settled)
    return after if after.unsettled else replace(after, stage=Stage.SAFETY_NET, settled_at=NOW)


def redirected(copy: Copy, hop: str) -> Copy:
    return copy.with_recipients([replace(one, next_hop=NextHop(hop)) for one in copy.recipients])


def told(found: TransportDatabase) -> dict[str, int]:
    tally = found.ledger.tally
    return {
        "queued": tally.staged(Role.PRIMARY, Stage.QUEUED),
        "arriving": tally.staged(Role.PRIMARY, Stage.ARRIVING),
        "set aside": tally.staged(Role.PRIMARY, Stage.SET_ASIDE),
        "held": tally.staged(Role.SHADOW, Stage.QUEUED),
        "held for it": tally.held_for(OTHER),
        "held by it": tally.held_by_each().get(OTHER, 0),
        "exposed": tally.exposed,
        "asking": tally.confirming(Confirmation.ASK),
        "in doubt": tally.confirming(Confirmation.IN_DOUBT),
    }


NOTHING = dict.fromkeys(
    ("queued", "arriving", "set aside", "held", "held for it", "held by it", "exposed", "asking", "in doubt"),
    0,
)


async def test_every_change_is_counted_and_an_opening_counts_the_same(tmp_path: Path) -> None:
    async with database(tmp_path) as found:
        assert told(found) == NOTHING
        alone, held = message(), message(holders=(HELD,))
        for copy in (alone, held, shadow(), message(stage=Stage.ARRIVING), message(stage=Stage.SAFETY_NET)):
            await found.transact(save(copy))
        expected = NOTHING | {
            "queued": 2,
            "exposed": 1,
            "held by it": 1,
            "held": 1,
            "held for it": 1,
            "arriving": 1,
        }
        assert told(found) == expected
        doubted = replace(held, confirmation=Confirmation.IN_DOUBT)
        aside = replace(alone, stage=Stage.SET_ASIDE)
        await found.transact(
            lambda ledger: ledger.apply(Decision(None, (SaveCopy(held, doubted), SaveCopy(alone, aside))))
        )
        assert told(found) == expected | {"queued": 1, "exposed": 1, "set aside": 1, "in doubt": 1}
        await found.transact(lambda ledger: ledger.apply(Decision(None, (DropCopy(aside),))))
        before = told(found)
    async with database(tmp_path) as found:
        assert told(found) == before | {"in doubt": 0, "asking": 1}


@pytest.mark.parametrize("alone", [True, False])
async def test_what_is_undone_does_not_count(tmp_path: Path, *, alone: bool) -> None:
    def in_vain(ledger: SqlLedger) -> None:
        ledger.apply(Decision(None, (SaveCopy(None, message()),)))
        raise ZeroDivisionError

    async with database(tmp_path) as found:
        works = [found.transact_briefly(in_vain)]
        if not alone:
            works += [found.transact_briefly(save(message())) for _ in range(2)]
        with pytest.raises(ZeroDivisionError):
            await works[0]
        for work in works[1:]:
            await work
        assert told(found)["queued"] == (0 if alone else 2)


async def test_a_holder_of_what_is_set_aside_is_missed_like_any_other(tmp_path: Path) -> None:
    """It is what a link asks before it counts a silent member's copies as lost."""
    aside = replace(message(holders=(HELD,)), stage=Stage.SET_ASIDE)
    async with database(tmp_path) as found:
        await found.transact(save(aside))
        assert not found.ledger.tally.holds_none(OTHER)
    async with database(tmp_path) as found:
        assert (found.ledger.tally.holds_none(OTHER), told(found)["held by it"]) == (False, 1)
        rows = DamagedRow(aside.id, NOW, "the sum of a row differs", ())
        await found.transact(lambda ledger: ledger.apply(found_rows(rows)))
        assert told(found)["held by it"] == 0


async def test_what_several_members_hold_is_known_by_all_of_them(tmp_path: Path) -> None:
    """It is what tells whether a copy can be reached while one of them is away."""
    third = replace(HELD, name=ServerName("third.test"), database_id=DatabaseId("d-third"))
    one, both = message(holders=(HELD,)), message(holders=(third, HELD))
    expected = {(OTHER, "third.test") if OTHER < "third.test" else ("third.test", OTHER): 1}
    async with database(tmp_path) as found:
        await found.transact(save(one))
        await found.transact(save(both))
        assert found.ledger.tally.held_together() == expected
    async with database(tmp_path) as found:
        assert found.ledger.tally.held_together() == expected
        assert found.ledger.tally.held_by_each() == {OTHER: 2, "third.test": 1}
        lost = replace(both, holders=(HELD, replace(third, state=HolderState.LOST)))
        await found.transact(lambda ledger: ledger.apply(Decision(None, (SaveCopy(both, lost),))))
        assert found.ledger.tally.held_together() == {}


async def test_what_is_written_again_counts_once(tmp_path: Path) -> None:
    """As each message of a version before sums is, and each with a derived column that was wrong."""
    alone, held = message(), message(holders=(HELD,))
    async with database(tmp_path) as found:
        await found.transact(save(alone))
        await found.transact(save(held))
        before = told(found)
        for copy in (alone, held):
            await found.transact(lambda ledger, copy=copy: ledger.write_again(copy))
        assert told(found) == before


@pytest.mark.parametrize("change", ["DELETE FROM holder", "UPDATE message SET exposed = 1"])
async def test_what_is_exposed_is_counted_by_its_holders_whatever_a_column_says(
    tmp_path: Path, change: str
) -> None:
    """A row of a holder is gone, and comes back; or the column is another one."""
    held = message(holders=(HELD,))
    async with database(tmp_path) as found:
        await found.transact(save(held))
        await found.transact(lambda ledger: ledger.connection.execute(change))
    async with database(tmp_path) as found:
        read = await found.transact(lambda ledger: ledger.copy(held.id))
        assert read
        assert told(found)["exposed"] == read.exposed
        seen = await found.transact(lambda ledger: exposed(ledger, MessageId(""), 9))
        assert seen == [held.id] * read.exposed
        await found.transact(
            lambda ledger: ledger.apply(Decision(None, (SaveCopy(read, replace(read, holders=(HELD,))),)))
        )
        assert told(found) == NOTHING | {"queued": 1, "asking": 1, "held by it": 1}


@pytest.mark.parametrize("column", ["role", "stage", "owner", "confirmation", "name"])
async def test_another_kind_of_value_ends_no_look_at_the_counts(tmp_path: Path, column: str) -> None:
    """One flipped bit makes octets of a text. It is counted apart, until its rows are put away."""
    table, key = ("holder", "message_id") if column == "name" else ("message", "id")
    spoilt = [message(holders=(HELD,)), shadow()]
    async with database(tmp_path) as found:
        for copy in (message(holders=(HELD,)), shadow(), *spoilt):
            await found.transact(save(copy))
        for copy in spoilt:
            change = f"UPDATE {table} SET {column} = CAST({column} AS BLOB) WHERE {key} = ?"
            await found.transact(lambda ledger, run=change, of=copy.id: ledger.connection.execute(run, (of,)))
    async with database(tmp_path) as found:
        json.dumps(
            await found.transact(lambda ledger: [ledger.tally.held_for_each(), ledger.tally.held_by_each()])
        )
        for copy in spoilt:
            rows = DamagedRow(copy.id, NOW, "the sum of a row differs", ())
            await found.transact(lambda ledger, of=rows: ledger.apply(found_rows(of)))
        expected = {"queued": 1, "held": 1, "held for it": 1, "held by it": 1, "asking": 1}
        assert told(found) == NOTHING | expected
        assert set(found.ledger.tally.held_by_each()) == set(found.ledger.tally.held_for_each()) == {OTHER}


@pytest.mark.parametrize("due_at", [-(2**63), 2**62, "soon"])
async def test_a_time_that_cannot_be_ends_no_look_at_a_node(tmp_path: Path, due_at: int | str) -> None:
    """When mail is due has no sum: it is made again of the rows."""
    async with database(tmp_path) as found:
        await found.transact(save(message()))
        await found.transact(
            lambda ledger: ledger.connection.execute("UPDATE recipient SET due_at = ?", (due_at,))
        )
        seen = await found.transact(views.snapshot)
        assert (seen.counts.queued, seen.unsent) == (1, {})


async def test_queues_by_next_hop_are_counted_as_they_change_and_the_same_by_an_opening(
    tmp_path: Path,
) -> None:
    """Three messages: one to two next hops, of which one takes it; one exposed; one that is redirected."""
    both = message("one", "one", "two", holders=(HELD,))
    alone = message("one")
    moved = message("one", holders=(HELD,))
    async with database(tmp_path) as found:
        tally = found.ledger.tally
        for copy in (both, alone, moved):
            await found.transact(save(copy))
        assert tally.by_hop() == {"one": 3, "two": 1}
        assert tally.to(NextHop("one")) == HopCounts(messages=3, recipients=4, asking=0, exposed=1)
        for before, after in (
            (both, delivered(both, "two")),
            (moved, redirected(moved, "three")),
        ):
            await found.transact(
                lambda ledger, one=before, other=after: ledger.apply(Decision(None, (SaveCopy(one, other),)))
            )
        assert tally.by_hop() == {"one": 2, "three": 1}
    async with database(tmp_path) as found:
        assert found.ledger.tally.by_hop() == {"one": 2, "three": 1}
        assert found.ledger.tally.to(NextHop("one")).recipients == 3
        assert found.ledger.tally.to(NextHop("one")).exposed == 1
        damaged = DamagedRow(both.id, NOW, "the sum of a row differs", ())
        await found.transact(lambda ledger: ledger.apply(found_rows(damaged)))
        assert found.ledger.tally.by_hop() == {"one": 1, "three": 1}


async def test_the_oldest_of_a_queue_is_found_again_after_each_change(tmp_path: Path) -> None:
    first, second, other, late = (message(hop) for hop in ("one", "one", "two", "one"))
    times = {
        copy.id: NOW + timedelta(minutes=count) for count, copy in enumerate((first, second, other, late))
    }
    copies = [replace(copy, received_at=times[copy.id]) for copy in (first, second, other, late)]

    def oldest(hop: str) -> Callable[[SqlLedger], datetime | None]:
        return lambda ledger: oldest_to(ledger, NextHop(hop))

    async with database(tmp_path) as found:
        for copy in copies[1:]:
            await found.transact(save(copy))
        assert await found.transact(oldest("one")) == times[second.id]
        assert await found.transact(oldest("none")) is None
        await found.transact(save(copies[0]))  # taken over from another owner: it is older than what is here
        assert await found.transact(oldest("one")) == times[first.id]
        for copy in copies[:2]:
            await found.transact(
                lambda ledger, one=copy: ledger.apply(Decision(None, (SaveCopy(one, delivered(one, "one")),)))
            )
        assert await found.transact(oldest("one")) == times[late.id]
        assert await found.transact(oldest("two")) == times[other.id]
    async with database(tmp_path) as found:
        assert await found.transact(oldest("one")) == times[late.id]


async def test_what_is_held_is_counted_by_owner_and_next_hop_and_the_same_by_an_opening(
    tmp_path: Path,
) -> None:
    two, one = shadow("one", "one", "two"), shadow("one")
    async with database(tmp_path) as found:
        for copy in (two, one):
            await found.transact(save(copy))
        assert found.ledger.tally.held_by_hop(OTHER) == [("one", 2, 3), ("two", 1, 1)]
        after = delivered(two, "two")
        await found.transact(lambda ledger: ledger.apply(Decision(None, (SaveCopy(two, after),))))
        assert found.ledger.tally.held_by_hop(OTHER) == [("one", 2, 3)]
    async with database(tmp_path) as found:
        assert found.ledger.tally.held_by_hop(OTHER) == [("one", 2, 3)]
        damaged = DamagedRow(two.id, NOW, "the sum of a row differs", ())
        await found.transact(lambda ledger: ledger.apply(found_rows(damaged)))
        assert found.ledger.tally.held_by_hop(OTHER) == [("one", 1, 1)]
