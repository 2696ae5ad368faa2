"""Sentences for what keeps a command from its work: output that finds no room, an extra that is missing."""

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


def extra_of(problem: Exception) -> str:
    """What has to be installed, if a library is missing; empty if something else is wrong."""
    if not isinstance(problem, ModuleNotFoundError) or not problem.name:
        return ""
    library = problem.name.partition(".")[0]
    if library in ("shadowaudit", ""):
        return ""
    extra = "connect" if library in ("grpc", "grpc_status", "google") else "audit"
    return f"{library}, which comes with an extra: pip install 'shadowrelay[{extra}]'"
