"""What tells one content of a file from another, without reading it."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import TypeAlias

Stamp: TypeAlias = tuple[int, ...]

LOOK_AGAIN = 1.0
"""Seconds after which a file that may change at any time is looked at again."""


def stamp(path: Path, invalid: type[Exception]) -> Stamp:
    """The stamp of a file. Raises OSError, and ``invalid`` for what is no file: reading might never end."""
    found = path.stat()
    if not stat.S_ISREG(found.st_mode):
        raise invalid("is no file")
    return found.st_ino, found.st_size, found.st_mtime_ns
