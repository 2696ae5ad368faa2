"""The page of planted faults lists exactly those that are planted; the tests that it names exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from proof.mutants_table import BEGIN, END, PAGE
from proof.planted import FAULTS

TESTS = Path(__file__).parent


def rows() -> list[list[str]]:
    _, _, rest = PAGE.read_text("utf-8").partition(BEGIN)
    table = [line for line in rest.partition(END)[0].splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in table[1:]]


def test_the_page_lists_exactly_the_planted_faults() -> None:
    planted = [fault.name for fault in FAULTS]
    assert len(set(planted)) == len(planted)
    assert [name for name, *_ in rows()] == planted
    assert f"\n{len(planted)} of {len(planted)} are caught.\n" in PAGE.read_text("utf-8")


def test_what_is_said_of_each_fault_is_what_is_planted() -> None:
    said = {name: (where, rule, test) for name, where, rule, test in rows()}
    for fault in FAULTS:
        assert said[fault.name] == (f"`{fault.where}`", fault.rule, f"`{fault.test}`")


@pytest.mark.parametrize("row", rows(), ids=lambda row: row[0])
def test_what_catches_it_exists(row: list[str]) -> None:
    named = re.fullmatch(r"`(?P<file>[^:`]+)(::(?P<test>\w+)(\[.*\])?)?`", row[-1])
    assert named
    path = TESTS / named["file"]
    assert path.is_file()
    if named["test"]:
        functions = {getattr(node, "name", "") for node in ast.walk(ast.parse(path.read_text("utf-8")))}
        assert named["test"] in functions
