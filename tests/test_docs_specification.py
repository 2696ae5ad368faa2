"""The pages that say which test shows what speak of files, names and tests that exist."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import NamedTuple

import pytest
from functions import functions_of
from proof.fault import Fault
from proof.planted import FAULTS

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "shadowrelay"
TESTS = ROOT / "tests"
PAGES = ("specification.md", "dependencies.md")
LIST = TESTS / "specification" / "rules.toml"
MARKS = re.compile(r"(Yes|\*Partial\*|\*Not yet\*|\*Other\*)(\W|$)")
PLANTED = re.compile(r"\*([^*]+)\*")
CODE = re.compile(r"`([^`]+)`")


SCENARIO = re.compile(r"simulation/test_scenarios\.py::\w+\[(\w+)\]")


class Rule(NamedTuple):
    text: str
    mark: str
    where: str
    tests: str
    id: str = ""  # of a rule of the documents
    title: str = ""  # of the section

    @property
    def is_there(self) -> bool:
        return not self.mark.startswith("*Not yet*")

    @property
    def named(self) -> list[str]:
        """The tests and scenarios of its row."""
        return CODE.findall(self.tests.partition("planted: ")[0])

    @property
    def planted(self) -> list[str]:
        return PLANTED.findall(self.tests.partition("planted: ")[2])


def rules() -> list[Rule]:
    """The rows of all tables that are about rules; on dependencies.md others are about callables."""
    found: list[Rule] = []
    columns = 0
    title = ""
    for line in "\n".join((ROOT / "docs" / page).read_text("utf-8") for page in PAGES).splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith(("| rule |", "| no. | rule |")):
            columns = len(cells)
        elif line.startswith("| ") and columns:
            assert len(cells) == columns, line
            number, *rest = cells if columns == 5 else ("", *cells)
            found.append(Rule(*rest, number, title))
        elif line.startswith("## "):
            title = line.removeprefix("## ")
        elif not line.startswith("|"):
            columns = 0
    return found


class Listed(NamedTuple):
    """A rule of the documents: which one, in which document, what it says."""

    id: str
    title: str
    text: str


def listed() -> list[Listed]:
    """All rules of the documents, in their order."""
    found = tomllib.loads(LIST.read_text("utf-8"))
    titles = {document["key"]: document["title"] for document in found["document"]}
    return [Listed(rule["id"], titles[rule["id"].partition("-")[0]], rule["text"]) for rule in found["rule"]]


def caught_by(fault: Fault) -> str:
    """The test that catches a fault, as a row names it: without its parameters, or the scenario."""
    if scenario := SCENARIO.fullmatch(fault.test):
        return f"simulation/scenarios/{scenario[1]}.txt"
    return re.sub(r"\[.*\]$", "", fault.test)


RULES = rules()
LISTED = listed()
OF_DOCUMENTS = [rule for rule in RULES if rule.id]


def test_the_page_holds_rules():
    assert len(RULES) > 50


def test_the_page_has_each_rule_of_the_documents_in_their_order_and_no_other():
    assert len(LISTED) > 150
    assert [rule.id for rule in LISTED] == list(dict.fromkeys(rule.id for rule in LISTED))
    assert [Listed(rule.id, rule.title, rule.text) for rule in OF_DOCUMENTS] == LISTED


@pytest.mark.parametrize("rule", OF_DOCUMENTS, ids=lambda rule: rule.id)
def test_what_is_there_or_is_something_else_has_a_test_and_a_planted_fault(rule: Rule):
    if rule.mark.startswith("Yes") or rule.mark.startswith("*Other*"):
        assert rule.named, "no test shows it"
        assert rule.planted, "no planted fault breaks it"
    if rule.mark.startswith("*Other*"):
        assert re.match(r"\*Other\*: \S", rule.mark), "a reason is given"


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
        at = SOURCE.parent / file if file.startswith("shadowmailbox/") else SOURCE / file
        assert at.is_file(), f"{at.relative_to(SOURCE.parent)} does not exist"
        text = at.read_text("utf-8")
        for identifier in identifiers:
            assert re.search(rf"\b{re.escape(identifier)}\b", text), f"{identifier} is not in {file}"


def test_a_fault_that_is_named_is_planted_and_caught_by_a_test_of_its_row():
    catches = {fault.name: caught_by(fault) for fault in FAULTS}
    named = [(rule, name) for rule in RULES for name in rule.planted]
    assert len(named) > 120
    for rule, name in named:
        assert name in catches, f"{name}, at {rule.text!r}, is not planted"
        assert catches[name] in rule.named, f"{name} is not caught by a test of {rule.text!r}"


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.text[:60])
def test_every_test_exists(rule: Rule):
    for named in rule.named:
        file, _, function = named.partition("::")
        path = TESTS / file
        assert path.is_file(), f"tests/{file} does not exist"
        assert path.suffix != ".py" or function in functions_of(path), f"{function} is not in tests/{file}"
