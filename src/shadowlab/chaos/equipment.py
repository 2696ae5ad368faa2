"""Equips nodes for some faults: gives each its own file system and wall clock."""

from __future__ import annotations

import shutil
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from shadowlab import clocks, disks
from shadowlab.cluster import Cluster
from shadowlab.disks import Disk, mounted
from shadowlab.guard import undisturbed
from shadowlab.layout import home_of, path_of

_OCTETS = 2 << 30  # size of a node's disk; it takes only the room that is written to


class Need(StrEnum):
    """What a fault needs for every node."""

    DISK = "a file system of its own"
    CLOCK = "a wall clock of its own"


def lacking(need: Need) -> str:
    """What this machine lacks for ``need``; empty if nothing."""
    match need:
        case Need.DISK:
            return disks.lacking()
        case Need.CLOCK:
            return clocks.lacking()


@dataclass(frozen=True, slots=True)
class Equipment:
    """Disks by the nodes' short names; empty if no fault needs them. ``clocks``: the lab has clocks."""

    disks: Mapping[str, Disk] = field(default_factory=dict)
    clocks: bool = False

    def sync(self) -> None:
        """Make durable what processes other than the nodes wrote to the disks. Raises LabError."""
        for disk in self.disks.values():
            disk.sync()

    def mend(self, cluster: Cluster, node: str) -> None:
        """Undo all faults of a node's disk and clock. Raises LabError."""
        if disk := self.disks.get(node):
            disk.go_on()
            if disk.dark:
                cluster.kill(node, missing_ok=True)
                disk.restore()
            disk.clear()
        if self.clocks:
            cluster.set_clock(node, clocks.RIGHT)


@contextmanager
def equipped(directory: Path, nodes: Collection[str], needs: Collection[Need]) -> Iterator[Equipment]:
    """Equip a lab that will be made in the directory, and is down at exit. Raises LabError.

    At exit the files of each disk are copied to where it was mounted: an ordinary lab is left. If no lab was
    made, nothing is left.
    """
    own = directory / "equipment"
    missing = [path for path in (directory, *directory.parents) if not path.exists()]
    with ExitStack() as stack:
        stack.callback(_remove_empty, missing)
        stack.callback(shutil.rmtree, own, ignore_errors=True)
        of_disks = {}
        if Need.CLOCK in needs:
            stack.callback(clocks.sweep, time.time())
        if Need.DISK in needs:
            stack.callback(_remove_empty, [home_of(directory, node).parent for node in nodes])
            for node in nodes:
                of_disks[node] = stack.enter_context(_disk(directory, own / f"{node}.img", node))
        yield Equipment(of_disks, Need.CLOCK in needs)


@contextmanager
def _disk(directory: Path, image: Path, node: str) -> Iterator[Disk]:
    place = home_of(directory, node)
    kept = place.with_name(f".{place.name}")
    try:
        with mounted(image, place, _OCTETS) as disk:
            try:
                yield disk
            finally:
                if path_of(directory).exists():
                    with undisturbed():
                        shutil.copytree(place, kept, ignore=shutil.ignore_patterns("lost+found"))
    finally:
        with undisturbed():
            _remove_empty([place])
            if kept.exists() and not place.is_mount():
                kept.rename(place)


def _remove_empty(directories: Iterable[Path]) -> None:
    for directory in directories:
        with suppress(OSError):
            directory.rmdir()
