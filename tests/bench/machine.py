"""Which machine it was: figures without it mean nothing."""

from __future__ import annotations

import os
import platform
import resource
import sqlite3
import statistics
import sys
import time
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from . import postfix
from .smtp_tools import CONNECTIONS

DESCRIPTORS = 65_536
_SYNCS = 50
_LOOKING = 2.0  # seconds


def raise_descriptors() -> str:
    """As many descriptors as we may have, up to DESCRIPTORS; children inherit it. Says from what to what."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < DESCRIPTORS:
        with suppress(ValueError, OSError):  # root may raise the hard limit, where the system lets it
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, DESCRIPTORS))
            hard = DESCRIPTORS
    wanted = max(soft, min(hard, DESCRIPTORS))
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return f"{soft:,} raised to {wanted:,}" if wanted > soft else f"{soft:,}, all that may be had"


def described(directory: Path, *, descriptors: str, with_postfix: bool) -> dict[str, str]:
    """What there is to know, in words; the disk is the one of ``directory``."""
    memory = int(_field("/proc/meminfo", "MemTotal").split()[0]) / 1024**2
    synced = _synced_write(directory) * 1000
    return {
        "when": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "processor": _field("/proc/cpuinfo", "model name") or platform.processor() or platform.machine(),
        "cores": str(len(os.sched_getaffinity(0))),
        "memory": f"{memory:.1f} GiB",
        "kernel": f"{platform.system()} {platform.release()}",
        "disk": f"{file_system(directory)}; a synced write of 4 KiB takes {synced:.2f} ms",
        "Python": f"{platform.python_implementation()} {platform.python_version()} "
        f"({Path(sys.executable).resolve()}), uvloop {_package('uvloop')}, SQLite {sqlite3.sqlite_version}",
        "shadowrelay": _package("shadowrelay"),
        "Postfix": postfix.version() if with_postfix else "not measured",
        "descriptors": descriptors,
        "connections": f"{CONNECTIONS:,} of one client allowed by every party, "
        f"{postfix.PROCESSES} processes of a kind by Postfix; "
        f"somaxconn {_first_line('/proc/sys/net/core/somaxconn')}",
    }


def busy() -> str:
    """How much of all cores is used now: by others, while nothing of ours runs. Takes two seconds."""
    used, total = ticks()
    time.sleep(_LOOKING)
    used_then, total_then = ticks()
    return f"{100 * (used_then - used) / max(1, total_then - total):.0f} %"


def file_system(directory: Path) -> str:
    """Type, device and options of the file system that holds the directory."""
    device = directory.stat().st_dev
    wanted = f"{os.major(device)}:{os.minor(device)}"
    for line in Path("/proc/self/mountinfo").read_text("utf-8").splitlines():
        before, _, after = line.partition(" - ")
        if before.split()[2] == wanted:
            kind, source, _ = after.split(" ", 2)
            return f"{kind} on {source} ({before.split()[5]})"
    return "unknown"


def ticks() -> tuple[int, int]:
    """Of all cores since boot: used, and all."""
    user, nice, system, idle, waiting, *rest = map(int, _first_line("/proc/stat").split()[1:9])
    return user + nice + system + sum(rest), user + nice + system + idle + waiting + sum(rest)


def _synced_write(directory: Path) -> float:
    """Seconds, the median of some."""
    path = directory / "synced"
    handle = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
    took = []
    try:
        for _ in range(_SYNCS):
            began = time.perf_counter()
            os.write(handle, b"x" * 4096)
            os.fdatasync(handle)
            took.append(time.perf_counter() - began)
    finally:
        os.close(handle)
        path.unlink()
    return statistics.median(took)


def _first_line(file: str) -> str:
    return Path(file).read_text("ascii").partition("\n")[0]


def _field(file: str, name: str) -> str:
    for line in Path(file).read_text("utf-8", "replace").splitlines():
        key, _, value = line.partition(":")
        if key.strip() == name:
            return value.strip()
    return ""


def _package(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"
