"""Databases with more in them than anybody wants to send: written row by row, without a node."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

from shadowrelay.core.decisions import Content, Decision, SaveCopy
from shadowrelay.core.digests import of_content, of_envelope
from shadowrelay.core.identifiers import MessageId, NextHop, ServerName
from shadowrelay.core.messages import Copy, Digests, Envelope, Holder, HolderState, Recipient, Role
from shadowrelay.core.values import replace
from shadowrelay.database.ledger import SQL, SqlLedger

CONTENT = b"Subject: one of many\r\n\r\nbody\r\n"


def fill(file: Path, other: Path, messages: int, *, size: int = 1024, hop: str = "inside") -> None:
    """Queue so many messages in the first database, each held by the node of the second; both are closed.

    They were received an hour ago at the latest. Their rows of the tracking log count as written.
    """
    with closing(sqlite3.connect(file)) as ours, closing(sqlite3.connect(other)) as theirs:
        owner, holder = _ledger(ours), _ledger(theirs)
        mark = holder.lineage.mark
        now = datetime.now(UTC)
        body = CONTENT + b"x" * max(0, size - len(CONTENT))
        first = _message(owner, now, hop, body)
        at_holder = Holder(holder.name, holder.lineage.database_id, mark, 1, HolderState.HOLDING)
        offered_in = owner.lineage.incarnation
        for number in range(messages):
            moment = now - timedelta(milliseconds=messages - number)
            stamp = int(moment.timestamp() * 1000).to_bytes(6, "big").hex()
            id_ = MessageId(f"{stamp[:8]}-{stamp[8:]}-7000-8000-{number:06x}{owner.name.encode().hex()[:6]}")
            copy = replace(first, id=id_, received_at=moment, holders=(at_holder,), ranks_given=1)
            held = replace(first, id=id_, received_at=moment, role=Role.SHADOW, rank=1, offered_in=offered_in)
            for ledger, each in ((owner, copy), (holder, held)):
                ledger.apply(Decision(None, (SaveCopy(None, each, Content(body)),)))
        ours.commit()
        theirs.commit()


def _ledger(connection: sqlite3.Connection) -> SqlLedger:
    name = connection.execute(SQL["meta"], ("node",)).fetchone()[1]
    return SqlLedger(connection, ServerName(name))


def _message(owner: SqlLedger, now: datetime, hop: str, body: bytes) -> Copy:
    envelope = Envelope(
        sender="sender@outside.test", size=len(body), message_id="<one@of.many>", subject="one of many"
    )
    recipients = (Recipient(1, f"anna@{hop}.test", NextHop(hop)),)
    return Copy(
        id=MessageId(""),
        epoch=1,
        rank=0,
        role=Role.PRIMARY,
        owner=owner.name,
        owner_database=owner.lineage.database_id,
        offered_in=owner.lineage.incarnation,
        envelope=envelope,
        recipients=recipients,
        received_at=now,
        digests=Digests(of_content(body), of_envelope(envelope, recipients)),
    )
