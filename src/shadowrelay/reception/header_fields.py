"""Header fields that reception adds: the Received field, and for submission what the client left out."""

from __future__ import annotations

from collections.abc import Set
from datetime import datetime
from email.utils import format_datetime
from functools import lru_cache

from shadowrelay.core.identifiers import ServerName
from shadowrelay.core.reception.redundancy import Arrival
from shadowrelay.core.recipients import in_ascii
from shadowrelay.smtp.receiving.contract import Client
from shadowrelay.wire.header import received_field


@lru_cache(maxsize=16)
def _date(second: datetime) -> str:
    """A date as header fields write it. Cached: many messages arrive within one second."""
    return format_datetime(second)


def trace_field(arrival: Arrival, session: Client, own: ServerName) -> bytes:
    """The Received field (RFC 5321 section 4.4). It names the recipient if there is only one: in ASCII as far
    as that is possible, so that the field alone makes no message one that needs SMTPUTF8.
    """
    recipients = [one.address for one in arrival.recipients]
    return received_field(
        helo=session.helo,
        address=session.address,
        by=own,
        protocol=session.protocol(smtputf8=arrival.envelope.smtputf8),
        message_id=arrival.id,
        date=_date(arrival.received_at.replace(microsecond=0)),
        login=session.login,
        recipient=(in_ascii(recipients[0]) or recipients[0]) if len(recipients) == 1 else "",
    )


def completed(arrival: Arrival, own: ServerName, names: Set[str], message_id: str) -> tuple[bytes, str]:
    """For submission (RFC 6409 section 8): the fields that the header lacks, and the Message-ID.

    ``names``: the fields that the header has. ``message_id``: its Message-ID, '' if it has none.
    """
    added = ""
    if "message-id" not in names:
        message_id = f"<{arrival.id}@{own}>"
        added += f"Message-ID: {message_id}\r\n"
    if "date" not in names:
        added += f"Date: {_date(arrival.received_at.replace(microsecond=0))}\r\n"
    return added.encode(), message_id
