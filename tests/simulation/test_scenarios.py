"""The scenarios do what was recorded; ``scripts/simulate --record`` rewrites them: read what changed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from .scenario import FOLDER, Scenario, run_file, told, verdicts


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.txt")), ids=lambda path: path.stem)
def test_the_scenario_does_what_was_recorded(path: Path) -> None:
    recorded, now = run_file(path)
    assert now == recorded
    assert "PROBLEM" not in now
    assert "BROKEN" not in now
    assert "NOT QUIET" not in now


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.txt")), ids=lambda path: path.stem)
def test_the_scenario_keeps_the_promise(path: Path) -> None:
    """Whatever else became of it."""
    recorded, now = run_file(path)
    assert set(verdicts(now)) <= set(verdicts(recorded))


def test_a_verdict_is_told_apart_from_what_happened() -> None:
    text = (
        "wait 3\n----\nRECEIVE mx1 m1 | 250 m1 |\nPROBLEM m1 | quiet: lost 1\n\ndrain\n----\nquiet: lost 0\n"
    )
    assert told(text) == ["RECEIVE mx1 m1", "250 m1", "PROBLEM m1", "quiet: lost 1", "quiet: lost 0"]
    assert verdicts(text) == ["PROBLEM m1", "quiet: lost 1", "quiet: lost 0"]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.txt")), ids=lambda path: path.stem)
def test_the_scenario_is_the_same_on_sqlite(path: Path) -> None:
    recorded = path.read_text("utf-8")
    on_sqlite = re.sub(r"\nboundary (\d\S*)", r"\nboundary \1 sql", recorded)
    now = Scenario().run(on_sqlite)
    assert now.replace(" sql", "") == recorded


def test_every_counterexample_has_its_scenario() -> None:
    names = {path.stem for path in FOLDER.glob("counterexample_*.txt")}
    assert names == {f"counterexample_{number:02}" for number in range(1, 14)}
