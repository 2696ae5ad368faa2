"""Reckoned time in the database: it is carried on over restarts and boots; a bit that flips ages nothing."""

from __future__ import annotations

import sqlite3
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from shadowrelay.core.identifiers import DatabaseId, Incarnation, ServerName
from shadowrelay.core.reckoning import ClockReading, Reckoning, saved
from shadowrelay.database import opening, reckonings, sums
from shadowrelay.database.transport import TransportDatabase

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
HOUR, YEAR = timedelta(hours=1), timedelta(days=365)
NOTHING = timedelta(0)


def reading(since: timedelta, wall: timedelta | None = None, boot_id: str = "one") -> ClockReading:
    return ClockReading(NOW + (since if wall is None else wall), HOUR + since, boot_id)


class Lives:
    """The incarnations of one database."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.count = directory, 0

    async def opened(self, when: ClockReading) -> TransportDatabase:
        self.count += 1
        return await TransportDatabase.open(
            self.directory,
            ServerName("mx1"),
            Incarnation(f"{self.count:016x}"),
            DatabaseId("5e0f7a52-9b62-4c27-8f66-0c9f0f0f0f0f"),
            when.wall,
            reading=when,
        )


async def test_the_next_opening_carries_reckoned_time_on(tmp_path: Path):
    lives = Lives(tmp_path)
    database = await lives.opened(reading(NOTHING))
    first = database.opened.reckoning
    assert first is not None
    assert first.time == NOW
    await database.touch(NOW + HOUR, saved(first, reading(HOUR)))
    await database.close(NOW + 2 * HOUR, saved(first, reading(2 * HOUR)))
    database = await lives.opened(reading(5 * HOUR, -YEAR))
    await database.close(NOW)
    assert database.opened.at == NOW + 5 * HOUR
    assert database.opened.reckoning is not None
    assert database.opened.reckoning.away == 3 * HOUR


async def test_a_kill_loses_nothing_of_it_in_the_same_boot(tmp_path: Path):
    lives = Lives(tmp_path)
    database = await lives.opened(reading(NOTHING))
    await database.close(NOW)  # no reckoning is saved, as if the process had been killed
    database = await lives.opened(reading(5 * HOUR, YEAR))
    await database.close(NOW)
    assert database.opened.at == NOW + 5 * HOUR


async def test_after_a_boot_with_a_clock_that_went_back_nobody_knows_how_long_the_node_was_away(
    tmp_path: Path,
):
    lives = Lives(tmp_path)
    database = await lives.opened(reading(NOTHING))
    assert database.opened.reckoning is not None
    await database.close(NOW, database.opened.reckoning)
    database = await lives.opened(reading(5 * HOUR, -20 * HOUR, "two"))
    await database.close(NOW)
    assert database.opened.at == NOW
    assert database.opened.reckoning is not None
    assert database.opened.reckoning.away is None


@pytest.mark.parametrize("damage", ["flipped", "gone", "nonsense"])
async def test_without_what_was_saved_the_wall_clock_is_followed_and_nothing_ages_by_it(
    tmp_path: Path, damage: str
):
    lives = Lives(tmp_path)
    database = await lives.opened(reading(NOTHING))
    await database.close(NOW)
    file = sqlite3.connect(tmp_path / "transport.db")
    (text,) = file.execute("SELECT value FROM meta WHERE key = 'reckoning'").fetchone()
    changed = {"flipped": text.replace('"time": 1', '"time": 3'), "nonsense": "x {}"}.get(damage)
    if changed:
        assert changed != text
        file.execute("UPDATE meta SET value = ? WHERE key = 'reckoning'", (changed,))
    else:
        file.execute("DELETE FROM meta WHERE key = 'reckoning'")
    file.commit()
    file.close()
    database = await lives.opened(reading(20 * HOUR))
    await database.close(NOW)
    found = database.opened.reckoning
    assert found is not None
    assert found.time == NOW + 20 * HOUR
    assert found.not_aged(NOW, found.time) == 20 * HOUR


def test_what_is_saved_is_what_is_read():
    connection = sqlite3.connect(":memory:", isolation_level=None)
    opening.migrate(connection)
    sums.know_sums(connection)
    given = Reckoning(NOW, HOUR, "one", -HOUR, True, ((NOW - 3 * HOUR, NOW - 2 * HOUR),), (NOW - HOUR, NOW))
    reckonings.put(connection, given)
    assert reckonings.found(connection, None) == given
