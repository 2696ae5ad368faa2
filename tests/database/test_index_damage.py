"""An index decides nothing alone: whatever a disk makes of its pages, a round finds it and builds it again.

Tables, indexes and conditions come from the schema: a new one is filled, spoilt and compared like the others.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from functools import lru_cache
from pathlib import Path
from random import Random

import pytest
from opened import DATABASE, OWN

from shadowrelay.database import indexes, offline, sums
from shadowrelay.database.indexes import Comparison, Table, searches
from shadowrelay.database.ledger import SqlLedger
from shadowrelay.database.offline import IndexWay
from shadowrelay.database.opening import FILE, is_corrupt, migrate, prepare

ROWS = 90
VALUES = {
    "role": ("primary", "shadow"),
    "stage": ("queued", "safety_net", "arriving"),
    "confirmation": ("none", "ask"),
    "status": ("ready", "delivered"),
    "kind": ("delivered", "suspended", "resumed"),
    "argument": ("", "removed", "failed"),
    "exposed": (0, 1),
    "work": ("opened",),
}
"""Columns that conditions of indexes name, or that have few values."""


def value(column: str, kind: str, number: int, chance: Random, *, nullable: bool) -> object:
    if column == "row_sum" and nullable:
        return None  # as a version before sums wrote it
    if column in VALUES:
        return chance.choice(VALUES[column])
    if nullable and chance.random() < 0.4:
        return None
    return number if kind == "INTEGER" else f"{column}-{number:06d}"


@lru_cache(maxsize=1)
def filled(directory: Path) -> bytes:
    """A database with rows in every table, for every index. They mean nothing."""
    chance = Random(1)
    with closing(sqlite3.connect(directory / FILE, isolation_level=None)) as run:
        prepare(run, durable=True)
        migrate(run)
        run.execute("BEGIN")
        for table in indexes.tables(run):
            columns = run.execute(f"PRAGMA table_info({table.name})").fetchall()
            for number in chance.sample(range(1, 1 << 40), ROWS):
                row = [
                    value(name, kind, number, chance, nullable=not (must or pk))
                    for _, name, kind, must, _, pk in columns
                ]
                if table.name == "content":
                    row = [row[0], *chance.choice(((b"octets", None), (None, f"/spool/{number}.eml")))]
                marks = ", ".join("?" * len(row))
                run.execute(f"INSERT INTO {table.name} VALUES ({marks})", row)
        run.execute("INSERT INTO meta (key, value) VALUES ('database_id', ?)", (DATABASE,))
        run.execute("COMMIT")
    return (directory / FILE).read_bytes()


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return filled(tmp_path_factory.mktemp("filled"))


def opened(directory: Path) -> sqlite3.Connection:
    run = sqlite3.connect(directory / FILE, isolation_level=None)
    prepare(run, durable=False)
    run.execute("PRAGMA synchronous=off")
    return run


def compared(ledger: SqlLedger) -> set[str | None]:
    """A whole round, and what it builds again."""
    comparison, found = Comparison(), set()
    while not comparison.done:
        for differs in comparison.part(ledger, 10 * ROWS * 60).differs:
            if differs.index is None or indexes.structure(ledger.connection):
                return {None}
            indexes.rebuild(ledger, str(differs.index))
            found.add(differs.index)
    return found


def named(sound: bytes, directory: Path) -> list[str]:
    (directory / FILE).write_bytes(sound)
    with closing(opened(directory)) as run:
        found = indexes.tables(run)
    return sorted([one.name for one in found] + [one.name for table in found for one in table.indexes])


def hidden(run: sqlite3.Connection) -> Iterator[str]:
    """What is wrong with any index, or any key, row by row: without the code that is tested here."""
    run.text_factory = lambda octets: octets.decode("utf-8", "surrogateescape")
    for table in indexes.tables(run):
        key = ", ".join(f"{one} AS k{number}" for number, one in enumerate(table.key))
        same = " AND ".join(f"{one} IS k{number}" for number, one in enumerate(table.key))
        lost = f"SELECT * FROM (SELECT {key} FROM {table.name} LIMIT -1)"
        rows = run.execute(f"{lost} WHERE NOT EXISTS (SELECT 1 FROM {table.itself} WHERE {same})").fetchall()
        if rows:
            yield f"{table.name}: no {rows}"
        for index in table.indexes:
            listed = ", ".join((*index.columns, *table.key))
            query = f"SELECT {listed} FROM {table.name} {{}} WHERE {index.condition}"
            entries = run.execute(query.format(f"INDEXED BY {index.name}")).fetchall()
            meant = run.execute(query.format(table.itself.removeprefix(table.name))).fetchall()
            if Counter(entries) != Counter(meant):
                yield f"{index.name}: {len(entries)} entries, {len(meant)} rows"
    for (text,) in run.execute("PRAGMA integrity_check").fetchall():
        if text != "ok" and not text.startswith("non-unique"):
            yield text


def case(
    sound: bytes, directory: Path, name: str, way: IndexWay, seed: int, *, thorough: bool = False
) -> str:
    """What becomes of one damage."""
    (directory / FILE).write_bytes(sound)
    assert offline.spoil_index(directory, name, way, Random(seed)), f"{name} has no entry"
    try:
        with closing(opened(directory)) as run:
            before = thorough and list(hidden(run))
            run.execute("BEGIN")
            ledger = SqlLedger(run, OWN)
            found = compared(ledger)
            run.execute("COMMIT")
            if None in found:
                return "the file is salvaged"
            assert not list(hidden(run)), (name, way, seed, found)
            assert found or not before, before
            assert not thorough or not compared(ledger)
    except sums.IMPOSSIBLE:
        return "what a node begins with cannot be read: the file is set aside"
    except indexes.CannotRebuild:
        return "two rows have one key: the file is salvaged"
    except sqlite3.DatabaseError as error:
        if not is_corrupt(error):
            raise
        return "SQLite says so: the file is salvaged"
    return "built again" if found else "nothing is hidden"


def test_each_index_is_understood_as_sqlite_understands_it(sound: bytes, tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(sound)
    with closing(opened(tmp_path)) as run:
        found = indexes.tables(run)
        known = {row[0] for row in run.execute("SELECT name FROM sqlite_schema WHERE type = 'index'")}
        assert {one.name for table in found for one in table.indexes} == known
        assert {table.name for table in found} == {
            row[0]
            for row in run.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")
            if not row[0].startswith("sqlite_")
        }
        assert not compared(SqlLedger(run, OWN))


def plans(run: sqlite3.Connection, table: Table) -> Iterator[list[str]]:
    walks = [indexes._Rows(table, table.indexes), *(indexes._Entries(table, one) for one in table.indexes)]
    for walk in walks:
        query = "rows" if isinstance(walk, indexes._Rows) else "entries"
        order = table.key if isinstance(walk, indexes._Rows) else table.entry(walk.index)
        for place in (None, ("x",) * len(order)):
            for behind, values in searches(order, place):
                text = indexes.SQL[query].format(behind=behind, **walk.given())
                rows = run.execute(f"EXPLAIN QUERY PLAN {text}", (*values, 1)).fetchall()
                yield [row[3] for row in rows]


def test_a_part_reads_no_more_than_its_rows_and_looks_them_up_by_their_keys(
    sound: bytes, tmp_path: Path
) -> None:
    (tmp_path / FILE).write_bytes(sound)
    with closing(opened(tmp_path)) as run:
        for table in indexes.tables(run):
            for plan in plans(run, table):
                read, rest = plan[1], plan[2:]
                if "(message_id=?)" not in read:  # of a unique index: one row
                    assert not [step for step in rest if "TEMP B-TREE" in step], plan
                looked_up = [step for step in rest if step.startswith("SEARCH")]
                assert "PRIMARY KEY" in looked_up[0], plan
                assert not [step for step in rest if step.startswith("SCAN") and "subquery" not in step], plan


def test_a_round_finds_what_a_disk_made_of_any_index_or_table(sound: bytes, tmp_path: Path) -> None:
    names, ways = named(sound, tmp_path), tuple(IndexWay)
    ends = Counter(case(sound, tmp_path, name, ways[seed % 3], seed) for seed, name in enumerate(names))
    assert ends["built again"] >= sum(ends.values()) / 2, ends


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_a_round_finds_it_again_and_again(sound: bytes, tmp_path: Path, seed: int) -> None:
    for number, name in enumerate(named(sound, tmp_path)):
        for way in IndexWay:
            case(sound, tmp_path, name, way, 1000 * (seed + 1) + number, thorough=True)
