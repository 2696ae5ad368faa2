"""Makes discard events: what is said about a message, and to which databases."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from shadowrelay.core.decisions import DiscardEvent, Verdict, VerdictKind
from shadowrelay.core.identifiers import DatabaseId
from shadowrelay.core.messages import Copy, Recipient, Role, Status

RECIPIENTS_PER_EVENT = 300
"""A longer list becomes several events, so that a line between members stays below 4,096 octets."""

OUTCOME = {Status.DELIVERED: "", Status.RELAYED: "relayed", Status.FAILED: "failed"}
"""How the argument of DELIVERED tells the outcomes apart."""

STATUS = {argument: status for status, argument in OUTCOME.items()}


def delivered(copy: Copy, recipients: Iterable[Recipient]) -> tuple[Verdict, ...]:
    """DELIVERED verdicts about those of the recipients that are settled, and that wait for nothing."""
    verdicts: list[Verdict] = []
    groups: dict[tuple[str, datetime | None], list[int]] = {}
    for recipient in recipients:
        if recipient.settled and not recipient.waits:
            ending = OUTCOME[recipient.status], recipient.settled_at
            groups.setdefault(ending, []).append(recipient.number)
    for (outcome, at), numbers in groups.items():
        if len(numbers) == len(copy.recipients):
            verdicts.append(Verdict(copy.id, copy.epoch, VerdictKind.DELIVERED, outcome, (), at))
            continue
        for start in range(0, len(numbers), RECIPIENTS_PER_EVENT):
            part = tuple(numbers[start : start + RECIPIENTS_PER_EVENT])
            verdicts.append(Verdict(copy.id, copy.epoch, VerdictKind.DELIVERED, outcome, part, at))
    return tuple(verdicts)


def addressed(
    addressees: Iterable[DatabaseId], verdicts: Sequence[Verdict], now: datetime
) -> tuple[DiscardEvent, ...]:
    """One event for each addressee and verdict; no addressee gets a verdict twice."""
    return tuple(
        DiscardEvent(addressee, verdict, now)
        for addressee in dict.fromkeys(addressees)
        for verdict in verdicts
    )


def listeners(copy: Copy) -> tuple[DatabaseId, ...]:
    """Every other database that may hold a copy or own the message: holders in any state, and the owner."""
    databases = [holder.database_id for holder in copy.holders]
    if copy.role is Role.SHADOW and copy.owner_database:
        databases.append(copy.owner_database)
    return tuple(dict.fromkeys(databases))
