"""One fault at a time in a copy of the tree: does the test that is named for it notice?

The working tree is never written to: each fault has a copy of ``src`` and ``tests`` of its own. The test runs
there, and the copy is thrown away with whatever the test left behind.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import Enum
from importlib.util import cache_from_source
from pathlib import Path

from .fault import ROOT, Fault
from .whence import PROFILE, VARIABLE

_PATIENCE = 120.0  # seconds that a test may take on a machine that does other things as well
_EACH = 2.0  # more seconds for each, when many are run one after the other
_FAILED = re.compile(r"^FAILED (\S.*?)(?: - (.*))?$", re.MULTILINE)


class Ending(Enum):
    """What came of a test. STRANGE: neither passed nor failed, so that nothing is shown."""

    PASSED = "passed"
    FAILED = "failed"
    STRANGE = "strange"


@dataclass(frozen=True, slots=True)
class Outcome:
    """``said``: of a failure its reason, of a strange ending what was printed last. ``tests`` that failed."""

    ending: Ending
    said: str
    seconds: float
    tests: tuple[str, ...] = ()


class Bench:
    """Runs tests on copies of the source. Used by several threads; ``end``, and when they have, ``clear``."""

    def __init__(self) -> None:
        self._home = Path(tempfile.mkdtemp(prefix="shadowrelay-mutants-"))
        self._children: set[subprocess.Popen[str]] = set()
        self._lock = threading.Lock()
        self._over = False

    def try_out(self, fault: Fault, seed: int = 0, **environ: str) -> Outcome:
        """The test that is named for the fault, with the fault. Raises LookupError.

        ``seed``: of what properties draw, and of what Python hashes with. One seed is one run everywhere.
        """
        with self.planted(fault) as root:
            return self._tests([fault.test], root, environ, seed=seed)

    def control(self, faults: Iterable[Fault]) -> Outcome:
        """All those tests without any fault: what fails anyway shows nothing.

        What fails beside the tests of faults runs once more: some measure a machine that does too much.
        """
        with self._copy() as root:
            tests = sorted({fault.test for fault in faults})
            patience = _PATIENCE + _EACH * len(tests)
            outcome = self._tests(tests, root, {}, patience=patience)
            if outcome.ending is Ending.FAILED:
                again = [test.removeprefix("tests/") for test in outcome.tests]
                outcome = self._tests(again, root, {}, patience=patience)
            return outcome

    def end(self) -> None:
        """End the tests under way, and begin no other."""
        with self._lock:
            self._over = True
            for child in self._children:
                if child.returncode is None:
                    with suppress(ProcessLookupError):
                        os.killpg(child.pid, signal.SIGKILL)

    def clear(self) -> None:
        """Leave nothing behind."""
        shutil.rmtree(self._home, ignore_errors=True)

    @contextmanager
    def planted(self, fault: Fault) -> Iterator[Path]:
        """A copy of the tree with the fault in it. Raises LookupError."""
        with self._copy() as root:
            for name, text in fault.planted(root).items():
                if name.endswith(".py"):
                    compile(text, name, "exec")
                (root / name).write_text(text, "utf-8")
                Path(cache_from_source(str(root / name))).unlink(missing_ok=True)
            yield root

    @contextmanager
    def _copy(self) -> Iterator[Path]:
        directory = Path(tempfile.mkdtemp(dir=self._home))
        try:
            for entry in ROOT.iterdir():
                if entry.name in {"src", "tests"}:
                    shutil.copytree(entry, directory / entry.name)
                elif entry.name != ".git":
                    (directory / entry.name).symlink_to(entry)
            yield directory
        finally:
            shutil.rmtree(directory, ignore_errors=True)

    def _tests(
        self,
        tests: list[str],
        root: Path,
        environ: dict[str, str],
        *,
        seed: int = 0,
        patience: float = _PATIENCE,
    ) -> Outcome:
        began = time.monotonic()
        command = [sys.executable, "-m", "pytest", "-n", "0", "--tb=no", "-rfE"]
        # This plugin imports modules as the session ends, which Python 3.11 cannot do after some failures
        # ("AST constructor recursion depth mismatch"). Then nothing is told of the test that failed.
        command += ["-p", "no:schemathesis"]
        command += [f"--hypothesis-profile={PROFILE}", f"--hypothesis-seed={seed}"]
        command += ["-o", f"cache_dir={root / 'cache'}", f"--basetemp={root / 'temporary'}"]
        command += ["-x"] if len(tests) == 1 else []  # of one test one failure is enough
        command += [f"tests/{test}" for test in tests]
        environment = imported_from(root) | {"COLUMNS": "400", "PYTHONHASHSEED": str(seed)} | environ
        with self._lock:
            if self._over:
                return Outcome(Ending.STRANGE, "given up", 0.0)
            child = subprocess.Popen(
                [*command, "-p", "tests.proof.whence"],
                cwd=root, env=environment, text=True, start_new_session=True,
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            )  # fmt: skip
            self._children.add(child)
        try:
            said, _ = child.communicate(timeout=patience)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            child.communicate()
            return Outcome(Ending.STRANGE, f"no end after {patience:.0f} s", time.monotonic() - began)
        finally:
            with self._lock:
                self._children.discard(child)
        return _judged(child.returncode, said, time.monotonic() - began)


def imported_from(root: Path) -> dict[str, str]:
    """The environment in which a process, with that copy as its working directory, imports the copy."""
    source = str(root / "src")
    return os.environ | {"PYTHONPATH": source, VARIABLE: source}


def _judged(code: int, said: str, seconds: float) -> Outcome:
    failed = _FAILED.findall(said)
    if code == 0:
        return Outcome(Ending.PASSED, "", seconds)
    if code == 1 and failed:
        return Outcome(Ending.FAILED, failed[0][1], seconds, tuple(test for test, _ in failed))
    return Outcome(Ending.STRANGE, "\n".join(said.splitlines()[-5:]) or f"exit status {code}", seconds)
