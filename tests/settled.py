"""Mail in Safety Net, on whole nodes (stations.py)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from stations import Station, offer

from shadowrelay.core.decisions import Content, Decision, SaveCopy
from shadowrelay.core.digests import of_content, of_envelope
from shadowrelay.core.identifiers import MessageId, NextHop
from shadowrelay.core.messages import Copy, Digests, Envelope, Recipient, Role, Stage, Status

OCTETS = b"Subject: x\r\n\r\nbody\r\n"


async def settled(
    owner: Station,
    *holders: Station,
    number: int = 1,
    to: Sequence[str] = ("anna@inside.test",),
    sender: str = "bob@sender.test",
    route: str = "inside",
    status: Status = Status.DELIVERED,
    ago: timedelta = timedelta(hours=1),
    **changes: object,
) -> MessageId:
    """A message in the owner's Safety Net, and in that of its holders."""
    at = datetime.now(UTC) - ago
    envelope = Envelope(
        sender=sender, size=len(OCTETS), message_id=f"<{number}@sender.test>", subject="hello"
    )
    recipients = tuple(
        Recipient(place, address, NextHop(route), status=status, settled_at=at)
        for place, address in enumerate(to, 1)
    )
    own = Copy(
        id=offer(owner.name, number).message_id,
        epoch=1,
        rank=0,
        role=Role.PRIMARY,
        stage=Stage.SAFETY_NET,
        owner=owner.name,
        owner_database=owner.database.lineage.database_id,
        offered_in=owner.database.lineage.incarnation,
        envelope=envelope,
        recipients=recipients,
        digests=Digests(of_content(OCTETS), of_envelope(envelope, recipients)),
        received_at=at,
        settled_at=at,
    )
    copies = [(owner, own), *((one, replace(own, role=Role.SHADOW, rank=1)) for one in holders)]
    for where, copy in copies:
        stored = Decision(None, (SaveCopy(None, replace(copy, **changes), Content(data=OCTETS)),))
        await where.read(lambda ledger, stored=stored: ledger.apply(stored))  # type: ignore[misc]
    return own.id
