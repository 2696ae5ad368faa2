"""Which messages this process has in hand, in a small file that outlives the process.

The file is mapped into memory and never synced: taking a message in hand costs no system call. After a crash
the kernel still has what the process wrote. After a power cut the file may say anything, and nobody asks it
(docs/decisions/0035-the-operators-hand.md).
"""

from __future__ import annotations

import mmap
import os
from pathlib import Path
from typing import Protocol

FILE = "in-hand"
SLOTS = 2048
"""Messages in hand at a time that are noted. More are not: with so many, none is likely to be the cause."""

_SLOT = 64  # octets: an id, and zeros
NOWHERE = -1


class Page(Protocol):
    """What is written to: memory, or a file that is mapped into memory."""

    def __setitem__(self, where: slice, octets: bytes, /) -> None: ...


class InHand:
    """The messages in hand. One that is delivered to two next hops is in hand twice."""

    def __init__(self, page: Page | None = None) -> None:
        self._page: Page = bytearray(SLOTS * _SLOT) if page is None else page
        self._free = list(range((SLOTS - 1) * _SLOT, -1, -_SLOT))

    @classmethod
    def on_disk(cls, directory: Path) -> InHand:
        """The messages in hand from now on; the file of an earlier process is overwritten. Raises OSError."""
        handle = os.open(directory / FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(handle, 0, SLOTS * _SLOT)  # a full disk shows here, and not at a later write
            os.pwrite(handle, bytes(SLOTS * _SLOT), 0)
            return cls(mmap.mmap(handle, SLOTS * _SLOT))
        finally:
            os.close(handle)

    @property
    def taken(self) -> int:
        """How many slots are in use."""
        return SLOTS - len(self._free)

    def take(self, message_id: str) -> int:
        """A message comes in hand. Returns its slot, for ``leave``."""
        if not self._free or len(octets := message_id.encode()) > _SLOT:
            return NOWHERE
        slot = self._free.pop()
        self._page[slot : slot + _SLOT] = octets.ljust(_SLOT, b"\0")
        return slot

    def leave(self, slot: int) -> None:
        """The message that was given this slot is not in hand any more."""
        if slot != NOWHERE:
            self._page[slot : slot + 1] = b"\0"
            self._free.append(slot)

    def freeze(self) -> None:
        """The process is about to end after an error: what is in hand now is what the next start counts."""
        self._page = bytearray(SLOTS * _SLOT)


def left(directory: Path) -> frozenset[str]:
    """What the process before had in hand when it ended; nothing if there is no such file."""
    try:
        octets = (directory / FILE).read_bytes()
    except OSError:
        return frozenset()
    slots = (octets[at : at + _SLOT].rstrip(b"\0") for at in range(0, len(octets), _SLOT))
    return frozenset(slot.decode("ascii", "replace") for slot in slots if slot and slot[:1] != b"\0")
