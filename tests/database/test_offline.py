"""A database that no node uses is damaged as a disk would, in what was aimed at and nowhere else."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from opened import (
    DATABASE,
    NOW,
    OTHER,
    OTHER_DATABASE,
    SECOND,
    database,
    incarnation,
    message,
    save,
    shadow,
)

from shadowrelay.core.decisions import (
    Content,
    Decision,
    DiscardEvent,
    Outcome,
    Tombstone,
    Verdict,
    VerdictKind,
)
from shadowrelay.core.digests import of_content, of_envelope
from shadowrelay.core.identifiers import Mark
from shadowrelay.core.messages import Confirmation, Copy, Digests, Holder, HolderState
from shadowrelay.core.values import replace
from shadowrelay.database import offline
from shadowrelay.database.content import stored
from shadowrelay.database.opening import FILE
from shadowrelay.database.transport import DatabaseFailed

HOLDER = Holder(OTHER, OTHER_DATABASE, Mark(incarnation(9), 3), 1, HolderState.HOLDING)


def body(number: int) -> bytes:
    """Of the message of that number."""
    return Random(number).randbytes(25_600)


async def laid_down(directory: Path) -> list[Copy]:
    """Three messages, in a database that nobody uses any more."""
    plain = [message("inside", "all"), shadow("inside"), message("inside", received_at=NOW + SECOND)]
    copies = []
    async with database(directory) as there:
        for number, copy in enumerate(plain):
            octets = body(number)
            digests = Digests(of_content(octets), of_envelope(copy.envelope, copy.recipients))
            copies.append(replace(copy, digests=digests).with_holder(HOLDER))
            await there.transact(save(copies[-1], Content(data=octets)))
    return copies


@pytest.fixture
async def lying(tmp_path: Path) -> list[Copy]:
    return await laid_down(tmp_path)


def differing(before: bytes, after: bytes) -> int:
    """In how many bits."""
    assert len(before) == len(after)
    return sum((one ^ other).bit_count() for one, other in zip(before, after, strict=True))


def test_one_bit_of_a_row_is_another_one_and_its_table_alone_has_it(tmp_path: Path, lying: list[Copy]):
    hit = lying[0].id
    offline.rows_of(tmp_path, ())  # all of the log is in the file
    before = (tmp_path / FILE).read_bytes()
    row = offline.rows_of(tmp_path, [hit])[hit]["message"][0]
    place = before.index(offline.record(row))
    assert offline.flip_row(tmp_path, hit, Random(0)) is True
    after = (tmp_path / FILE).read_bytes()
    assert differing(before, after) == 1
    assert after.count(offline.record(row)) <= 1
    assert before[:place] == after[:place] or before[place + 1000 :] == after[place + 1000 :]


@pytest.mark.parametrize("first", range(0, 60, 10))
async def test_whatever_bit_of_a_row_flips_nothing_else_is_believed_than_what_was_written(
    tmp_path: Path, first: int
):
    for seed in range(first, first + 10):
        directory = tmp_path / str(seed)
        copies = await laid_down(directory)
        assert offline.flip_row(directory, copies[0].id, Random(seed)) is True
        for copy, found in zip(copies, await believed(directory, copies), strict=True):
            assert found is None or telling(found) == telling(copy), f"seed {seed}"


async def believed(directory: Path, copies: list[Copy]) -> list[Copy | None]:
    """What the next process finds. Where SQLite itself cannot go on, it ends: nothing is believed then."""
    async with database(directory) as there:
        try:
            return [await there.transact(lambda ledger, one=one: ledger.copy(one.id)) for one in copies]
        except DatabaseFailed:
            return [None for _ in copies]


def telling(copy: Copy) -> object:
    """All but what is asked anew at each start, and holders: without one the message gets another."""
    return replace(copy, confirmation=Confirmation.NONE, confirm_since=None, holders=())


async def test_a_content_in_the_database_has_one_bit_that_is_another_one(tmp_path: Path, lying: list[Copy]):
    hit, other = lying[0].id, lying[1].id
    assert offline.flip_body(tmp_path, hit, Random(3)) is True
    async with database(tmp_path) as there:
        found = await there.transact(lambda ledger: [stored(ledger, one) for one in (hit, other)])
    damaged, sound = (content.data for content in found if content and content.data)
    assert differing(damaged, body(0)) == 1
    assert sound == body(1)


async def test_rows_are_put_back_as_they_were(tmp_path: Path, lying: list[Copy]):
    first, second = lying[0], lying[1]
    former = offline.rows_of(tmp_path, [first.id])
    async with database(tmp_path) as there:
        now = await there.transact(lambda ledger: ledger.copy(first.id))
        assert now is not None
        await there.transact(save(replace(now, epoch=7), before=now))
    offline.put_back(tmp_path, first.id, ["message"], former[first.id])
    async with database(tmp_path) as there:
        again = await there.transact(lambda ledger: ledger.copy(first.id))
        kept = await there.transact(lambda ledger: ledger.copy(second.id))
    assert (again and again.epoch) == 1
    assert kept is not None


async def test_a_message_that_was_not_there_is_gone_again_and_the_lineage_tells_nobody(
    tmp_path: Path, lying: list[Copy]
):
    hit = lying[0].id
    nothing = offline.rows_of(tmp_path, [message().id])
    for rows in nothing.values():
        assert not any(rows.values())
        offline.put_back(tmp_path, hit, offline.TABLES, rows)
    async with database(tmp_path) as there:
        assert await there.transact(lambda ledger: (ledger.copy(hit), stored(ledger, hit))) == (None, None)
        assert there.lineage.database_id == DATABASE


def test_there_is_nothing_to_damage_of_a_message_that_is_not_there(tmp_path: Path, lying: list[Copy]):
    del lying
    unknown = message().id
    assert offline.flip_row(tmp_path, unknown, Random(1)) is False
    assert offline.flip_body(tmp_path, unknown, Random(1)) is False


@pytest.mark.slow
async def test_whatever_bit_flips_of_what_is_told_of_a_message_nothing_else_is_told(tmp_path: Path) -> None:
    """Behind the back of SQLite, whose indexes keep the old value."""
    about = message("inside").id
    told = Verdict(about, 1, VerdictKind.DELIVERED, "", (1,), NOW)
    event, outcome = DiscardEvent(OTHER_DATABASE, told, NOW, 1), Outcome(about, 1, (1, 2), NOW + SECOND)
    grave = Tombstone(about, OTHER, 1, 1, NOW + SECOND)
    for seed in range(40):
        directory = tmp_path / str(seed)
        async with database(directory) as there:
            await there.transact(lambda ledger: ledger.apply(Decision(None, (event, outcome, grave))))
        assert offline.flip_told(directory, about, Random(seed)) == 3
        async with database(directory) as there:
            try:
                events = await there.transact(lambda ledger: ledger.events_for(OTHER_DATABASE, 9))
                assert set(events) <= {event}, seed
                assert await there.transact(lambda ledger: ledger.outcome(about)) in (None, outcome), seed
                assert await there.transact(lambda ledger: ledger.tombstone(about)) in (None, grave), seed
            except DatabaseFailed:
                continue
