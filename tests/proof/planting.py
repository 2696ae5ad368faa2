"""One fault at a time in a copy of the source: does the test that is named for it notice?

The working tree is never written to: each fault has a copy of ``src`` of its own, put before everything else
on the import path of the test, and thrown away with whatever the test left behind.
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

from .whence import VARIABLE

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src"
RELAY, AUDIT = "shadowrelay", "shadowaudit"

_PATIENCE = 120.0  # seconds that a test may take on a machine that does other things as well
_FAILED = re.compile(r"^FAILED \S.*?(?: - (.*))?$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A step left out, or done in the wrong order.

    ``edits``: text to take out, each there exactly once, and text to put in. ``test``: the cheapest one that
    notices, as pytest names it, below ``tests``.
    """

    name: str
    rule: str
    file: str  # in its package
    edits: tuple[tuple[str, str], ...]
    test: str
    package: str = RELAY

    @property
    def where(self) -> str:
        """The file, by the name of its package if that is not the relay's."""
        return self.file if self.package == RELAY else f"{self.package}/{self.file}"

    def planted(self, source: str) -> str:
        """The source with this fault in it. Raises LookupError if an edit does not apply any more."""
        for old, new in self.edits:
            if (found := source.count(old)) != 1:
                raise LookupError(f"{self.name}: {self.file} has {old!r} {found} times")
            source = source.replace(old, new)
        return source


def in_audit(file: str, *faults: tuple[str, str, str, str, str]) -> list[Fault]:
    """Faults in one file of the audit: name, rule, text to take out, text to put in, and the test."""
    return [
        Fault(
            name=name,
            rule=rule,
            file=file,
            edits=((old, new),),
            test=f"audit/test_audit_{test}",
            package=AUDIT,
        )
        for name, rule, old, new, test in faults
    ]


class Ending(Enum):
    """What came of a test. STRANGE: neither passed nor failed, so that nothing is shown."""

    PASSED = "passed"
    FAILED = "failed"
    STRANGE = "strange"


@dataclass(frozen=True, slots=True)
class Outcome:
    """``said``: of a failure its reason, of a strange ending what was printed last."""

    ending: Ending
    said: str
    seconds: float


class Bench:
    """Runs tests on copies of the source. Used by several threads; ``end``, and when they have, ``clear``."""

    def __init__(self) -> None:
        self._home = Path(tempfile.mkdtemp(prefix="shadowrelay-mutants-"))
        self._children: set[subprocess.Popen[str]] = set()
        self._lock = threading.Lock()
        self._over = False

    def try_out(self, fault: Fault) -> Outcome:
        """The test that is named for the fault, with the fault. Raises LookupError."""
        with self._copy() as source:
            file = source / fault.package / fault.file
            file.write_text(fault.planted(file.read_text("utf-8")), "utf-8")
            Path(cache_from_source(str(file))).unlink(missing_ok=True)
            compile(file.read_text("utf-8"), fault.file, "exec")
            return self._tests([fault.test], source)

    def control(self, faults: Iterable[Fault]) -> Outcome:
        """All those tests without any fault: what fails anyway shows nothing."""
        with self._copy() as source:
            return self._tests(sorted({fault.test for fault in faults}), source)

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
    def _copy(self) -> Iterator[Path]:
        directory = Path(tempfile.mkdtemp(dir=self._home))
        try:
            shutil.copytree(SOURCE, directory / "src")
            yield directory / "src"
        finally:
            shutil.rmtree(directory, ignore_errors=True)

    def _tests(self, tests: list[str], source: Path) -> Outcome:
        began = time.monotonic()
        command = [sys.executable, "-m", "pytest", "-n", "0", "-p", "no:cacheprovider", "--tb=no", "-rfE"]
        command += [f"--basetemp={source.parent / 'tests'}", *(str(ROOT / "tests" / test) for test in tests)]
        environment = os.environ | {"PYTHONPATH": str(source), "COLUMNS": "400", VARIABLE: str(source)}
        environment["AUDIT_ENGINE"] = "here"  # what is planted is no engine's, and each would have to start
        with self._lock:
            if self._over:
                return Outcome(Ending.STRANGE, "given up", 0.0)
            child = subprocess.Popen(
                [*command, "-p", "tests.proof.whence"],
                cwd=ROOT, env=environment, text=True, start_new_session=True,
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            )  # fmt: skip
            self._children.add(child)
        try:
            said, _ = child.communicate(timeout=_PATIENCE)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            child.communicate()
            return Outcome(Ending.STRANGE, f"no end after {_PATIENCE:.0f} s", time.monotonic() - began)
        finally:
            with self._lock:
                self._children.discard(child)
        return _judged(child.returncode, said, time.monotonic() - began)


def _judged(code: int, said: str, seconds: float) -> Outcome:
    failed = _FAILED.findall(said)
    if code == 0:
        return Outcome(Ending.PASSED, "", seconds)
    if code == 1 and failed:
        return Outcome(Ending.FAILED, failed[0], seconds)
    return Outcome(Ending.STRANGE, "\n".join(said.splitlines()[-5:]) or f"exit status {code}", seconds)
