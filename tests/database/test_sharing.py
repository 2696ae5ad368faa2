"""A content that several messages use is stored once, and stays as long as one of them does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from damaging import unclean
from opened import NOW, database, message, save, shadow
from test_database_salvage import leaves, overwrite

from shadowrelay.core.decisions import Content, DamagedRow, Decision, DropCopy, DropDamaged, SaveCopy, Write
from shadowrelay.core.digests import of_content, of_envelope
from shadowrelay.core.members.damage import found_rows
from shadowrelay.core.messages import Copy, Damage, Digests
from shadowrelay.core.policy import Policy
from shadowrelay.core.reception.holding import ShadowCopyOffer, hold
from shadowrelay.database import offline, sharing
from shadowrelay.database.content import INLINE, Spool, blocks, stored, sweep
from shadowrelay.database.examining import Examiner, Finding
from shadowrelay.database.ledger import SqlLedger
from shadowrelay.database.opening import CONTENT, FILE
from shadowrelay.database.transport import TransportDatabase

SMALL, LARGE, OTHER = b"hello", b"hello" * INLINE, b"other"
BOTH = pytest.mark.parametrize("octets", [SMALL, LARGE], ids=["in the database", "in a file"])


def using(octets: bytes = SMALL, **changes: object) -> Copy:
    copy = message(**changes)
    return replace(copy, digests=Digests(of_content(octets), of_envelope(copy.envelope, copy.recipients)))


async def sealed(directory: Path, name: str, octets: bytes) -> Content:
    (directory / CONTENT).mkdir(exist_ok=True)
    spool = Spool(directory / CONTENT, name)
    spool.write(octets)
    return await spool.seal()


async def shared(there: TransportDatabase, directory: Path, octets: bytes, users: int = 2) -> list[Copy]:
    """A message, and others that use its content, each by naming the one before it."""
    first = using(octets)
    await there.transact(save(first, await sealed(directory, first.id, octets)))
    made = [first]
    for _ in range(users):
        made.append(using(octets, content_of=made[-1].id))
        await there.transact(save(made[-1], Content(of=made[-2].id)))
    return made


async def apply(there: TransportDatabase, *writes: Write) -> None:
    await there.transact(lambda ledger: ledger.apply(Decision(None, writes)))


async def contents(there: TransportDatabase, copies: Sequence[Copy]) -> list[bytes | None]:
    found = await there.transact(lambda ledger: [stored(ledger, copy.id) for copy in copies])
    return [one and b"".join([block async for block in blocks(one)]) for one in found]


def rows(there: TransportDatabase) -> tuple[int, int]:
    """How many contents are stored, and how many messages use one of another message."""
    run = there.ledger.connection.execute
    return tuple(run(f"SELECT COUNT(*) FROM {t}").fetchone()[0] for t in ("content", "shared_content"))  # type: ignore[return-value]


def files(directory: Path) -> list[str]:
    return sorted(path.name for path in (directory / CONTENT).glob("*"))


@BOTH
async def test_several_messages_read_the_octets_that_one_of_them_has(tmp_path: Path, octets: bytes) -> None:
    async with database(tmp_path) as there:
        copies = await shared(there, tmp_path, octets)
        assert await contents(there, copies) == [octets] * 3
        assert rows(there) == (1, 2)
        keepers = await there.transact(
            lambda ledger: {sharing.keeper(ledger.connection.execute, copy.id) for copy in copies}
        )
        assert keepers == {copies[0].id}  # the last one named the second, which has no octets
    async with database(tmp_path) as there:
        assert await contents(there, copies) == [octets] * 3


@BOTH
@pytest.mark.parametrize("order", [(0, 1, 2), (1, 0, 2), (2, 1, 0), (0, 2, 1)])
async def test_the_octets_stay_until_the_last_message_that_uses_them_is_dropped(
    tmp_path: Path, octets: bytes, order: tuple[int, ...]
) -> None:
    async with database(tmp_path) as there:
        copies = await shared(there, tmp_path, octets)
        for number, dropped in enumerate(order, 1):
            await apply(there, DropCopy(copies[dropped]))
            left = [copies[one] for one in sorted(order[number:])]
            assert await contents(there, left) == [octets] * len(left)
            assert rows(there) == ((1, len(left) - 1) if left else (0, 0))
            assert bool(files(tmp_path)) is bool(left and len(octets) > INLINE)


async def test_messages_that_end_in_one_transaction_leave_nothing(tmp_path: Path) -> None:
    async with database(tmp_path) as there:
        copies = await shared(there, tmp_path, LARGE)
        await apply(there, *(DropCopy(copy) for copy in copies))
        assert (rows(there), files(tmp_path)) == ((0, 0), [])


async def test_a_transaction_that_is_undone_leaves_the_octets_with_their_message(tmp_path: Path) -> None:
    class Stop(Exception):
        pass

    def undone(ledger: SqlLedger) -> None:
        ledger.apply(Decision(None, tuple(DropCopy(copy) for copy in copies)))
        raise Stop

    async with database(tmp_path) as there:
        copies = await shared(there, tmp_path, LARGE)
        with pytest.raises(Stop):
            await there.transact(undone)
        assert await contents(there, copies) == [LARGE] * 3
        assert rows(there) == (1, 2)


async def test_a_file_under_the_name_of_a_message_that_is_gone_is_not_swept(tmp_path: Path) -> None:
    async with database(tmp_path) as there:
        copies = await shared(there, tmp_path, LARGE)
        await apply(there, DropCopy(copies[0]))
        (tmp_path / CONTENT / "left.eml").write_bytes(b"of a crash")
        removed = await there.transact(lambda ledger: sweep(ledger, tmp_path / CONTENT))
        assert removed == 1
        assert files(tmp_path) == [f"{copies[0].id}.eml"]
        assert await contents(there, copies[1:]) == [LARGE] * 2


@BOTH
@pytest.mark.parametrize("mended", [0, 1])
async def test_a_good_content_replaces_the_damaged_one_for_all_that_expect_it(
    tmp_path: Path, octets: bytes, mended: int
) -> None:
    async with database(tmp_path) as there:
        copies = await shared(there, tmp_path, octets[::-1])
        copies = [
            replace(copy, digests=Digests(of_content(octets), "e"), damage=Damage.CONTENT) for copy in copies
        ]
        for copy in copies:
            before = await there.transact(lambda ledger, one=copy.id: ledger.copy(one))
            assert before is not None
            await apply(there, SaveCopy(before, copy))
        good = await sealed(tmp_path, "good", octets)
        await apply(there, SaveCopy(copies[mended], replace(copies[mended], damage=None), good))
        assert await contents(there, copies) == [octets] * 3
        assert rows(there) == (1, 2)
        assert files(tmp_path) == (["good.eml"] if octets == LARGE else [])
        examiner = Examiner(there, lambda: NOW)
        for copy in copies:  # the others count as damaged until somebody has compared what is there now
            assert await examiner.look_again(copy.id) is (copy.id != copies[mended].id)
            assert await examiner.look(copy.id) is Finding.SOUND


@pytest.mark.parametrize("mended", [0, 1])
async def test_a_message_that_expects_other_octets_keeps_what_is_stored(tmp_path: Path, mended: int) -> None:
    async with database(tmp_path) as there:
        copies = await shared(there, tmp_path, LARGE, users=1)
        damaged = replace(copies[mended], digests=Digests(of_content(OTHER), "e"), damage=Damage.CONTENT)
        await apply(there, SaveCopy(copies[mended], damaged))
        await apply(there, SaveCopy(damaged, replace(damaged, damage=None), Content(data=OTHER)))
        expected = [LARGE, LARGE]
        expected[mended] = OTHER
        assert await contents(there, copies) == expected
        assert rows(there) == (2, 0)
        await apply(there, DropCopy(copies[1 - mended]))
        assert files(tmp_path) == []


async def test_a_damaged_content_is_replaced_by_a_reference_to_a_good_one(tmp_path: Path) -> None:
    async with database(tmp_path) as there:
        other = using()
        await there.transact(save(other))
        copies = await shared(there, tmp_path, LARGE, users=1)
        for copy in copies:
            damaged = replace(copy, digests=other.digests, damage=Damage.CONTENT)
            await apply(there, SaveCopy(copy, damaged))
            await apply(there, SaveCopy(damaged, replace(damaged, damage=None), Content(of=other.id)))
        assert await contents(there, copies) == [SMALL] * 2
        assert (rows(there), files(tmp_path)) == ((1, 2), [])


async def test_octets_that_are_good_again_stay_where_they_are(tmp_path: Path) -> None:
    async with database(tmp_path) as there:
        copies = await shared(there, tmp_path, LARGE, users=1)
        damaged = replace(copies[1], damage=Damage.CONTENT)
        await apply(there, SaveCopy(copies[1], damaged))
        await apply(there, SaveCopy(damaged, copies[1], Content(of=copies[0].id)))
        assert await contents(there, copies) == [LARGE] * 2
        assert rows(there) == (1, 1)


async def test_rows_that_cannot_be_believed_take_no_octets_of_others_with_them(tmp_path: Path) -> None:
    async with database(tmp_path) as there:
        copies = await shared(there, tmp_path, LARGE)
        unbelieved = DamagedRow(copies[0].id, NOW, "a sum differs")
        await there.transact(lambda ledger: ledger.apply(found_rows(unbelieved)))
        assert await contents(there, copies) == [LARGE] * 3
        await apply(there, DropDamaged(copies[0].id), SaveCopy(None, copies[0], Content(data=OTHER)))
        assert await contents(there, copies) == [OTHER, LARGE, LARGE]
        await apply(there, DropDamaged(copies[1].id), DropDamaged(copies[2].id))
        assert (rows(there), files(tmp_path)) == ((1, 0), [])


async def test_a_copy_of_which_only_the_reference_is_left_can_be_held_again(tmp_path: Path) -> None:
    async with database(tmp_path) as there:
        copies = await shared(there, tmp_path, SMALL, users=1)
        there.ledger.connection.execute("DELETE FROM message WHERE id = ?", (copies[1].id,))
        there.ledger.forget_recent()
        held = replace(shadow(), id=copies[1].id)
        offer = ShadowCopyOffer(
            message_id=held.id,
            epoch=1,
            rank=1,
            owner=held.owner,
            owner_database=held.owner_database,
            mark=there.lineage.mark,
            received_at=NOW,
            envelope=held.envelope,
            recipients=held.recipients,
            digests=Digests(of_content(OTHER), "e"),
        )
        await there.transact(
            lambda ledger: ledger.apply(hold(ledger, offer, Content(data=OTHER), Policy(), NOW))
        )
        assert await contents(there, copies) == [SMALL, OTHER]
        assert rows(there) == (2, 0)


async def test_octets_that_are_gone_damage_each_message_that_uses_them(tmp_path: Path) -> None:
    async with database(tmp_path) as there:
        copies = await shared(there, tmp_path, SMALL, users=1)
        there.ledger.connection.execute("DELETE FROM content")
        examiner = Examiner(there, lambda: NOW)
        for copy in copies:
            assert await examiner.look(copy.id) is Finding.DAMAGED
        await apply(there, DropCopy(copies[0]))
        assert await contents(there, copies[1:]) == [None]
        await apply(there, DropCopy(copies[1]))
        assert rows(there) == (0, 0)


async def test_a_bit_of_the_octets_damages_each_message_that_uses_them(tmp_path: Path) -> None:
    octets = Random(1).randbytes(9000)
    async with database(tmp_path) as there:
        copies = await shared(there, tmp_path, octets, users=1)
    assert offline.flip_body(tmp_path, copies[1].id, Random(2)) is True
    async with database(tmp_path) as there:
        examiner = Examiner(there, lambda: NOW)
        for copy in copies:
            assert await examiner.look(copy.id) is Finding.DAMAGED


async def test_both_rows_of_a_message_cost_no_other_its_octets(tmp_path: Path) -> None:
    """A page of before can bring a reference back: what a message has of its own counts first."""
    async with database(tmp_path) as there:
        first, second, third = await shared(there, tmp_path, SMALL)
        run = there.ledger.connection.execute
        run("INSERT INTO content (message_id, data) VALUES (?, ?)", (second.id, OTHER))
        assert await contents(there, [second]) == [OTHER]
        await apply(there, DropCopy(first))
        assert await contents(there, [second, third]) == [OTHER, SMALL]


@pytest.mark.parametrize("table", ["shared_content", "content"])
async def test_a_page_of_contents_damages_their_messages_alone(tmp_path: Path, table: str) -> None:
    async with database(tmp_path) as there:
        first = [using() for _ in range(300)]
        users = [using(content_of=one.id) for one in first]
        for copy in first:
            await there.transact(save(copy))
        for copy, of in zip(users, first, strict=True):
            await there.transact(save(copy, Content(of=of.id)))
    unclean(tmp_path / FILE)
    overwrite(tmp_path / FILE, leaves(tmp_path / FILE, table)[1])
    async with database(tmp_path) as there:
        assert there.opened.salvaged
        assert not there.opened.salvaged.messages_missing
        assert there.opened.salvaged.lost.get("content", 0) > 0  # a message without octets and reference
        found = await contents(there, [*first, *users])
        assert found[:300].count(SMALL) == (300 if table == "shared_content" else found[300:].count(SMALL))
        assert 150 < found[300:].count(SMALL) < 300
        copies = [await there.transact(lambda ledger, one=one: ledger.copy(one.id)) for one in users]
        assert all(copies)


async def test_a_salvage_loses_no_content_that_is_shared(tmp_path: Path) -> None:
    async with database(tmp_path) as there:
        copies = [copy for _ in range(50) for copy in await shared(there, tmp_path, SMALL, users=1)]
    unclean(tmp_path / FILE)
    overwrite(tmp_path / FILE, leaves(tmp_path / FILE, "recipient_due")[0])
    async with database(tmp_path) as there:
        assert there.opened.salvaged
        assert there.opened.salvaged.lost == {}
        assert await contents(there, copies) == [SMALL] * 100
