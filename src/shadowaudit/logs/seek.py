"""Find messages by an id or an address, without an engine: a search through the files as they are."""

from __future__ import annotations

import mmap
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from shadowaudit.core.copies import distinct
from shadowaudit.core.events import Event, listed
from shadowaudit.core.facts import FileFacts, Flavour
from shadowaudit.core.text import restored, split_row
from shadowaudit.logs.extract import Key, Source, event_of
from shadowaudit.logs.file import digest_file
from shadowaudit.logs.manifest import Found

_SINGLE = ("network-message-id", "message-id", "sender-address", "return-path")
_LISTS = ("recipient-address", "related-recipient-address")

Rows = dict[tuple[str, str, int, str], Event]


@dataclass(frozen=True, slots=True)
class Journeys:
    """What was found: the rows of each message, in the order of its first one; ``more`` were not asked for.

    ``facts``: of all files but copies.
    """

    rows: list[list[Event]]
    more: int
    facts: list[FileFacts]


def journeys(text: str, files: Sequence[Found], *, most: int) -> Journeys:
    """The first ``most`` messages that have this id, this Message-ID, or this sender or recipient.

    It has to be the whole of one; the domain of an address (what follows the last ``@``) in any case.
    """
    facts, _ = distinct([digest_file(file.path)[0] for file in files])
    sources = [Source.of(one) for one in facts if one.rows]
    wanted = _plain(text)
    first: dict[Key, tuple[int, str]] = {}  # when, and the id as it is written
    for source in sources:
        for key, event in _search(source, _pattern(wanted)):
            if _tells_of(event.line, source, wanted):
                first[key] = min(first.get(key, (event.at, event.message)), (event.at, event.message))
    chosen = sorted(first, key=lambda key: first[key])[:most]
    rows: dict[Key, Rows] = defaultdict(dict)
    for key in chosen:
        for source in sources:
            for other, event in _search(source, re.compile(re.escape(first[key][1].encode()))):
                if other == key:
                    rows[key][(event.node, event.boot, event.sequence, event.line)] = event
    return Journeys([list(rows[key].values()) for key in chosen], len(first) - len(chosen), facts)


def _plain(text: str) -> str:
    """As two that mean the same are equal."""
    local, at, domain = text.strip().removeprefix("<").removesuffix(">").rpartition("@")
    return local + at + domain.lower()


def _pattern(wanted: str) -> re.Pattern[bytes]:
    """Where it may stand in a file. A quote stands twice in a cell that is quoted."""
    local, at, domain = (re.escape(part.replace('"', '""')).encode() for part in wanted.rpartition("@"))
    return re.compile(local.replace(b'""', b'""?') + at + b"(?i:" + domain + b")")


def _tells_of(line: str, source: Source, wanted: str) -> bool:
    relay = source.flavour == Flavour.RELAY
    cells = split_row(f"{line}\r\n".encode(), len(source.fields), strict=relay) or []
    cell = dict(zip(source.fields, map(restored, cells) if relay else cells, strict=False))
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
            begin = data.rfind(b"\n", 0, place.start()) + 1
            end = data.find(b"\n", place.start()) + 1 or len(data)
            row = event_of(data[begin:end], source, begin)
            if row is not None:
                found.append(row)
            place = pattern.search(data, end)
    return found
