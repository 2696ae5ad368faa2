"""Nodes that lost a disk, or were set back to an older copy of it: what their logs can still prove."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from auditing import Auditor
from click.testing import CliRunner
from rich.console import Console

from shadowaudit.cli import main
from shadowaudit.cli.verify import show
from shadowaudit.core.findings import Class
from shadowaudit.core.verdict import INCOMPLETE, PROVEN
from shadowlab.generate.message import OWNER, Message
from shadowlab.generate.stories import FAULTS
from shadowlab.generate.writing import NodeLog, witnessed

BEGIN = 1_790_000_000_000
LOST, AFTER, OTHER = (f"{digit * 8}-0000-4000-8000-000000000000" for digit in "123")


def log(directory: Path, node: str, database: str, boot: str, *, after: int = 0) -> NodeLog:
    place = directory / node
    place.mkdir(parents=True, exist_ok=True)
    return NodeLog(place, f"{node}.example.com", database, boot * 16, sequence=after)


def begin(one: NodeLog, at: int, taken: str = "start") -> None:
    one.snapshot(BEGIN + at, f"{one.boot}-{at}", [], taken)


def stop(one: NodeLog, at: int) -> None:
    begin(one, at, "stop")
    one.close(BEGIN + at)


def mail(number: int, at: int, owner: NodeLog, holder: NodeLog, story: Callable[[Message], None]) -> None:
    """One message's rows, in the order of time."""
    name = f"0190b5c4-0000-7000-8000-{number:012x}"
    one = Message(name, BEGIN + at, owner.node, holder.node, (f"user{number}@example.com",), [])
    story(one)
    logs = {one.node: one for one in (owner, holder)}
    for moment, who, row in sorted(one.steps, key=lambda step: step[0]):
        (owner if who == OWNER else holder).write(moment, witnessed(row, logs))


def delivered(one: Message) -> None:
    one.accepted()
    one.deliver(40)
    one.discard(800)


def disk_lost(directory: Path, *, stopped: bool) -> Path:
    """mx1 closed a file, was killed, lost its disk with all rows since, and goes on with a new database."""
    mx2 = log(directory, "mx2", OTHER, "c")
    begin(mx2, 0)
    before = log(directory, "mx1", LOST, "a")
    begin(before, 0)
    mail(1, 1000, before, mx2, delivered)
    before.close(BEGIN + 2000)
    now = log(directory, "mx1", AFTER, "b")
    begin(now, 60_000)
    mail(2, 61_000, now, mx2, delivered)
    for one in (now, mx2):
        stop(one, 70_000) if stopped else one.close(BEGIN + 70_000)
    return directory


@pytest.mark.parametrize("stopped", [False, True], ids=["nodes run", "nodes were stopped"])
def test_a_lost_end_of_an_older_database_is_not_taken_for_a_log_that_is_open(
    here: Auditor, tmp_path: Path, *, stopped: bool
) -> None:
    verdict = here(disk_lost(tmp_path / "logs", stopped=stopped), allow_open=True)
    assert verdict.status == INCOMPLETE
    assert [gap.what for gap in verdict.evidence.gaps] == [
        f"the log of database {LOST} ends without a closing snapshot"
    ]


def test_a_proof_with_a_lost_disk_is_of_the_logs_and_says_what_is_not_in_them(tmp_path: Path) -> None:
    logs, out = disk_lost(tmp_path / "logs", stopped=False), tmp_path / "out"
    asked = ["verify", str(logs), "--allow-open", "--lost", LOST, "--engine", "here", "--out", str(out)]
    result = CliRunner().invoke(main, asked)
    assert result.exit_code == PROVEN, result.output
    told = json.loads((out / "verdict.json").read_text("utf-8"))
    remains = "What it accepted without a holder after its row 4 is in nobody's log."
    for text in (result.output, told["sentence"], (out / "report.html").read_text("utf-8")):
        assert "Proven of the 2 messages in the logs: none was lost" in text
        assert "Proven: " not in text
    for text in (result.output, (out / "report.html").read_text("utf-8")):
        assert remains.replace("'", "&#39;") in text or remains in text
    assert LOST not in told["sentence"]
    assert told["strength"] == "logs"
    assert [remains in one for one in told["unprovable"]] == [True]


def test_of_many_lost_disks_each_is_told_once_below_the_verdict(here: Auditor, tmp_path: Path) -> None:
    verdict = here(disk_lost(tmp_path / "logs", stopped=False), lost=(LOST,), allow_open=True)
    ends = (*verdict.evidence.unprovable, "Database two of mx2 was lost.")
    both = replace(verdict, evidence=replace(verdict.evidence, unprovable=ends))
    assert both.caveats == ends
    assert not any(end in both.sentence for end in ends)
    with (page := Console(width=1000)).capture() as told:
        show(both, tmp_path, page, report=False)
    lines = told.get().splitlines()
    verdict_at = next(place for place, line in enumerate(lines) if both.sentence in line)
    assert [[place for place, line in enumerate(lines) if end in line] for end in ends] == [
        [verdict_at + 1],
        [verdict_at + 2],
    ]


def test_a_proof_by_whole_logs_is_a_full_one(here: Auditor, tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    mx1, mx2 = log(logs, "mx1", AFTER, "b"), log(logs, "mx2", OTHER, "c")
    for one in (mx1, mx2):
        begin(one, 0)
    mail(1, 1000, mx1, mx2, delivered)
    for one in (mx1, mx2):
        stop(one, 5000)
    told = here(logs).as_dict()
    assert (told["status"], told["strength"], told["unprovable"]) == (PROVEN, "full", [])
    assert told["sentence"].startswith("Proven: of 1 message none was lost")


def set_back(directory: Path) -> Path:
    """mx2 was killed before its last rows, one HARECEIVE among them, were closed; then an old copy of its
    database was put back, and it goes on with that.
    """
    mx1 = log(directory, "mx1", AFTER, "b")
    begin(mx1, 0)
    dead = log(directory, "mx2", OTHER, "c")
    begin(dead, 0)
    mail(1, 1000, mx1, dead, delivered)
    dead.close(BEGIN + 2000)
    mail(2, 2500, mx1, log(directory, "mx2", OTHER, "c"), FAULTS["false-copy"][0])
    now = log(directory, "mx2", OTHER, "d", after=1)
    begin(now, 60_000)
    mail(3, 61_000, mx1, now, delivered)
    for one in (mx1, now):
        stop(one, 70_000)
    return directory


@pytest.mark.parametrize(("lost", "status"), [((), INCOMPLETE), ((OTHER,), PROVEN)], ids=["", "declared"])
def test_a_database_that_was_set_back_does_not_accuse_those_who_say_that_it_held_a_copy(
    here: Auditor, tmp_path: Path, lost: Sequence[str], status: int
) -> None:
    verdict = here(set_back(tmp_path / "logs"), lost=lost)
    assert Class.FALSE_COPY.value not in verdict.classes
    assert verdict.status == status
    assert [gap.what for gap in verdict.evidence.gaps] == (
        [] if lost else [f"database {OTHER} was set back to an older state"]
    )
    assert [f"after row 3 of its life {'c' * 16} is" in one for one in verdict.evidence.unprovable] == [
        True for _ in lost
    ]
