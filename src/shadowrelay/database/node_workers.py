"""Keeps how many workers each other node has, as its first worker said last."""

from __future__ import annotations

from shadowrelay.core.identifiers import ServerName
from shadowrelay.database import sums
from shadowrelay.database.ledger import SqlLedger
from shadowrelay.database.queries import load

SQL = load("node_workers.sql")


def kept(ledger: SqlLedger) -> dict[ServerName, int]:
    """How many workers each node has that ever said so. A damaged row is none: its node says it again."""
    rows = [row for row in ledger.connection.execute(SQL["all_workers"]) if sums.sound(sums.one, row)]
    return {ServerName(node): count for node, count, _ in rows}


def keep(ledger: SqlLedger, node: ServerName, workers: int) -> None:
    """Keep what the node said."""
    ledger.connection.execute(SQL["put_workers"], (node, workers))
