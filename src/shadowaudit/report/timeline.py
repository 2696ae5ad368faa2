"""What rows of a log tell, step by step: time, event, from where to where, for whom, with which answer."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

_FROM, _TO, _ANSWER, _EVENT, _RECIPIENTS = 2, 4, 5, 8, (12, 11)  # Exchange 2010 has one column less
_MOST = 3  # recipients told of each row


@dataclass(frozen=True, slots=True)
class Step:
    """A row, in the words of the log. ``at``: by the clock of the node that wrote it."""

    at: datetime
    event: str
    origin: str
    target: str
    recipients: str
    answer: str


def steps(rows: Iterable[str]) -> list[Step]:
    """The rows in the order of their times. A row that is cut, or of no known shape, is left out."""
    found = (step for row in rows if (step := _step(row)) is not None)
    return sorted(found, key=lambda step: step.at)


def _step(row: str) -> Step | None:
    try:
        cells = next(csv.reader([row]), [])
        at = datetime.fromisoformat(cells[0]) if len(cells) > max(_RECIPIENTS) else None
    except (csv.Error, ValueError):
        return None
    if at is None:
        return None
    named = next((cells[column] for column in _RECIPIENTS if "@" in cells[column]), "")
    recipients = [one for one in named.split(";") if one]
    more = f" and {len(recipients) - _MOST:,} more" if len(recipients) > _MOST else ""
    return Step(
        at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC),
        cells[_EVENT],
        cells[_FROM],
        cells[_TO],
        ", ".join(recipients[:_MOST]) + more,
        cells[_ANSWER],
    )
