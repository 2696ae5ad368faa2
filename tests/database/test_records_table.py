"""Records of a database of before the one table: each that is whole is taken over, and counts from now."""

from __future__ import annotations

import json
import sqlite3
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from opened import database
from test_flips import JOB, shared

from shadowrelay.core.jobs import Job, JobProgress
from shadowrelay.core.records import Record, RecordPart
from shadowrelay.core.requests import Progress, Request
from shadowrelay.core.suspensions import Suspension
from shadowrelay.core.switches import Switch
from shadowrelay.database import sums
from shadowrelay.database.opening import migrate
from shadowrelay.database.queries import migrations
from shadowrelay.wire.records import record_told

OF_BEFORE = 21  # steps of the schema before the one table
TABLES: dict[type, tuple[str, tuple[str, ...]]] = {
    Request: ("request", ("id",)),
    Job: ("job", ("id",)),
    Suspension: ("suspension", ("next_hop",)),
    Switch: ("switch", ("name",)),
    Progress: ("progress", ("request", "node", "owner")),
    JobProgress: ("job_progress", ("job", "node")),
}
ALIVE = datetime(2030, 1, 2, tzinfo=UTC)


def of_before(file: Path, *, damage: bool) -> list[Record | RecordPart]:
    """A file of that schema with one of each kind. ``damage``: the disk changed what they say."""
    steps = migrations()
    assert "CREATE TABLE record " in steps[OF_BEFORE]
    connection = sqlite3.connect(file, isolation_level=None)
    connection.execute("PRAGMA auto_vacuum=incremental")
    sums.know_sums(connection)
    for number, script in enumerate(steps[:OF_BEFORE], start=1):
        connection.executescript(f"BEGIN;\n{script}\nPRAGMA user_version={number};\nCOMMIT;")
    alive = str(int(ALIVE.timestamp()) * 1_000_000)
    connection.execute("INSERT INTO meta (key, value) VALUES ('alive_at', ?)", (alive,))
    for one in shared():
        table, key = TABLES[type(one)]
        told: Any = record_told(one)
        row = (*(told[name] for name in key), json.dumps(told))
        sum_of = sums.row_sum(*row)
        if damage:
            row = (*row[:-1], row[-1].replace("anna", "hanna").replace('"after": ""', '"after": null'))
        marks = ", ".join("?" * (len(row) + 1))
        connection.execute(
            f"INSERT INTO {table} ({', '.join(key)}, told, row_sum) VALUES ({marks})",
            (*row, sum_of),
        )
    connection.close()
    return list(shared())


async def test_records_of_before_are_taken_over_and_count_from_when_the_node_was_last_alive(
    tmp_path: Path,
) -> None:
    there = of_before(tmp_path / "transport.db", damage=False)
    async with database(tmp_path) as opened:
        ledger = opened.ledger
        for one in there:
            if isinstance(one, Record):
                found = ledger.record(type(one), one.key)
                assert (found, found and found.kept_at, found and found.age) == (one, ALIVE, timedelta(0))
            else:
                assert list(ledger.parts(type(one), JOB)) == [one]


def test_a_record_that_was_damaged_on_the_disk_is_not_taken_over_as_a_sound_one(tmp_path: Path) -> None:
    of_before(tmp_path / "transport.db", damage=True)
    connection = sqlite3.connect(tmp_path / "transport.db", isolation_level=None)
    migrate(connection)
    assert connection.execute("SELECT COUNT(*) FROM record").fetchone() == (0,)
    assert connection.execute("SELECT COUNT(*) FROM record_part").fetchone() == (0,)
