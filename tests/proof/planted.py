"""All planted faults, as the files of ``faults`` have them: of the relay, of the audit, of the simulation.

These files are text of their own kind: code stands there as it is, with no quotes around it, and a change
reads as a change::

    # a comment
    [core/ownership/chores.py]
    the name of a fault | the rule that it breaks
      held_back: return any( => return False and any(
      core/members/answers.py Answers.ask:
        - if damaged:
        -     return
        + pass
          self.told()
      core/ownership/test_chores.py::test_what_notices_it

A section is a file: of the relay; or of another package or of the tests, whose name it begins with then. A
fault has edits and, as its last line, what shows it. An edit names the function, class or constant that it
stands in. That is one of the section's file, unless another file is named before it; where nothing has a
name, the file stands alone. Then comes a piece of a line and what takes its place (nothing: it goes, and so
does a line of which nothing is left), or whole lines as in a diff, as far in as they like.

The simulation shows a fault by ``seed 7``, ``seed 7 with workers``, ``seed 7 of records``,
``scenario holder_dies``, or ``history of holder_dies`` (no promise is broken, but what happens is not what is
on record).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from .fault import ROOT, Edit, Fault

FILES = Path(__file__).with_name("faults")

SEED = "simulation/test_seeds.py::test_a_seed_that_shows_a_planted_fault_is_good_without_it"
HOSTS = "simulation/test_hosts.py::test_a_seed_with_workers_that_shows_a_planted_fault_is_good_without_it"
RECORDS = "simulation/test_records.py::test_a_seed_of_records_that_shows_a_planted_fault_is_good_without_it"

_PROMISE, _HISTORY = "the promise, in the simulation", "another history than recorded, in the simulation"
_SIMULATED = {
    r"seed (\d+)": (_PROMISE, SEED),
    r"seed (\d+) with workers": (_PROMISE, HOSTS),
    r"seed (\d+) of records": (_PROMISE, RECORDS),
    r"scenario (\w+)": (_PROMISE, "simulation/test_scenarios.py::test_the_scenario_keeps_the_promise"),
    r"history of (\w+)": (_HISTORY, "simulation/test_scenarios.py::test_the_scenario_does_what_was_recorded"),
}
_SECTION = re.compile(r"\[([\w/.]+)\]")
_TEST = re.compile(r"[\w/]+\.py(::.+)?")
_EDIT = re.compile(
    r"(?P<file>[\w/]+\.(py|sql))?(?(file) ?)(?P<within>[\w.]*):(| (?P<old>.+?) =>(| (?P<new>.+)))"
)


class Malformed(ValueError):
    """Which file, which fault, and what is wrong with it."""


def read_all(directory: Path) -> tuple[Fault, ...]:
    """The faults of all files of a directory. Raises Malformed."""
    faults: dict[str, Fault] = {}
    for path in sorted(directory.rglob("*.txt")):
        for fault in read(path):
            if fault.name in faults:
                raise Malformed(f"{path}, fault {fault.name!r}: there is another one of that name")
            faults[fault.name] = fault
    return tuple(faults.values())


def read(path: Path) -> Iterator[Fault]:
    """The faults of a file. Raises Malformed."""
    for number, section, head, body in _told(path):
        try:
            yield _fault(section, head, body)
        except ValueError as error:
            raise Malformed(f"{path}, line {number}, fault {head!r}: {error}") from error


def _told(path: Path) -> Iterator[tuple[int, str, str, list[str]]]:
    """Of each fault the number of its line, its section, its first line, and the others."""
    section, told = "", None
    for number, line in enumerate([*path.read_text("utf-8").splitlines(), "#"], 1):
        if told and (line.startswith("  ") or not line):
            told[-1].append(line[2:])
            continue
        if told:
            yield told
            told = None
        if found := _SECTION.fullmatch(line):
            section = found[1]
        elif line and not line.startswith("#"):
            if not section or line.startswith(" "):
                raise Malformed(f"{path}, line {number}, {line!r}: it is of no [file], or of no fault")
            told = (number, section, line, list[str]())


def _fault(section: str, head: str, body: list[str]) -> Fault:
    while body and not body[-1]:
        body.pop()
    if len(body) < 2:
        raise ValueError("it needs an edit, and a line that names the test, seed or scenario that shows it")
    name, _, rule = head.partition(" | ")
    rule, test = _shown(body[-1], rule)
    return Fault(name=name, rule=rule, test=test, edits=tuple(_edits(section, body[:-1])))


def _shown(line: str, rule: str) -> tuple[str, str]:
    """The rule that is broken, and the test that notices."""
    for form, (broken, test) in _SIMULATED.items():
        if found := re.fullmatch(form, line):
            if rule:
                raise ValueError(f"what {line!r} shows breaks {broken}, and no rule has to be named")
            return broken, f"{test}[{found[1]}]"
    if not _TEST.fullmatch(line):
        raise ValueError(f"its last line names no test, seed or scenario: {line!r}")
    if not rule:
        raise ValueError("it does not say which rule it breaks: NAME | RULE")
    return rule, line


def _edits(section: str, lines: list[str]) -> Iterator[Edit]:
    begins = [number for number, line in enumerate(lines) if line and line[0] != " "]
    if begins[:1] != [0]:
        raise ValueError(
            f"{lines[0]!r} is of no edit: the name of what it stands in comes first, and a colon"
        )
    for begin, end in zip(begins, [*begins[1:], len(lines)], strict=True):
        yield _edit(section, lines[begin], [line[2:] for line in lines[begin + 1 : end]])


def _edit(section: str, line: str, whole: list[str]) -> Edit:
    found = _EDIT.fullmatch(line)
    if not found or not (found["file"] or found["within"]) or bool(found["old"]) == bool(whole):
        raise ValueError(f"{line!r} is neither NAME: OLD => NEW nor NAME: with whole lines below it")
    if wrong := [one for one in whole if one and one[:2] not in {"- ", "+ ", "  ", "-", "+"}]:
        raise ValueError(f"{wrong[0]!r} begins with neither '- ' nor '+ ' nor two spaces")
    old, new = found["old"] or "", found["new"] or ""
    if whole:
        old = "".join(f"{one[2:]}\n" for one in whole if one[:1] != "+")
        new = "".join(f"{one[2:]}\n" for one in whole if one[:1] != "-")
    if not old or old == new:
        raise ValueError(
            f"{line!r} takes no text away, which would say where" if not old else f"{line!r} edits nothing"
        )
    return Edit(_below_root(found["file"] or section), old, new, found["within"])


def _below_root(file: str) -> str:
    if file.startswith("tests/"):
        return file
    package = (ROOT / "src" / file.partition("/")[0] / "__init__.py").is_file()
    return f"src/{file}" if package else f"src/shadowrelay/{file}"


RELAY, AUDIT, SIMULATION = (read_all(FILES / room) for room in ("relay", "audit", "simulation"))
FAULTS = (*RELAY, *AUDIT, *SIMULATION)
