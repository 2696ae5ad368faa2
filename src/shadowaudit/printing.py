"""Standard output that finds no room."""

from __future__ import annotations

import os
import sys


def unprintable() -> str:
    """Why standard output takes nothing more; empty while it does. What is still in its buffer is dropped."""
    try:
        print(flush=True)
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return f"what this command prints cannot be written: {error.strerror or error}"
    return ""
