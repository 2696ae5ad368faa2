"""Retires a member that, as an operator says, is gone for good."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from shadowrelay.core.decisions import Decision, DropEvents, Member, Write
from shadowrelay.core.identifiers import ServerName
from shadowrelay.core.messages import Reason
from shadowrelay.core.ownership import heartbeat
from shadowrelay.core.retirements import RetiredMember
from shadowrelay.core.shared_records import ForgetTold
from shadowrelay.database import views
from shadowrelay.database.ledger import SqlLedger
from shadowrelay.shown.records import RetiredAnswer


def retire(
    ledger: SqlLedger, name: ServerName, now: datetime, record: RetiredMember | None = None
) -> RetiredAnswer:
    """Mark a member retired, and do at once what its absence would lead to. Idempotent. ``record``: what the
    other members are told of it; None if a member told it.

    Copies held for it are promoted: the operator decides even where the time span does not. Its copies of our
    messages stop counting, so that the repair makes new ones. After the promotion wrote its discard events,
    all events for the member's database are dropped.
    """
    member = ledger.member(name) or Member(name)
    lost = views.snapshot(ledger).held_by.get(name, 0)
    heartbeat.lose_holder(ledger, name)
    promoted, _ = heartbeat.take_over(ledger, name, Reason.OWNER_RETIRED, now)
    events = 0
    writes: list[Write] = [replace(member, retired=True), ForgetTold(name)]
    if record is not None and not any(one.member == name for one in ledger.records(RetiredMember)):
        database = member.lineage.database_id if member.lineage else None
        writes.append(replace(record, database_id=database, kept_at=now))
    if member.lineage:
        events = views.events_waiting(ledger, member.lineage.database_id)
        writes.append(DropEvents(member.lineage.database_id))
    ledger.apply(Decision(None, tuple(writes)))
    before = " before" if member.retired else ""
    return {
        "name": name,
        "retired": True,
        "already": member.retired,
        "promoted": promoted,
        "copies_lost": lost,
        "events_dropped": events,
        "did": [
            f"{name} was marked retired on this node{before}: its copies no longer count",
            f"{_counted(promoted, 'message')} held for it {_are(promoted)} promoted, "
            "once the other members were asked",
            f"{_counted(lost, 'message')} of this node {_were(lost)} held by it; "
            "what is exposed now gets another copy",
            f"{_counted(events, 'discard event')} for it {_were(events)} dropped",
        ],
        "to_do": f"The other members are told. Take {name} out of the settings.",
    }


def _counted(count: int, one: str) -> str:
    return f"{count} {one}" if count == 1 else f"{count} {one}s"


def _are(count: int) -> str:
    return "is" if count == 1 else "are"


def _were(count: int) -> str:
    return "was" if count == 1 else "were"
