"""Hashes of files made ahead, while a processor has nothing else to do: as long as an engine starts."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import RawIOBase
from pathlib import Path

_PIECE = 1 << 20
_FOOTER = b"#Footer: "
_TAIL = 512  # octets in which a footer is


@dataclass(frozen=True, slots=True)
class Hashed:
    """SHA-256 of a file's first ``covered`` octets, when it had that size and time."""

    size: int
    modified: int
    covered: int
    sha256: str


@contextmanager
def hashed_ahead(paths: Sequence[Path]) -> Iterator[dict[str, Hashed]]:
    """One file after the other, until the context ends; what is known then is in the dictionary."""
    found: dict[str, Hashed] = {}
    ended = threading.Event()

    def run() -> None:
        buffer = memoryview(bytearray(_PIECE))
        for path in paths:
            one = _hashed(path, buffer, ended)
            if ended.is_set():
                return
            if one is not None:
                found[str(path)] = one

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield found
    finally:
        ended.set()
        thread.join()


def sha256_of(path: Path, covered: int) -> str:
    """Of the file's first octets. Raises OSError."""
    with path.open("rb", buffering=0) as file:
        return _sum(file, covered, memoryview(bytearray(_PIECE)), threading.Event())


def _hashed(path: Path, buffer: memoryview, ended: threading.Event) -> Hashed | None:
    try:
        status = path.stat()
        with path.open("rb", buffering=0) as file:
            file.seek(max(0, status.st_size - _TAIL))
            tail = file.read(_TAIL)
            last = tail[tail.rfind(b"\n", 0, -1) + 1 :]
            covered = status.st_size - (len(last) if last.startswith(_FOOTER) else 0)
            file.seek(0)
            digest = _sum(file, covered, buffer, ended)
        return Hashed(status.st_size, status.st_mtime_ns, covered, digest)
    except OSError:  # who reads it will say so
        return None


def _sum(file: RawIOBase, covered: int, buffer: memoryview, ended: threading.Event) -> str:
    digest = hashlib.sha256()
    while covered and not ended.is_set():
        count = file.readinto(buffer[: min(covered, len(buffer))])
        if not count:
            break
        digest.update(buffer[:count])
        covered -= count
    return digest.hexdigest()
