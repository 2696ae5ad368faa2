"""The page of planted faults lists exactly those that are planted; the tests that it names exist."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

import pytest
from functions import functions_of
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


NAMED = defaultdict[str, list[str]](list)
"""The file of tests that each fault names, and the tests in it."""
for *_, cell in rows():
    file, _, test = cell.strip("`").partition("::")
    NAMED[file].append(test)


@pytest.mark.parametrize("file", sorted(NAMED))
def test_what_catches_it_exists(file: str) -> None:
    assert (TESTS / file).is_file()
    for test in filter(None, NAMED[file]):
        named = re.fullmatch(r"(\w+)(\[.*\])?", test)
        assert named, test
        assert named[1] in functions_of(TESTS / file), test
