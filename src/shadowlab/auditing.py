"""Runs the audit of a lab: on closed logs, with each lost database declared.

``shadowaudit`` is a program of its own, and a process of its own here.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from shadowlab import layout
from shadowlab.cluster import Cluster
from shadowlab.layout import LabNode, WorkerDirectories
from shadowlab.probing import database_of
from shadowlab.processes import ProcessState
from shadowrelay.database.opening import database_in

AUDIT = "audit"
"""Where the report and the verdict go, in the lab's directory."""

_WAIT = 25.0  # seconds: nodes close a log when it is 15 s old
_OURS = re.compile(rb"S:Seq=\d+;S:Boot=[^;]*;S:Db=([^;,\"]+)")
_HEAD = 1 << 16


def audit(cluster: Cluster, more: Sequence[str], tell: Callable[[str], None]) -> int:
    """Judge the tracking logs of a lab, whether its nodes run or not.

    Returns the exit status of ``shadowaudit verify``. ``more``: further arguments of it. Raises LabError.
    """
    nodes = cluster.layout.nodes
    running = [node for node in nodes if cluster.process(node.short).state is ProcessState.RUNNING]
    _closed({log for node in running for log in _open_logs(node)}, tell)
    command = [sys.executable, "-m", "shadowaudit", "verify", str(cluster.directory / "tracking")]
    command += ["--out", str(cluster.directory / AUDIT)]
    if any(_open_logs(node) for node in nodes) or running:
        command.append("--allow-open")
    for database in lost_databases(cluster):
        tell(f"The disk with database {database} was lost: the audit is told so.")
        command += ["--lost", database]
    return subprocess.run([*command, *more], check=False).returncode


def lost_databases(cluster: Cluster) -> tuple[str, ...]:
    """What ``wipe`` noted, and each database with closed logs that its node, or its worker, has no more."""
    found = dict.fromkeys(layout.lost_in(cluster.directory))
    for node in cluster.layout.nodes:
        state = cluster.process(node.short).state
        for number, place in enumerate(node.places, 1):
            has: str | None = None
            if state is ProcessState.GONE:
                has = database_in(place.data_dir)
            elif state is ProcessState.RUNNING:
                has = database_of(node, number)
            if has is None and state is not ProcessState.GONE:
                continue  # it runs and says nothing: its disk may be in use
            found |= dict.fromkeys(one for one in _logged(place) if one != has)
    return tuple(found)


def _logged(place: WorkerDirectories) -> Iterator[str]:
    """The databases of a worker's closed logs, the oldest first."""
    for log in sorted(place.tracking_dir.glob("MSGTRK*.LOG"), key=lambda path: path.stat().st_mtime_ns):
        with log.open("rb") as file:
            if named := _OURS.search(file.read(_HEAD)):
                yield named[1].decode()


def _open_logs(node: LabNode) -> set[Path]:
    return {log for place in node.places for log in place.tracking_dir.glob(".*")}


def _closed(logs: set[Path], tell: Callable[[str], None]) -> None:
    """Wait until nodes have closed these logs. What they write meanwhile is in others."""
    until = time.monotonic() + _WAIT
    if any(log.exists() for log in logs):
        tell("The nodes close their logs every 15 s: the audit waits for what they wrote before now.")
    while any(log.exists() for log in logs) and time.monotonic() < until:
        time.sleep(0.1)
