"""The filters of a node. They change every message of a client, and nobody may keep, hold or deliver what the
client sent.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from enum import StrEnum

from shadowrelay.core.digests import of_content, of_envelope
from shadowrelay.core.identifiers import MessageId, NextHop
from shadowrelay.core.messages import Digests
from shadowrelay.core.reception.filtered import quarantined
from shadowrelay.core.reception.redundancy import Arrival

_SENDER = "before-filters-"
_NULL = "null@filter.example"
_AS_SENT = b"as the client sent it: "
_GONE = "taken-out@filter.example"


class Filtered(StrEnum):
    """What becomes of a message, beside that it is changed."""

    CHANGED = "changed"
    QUARANTINED = "quarantined"
    DISCARDED = "discarded"
    REFUSED = "refused"
    PUT_OFF = "put-off"
    DOWN = "down"
    UNFILTERED = "unfiltered"


NOT_KEPT = (Filtered.DISCARDED, Filtered.REFUSED, Filtered.PUT_OFF, Filtered.DOWN)
"""What filters end here: no node stores anything of it."""

ON_RECORD = (Filtered.QUARANTINED, Filtered.UNFILTERED)
"""What is recorded before its 250, since no restart could tell it."""


def octets_of(message_id: MessageId, became: Filtered) -> bytes:
    """The content of a message that is here."""
    return _AS_SENT * (became is Filtered.UNFILTERED) + message_id.encode()


def octets(arrival: Arrival) -> bytes:
    """The content of a message on its way in: one that filters have seen is the one that checks expect."""
    sent = arrival.envelope.sender.startswith(_SENDER)
    return octets_of(arrival.id, Filtered.UNFILTERED if sent else Filtered.CHANGED)


def as_sent(arrival: Arrival) -> Arrival:
    """What filters make this arrival of: it has another sender, a recipient more, and another content."""
    envelope = replace(arrival.envelope, sender=_SENDER + (arrival.envelope.sender or _NULL))
    number, first = len(arrival.recipients) + 1, arrival.recipients[0]
    more = replace(first, number=number, address=_GONE, next_hop=NextHop("example.net"))
    return _with(replace(arrival, envelope=envelope, recipients=(*arrival.recipients, more)))


def through(arrival: Arrival, becomes: Filtered, now: datetime) -> Arrival:
    """What filters leave of what a client sent."""
    if becomes is Filtered.UNFILTERED:
        return replace(arrival, unfiltered="odd")
    sender = arrival.envelope.sender.removeprefix(_SENDER)
    envelope = replace(arrival.envelope, sender="" if sender == _NULL else sender)
    kept = tuple(one for one in arrival.recipients if one.address != _GONE)
    changed = _with(replace(arrival, envelope=envelope, recipients=kept, removed=(_GONE,)))
    return quarantined(changed, "odd", now) if becomes is Filtered.QUARANTINED else changed


def _with(arrival: Arrival) -> Arrival:
    digests = Digests(of_content(octets(arrival)), of_envelope(arrival.envelope, arrival.recipients))
    return replace(arrival, digests=digests)
