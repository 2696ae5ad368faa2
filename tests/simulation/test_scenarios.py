"""The scenarios do what was recorded; ``scripts/simulate --record`` rewrites them: read what changed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from .scenario import FOLDER, Scenario, run_file


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.txt")), ids=lambda path: path.stem)
def test_the_scenario_does_what_was_recorded(path: Path) -> None:
    recorded, now = run_file(path)
    assert now == recorded
    assert "PROBLEM" not in now
    assert "BROKEN" not in now
    assert "NOT QUIET" not in now


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.txt")), ids=lambda path: path.stem)
def test_the_scenario_is_the_same_on_sqlite(path: Path) -> None:
    recorded = path.read_text("utf-8")
    on_sqlite = re.sub(r"\nboundary (\d)", r"\nboundary \1 sql", recorded)
    now = Scenario().run(on_sqlite)
    assert now.replace(" sql", "") == recorded


def test_every_counterexample_has_its_scenario() -> None:
    names = {path.stem for path in FOLDER.glob("counterexample_*.txt")}
    assert names == {f"counterexample_{number:02}" for number in range(1, 14)}
