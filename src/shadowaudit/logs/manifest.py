"""Which files there are: closed tracking logs below the directories given."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Found:
    """A log file, as the directory lists it."""

    path: Path
    size: int
    modified: int  # nanoseconds


class NoLogsError(Exception):
    """Nothing to audit, and where logs are looked for."""


def find(places: Iterable[Path]) -> list[Found]:
    """Every closed log below these directories (or the files named), each once, in the order of their paths.

    Files that are still written have names that begin with a dot, and are left out. Raises NoLogsError.
    """
    asked = list(places)
    found = {one.path.resolve(): one for place in asked for one in _below(place)}
    if not found:
        where = ", ".join(map(str, asked))
        raise NoLogsError(
            f"no tracking log in {where}: closed logs are named MSGTRK….LOG; one that a node still writes "
            "begins with a dot and is read after it was closed (at least hourly, and at shutdown)"
        )
    return [found[path] for path in sorted(found)]


def _below(place: Path) -> Iterator[Found]:
    if not place.exists():
        raise NoLogsError(f"{place} does not exist")
    if place.is_file():
        yield _found(place)
        return
    problems: list[OSError] = []
    for directory, _, names in os.walk(place, onerror=problems.append):
        for name in names:
            if name.upper().startswith("MSGTRK") and name.upper().endswith(".LOG"):
                yield _found(Path(directory, name))
    if problems:
        raise NoLogsError(f"{problems[0].filename} cannot be read: {problems[0].strerror}")


def _found(path: Path) -> Found:
    try:
        status = path.stat()
    except OSError:  # a dangling link: reported as unreadable when it is read
        return Found(path.absolute(), 0, 0)
    return Found(path.absolute(), status.st_size, status.st_mtime_ns)
