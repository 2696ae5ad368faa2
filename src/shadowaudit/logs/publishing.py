"""Files that others read: written whole or not at all."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from pathlib import Path


def publish(target: Path, write: Callable[[Path], object], *, durable: bool = False) -> None:
    """``write`` makes the file under another name; it gets its own when it is whole. Again replaces it.

    ``durable``: its octets are on disk before. Raises OSError.
    """
    hidden = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
    write(hidden)
    if durable:
        with hidden.open("rb") as file:
            os.fsync(file.fileno())
    hidden.replace(target)
