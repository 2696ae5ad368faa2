"""Places as URIs: which logs are below them, and one of them opened. By pyarrow's file systems.

A place is a directory or a file: a path, or a URI that ``pyarrow.fs.FileSystem.from_uri`` knows (``file``,
``s3``, ``gs``, ``hdfs``, ``abfs``), with its options in the query. ``s3a`` means ``s3``. A ``*`` in it stands
for any characters but ``/``, and takes directories and logs.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit, urlunsplit

from pyarrow import fs

from shadowaudit.core.text import plain_uri
from shadowaudit.logs.manifest import is_log

_SCHEME = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]+)://(?P<rest>.*)", re.DOTALL)
_HADOOPS = re.compile("file:/(?!/)")
"""How Hadoop, and so Spark, writes the path that a table was given."""

_WITH_HOST = ("hdfs", "viewfs")
"""Where pyarrow's path does not begin with what the URI names first."""


@dataclass(frozen=True, slots=True, order=True)
class Log:
    """A log file. ``uri``: as users see it, without options or secrets. ``place`` says which file system."""

    uri: str
    size: int
    modified: int  # nanoseconds
    place: str = field(repr=False)  # may have secrets
    path: str = field(repr=False)

    @property
    def name(self) -> str:
        """What facts and findings name it."""
        return self.uri


def find(places: Iterable[str]) -> list[Log]:
    """Every closed log below these places, each once, in the order of their URIs. A file named counts anyway.

    Raises FileNotFoundError where a place does not exist, and OSError.
    """
    found: dict[str, Log] = {}
    for place in places:
        known = found.keys()
        found |= {log.uri: log for log in _below(place) if log.uri not in known}
    return [found[uri] for uri in sorted(found)]


def opened(log: Log) -> Any:
    """To be read from its beginning; closes itself as a context. Raises OSError."""
    system, _ = _system(log.place)
    return system.open_input_stream(_regular(system, log.path), compression=None)


def is_local(log: Log) -> bool:
    """Is it a file that this machine's own calls open, by its path?"""
    return isinstance(_system(log.place)[0], fs.LocalFileSystem)


class Ranges:
    """Octets of these logs, from any place on. Files stay open until it is closed, some at a time."""

    _OPEN = 32

    def __init__(self, logs: Iterable[Log]) -> None:
        self._logs = {log.uri: log for log in logs}
        self._files: dict[str, Any] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for file in self._files.values():
            file.close()
        self._files.clear()

    def read(self, uri: str, begin: int, end: int) -> bytes:
        """Less where the file ends before. Raises OSError, with the log's name."""
        try:
            file = self._files.pop(uri, None) or self._opened(uri)
            self._files[uri] = file  # the one used last is last
            file.seek(begin)
            found: bytes = file.read(end - begin)
        except OSError as problem:
            told = problem.strerror or str(problem)
            raise OSError(problem.errno or errno.EIO, told, uri) from problem
        return found

    def _opened(self, uri: str) -> Any:
        if len(self._files) == self._OPEN:
            self._files.pop(next(iter(self._files))).close()
        log = self._logs[uri]
        system, _ = _system(log.place)
        if isinstance(system, fs.LocalFileSystem):
            return open(_regular(system, log.path), "rb")
        return system.open_input_file(log.path)


def name_of(uri: str) -> str:
    """The name of the file."""
    return uri.rpartition("/")[2]


def absolute(place: str) -> str:
    """The place for other processes, whose working directory may be another."""
    if _HADOOPS.match(place):
        return place.removeprefix("file:")
    return place if _SCHEME.fullmatch(place) else os.path.abspath(place)


def reached(place: str) -> tuple[Any, str]:
    """The file system that a place names without a ``*``, and the path in it. Raises OSError, ValueError."""
    return _system(place)


def shown(place: str) -> str:
    """As users may see it: without options or secrets."""
    return plain_uri(place) if _SCHEME.fullmatch(place) else place


@lru_cache(maxsize=64)
def _system(place: str) -> tuple[Any, str]:
    """File system and path in it."""
    told = _SCHEME.fullmatch(place)
    if told is None:
        return fs.LocalFileSystem(), os.path.abspath(place)
    scheme = told["scheme"].lower()
    return fs.FileSystem.from_uri(f"{'s3' if scheme == 's3a' else scheme}://{told['rest']}")  # type: ignore[no-any-return]


def _regular(system: Any, path: str) -> str:
    """To open anything else here might wait for ever."""
    if isinstance(system, fs.LocalFileSystem) and os.path.exists(path) and not os.path.isfile(path):
        raise OSError(f"{path} is no file")
    return path


def _below(place: str) -> list[Log]:
    base, pattern = _split(place)
    system, path = _system(base)
    told = system.get_file_info(path)
    if told.type == fs.FileType.NotFound:
        raise FileNotFoundError(f"{_shown(place, path)} does not exist")
    if told.type != fs.FileType.Directory:
        return [_log(base, told)]
    infos = system.get_file_info(fs.FileSelector(path, recursive=True))
    if pattern is None:
        return [_log(base, info) for info in infos if _is_log(info)]
    wanted = re.compile(f"{re.escape(path.rstrip('/'))}/{pattern}(/.*)?", re.DOTALL)
    chosen = [info for info in infos if wanted.fullmatch(info.path)]
    if not chosen:
        raise FileNotFoundError(f"nothing is like {plain_uri(place)}")
    return [_log(base, info) for info in chosen if _is_log(info)]


def _split(place: str) -> tuple[str, str | None]:
    """The directory above the first part with a ``*``, and what follows it as a pattern."""
    told = _SCHEME.fullmatch(place)
    if "*" not in place or (told is None and os.path.lexists(place)):
        return place, None
    parts = urlsplit(place) if told else None
    path = parts.path if parts else os.path.abspath(place)
    whole = path.split("/")
    first = next((number for number, part in enumerate(whole) if "*" in part), None)
    if first is None:
        return place, None
    pattern = "/".join("[^/]*".join(map(re.escape, part.split("*"))) for part in whole[first:])
    base = "/".join(whole[:first]) or "/"
    return (urlunsplit(parts._replace(path=base)) if parts else base), pattern.rstrip("/")


def _is_log(info: Any) -> bool:
    return bool(info.type != fs.FileType.Directory and is_log(info.base_name))


def _log(place: str, info: Any) -> Log:
    return Log(_shown(place, info.path), max(info.size or 0, 0), info.mtime_ns or 0, place, info.path)


def _shown(place: str, path: str) -> str:
    told = _SCHEME.fullmatch(place)
    if told is None or told["scheme"].lower() == "file":
        return str(Path(path))
    scheme = told["scheme"].lower()
    if scheme in _WITH_HOST:
        return f"{scheme}://{urlsplit(place).netloc.rpartition('@')[2]}{path}"
    return f"{scheme}://{path}"
