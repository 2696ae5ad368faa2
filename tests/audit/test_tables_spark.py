"""The tables that Spark makes of logs: beside plain Python, in any order, from a stream, after a kill."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
import told
from buckets import bucket
from pyarrow import fs
from resealing import logs as files_of
from test_audit_exchange import log as exchange_log
from test_audit_exchange import row as exchange_row
from typed import SCHEMA, read

import shadowaudit
from shadowaudit.logs.file import digest_file
from shadowaudit.spark import places
from shadowaudit.spark.columns import COLUMNS
from shadowaudit.spark.tables import silver, store
from shadowaudit.spark.tables.ingest import Ingest, Told
from shadowaudit.spark.tables.publishing import Run, TakenError, sweep
from shadowaudit.spark.tables.schemas import GOLD, TABLES
from shadowaudit.spark.tables.stream import follow
from shadowlab.generate.cluster import generate
from shadowlab.generate.stories import FAULTS

pytestmark = pytest.mark.slow  # Spark makes the tables

Row = dict[str, Any]

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "tables.md"


def now() -> datetime:
    return datetime.now(UTC)


KINDS = [
    "RECEIVE", "DSN", "HAREDIRECT", "HARECEIVE", "HADISCARD", "RESUBMIT", "SEND", "SENDEXTERNAL", "DELIVER",
    "DUPLICATEDELIVER", "FAIL", "DEFER", "EXPAND", "REDIRECT", "EXPIRE", "DROP", "LOAD",
]  # fmt: skip
BEGAN = datetime(2026, 11, 20, 22, tzinfo=UTC)


def event(chance: random.Random, number: int) -> Row:
    """Any event about one of a few messages; what belongs together in logs need not here."""
    exchange = chance.random() < 0.3
    people = chance.sample(["a@x.test", "B@x.test", "c", "d@y.test"], chance.randrange(4))
    node = chance.choice(["mx1", "mx2", "mx3"])
    entries = {"Content": "c1", "Envelope": "e1", "Replication": "Failed", "Owner": "mx9"}
    replies = ["[{LED=550 5.1.1 no};{FQDN=}]", "250 2.1.5 OK", "[{LRT=2026};{LED=};{IP=}]"]
    row: Row = dict.fromkeys(SCHEMA.names)
    return row | {
        "file": f"/logs/{node}/{'ex' if exchange else 'our'}",
        "line": number,
        "software": "exchange" if exchange else "shadowrelay",
        "node": node,
        "database": None if exchange else f"db-{node}",
        "incarnation": None if exchange else "i",
        "sequence": None if exchange else number,
        "epoch": None if exchange else chance.randrange(1, 4),
        "date_time": chance.choice([BEGAN + timedelta(milliseconds=chance.randrange(10_000_000)), BEGAN]),
        "server_hostname": chance.choice(["hop1", "hop2", "mx1", None]),
        "source_context": chance.choice(["250 2.0.0 OK", "451 4.3.0 later", None]),
        "source": chance.choice(["SMTP", "REDUNDANCY", "ROUTING", "SAFETYNET", "AGENT", None]),
        "reference": chance.choice([f"id-{number % 300}", None]),
        "event_id": chance.choice(KINDS),
        "message_id": f"<m{number % 7}>",
        "network_message_id": chance.choice([f"id-{number % 400}", f"id-{number % 400}", None]),
        "recipient_address": [chance.choice([one, one.replace("x.test", "X.Test")]) for one in people]
        or None,
        "recipient_status": [chance.choice(replies) for _ in people[: chance.randrange(4)]] or None,
        "related_recipient_address": chance.choice([["a@x.test", "list@x.test"], ["list@x.test"], None]),
        "total_bytes": chance.choice([None, chance.randrange(9_000)]),
        "message_subject": chance.choice([None, f"subject {number}"]),
        "sender_address": chance.choice([None, "<>", "s@x.test"]),
        "custom_data": {name: text for name, text in entries.items() if chance.random() < 0.3} or None,
    }


def random_events(seed: int) -> list[Row]:
    """Also rows that other files tell, too, and rows that are none."""
    chance = random.Random(seed)
    rows = [event(chance, number) for number in range(1, 3000)]
    again = [row | {"file": row["file"] + "-again"} for row in chance.sample(rows, 300)]
    twice = [
        row | {"line": row["line"] + 10_000} for row in chance.sample(rows, 50) if row["sequence"] is None
    ]
    bad = [
        row | {name: None}
        for row, name in zip(chance.sample(rows, 40), ["date_time", "event_id"] * 20, strict=True)
    ]
    bad = [row | {"sequence": None, "line": row["line"] + 20_000} for row in bad]
    return [*rows, *again, *twice, *bad]


def table(frame: Any) -> list[Row]:
    found: list[Row] = frame.toArrow().to_pylist(maps_as_pydicts="strict")
    return found


def test_messages_are_what_plain_python_makes_of_the_same_events(spark_session: Any) -> None:
    spark_session.conf.set("spark.sql.session.timeZone", "UTC")
    rows = random_events(seed=5)
    doubtful = sorted({row["file"] for row in rows})
    frame = spark_session.createDataFrame(pa.Table.from_pylist(rows, schema=SCHEMA))
    counted = silver.once(frame, doubtful)
    found = table(silver.messages(counted).select(*TABLES["messages"].names).orderBy("network_message_id"))
    expected = told.messages(told.once(rows))
    assert len(expected) > 400
    assert sum(one["original"] is not None for one in expected) > 10
    for one, other in zip(found, expected, strict=True):
        assert one == other


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of three nodes with faults of all kinds around midnight, and of a server of Exchange."""
    target = tmp_path_factory.mktemp("logs") / "tracking"
    generate(target, messages=150, faults=dict.fromkeys(FAULTS, 1), seed=4, file_size=40_000)
    exchange_log(
        target / "EX01", 2013, [exchange_row(2013, "RECEIVE"), "no row", exchange_row(2013, "DELIVER")]
    )
    return target


@pytest.fixture(scope="module")
def expected(logs: Path) -> list[Row]:
    return [row for path in files_of(logs) for row in read(path)]


def batch(spark: Any, uri: str, where: Path, **how: Any) -> list[Told]:
    keeping = Ingest.opened(spark, uri)
    return list(keeping.batch(places.find([str(where)]), now, **how))


def state(uri: str, directory: str = "") -> dict[str, list[str]]:
    """All rows of all tables, in an order that does not depend on how they came there."""
    found = store.current(uri)
    tables = {}
    for name in TABLES:
        rows = found.dataset(name).to_table().to_pylist(maps_as_pydicts="strict")
        for row in rows:
            row.pop("modified", None)
        tables[name] = sorted(json.dumps(row, default=str).replace(directory, "") for row in rows)
    return tables


@pytest.fixture(scope="module")
def whole(spark_session: Any, logs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tables of all logs at once."""
    tables = tmp_path_factory.mktemp("tables") / "tables"
    (one,) = batch(spark_session, str(tables), logs)
    assert (one.version, one.logs) == (1, len(files_of(logs)))
    facts = [digest_file(path)[0] for path in files_of(logs)]
    assert one.events == sum(each.rows + each.unreadable for each in facts), "as verify counts them"
    assert list(one.unread.values()) == [1], "a row of Exchange's log is none"
    assert str(logs / "EX01") in next(iter(one.unread))
    (none,) = batch(spark_session, str(tables), logs)
    assert none == Told(1)
    return tables


def test_the_tables_of_logs_have_their_events_messages_and_sums(
    spark_session: Any, whole: Path, expected: list[Row]
) -> None:
    current = store.current(str(whole))
    names = [column.name for column in COLUMNS]
    events = current.dataset("events").to_table().select(names).to_pylist(maps_as_pydicts="strict")
    assert sorted(map(str, events)) == sorted(map(str, expected))
    rows = told.once(expected)
    found = current.dataset("messages").to_table().to_pylist()
    assert sorted(found, key=lambda row: row["network_message_id"]) == told.messages(rows)

    files = {row["file"]: row for row in current.dataset("files").to_table().to_pylist()}
    kinds = Counter(row["event_id"] for row in expected)
    for path in {row["file"] for row in expected}:
        own = [row for row in expected if row["file"] == path]
        assert files[path]["events"] == sum(row["line"] is not None for row in own)
        assert files[path]["problems"] == sum(row["problem"] is not None for row in own)
        assert files[path]["size"] == Path(path).stat().st_size
    sums = {name: current.dataset(name).to_table().to_pylist() for name in GOLD}
    traffic = sums["traffic"]
    assert sum(row["received"] for row in traffic) == sum(map(told.received, rows)) < kinds["RECEIVE"]
    assert sum(row["resubmitted"] for row in traffic) == sum(map(told.resubmits, rows)) > 0
    assert sum(row["deferred"] for row in traffic) == kinds["DEFER"]
    assert sum(row["times"] for row in sums["reasons"]) == kinds["DEFER"] + kinds["FAIL"]
    sized = [row["total_bytes"] for row in rows if told.received(row) and row["total_bytes"]]
    assert sum(row["messages"] for row in sums["sizes"]) == len(sized)
    assert sum(row["octets"] for row in sums["sizes"]) == sum(sized) == sum(row["octets"] for row in traffic)
    promoted = sum(map(told.promotes, rows))
    assert sum(row["messages"] for row in sums["promotions"]) == promoted > 0
    passed = {
        (row["day"], row["node"], row["next_hop"], row["step"]): row["deliveries"]
        for row in sums["latencies"]
    }
    assert passed == told.latencies(rows)

    shown = shadowaudit.tables(spark_session, str(whole))
    assert shown.version == 1
    for name in TABLES:
        rows = current.place.table(name, current.versions[name]).to_pyarrow_dataset()
        assert duckdb.sql("SELECT count(*) FROM rows").fetchall() == [(rows.count_rows(),)]
        assert spark_session.table(name).count() == rows.count_rows()
        assert spark_session.table(name).count() == current.dataset(name).to_table().num_rows, name
    settled = {(row["network_message_id"], one["address"]) for row in found for one in row["recipients"]}
    seen = spark_session.table("recipients").select("network_message_id", "address").collect()
    assert {tuple(row) for row in seen} == settled


def test_the_rule_of_the_page_is_enough_for_duckdb_and_pandas(
    whole: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = PAGE.read_text("utf-8").split("```python\n")[1:]
    blocks = [text.partition("```")[0] for text in page]
    monkeypatch.chdir(whole.parent)
    names: Row = {}
    for text in blocks[1:]:  # the first one needs a Spark of its own
        exec(compile(text, str(PAGE), "exec"), names)
    owners = Counter(
        row["owner"] for row in store.current("tables").dataset("messages").to_table().to_pylist()
    )
    assert dict(names["owners"].fetchall()) == owners
    assert len(names["traffic"]) == store.current("tables").rows("traffic")


def test_a_condition_on_the_day_reads_the_files_of_that_day_alone(
    spark_session: Any, whole: Path, tmp_path: Path
) -> None:
    tables = tmp_path / "tables"
    shutil.copytree(whole, tables)
    current = store.current(str(tables))
    days = Counter(row["day"] for row in current.dataset("messages").to_table(["day"]).to_pylist())
    one = min(days)
    assert len(days) > 1
    for path in (tables / "messages").glob("day=*"):
        if path.name != f"day={one}":
            shutil.rmtree(path)
    asked = "SELECT count(*) FROM messages WHERE day = DATE '{}'"
    messages = current.place.table("messages", current.versions["messages"]).to_pyarrow_dataset()
    assert duckdb.sql(asked.format(one)).fetchall() == [(days[one],)]
    assert current.dataset("messages", since=str(one), until=str(one)).count_rows() == days[one]
    with pytest.raises(Exception, match="No such file"):
        duckdb.sql("SELECT max(subject) FROM messages").fetchall()
    del messages
    here = {f"file://{tables}/messages/{file.path}" for file in current.files("messages", str(one), str(one))}
    shadowaudit.tables(spark_session, str(whole))
    found = spark_session.sql(asked.format(one).replace("count(*)", "DISTINCT input_file_name()")).collect()
    assert {row[0].replace(str(whole), str(tables)) for row in found} == here


def test_earlier_versions_are_views_of_spark(spark_session: Any, logs: Path, tmp_path: Path) -> None:
    uri = str(tmp_path / "tables")
    for where in (logs / "mx1", logs):
        batch(spark_session, uri, where)
    counts = []
    for version in (1, 2, None):
        assert shadowaudit.tables(spark_session, uri, version=version).version == (version or 2)
        counts.append(spark_session.table("events").count())
    assert counts[0] < counts[1] == counts[2]
    assert counts == [store.current(uri, version).rows("events") for version in (1, 2, None)]


def bring(paths: Sequence[Path], logs: Path, to: Path, *, cut: bool = False) -> None:
    """Copy these logs; ``cut``: as they were when their last row was not written yet."""
    for path in paths:
        copy = to / path.relative_to(logs)
        copy.parent.mkdir(parents=True, exist_ok=True)
        octets = path.read_bytes()
        copy.write_bytes(octets[: octets.rindex(b"\n", 0, -1) + 1] if cut else octets)


def shuffled(logs: Path) -> list[Path]:
    order = files_of(logs)
    random.Random(7).shuffle(order)
    return order


def test_logs_that_come_late_and_one_that_grew_give_the_tables_of_all(
    spark_session: Any, whole: Path, logs: Path, tmp_path: Path
) -> None:
    some, uri, order = tmp_path / "some" / "tracking", str(tmp_path / "tables"), shuffled(logs)
    bring(order[: len(order) // 2], logs, some)
    bring([path for path in order if "EX01" in str(path)], logs, some, cut=True)  # Exchange writes it
    batch(spark_session, uri, some)
    bring(order, logs, some)
    batch(spark_session, uri, some)
    assert state(uri, str(some)) == state(str(whole), str(logs))


def test_a_stream_and_files_that_are_read_again_give_the_tables_of_all(
    spark_session: Any, whole: Path, logs: Path, tmp_path: Path
) -> None:
    right, some, uri = state(str(whole), str(logs)), tmp_path / "some" / "tracking", str(tmp_path / "tables")
    order = shuffled(logs)
    bring(order, logs, some)
    turns: list[Told] = []

    def ended(_: float) -> bool:
        return sum(one.logs for one in turns) >= len(order)

    stream = Ingest.opened(spark_session, uri)
    follow(stream, [str(some)], turns.append, seconds=0.1, files=len(order) // 2 + 1, ended=ended)
    assert [one.version for one in turns] == [1, 2]
    assert state(uri, str(some)) == right
    files = places.find([str(some)])
    stream.fold(spark_session.read.format("message_tracking").load(str(some / "mx1")), files, now())
    assert state(uri, str(some)) == right


def test_tables_and_logs_in_a_bucket_are_like_those_in_a_directory(
    spark_session: Any, whole: Path, logs: Path
) -> None:
    with bucket("audit") as query:
        system, _ = fs.FileSystem.from_uri(f"s3://audit?{query}")
        copied = {"source_filesystem": fs.LocalFileSystem(), "destination_filesystem": system}
        fs.copy_files(str(logs), "audit/tracking", **copied)
        # Spark's processes began before: what they need to know stands in the URI.
        base = "s3://audit:secret@audit"
        uri = f"{base}/tables?{query}"
        for part in ("mx1", ""):
            list(
                Ingest.opened(spark_session, uri).batch(places.find([f"{base}/tracking/{part}?{query}"]), now)
            )
        found = state(uri, "s3://audit/tracking")
        assert found == state(str(whole), str(logs))
        shadowaudit.tables(spark_session, uri)
        assert spark_session.table("messages").count() == len(found["messages"])
        assert "secret" not in json.dumps(found)


def test_a_run_that_comes_too_late_says_so_and_takes_its_files_with_it(
    spark_session: Any, logs: Path, tmp_path: Path
) -> None:
    uri = str(tmp_path / "tables")

    def faster(text: str) -> Any:
        if text == "Writing sums":
            Run.begun(store.Place.of(uri), now()).publish()
        return nullcontext()

    keeping = Ingest.opened(spark_session, uri, faster)
    with pytest.raises(TakenError, match="another run has published version 1"):
        list(keeping.batch(places.find([str(logs / "mx1")]), now))
    assert (store.current(uri).version, state(uri)) == (1, {name: [] for name in TABLES})
    run = Run.begun(store.Place.of(uri), now())
    run.keep(0)
    run.publish()
    sweep(run.base.place)
    assert list(tmp_path.rglob("*.parquet")) == []


@pytest.mark.timeout(900)
def test_a_command_that_is_killed_leaves_the_last_good_state_and_the_next_one_completes(
    spark_session: Any, logs: Path, whole: Path, tmp_path: Path
) -> None:
    tables = tmp_path / "tables"
    command = [sys.executable, "-m", "shadowaudit", "ingest", "--tables", str(tables), "--memory", "512m"]

    def run(where: Path, note: str = "") -> str:
        done = subprocess.run(
            [*command, str(where)], capture_output=True, text=True, timeout=1000, check=False
        )
        assert done.returncode == 0, done.stderr
        assert note in done.stderr
        return done.stdout

    batch(spark_session, str(tables), logs / "mx1")
    before = state(str(tables))
    killed = subprocess.Popen([*command, str(logs)], stdout=-1, stderr=-1, start_new_session=True)
    end = time.monotonic() + 1000
    while not (tables / "messages/_delta_log/00000000000000000002.json").exists():
        assert killed.poll() is None, killed.communicate()
        assert time.monotonic() < end
    os.killpg(killed.pid, signal.SIGKILL)
    killed.communicate()
    assert store.current(str(tables)).version == 1
    assert state(str(tables)) == before
    said = run(logs, f"note: 1 row could not be read, and no sum has it: {logs / 'EX01'}")
    assert re.search(r"Spark 4\.\d: \d+ files → ", said)
    assert state(str(tables)) == state(str(whole))
    assert "nothing new" in run(logs)
