"""Which files a query needs, and which task reads which: by names and sizes."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Protocol, TypeVar

from shadowaudit.logs.layout import NAME
from shadowaudit.spark.places import Log, arrived, name_of

PART = 32 << 20
"""Octets of files that one task reads."""


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

    @property
    def timed(self) -> bool:
        """Are rows of some times asked for alone?"""
        return self.since is not None or self.until is not None

    def has_times(self, first: datetime, last: datetime) -> bool:
        """May a row be asked for whose time is between these?"""
        too_old = self.since is not None and last < self.since
        too_new = self.until is not None and first > self.until
        return not (too_old or too_new)


def needed(logs: Sequence[Log], wanted: Wanted) -> list[Log]:
    """Those of the files that may have rows which are asked for, by their names.

    Of times no name tells, nor do the first and the last rows: the clock may have been set between them.
    """
    return [log for log in logs if wanted.has_node(node_in(name_of(log.uri)))]


def node_in(name: str) -> str | None:
    """The node that a file's name tells of: ours do."""
    found = NAME.fullmatch(name)
    return found["node"] if found else None


class Sized(Protocol):
    """A file of so many octets."""

    @property
    def size(self) -> int: ...


File = TypeVar("File", bound=Sized)


@dataclass(frozen=True, slots=True)
class Piece:
    """The rows of a file that begin from ``begin`` on and before ``end``. None: to its end, as it is then."""

    log: Log
    begin: int = 0
    end: int | None = None

    @property
    def size(self) -> int:
        """Octets, as far as the file was listed."""
        return (self.log.size if self.end is None else self.end) - self.begin


PIECES = 16
"""Of a file, at most: whoever reads one looks for the ends of the rows above it, from the beginning."""


def pieces(logs: Iterable[Log], octets: int = PART) -> list[Piece]:
    """The files, those with more octets in pieces."""
    found = []
    for log in logs:
        many = min(-(-log.size // octets), PIECES) or 1
        cuts = [log.size * number // many for number in range(many)]
        found += [Piece(log, *cut) for cut in zip(cuts, [*cuts[1:], None], strict=True)]
    return found


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


SHUFFLE = "spark.sql.shuffle.partitions"
"""How many tasks merge what others made: 200 in Spark, unless told, however little that is."""


def merging_tasks(octets: int, most: int) -> int:
    """How many such tasks so many octets of logs need. ``most``: what the session was told."""
    return min(most, octets // PART + 1)


Offset = dict[str, Any]
"""How far a stream has come: by directory and name, size and arrival of each file that it has read; or the
size alone, if nobody knows when it came. ``UNTIL``, among the names: what came by then was read, too."""

UNTIL = ""
KEPT = 7 * 24 * 3600 * 10**9
"""Nanoseconds. Files that came so long before the newest one of their directory are named no more."""


def offset_of(logs: Iterable[Log], before: Mapping[str, Any] | None = None) -> Offset:
    """After these files. Those ``before`` stay also when they are gone: a directory may be for a while."""
    found = {directory: dict(names) for directory, names in (before or {}).items()}
    for log in logs:
        directory, _, name = log.uri.rpartition("/")
        at = arrived(log)
        found.setdefault(directory, {})[name] = log.size if at is None else [log.size, at]
    return found


def shortened(offset: Mapping[str, Any], waiting: Iterable[Log]) -> Offset:
    """The same without the names of files that came long before others. ``waiting``: not read yet."""
    first: dict[str, int] = {}
    for log in waiting:
        directory = log.uri.rpartition("/")[0]
        first[directory] = min(first.get(directory, 1 << 63), arrived(log) or 0)
    return {
        directory: _shortened(names, first.get(directory, 1 << 63)) for directory, names in offset.items()
    }


def _shortened(names: Mapping[str, Any], first: int) -> dict[str, Any]:
    came = {name: told[1] for name, told in names.items() if isinstance(told, list)}
    # A clock that was ahead for a while must not say of what comes later that it came before.
    until = min(max(came.values(), default=0) - KEPT, first - 1, time.time_ns() - KEPT)
    if until <= names.get(UNTIL, 0):
        return dict(names)
    return {name: told for name, told in names.items() if came.get(name, until + 1) > until} | {UNTIL: until}


def beyond(logs: Iterable[Log], start: Mapping[str, Any]) -> list[Log]:
    """Those that are new since then, or have another size: such a file is read again, whole."""
    return [log for log in logs if _read(log.uri, start) != log.size and not _came_before(log, start)]


def _came_before(log: Log, offset: Mapping[str, Any]) -> bool:
    """Is it one of those that are named no more?"""
    directory, _, name = log.uri.rpartition("/")
    names = offset.get(directory, {})
    if UNTIL not in names or name in names:
        return False
    at = arrived(log)
    return at is not None and at <= names[UNTIL]


def between(logs: Iterable[Log], start: Mapping[str, Any], end: Mapping[str, Any]) -> list[Log]:
    """What is in ``end`` and not in ``start``. Raises FileNotFoundError for a file that is gone meanwhile."""
    at_hand = {log.uri: log for log in logs}
    uris = [f"{directory}/{name}" for directory, names in end.items() for name in names if name != UNTIL]
    chosen = [uri for uri in sorted(uris) if _read(uri, start) != _read(uri, end)]
    for uri in chosen:
        if uri not in at_hand:
            raise FileNotFoundError(f"{uri} is gone, and was not read yet")
    return [at_hand[uri] for uri in chosen]


def _read(uri: str, offset: Mapping[str, Any]) -> int | None:
    directory, _, name = uri.rpartition("/")
    told = offset.get(directory, {}).get(name)
    size: int | None = told[0] if isinstance(told, list) else told
    return size
