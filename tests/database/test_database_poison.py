"""Crashes are counted by message, each once, and two set a message aside."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from opened import NOW, SECOND, database, message, save, shadow

from shadowrelay.core.messages import Stage
from shadowrelay.database import poison
from shadowrelay.database.poison import Crash
from shadowrelay.in_hand import SLOTS, InHand, left
from shadowrelay.operator.resume import resume

FIRST, SECOND_ONE = Crash("a", "Fatal Python error: Aborted", NOW), Crash("b", "KeyError: 7", NOW + SECOND)


async def test_two_crashes_set_a_message_aside_and_the_same_crash_counts_once(tmp_path: Path) -> None:
    twice, once = message(), message()
    async with database(tmp_path) as found:
        for copy in (twice, once):
            await found.transact(save(copy))
        for crash, in_hand in ((FIRST, [twice.id]), (FIRST, [twice.id]), (SECOND_ONE, [once.id, twice.id])):
            aside = await found.transact(partial(poison.count, crash=crash, in_hand=in_hand))
            assert aside == ([twice.id] if crash is SECOND_ONE else [])
        read = await found.transact(lambda ledger: [ledger.copy(one.id) for one in (twice, once)])
        assert [copy.stage for copy in read if copy] == [Stage.SET_ASIDE, Stage.QUEUED]
        rows = await found.transact(lambda ledger: poison.crashes(ledger, twice.id))
        assert rows == (
            "2026-11-21T10:00:00Z Fatal Python error: Aborted",
            "2026-11-21T10:00:01Z KeyError: 7",
        )


async def test_resume_clears_the_count(tmp_path: Path) -> None:
    copy, third = message(), Crash("c", "KeyError: 8", NOW)
    async with database(tmp_path) as found:
        await found.transact(save(copy))
        for crash in (FIRST, SECOND_ONE):
            await found.transact(partial(poison.count, crash=crash, in_hand=[copy.id]))
        await found.transact(partial(resume, message_id=copy.id, now=NOW))
        assert await found.transact(partial(poison.count, crash=third, in_hand=[copy.id])) == []
        read = await found.transact(lambda ledger: ledger.copy(copy.id))
        assert read
        assert read.stage is Stage.QUEUED


async def test_a_copy_held_for_another_member_stays_and_its_crashes_are_counted(
    tmp_path: Path,
) -> None:
    held = shadow()
    async with database(tmp_path) as found:
        await found.transact(save(held))
        for crash in (FIRST, SECOND_ONE):
            assert await found.transact(partial(poison.count, crash=crash, in_hand=[held.id])) == []
        read = await found.transact(lambda ledger: ledger.copy(held.id))
        assert read
        assert read.held
        assert len(await found.transact(lambda ledger: poison.crashes(ledger, held.id))) == 2


def test_what_is_in_hand_is_in_the_file_at_once_and_what_has_left_is_not(tmp_path: Path) -> None:
    assert left(tmp_path) == frozenset()
    found = InHand.on_disk(tmp_path)
    slots = [found.take(name) for name in ("a", "b", "a", "c")]
    found.leave(slots[1])
    found.leave(slots[0])
    assert left(tmp_path) == {"a", "c"}
    found.freeze()  # the process ends: its tasks are cancelled, and give back what they had
    found.leave(slots[3])
    assert left(tmp_path) == {"a", "c"}
    InHand.on_disk(tmp_path)
    assert left(tmp_path) == frozenset()


def test_more_than_fits_is_not_noted_and_nothing_breaks(tmp_path: Path) -> None:
    found = InHand.on_disk(tmp_path)
    slots = [found.take(f"id-{number}") for number in range(SLOTS + 2)]
    assert len(left(tmp_path)) == SLOTS
    for slot in slots:
        found.leave(slot)
    assert left(tmp_path) == frozenset()
    found.take("id")
    assert left(tmp_path) == {"id"}
