"""Which files a query needs, and which task reads which: by names, sizes, and the ends of files."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol, TypeVar

from shadowaudit.logs.layout import NAME, Layout
from shadowaudit.spark.places import Log, ends, name_of

MARGIN = timedelta(hours=1)
"""A row may be so much older than the first rows of its file, or newer than the last, and is still found.

Rows stand in the order of their steps, which is that of time as long as nobody sets the clock.
"""

PART = 32 << 20
"""Octets of files that one task reads."""

_EDGE = 1 << 16  # octets at each end of a file that are looked at
_AT_ONCE = 16
_BOM = b"\xef\xbb\xbf"
_TIME = re.compile(rb"^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,6})?)Z,", re.MULTILINE)

Span = tuple[datetime, datetime]


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a query asks for: rows from ``since`` on and ``until``, of these nodes. None: of any."""

    since: datetime | None = None
    until: datetime | None = None
    nodes: frozenset[str] | None = None

    def later_than(self, moment: datetime) -> Wanted:
        """And not before that."""
        return replace(self, since=moment if self.since is None else max(self.since, moment))

    def earlier_than(self, moment: datetime) -> Wanted:
        """And not after that."""
        return replace(self, until=moment if self.until is None else min(self.until, moment))

    def of_nodes(self, names: Iterable[str]) -> Wanted:
        """And of one of these."""
        some = frozenset(names)
        return replace(self, nodes=some if self.nodes is None else self.nodes & some)

    def has_node(self, name: str | None) -> bool:
        """May rows of that node be asked for? Of None nobody knows."""
        return self.nodes is None or name is None or name in self.nodes

    def has_span(self, span: Span | None) -> bool:
        """May rows of a file be asked for whose first and last are of these times?"""
        if span is None:
            return True
        too_old = self.since is not None and span[1] + MARGIN < self.since
        too_new = self.until is not None and span[0] - MARGIN > self.until
        return not (too_old or too_new)

    @property
    def has_times(self) -> bool:
        return self.since is not None or self.until is not None


def needed(
    logs: Sequence[Log], wanted: Wanted, edges: Callable[[Log, int], tuple[bytes, bytes]] = ends
) -> list[Log]:
    """Those of the files that may have rows which are asked for. Raises OSError."""
    some = [log for log in logs if wanted.has_node(node_in(name_of(log.uri)))]
    if not wanted.has_times:
        return some
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        spans = list(pool.map(lambda log: span_of(*edges(log, _EDGE)), some))
    return [log for log, span in zip(some, spans, strict=True) if wanted.has_span(span)]


def node_in(name: str) -> str | None:
    """The node that a file's name tells of: ours do."""
    found = NAME.fullmatch(name)
    return found["node"] if found else None


def span_of(head: bytes, tail: bytes) -> Span | None:
    """The times between which a file's rows are, by its ends; None when they do not tell."""
    layout = Layout()
    for line in head.removeprefix(_BOM).splitlines(keepends=True):
        if not line.startswith(b"#"):
            break
        layout.comment(line)
    if layout.fields[:1] != ("date-time",):
        return None
    first, last = _moments(head), _moments(tail or head)
    if not first or not last:
        return None
    # A line that begins with a time may be part of a quoted cell: it makes the span wider.
    return min(first), max(first + last)


def _moments(octets: bytes) -> list[datetime]:
    found = []
    for text in _TIME.findall(octets):
        try:
            found.append(datetime.fromisoformat(text.decode()).replace(tzinfo=UTC))
        except ValueError:
            continue
    return found


class Sized(Protocol):
    """A file of so many octets."""

    @property
    def size(self) -> int: ...


File = TypeVar("File", bound=Sized)


def parts(files: Iterable[File], octets: int = PART) -> list[tuple[File, ...]]:
    """Files for each task, in their order: so many octets together, or one file."""
    found: list[list[File]] = []
    size = 0
    for file in files:
        if not found or size + file.size > octets:
            found.append([])
            size = 0
        found[-1].append(file)
        size += file.size
    return [tuple(one) for one in found]


Offset = dict[str, Any]
"""How far a stream has come: directory, name and size of each file that it has read."""


def offset_of(logs: Iterable[Log], before: Mapping[str, Any] | None = None) -> Offset:
    """After these files. Those ``before`` stay also when they are gone: a directory may be for a while."""
    found = {directory: dict(names) for directory, names in (before or {}).items()}
    for log in logs:
        directory, _, name = log.uri.rpartition("/")
        found.setdefault(directory, {})[name] = log.size
    return found


def beyond(logs: Iterable[Log], start: Mapping[str, Any]) -> list[Log]:
    """Those that are new since then, or have another size: such a file is read again, whole."""
    return [log for log in logs if _read(log.uri, start) != log.size]


def between(logs: Iterable[Log], start: Mapping[str, Any], end: Mapping[str, Any]) -> list[Log]:
    """What is in ``end`` and not in ``start``. Raises FileNotFoundError for a file that is gone meanwhile."""
    at_hand = {log.uri: log for log in logs}
    uris = [f"{directory}/{name}" for directory, names in end.items() for name in names]
    chosen = [uri for uri in sorted(uris) if _read(uri, start) != _read(uri, end)]
    for uri in chosen:
        if uri not in at_hand:
            raise FileNotFoundError(f"{uri} is gone, and was not read yet")
    return [at_hand[uri] for uri in chosen]


def _read(uri: str, offset: Mapping[str, Any]) -> int | None:
    directory, _, name = uri.rpartition("/")
    size: int | None = offset.get(directory, {}).get(name)
    return size
