"""A summary as text. Tables of fixed width: for terminals, mail and ``grep``."""

from __future__ import annotations

from collections.abc import Iterator

from shadowaudit.summary import tables
from shadowaudit.summary.model import Summary
from shadowaudit.summary.tables import ID, NUMBER, SummaryTable

_LEAST = 20  # columns of a line that are shown however narrow the terminal is


def lines(summary: Summary, uri: str, version: int, width: int | None = None) -> Iterator[str]:
    """The text, line by line. ``width``: where the terminal ends; None: nothing is cut."""
    yield tables.title(summary)
    yield f"Tables: {uri}, version {version}"
    if summary.first is None:
        yield from ("", "There is no mail in these days.")
        if summary.unread.rows:
            yield " ".join(tables.unread(summary)) + "."
        return
    yield from _titled("Totals")
    for number, what in tables.totals(summary):
        yield f"{number:>14}  {what}"
    yield from (f"  {remark}" for remark in tables.remarks(summary))
    for table in tables.every(summary):
        yield from _titled(table.title)
        yield from _table(table, width)
        if table.note:
            yield f"  {table.note}"


def _titled(title: str) -> tuple[str, str, str]:
    return "", title, "-" * len(title)


def _table(table: SummaryTable, width: int | None) -> Iterator[str]:
    """Ids are for programs and pages: they are left out."""
    shown = [number for number, (_, kind) in enumerate(table.columns) if kind != ID]
    rows = [[title for title, _ in table.columns], *table.rows]
    cells = [[row[number] for number in shown] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    right = [table.columns[number][1] == NUMBER for number in shown]
    for row in cells:
        parts = (
            f"{cell:>{size}}" if number else f"{cell:<{size}}"
            for cell, size, number in zip(row, widths, right, strict=True)
        )
        line = f"  {'  '.join(parts)}".rstrip()
        yield line if width is None or len(line) <= width else f"{line[: max(width, _LEAST) - 1]}…"
