"""Which files there are: closed tracking logs below the directories given."""

from __future__ import annotations

import os
import re
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Protocol

from shadowaudit.core.facts import Opened
from shadowaudit.logs.layout import NAME

_PACKED = re.compile(r"MSGTRK.+\.LOG\.(gz|bz2|xz|zst|zip)", re.IGNORECASE)
_OPEN = re.compile(r"\.(?P<closed>MSGTRK-.+\.LOG)\.open")
_DATE = re.compile(rb"^#Date: (\S+)\r$", re.MULTILINE)


class Log(Protocol):
    """A log file to read, as it was listed. ``name``: a path or a URI, and what its facts name it."""

    @property
    def name(self) -> str: ...

    @property
    def size(self) -> int:
        """Octets."""
        ...

    @property
    def modified(self) -> int:
        """Nanoseconds since 1970."""
        ...


@dataclass(frozen=True, slots=True)
class Found:
    """A log file, as the directory lists it."""

    path: Path
    size: int
    modified: int  # nanoseconds

    @property
    def name(self) -> str:
        """As its facts name it."""
        return str(self.path)


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenLog(Opened):
    """And when it began it."""

    path: Path
    since: datetime

    def told(self, now: datetime) -> str:
        """Which node, and how old."""
        age = timedelta(seconds=max(0, int((now - self.since).total_seconds())))
        return f"{self.node} (since {self.since.astimezone(UTC):%H:%M:%S}Z, {age})"


class NoLogsError(Exception):
    """Nothing to audit, and where logs are looked for."""


class NoneClosedError(NoLogsError):
    """The directories are there, and no closed log is in them: one may come."""


class DamagedStateError(Exception):
    """A file of the state is missing or was changed, and what to do."""


def find(places: Iterable[Path]) -> list[Found]:
    """Every closed log below these directories (or the files named), each once, in the order of their paths.

    Files that are still written have names that begin with a dot, and are left out. Raises NoLogsError: also
    where one of the directories has neither a closed log nor an open one, whatever is in the others.
    """
    asked = list(places)
    found: dict[Path, Found] = {}
    for place in asked:
        unread = open_logs([place])  # first: they may be closed meanwhile
        logs = {one.path.resolve(): one for one in _below(place)}
        if not logs and not unread:
            raise NoneClosedError(_nothing_in(place))
        found |= logs
    if not found:
        where = ", ".join(map(str, asked))
        told = still_open(open_logs(asked), datetime.now(UTC))
        raise NoneClosedError(f"no closed tracking log in {where}: {told}")
    return [found[path] for path in sorted(found)]


def packed_logs(places: Iterable[Path]) -> list[str]:
    """The compressed logs below these directories that are not there unpacked as well, in order."""
    found: set[str] = set()
    for place in places:
        if place.is_file():
            found |= {str(place.absolute())} if is_packed(place.name, ()) else set()
        for directory, _, names in os.walk(place):
            here = set(names)
            found |= {str(Path(directory, name).absolute()) for name in here if is_packed(name, here)}
    return sorted(found)


def not_read(packed: Sequence[str]) -> str:
    """A sentence about these compressed logs, which nothing reads."""
    others = f" and {len(packed) - 1:,} more" if len(packed) > 1 else ""
    return f"compressed, and not read: {packed[0]}{others}: unpack them first"


def is_packed(name: str, beside: Container[str]) -> bool:
    """Is that the name of a compressed log, which is not unpacked ``beside`` it?"""
    return bool(_PACKED.fullmatch(name)) and Path(name).stem not in beside


def passed_over(places: Iterable[Path]) -> list[str]:
    """Files below these directories that may be logs by their name or their first line, and are not read."""
    found: list[str] = []
    for place in places:
        for directory, _, names in os.walk(place):
            here = set(names)
            for name in names:
                packed = _PACKED.fullmatch(name)
                if is_log(name) or _OPEN.fullmatch(name) or (packed and Path(name).stem in here):
                    continue
                path = Path(directory, name)
                if packed or "MSGTRK" in name.upper() or _begins_as_log(path):
                    found.append(str(path))
    return sorted(found)


def is_log(name: str) -> bool:
    """Is that the name of a closed log?"""
    return name.upper().startswith("MSGTRK") and name.upper().endswith(".LOG")


def _begins_as_log(path: Path) -> bool:
    try:
        if not path.is_file():
            return False
        with path.open("rb") as file:
            return b"#Log-type: Message Tracking Log" in file.read(1000)
    except OSError:
        return False


def _nothing_in(place: Path) -> str:
    """A sentence about a directory without logs: not mounted, compressed, or another one."""
    if packed := packed_logs([place]):
        name = Path(packed[0]).name
        return f"no tracking log in {place}, but compressed ones, such as {name}: unpack them first"
    return (
        f"no tracking log in {place}: closed logs are files named MSGTRK….LOG; one that a node still writes "
        "begins with a dot and is read after it was closed (at least hourly, and at shutdown)"
    )


def open_logs(places: Iterable[Path]) -> list[OpenLog]:
    """The logs below these directories that nodes still write, in the order of their paths."""
    found: dict[Path, OpenLog] = {}
    for place in places:
        for directory, _, names in os.walk(place):
            for name in names:
                closed = _OPEN.fullmatch(name)
                told = NAME.fullmatch(closed["closed"]) if closed else None
                if told:
                    path = Path(directory, name).absolute()
                    found[path] = OpenLog(
                        path=path,
                        place=str(path.parent),
                        node=told["node"],
                        boot=told["boot"],
                        first=int(told["first"]),
                        since=_since(path),
                    )
    return [found[path] for path in sorted(found)]


def _since(path: Path) -> datetime:
    """When it was begun, as its header says; when it was last written, if that is not on disk yet."""
    try:
        if not path.is_file():  # a FIFO, say: to open it would wait for ever
            return datetime.now(UTC)
        with path.open("rb") as file:
            date = _DATE.search(file.read(1000))
        if date:
            return datetime.fromisoformat(date[1].decode())
        return datetime.fromtimestamp(path.stat().st_mtime, UTC)
    except (OSError, ValueError):  # closed at this very moment, or not ours to read
        return datetime.now(UTC)


def still_open(logs: Iterable[OpenLog], now: datetime) -> str:
    """A sentence about logs that are not read yet, and what to do."""
    told = ", ".join(one.told(now) for one in logs)
    return (
        f"still open, and not read: {told}. A node closes its log when it is tracking.max_file_age old (1h "
        "unless set; 15s in a lab), when it is stopped, and when it is started after a crash: ask again then"
    )


def _below(place: Path) -> Iterator[Found]:
    if not place.exists():
        raise NoLogsError(f"{place} does not exist")
    if place.is_file():
        yield _found(place)
        return
    problems: list[OSError] = []
    for directory, _, names in os.walk(place, onerror=problems.append):
        for name in names:
            if is_log(name):
                yield _found(Path(directory, name))
    if problems:
        raise NoLogsError(f"{problems[0].filename} cannot be read: {problems[0].strerror}")


def _found(path: Path) -> Found:
    try:
        status = path.stat()
    except OSError:  # a dangling link: reported as unreadable when it is read
        return Found(path.absolute(), 0, 0)
    return Found(path.absolute(), status.st_size, status.st_mtime_ns)
