"""Places as URIs: which logs are below them, and one of them opened. By pyarrow's file systems.

A place is a directory or a file: a path, or a URI that ``pyarrow.fs.FileSystem.from_uri`` knows (``file``,
``s3``, ``gs``, ``hdfs``, ``abfs``), with its options in the query. ``s3a`` means ``s3``.

A pattern in it takes directories and logs: ``*`` stands for any characters but ``/``, ``?`` for one (not in a
URI, where its options begin), ``[a-c]`` for one of these, ``[!a-c]`` for any other, ``{one,two}`` for one or
the other. A backslash before any of these means it.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit, urlunsplit

from pyarrow import fs

from shadowaudit.core.text import plain_uri
from shadowaudit.logs.manifest import is_log, is_packed, not_read

_SCHEME = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]+)://(?P<rest>.*)", re.DOTALL)
_OBJECTS = ("s3", "gcs")
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


@dataclass(frozen=True, slots=True)
class Choice:
    """Which logs of those below a place: their names are ``like`` a pattern, and they were modified after and
    before these times (nanoseconds since 1970). ``deep``: those in directories below it, too. ``whole``: none
    of them may be compressed, as nothing reads such a one.
    """

    like: str | None = None
    after: int | None = None
    before: int | None = None
    deep: bool = True
    whole: bool = False

    def takes(self, log: Log) -> bool:
        return (
            (self.like is None or compiled(self.like).fullmatch(name_of(log.uri)) is not None)
            and (self.after is None or log.modified > self.after)
            and (self.before is None or log.modified < self.before)
        )


def find(places: Iterable[str], choice: Choice = Choice()) -> list[Log]:  # it never changes
    """Every closed log below these places that is chosen, each once, in the order of their URIs.

    A file that is named need not have the name of a log.

    Raises FileNotFoundError where a place does not exist, and OSError.
    """
    found: dict[str, Log] = {}
    for place in places:
        known = found.keys()
        found |= {log.uri: log for log in _below(place, choice) if log.uri not in known and choice.takes(log)}
    return [found[uri] for uri in sorted(found)]


def opened(log: Log) -> Any:
    """To be read from its beginning; closes itself as a context. Raises OSError."""
    system, _ = _system(log.place)
    return system.open_input_stream(_regular(system, log.path), compression=None)


def arrived(log: Log) -> int | None:
    """When it came to where it is, in nanoseconds by the clock there; None where nobody knows.

    A copy keeps the time when the log was modified: on a disk the time of the change of its inode tells; an
    object has no other time than that of its upload.
    """
    system, _ = _system(log.place)
    if not isinstance(system, fs.LocalFileSystem):
        return log.modified if system.type_name in _OBJECTS else None
    try:
        return os.stat(log.path).st_ctime_ns
    except OSError:  # it is gone
        return log.modified


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


def _below(place: str, choice: Choice) -> list[Log]:
    base, pattern = _split(place)
    system, path = _system(base)
    told = system.get_file_info(path)
    if told.type == fs.FileType.NotFound:
        raise FileNotFoundError(f"{_shown(place, path)} does not exist")
    if told.type != fs.FileType.Directory:
        _packed(base, [told], choice)
        return [_log(base, told)]
    infos = system.get_file_info(fs.FileSelector(path, recursive=choice.deep or pattern is not None))
    if pattern is None:
        _packed(base, infos, choice)
        return [_log(base, info) for info in infos if _is_log(info)]
    below = "(/.*)?" if choice.deep else "(/[^/]*)?"
    try:
        wanted = re.compile(f"{re.escape(path.rstrip('/'))}/{compiled(pattern).pattern}{below}", re.DOTALL)
    except ValueError as problem:
        raise OSError(f"{plain_uri(place)}: {problem}") from None
    chosen = [info for info in infos if wanted.fullmatch(info.path)]
    if not chosen:
        raise FileNotFoundError(f"nothing is like {plain_uri(place)}")
    _packed(base, chosen, choice)
    return [_log(base, info) for info in chosen if _is_log(info)]


def _packed(place: str, infos: Sequence[Any], choice: Choice) -> None:
    """What is in compressed logs would be missing without a word: raises OSError where that must not be."""
    there = {info.path for info in infos}
    found = [
        log.uri
        for info in infos
        if is_packed(info.base_name, ()) and (unpacked := info.path.rpartition(".")[0]) not in there
        if choice.takes(replace(log := _log(place, info), uri=_shown(place, unpacked)))
    ]
    if found and choice.whole:
        raise OSError(not_read(sorted(found)))


def _split(place: str) -> tuple[str, str | None]:
    """The directory above the first part with a pattern, and what follows it."""
    told = _SCHEME.fullmatch(place)
    if told is None and os.path.lexists(place):
        return place, None
    parts = urlsplit(place) if told else None
    path = parts.path if parts else os.path.abspath(place)
    first = _PATTERN.search(path)
    if first is None:
        return place, None
    end = path.rfind("/", 0, first.start())
    base = path[:end] or "/"
    pattern = path[end + 1 :].rstrip("/")
    return (urlunsplit(parts._replace(path=base)) if parts else base), pattern


_PATTERN = re.compile(
    r"\\(?P<plain>.)|(?P<any>\*)|(?P<one>\?)|\[(?P<set>[^]/]+)\]|\{(?P<either>[^{}]*)\}", re.DOTALL
)


def compiled(pattern: str) -> re.Pattern[str]:
    """A pattern as Hadoop's, of names. Raises ValueError for one that can have no meaning."""
    try:
        return re.compile(_expression(pattern), re.DOTALL)
    except re.error as problem:
        raise ValueError(f"no pattern: {problem.msg}") from None


def _expression(pattern: str) -> str:
    found, at = [], 0
    for one in _PATTERN.finditer(pattern):
        found.append(re.escape(pattern[at : one.start()]))
        at = one.end()
        match one.lastgroup:
            case "plain":
                found.append(re.escape(one["plain"]))
            case "any":
                found.append("[^/]*")
            case "one":
                found.append("[^/]")
            case "set":
                no = one["set"][0] in "!^"
                these = re.sub(r"([\\\[&~|^])", r"\\\1", one["set"][no:])
                found.append(f"[{'^/' if no else ''}{these}]")
            case _:
                found.append(f"(?:{'|'.join(map(_expression, one['either'].split(',')))})")
    return "".join((*found, re.escape(pattern[at:])))


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
