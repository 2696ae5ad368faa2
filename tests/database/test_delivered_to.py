from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from shadowmailbox.delivered_to import (
    Delivered,
    DeliveredTo,
    Deliveries,
    Remembered,
    TableError,
    TableUnusable,
)

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
KEY = Delivered("<1@example.org>", "today", "a@example.net")


@pytest.fixture
async def table(tmp_path: Path) -> AsyncIterator[DeliveredTo]:
    opened = await DeliveredTo.open(tmp_path / "table", track=HOUR)
    yield opened
    await opened.close()


async def test_a_delivery_is_known_until_its_time_is_up(table: DeliveredTo) -> None:
    assert await table.known([KEY], NOW) == frozenset()
    await table.record([KEY], NOW)
    assert await table.known([KEY], NOW + HOUR) == {KEY}
    assert await table.known([KEY], NOW + HOUR + timedelta(seconds=1)) == frozenset()


@pytest.mark.parametrize(
    "other",
    [
        Delivered("<2@example.org>", "today", "a@example.net"),
        Delivered("<1@example.org>", "tomorrow", "a@example.net"),
        Delivered("<1@example.org>", "today", "b@example.net"),
    ],
)
async def test_all_of_the_key_counts(table: DeliveredTo, other: Delivered) -> None:
    await table.record([KEY], NOW)
    assert await table.known([KEY, other], NOW) == {KEY}


async def test_recording_again_keeps_the_later_time(table: DeliveredTo) -> None:
    await table.record([KEY], NOW)
    await table.record([KEY], NOW + HOUR)
    assert await table.known([KEY], NOW + 2 * HOUR) == {KEY}


async def test_a_sweep_leaves_what_still_counts(tmp_path: Path) -> None:
    newer = Delivered("<2@example.org>", "today", "a@example.net")
    table = await DeliveredTo.open(tmp_path / "table", track=HOUR)
    await table.record([KEY], NOW - 2 * HOUR)
    await table.record([newer], NOW)
    await table.sweep(NOW)
    await table.close()
    with sqlite3.connect(tmp_path / "table") as plain:
        rows = plain.execute("SELECT message_id FROM delivered_to").fetchall()
    plain.close()
    assert rows == [(newer.message_id,)]


async def test_deliveries_outlive_a_restart(tmp_path: Path) -> None:
    table = await DeliveredTo.open(tmp_path / "table", track=HOUR)
    keys = [Delivered(f"<{number}@example.org>", "", "a@example.net") for number in range(50)]
    await asyncio.gather(*(table.record([key], NOW) for key in keys))
    await table.close()
    table = await DeliveredTo.open(tmp_path / "table", track=HOUR)
    assert await table.known(keys, NOW) == set(keys)
    await table.close()


async def test_a_commit_is_flushed_to_disk(table: DeliveredTo) -> None:
    for pragma, expected in (("journal_mode", "wal"), ("synchronous", 2), ("locking_mode", "exclusive")):
        async with table._connection.execute(f"PRAGMA {pragma}") as cursor:
            assert tuple(await cursor.fetchone() or ()) == (expected,)


async def test_a_second_server_is_told_that_the_table_is_in_use(tmp_path: Path, table: DeliveredTo) -> None:
    with pytest.raises(TableUnusable, match="in use by another process"):
        await DeliveredTo.open(tmp_path / "table", track=HOUR)


async def test_a_file_that_is_no_table_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "table").write_bytes(b"something else entirely" * 100)
    with pytest.raises(TableUnusable):
        await DeliveredTo.open(tmp_path / "table", track=HOUR)
    assert (tmp_path / "table").read_bytes().startswith(b"something else")


async def test_more_than_49_days_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="at most 49 days"):
        await DeliveredTo.open(tmp_path / "table", track=timedelta(days=49, seconds=1))
    assert not (tmp_path / "table").exists()


async def test_a_cancelled_writer_disturbs_nobody(table: DeliveredTo) -> None:
    recording = asyncio.create_task(table.record([KEY], NOW))
    await asyncio.sleep(0)
    recording.cancel()
    await table.record([Delivered("<2@example.org>", "", "a@example.net")], NOW)
    assert await table.known([KEY], NOW) == {KEY}


async def test_a_failed_commit_is_an_error_for_all_who_waited_and_for_no_one_later(
    table: DeliveredTo,
) -> None:
    bad = Delivered(None, "", "")  # type: ignore[arg-type]
    results = await asyncio.gather(table.record([KEY], NOW), table.record([bad], NOW), return_exceptions=True)
    assert [type(result) for result in results] == [TableError] * 2
    await table.record([KEY], NOW)
    assert await table.known([KEY], NOW) == {KEY}


THREE = [
    (Delivered("<1@x>", "", "anna@inside.test"), NOW),
    (Delivered("<2@x>", "", "Anna@inside.test"), NOW + HOUR),
    (Delivered("<1@x>", "", "b@c@other.test"), NOW + 2 * HOUR),
]


@pytest.fixture
async def filled(tmp_path: Path) -> AsyncIterator[DeliveredTo]:
    opened = await DeliveredTo.open(tmp_path / "filled", track=10 * HOUR)
    for key, at in THREE:
        await opened.record([key], at)
    yield opened
    await opened.close()


@pytest.mark.parametrize(
    ("which", "left"),
    [
        (Deliveries(), []),
        (Deliveries(recipients=("ANNA@inside.test", "anna@inside.test")), [2]),
        (Deliveries(recipients=("anna@inside.test",), since=NOW + HOUR), [0, 2]),
        (Deliveries(recipients=("anna@inside.test", "b@c@other.test")), []),
        (Deliveries(recipients=()), [0, 1, 2]),
        (Deliveries(since=NOW + HOUR), [0]),
        (Deliveries(until=NOW + HOUR), [1, 2]),
        (Deliveries(since=NOW + HOUR, until=NOW + 2 * HOUR), [0, 2]),
    ],
)
async def test_exactly_what_was_named_is_forgotten_and_counted_before(
    filled: DeliveredTo, which: Deliveries, left: list[int]
) -> None:
    gone = len(THREE) - len(left)
    assert await filled.count(which) == gone
    assert await filled.forget(which) == gone
    now = NOW + 2 * HOUR
    assert await filled.known([key for key, _ in THREE], now) == {THREE[index][0] for index in left}
    assert (await filled.count(which), await filled.rows()) == (0, len(left))


async def test_what_is_forgotten_stays_forgotten_after_a_restart(tmp_path: Path) -> None:
    table = await DeliveredTo.open(tmp_path / "table", track=HOUR)
    await table.record([KEY], NOW)
    await table.forget(Deliveries())
    await table.close()
    table = await DeliveredTo.open(tmp_path / "table", track=HOUR)
    assert await table.known([KEY], NOW) == frozenset()
    await table.close()


async def test_the_oldest_delivery_is_one_that_would_still_be_dropped(filled: DeliveredTo) -> None:
    assert await filled.oldest(NOW + 2 * HOUR) == NOW
    assert await filled.oldest(NOW + 11 * HOUR) == NOW + HOUR
    assert await filled.oldest(NOW + 13 * HOUR) is None


async def test_the_table_is_summed_up_by_domain(filled: DeliveredTo) -> None:
    assert await filled.remembered() == Remembered(3, NOW, NOW + 2 * HOUR)
    assert await filled.by_domain(10) == {
        "inside.test": Remembered(2, NOW, NOW + HOUR),
        "other.test": Remembered(1, NOW + 2 * HOUR, NOW + 2 * HOUR),
    }
    assert list(await filled.by_domain(1)) == ["inside.test"]


async def test_an_empty_table_remembers_nothing(table: DeliveredTo) -> None:
    assert await table.remembered() == Remembered(0, None, None)
    assert await table.oldest(NOW) is None


async def test_a_closed_table_says_so(tmp_path: Path) -> None:
    table = await DeliveredTo.open(tmp_path / "table", track=HOUR)
    await table.close()
    for asked in (table.rows(), table.forget(Deliveries())):
        with pytest.raises(TableError):
            await asked
