"""Find messages by a text in their rows, without an engine: a search through the files as they are."""

from __future__ import annotations

import mmap
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from shadowaudit.core.copies import distinct
from shadowaudit.core.events import Event
from shadowaudit.core.facts import FileFacts
from shadowaudit.logs.extract import Key, Source, event_of
from shadowaudit.logs.file import digest_file
from shadowaudit.logs.manifest import Found


def journeys(text: str, files: Sequence[Found], *, most: int) -> tuple[list[list[Event]], list[FileFacts]]:
    """The rows of each message that a row mentions the text of, and the facts of all files but copies.

    At most ``most`` messages. A text that is a message's id, or a Message-ID, finds that message only.
    """
    facts, _ = distinct([digest_file(file.path)[0] for file in files])
    sources = [Source.of(one) for one in facts if one.rows]
    found: dict[Key, list[Event]] = {}
    for source in sources:
        for key, _ in _search(source, text.strip("<>").encode()):
            if len(found) < most:
                found.setdefault(key, [])
    ids: dict[Key, str] = {}
    for source in sources:
        for key, event in _search(source, text.strip("<>").encode()):
            ids.setdefault(key, event.message)
    rows: dict[Key, dict[tuple[str, str, int, str], Event]] = defaultdict(dict)
    for key in found:
        for source in sources:
            for other, event in _search(source, ids[key].encode()):
                if other == key:
                    rows[key][(event.node, event.boot, event.sequence, event.line)] = event
    return [list(rows[key].values()) for key in found], facts


def _search(source: Source, text: bytes) -> list[tuple[Key, Event]]:
    found: list[tuple[Key, Event]] = []
    with Path(source.path).open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        at = data.find(text)
        while at >= 0:
            begin = data.rfind(b"\n", 0, at) + 1
            end = data.find(b"\n", at) + 1 or len(data)
            row = event_of(data[begin:end], source, begin)
            if row is not None:
                found.append(row)
            at = data.find(text, end)
    return found
