"""Find messages by an id or an address, without an engine: a search through the files as they are.

Where a message's rows are, its partial states say: so these are the rows that an audit judges it by.
"""

from __future__ import annotations

import mmap
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from shadowaudit.core.events import Event, listed
from shadowaudit.core.facts import FileFacts, Flavour
from shadowaudit.core.text import restored, split_row
from shadowaudit.logs.extract import Key, Piece, Source, event_of, records
from shadowaudit.logs.file import digest_file
from shadowaudit.logs.grown import without_copies
from shadowaudit.logs.layout import BOM
from shadowaudit.logs.lines import Room
from shadowaudit.logs.manifest import Found

_SINGLE = ("network-message-id", "message-id", "sender-address", "return-path")
_LISTS = ("recipient-address", "related-recipient-address")

_LINES_ABOVE = 200  # in which the beginning of a row is looked for
_LONGEST = 1 << 16  # octets of such a row, unless its last line is farther away

_PLACES = ["high", "low", "file_from", "file_to"]


@dataclass(frozen=True, slots=True)
class Journey:
    """One message: its id as its first row writes it, and where its rows and those of reports on it are."""

    key: Key
    name: str
    pieces: tuple[Piece, ...]


@dataclass(frozen=True, slots=True)
class Journeys:
    """What was found, in the order of each message's first row; ``more`` were not asked for.

    ``facts``: of all files that count.
    """

    found: list[Journey]
    more: int
    facts: list[FileFacts]


def journeys(text: str, files: Sequence[Found], *, most: int) -> Journeys:
    """The first ``most`` messages that have this id, this Message-ID, or this sender or recipient.

    It has to be the whole of one; the domain of an address (what follows the last ``@``) in any case.
    """
    room = Room()
    digests = [
        (facts, table.select(_PLACES)) for facts, table in (digest_file(one.path, room) for one in files)
    ]
    facts, _ = without_copies([one for one, _ in digests])
    states = {one.path: table for one, table in digests}
    sources = [Source.of(one) for one in facts if one.rows]
    wanted = _plain(text)
    first: dict[Key, tuple[int, str]] = {}  # when, and the id as it is written
    for source in sources:
        for key, event in _search(source, _pattern(wanted)):
            if _tells_of(event, source, wanted):
                first[key] = min(first.get(key, (event.at, event.message)), (event.at, event.message))
    chosen = sorted(first, key=lambda key: first[key])[:most]
    pieces: dict[Key, list[Piece]] = defaultdict(list)
    for source in sources:
        for key, piece in _pieces(source, states[source.path], chosen):
            pieces[key].append(piece)
    found = [Journey(key, first[key][1], tuple(pieces[key])) for key in chosen]
    return Journeys(found, len(first) - len(chosen), facts)


def _pieces(source: Source, states: Any, keys: Sequence[Key]) -> Iterator[tuple[Key, Piece]]:
    """Where these messages' rows are in that file. ``states``: columns ``_PLACES`` of its partial states."""
    high, low, begins, ends = (states.column(name).to_numpy() for name in _PLACES)
    for place in np.flatnonzero(np.isin(low, [key[1] for key in keys])):
        key = int(high[place]), int(low[place])
        if key in keys:
            yield key, Piece(source, int(begins[place]), int(ends[place]))


def _plain(text: str) -> str:
    """As two that mean the same are equal."""
    local, at, domain = text.strip().removeprefix("<").removesuffix(">").rpartition("@")
    return local + at + domain.lower()


def _pattern(wanted: str) -> re.Pattern[bytes]:
    """Where it may stand in a file. A quote stands twice in a cell that is quoted."""
    local, at, domain = (re.escape(part.replace('"', '""')).encode() for part in wanted.rpartition("@"))
    return re.compile(local.replace(b'""', b'""?') + at + b"(?i:" + domain + b")")


def _tells_of(event: Event, source: Source, wanted: str) -> bool:
    relay = source.flavour == Flavour.RELAY
    fields = source.fields if relay else source.fields_at(event.sequence)  # its number is its place
    cells = split_row(f"{event.line}\r\n".encode(), len(fields), strict=relay) or []
    cell = dict(zip(fields, map(restored, cells) if relay else cells, strict=False))
    named = [cell.get(name, "") for name in _SINGLE]
    for name in _LISTS:
        named += listed(cell.get(name, ""))
    return any(_plain(one) == wanted for one in named if one)


def _search(source: Source, pattern: re.Pattern[bytes]) -> list[tuple[Key, Event]]:
    """The rows in which it matches, each once."""
    found: list[tuple[Key, Event]] = []
    with Path(source.path).open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        place = pattern.search(data)
        while place:
            row, end = _row_at(data, source, place.start())
            if row is not None:
                found.append(row)
            place = pattern.search(data, end)
    return found


def _row_at(data: mmap.mmap, source: Source, at: int) -> tuple[tuple[Key, Event] | None, int]:
    """The row of which that octet is a part, if it can be read, and where it ends.

    In Exchange's logs the row may begin some lines above: a line break in quotes ends no row.
    """
    begin = data.rfind(b"\n", 0, at) + 1
    end = data.find(b"\n", at) + 1 or len(data)
    row = event_of(data[begin:end].removeprefix(BOM), source, begin)
    if row is not None or source.flavour == Flavour.RELAY:
        return row, end
    for _ in range(_LINES_ABOVE):
        record = next(records(data[begin : max(end, begin + _LONGEST)]), b"")
        row = event_of(record.removeprefix(BOM), source, begin)
        if row is not None and begin + len(record) > at:
            return row, begin + len(record)
        if not begin:
            break
        begin = data.rfind(b"\n", 0, begin - 1) + 1
    return None, end
