"""The page of threats names tests that exist, and every row has one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from functions import functions_of

TESTS = Path(__file__).parent
PAGE = TESTS.parent / "docs" / "threats.md"
CODE = re.compile(r"`([^`]+)`")


def rows() -> list[list[str]]:
    table = [line for line in PAGE.read_text("utf-8").splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in table[1:]]


def test_the_page_holds_rows():
    assert len(rows()) > 20


@pytest.mark.parametrize("row", rows(), ids=lambda row: row[0][:60])
def test_every_threat_has_tests_that_exist(row: list[str]):
    threat, expected, tests = row
    assert threat
    assert expected
    named = CODE.findall(tests)
    assert named
    for name in named:
        file, _, function = name.partition("::")
        path = TESTS / file
        assert path.is_file(), f"tests/{file} does not exist"
        if path.suffix == ".py":
            assert function in functions_of(path), f"{function} is not in tests/{file}"


def test_every_test_of_a_threat_stands_on_the_page():
    page = PAGE.read_text("utf-8")
    for path in TESTS.rglob("test_threat_*.py"):
        for name in functions_of(path):
            assert not name.startswith("test_") or name in page, f"{path.name}: {name}"
