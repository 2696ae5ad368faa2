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


def laid_out(columns: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> Iterator[str]:
    """The lines of a table. ``width``: of the terminal."""
    widths = [
        max(cell_len(text) for text in (column, *(row[index] for row in rows)))
        for index, column in enumerate(columns)
    ]
    beside = list(range(len(columns)))
    while len(beside) > 1 and sum(widths[i] + len(_GAP) for i in beside) - len(_GAP) > width:
        beside.remove(max(beside[1:], key=lambda index: widths[index]))
    below = [index for index in range(len(columns)) if index not in beside]
    yield from _folded(_line([columns[i] for i in beside], [widths[i] for i in beside]), width)
    for row in rows:
        yield from _folded(_line([row[i] for i in beside], [widths[i] for i in beside]), width)
        for index in below:
            if row[index] not in ("", _EMPTY):
                name = f"{columns[index]}: " if columns[index].strip() else ""
                for line in _folded(name + row[index], width - len(_INDENT)):
                    yield _INDENT + line


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = (cell + " " * (width - cell_len(cell)) for cell, width in zip(cells, widths, strict=True))
    return _GAP.join(padded).rstrip()


def _folded(text: str, width: int) -> Iterator[str]:
    """The text in lines of that width at most: broken between words; a word that is too long, anywhere."""
    if cell_len(text) <= width:
        yield text
        return
    for line in Text(text).wrap(_PLAIN, max(1, width), overflow="fold"):
        yield line.plain.rstrip()


_PLAIN = Console(width=80, color_system=None)
