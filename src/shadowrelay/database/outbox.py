"""The outbox of tracking events: rows leave it only after a log file holds them."""

from __future__ import annotations

import json

from shadowrelay.core.identifiers import Incarnation, Lineage, MessageId
from shadowrelay.core.tracking_row import Columns, OutboxRow
from shadowrelay.core.values import dataclass
from shadowrelay.database.ledger import SQL, SqlLedger
from shadowrelay.database.transport import TransportDatabase


@dataclass(frozen=True, slots=True)
class Outbox:
    """Reads and forgets rows, oldest first."""

    database: TransportDatabase

    async def rows_after(self, sequence: int, most: int) -> list[OutboxRow]:
        """Committed rows alone: the transaction that reads them is the one writer's.

        One that cannot be read is left out: the log has a gap there, which the audit sees.
        """
        rows, lineage = await self.database.transact(lambda ledger: _read(ledger, sequence, most))
        return [
            OutboxRow(number, _committed_in(lineage, number), lineage.database_id, columns)
            for number, text in rows
            if (columns := _columns(text)) is not None
        ]

    async def forget(self, upto: int) -> None:
        """Returns after the deletion is durable."""
        await self.database.transact(
            lambda ledger: ledger.connection.execute(SQL["outbox_forget"], (upto,)).rowcount
        )


def rows_about(ledger: SqlLedger, message_id: MessageId) -> list[Columns]:
    """Rows of a message that no log file holds yet."""
    rows = ledger.connection.execute(SQL["outbox_about"], (message_id,)).fetchall()
    return [columns for (text,) in rows if (columns := _columns(text)) is not None]


def _columns(text: object) -> Columns | None:
    """None if it is not what was written."""
    try:
        found = json.loads(text) if isinstance(text, str) else None
    except ValueError:
        return None
    whole = isinstance(found, dict) and all(isinstance(value, str) for value in found.values())
    return found if whole else None


def _read(ledger: SqlLedger, sequence: int, most: int) -> tuple[list[tuple[int, str]], Lineage]:
    return ledger.connection.execute(SQL["outbox_after"], (sequence, most)).fetchall(), ledger.lineage


def _committed_in(lineage: Lineage, sequence: int) -> Incarnation:
    began = [beginning for beginning in lineage.beginnings if beginning.sequence < sequence]
    return (began or lineage.beginnings[:1])[-1].incarnation
