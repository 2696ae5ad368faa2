"""``shadowaudit summary``: the numbers are those of the tables, and all who read them are told the same."""

from __future__ import annotations

import json
import math
import shutil
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import asdict
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from buckets import bucket
from click.testing import CliRunner, Result
from gold import Rows, by_day, publish, tables
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pyarrow import fs, parquet

from shadowaudit.cli import main
from shadowaudit.spark.tables import store
from shadowaudit.summary import steps, sums, units
from shadowaudit.summary.computing import summarize
from shadowaudit.summary.gold import Gold, read
from shadowaudit.summary.model import FLOWS, Asked, Summary
from shadowaudit.summary.page import page
from shadowaudit.summary.text import lines

BEGIN = date(2026, 11, 20)
MIDNIGHT = datetime(2026, 11, 20, tzinfo=UTC)
REASON = ("next_hop", "code", "status", "reply")
EXPECTED = Path(__file__).with_name("summary.txt")


def summary_of(rows: Rows, **asked: Any) -> Summary:
    return summarize(Gold(tables(rows)), Asked(**asked))


# A small set.


def hour(day: int, number: int, node: str, **flow: int) -> dict[str, Any]:
    moment = datetime(2026, 11, day, number, tzinfo=UTC)
    return {"hour": moment, "node": node, **dict.fromkeys(FLOWS, 0), **flow}


SMALL: dict[str, list[dict[str, Any]]] = {
    "traffic": [
        hour(20, 9, "mx1", received=100, octets=5_000_000, delivered=98, deferred=4, failed=1),
        hour(20, 10, "mx2", received=50, octets=2_500_000, delivered=50, promoted=3, exposed=2)
        | {"resubmitted": 7},
        hour(22, 9, "mx1", received=10, octets=100_000, delivered=12, dropped_as_duplicates=1),
    ],
    "domains": [
        {"day": BEGIN, "node": "mx1", "side": side, "domain": domain, "messages": many, "addresses": more,
         "octets": many * 50_000}
        for side, domain, many, more in (
            ("recipient", "example.com", 90, 140), ("recipient", "example.org", 70, 70),
            ("recipient", "example.net", 70, 71), ("sender", "example.com", 160, 160),
        )
    ],
    "sizes": [
        {"day": BEGIN, "node": "mx1", "step": step, "messages": many, "octets": many * 3 * 2**step // 2}
        for step, many in ((12, 40), (15, 100), (20, 20))
    ],
    "latencies": [
        {"day": BEGIN, "node": "mx1", "next_hop": hop, "step": step, "deliveries": many}
        for hop, step, many in (("mailbox", 20, 90), ("mailbox", 60, 10), ("mx.test", 70, 59), (None, 0, 1))
    ],
    "reasons": [
        {"day": BEGIN, "node": "mx1", "event_id": "DEFER", "next_hop": "mx.test", "code": "451",
         "status": "4.7.1", "reply": "451 4.7.1 later", "times": 3, "recipients": 4, "example": "id-2"},
        {"day": BEGIN, "node": "mx2", "event_id": "DEFER", "next_hop": None, "code": None, "status": None,
         "reply": "connection refused", "times": 1, "recipients": 1, "example": "id-1"},
        {"day": BEGIN, "node": "mx1", "event_id": "FAIL", "next_hop": "mx.test", "code": "550",
         "status": "5.1.1", "reply": "550 5.1.1 nobody", "times": 1, "recipients": 1, "example": "id-3"},
    ],
    "promotions": [{"day": BEGIN, "node": "mx2", "owner": "mx1", "reason": "OwnerSilent", "messages": 3}],
    "findings": [
        {"severity": severity, "class": name, "id": str(number), "node": "mx1"}
        for number, (severity, name) in enumerate(
            [("note", "exposed")] * 2 + [("violation", "lost")] + [("note", "promoted-rightly")] * 3
        )
    ],
    "files": [
        {"file": f"{number}.LOG", "problems": problems} for number, problems in enumerate((3, 0, 1, None))
    ],
}  # fmt: skip
VERDICT = {"status": 1, "made_at": "2026-11-25T10:30:00+00:00", "files": 3, "totals": {"messages": 160}}
MESSAGES = pa.table({"network_message_id": [str(number) for number in range(161)]})


# Random tables, and the same sums row by row.

counts = st.integers(0, 1 << 40)
names = st.sampled_from(["a.test", "b.test", "c.test", None])
days = st.integers(0, 5).map(lambda number: BEGIN + timedelta(number))
nodes = st.sampled_from(["mx1", "mx2"])


def rows_of(**columns: Any) -> Any:
    return st.lists(st.fixed_dictionaries(columns), max_size=12)


GOLD = st.fixed_dictionaries(
    {
        "traffic": rows_of(
            hour=st.integers(0, 140).map(lambda one: MIDNIGHT + timedelta(hours=one)),
            node=nodes, **{name: counts | st.none() for name in FLOWS},
        ),
        "domains": rows_of(day=days, node=nodes, side=st.sampled_from(["sender", "recipient"]), domain=names,
                           messages=counts, addresses=counts, octets=counts),
        "sizes": rows_of(day=days, node=nodes, step=st.integers(0, 30), messages=st.integers(1, 9),
                         octets=counts),
        "latencies": rows_of(day=days, node=nodes, next_hop=names, step=st.integers(0, 140),
                             deliveries=st.integers(1, 9)),
        "reasons": rows_of(day=days, node=nodes, event_id=st.sampled_from(["DEFER", "FAIL"]), next_hop=names,
                           code=st.sampled_from(["451", None]), status=st.none(),
                           reply=st.sampled_from(["451 later", "nobody", None]), times=counts,
                           recipients=counts, example=st.sampled_from(["1", "2", None])),
        "promotions": rows_of(day=days, node=nodes, owner=names, reason=names, messages=counts),
    }
)  # fmt: skip


def summed(
    rows: Iterable[dict[str, Any]], keys: Iterable[str], *measures: str
) -> dict[tuple[Any, ...], list[int]]:
    found: dict[tuple[Any, ...], list[int]] = defaultdict(lambda: [0] * len(measures))
    for row in rows:
        for place, name in enumerate(measures):
            found[tuple(row[key] for key in keys)][place] += row[name] or 0
    return dict(found)


def quantile(histogram: Counter[int], percent: int) -> int:
    values = sorted(histogram.elements())
    return values[math.ceil(percent * len(values) / 100) - 1]


@settings(max_examples=60, deadline=None)
@given(GOLD, st.integers(1, 4), st.sampled_from([None, "mx1"]))
@example({name: rows for name, rows in SMALL.items() if name != "findings"}, 1, None)
def test_the_numbers_are_those_of_the_rows(rows: dict[str, Any], top: int, node: str | None) -> None:
    if node is not None and not any(row["node"] == node for row in rows["traffic"]):
        node = None
    told = summary_of(rows, top=top, node=node)
    if node is not None:
        rows = {name: [row for row in some if row["node"] == node] for name, some in rows.items()}
    traffic = [row | {"day": row["hour"].date(), "of_day": row["hour"].hour} for row in rows["traffic"]]
    for key, found in (("day", told.days), ("node", told.nodes), ("of_day", told.of_day)):
        expected = {one: flow for (one,), flow in summed(traffic, [key], *FLOWS).items()}
        assert {
            one: list(asdict(flow).values()) for one, flow in found.items() if one in expected
        } == expected
        assert all(not any(asdict(flow).values()) for one, flow in found.items() if one not in expected)
    assert list(asdict(told.totals).values()) == [sum(row[name] or 0 for row in traffic) for name in FLOWS]
    for side, domains in (("sender", told.senders), ("recipient", told.recipients)):
        of_side = [row for row in rows["domains"] if row["side"] == side]
        every = summed(of_side, ["domain"], "messages", "addresses", "octets")
        order = sorted(every.items(), key=lambda one: (-one[1][0], one[0][0] is None, one[0][0] or ""))
        assert [(one.domain, one.messages, one.addresses, one.octets) for one in domains.top] == [
            (name or "", *some) for (name,), some in order[:top]
        ]
        assert (domains.all, domains.addresses) == (len(every), sum(some[1] for some in every.values()))
    assert told.sizes.steps == {
        step: (messages, octets)
        for (step,), (messages, octets) in sorted(
            summed(rows["sizes"], ["step"], "messages", "octets").items()
        )
    }
    hops: dict[Any, Counter[int]] = defaultdict(Counter)
    for row in rows["latencies"]:
        hops[row["next_hop"]][row["step"]] += row["deliveries"]
    order = sorted(hops, key=lambda hop: (-hops[hop].total(), hop is None, hop or ""))
    assert [one.next_hop for one in told.hops.top] == order[:top]
    assert told.hops.all == len(hops)
    for hop, histogram in [*((one, hops[one.next_hop]) for one in told.hops.top),
                           (told.hops.together, sum(hops.values(), Counter()))]:  # fmt: skip
        assert hop.steps == histogram
        assert hop.deliveries == histogram.total()
        expected = {p: steps.latency(quantile(histogram, p)) for p in (50, 95, 99)} if histogram else {}
        assert hop.percentiles == expected
    for event, reasons in (("DEFER", told.deferrals), ("FAIL", told.bounces)):
        of_event = [row for row in rows["reasons"] if row["event_id"] == event]
        every = summed(of_event, REASON, "times", "recipients")
        assert (reasons.all, reasons.times) == (len(every), sum(row["times"] for row in of_event))
        assert reasons.recipients == sum(row["recipients"] for row in of_event)
        assert len(reasons.top) == min(top, len(every))
        assert [one.times for one in reasons.top] == sorted(
            (some[0] for some in every.values()), reverse=True
        )[:top]
        for one in reasons.top:
            key = (one.next_hop, one.code, one.status, one.reply)
            assert [one.times, one.recipients] == every[key]
            same = [row for row in of_event if key == tuple(row[name] for name in REASON)]
            examples = [row["example"] for row in same if row["example"]]
            assert one.example == max(examples, default=None)
    assert {(one.node, one.owner, one.reason): [one.messages] for one in told.promotions} == summed(
        rows["promotions"], ["node", "owner", "reason"], "messages"
    )


@given(st.dictionaries(st.integers(0, 140), st.integers(1, 50), min_size=1), st.integers(1, 100))
def test_a_percentile_is_the_step_of_the_value_with_its_rank(histogram: dict[int, int], percent: int) -> None:
    assert steps.percentile(histogram, percent) == quantile(Counter(histogram), percent)


@given(st.floats(0, 1e9))
def test_the_edges_of_a_step_of_time_hold_the_times_that_are_counted_there(milliseconds: float) -> None:
    between = steps.latency(math.floor(math.log10(milliseconds + 1) * 20))
    slack = 1e-9 * (milliseconds + 1)
    assert between.least - slack <= milliseconds < between.below + slack


@given(st.integers(0, 1 << 40))
def test_the_edges_of_a_step_of_sizes_hold_the_sizes_that_are_counted_there(octets: int) -> None:
    between = steps.size(max(octets, 1).bit_length() - 1)
    assert between.least <= octets < between.below


def test_many_combinations_of_keys_are_numbered_by_those_that_there_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = {"promotions": [
        {"day": BEGIN, "node": f"mx{number % 7}", "owner": f"mx{number % 5}", "reason": f"{number % 3}",
         "messages": number}
        for number in range(200)
    ]}  # fmt: skip
    known = sums.summed(tables(rows)["promotions"], ["node", "owner", "reason"], ["messages"]).to_pylist()
    monkeypatch.setattr(sums, "_MANY", 20)
    few = sums.summed(tables(rows)["promotions"], ["node", "owner", "reason"], ["messages"]).to_pylist()
    assert sorted(few, key=str) == sorted(known, key=str)
    assert sum(row["messages"] for row in few) == sum(range(200))


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["summary", *map(str, arguments)])


@pytest.fixture
def small(tmp_path: Path) -> Path:
    made = [*by_day(SMALL), (BEGIN, {"messages": MESSAGES})]
    return publish(tmp_path / "tables", made, verdict=VERDICT)


def test_the_text_is_in_the_order_of_pflogsumm(small: Path) -> None:
    result = run("--tables", small, "--top", 2)
    assert result.exit_code == 0, result.output
    assert result.output.replace(str(small), "TABLES") == EXPECTED.read_text("utf-8")


def test_json_has_the_same_numbers(small: Path) -> None:
    told = json.loads(run("--tables", small, "--json").output)
    assert told["tables"] == str(small)
    assert told["version"] == 1
    assert told["totals"]["received"] == 160
    assert told["days"]["2026-11-21"]["received"] == 0
    assert told["unread"] == {"rows": 4, "files": 2}
    assert told["verdict"] == {
        "made_at": "2026-11-25T10:30:00+00:00", "files": 3, "messages": 160, "more": 1,
    }  # fmt: skip
    assert told["hops"]["top"][0]["percentiles"]["95"] == {"least": 999.0, "below": 1121.018}
    assert told["bounces"]["top"][0]["reply"] == "550 5.1.1 nobody"
    one_day = json.loads(run("--tables", small, "--json", "--until", "2026-11-21").output)
    assert one_day["hours"]["2026-11-20T10:00Z"]["exposed"] == 2


def test_what_is_published_is_read_as_it_was(small: Path) -> None:
    asked = Asked(top=3)
    expected = summarize(Gold(tables(SMALL), VERDICT, len(MESSAGES)), asked)
    assert summarize(read(store.current(str(small)), asked), asked) == expected


def test_tables_in_a_bucket_are_read(small: Path) -> None:
    with bucket("audit") as query:
        uri = f"s3://audit/tables?{query}"
        target, root = fs.FileSystem.from_uri(uri)
        fs.copy_files(str(small), root, source_filesystem=fs.LocalFileSystem(), destination_filesystem=target)
        told = run("--tables", uri).output
    local = run("--tables", small).output
    assert told.replace("Tables: s3://audit/tables, version 1", "") == local.replace(
        f"Tables: {small}, version 1", ""
    )
    assert "s3://audit/tables," in told


@pytest.mark.parametrize(
    ("options", "first", "last", "received"),
    [
        (["--since", "2026-11-21"], "2026-11-22", "2026-11-22", 10),
        (["--until", "2026-11-22"], "2026-11-20", "2026-11-20", 150),
        (["--since", "2026-11-20", "--until", "2026-11-23"], "2026-11-20", "2026-11-22", 160),
        (["--since", "2026-11-21", "--until", "2026-11-22"], None, None, 0),
    ],
    ids=str,
)
def test_days_are_chosen_in_all_tables(
    small: Path, options: list[str], first: str | None, last: str | None, received: int
) -> None:
    told = json.loads(run("--tables", small, "--json", *options).output)
    assert (told["first"], told["last"], told["totals"]["received"]) == (first, last, received)
    in_the_first_day = first == "2026-11-20"
    assert bool(told["sizes"]["messages"]) == bool(told["hops"]["all"]) == in_the_first_day
    assert bool(told["deferrals"]["all"]) == bool(told["promotions"]) == in_the_first_day


def test_a_node_is_chosen_in_all_tables(small: Path) -> None:
    told = json.loads(run("--tables", small, "--json", "--node", "mx2").output)
    assert list(told["nodes"]) == ["mx2"]
    assert told["totals"]["received"] == 50
    assert [one["reply"] for one in told["deferrals"]["top"]] == ["connection refused"]
    assert not told["recipients"]["all"]
    assert not told["hops"]["all"]
    assert told["found"] == []
    assert "Mail of 2026-11-20 (1 day, UTC), mx2" in run("--tables", small, "--node", "mx2").output


def test_one_day_is_told_hour_by_hour(small: Path) -> None:
    output = run("--tables", small, "--until", "2026-11-21").output
    assert "\nPer hour\n" in output
    assert "  11-20 09h       100" in output
    assert "mean of all days" not in output


def test_one_next_hop_is_not_told_twice() -> None:
    some = [row for row in SMALL["latencies"] if row["next_hop"] == "mailbox"]
    text = "\n".join(lines(summary_of({**SMALL, "latencies": some}), "TABLES", 1))
    assert "  1.12 s  mailbox" in text
    assert "  all" not in text


def test_many_days_are_told_by_month() -> None:
    rows = {"traffic": [hour(20, 9, "mx1", received=5)]}
    rows["traffic"] += [row | {"hour": row["hour"] + timedelta(days=70)} for row in rows["traffic"]]
    text = "\n".join(lines(summary_of(rows), "TABLES", 1))
    assert "  2026-11         5" in text
    assert "  2026-12         0" in text
    assert "Per day" not in text
    assert "Received and delivered" in page(summary_of(rows), "TABLES", 1, "2026-11-26T00:00:00+00:00")


def test_tables_without_a_row_are_no_mail(tmp_path: Path) -> None:
    empty = publish(tmp_path / "tables", ())
    result = run("--tables", empty, "--html", tmp_path / "page.html")
    assert result.exit_code == 0, result.output
    assert "There is no mail in these days." in result.output
    assert "There is no mail in these days" in (tmp_path / "page.html").read_text("utf-8")
    assert json.loads(run("--tables", empty, "--json").output)["first"] is None


@pytest.mark.parametrize(
    ("options", "heading"),
    [
        ([], "Mail of all days"),
        (["--since", "2026-12-01"], "Mail since 2026-12-01 (UTC)"),
        (["--until", "2026-11-01"], "Mail before 2026-11-01 (UTC)"),
        (
            ["--since", "2026-12-01", "--until", "2026-12-02"],
            "Mail since 2026-12-01 and before 2026-12-02 (UTC)",
        ),
    ],
    ids=str,
)
def test_where_no_row_could_be_read_it_is_said_instead_of_no_mail_alone(
    tmp_path: Path, options: list[str], heading: str
) -> None:
    nothing = publish(tmp_path / "tables", by_day({"files": SMALL["files"]}))
    told = run("--tables", nothing, "--html", tmp_path / "page.html", *options).output.splitlines()
    of = " of all days and nodes" if options else ""
    assert told[0] == heading
    assert told[-1] == f"4 rows{of} could not be read, in 2 files."
    page = (tmp_path / "page.html").read_text("utf-8")
    assert f"<h1>{heading}</h1>" in page
    assert f"<p>4 rows{of} could not be read, in 2 files.</p>" in page


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ([], "These are deliveries and attempts of messages whose reception is in no log that was read."),
        (["--node", "mx2"], "received on other days, by other nodes, or in a log that was not read."),
    ],
    ids=str,
)
def test_deliveries_of_messages_whose_reception_is_in_no_log_are_explained(
    tmp_path: Path, options: list[str], sentence: str
) -> None:
    lost = publish(tmp_path / "lost", by_day({"traffic": [hour(20, 9, "mx2", delivered=16, promoted=16)]}))
    html = tmp_path / "page.html"
    output = run("--tables", lost, "--html", html, *options).output
    assert "             0  messages received\n" in output
    assert sentence in output
    assert sentence in html.read_text("utf-8")
    known = publish(tmp_path / "known", by_day({"traffic": [hour(20, 9, "mx2", received=1, delivered=1)]}))
    one = run("--tables", known, *options).output
    assert "No reception is known" not in one
    assert "             1  message received\n" in one
    assert "             1  delivery\n" in one


@pytest.mark.parametrize(("messages", "more"), [(160, False), (161, True)])
def test_a_verdict_tells_when_it_was_made_and_that_there_are_more_messages_by_now(
    tmp_path: Path, messages: int, *, more: bool
) -> None:
    made = [*by_day(SMALL), (BEGIN, {"messages": MESSAGES.slice(0, messages)})]
    tables, html = publish(tmp_path / "tables", made, verdict=VERDICT), tmp_path / "page.html"
    for text in (run("--tables", tables, "--html", html).output, html.read_text("utf-8")):
        assert "Of 2026-11-25 10:30 UTC: 160 messages in 3 files." in text
        assert ("The tables have 1 message more now" in text) == more


def test_no_verdict_is_not_a_verdict_that_found_nothing(tmp_path: Path) -> None:
    without = publish(tmp_path / "without", by_day({"traffic": SMALL["traffic"]}))
    assert json.loads(run("--tables", without, "--json").output)["found"] is None
    assert "last verdict" not in run("--tables", without).output
    nothing = publish(tmp_path / "nothing", by_day({"traffic": SMALL["traffic"]}), verdict={"status": 0})
    assert json.loads(run("--tables", nothing, "--json").output)["found"] == []
    assert "What the last verdict found, in all days" in run("--tables", nothing).output


def test_a_file_from_before_a_column_has_nothing_in_it(small: Path) -> None:
    path = next((small / "traffic").rglob("day=2026-11-22/*.parquet"))
    parquet.write_table(parquet.read_table(path).drop_columns(["exposed", "node"]), path)
    told = json.loads(run("--tables", small, "--json").output)
    assert (told["totals"]["received"], told["totals"]["exposed"]) == (160, 2)
    assert {node: flow["received"] for node, flow in told["nodes"].items()} == {"": 10, "mx1": 100, "mx2": 50}
    assert "  –           10" in run("--tables", small).output


# What strangers wrote.

HOSTILE = '<script>alert(1)</script>"><img src=x onerror=alert(1)>\x1b]0;owned\x07\x1b[2J\r\n\u202e'


@pytest.fixture
def hostile() -> Summary:
    rows = {name: [dict(row) for row in some] for name, some in SMALL.items()}
    for row in rows["domains"] + rows["latencies"] + rows["reasons"] + rows["promotions"]:
        row.update(
            {name: HOSTILE for name in ("domain", "next_hop", "reply", "example", "reason") if name in row}
        )
    for row in rows["traffic"]:
        row["node"] = HOSTILE
    for row in rows["findings"]:
        row["class"] = HOSTILE
    return summary_of(rows)


def test_the_page_escapes_what_strangers_wrote_and_needs_nothing_else(hostile: Summary) -> None:
    text = page(hostile, HOSTILE, 1, "2026-11-26T00:00:00+00:00")
    assert "&lt;script&gt;alert(1)" in text
    for forbidden in ("<script", "<img", "http://", "https://", "url("):
        assert forbidden not in text


def test_no_terminal_obeys_what_strangers_wrote(hostile: Summary) -> None:
    for line in lines(hostile, "TABLES", 1):
        assert line.isprintable(), line


def test_a_line_ends_where_the_terminal_does(hostile: Summary) -> None:
    assert max(map(len, lines(hostile, "TABLES", 1))) > 100
    assert max(len(line) for line in lines(hostile, "TABLES", 1, 60) if "script" in line) == 60


# What cannot be read.


LOG = "files/_delta_log/00000000000000000000.json"


def break_log(directory: Path) -> None:
    (directory / LOG).write_text("{", "utf-8")


def break_schema(directory: Path) -> None:
    path = directory / LOG
    told = path.read_text("utf-8").replace('"shadowaudit.schema":"2"', '"shadowaudit.schema":"99"')
    path.write_text(told, "utf-8")


def leave_old_ones(directory: Path) -> None:
    shutil.rmtree(directory)
    (directory / "manifests").mkdir(parents=True)
    (directory / "manifests" / "00000001.json").write_text('{"schema":1}', "utf-8")


def break_data(directory: Path) -> None:
    next((directory / "domains").rglob("*.parquet")).write_bytes(b"PAR1 no more PAR1")


def break_page(directory: Path) -> None:
    path = next((directory / "domains").rglob("*.parquet"))
    octets = path.read_bytes()
    path.write_bytes(octets[:4] + bytes(len(octets) // 3) + octets[4 + len(octets) // 3 :])


def remove_data(directory: Path) -> None:
    next((directory / "domains").rglob("*.parquet")).unlink()


@pytest.mark.parametrize(
    ("broken", "sentence"),
    [
        (break_log, "files of the tables cannot be read"),
        (break_schema, "schema 99"),
        (leave_old_ones, "before 0.2, which this one does not read: ingest the logs into a new place"),
        (break_data, ".parquet of the tables cannot be read"),
        (break_page, ".parquet of the tables cannot be read"),
        (remove_data, ".parquet of the tables cannot be read"),
    ],
)
def test_damaged_tables_are_named_with_status_2(small: Path, broken: Any, sentence: str) -> None:
    broken(small)
    result = run("--tables", small)
    assert result.exit_code == 2
    assert sentence in result.output
    assert ".parquet" not in sentence or "domains/day=2026-11-20/" in result.output
    assert "Traceback" not in result.output


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--tables", "nowhere"], "there are no tables in nowhere, which does not exist: "),
        (["--tables", "{small}/files"], "there are no tables in {small}/files: "),
        (["--tables", "{small}/" + LOG], "0.json is a file, and no directory"),
        (["--tables", "gopher://nowhere/x"], "gopher://nowhere/x cannot be read"),
        (["--tables", "{small}", "--node", "mx9"], "no node 'mx9' in these days; nodes are: mx1, mx2"),
        (["--tables", "{small}", "--since", "2026-11-22", "--until", "2026-11-22"], "later than --since"),
        (["--tables", "{small}", "--since", "yesterday"], "'yesterday' is no day"),
        (["--tables", "{small}", "--html", "nowhere/page.html"], "nowhere/page.html: No such file"),
        ([], "Missing option '--tables'"),
    ],
    ids=str,
)
def test_what_cannot_be_done_is_said_with_status_2(small: Path, options: list[str], sentence: str) -> None:
    result = run(*(one.format(small=small) for one in options))
    assert result.exit_code == 2
    assert sentence.format(small=small) in result.output
    assert "Traceback" not in result.output


def test_a_page_that_cannot_be_written_leaves_the_one_before(small: Path, tmp_path: Path) -> None:
    target = tmp_path / "page.html"
    assert run("--tables", small, "--html", target).exit_code == 0
    before = target.read_text("utf-8")
    assert "<svg" in before
    next((small / "domains").rglob("*.parquet")).unlink()
    assert run("--tables", small, "--html", target).exit_code == 2
    assert target.read_text("utf-8") == before
    assert [one.name for one in tmp_path.iterdir()] == [target.name, small.name] or len(
        list(tmp_path.iterdir())
    ) == 2


def test_neither_spark_nor_pandas_is_imported(small: Path) -> None:
    script = (
        "import sys; from shadowaudit.cli import main; "
        f"[main(['summary', '--tables', {str(small)!r}, *more], standalone_mode=False)"
        " for more in ([], ['--until', '2026-11-21'], ['--node', 'mx1'], ['--json'])]; "
        "sys.exit(str([one for one in ('pandas', 'pyspark', 'numba') if one in sys.modules]))"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert ended.stderr.strip() == "[]"


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        (units.octets(0), "0 B"), (units.octets(1023), "1023 B"), (units.octets(1024), "1.00 KiB"),
        (units.octets(99.96 * 1024), "100 KiB"), (units.octets(3 << 40), "3.00 TiB"),
        (units.seconds(0.12), "0.12 ms"), (units.seconds(999), "999 ms"), (units.seconds(1500), "1.50 s"),
        (units.seconds(119_000), "119 s"), (units.seconds(150_000), "2.50 min"),
        (units.seconds(7.2e6), "2.00 h"), (units.seconds(1.8e8), "2.08 d"), (units.share(0, 0), "–"),
        (units.share(0, 5), "0 %"),
        (units.share(1, 100_000), "< 0.01 %"), (units.share(99_999, 100_000), "> 99.9 %"),
        (units.share(5, 5), "100 %"), (units.share(1, 3), "33.3 %"),
    ],
)  # fmt: skip
def test_numbers_are_told_in_units(told: str, expected: str) -> None:
    assert told == expected
