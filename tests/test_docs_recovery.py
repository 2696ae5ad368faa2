"""The recovery page's table of tests: every row has some, all of them exist, and none is left out."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "recovery.md"
RECOVERY = ("recovery", "old_databases", "partitions", "lost_replies", "disks", "clocks", "two_nodes_lost")


def rows() -> dict[str, list[str]]:
    """What happens, and what is named as showing it."""
    _, _, section = PAGE.read_text("utf-8").partition("\n## Shown by tests\n")
    table = [line for line in section.splitlines() if line.startswith("| ")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in table[1:]]
    return {happens: re.findall(r"`([^`]+)`", tests) for happens, tests in cells}


def functions_of(module: str) -> set[str]:
    text = (ROOT / "tests" / module).read_text("utf-8")
    return {f"{module}::{name}" for name in re.findall(r"^def (test_\w+)\(", text, re.MULTILINE)}


ROWS = rows()


def test_the_table_has_a_row_for_every_failure():
    assert len(ROWS) == 14


@pytest.mark.parametrize("happens", ROWS)
def test_every_row_names_tests_that_exist(happens: str):
    assert ROWS[happens], "a row without a test"
    proofs = (ROOT / "tests" / "proof" / "__main__.py").read_text("utf-8")
    for named in ROWS[happens]:
        if command := named.removeprefix("scripts/prove ") if named.startswith("scripts/") else "":
            assert f'"{command}":' in proofs, f"there is no proof {command}"
        else:
            assert named in functions_of(named.partition("::")[0]), f"there is no {named}"


@pytest.mark.parametrize("module", RECOVERY)
def test_every_test_of_a_recovery_is_in_the_table(module: str):
    named = {name for names in ROWS.values() for name in names}
    assert functions_of(f"e2e/test_{module}.py") - named == set()
