"""Was a promotion rightful? The former owner's own log tells, where there is one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from shadowaudit.core.events import ORIGINS, SENT, Event, Kind
from shadowaudit.core.evidence import Evidence
from shadowaudit.core.findings import Class, Finding


def promotions(events: Sequence[Event], evidence: Evidence) -> Iterator[Finding]:
    """One finding for each RESUBMIT of a holder."""
    for index, event in enumerate(events):
        if event.kind is Kind.RESUBMIT:
            what, detail = _judge(event, events, evidence)
            yield Finding(what, f"{event.node}: {event.reason}; {detail}", event.recipients, (index,))


def _judge(resubmit: Event, events: Sequence[Event], evidence: Evidence) -> tuple[Class, str]:
    former = evidence.databases.get(resubmit.entries.get("OwnerDb", ""))
    others = [one for one in evidence.nodes.get(resubmit.peer, ()) if former is None or one != former.id]
    match resubmit.reason:
        case "database-replaced":
            if former is None or former.lost or not former.segments or others:
                return Class.PROMOTED, "that database is gone"
            if former.ends:
                return Class.FALSE_PROMOTION, "that database is the only one in its owner's complete log"
        case "database-rolled-back":
            if former is not None and (former.rolled_back or former.lost):
                return Class.PROMOTED, "the owner's log shows that it was set back"
            if former is not None and former.ends:
                return Class.FALSE_PROMOTION, "the owner's log was never set back"
        case "heartbeat-lost":
            again = [
                event
                for event in events
                if event.node == resubmit.peer
                and event.kind in SENT
                and event.epoch < resubmit.epoch
                and set(event.recipients) & set(resubmit.recipients)
            ]
            if again:
                return Class.FALSE_PROMOTION, "its owner sent it as well"
            if any(event.node == resubmit.peer and event.kind is Kind.TRANSFER for event in events):
                return Class.PROMOTED, "its owner came back and followed"
            if former is not None and (former.lost or others):
                return Class.PROMOTED, "that database is gone"
        case "owner-forgot":
            begun = any(event.kind in ORIGINS and event.node == resubmit.peer for event in events)
            if former is None or former.lost or former.rolled_back or others or not begun:
                return Class.PROMOTED, "its owner's log does not know it, or was lost"
        case "handed-over":
            given = (one for one in events if one.kind is Kind.TRANSFER and one.node == resubmit.peer)
            if any(one.epoch == resubmit.epoch for one in given):
                return Class.PROMOTED, "its owner handed it over"
            if former is not None and former.ends:
                return Class.FALSE_PROMOTION, "its owner's complete log does not hand it over"
        case "owner-retired":
            return Class.PROMOTED, "an operator retired its owner"
        case _:
            pass
    return Class.PROMOTED_UNVERIFIED, "the logs cannot tell"
