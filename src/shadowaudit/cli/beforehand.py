"""What has to be so before Spark is started for tables: logs are there, and the place can be written to."""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Any

import click
from pyarrow import fs

from shadowaudit.cli.options import unreached
from shadowaudit.cli.progress import Shown
from shadowaudit.logs.manifest import NoLogsError, NoneClosedError, open_logs
from shadowaudit.logs.manifest import find as find_here
from shadowaudit.spark import places
from shadowaudit.spark.places import Log
from shadowaudit.spark.tables.store import Place

_MISREAD = re.compile(r"\\|%[0-9A-Fa-f]{2}")


def tables_at(uri: str) -> Place:
    """That place. Raises UsageError for one that no file system knows, and for a file."""
    try:
        place = Place.of(uri)
        kind = place.system.get_file_info(place.root or "/").type
    except (OSError, ValueError) as problem:
        raise click.UsageError(f"--tables {unreached(uri, problem)}") from None
    if kind == fs.FileType.File:
        raise click.UsageError(f"--tables {places.shown(uri)} is a file: name a directory")
    if place.is_local and _MISREAD.search(place.root):
        raise click.UsageError(
            f"--tables {uri}: deltalake cannot use a path with a backslash, or % and a number"
        )
    return place


def apart(tables: Place, where: Sequence[Path | str]) -> None:
    """Raises UsageError if the tables are where logs are looked for: each look would go through them, too."""
    own = _real(tables.system, tables.root)
    for one in where:
        try:
            system, path = places.reached(places.absolute(str(one)))
        except (OSError, ValueError):
            continue  # said where the logs are looked for
        logs = _real(system, path)
        above = (own, *own.parents)
        if system.equals(tables.system) and any(up == logs or up.match(str(logs)) for up in above):
            raise click.UsageError(
                f"--tables {places.shown(tables.uri)} is in {places.shown(str(one))}, where the logs are: "
                "give the tables a place of their own"
            )


def _real(system: Any, path: str) -> PurePosixPath:
    local = isinstance(system, fs.LocalFileSystem)
    return PurePosixPath(os.path.realpath(path) if local else path.rstrip("/") or "/")


def writable(tables: Place) -> None:
    """Write a file there and remove it, with the directories made for it. Raises UsageError."""
    try:
        made = _made(Path(tables.root)) if tables.is_local else []
        probe = tables.path(f".{secrets.token_hex(4)}")
        if tables.system.type_name == "hdfs":
            tables.system.create_dir(tables.root, recursive=True)
        try:
            with tables.system.open_output_stream(probe) as file:
                file.write(b"")
            tables.system.delete_file(probe)
        finally:
            for directory in made:
                with suppress(OSError):
                    directory.rmdir()
    except OSError as problem:
        told = problem.strerror or " ".join(str(problem).split())
        raise click.UsageError(f"--tables {places.shown(tables.uri)} cannot be written to: {told}") from None


def _made(directory: Path) -> list[Path]:
    """The directory and those above it that were not there, the lowest first."""
    missing = [one for one in (directory, *directory.parents) if not one.exists()]
    directory.mkdir(parents=True, exist_ok=True)
    return missing


def found(where: Sequence[Path | str]) -> list[Log]:
    """The closed logs below these places, each of which has one, or an open one. Raises NoLogsError."""
    logs = {str(one): below(one) for one in where}
    every = {log.uri: log for some in logs.values() for log in some}
    for one in where:
        if not logs[str(one)] and not (every and isinstance(one, Path) and open_logs([one])):
            raise none_in(one)
    return [every[uri] for uri in sorted(every)]


def awaited(where: Sequence[Path | str], shown: Shown) -> None:
    """Say which of the places have no log yet. Raises NoLogsError for a place that no file system knows."""
    for one in where:
        try:
            missing = None if below(one) else none_in(one)
        except FileNotFoundError as problem:
            shown.tell(f"waiting for logs: {problem}")
        else:
            if missing:
                shown.tell(f"waiting for logs: {missing}")


def below(place: Path | str) -> list[Log]:
    """The closed logs of one place. Raises FileNotFoundError, and NoLogsError with why it cannot be read."""
    try:
        return places.find([str(place)])
    except FileNotFoundError:
        raise
    except (OSError, ValueError) as problem:
        raise NoLogsError(unreached(str(place), problem)) from None


def none_in(place: Path | str) -> NoLogsError:
    """A sentence about a place without closed logs."""
    if isinstance(place, Path) and place.exists():
        try:
            find_here([place])
        except NoneClosedError as problem:
            return problem
    return NoLogsError(f"no tracking log (MSGTRK….LOG) in {places.shown(str(place))}")
