"""Transport databases, copies and decisions for tests."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

from shadowrelay.core.decisions import Content, Decision, SaveCopy
from shadowrelay.core.identifiers import DatabaseId, Incarnation, MessageId, NextHop, ServerName
from shadowrelay.core.messages import Copy, Envelope, Recipient, Role
from shadowrelay.core.tracking import Receive
from shadowrelay.database.ledger import SqlLedger
from shadowrelay.database.transport import TransportDatabase

T = TypeVar("T")

NOW = datetime(2026, 11, 21, 10, 0, tzinfo=UTC)
SECOND = timedelta(seconds=1)
OWN = ServerName("mx1.example.org")
OTHER = ServerName("mx2.example.org")
DATABASE = DatabaseId("6f0d7a3e-0000-4000-8000-000000000001")
OTHER_DATABASE = DatabaseId("6f0d7a3e-0000-4000-8000-000000000002")

_numbers = count(1)


def incarnation(number: int) -> Incarnation:
    return Incarnation(f"{number:016x}")


def fresh_id() -> MessageId:
    return MessageId(f"01900000-0000-7000-8000-{next(_numbers):012x}")


async def opened(
    directory: Path,
    *,
    run: int | None = None,
    database_id: DatabaseId = DATABASE,
    name: ServerName = OWN,
    now: datetime = NOW,
) -> TransportDatabase:
    """An open database; ``run`` numbers its incarnations."""
    token = incarnation(1000 + next(_numbers) if run is None else run)
    return await TransportDatabase.open(directory, name, token, database_id, now)


@asynccontextmanager
async def database(directory: Path, **options: Any) -> AsyncIterator[TransportDatabase]:
    found = await opened(directory, **options)
    try:
        yield found
    finally:
        await found.close(NOW)


def message(*hops: str, **changes: Any) -> Copy:
    """A primary copy with one recipient per next hop."""
    recipients = tuple(
        Recipient(number, f"user{number}@example.net", NextHop(hop))
        for number, hop in enumerate(hops or ("inside",), 1)
    )
    given: dict[str, Any] = {
        "id": fresh_id(),
        "epoch": 1,
        "rank": 0,
        "role": Role.PRIMARY,
        "owner": OWN,
        "owner_database": DATABASE,
        "offered_in": incarnation(1),
        "envelope": Envelope(sender="sender@example.org", size=5),
        "recipients": recipients,
        "received_at": NOW,
    }
    return Copy(**given | changes)


def save(
    copy: Copy, content: Content | None = None, before: Copy | None = None
) -> Callable[[SqlLedger], None]:
    """The work that stores a copy; a new one with content, and one tracking event."""
    stored = content or (None if before else Content(data=b"hello"))
    events = () if before else (Receive(at=NOW, copy=copy),)
    decision = Decision(None, (SaveCopy(before, copy, stored),), events)
    return lambda ledger: ledger.apply(decision)


def shadow(*hops: str, **changes: Any) -> Copy:
    """A copy held for the other member."""
    given = {"role": Role.SHADOW, "owner": OTHER, "owner_database": OTHER_DATABASE, "rank": 1}
    return message(*hops, **given | changes)
