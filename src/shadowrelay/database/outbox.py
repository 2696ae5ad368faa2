"""Reads the outbox of tracking events; a row leaves it only after a log file holds it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import cast

import structlog
from pydantic_core import SchemaValidator, core_schema

from shadowrelay.core.identifiers import Beginning, Incarnation, MessageId
from shadowrelay.core.tracking import RowsDamaged
from shadowrelay.core.tracking_row import Columns, OutboxRow
from shadowrelay.core.values import dataclass
from shadowrelay.database import sums
from shadowrelay.database.ledger import SQL, SqlLedger
from shadowrelay.database.search import SQL as SEARCH
from shadowrelay.database.sums import SqlRow
from shadowrelay.database.transport import TransportDatabase

log = structlog.get_logger(__name__)

_TEXT = core_schema.str_schema(strict=True)
_TEXTS = SchemaValidator(core_schema.dict_schema(_TEXT, _TEXT))


@dataclass(frozen=True, slots=True)
class Outbox:
    """Reads and forgets rows, oldest first."""

    database: TransportDatabase

    async def rows_after(self, sequence: int, most: int) -> list[OutboxRow]:
        """Up to ``most`` committed rows after ``sequence``: the only writer reads them."""
        rows, openings = await self.database.transact(lambda ledger: _read(ledger, sequence, most))
        database_id = self.database.lineage.database_id
        return [
            OutboxRow(row[0], _committed_in(openings, row[0]), database_id, _columns(row)) for row in rows
        ]

    async def forget(self, upto: int) -> None:
        """Delete rows up to ``upto``. Returns once that is durable."""
        await self.database.transact(
            lambda ledger: ledger.connection.execute(SQL["outbox_forget"], (upto,)).rowcount
        )


def rows_about(ledger: SqlLedger, message_id: MessageId) -> list[Columns]:
    """Rows about a message that no log file holds yet."""
    rows = ledger.connection.execute(SQL["outbox_about"], (message_id,)).fetchall()
    return [_columns(row) for row in rows]


def unwritten(ledger: SqlLedger, message_id: MessageId) -> list[OutboxRow]:
    """Rows about a message that no log file holds yet, as they will be written."""
    rows = ledger.connection.execute(SEARCH["unwritten"], (message_id,)).fetchall()
    database_id, openings = ledger.lineage.database_id, ledger.openings
    found = [OutboxRow(row[0], _committed_in(openings, row[0]), database_id, _columns(row)) for row in rows]
    return [row for row in found if row.columns.get("network-message-id") == message_id]


def _read(ledger: SqlLedger, sequence: int, most: int) -> tuple[list[SqlRow], tuple[Beginning, ...]]:
    return ledger.connection.execute(SQL["outbox_after"], (sequence, most)).fetchall(), ledger.openings


def _columns(row: SqlRow) -> Columns:
    """The columns of a row. A damaged row becomes one that says so, and delays no other."""
    if found := sums.sound(lambda row: _TEXTS.validate_json(row[1]), row):
        return cast(Columns, found)
    log.error("tracking_row_unreadable", row=str(row[1])[:200])
    return RowsDamaged(at=datetime.now(UTC), message_id=MessageId(""), reason="a row of the outbox").columns()


def _committed_in(openings: tuple[Beginning, ...], sequence: int) -> Incarnation:
    for opening in reversed(openings):
        if opening.sequence < sequence:
            return opening.incarnation
    return openings[0].incarnation
