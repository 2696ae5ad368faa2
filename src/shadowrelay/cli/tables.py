"""Lays out tables so that no line is wider than the terminal, and nothing is cut.

Columns that find no room go below their row, the widest first: as a rule reasons, errors and subjects.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

_GAP = "  "
_INDENT = "    "
_EMPTY = "–"
_ROOM = 40  # columns of the terminal in which the last column goes on below itself


def laid_out(columns: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> Iterator[str]:
    """The lines of a table. ``width``: of the terminal."""
    widths = [
        max(cell_len(text) for text in (column, *(row[index] for row in rows)))
        for index, column in enumerate(columns)
    ]
    last = len(columns) - 1
    beside = list(range(len(columns)))
    while len(beside) > 1 and _needed(widths, beside) > width:
        room = width - _needed(widths, beside[:-1]) - len(_GAP)
        if beside[-1] == last and room >= min(_ROOM, width // 2):
            widths[last] = room  # it goes on below itself
            break
        beside.remove(max(beside[1:], key=lambda index: widths[index]))
    below = [index for index in range(len(columns)) if index not in beside]
    yield from _row(columns, widths, beside, width)
    for row in rows:
        yield from _row(row, widths, beside, width)
        for index in below:
            if row[index] not in ("", _EMPTY):
                name = f"{columns[index]}: " if columns[index].strip() else ""
                for line in _folded(name + row[index], width - len(_INDENT)):
                    yield _INDENT + line


def _needed(widths: Sequence[int], beside: Sequence[int]) -> int:
    return sum(widths[index] + len(_GAP) for index in beside) - len(_GAP)


def _row(row: Sequence[str], widths: Sequence[int], beside: Sequence[int], width: int) -> Iterator[str]:
    *before, last = beside
    head = _line([row[index] for index in before], [widths[index] for index in before])
    start = _needed(widths, before) + len(_GAP) if before else 0
    for number, text in enumerate(_folded(row[last], min(widths[last], width))):
        begin = head if number == 0 else ""
        yield (begin + " " * (start - cell_len(begin)) + text).rstrip()


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = (cell + " " * (width - cell_len(cell)) for cell, width in zip(cells, widths, strict=True))
    return _GAP.join(padded)


def _folded(text: str, width: int) -> Iterator[str]:
    """The text in lines of that width at most: broken between words; a word that is too long, anywhere."""
    if cell_len(text) <= width:
        yield text
        return
    for line in Text(text).wrap(_PLAIN, max(1, width), overflow="fold"):
        yield line.plain.rstrip()


_PLAIN = Console(width=80, color_system=None)
