"""Decides whether there is room for new mail: stored mail must always find enough to be settled."""

from __future__ import annotations

import os
from pathlib import Path

from shadowrelay.core.values import dataclass

_RELIEF = 1.25  # times the minimum: otherwise a nearly full disk would refuse and accept in turns

_LITTLE = 2  # times the minimum


@dataclass(slots=True)
class Room:
    """Free space of the disk with ``directory``; all connectors of a node share one.

    Once fewer than ``minimum`` octets are free, it admits nothing until a quarter more than that is free.
    ``without_descriptors``: rows of the tracking log wait for a descriptor; until it is over nothing is
    admitted either, for each message makes more of them.
    """

    directory: Path
    minimum: int
    _short: bool = False
    without_descriptors: bool = False

    @property
    def free(self) -> int:
        """Free octets."""
        found = os.statvfs(self.directory)
        return found.f_bavail * found.f_frsize

    @property
    def shortage(self) -> str:
        """The shortage in words, for the operator."""
        if self.without_descriptors:
            return "mail is put off: the process has no file descriptor left for its tracking log"
        return (
            f"mail is put off: {self.free / 2**20:,.0f} MiB are free on the disk of {self.directory}, "
            f"minimum_free_disk is {self.minimum / 2**20:,.0f} MiB; a quarter more free space ends it"
        )

    @property
    def warning(self) -> str:
        """What an operator has to know before there is a shortage; empty while there is plenty."""
        free = self.free
        if free >= _LITTLE * self.minimum or self._short:
            return ""
        return (
            f"little room: {free / 2**20:,.0f} MiB are free on the disk of {self.directory}; mail is put off "
            f"below {self.minimum / 2**20:,.0f} MiB (minimum_free_disk)"
        )

    def admits(self, size: int = 0) -> bool:
        """Whether mail of ``size`` octets (0: unknown) may be taken. Refusing by size affects no others."""
        free = self.free
        self._short = free < self.minimum * (_RELIEF if self._short else 1)
        return not (self._short or self.without_descriptors) and free - size >= self.minimum

    def wait_for_descriptors(self, waits: bool) -> None:  # noqa: FBT001
        """Rows of the tracking log wait for a descriptor, or do so no more."""
        self.without_descriptors = waits
