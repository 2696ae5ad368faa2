"""report.html: a sentence, tiles and charts, problems with what happened when; what is allowed is folded."""

from __future__ import annotations

import csv
import json
import re
from collections import defaultdict
from datetime import UTC, datetime
from pathlib import Path

import pytest
from auditing import Auditor

from shadowaudit.core.findings import ADVICE, BROKEN, MEANING, Class, Severity
from shadowaudit.report import charts
from shadowaudit.report.page import steps, write_report
from shadowlab.generate.cluster import generate

FAULTS = {"lost": 1, "duplicate": 2, "exposed": 3, "promotion": 1, "hash": 1}
FIELDS_2010 = ",,client.test,,server.test,250 OK,,SMTP,SEND,1,<m@x>,a@y.test;b@y.test,,4096"


@pytest.fixture
def page(here: Auditor, tmp_path: Path) -> str:
    generate(tmp_path / "logs", messages=200, faults=FAULTS, seed=3)
    verdict = here(tmp_path / "logs", out=tmp_path / "out")
    return write_report(tmp_path / "out", verdict).read_text("utf-8")


def test_the_sentence_is_first_then_tiles_then_problems_then_charts_then_what_is_allowed(page: str) -> None:
    told = (
        "<h1>1 of ",
        '<dl class="tiles"',
        '<section class="found violation" id="problems"',
        'id="missing"',
        "<svg",
        '<section class="caveats"',
        ">promoted-rightly<",
    )
    places = [page.index(one) for one in told]
    assert places == sorted(places)
    assert 'href="#problems"' in page
    assert 'href="#missing"' in page


def test_what_was_lost_comes_first_and_each_problem_says_what_to_do(here: Auditor, tmp_path: Path) -> None:
    generate(tmp_path / "logs", messages=200, faults={"duplicate": 2, "one-copy": 1, "lost": 1}, seed=3)
    verdict = here(tmp_path / "logs", out=tmp_path / "out")
    page = write_report(tmp_path / "out", verdict).read_text("utf-8")
    problems = [part for part in page.split("<section ") if part.startswith('class="found ')]
    titles = [
        " ".join(re.sub("<[^>]*>", "", part.partition("<h2>")[2].partition("</h2>")[0]).split())
        for part in problems
    ]
    assert titles[:2] == ["1 lost", "2 delivered twice without a cause duplicate"]
    told = "messages was lost, 2 were delivered twice without a cause, 1 was acknowledged with one copy"
    assert re.search(f"<h1>1 of [0-9]+ {told}", page)
    for part in problems:
        assert "<strong>What to do:</strong> " in part


def test_a_message_counts_once_for_the_worst_that_was_found_of_it(here: Auditor, tmp_path: Path) -> None:
    generate(tmp_path / "logs", messages=200, faults={"lost": 2, "vanished-copy": 1}, seed=3)
    verdict = here(tmp_path / "logs", out=tmp_path / "out")
    assert verdict.classes["vanished-copy"] > verdict.broken[Class.VANISHED] > 0
    assert verdict.sentence.startswith("2 of ")
    assert verdict.sentence.endswith(
        f" messages were lost, {_was(verdict.broken[Class.VANISHED])} dropped by a node without a word."
    )
    page = write_report(tmp_path / "out", verdict).read_text("utf-8")
    tile = re.search(r"<dd>([0-9,]+)</dd><dt>messages with a broken promise</dt>", page)
    with (tmp_path / "out" / "violations.csv").open() as file:
        ids = {row["id"] for row in csv.DictReader(file)}
    assert tile
    assert int(tile[1]) == len(ids)
    vanished = page[page.index(">vanished-copy<") :].partition("</section>")[0]
    assert "2 of these are among the messages above" in vanished
    shown = re.findall("shadowaudit explain ([0-9a-f-]{36}) ", page)
    assert {*shown} == ids
    assert len(shown) == len(ids)


def test_each_message_is_told_by_when_from_whom_and_for_whom(here: Auditor, tmp_path: Path) -> None:
    generate(tmp_path / "logs", messages=200, faults={"lost": 2}, seed=3)
    verdict = here(tmp_path / "logs", out=tmp_path / "out")
    page = write_report(tmp_path / "out", verdict).read_text("utf-8")
    with (tmp_path / "out" / "violations.csv").open() as file:
        lost = [row for row in csv.DictReader(file) if row["class"] == "lost"]
    assert len(lost) == 2
    told = [
        " ".join(re.sub("<[^>]*>", "", one).split()) for one in re.findall("<summary>.*?</summary>", page)
    ]
    for row in lost:
        first = min(line.partition(".")[0].replace("T", " ") for line in row["evidence"].split("\n"))
        first_to = json.loads(row["addresses"])[0]
        assert any(one.startswith(f"{first} sender@example.org → {first_to}") for one in told)


def _was(many: int) -> str:
    return f"{many} {'was' if many == 1 else 'were'}"


def test_the_recipients_of_the_page_are_a_sum(here: Auditor, tmp_path: Path) -> None:
    faults = {"lost": 2, "duplicate": 3, "bounced": 2, "removed": 2}
    generate(tmp_path / "logs", messages=200, faults=faults, seed=3)
    verdict = here(tmp_path / "logs", out=tmp_path / "out")
    page = write_report(tmp_path / "out", verdict).read_text("utf-8")
    ended = page[page.index('id="recipients"') :].partition("</section>")[0]
    rows = [
        (name, int(many.replace(",", "")))
        for name, many in re.findall('<td class="">([^<]*)</td><td class="number">([0-9,]+)<', ended)
    ]
    *parts, (name, together) = rows
    assert (name, together) == ("together", verdict.recipients["accepted"])
    assert sum(many for _, many in parts) == together
    assert dict(parts)["lost, or without an end yet"] > 0
    assert verdict.recipients["again"] >= 3
    assert f"{verdict.recipients['again']} deliveries are not in the sum" in ended


def test_every_violation_and_every_gap_has_its_words_and_its_advice() -> None:
    severities = {what: severity for what, (severity, _) in MEANING.items()}
    assert {*BROKEN} == {what for what, severity in severities.items() if severity is Severity.VIOLATION}
    assert {*ADVICE} == {what for what, severity in severities.items() if severity is not Severity.NOTE}
    for what, words in BROKEN.items():  # it follows "was" as well as "were"
        assert not {"their", "them", "they", "its", "it"} & {*words.split()}, what


def test_the_recipients_of_the_tiles_are_those_of_the_rows(here: Auditor, tmp_path: Path) -> None:
    faults = {"lost": 2, "partially-lost": 1, "duplicate": 3, "bounced": 2, "removed": 2, "in-transit": 1}
    generate(tmp_path / "logs", messages=200, faults=faults | {"dropped-duplicate": 2, "expanded": 1}, seed=3)
    verdict = here(tmp_path / "logs", out=tmp_path / "out")
    accepted, ends = 0, defaultdict(list)
    for path in (tmp_path / "logs").rglob("*.LOG"):
        for cells in csv.reader(line for line in path.open(encoding="utf-8-sig") if line[0] != "#"):
            event, addresses = cells[8], cells[12].split(";")
            accepted += len(addresses) * (event in ("RECEIVE", "DSN") or cells[7] == "EXPAND" != event)
            if event in ("DELIVER", "SEND", "SENDEXTERNAL", "DUPLICATEDELIVER", "FAIL", "REMOVE", "EXPAND"):
                for address in addresses:
                    ends[cells[10], address].append(event)
    told, firsts = verdict.recipients, [found[0] for found in ends.values()]
    sent = sum(one in ("DELIVER", "SEND", "SENDEXTERNAL") for one in firsts)
    assert told["accepted"] == sum(told[name] for name in ("delivered", "bounced", "otherwise", "open"))
    assert (told["delivered"], told["bounced"]) == (sent, firsts.count("FAIL"))
    assert told["again"] == sum(
        found[1:].count("DELIVER") + found[1:].count("SEND") for found in ends.values()
    )
    assert told["open"] == told["accepted"] - len(ends) > 0
    assert told["accepted"] == accepted


def test_what_a_holder_delivers_whose_owner_lost_its_log_was_got_once(here: Auditor, tmp_path: Path) -> None:
    generate(tmp_path / "logs", messages=60, faults={"promotion": 4}, seed=3)
    for path in (tmp_path / "logs" / "mx1").glob("*.LOG"):
        path.unlink()
    told = here(tmp_path / "logs").recipients
    assert (told["again"], min(told.values())) == (0, 0)
    assert told["accepted"] == sum(told[name] for name in ("delivered", "bounced", "otherwise", "open"))
    assert told["delivered"] > 0


def test_a_problem_shows_its_steps_in_order_and_its_id_last(page: str) -> None:
    found = next(part for part in page.split("<section ") if part.startswith('class="found violation"'))
    example = found.partition("<details open>")[2].partition('<p class="id">')
    assert "<strong>RECEIVE</strong>" in example[0]
    times = re.findall(r"<li><time>([^<]*)</time>", example[0])
    assert times == sorted(times)
    assert re.match(r"[^<]* <code>shadowaudit explain [0-9a-f-]{36} DIR…</code></p>\s*</details>", example[2])
    assert not re.search(r"<summary>[^<]*[0-9a-f]{8}-[0-9a-f]{4}", page)


def test_what_is_allowed_is_folded(page: str) -> None:
    caveats = page.partition('<section class="caveats"')[2]
    assert 'class="tag">exposed<' in caveats
    assert "<details open" not in caveats


def test_without_a_finding_there_is_nothing_to_remark(here: Auditor, tmp_path: Path) -> None:
    generate(tmp_path / "logs", messages=50, faults={}, seed=3)
    verdict = here(tmp_path / "logs", out=tmp_path / "out")
    page = write_report(tmp_path / "out", verdict).read_text("utf-8")
    assert "Nothing to remark" in page
    assert 'id="problems"' not in page
    assert 'href="#' not in page


def test_steps_are_in_the_order_of_their_times() -> None:
    late, early = f"2026-11-21T10:00:01.5Z{FIELDS_2010}", f"2026-11-21T10:00:01.250Z{FIELDS_2010}"
    found = steps([late, early])
    assert [one.at for one in found] == [
        datetime(2026, 11, 21, 10, 0, 1, 250_000, UTC),
        datetime(2026, 11, 21, 10, 0, 1, 500_000, UTC),
    ]
    assert (found[0].event, found[0].origin, found[0].target) == ("SEND", "client.test", "server.test")
    assert (found[0].recipients, found[0].answer) == ("a@y.test, b@y.test", "250 OK")


@pytest.mark.parametrize(
    "row",
    [
        "",
        "not a row",
        f"yesterday{FIELDS_2010}",
        "2026-11-21T10:00:01Z,,a,,b",
        f"2026-11-21T10:00:01Z{FIELDS_2010}\0",
    ],
)
def test_what_is_no_row_is_no_step(row: str) -> None:
    whole = f"2026-11-21T10:00:02Z{FIELDS_2010}"
    found = steps([row, whole])
    assert found[-1].event == "SEND"
    assert len(found) == 1 or "\0" in row


def test_a_row_that_is_cut_in_a_quote_does_not_swallow_the_next_one() -> None:
    found = steps([f'2026-11-21T10:00:01Z{FIELDS_2010},"cut', f"2026-11-21T10:00:02Z{FIELDS_2010}"])
    assert len(found) == 2


def test_bars_stand_for_their_values() -> None:
    drawn = charts.bars([("a", 4), ("b", 0), ("<c>", 2)], "label")
    heights = [float(one) for one in re.findall(r'<rect[^>]*height="([\d.]+)"', drawn)]
    assert heights[0] == pytest.approx(2 * heights[2], abs=0.2)
    assert heights[1] == 0
    assert "<title>&lt;c&gt;: 2</title>" in drawn
    assert not charts.bars([("a", 0)], "label")


@pytest.mark.parametrize(
    ("value", "told"), [(0, "0"), (0.5, "0.5"), (9999, "9,999"), (20_000, "20 k"), (3_750_000, "3.75 M")]
)
def test_the_side_of_a_chart_has_short_numbers(value: float, told: str) -> None:
    assert charts.short(value) == told


@pytest.mark.parametrize("top", [1, 2, 4, 5, 8, 10, 5000, 8_000_000])
def test_no_mark_of_a_count_is_a_fraction(top: float) -> None:
    day = 86_400_000
    drawn = charts.over_time({"a": [(0, top), (day, top)]}, "label")
    marks = re.findall(r'class="mark"[^>]*>([^<]+)<', drawn)
    assert marks[0] == "0"
    assert not [one for one in marks if "." in one]
