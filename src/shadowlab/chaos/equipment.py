"""What some faults need of the machine: for each node a file system and a wall clock of its own."""

from __future__ import annotations

import shutil
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType

from shadowlab import clocks, disks
from shadowlab.clocks import LabClock
from shadowlab.cluster import Cluster
from shadowlab.disks import Disk, mounted
from shadowlab.guard import undisturbed
from shadowlab.layout import home_of, path_of

_OCTETS = 2 << 30  # of a node's disk: of the machine's it takes what is written to it


class Need(StrEnum):
    """Of every node."""

    DISK = "a file system of its own"
    CLOCK = "a wall clock of its own"


def lacking(need: Need) -> str:
    """What this machine lacks for it; empty when nothing is."""
    match need:
        case Need.DISK:
            return disks.lacking()
        case Need.CLOCK:
            return clocks.lacking()


@dataclass(frozen=True, slots=True)
class Equipment:
    """By the nodes' short names; empty where nothing needs it."""

    disks: Mapping[str, Disk] = field(default_factory=dict)
    clocks: Mapping[str, LabClock] = field(default_factory=dict)

    def environ(self, node: str) -> Mapping[str, str]:
        """Variables for the process of a node."""
        return self.clocks[node].environ if node in self.clocks else MappingProxyType({})

    def sync(self) -> None:
        """What was written to the disks by others than their nodes survives a power cut. Raises LabError."""
        for disk in self.disks.values():
            disk.sync()

    def mend(self, cluster: Cluster, node: str) -> None:
        """Undo whatever was done to the disk and the clock of a node. Raises LabError."""
        if disk := self.disks.get(node):
            disk.go_on()
            if disk.dark:
                cluster.kill(node, missing_ok=True)
                disk.restore()
            disk.clear()
        if clock := self.clocks.get(node):
            clock.set(0)


@contextmanager
def equipped(directory: Path, nodes: Collection[str], needs: Collection[Need]) -> Iterator[Equipment]:
    """For a lab that is about to be made in the directory, and is down at exit. Raises LabError.

    At exit the files of each disk are laid where it was mounted: what is left is a lab as any other. If none
    was made, nothing is left.
    """
    own = directory / "equipment"
    missing = [path for path in (directory, *directory.parents) if not path.exists()]
    with ExitStack() as stack:
        stack.callback(_remove_empty, missing)
        stack.callback(shutil.rmtree, own, ignore_errors=True)
        of_disks, of_clocks = {}, {}
        if Need.CLOCK in needs:
            stack.callback(clocks.sweep, time.time())
            of_clocks = {node: LabClock(own / f"{node}.clock") for node in nodes}
        if Need.DISK in needs:
            stack.callback(_remove_empty, [home_of(directory, node).parent for node in nodes])
            for node in nodes:
                of_disks[node] = stack.enter_context(_disk(directory, own / f"{node}.img", node))
        yield Equipment(of_disks, of_clocks)


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
