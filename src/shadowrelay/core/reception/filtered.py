"""What filters decide about a message on its way in."""

from __future__ import annotations

from datetime import datetime

from shadowrelay.core.decisions import Decision
from shadowrelay.core.events.discard_notices import whole
from shadowrelay.core.ledger import Ledger
from shadowrelay.core.messages import FOREVER
from shadowrelay.core.ownership.transfer import made_here
from shadowrelay.core.reception.redundancy import Arrival
from shadowrelay.core.tracking import Discarded
from shadowrelay.core.values import replace


def quarantined(arrival: Arrival, reason: str, now: datetime) -> Arrival:
    """A filter wants the message to wait, without an end: all its recipients are suspended, as an operator
    suspends them, before anybody has it. So the first offer says so, and whoever promotes the copy waits too.
    """
    at = whole(now)
    suspended = tuple(one.ordered(FOREVER, at) for one in arrival.recipients)
    return replace(arrival, recipients=suspended, quarantined=reason)


def dropped(ledger: Ledger, arrival: Arrival, by: str, now: datetime) -> Decision[None]:
    """A filter drops the message. The client counts it as accepted, so the log says what became of it."""
    copy = made_here(
        ledger, arrival.id, arrival.envelope, arrival.recipients, arrival.digests, arrival.received_at
    )
    event = Discarded(
        at=now,
        copy=copy,
        client_ip=arrival.client_ip,
        client_hostname=arrival.client_hostname,
        connector=arrival.connector,
        session=arrival.session,
        filter=by,
    )
    return Decision(None, (), (event,))
