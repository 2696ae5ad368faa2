"""Seals what a crash left in the log directory, before anything else is written."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import field
from datetime import datetime
from pathlib import Path

from shadowrelay.core.identifiers import Incarnation
from shadowrelay.core.values import dataclass
from shadowrelay.tracking.files import (
    LogName,
    closed_files,
    create_file,
    date,
    log_name,
    publish,
    sync_directory,
    write_all,
)
from shadowrelay.tracking.seal import WholeRows, footer_of, whole_rows

_TAIL = 512


@dataclass(frozen=True, slots=True)
class Recovery:
    """What a recovery did. ``written``: for each incarnation, the last sequence that is in a file here.

    A database set back to an old copy gives out the same numbers again, and a new database begins at 1. Their
    rows have another incarnation, and are not the rows on disk.
    """

    sealed: tuple[Path, ...] = ()
    removed: tuple[Path, ...] = ()
    set_aside: tuple[Path, ...] = ()
    written: Mapping[Incarnation, int] = field(default_factory=dict)


def recover(directory: Path, node: str, now: datetime) -> Recovery:
    """Seal this node's files that a crash left open, and tell which rows are in files already.

    Run it before the first row is written. The whole rows of a left-over are sealed; a left-over without rows
    is removed; one with more than a torn last line is also kept, under a dot name. Their age counts from
    ``now``, which is reckoned time. Safe to repeat after a crash.

    Raises BlockingIOError if another process writes here as the same node, and OSError.
    """
    directory.mkdir(mode=0o750, parents=True, exist_ok=True)
    sealed: list[Path] = []
    removed: list[Path] = []
    set_aside: list[Path] = []
    for path in sorted(directory.iterdir()):
        name = _left_over(path.name, node)
        if name is None:
            continue
        with _locked(path) as handle:
            data = _content(handle)
            rows = whole_rows(data, name.incarnation)
            # If the closed file exists, an earlier recovery was cut short: only the removal is missing.
            if rows is not None and not os.path.lexists(directory / name.closed):
                sealed.append(_seal(directory, name, rows, now))
            if (rows is None and not _only_header(data)) or (rows is not None and rows.unexplained):
                os.rename(path, directory / name.damaged)
                set_aside.append(directory / name.damaged)
            else:
                path.unlink()
                if rows is None:
                    removed.append(path)
    sync_directory(directory)
    return Recovery(tuple(sealed), tuple(removed), tuple(set_aside), _written(directory, node))


def _left_over(file_name: str, node: str) -> LogName | None:
    """The name of a left-over of ``node``; None for any other file."""
    base, dot, ending = file_name.removeprefix(".").rpartition(".")
    if not (file_name.startswith(".") and dot and ending == "open"):
        return None
    name = log_name(base)
    return name if name is not None and name.node == node else None


@contextmanager
def _locked(path: Path) -> Iterator[int]:
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield handle
    finally:
        os.close(handle)


def _content(handle: int) -> bytes:
    with os.fdopen(os.dup(handle), "rb") as file:
        return file.read()


def _only_header(data: bytes) -> bool:
    return all(line.startswith(b"#") and b"\n" not in line for line in data.split(b"\r\n")[:-1])


def _seal(directory: Path, name: LogName, rows: WholeRows, now: datetime) -> Path:
    """Copy the whole rows to a new file, with a footer, and publish that file.

    After a failed fsync the kernel may take pages of the left-over for clean that never reached the disk, and
    a second fsync would confirm them. Copied bytes are dirty again.
    """
    (directory / name.sealing).unlink(missing_ok=True)  # left from a recovery that was cut short
    handle = create_file(directory / name.sealing)
    try:
        write_all(handle, rows.content + rows.footer().line().encode())
        date(handle, now)
        os.fsync(handle)
    finally:
        os.close(handle)
    return publish(directory, name.sealing, name.closed)


def _written(directory: Path, node: str) -> dict[Incarnation, int]:
    """For each incarnation, the last sequence in its newest file that has one."""
    written: dict[Incarnation, int] = {}
    newest_first = sorted(closed_files(directory, node), key=lambda found: -found[0].first)
    for name, entry in newest_first:
        if name.incarnation not in written and (last := _last_sequence(Path(entry.path), name)):
            written[name.incarnation] = last
    return written


def _last_sequence(path: Path, name: LogName) -> int | None:
    with _locked(path) as handle:
        length = os.fstat(handle).st_size
        footer = footer_of(os.pread(handle, _TAIL, max(0, length - _TAIL)))
        if footer is not None:
            return footer.last
        # Closed files have a footer: someone cut this one. Its rows must not be written twice all the same.
        rows = whole_rows(_content(handle), name.incarnation)
        return rows.last if rows is not None else None
