"""``scripts/bench audit``: the audit of millions of rows, by each engine, in one run on the same files."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from shadowlab.generate.cluster import generate

from . import audit_page
from .audit_page import AGAIN, CSV, DUCKDB, HERE, ONE, STREAM, TWO
from .machine import busy, ticks

DOCS = Path(__file__).resolve().parents[2] / "docs"
ROWS_A_MESSAGE = 5
FAULTS = {
    "lost": 40, "partially-lost": 10, "duplicate": 40, "one-copy": 30, "late-copy": 20, "exposed": 200,
    "promotion": 300, "vanished-copy": 20, "in-transit": 100, "orphan": 60,
}  # fmt: skip
_FEW = dict.fromkeys(FAULTS, 2)
_SAMPLE = 0.2  # seconds between two looks at memory
_LONGEST = 1800.0
_UNCOMPILED = "PYTHONDONTWRITEBYTECODE"
"""With it Python compiles its modules at each start, where whoever built the machine has not done so."""

_REFUSED = 2  # usage, or an engine that is not here

VERIFY = ("-m", "shadowaudit", "verify", "--json", "--no-report")


@dataclass(frozen=True, slots=True)
class Measured:
    """``seconds``: the whole process; ``job``: without its start.

    ``cpu`` (seconds) and peak ``memory`` (MB) are those of all its processes.
    """

    rows: int
    what: str
    seconds: float
    job: float
    cpu: float
    memory: float
    found: int | None  # lost messages, if the candidate looks for any
    others: float = 0.0  # percent of all cores that the rest of the machine used meanwhile


@click.command("audit")
@click.option("--millions", default="5,20", show_default=True, help="Rows, in millions; several with commas.")
@click.option("--short", is_flag=True, help="A hundred thousand rows: only to see that it runs.")
@click.option("--logs", type=click.Path(path_type=Path), help="Keep the logs here, and use them again.")
@click.option("--only", multiple=True, help="Only candidates whose name contains this. May be repeated.")
@click.option("--seed", default=5, show_default=True)
@click.option("--rounds", default=3, show_default=True, help="Of all candidates in turns, for each size.")
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
def command(
    millions: str,
    logs: Path | None,
    only: tuple[str, ...],
    seed: int,
    rounds: int,
    *,
    short: bool,
    as_json: bool,
) -> None:
    """Measure the audit: whole process, job, and peak memory of all its processes, beside DuckDB.

    DuckDB and Spark's CSV reader only parse and sum; the others check hashes and sequences too, judge every
    suspect by its rows, and write all tables. A run of all candidates rewrites docs/benchmarks-audit.md for
    its sizes. Exit status 1: the candidates do not agree on what is lost, or a target was missed.
    """
    console = Console(stderr=True)
    sizes = [0.1] if short else [float(part) for part in millions.split(",")]
    measured: list[Measured] = []
    with _room(logs) as home:
        machine = audit_page.machine(home)
        before = busy()
        for size in sizes:
            directory = _logs(home, size, seed, console)
            for number in range(1 if short else rounds):
                console.print(f"round {number + 1}", highlight=False)
                measured += _round(directory, home, only, console)
        machine["others"] = f"use {before} of the cores before, {busy()} after"
    figures = [asdict(one) for one in measured]
    if as_json:
        print(json.dumps(figures))
    lines = audit_page.lines(figures)
    if not as_json:
        audit_page.show(Console(), lines)
    if not short and not only:
        audit_page.publish(DOCS, machine, figures)
    missed = any(line[-1] == audit_page.MISS for line in lines)
    sys.exit(0 if _agree(measured) and not (missed and not short) else 1)


@contextmanager
def _room(logs: Path | None) -> Iterator[Path]:
    if logs is not None:
        logs.mkdir(parents=True, exist_ok=True)
        yield logs
        return
    with tempfile.TemporaryDirectory(prefix="shadowrelay-bench-audit-") as made:
        yield Path(made)


def _logs(home: Path, millions: float, seed: int, console: Console) -> Path:
    directory = home / f"logs-{millions:g}m-{seed}"
    if not (directory / "truth.json").exists():
        shutil.rmtree(directory, ignore_errors=True)
        console.print(f"writing {millions:g} million rows to {directory}", highlight=False)
        messages = int(millions * 1e6 / ROWS_A_MESSAGE)
        generate(directory, messages=messages, faults=FAULTS if messages > 100_000 else _FEW, seed=seed)
    return directory


def _round(logs: Path, home: Path, only: Sequence[str], console: Console) -> Iterator[Measured]:
    rows = int(json.loads((logs / "truth.json").read_text("utf-8"))["rows"])
    _warm(logs)
    with tempfile.TemporaryDirectory(prefix="out-", dir=home) as made:
        out = Path(made)
        candidates: dict[str, tuple[str, ...]] = {
            DUCKDB: ("-m", "tests.bench.audit_sums", "duckdb", str(logs)),
            HERE: (*VERIFY, "--engine", "here", "--out", str(out / "here"), str(logs)),
            ONE: (*VERIFY, *_spark(1), "--out", str(out / "one"), str(logs)),
            TWO: (*VERIFY, *_spark(2), "--out", str(out / "two"), str(logs)),
            STREAM: ("-m", "shadowaudit", "ingest", "--json", "--tables", str(out / "tables"), str(logs)),
            CSV: ("-m", "tests.bench.audit_sums", "spark", str(logs)),
            AGAIN: (*VERIFY, "--out", str(out / "again"), "--state", str(out / "state"), str(logs)),
        }
        for name, arguments in candidates.items():
            if only and not any(part in name for part in only):
                continue
            console.print(f"{rows:,} rows: {name}", highlight=False)
            if name == AGAIN:
                _prepare(logs, out / "state")
            found = _run(name, rows, arguments)
            if found is None:
                console.print("  cannot be run here", highlight=False)
                continue
            told = f"{found.seconds:.1f} s, {found.cpu:.1f} s of processor time, {found.memory:,.0f} MB, "
            told += f"others {found.others:.0f} %"
            console.print(f"  {told}", highlight=False)
            yield found


def _spark(workers: int) -> tuple[str, ...]:
    """So many tasks run at a time."""
    return ("--engine", "spark", "--master", f"local[{workers}]")


def _warm(logs: Path) -> None:
    """Have the files in the page cache: nobody pays for the disk."""
    for path in logs.glob("*/*.LOG"):
        with path.open("rb", buffering=0) as file:
            while file.read(1 << 20):
                pass


def _prepare(logs: Path, state: Path) -> None:
    """Everything was read before, but three files: taken from anywhere, as if they came late."""
    files = sorted(logs.glob("*/*.LOG"), key=lambda path: hashlib.sha256(path.name.encode()).digest())
    subprocess.run(
        [sys.executable, "-m", "shadowaudit", "ingest", "--state", str(state),
         *map(str, files[3:])],
        check=True, capture_output=True,
    )  # fmt: skip


def _run(name: str, rows: int, arguments: Sequence[str]) -> Measured | None:
    began, used_before = time.monotonic(), ticks()
    with subprocess.Popen(
        [sys.executable, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={name: text for name, text in os.environ.items() if name != _UNCOMPILED},
    ) as process:
        used = Used()
        ended = threading.Event()
        watcher = threading.Thread(target=used.watch, args=(process.pid, ended), daemon=True)
        watcher.start()
        try:
            told, _ = process.communicate(timeout=_LONGEST)
        finally:
            if process.poll() is None:
                process.kill()
            ended.set()
            watcher.join()
    seconds = time.monotonic() - began
    all_used, all_there = (after - before for before, after in zip(used_before, ticks(), strict=True))
    others = max(0.0, all_used - used.cpu * os.sysconf("SC_CLK_TCK")) / max(1, all_there) * 100
    if process.returncode == _REFUSED:
        return None
    said: dict[str, Any] = json.loads(told)
    found: int | None = said.get("lost")
    if "classes" in said:
        found = sum(said["classes"].get(one, {}).get("count", 0) for one in ("lost", "partially-lost"))
    return Measured(
        rows,
        name,
        seconds,
        sum(said.get("timings", {"": seconds}).values()),
        used.cpu,
        used.memory,
        found,
        others,
    )


class Used:
    """What a process and its descendants took, by looking again and again."""

    def __init__(self) -> None:
        self.memory = 0.0
        self._cpu: dict[int, float] = {}

    @property
    def cpu(self) -> float:
        return sum(self._cpu.values())

    def watch(self, pid: int, ended: threading.Event) -> None:
        while not ended.wait(_SAMPLE):
            family = _family(pid)
            self.memory = max(self.memory, sum(map(_resident, family)))
            for one in family:
                self._cpu[one] = max(self._cpu.get(one, 0.0), _seconds(one))


def _seconds(pid: int) -> float:
    """Of processor time so far."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _family(pid: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except (OSError, ValueError, IndexError):
                continue
            children.setdefault(parent, []).append(int(entry.name))
    found = [pid]
    for one in found:
        found += children.get(one, [])
    return found


def _resident(pid: int) -> float:
    """MB, shared pages divided among those who share them."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("Pss:")), 0.0)


def _agree(measured: Sequence[Measured]) -> bool:
    told: dict[int, set[int]] = {}
    for one in measured:
        if one.found is not None:
            told.setdefault(one.rows, set()).add(one.found)
    return all(len(found) == 1 for found in told.values())
