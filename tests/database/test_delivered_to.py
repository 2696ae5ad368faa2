from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from shadowrelay.database.delivered_to import Delivered, DeliveredTo, TableError, TableUnusable

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
