"""The command: what it plants, what it says of it, and when it is content."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from . import mutants
from .fault import Fault
from .mutants_table import BEGIN, END, row_of, written
from .planted import AUDIT, FAULTS, RELAY
from .planting import Bench, Ending, Outcome

REPORTS = next(fault for fault in FAULTS if fault.name == "the id of a report is drawn")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> dict[str, Outcome]:
    """What tests would say; the control says what stands under ''."""
    said = {"": Outcome(Ending.PASSED, "", 0.0)}
    failed = Outcome(Ending.FAILED, "assert 1 == 2", 0.1)
    monkeypatch.setattr(Bench, "try_out", lambda self, fault, seed=0: said.get(fault.name, failed))
    monkeypatch.setattr(Bench, "control", lambda self, faults: said[""])
    return said


def run(*arguments: str) -> tuple[int, dict[str, object]]:
    found = CliRunner().invoke(mutants.command, [*arguments, "--json"])
    return found.exit_code, json.loads(found.stdout)


def test_all_faults_caught_is_a_success() -> None:
    code, told = run("--kind", "source")
    assert (code, told["held"], len(told["faults"])) == (
        0,
        True,
        len([one for one in RELAY if one.kind == "source"]),
    )  # type: ignore[arg-type]
    code, told = run("--kind", "audit")
    assert (code, told["held"], len(told["faults"])) == (0, True, len(AUDIT))  # type: ignore[arg-type]


def test_some_faults_of_a_kind_are_drawn_by_a_seed() -> None:
    def drawn(seed: int) -> list[str]:
        _, told = run("--kind", "audit", "--draw", "audit", "9", "--seed", str(seed))
        return [row["name"] for row in told["faults"]]  # type: ignore[attr-defined]

    assert len(drawn(1)) == 9
    assert drawn(1) == drawn(1)
    assert drawn(1) != drawn(2)


@pytest.mark.parametrize("ending", [Ending.PASSED, Ending.STRANGE])
def test_one_that_no_test_notices_is_a_failure(quick: dict[str, Outcome], ending: Ending) -> None:
    quick[REPORTS.name] = Outcome(ending, "", 0.1)
    code, told = run("--kind", "source")
    assert (code, told["held"]) == (1, False)
    missed = [row["name"] for row in told["faults"] if not row["caught"]]  # type: ignore[attr-defined]
    assert missed == [REPORTS.name]


@pytest.mark.parametrize(("misses", "caught", "tries"), [(0, True, 1), (2, True, 3), (3, False, 3)])
def test_a_fault_has_three_tries_that_draw_differently_and_how_many_it_took_is_told(
    monkeypatch: pytest.MonkeyPatch, misses: int, caught: bool, tries: int
) -> None:
    seeds: list[int] = []

    def try_out(bench: Bench, fault: Fault, seed: int = 0) -> Outcome:
        seeds.append(seed)
        return Outcome(Ending.FAILED if len(seeds) > misses else Ending.PASSED, "", 0.1)

    monkeypatch.setattr(Bench, "try_out", try_out)
    found = CliRunner().invoke(mutants.command, ["--only", REPORTS.name, "--json"])
    (row,) = json.loads(found.stdout)["faults"]
    assert (found.exit_code, row["caught"], row["tries"]) == (0 if caught else 1, caught, tries)
    assert len(set(seeds)) == len(seeds) == tries


def test_tests_that_fail_without_a_fault_show_nothing(quick: dict[str, Outcome]) -> None:
    quick[""] = Outcome(Ending.FAILED, "assert 1 == 2", 0.1)
    code, told = run("--only", REPORTS.name)
    assert (code, told["problem"]) == (1, "without any fault the tests do not pass: assert 1 == 2")


def test_a_planted_bug_of_the_simulation_is_a_row_of_the_same_table() -> None:
    code, told = run("--only", "the epoch forgotten")
    (row,) = told["faults"]  # type: ignore[misc]
    assert (code, row["kind"], row["where"]) == (0, "simulation", "core/ownership/transfer.py")
    assert row["test"].endswith("_without_it[0]")


def test_a_name_that_is_none_is_told() -> None:
    found = CliRunner().invoke(mutants.command, ["--only", "no such fault at all"])
    assert found.exit_code == 2
    assert REPORTS.name in found.stderr


def test_the_table_is_put_between_its_markers(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    drawn = next(fault for fault in FAULTS if fault.name == "speak before persist")
    rows = [replace(row_of(REPORTS), caught=True), row_of(drawn)]
    written(rows, page)
    written(rows, page)
    assert page.read_text().splitlines() == [
        "before",
        BEGIN,
        "",
        "1 of 2 are caught.",
        "",
        "| fault | where | what it breaks | caught by |",
        "|---|---|---|---|",
        f"| {REPORTS.name} | `delivery/reports.py` | {REPORTS.rule} | `{REPORTS.test}` |",
        f"| {drawn.name} | `tests/simulation/node.py` | the promise, in the simulation | `{drawn.test}` |",
        "",
        END,
        "after",
    ]
