"""Is there room on the disk for new mail? What is stored already must always find enough to be settled."""

from __future__ import annotations

import os
from pathlib import Path

from shadowrelay.core.values import dataclass

_RELIEF = 1.25  # of the minimum: a disk at its edge would refuse and accept by turns


@dataclass(slots=True)
class Room:
    """Free space of the disk that holds ``directory``; one for all connectors of a node.

    Once less than ``minimum`` octets were free, nothing is admitted until a quarter more than that is free.
    """

    directory: Path
    minimum: int
    _short: bool = False

    @property
    def free(self) -> int:
        """Octets."""
        found = os.statvfs(self.directory)
        return found.f_bavail * found.f_frsize

    @property
    def shortage(self) -> str:
        """In words, for whoever is to make room."""
        return (
            f"mail is put off: {self.free / 2**20:,.0f} MiB are free on the disk of {self.directory}, "
            f"minimum_free_disk is {self.minimum / 2**20:,.0f} MiB, and a quarter more ends it"
        )

    def admits(self, size: int = 0) -> bool:
        """May mail of that many octets (0: unknown) be taken? A large one closes the door to no other."""
        free = self.free
        self._short = free < self.minimum * (_RELIEF if self._short else 1)
        return not self._short and free - size >= self.minimum
