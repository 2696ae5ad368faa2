"""What the files of faults say, where a fault is planted, and what is said when it cannot be."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from .fault import ROOT, Edit, Fault, definitions
from .planted import FAULTS, HOSTS, SEED, Malformed, read, read_all

HELD = """# what is said here is for readers

[core/ownership/chores.py]
a node that is opening sends
  held_back: return any( => return False and any(
  seed 106
two at once | what is decided is kept
  LIMIT: 10 =>
  core/members/answers.py Answers.ask:
    - if damaged:
    -     return

    + pass
      self.told()
  core/test_chores.py::test_it[a -> b]

[database/queries.sql]
a statement of another table | rows are of one table
  database/queries.sql: FROM message => FROM event
  database/test_ledger.py::test_it

[tests/simulation/node.py]
a node that waits
  Node.wait: 1 => 2
  seed 3 with workers
[shadowaudit/cli/show.py]
what is shown
  show: a => b
  history of holder_dies
"""


def of(tmp_path: Path, text: str) -> list[Fault]:
    file = tmp_path / "room.txt"
    file.write_text(text)
    return list(read(file))


def test_a_file_says_what_is_edited_where_and_what_shows_it(tmp_path: Path) -> None:
    sends, two, statement, waits, shown = of(tmp_path, HELD)
    relay = "src/shadowrelay"
    assert sends.edits == (
        Edit(f"{relay}/core/ownership/chores.py", "return any(", "return False and any(", "held_back"),
    )
    assert (sends.rule, sends.test) == ("the promise, in the simulation", f"{SEED}[106]")
    assert (two.name, two.rule) == ("two at once", "what is decided is kept")
    assert two.test == "core/test_chores.py::test_it[a -> b]"
    old, new = "if damaged:\n    return\n\nself.told()\n", "\npass\nself.told()\n"
    assert two.edits == (
        Edit(f"{relay}/core/ownership/chores.py", "10", "", "LIMIT"),
        Edit(f"{relay}/core/members/answers.py", old, new, "Answers.ask"),
    )
    assert statement.edits == (Edit(f"{relay}/database/queries.sql", "FROM message", "FROM event"),)
    assert (waits.edits[0].file, waits.test) == ("tests/simulation/node.py", f"{HOSTS}[3]")
    assert shown.edits[0].file == "src/shadowaudit/cli/show.py"
    assert shown.rule == "another history than recorded, in the simulation"
    assert shown.test == "simulation/test_scenarios.py::test_the_scenario_does_what_was_recorded[holder_dies]"


@pytest.mark.parametrize(
    ("lines", "wrong"),
    [
        (["a fault | a rule", "  f: a => b"], "needs an edit, and a line that names the test"),
        (["a fault | a rule", "  f: a => b", "  by hand"], "names no test, seed or scenario: 'by hand'"),
        (["a fault", "  f: a => b", "  test_a.py::test_b"], "does not say which rule it breaks"),
        (["a fault | a rule", "  f: a => b", "  seed 3"], "no rule has to be named"),
        (["a fault | a rule", "  f a => b", "  test_a.py"], "'f a => b' is neither NAME: OLD => NEW nor"),
        (["a fault | a rule", "  f: a -> b", "  test_a.py"], "'f: a -> b' is neither"),
        (["a fault | a rule", "  f:", "  test_a.py"], "'f:' is neither"),
        (["a fault | a rule", "  f: a => b", "    - a", "  test_a.py"], "'f: a => b' is neither"),
        (["a fault | a rule", "  : a => b", "  test_a.py"], "': a => b' is neither"),
        (["a fault | a rule", "    - a", "  test_a.py"], "is of no edit"),
        (["a fault | a rule", "  f:", "    * a", "  test_a.py"], "'* a' begins with neither"),
        (["a fault | a rule", "  f:", "    + a", "  test_a.py"], "takes no text away"),
        (["a fault | a rule", "  f: a => a", "  test_a.py"], "edits nothing"),
    ],
)
def test_what_is_wrong_is_said_with_the_file_the_line_and_the_fault(
    tmp_path: Path, lines: list[str], wrong: str
) -> None:
    with pytest.raises(Malformed, match=r"room\.txt, line 2, fault 'a fault.*': .*" + re.escape(wrong)):
        of(tmp_path, "\n".join(["[a.py]", *lines]))


@pytest.mark.parametrize("line", ["a fault | a rule", "  f: a => b", " [a.py]"])
def test_what_stands_outside_a_section_or_a_fault_is_named_with_its_line(tmp_path: Path, line: str) -> None:
    with pytest.raises(Malformed, match=r"room\.txt, line 1, .* it is of no \[file\], or of no fault"):
        of(tmp_path, line)


def test_two_faults_of_one_name_are_refused(tmp_path: Path) -> None:
    for name in ("one", "other"):
        (tmp_path / f"{name}.txt").write_text("[a.py]\na fault | a rule\n  f: a => b\n  test_a.py\n")
    with pytest.raises(Malformed, match=r"other\.txt, fault 'a fault': there is another one of that name"):
        read_all(tmp_path)


MODULE = """LIMIT = 10
@cached
def before():
    return 10
class Sender:
    most: int = 3
    def send(self):
        def inner():
            return 1
        if self.ready:
            self.go()
        return inner
    @property
    def rate(self): return self._rate
    @rate.setter
    def rate(self, rate): self._rate = rate
"""


@pytest.mark.parametrize(
    ("edit", "line", "becomes"),
    [
        (("10", "11", "LIMIT"), "LIMIT = 10", ["LIMIT = 11"]),
        (("10", "11", "before"), "    return 10", ["    return 11"]),
        (("@cached", "", "before"), "@cached", []),
        (("3", "4", "Sender.most"), "    most: int = 3", ["    most: int = 4"]),
        (("1", "2", "Sender.send.inner"), "            return 1", ["            return 2"]),
        (("self.go()", "", "Sender.send"), "            self.go()", []),
        (("self._rate = rate", "pass", "Sender.rate"), "    def rate(self, rate): self._rate = rate",
         ["    def rate(self, rate): pass"]),
        (("self.go()\n", "self.wait()\nself.go()\n", "Sender"), "            self.go()",
         ["            self.wait()", "            self.go()"]),
    ],
)  # fmt: skip
def test_an_edit_is_made_in_what_is_named(edit: tuple[str, str, str], line: str, becomes: list[str]) -> None:
    begin, end, new = Edit("a.py", *edit).found(MODULE)
    lines = MODULE.splitlines()
    where = lines.index(line)
    assert (MODULE[:begin] + new + MODULE[end:]).splitlines() == [
        *lines[:where],
        *becomes,
        *lines[where + 1 :],
    ]


@pytest.mark.parametrize(
    ("edit", "times"),
    [(("nothing like it", "x", "Sender.send"), 0), (("self.", "x", "Sender.send"), 2), (("10", "11", ""), 2),
     (("return 1\n", "x", "before"), 0), (("1", "2", "nowhere"), 0)],
)  # fmt: skip
def test_a_text_that_is_not_there_once_is_said_with_its_function(
    edit: tuple[str, str, str], times: int
) -> None:
    with pytest.raises(
        LookupError, match=rf"a\.py ?{edit[2]} has .* {times} times, and it has to be there once"
    ):
        Edit("a.py", *edit).found(MODULE)


def test_two_edits_of_one_text_are_refused(tmp_path: Path) -> None:
    edits = (Edit("a.py", "return 10", "return 1", "before"), Edit("a.py", "10", "11", "before"))
    (tmp_path / "a.py").write_text(MODULE)
    with pytest.raises(LookupError, match="two edits take the same text away"):
        Fault(name="two", rule="", test="", edits=edits).planted(tmp_path)


def test_local_names_are_no_anchors() -> None:
    found = definitions("def f():\n    local = 1\n    if local:\n        other = 2\n")
    assert list(found) == ["f"]


MOVES = "core/reception/redundancy.py"


def test_functions_that_moved_to_another_module_keep_their_faults(tmp_path: Path) -> None:
    """The module takes another name and begins with other lines; the files of faults say nothing of it."""
    source = ROOT / "src" / "shadowrelay"
    shutil.copytree(source / "core", tmp_path / "src" / "shadowrelay" / "core")
    here, there = (f"src/shadowrelay/{name}" for name in (MOVES, "core/delivery/telling.py"))
    text = (tmp_path / here).read_text()
    (tmp_path / here).unlink()
    (tmp_path / there).write_text(f"# moved\n\n{text}")
    faults = [one for one in FAULTS if one.edits[0].within and one.where == MOVES]
    assert len(faults) > 5
    for fault in faults:
        assert fault.planted(tmp_path) == {there: f"# moved\n\n{fault.planted()[here]}"}
        assert fault.moved(tmp_path) == [f"{one.within} is in {there}, not in {here}" for one in fault.edits]
        assert fault.moved() == []


@pytest.mark.parametrize(
    ("others", "said"),
    [
        ({}, "settle is not in src/p/a.py, but in no file"),
        (
            {"b.py": "def settle(): return 1", "c.py": "def settle(): return 1"},
            "but in src/p/b.py and in src/p/c.py",
        ),
        ({"b.py": "def settle(): return 2"}, "settle is not in src/p/a.py, but in src/p/b.py"),
    ],
    ids=["in no module", "in two of them", "with another text"],
)
def test_what_is_nowhere_or_in_several_modules_is_said(
    tmp_path: Path, others: dict[str, str], said: str
) -> None:
    for name, text in ({"a.py": "def other(): return 1"} | others).items():
        (tmp_path / "src" / "p").mkdir(parents=True, exist_ok=True)
        (tmp_path / "src" / "p" / name).write_text(text)
    with pytest.raises(LookupError, match=re.escape(said)):
        Edit("src/p/a.py", "return 1", "return 0", "settle").place(tmp_path)


def test_of_functions_of_one_name_that_is_meant_which_has_the_text(tmp_path: Path) -> None:
    (tmp_path / "src" / "p").mkdir(parents=True)
    for name, number in (("b.py", 1), ("c.py", 2)):
        (tmp_path / "src" / "p" / name).write_text(f"def settle(): return {number}")
    assert Edit("src/p/a.py", "return 2", "return 0", "settle").place(tmp_path) == "src/p/c.py"
