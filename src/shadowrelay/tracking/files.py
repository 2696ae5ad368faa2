"""Writes tracking log files: under a dot name, renamed once when closed, never touched again.

Readers that list a directory (such as Spark) never see a file that still grows. All calls here block: the
writer makes them in a thread.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

from shadowrelay import failpoints
from shadowrelay.core.identifiers import Incarnation
from shadowrelay.core.values import dataclass
from shadowrelay.tracking.format import header
from shadowrelay.tracking.seal import Footer

_NAME = re.compile(r"MSGTRK-(?P<node>.+)-(?P<incarnation>[0-9A-Za-z]+)-(?P<first>[0-9]+)\.LOG", re.ASCII)
_NODE = re.compile(r"[0-9A-Za-z_][0-9A-Za-z_.-]*", re.ASCII)
_BUFFER = 256 * 1024


@dataclass(frozen=True, slots=True)
class LogLimits:
    """When to close a file, and what a directory keeps. The last three defaults are those of Exchange."""

    max_file_age: timedelta = timedelta(hours=1)
    max_file_size: int = 10 * 10**6  # octets
    max_directory_size: int = 1000 * 10**6  # octets, of this node's closed files
    max_age: timedelta = timedelta(days=30)


@dataclass(frozen=True, slots=True)
class LogName:
    """The parts of a file's name: node and incarnation of its rows, and its first sequence."""

    node: str
    incarnation: Incarnation
    first: int

    def __post_init__(self) -> None:
        if not _NODE.fullmatch(self.node) or not _NAME.fullmatch(self.closed):
            raise ValueError(f"no file name for node {self.node!r}, incarnation {self.incarnation!r}")

    @property
    def closed(self) -> str:
        return f"MSGTRK-{self.node}-{self.incarnation}-{self.first}.LOG"

    @property
    def open(self) -> str:
        return f".{self.closed}.open"

    @property
    def sealing(self) -> str:
        """The name for the whole rows of a left-over while they are copied."""
        return f".{self.closed}.sealing"

    @property
    def damaged(self) -> str:
        """The name for a left-over that is kept, because more than its last line was torn."""
        return f".{self.closed}.damaged"


def log_name(file_name: str) -> LogName | None:
    """The parts of a closed file's name; None for any other name."""
    found = _NAME.fullmatch(file_name)
    if found is None or not _NODE.fullmatch(found["node"]):
        return None
    return LogName(found["node"], Incarnation(found["incarnation"]), int(found["first"]))


def sync_directory(directory: Path) -> None:
    """Make the directory's entries durable. Raises OSError."""
    handle = open_directory(directory)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def open_directory(directory: Path) -> int:
    """A descriptor of it, for ``os.fsync``. Raises OSError."""
    return os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


class LogFile:
    """The file that is being written. After any OSError only ``abandon`` may be called.

    It has a descriptor of its directory too, so that to close it needs none.
    """

    def __init__(self, directory: Path, name: LogName, opened: datetime, handle: int, folder: int) -> None:
        """Use ``create`` instead."""
        self.name = name
        self.opened = opened
        self.rows = 0
        self.last = 0
        self.size = 0
        self._directory = directory
        self._handle = handle
        self._folder = folder
        self._hash = hashlib.sha256()
        self._buffer = bytearray()

    @classmethod
    def create(cls, directory: Path, name: LogName, *, opened: datetime) -> LogFile:
        """Create a file under its dot name, with its header.

        Raises FileExistsError if a file of that name exists: an old file is never appended to. Raises
        OSError; if no descriptor is left, there is no file.
        """
        if os.path.lexists(directory / name.closed):
            raise FileExistsError(f"{name.closed} exists already")
        folder = open_directory(directory)
        try:
            handle = create_file(directory / name.open)
        except BaseException:
            os.close(folder)
            raise
        file = cls(directory, name, opened, handle, folder)
        try:
            file._put(header(opened).encode())
            os.fsync(folder)
        except BaseException:
            file.abandon()
            raise
        return file

    def takes(self, incarnation: str, now: datetime, limits: LogLimits) -> bool:
        """Whether a row of that incarnation belongs in this file; otherwise a new one has to begin."""
        # A clock that steps back begins a new file too, at worst a short one.
        in_time = self.opened <= now < self.opened + limits.max_file_age
        return self.name.incarnation == incarnation and in_time and self.size < limits.max_file_size

    def append(self, row: str, sequence: int) -> None:
        """Add a row; it is on disk only after ``sync`` or ``close``."""
        self._put(row.encode())
        self.rows += 1
        self.last = sequence

    def sync(self) -> None:
        """Make every row so far durable."""
        self._write_out()
        os.fsync(self._handle)

    def close(self, at: datetime) -> Path:
        """Write the footer, make the file durable, and rename it. ``at``: the reckoned time, from which its
        age counts (``date``). Returns its final path.
        """
        failpoints.passed("before-log-footer")
        footer = Footer(self.name.first, self.last, self.rows, self._hash.hexdigest())
        self._buffer += footer.line().encode()
        self._write_out()
        date(self._handle, at)
        self.sync()
        closed = publish(self._directory, self.name.open, self.name.closed, self._folder)
        self.abandon()
        return closed

    def abandon(self) -> None:
        """Close the file as it is; the recovery at the next start seals it."""
        os.close(self._handle)
        os.close(self._folder)

    def _put(self, data: bytes) -> None:
        self._hash.update(data)
        self._buffer += data
        self.size += len(data)
        if len(self._buffer) >= _BUFFER:
            self._write_out()

    def _write_out(self) -> None:
        write_all(self._handle, self._buffer)
        self._buffer.clear()


def create_file(path: Path) -> int:
    """Create and lock a file for writing. Returns its descriptor. Raises FileExistsError.

    The lock tells a recovery in another process that this process still writes here.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    handle = os.open(path, flags, 0o640)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BaseException:
        os.close(handle)
        raise
    return handle


def write_all(handle: int, data: bytes | bytearray) -> None:
    """Write all bytes: one ``os.write`` may write only some of them."""
    with memoryview(data) as rest:
        done = 0
        while done < len(rest):
            done += os.write(handle, rest[done:])


def date(handle: int, at: datetime) -> None:
    """Say when a file was written last, by the node's reckoned time. Durable with the next fsync.

    The kernel says it by the wall clock: a file that was written under a wrong one would go for its age.
    """
    os.utime(handle, (at.timestamp(), at.timestamp()))


def publish(directory: Path, hidden: str, closed: str, folder: int | None = None) -> Path:
    """Rename a synced file to its final name, durably. ``folder``: a descriptor of the directory. Raises
    FileExistsError if that name is taken.
    """
    target = directory / closed
    if os.path.lexists(target):
        raise FileExistsError(f"{closed} exists already")
    failpoints.passed("before-log-rename")
    os.rename(directory / hidden, target)
    failpoints.passed("after-log-rename")
    if folder is None:
        sync_directory(directory)
    else:
        os.fsync(folder)
    return target


def closed_files(directory: Path, node: str) -> Iterator[tuple[LogName, os.DirEntry[str]]]:
    """The closed files of ``node``, in no order; skips files of other nodes and symbolic links."""
    with os.scandir(directory) as entries:
        for entry in entries:
            name = log_name(entry.name)
            if name is not None and name.node == node and entry.is_file(follow_symlinks=False):
                yield name, entry


def enforce_limits(directory: Path, node: str, *, since: datetime, limits: LogLimits) -> list[Path]:
    """Delete this node's files that were closed before ``since``, then the oldest until the rest fits.

    Returns them. ``since`` is reckoned time, as the date of a file is. Call this only after the outbox has
    forgotten the rows of these files: without the files, nothing shows that the rows were written.
    """
    found = []
    for name, entry in closed_files(directory, node):
        status = entry.stat(follow_symlinks=False)
        found.append((status.st_mtime, name.first, status.st_size, Path(entry.path)))
    found.sort()
    total = sum(size for _, _, size, _ in found)
    deleted = []
    for modified, _, size, path in found:
        if modified >= since.timestamp() and total <= limits.max_directory_size:
            break
        path.unlink()
        total -= size
        deleted.append(path)
    return deleted
