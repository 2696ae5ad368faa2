"""Rows, a clock and an outbox for the tests of the tracking log."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from shadowrelay.core.identifiers import DatabaseId, Incarnation
from shadowrelay.core.tracking_row import OutboxRow

INCARNATION = Incarnation("00112233445566aa")
DATABASE = DatabaseId("6f0d7a3e-0000-4000-8000-000000000001")


class Clock:
    """Stands still until a test moves it."""

    def __init__(self) -> None:
        self.now = datetime(2026, 11, 21, 10, 0, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now

    def advance(self, by: timedelta) -> None:
        self.now += by


class MemoryOutbox:
    """The outbox table, in memory; ``calls`` records what was asked of it, in order."""

    def __init__(self) -> None:
        self.rows: list[OutboxRow] = []
        self.calls: list[str] = []
        self.before_forget: Callable[[int], None] = lambda upto: None
        self.broken: Exception | None = None

    def add(self, *sequences: int, incarnation: str = INCARNATION, subject: str = "Hello") -> None:
        for sequence in sequences:
            columns = {"event-id": "SEND", "message-subject": subject, "custom-data": "S:Epoch=1"}
            self.rows.append(OutboxRow(sequence, Incarnation(incarnation), DATABASE, columns))

    async def rows_after(self, sequence: int, most: int) -> list[OutboxRow]:
        if self.broken:
            raise self.broken
        self.calls.append(f"rows_after {sequence}")
        return [row for row in self.rows if row.sequence > sequence][:most]

    async def forget(self, upto: int) -> None:
        self.before_forget(upto)
        self.calls.append(f"forget {upto}")
        self.rows = [row for row in self.rows if row.sequence > upto]


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def outbox() -> MemoryOutbox:
    return MemoryOutbox()
