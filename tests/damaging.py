"""Mail with two copies on nodes that do not talk yet, and what a bad disk does to it."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from scripted_hop import ScriptedHop
from sending import sent
from stations import Station, boundary, eventually

from shadowrelay.core.identifiers import MessageId
from shadowrelay.core.messages import Copy
from shadowrelay.database.copies import ROWS_FROM_BEFORE
from shadowrelay.database.ledger import SQL, SqlLedger

SMALL = b"Subject: small\r\n\r\n" + b"a line of the body\r\n" * 20
LARGE = b"Subject: large\r\n\r\n" + (b"y" * 78 + b"\r\n") * 2500
QUICK = {
    "shadow_heartbeat_frequency": "1s",
    "discard_poll_interval": "0.2s",
    "orphan_check_interval": "1s",
    "queue_glitch_retry_interval": "1s",
    "reconcile_timeout": "2s",
}


@asynccontextmanager
async def nodes(tmp_path: Path, hop: ScriptedHop, *names: str) -> AsyncIterator[list[Station]]:
    """A boundary whose mail leaves for that hop; nothing leaves, and nobody talks, before ``awake``."""
    route = {"domains": ["*"], "host": "127.0.0.1", "port": hop.port, "tls": "none"}
    async with boundary(tmp_path, *names, routes={"out": route}, **QUICK) as made:
        yield made


def from_before_sums(ledger: SqlLedger) -> None:
    """Its rows are as a version wrote them that knew neither sums nor digests."""
    run = ledger.connection.execute
    run(
        "UPDATE message SET row_sum = NULL, asked_sum = NULL, content_digest = NULL, "
        "envelope_digest = NULL, digests_late = NULL"
    )
    run("UPDATE recipient SET row_sum = NULL")
    run("UPDATE holder SET row_sum = NULL")
    run(SQL["put_meta"], (ROWS_FROM_BEFORE, "1"))
    ledger.refresh()


def awake(*stations: Station, queue: bool = True) -> None:
    for one in stations:
        if queue:
            one.run_queue()
        one.run_links()
        one.run_repair()
        one.run_reconcile()
        one.run_mend()


async def accepted(owner: Station, octets: bytes, *to: str) -> Copy:
    """Mail with two copies; the owner's row of it."""
    before = {copy.id for copy in await owner.copies()}
    assert (await sent(owner, octets, *to)).startswith("250 ")

    async def recorded() -> bool:
        return len(await owner.copies()) > len(before)

    await eventually(recorded)
    (copy,) = [copy for copy in await owner.copies() if copy.id not in before]
    assert not copy.exposed
    return copy


def file_of(on: Station, message_id: MessageId) -> Path:
    (name,) = [name for name in on.files() if name.startswith(message_id)]
    return on.node.spool / name


async def spoil(on: Station, statement: str, *values: Any) -> None:
    """Change what the disk has, as the disk would: nobody knows."""

    def work(ledger: SqlLedger) -> None:
        assert ledger.connection.execute(statement, values).rowcount > 0
        ledger.forget_recent()

    await on.read(work)


def unclean(file: Path) -> None:
    """As if the node had been killed: every database of a running node looks so."""
    connection = sqlite3.connect(file)
    connection.execute("UPDATE meta SET value = '0' WHERE key = 'clean'")
    connection.commit()
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()


def damage_table(file: Path, table: str) -> None:
    """Overwrite the root page of one table."""
    connection = sqlite3.connect(file)
    (page,) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (table,)).fetchone()
    connection.close()
    with file.open("r+b") as raw:
        raw.seek((page - 1) * 4096)
        raw.write(b"\xa5" * 4096)
