"""What of the queue the filter of a job means, in SQL. What a job does, ``core.filtering`` judges again."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

from shadowrelay.core.delivery.operated import BOUNCED
from shadowrelay.core.filtering import numbers, reaches
from shadowrelay.core.identifiers import FIRST, MessageId, NextHop
from shadowrelay.core.jobs import Filter, Verb
from shadowrelay.core.messages import Copy
from shadowrelay.core.spelling import without_case
from shadowrelay.core.values import dataclass
from shadowrelay.database.ledger import SqlLedger
from shadowrelay.database.queries import load
from shadowrelay.database.records import maybe_moment, micros, moment
from shadowrelay.database.selectors import know_folded, pattern

SQL = load("jobs.sql")

MOST_SAMPLED = 10
"""Messages that a preview shows of each node."""


class Selection(NamedTuple):
    """Messages that may match, in the order of ids. ``last``: the last one that was looked at; None at the
    end of the queue.
    """

    ids: list[MessageId]
    last: MessageId | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampled:
    """A message that a filter means, with the recipients that it means: address, next hop, last reply.
    ``suspended``: until when an operator wants the first of them to wait.
    """

    id: MessageId
    received_at: datetime
    sender: str
    size: int
    subject: str
    message_id: str
    recipients: tuple[tuple[str, NextHop, str], ...]
    suspended: datetime | None = None


@dataclass(frozen=True, slots=True)
class FilterCount:
    """What a filter means on one node; the sample has the first messages."""

    messages: int = 0
    recipients: int = 0
    octets: int = 0
    sample: tuple[Sampled, ...] = ()


def page(
    ledger: SqlLedger, wanted: Filter, made_at: datetime, now: datetime, after: MessageId, look: int
) -> Selection:
    """Go through up to ``look`` messages of the queue behind ``after``."""
    if wanted.ids:
        return Selection([one for one in sorted(set(wanted.ids)) if one > after], None)
    asked = _parameters(wanted, made_at, now) | {"after": after, "most": look}
    rows = ledger.connection.execute(SQL["page"], asked).fetchall()
    last = MessageId(rows[-1][0]) if len(rows) == look else None
    return Selection([MessageId(row[0]) for row in rows if row[1]], last)


def meant(reader: sqlite3.Connection, wanted: Filter, now: datetime) -> list[MessageId]:
    """All messages that a job without ids that is made now would be about, in the order of ids."""
    asked = _parameters(wanted, now, now) | {"after": FIRST, "most": -1}
    return [MessageId(row[0]) for row in reader.execute(SQL["page"], asked) if row[1]]


def taken(ledger: SqlLedger, after: MessageId, look: int) -> Selection:
    """Go through messages that this node took over."""
    rows = ledger.connection.execute(SQL["taken"], (after, look)).fetchall()
    ids = [MessageId(row[0]) for row in rows]
    return Selection(ids, ids[-1] if len(ids) == look else None)


def counted(readers: Sequence[sqlite3.Connection], wanted: Filter, now: datetime) -> FilterCount:
    """What a job without ids that is made now would be about: work for ``TransportDatabase.read``."""
    reader = readers[0]
    know_folded(reader)
    messages = recipients = octets = 0
    last: object = None
    sample: list[tuple[Any, ...]] = []
    parts: dict[object, list[tuple[str, NextHop, str]]] = {}
    for row in reader.execute(SQL["matching"], _parameters(wanted, now, now)):
        recipients += 1
        if row[0] != last:
            last = row[0]
            messages += 1
            octets += row[3]
            if messages <= MOST_SAMPLED:
                sample.append(row)
        if messages <= MOST_SAMPLED:
            parts.setdefault(last, []).append((row[7], NextHop(row[8]), row[9]))
    return FilterCount(
        messages,
        recipients,
        octets,
        tuple(
            Sampled(
                id=MessageId(row[0]),
                received_at=moment(row[1]),
                sender=row[2],
                size=row[3],
                subject=row[4],
                message_id=row[5],
                recipients=tuple(parts[row[0]]),
                suspended=maybe_moment(row[11]),
            )
            for row in sample
        ),
    )


def named(ledger: SqlLedger, wanted: Filter, now: datetime) -> FilterCount:
    """What a job that names ids and is made now would be about; what is set aside counts too."""
    messages = recipients = octets = 0
    sample: list[Sampled] = []
    for message_id in sorted(set(wanted.ids)):
        copy = ledger.copy(message_id)
        if copy is None or not reaches(wanted, copy) or not (meant := numbers(wanted, copy, now, now)):
            continue
        messages += 1
        recipients += len(meant)
        octets += copy.envelope.size
        if len(sample) < MOST_SAMPLED:
            sample.append(_sampled(copy, meant))
    return FilterCount(messages, recipients, octets, tuple(sample))


def _sampled(copy: Copy, meant: Sequence[int]) -> Sampled:
    found = [one for one in copy.recipients if one.number in meant]
    return Sampled(
        id=copy.id,
        received_at=copy.came_at,
        sender=copy.envelope.sender,
        size=copy.envelope.size,
        subject=copy.envelope.subject,
        message_id=copy.envelope.message_id,
        recipients=tuple((one.address, one.next_hop, one.last_reply) for one in found),
        suspended=found[0].suspended,
    )


def promoting(ledger: SqlLedger) -> bool:
    """Is there a copy whose promotion is pending?"""
    return bool(ledger.connection.execute(SQL["promoting"]).fetchone()[0])


def sending(ledger: SqlLedger, queue: NextHop) -> int:
    """How many delivery attempts to that next hop, or to the next hops of that route, are under way."""
    found: int = ledger.connection.execute(SQL["sending"], {"queue": queue}).fetchone()[0]
    return found


def unacknowledged(ledger: SqlLedger, verb: Verb, since: datetime, *, alone: bool = False) -> int:
    """Messages to which the verb was done since then, and of which a member may still not know it: because it
    has not acknowledged it, or because nobody is told before what was made of the message is safe. ``alone``:
    there is no other member, so nothing has two copies, and no report is waited for.
    """
    found = 0
    for kind in ("unacknowledged",) if alone else ("unacknowledged", "unreported"):
        if query := SQL.get(f"{kind}_{verb.value}"):
            given = {"since": micros(since), "bounced": BOUNCED}
            found += ledger.connection.execute(query, given).fetchone()[0]
    return found


def _parameters(wanted: Filter, made_at: datetime, now: datetime) -> dict[str, Any]:
    sender, sender_end = pattern(wanted.sender)
    recipient, recipient_end = pattern(wanted.recipient)
    return {
        "made_at": micros(made_at),
        "now": micros(now),
        "suspended": wanted.suspended,
        "sender": sender,
        "sender_end": sender_end,
        "recipient": recipient,
        "recipient_end": recipient_end,
        "subject": wanted.subject and without_case(wanted.subject),
        "error": wanted.error and without_case(wanted.error),
        "domain": wanted.domain,
        "queue": wanted.queue,
        "before": None if wanted.older is None else micros(made_at - wanted.older),
        "since": None if wanted.younger is None else micros(made_at - wanted.younger),
        "larger": wanted.larger,
        "smaller": wanted.smaller,
    }
