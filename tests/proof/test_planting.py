"""Faults are planted in a copy, each where it was meant to be, and what is named as catching them exists."""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache
from itertools import groupby
from pathlib import Path

import pytest

from . import planting
from .fault import ROOT, Edit, Fault
from .planted import FAULTS
from .planting import Bench, Ending

SMALL = Fault(
    name="a report is drawn",
    rule="two nodes cannot make two reports",
    edits=(
        Edit(
            "src/shadowrelay/core/events/reports.py", 'derived_id("report"', 'derived_id(f"{object()}report"'
        ),
    ),
    test="core/events/test_reports.py::test_a_report_id_is_the_same_wherever_it_is_made",
)


def file_of(fault: Fault) -> str:
    return fault.edits[0].file


@lru_cache(maxsize=8)  # faults of one module follow one another
def structure(source: str) -> str:
    return ast.dump(ast.parse(source))


IN = {file: list(faults) for file, faults in groupby(sorted(FAULTS, key=file_of), file_of)}


@pytest.mark.parametrize("file", IN)
def test_every_fault_can_be_planted(file: str) -> None:
    for fault in IN[file]:
        for name, planted in fault.planted().items():
            sound = (ROOT / name).read_text("utf-8")
            if name.endswith(".py"):
                assert ast.dump(ast.parse(planted)) != structure(sound), fault.name
            else:
                assert planted.split() != sound.split(), fault.name


def test_there_are_at_least_twenty_five_faults_and_no_two_of_one_name() -> None:
    assert len({fault.name for fault in FAULTS}) == len(FAULTS) >= 25


@pytest.fixture
def bench() -> Iterator[Bench]:
    found = Bench()
    yield found
    found.end()
    found.clear()


@pytest.mark.slow
def test_a_planted_fault_is_seen_by_its_test_alone(bench: Bench) -> None:
    file = ROOT / SMALL.edits[0].file
    before = file.read_text("utf-8")
    found = bench.try_out(SMALL)
    assert (found.ending, "AssertionError" in found.said or "assert" in found.said) == (Ending.FAILED, True)
    assert bench.control([SMALL]).ending is Ending.PASSED
    assert file.read_text("utf-8") == before


@pytest.mark.slow
@pytest.mark.parametrize(
    "test", ["core/events/test_reports.py::test_there_is_no_such_test", "core/test_no_such_file.py"]
)
def test_a_test_that_is_not_there_catches_nothing(bench: Bench, test: str) -> None:
    assert bench.try_out(replace(SMALL, test=test)).ending is Ending.STRANGE


@pytest.mark.slow
def test_a_fault_that_the_test_does_not_notice_is_not_caught(bench: Bench) -> None:
    unnoticed = replace(SMALL, test="core/events/test_reports.py::test_a_report_id_is_a_uuid_of_version_8")
    assert bench.try_out(unnoticed).ending is Ending.PASSED


class WithOneMore(Bench):
    """Its copies have another test, in a file that comes before that of the others."""

    def __init__(self, name: str, text: str) -> None:
        super().__init__()
        self.fault = replace(SMALL, test=f"admin/{name}.py::{name}")
        self._text = text

    @contextmanager
    def _copy(self) -> Iterator[Path]:
        with super()._copy() as root:
            name, _, test = self.fault.test.partition("::")
            (root / "tests" / name).write_text(f"{self._text}\ndef {test}():\n    check()\n", "utf-8")
            yield root


ONCE = """
from pathlib import Path

def check():
    ran = Path(__file__).with_name("ran")
    before = ran.exists()
    ran.touch()
    assert before
"""


@pytest.mark.slow
def test_what_fails_without_a_fault_runs_once_more() -> None:
    bench = WithOneMore("test_once", ONCE)
    try:
        assert bench.control([SMALL, bench.fault]).ending is Ending.PASSED
    finally:
        bench.clear()


DRAWN = """
from hypothesis import settings

def check():
    used = settings()
    assert (used.derandomize, used.database, used.deadline) == (False, None, None)
"""


@pytest.mark.slow
@pytest.mark.parametrize("variable", ["CI", "SHADOWRELAY_NO_SUCH_VARIABLE"])
def test_a_property_draws_by_the_seed_of_the_try_alone(
    monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv(variable, "true")
    bench = WithOneMore("test_drawn", DRAWN)
    try:
        assert bench.try_out(bench.fault).ending is Ending.PASSED
    finally:
        bench.clear()


@pytest.mark.slow
def test_ctrl_c_ends_the_tests_under_way_and_leaves_nothing(bench: Bench) -> None:
    edit = SMALL.edits[0]
    endless = replace(SMALL, edits=(edit._replace(new=f"any(iter(int, 1)) or {edit.old}"),))
    with ThreadPoolExecutor(1) as pool:
        under_way = pool.submit(bench.try_out, endless)
        until = time.monotonic() + 60
        while not bench._children and time.monotonic() < until:
            time.sleep(0.01)
        assert bench._children
        bench.end()
        assert under_way.result(60).ending is Ending.STRANGE
    assert bench.try_out(SMALL).ending is Ending.STRANGE  # none is begun any more
    home = bench._home
    assert list(home.iterdir()) == []
    bench.clear()
    assert not home.exists()


@pytest.mark.slow
def test_the_plugin_refuses_a_relay_from_elsewhere(tmp_path: Path) -> None:
    ended = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-p",
            "tests.proof.whence",
            "--collect-only",
            "tests/core/events/test_reports.py",
        ],
        cwd=ROOT,
        env={"PATH": "/usr/bin:/bin", "MUTANT_SOURCE": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == pytest.ExitCode.USAGE_ERROR
    assert "the relay is imported from" in ended.stderr


@pytest.mark.slow
@pytest.mark.parametrize(("failures", "ending"), [(1, Ending.PASSED), (2, Ending.FAILED)])
def test_what_fails_without_a_fault_is_asked_once_more_and_then_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failures: int, ending: Ending
) -> None:
    """The control of one test that fails so many times, and of one that would fail if it ran again."""
    tree, marks = tmp_path / "tree", tmp_path / "marks"
    marks.mkdir()
    (tree / "tests" / "proof").mkdir(parents=True)
    for name in ("proof/__init__.py", "proof/whence.py"):
        shutil.copy(ROOT / "tests" / name, tree / "tests" / name)
    (tree / "src").symlink_to(ROOT / "src")
    (tree / "pyproject.toml").write_text("[tool.pytest.ini_options]\n")
    (tree / "tests" / "test_luck.py").write_text(
        "from pathlib import Path\n"
        f"MARKS = Path({str(marks)!r})\n"
        "def test_luck():\n"
        "    tries = len(list(MARKS.glob('luck*')))\n"
        "    (MARKS / f'luck{tries}').touch()\n"
        f"    assert tries >= {failures}\n"
        "def test_once():\n"
        "    (MARKS / 'once').touch(exist_ok=False)\n"
    )
    monkeypatch.setattr(planting, "ROOT", tree)
    bench = Bench()
    found = bench.control([replace(SMALL, test=f"test_luck.py::test_{one}") for one in ("luck", "once")])
    bench.clear()
    assert found.ending is ending, found
    assert found.tests == (() if ending is Ending.PASSED else ("tests/test_luck.py::test_luck",))
