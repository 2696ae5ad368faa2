"""Reads the life of one message from the tracking log of a node: the newest files first, for a limited time.

Everything here blocks: run it in a thread. Files are read block by block, so other threads go on meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias

from shadowrelay.core.values import dataclass
from shadowrelay.tracking.format import parse_row, row_identity

Row: TypeAlias = Mapping[str, str]

LONGEST = 1.0
"""Seconds after which no further file is begun."""

_BLOCK = 1 << 20
_GROWING, _CLOSED = ".MSGTRK-*.LOG.open", "MSGTRK-*.LOG"


@dataclass(frozen=True, slots=True)
class Traced:
    """Rows, in the order of their files. ``older``: files below this name's place are not read yet; '' if all
    are.
    """

    rows: tuple[Row, ...]
    older: str


def trace(directory: Path, wanted: str, older: str, most: int, seconds: Callable[[], float]) -> Traced:
    """The rows about a message. ``older``: go on there. No file is begun once ``most`` rows are found."""
    rows: list[Row] = []
    began, last = seconds(), ""
    for place, path in _files(directory, older):
        if last and (len(rows) >= most or seconds() - began > LONGEST):
            return Traced(tuple(rows), last)
        with suppress(FileNotFoundError):
            rows += _rows(path, wanted)
        last = place
    return Traced(tuple(rows), "")


def _files(directory: Path, older: str) -> list[tuple[str, Path]]:
    """The files of the log with their places, the newest first; only those older than that place.

    A place is the time of the last write, then the name. The file that grows comes before all others. It may
    be renamed meanwhile: then it is looked for by its new name.
    """
    found = []
    for pattern in (_GROWING, _CLOSED):
        for path in directory.glob(pattern):
            with suppress(FileNotFoundError):
                name = path.name.removeprefix(".").removesuffix(".open")
                at = path.stat().st_mtime_ns if pattern == _CLOSED else 1 << 63
                found.append((f"{at:020d} {name}", path))
    found.sort(reverse=True)
    return [(place, path) for place, path in found if not older or place < older]


def _rows(path: Path, wanted: str) -> Iterator[Row]:
    try:
        file = path.open("rb")
    except FileNotFoundError:  # it was closed and renamed since it was listed, or deleted
        file = path.with_name(path.name.removeprefix(".").removesuffix(".open")).open("rb")
    text = wanted.encode()
    with file:
        rest = b""
        while block := file.read(_BLOCK):
            block = rest + block
            end = block.rfind(b"\n") + 1
            rest = block[end:]
            yield from _in_block(block[:end], text, wanted)


def _in_block(block: bytes, text: bytes, wanted: str) -> Iterator[Row]:
    at = block.find(text)
    while at >= 0:
        begin, end = block.rfind(b"\n", 0, at) + 1, block.find(b"\n", at) + 1
        with suppress(ValueError):  # a comment, or a damaged row
            row = parse_row(block[begin:end].decode("utf-8", "replace"))
            row_identity(row)
            if row["network-message-id"] == wanted:
                yield row
        at = block.find(text, end)
