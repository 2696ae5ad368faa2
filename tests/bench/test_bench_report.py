"""The bench's table and its page: complete, in columns, and nobody else's part touched."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path

import pytest
from click.testing import CliRunner
from rich.console import Console

from . import relay, report
from .__main__ import main
from .figures import Row, Spread, Target
from .published import PUBLISHED

ROWS = [
    Row(
        "large",
        "1 MB: delivered",
        "messages/s",
        Spread((80.0,)),
        Spread((100.0,)),
        target=Target(">=", 0.8),
        means="on two disks",
    ),
    Row("latency", "p50", "ms", Spread((9.0,)), Spread((1.0,)), Spread((3.0,)), target=Target("<=", 2.5)),
    Row("takeover", "all delivered", "s", Spread((12.0,))),
]
MACHINE = {"processor": "a fast one", "disk": "ext4"}


def test_every_row_has_one_cell_for_each_column():
    assert [len(report.cells(row)) for row in ROWS] == [len(report.COLUMNS)] * len(ROWS)


def test_the_page_names_the_machine_and_shows_ratio_target_and_verdict():
    lines = report.markdown(MACHINE, 5, ROWS).splitlines()
    assert "- processor: a fast one" in lines
    assert (
        "| 1 MB: delivered | messages/s | 80.0 | 100 | – | 0.80 | ≥ 0.80 | pass |  | on two disks |" in lines
    )
    assert "| p50 | ms | 9.00 | 1.00 | 3.00 | 3.00 | ≤ 2.50 | MISS |  |  |" in lines
    assert "| all delivered | s | 12.0 | – | – | – |  |  |  |  |" in lines


def test_the_page_has_one_table_and_what_others_publish_stands_in_it_with_its_source():
    text = report.markdown(MACHINE, 5, ROWS)
    assert text.count("\n|---|") == 1
    published = [line for line in text.splitlines() if "](https://" in line]
    assert len(published) == len(PUBLISHED)
    for name in ("KumoMTA", "NitroMTA", "Stalwart"):
        (first, *_) = [line for line in published if line.startswith(f"| {name}")]
        *_, figure, means, _ = (cell.strip() for cell in first.split("|"))
        assert figure.startswith("[")
        assert means


def test_a_complete_run_is_added_to_the_history_once(tmp_path: Path):
    run = report.remembered({**MACHINE, "when": "2026-11-27 09:00 UTC"}, 5, ROWS)
    assert run["targets"]["p50"] == {"median": 3.0, "target": "≤ 2.50", "verdict": "MISS"}
    assert "all delivered" not in run["targets"]
    for when in ("2026-11-26 09:00 UTC", "2026-11-27 09:00 UTC", "2026-11-27 09:00 UTC"):
        report.remember(tmp_path, {**run, "when": when})
    known = json.loads((tmp_path / report.HISTORY).read_text())
    assert [one["when"] for one in known] == ["2026-11-26 09:00 UTC", "2026-11-27 09:00 UTC"]


def test_the_page_is_a_table_whose_lines_are_of_one_width():
    table = [line for line in report.markdown({}, 1, ROWS).splitlines() if line.startswith("|")][2:]
    assert {line.count("|") for line in table} == {len(report.PAGE) + 1}


def test_a_pipe_gets_one_measure_on_one_line():
    console = Console(file=StringIO())
    report.show(console, MACHINE, ROWS)
    lines = console.file.getvalue().splitlines()
    assert any(line.startswith("1 MB: delivered") and line.rstrip().endswith("pass") for line in lines)
    assert any(line.startswith("p50") and line.rstrip().endswith("MISS") for line in lines)


def test_the_json_has_each_round_and_the_verdict():
    found = json.loads(json.dumps(report.tree(MACHINE, 1, ROWS)))
    assert found["machine"] == MACHINE
    assert found["rows"][0]["ours"] == {"median": 80.0, "rounds": [80.0]}
    assert [one.get("verdict") for one in found["rows"]] == ["pass", "MISS", None]
    assert "postfix" not in found["rows"][2]


def test_publishing_replaces_the_part_of_this_bench_and_no_other(tmp_path: Path):
    page, data = tmp_path / "benchmarks.md", tmp_path / "benchmarks.json"
    page.write_text("# Benchmarks\n\nProse.\n")
    report.publish(tmp_path, "relay", "first relay", {"rows": [1]})
    report.publish(tmp_path, "audit", "first audit", {"rows": [2]})
    report.publish(tmp_path, "relay", "second relay", {"rows": [3]})
    text = page.read_text()
    assert text.startswith("# Benchmarks\n\nProse.\n")
    assert "first relay" not in text
    assert text.index("second relay") < text.index("first audit")
    assert text.count("<!--") == 4
    assert json.loads(data.read_text()) == {"relay": {"rows": [3]}, "audit": {"rows": [2]}}


def test_a_part_that_is_measured_apart_takes_its_place_in_the_page_and_a_complete_run_leaves_it_there(
    tmp_path: Path,
):
    facts = {**MACHINE, "Postfix": "3.7", "when": "a day"}
    apart = Row("million", "start", "s", Spread((9.0,)), target=Target("<=", 20.0, of_ratio=False))
    relay._publish(tmp_path, {"million"}, facts, 1, [apart])
    assert not (tmp_path / "benchmarks.md").exists()  # there is no page yet
    relay._publish(tmp_path, set(), facts, 5, ROWS)
    relay._publish(tmp_path, {"million"}, {**facts, "when": "the next day"}, 1, [apart])
    relay._publish(tmp_path, set(), facts, 5, ROWS)
    relay._publish(
        tmp_path, {"latency"}, facts, 5, ROWS[1:2]
    )  # a part of a complete run: shown, not published
    text = (tmp_path / "benchmarks.md").read_text()
    assert "- million: the next day" in text
    assert "- when: a day" in text
    assert text.count("| start | s | 9.00 | – | – | – | ≤ 20.0 | pass |") == 1
    assert text.count("| p50 | ms | 9.00 | 1.00 | 3.00 | 3.00 | ≤ 2.50 | MISS |") == 1
    assert report.known(tmp_path, "relay")[2] == [*ROWS, apart]


def test_a_first_page_is_made_where_there_is_none(tmp_path: Path):
    report.publish(tmp_path, "relay", "the table", {})
    assert "the table" in (tmp_path / "benchmarks.md").read_text()


def test_a_file_that_cannot_be_written_is_told_before_anything_is_measured(tmp_path: Path):
    refused = CliRunner().invoke(main, ["--json", str(tmp_path / "nowhere" / "bench.json")])
    assert refused.exit_code == 1
    assert "nowhere" in refused.output


@pytest.mark.parametrize("arguments", [["--rounds", "0"], ["relay", "--rounds", "0"]])
def test_without_a_name_the_relay_is_measured(arguments: list[str]):
    refused = CliRunner().invoke(main, arguments)
    assert refused.exit_code == 2
    assert "'--rounds': 0 is not in the range" in refused.output


def test_help_without_a_name_lists_the_benches():
    shown = CliRunner().invoke(main, ["--help"])
    assert shown.exit_code == 0
    assert "relay" in shown.output
    assert "--rounds" not in shown.output


def test_an_unknown_bench_or_section_is_refused():
    assert CliRunner().invoke(main, ["spam"]).exit_code == 2
    assert CliRunner().invoke(main, ["relay", "--only", "spam"]).exit_code == 2
