"""One cell changed at a time, in files that are sealed again: what an audit sees of it."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from plainly import judged
from resealing import copied, logs, resealed, rows

from shadowaudit.core.verdict import PROVEN
from shadowaudit.generate.writing import FIELDS

COLUMNS = FIELDS.split(",")
_SEALED = {"Seq", "Boot", "Db"}
"""Who seals a log again numbers it anew: other tests change these."""


@dataclass(frozen=True, slots=True)
class Change:
    """``what``: the column, or the entry of custom-data. ``line`` takes the place of ``row``."""

    event: str
    what: str
    path: Path
    row: bytes
    line: bytes


def changes(directory: Path) -> Iterator[Change]:
    """Each column and entry of the first row of each event, changed to something that may stand there."""
    seen: set[tuple[str, str]] = set()
    for path in logs(directory):
        for row in rows(path):
            (cells,) = csv.reader([row.decode()])
            event = cells[COLUMNS.index("event-id")]
            for what, changed in _changed(cells):
                if (event, what) not in seen:
                    seen.add((event, what))
                    line = ",".join(map(_cell, changed)) + "\r\n"
                    yield Change(event, what, path, row, line.encode())


def _changed(cells: list[str]) -> Iterator[tuple[str, list[str]]]:
    for place, name in enumerate(COLUMNS):
        if name != "custom-data":
            yield name, [*cells[:place], _other(name, cells[place]), *cells[place + 1 :]]
            continue
        entries = cells[place].split(";")
        for number, entry in enumerate(entries):
            key, _, text = entry.partition("=")
            if key.removeprefix("S:") not in _SEALED:
                changed = [*entries[:number], f"{key}={_other(key, text)}", *entries[number + 1 :]]
                yield key, [*cells[:place], ";".join(changed), *cells[place + 1 :]]


def _other(name: str, text: str) -> str:
    """Another value of that kind."""
    if name == "date-time":
        return f"2027{text[4:]}"
    if not text:
        return "x"
    if text.isdigit():
        return str(int(text) + 1)
    last = "1" if text[-1] != "1" else "2"
    return f"x{text}" if name == "recipient-address" else text[:-1] + last


def _cell(text: str) -> str:
    quoted = text.replace('"', '""')
    return f'"{quoted}"' if "," in text or '"' in text else text


def unseen(directory: Path, target: Path) -> dict[str, list[str]]:
    """Columns and entries that may be changed while the verdict stays *proven*, with their events."""
    found: dict[str, list[str]] = {}
    for change in changes(directory):
        copied(directory, target)
        path = target / change.path.relative_to(directory)
        path.write_bytes(path.read_bytes().replace(change.row, change.line, 1))
        resealed(target)
        if judged(target)[0].status == PROVEN:
            found.setdefault(change.what, []).append(change.event)
    return found
