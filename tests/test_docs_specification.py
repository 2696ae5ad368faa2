"""The pages that say which test shows what speak of files, names and tests that exist."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest
from proof.planted import FAULTS

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "shadowrelay"
TESTS = ROOT / "tests"
PAGES = ("specification.md", "dependencies.md")
MARKS = re.compile(r"(Yes|\*Partial\*|\*Not yet\*|\*Other\*)(\W|$)")
PLANTED = re.compile(r"\*([^*]+)\*")
CODE = re.compile(r"`([^`]+)`")


class Rule(NamedTuple):
    text: str
    mark: str
    where: str
    tests: str

    @property
    def is_there(self) -> bool:
        return not self.mark.startswith("*Not yet*")


def rules() -> list[Rule]:
    """The rows of all tables that are about rules; on dependencies.md others are about callables."""
    found: list[Rule] = []
    about_rules = False
    for line in "\n".join((ROOT / "docs" / page).read_text("utf-8") for page in PAGES).splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| rule |"):
            about_rules = True
        elif line.startswith("| ") and about_rules:
            assert len(cells) == 4, line
            found.append(Rule(*cells))
        elif not line.startswith("|"):
            about_rules = False
    return found


RULES = rules()


@cache
def functions_of(path: Path) -> frozenset[str]:
    tree = ast.parse(path.read_text("utf-8"))
    return frozenset(
        node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )


def test_the_page_holds_rules():
    assert len(RULES) > 50


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.text[:60])
def test_every_rule_has_a_mark_and_a_place(rule: Rule):
    assert MARKS.match(rule.mark), f"{rule.mark!r} is no mark"
    assert CODE.search(rule.where) or not rule.is_there, "a rule that is there has a place in the code"


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.text[:60])
def test_every_place_exists(rule: Rule):
    for place in rule.where.split(";"):
        names = CODE.findall(place)
        if not names:
            continue
        file, *identifiers = names
        assert (SOURCE / file).is_file(), f"src/shadowrelay/{file} does not exist"
        text = (SOURCE / file).read_text("utf-8")
        for identifier in identifiers:
            assert re.search(rf"\b{re.escape(identifier)}\b", text), f"{identifier} is not in {file}"


def test_a_fault_that_is_named_is_planted_and_caught_by_a_test_of_its_row():
    catches = {fault.name: re.sub(r"\[.*\]$", "", fault.test) for fault in FAULTS}
    named = [(rule, name) for rule in RULES for name in PLANTED.findall(rule.tests.partition("planted: ")[2])]
    assert len(named) >= 17
    for rule, name in named:
        assert catches[name] in CODE.findall(rule.tests), f"{name} is not caught by a test of {rule.text!r}"


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.text[:60])
def test_every_test_exists(rule: Rule):
    for named in CODE.findall(rule.tests):
        file, _, function = named.partition("::")
        path = TESTS / file
        assert path.is_file(), f"tests/{file} does not exist"
        assert path.suffix != ".py" or function in functions_of(path), f"{function} is not in tests/{file}"
