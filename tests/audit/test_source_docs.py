"""The pages about events: columns, options and views are those of the code, and queries answer as they say.

One session of Spark runs each block of the page, from its beginning to its end.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from typed import SCHEMA

import shadowaudit
from shadowaudit.spark import places
from shadowaudit.spark.columns import COLUMNS
from shadowaudit.spark.event_rows import batches
from shadowaudit.spark.options import NAMES
from shadowaudit.spark.tables import store
from shadowaudit.spark.tables.ingest import Ingest
from shadowaudit.spark.views import EVENTS, VIEWS
from shadowaudit.summary.computing import summarize
from shadowaudit.summary.gold import read as read_gold
from shadowaudit.summary.model import Asked
from shadowlab.generate.cluster import generate

DOCS = Path(__file__).parents[2] / "docs"
HOW_TO, REFERENCE = DOCS / "how-to" / "spark.md", DOCS / "reference" / "events.md"
BLOCK = re.compile(r"^```(python|sql)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FAULTS = {"promotion": 5, "dropped-duplicate": 2, "exposed": 3}
ADDRESS = "user47246@example.com"
DELIVERIES = ("SEND", "SENDEXTERNAL", "DELIVER")

Row = dict[str, Any]


def blocks(language: str) -> list[str]:
    return [text for kind, text in BLOCK.findall(HOW_TO.read_text("utf-8")) if kind == language]


def table(page: Path, first: str) -> list[list[str]]:
    """The rows of the table that begins with that heading, without backquotes."""
    text = page.read_text("utf-8").partition(f"\n| {first} |")[2].partition("\n\n")[0]
    return [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in text.splitlines()[2:]]


def test_the_page_has_each_column_with_its_type_in_order() -> None:
    told = [
        (name.strip("`"), kind.strip("`")) for name, kind, _ in table(REFERENCE, "column | type | content")
    ]
    assert told == [(column.name, column.type) for column in COLUMNS]


def test_the_page_has_each_option() -> None:
    assert {row[0].strip("`") for row in table(REFERENCE, "option | default |")} == set(NAMES) - {"paths"}


def test_the_page_asks_five_questions_of_logs_and_of_tables() -> None:
    assert len(blocks("sql")) == 10


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the command of the page makes."""
    target = tmp_path_factory.mktemp("logs") / "tracking"
    generate(target, messages=1000, faults=FAULTS, seed=1)
    told = ",".join(f"{name}={count}" for name, count in FAULTS.items())
    assert f"shadowlab generate --messages 1000 --faults {told} tracking" in HOW_TO.read_text("utf-8")
    return target


@pytest.fixture(scope="module")
def read(logs: Path) -> pa.Table:
    found: list[Any] = []
    for log in places.find([str(logs)]):
        with places.opened(log) as file:
            found += batches(file, log.uri, SCHEMA)
    return pa.Table.from_batches(found)


def questions(events: list[Row]) -> list[str]:
    """The queries of the page, about an address that is in these logs."""
    asked = next(row["recipient_address"][0] for row in events if row["event_id"] == "FAIL")
    return [text.replace(ADDRESS, asked) for text in blocks("sql")]


def below_tables(text: str) -> bool:
    return "shadowaudit.tables(" in text


def rows(frame: Any) -> list[Row]:
    return [row.asDict(recursive=True) for row in frame.collect()]


def check_answers(answers: list[list[Row]], events: list[Row]) -> None:
    """Are these the answers to the five questions?"""
    volume, latency, address, promotions, bounces = answers
    received = [row for row in events if row["event_id"] == "RECEIVE"]
    hours: dict[Any, list[int]] = defaultdict(lambda: [0, 0, 0])
    for row in received:
        hour = hours[row["date_time"].replace(minute=0, second=0, microsecond=0, tzinfo=None)]
        for place, one in enumerate((1, len(row["recipient_address"]), row["total_bytes"])):
            hour[place] += one
    assert [
        (row["hour"].replace(tzinfo=None), [row["messages"], row["recipients"], row["octets"]])
        for row in volume
    ] == sorted(hours.items())

    began = {
        (row["database"], row["network_message_id"]): row["date_time"]
        for row in events
        if row["event_id"] in {"RECEIVE", "DSN"}
    }
    taken: dict[str, list[float]] = defaultdict(list)
    for row in events:
        if row["event_id"] in DELIVERIES and (row["database"], row["network_message_id"]) in began:
            passed = row["date_time"] - began[row["database"], row["network_message_id"]]
            taken[row["server_hostname"]].append(passed.total_seconds())
    assert {row["next_hop"]: row["deliveries"] for row in latency} == {k: len(v) for k, v in taken.items()}
    for row in latency:
        assert row["p95_seconds"] == pytest.approx(percentile(taken[row["next_hop"]], 0.95), abs=1e-6)

    (asked,) = {name for row in address for name in row["recipient_address"]}
    wanted = [row for row in events if asked in (row["recipient_address"] or [])]
    assert wanted
    assert Counter(row["network_message_id"] for row in address) == Counter(
        row["network_message_id"] for row in wanted
    )

    taken_over = Counter(
        row["node"] for row in events if row["event_id"] == "RESUBMIT" and row["source"] == "REDUNDANCY"
    )
    assert len(taken_over) > 1
    assert [(row["node"], row["messages"]) for row in promotions] == sorted(
        taken_over.items(), key=lambda one: (-one[1], one[0])
    )
    for entry, column in ("Owner", "owners"), ("Reason", "reasons"):
        named = {(row["node"], row["custom_data"][entry]) for row in events if row["event_id"] == "RESUBMIT"}
        assert {(row["node"], one) for row in promotions for one in row[column]} == named

    failed = [row for row in events if row["event_id"] == "FAIL"]
    assert failed
    assert sorted((row["network_message_id"], row["last_reply"]) for row in bounces) == sorted(
        (row["network_message_id"], row["source_context"]) for row in failed
    )


def check_tables(answers: list[list[Row]], of_logs: list[list[Row]]) -> None:
    """Do tables give the answers that logs give?"""
    volume, latency, address, promotions, bounces = of_logs
    hours, hops, recipients, taken_over, failed = answers
    assert hours == [{name: row[name] for name in ("hour", "messages", "octets")} for row in volume]
    exact = {row["next_hop"]: row for row in latency}
    assert hops
    assert exact.keys() == {row["next_hop"] for row in hops}
    for row in hops:
        other = exact[row["next_hop"]]
        assert row["deliveries"] == other["deliveries"]
        least = other["p95_seconds"]
        assert least <= row["p95_seconds"] <= least * 10 ** (1 / 20) + 0.001
    assert {row["network_message_id"] for row in recipients} == {row["network_message_id"] for row in address}
    assert taken_over == promotions
    assert {(row["network_message_id"], row["address"], row["reply"]) for row in failed} == {
        (row["network_message_id"], name, row["last_reply"])
        for row in bounces
        for name in row["recipient_address"]
    }


def percentile(values: list[float], share: float) -> float:
    """The least of them that this share does not exceed."""
    return sorted(values)[math.ceil(share * len(values)) - 1]


def check_zones(session: Any, events: Any) -> None:
    """Elsewhere, tables keep the days and hours of UTC, and events are cut in the session's zone."""
    was = session.conf.get("spark.sql.session.timeZone")
    assert was == "UTC"
    told = "count(DISTINCT hour) AS hours, min(minute(hour)) AS least, max(minute(hour)) AS most"
    session.conf.set("spark.sql.session.timeZone", "Asia/Kolkata")  # half an hour beside UTC
    try:
        (table,) = rows(session.sql(f"SELECT {told} FROM traffic"))
        cut = events.selectExpr("date_trunc('HOUR', date_time) AS hour")
        (of_events,) = rows(cut.selectExpr(*told.split(", ")))
        days = {row["day"] for row in rows(session.sql("SELECT DISTINCT day FROM events"))}
    finally:
        session.conf.set("spark.sql.session.timeZone", was)
    assert (table["least"], table["most"]) == (30, 30)
    assert (of_events["least"], of_events["most"]) == (0, 0)
    assert days == {
        row["day"] for row in rows(session.sql("SELECT DISTINCT to_date(date_time) AS day FROM events"))
    }


SUMMED = {
    "reasons": "event_id, next_hop, code, status, reply, sum(times) AS times, sum(recipients) AS recipients, "
    "min(example) AS example",
    "promotions": "node, owner, reason, sum(messages) AS messages",
    "domains": "side, domain, sum(messages) AS messages, sum(addresses) AS addresses, sum(octets) AS octets",
}


def sums(session: Any, name: str) -> list[Row]:
    """Of all days and nodes: of a view, and of the table that has its name."""
    return sorted(rows(session.sql(f"SELECT {SUMMED[name]} FROM {name} GROUP BY ALL")), key=repr)


def check_latencies(view: list[Row], latency: list[Row], hops: list[Row], uri: str) -> None:
    """Do logs, the view, the tables and the summary tell of the same deliveries, and of one p95?"""
    summary = summarize(read_gold(store.current(uri), Asked(top=100)), Asked(top=100))
    summed = {
        hop.next_hop: (hop.deliveries, round(hop.percentiles[95].below / 1000, 3)) for hop in summary.hops.top
    }
    assert {row["next_hop"]: (row["deliveries"], row["p95_seconds"]) for row in hops} == summed
    told = {row["next_hop"]: (row["deliveries"], row["p95_seconds"]) for row in latency}
    assert {row["next_hop"]: (row["deliveries"], round(row["p95"], 3)) for row in view} == told


def check_views(session: Any, events: list[Row]) -> None:
    told = {
        name.strip("`"): re.findall(r"`(\w+)`", columns) for name, _, columns in table(HOW_TO, VIEWS_TABLE)
    }
    assert list(told) == list(VIEWS)
    assert {name: session.table(name).columns for name in VIEWS} == told
    assert session.table(EVENTS).count() == len(events)
    kinds = Counter(row["event_id"] for row in events)
    traffic = rows(session.table("traffic"))
    sums = {name: sum(row[name] for row in traffic) for name in told["traffic"][2:]}
    assert sums == {
        "received": kinds["RECEIVE"],
        "octets": sum(row["total_bytes"] for row in events if row["event_id"] == "RECEIVE"),
        "delivered": sum(kinds[one] for one in DELIVERIES),
        "dropped_as_duplicates": kinds["DUPLICATEDELIVER"],
        "deferred": kinds["DEFER"],
        "failed": kinds["FAIL"],
        "promoted": kinds["RESUBMIT"],
        "exposed": sum("Replication" in (row["custom_data"] or {}) for row in events),
        "resubmitted": 0,
    }
    assert [name for name, many in sums.items() if not many] == ["resubmitted"]
    deliveries = rows(session.table("deliveries"))
    assert len(deliveries) == sums["delivered"]
    took_over = [row for row in deliveries if row["seconds"] is None]
    assert {row["network_message_id"] for row in took_over} <= {
        row["network_message_id"] for row in events if row["event_id"] == "RESUBMIT"
    }
    assert took_over
    for row in rows(session.table("latencies")):
        here = sorted(
            one["seconds"]
            for one in deliveries
            if one["next_hop"] == row["next_hop"] and one["seconds"] is not None
        )
        assert (row["deliveries"], row["longest"]) == (len(here), here[-1])
        told_of = {name: percentile(here, int(name[1:]) / 100) for name in ("p50", "p95", "p99")}
        assert {name: row[name] for name in told_of} == told_of
    reasons = {(row["event_id"], row["reply"]): row for row in rows(session.table("reasons"))}
    assert sum(row["times"] for row in reasons.values()) == kinds["DEFER"] + kinds["FAIL"]
    later = reasons["DEFER", "451 4.3.0 later"]
    assert (later["code"], later["status"], later["times"]) == ("451", "4.3.0", kinds["DEFER"])
    assert sum(row["messages"] for row in rows(session.table("promotions"))) == kinds["RESUBMIT"]
    sides = {(row["side"], row["domain"]): row for row in rows(session.table("domains"))}
    assert sides["sender", "example.org"]["messages"] == kinds["RECEIVE"]
    assert sides["recipient", "example.com"]["addresses"] == sum(
        len(row["recipient_address"]) for row in events if row["event_id"] == "RECEIVE"
    )


VIEWS_TABLE = "view | one row for each | columns"


RELATIVE = re.compile(r'"(tracking|tables|events\.parquet|checkpoint)"')


def follow(text: str, directory: Path, names: Row) -> None:
    """Run a block of the page.

    Relative paths begin where Spark was started, and other tests may have started it: here they are absolute.
    """
    code = RELATIVE.sub(lambda found: repr(str(directory / found[1])), text)
    exec(compile(code, str(HOW_TO), "exec"), names)


@pytest.fixture
def followed(spark_session: Any, logs: Path) -> Iterator[Row]:
    """The page's Python about logs, run from its beginning to its end; its names."""
    names: Row = {}
    for text in blocks("python"):
        if not below_tables(text):
            follow(text, logs.parent, names)
    yield names
    for query in spark_session.streams.active:
        query.stop()


@pytest.mark.slow
@pytest.mark.timeout(900)  # a minute, where nothing else runs
def test_who_follows_the_page_gets_these_answers(followed: Row, logs: Path, read: pa.Table) -> None:
    spark, events = followed["spark"], read.to_pylist(maps_as_pydicts="strict")
    assert followed["events"].count() == len(events)
    asked = questions(events)
    of_logs = [rows(spark.sql(text)) for text in asked[:5]]
    check_answers(of_logs, events)
    check_views(spark, events)
    view = rows(spark.table("latencies"))
    by_day = {name: sums(spark, name) for name in ("reasons", "promotions", "domains")}
    written = spark.read.parquet(str(logs.parent / "events.parquet"))
    assert written.count() == written.dropDuplicates(["database", "sequence"]).count() == len(events)

    (told,) = Ingest.opened(spark, str(logs.parent / "tables")).batch(
        places.find([str(logs)]), lambda: datetime.now(UTC)
    )
    assert told.events == len(events)
    (text,) = filter(below_tables, blocks("python"))
    follow(text, logs.parent, followed)
    assert spark.table("events").drop("day").columns == [column.name for column in COLUMNS]
    assert spark.table("events").count() == len(events)
    of_tables = [rows(spark.sql(text)) for text in asked[5:]]
    check_tables(of_tables, of_logs)
    check_latencies(view, of_logs[1], of_tables[1], str(logs.parent / "tables"))
    assert {name: sums(spark, name) for name in by_day} == by_day
    check_zones(spark, followed["events"])


@pytest.mark.slow
def test_latencies_are_of_deliveries_that_have_one_and_the_p95_is_one_of_them(spark_session: Any) -> None:
    began = datetime(2026, 11, 21, 10, tzinfo=UTC)
    given: list[Row] = [{"event_id": "DELIVER", "network_message_id": "of another node", "date_time": began}]
    for second in range(1, 21):
        one = {"database": "d", "network_message_id": str(second)}
        given.append({**one, "event_id": "RECEIVE", "date_time": began})
        given.append({**one, "event_id": "DELIVER", "date_time": began + timedelta(seconds=second)})
    shadowaudit.views(spark_session.createDataFrame(pa.Table.from_pylist(given, schema=SCHEMA)))
    (row,) = rows(spark_session.table("latencies"))
    assert (row["deliveries"], row["p50"], row["p95"], row["p99"], row["longest"]) == (20, 10, 19, 20, 20)


@pytest.mark.slow
def test_a_bounce_of_exchange_has_its_reply_in_the_status(spark_session: Any) -> None:
    status = "[{LRT=2026-11-21T10:00:00Z};{LED=550 5.1.1 unknown};{FQDN=};{IP=}]"
    given = {
        "event_id": "FAIL",
        "recipient_status": [status],
        "recipient_address": ["a@x"],
        "source_context": "9",
    }
    one = pa.Table.from_pylist([given], schema=SCHEMA)
    shadowaudit.views(spark_session.createDataFrame(one))
    (row,) = rows(spark_session.table("reasons"))
    assert (row["reply"], row["code"], row["status"]) == ("550 5.1.1 unknown", "550", "5.1.1")
