"""Spark's classes as Java has them in memory, kept in a file: half of Spark's start is to load them again.

Java writes the file itself when it ends (class data sharing), and looks itself whether it still fits: one
that does not is as if there were none.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import shlex
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shadowaudit.engine.java import cache

_QUIET = "-Xlog:disable"  # else Java tells of each class that it cannot keep
_LONGEST = 120.0  # seconds that the writing may take
_OTHERS = 1  # files of other Javas or Sparks that stay: who has two of them need not write them in turns
_UNUSED = 30 * 86_400.0  # seconds after which the file of another Java or Spark goes


@dataclass(frozen=True, slots=True)
class Classes:
    """``kept``: the file. ``made``: what Java is told to write, when there is none yet."""

    kept: Path
    made: Path | None

    @property
    def options(self) -> str:
        """For Java's command line."""
        if self.made is None:
            return f"-XX:SharedArchiveFile={shlex.quote(str(self.kept))} {_QUIET}"
        return f"-XX:ArchiveClassesAtExit={shlex.quote(str(self.made))} {_QUIET}"

    def keep(self, java: subprocess.Popen[Any]) -> None:
        """Have Java end, and keep what it writes then. What cannot be kept is only missing next time."""
        if java.stdin is not None:
            java.stdin.close()  # Java's sign that nobody needs it
        if self.made is None:
            return
        try:
            java.wait(_LONGEST)
            self.made.replace(self.kept)
            others = (one for one in self.kept.parent.glob("classes-*.jsa") if one != self.kept)
            used = sorted(((one.stat().st_mtime, one) for one in others), reverse=True)
            for place, (last, other) in enumerate(used):
                if place >= _OTHERS or last < time.time() - _UNUSED:
                    other.unlink()
        except (OSError, subprocess.TimeoutExpired):
            self.discard()

    def discard(self) -> None:
        """Leave nothing of what Java began to write."""
        if self.made is not None:
            self.made.unlink(missing_ok=True)


def classes(runtime: Path, spark: Path) -> Classes | None:
    """Of that Java and that Spark; None where Java keeps no classes, or there is nowhere to keep them."""
    try:
        java, jars = (runtime / "lib" / "server" / "classes.jsa").stat(), (spark / "jars").stat()
        told = f"{runtime} {java.st_mtime_ns} {java.st_ino} {spark} {jars.st_mtime_ns} {jars.st_ino}"
        kept = cache() / f"classes-{hashlib.sha256(told.encode()).hexdigest()[:16]}.jsa"
        if kept.exists():
            os.utime(kept)
            return Classes(kept, None)
    except OSError:
        return None
    return Classes(kept, kept.with_name(f".{kept.name}.{secrets.token_hex(4)}"))
