"""The sums that clear a message: each of them is there, and each alone makes a suspect of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from plainly import judged
from pyarrow import parquet
from resealing import event, resealed, rows
from resealing import logs as files_of

from shadowaudit.core.findings import Class
from shadowaudit.core.fingerprint import digest, key_of, weights
from shadowaudit.core.judge import LATE_DISCARD
from shadowaudit.core.verdict import VIOLATED
from shadowaudit.engine.merge import merged
from shadowaudit.generate.cluster import generate
from shadowaudit.logs.file import digest_file


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    generate(tmp_path / "logs", messages=40, faults={}, seed=5)
    return tmp_path / "logs"


def states(directory: Path) -> pa.Table:
    return pa.concat_tables([digest_file(path)[1] for path in files_of(directory)])


def summed(directory: Path, message: str) -> dict[str, int]:
    high, low = key_of(message)
    found = [row for row in states(directory).to_pylist() if (row["high"], row["low"]) == (high, low)]
    return {name: sum(row[name] for row in found) for name in ("owed", "balance", "residue", "ended")}


def test_what_came_in_and_did_not_go_out_is_the_balance_of_a_message(logs: Path) -> None:
    path, row = next((path, row) for path in files_of(logs) for row in rows(path) if event(row) == "DELIVER")
    message, count = row.split(b",")[11].decode(), int(row.split(b",")[15])
    assert summed(logs, message) | {"ended": 0} == {"owed": 0, "balance": 0, "residue": 0, "ended": 0}
    path.write_bytes(path.read_bytes().replace(row, b""))
    database = digest_file(path)[0].database
    named = row.partition(b"S:Recipients=")[2].split(b",")[0].split(b";")[0].decode()
    missing = [int(one) for one in named.split("+")] if named else range(1, count + 1)
    found = summed(logs, message)
    assert found["residue"] == count
    assert found["owed"] == weights(missing)
    assert found["balance"] == weights(missing, digest(database))


def test_a_holder_that_lets_go_of_other_recipients_than_it_held_is_seen_in_the_balance_alone(
    logs: Path,
) -> None:
    path, row = next(
        (path, row) for path in files_of(logs) for row in rows(path) if event(row) == "HADISCARD"
    )
    message, count = row.split(b",")[11].decode(), int(row.split(b",")[15])
    others = "+".join(str(number) for number in range(2, count + 2)).encode()
    place = row.index(b",,", row.index(b"S:Seq="))
    path.write_bytes(path.read_bytes().replace(row, row[:place] + b";S:Recipients=" + others + row[place:]))
    found = summed(logs, message)
    assert (found["owed"], found["residue"]) == (0, 0)
    assert found["balance"] != 0
    resealed(logs)
    verdict, classes = judged(logs)
    assert Class.INCONSISTENT in classes[message]
    assert verdict.status == VIOLATED


def more(name: str) -> Any:
    return lambda state: {name: state[name] + 1}


CHANGES: dict[str, Any] = {
    "accepted twice": more("received"),
    "begun twice": more("origins"),
    "a copy more was made than taken": more("redirects"),
    "a copy more was taken than made": more("holds"),
    "another one holds": more("holders"),
    "a recipient more was accepted": more("recipients"),
    "a recipient more was settled": more("ended"),
    "another recipient was settled": more("owed"),
    "another recipient is left somewhere": more("balance"),
    "one is left somewhere": more("residue"),
    "a row that sums do not understand": more("odd"),
    "the copy was made after the reception": lambda state: {"redirect_at": state["origin_at"] + 1},
    "the copy was made by another database": lambda state: {"redirect_db": state["origin_db"] - 1},
    "a copy was made by another database too": lambda state: {"redirect_db_last": state["origin_db"] + 1},
    "no copy was made": lambda _: {"redirects": 0, "holds": 0, "holders": 0, "redirect_at": None},
    "the copy was let go late": lambda state: {"discard_at": state["final_at"] + LATE_DISCARD + 1},
}


@pytest.mark.parametrize("change", CHANGES)
def test_one_sum_that_does_not_agree_makes_a_suspect(
    sail_session: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, logs: Path, change: str
) -> None:
    monkeypatch.setenv("SPARK_CONNECT_MODE_ENABLED", "1")
    table = states(logs)
    parquet.write_table(table, tmp_path / "all.parquet")
    frame = merged(sail_session, [str(tmp_path / "all.parquet")])
    clean = [row.asDict() for row in frame.limit(1).collect()]
    assert [row["suspect"] for row in clean] == [False]
    (state,) = clean
    unlike = {name: state.get(name, 0) for name in table.schema.names} | CHANGES[change](state) | {"path": ""}
    parquet.write_table(pa.Table.from_pylist([unlike], schema=table.schema), tmp_path / "one.parquet")
    assert [row["suspect"] for row in merged(sail_session, [str(tmp_path / "one.parquet")]).collect()] == [
        True
    ]
