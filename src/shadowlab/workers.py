"""The processes of workers: their supervisor starts them, so the lab asks the kernel which they are."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from signal import SIGKILL

from shadowlab.errors import LabError
from shadowlab.processes import Process

_NAMED = re.compile(r"w([1-9][0-9]?)\.(.+)", re.IGNORECASE)
_PATIENCE = 10.0  # seconds until a process that was killed is gone


def parted(name: str) -> tuple[str, int | None]:
    """A name of a node, or of its worker (``w2.mx1``), as the node and the number of the worker."""
    found = _NAMED.fullmatch(name)
    return (found[2], int(found[1])) if found else (name, None)


def of(arguments: Sequence[str]) -> dict[int, Process]:
    """The workers of the node that was started with these arguments, by number, whoever is their parent."""
    return dict(sorted(_found(tuple(arguments))))


def killed(arguments: Sequence[str]) -> None:
    """Kill all workers of that node. Raises LabError."""
    workers = of(arguments)
    for one in workers.values():
        one.signal(SIGKILL)
    for number, one in workers.items():
        if not one.wait(_PATIENCE):
            raise LabError(f"worker {number} (pid {one.pid}) does not die")


def _found(arguments: tuple[str, ...]) -> Iterator[tuple[int, Process]]:
    marked = "\0".join((*arguments, "--worker", "")).encode("utf-8", "surrogateescape")
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with suppress(OSError):
                _, mark, after = (entry / "cmdline").read_bytes().partition(b"\0" + marked)
                if mark:
                    words = (mark + after).decode("utf-8", "surrogateescape").strip("\0").split("\0")
                    number = int(words[len(arguments) + 1])
                    yield number, Process(int(entry.name), tuple(words))
