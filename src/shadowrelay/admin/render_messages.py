"""Renders messages as JSON. Times are ISO 8601 in UTC; null means unknown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from shadowrelay.admin.node import HopStatus, RefusalView
from shadowrelay.admin.render import mark, maybe
from shadowrelay.core.decisions import DamagedRow, HopShadow
from shadowrelay.core.hops import Handed
from shadowrelay.core.identifiers import NextHop
from shadowrelay.core.messages import Confirmation, Copy, Holder, Recipient, Role, Stage
from shadowrelay.core.tracking_row import timestamp
from shadowrelay.database.search import Known
from shadowrelay.database.views import MessageView
from shadowrelay.shown.messages import (
    DamagedMessage,
    GoneMessage,
    HandedOver,
    HolderEntry,
    KeptForHop,
    MessageAnswer,
    MessageBrief,
    MessageSummary,
    RecipientEntry,
    RefusalEntry,
    RememberedMessage,
)


def summary(item: Copy | DamagedRow) -> MessageSummary:
    """A message in a list. If its rows are damaged, hardly anything is known."""
    return _known(item) if isinstance(item, Copy) else _unbelievable(item)


def _known(copy: Copy) -> MessageSummary:
    return {
        **_brief(copy),
        "recipients": len(copy.recipients),
        "unsettled": len(copy.unsettled),
        "holders": [holder.name for holder in copy.holders],
    }


def _brief(copy: Copy) -> MessageBrief:
    digests = copy.digests
    return {
        "id": copy.id,
        "state": _state(copy),
        "epoch": copy.epoch,
        "owner": copy.owner,
        "exposed": copy.exposed,
        "confirmation": copy.confirmation.value,
        "sender": copy.envelope.sender,
        "subject": copy.envelope.subject,
        "size": copy.envelope.size,
        "received_at": timestamp(copy.received_at),
        "settled_at": maybe(copy.settled_at),
        "suspended": maybe(copy.suspended_until),
        "next_hops": sorted({str(recipient.next_hop) for recipient in copy.recipients}),
        "damage": copy.damage.value if copy.damage else None,
        "digests": {"content": digests.content, "envelope": digests.envelope, "late": digests.late}
        if digests
        else None,
    }


def _unbelievable(rows: DamagedRow) -> MessageSummary:
    return {
        "id": rows.message_id,
        "state": Stage.SET_ASIDE.value if rows.set_aside else Stage.DAMAGED.value,
        "epoch": None,
        "owner": None,
        "exposed": None,
        "confirmation": None,
        "sender": None,
        "subject": None,
        "size": None,
        "received_at": None,
        "settled_at": None,
        "recipients": None,
        "suspended": None,
        "next_hops": None,
        "holders": None,
        "digests": None,
        "damage": "rows",
        "found_at": timestamp(rows.found_at) if rows.found_at.timestamp() else None,
        "why": rows.what,
        "settled": [{"number": number, "status": status.value} for number, status in rows.settled],
    }


_MOST_ADDRESSES = 5


def known(found: Known) -> dict[str, Any]:
    """What this node has of a message, or remembers of it, in a list of what was found."""
    copy, outcome, revoked = found.copy, found.outcome, found.tombstone
    item = copy or found.damaged
    shown = summary(item) if item else {"id": found.id, "state": "gone"}
    return {
        **shown,
        "role": copy and copy.role.value,
        "stage": copy and copy.stage.value,
        "rank": copy and copy.rank,
        "message_id": copy and copy.envelope.message_id,
        "addresses": [one.address for one in copy.recipients[:_MOST_ADDRESSES]] if copy else None,
        "statuses": dict(Counter(one.status.value for one in copy.recipients)) if copy else None,
        "outcome": outcome and {"epoch": outcome.epoch, "settled": list(outcome.delivered)},
        "revoked": revoked and {"epoch": revoked.epoch, "rank": revoked.rank},
    }


def message(
    view: MessageView, hop: Callable[[NextHop], HopStatus], refusals: Sequence[RefusalView], now: datetime
) -> MessageAnswer:
    """All that this node knows of one message; without a copy, what it remembers."""
    remembered, copy = _remembered(view), view.copy
    if view.damaged:
        damaged: DamagedMessage = {**remembered, **summary(view.damaged)}
        return damaged
    if copy is None:
        gone: GoneMessage = {**remembered, "state": "gone", "damage": None}
        return gone
    envelope = copy.envelope
    return {
        **_brief(copy),
        **remembered,
        "unsettled": len(copy.unsettled),
        "role": copy.role.value,
        "stage": copy.stage.value,
        "rank": copy.rank,
        "owner_database": copy.owner_database,
        "offered_in": copy.offered_in,
        "former_owner": copy.former_owner,
        "pending": copy.pending,
        "confirm_since": maybe(copy.confirm_since),
        "check_at": maybe(copy.check_at),
        "ranks_given": copy.ranks_given,
        "reports_on": copy.reports_on,
        "content_of": copy.content_of,
        "request": copy.request,
        "envelope": {
            "sender": envelope.sender,
            "message_id": envelope.message_id,
            "subject": envelope.subject,
            "size": envelope.size,
            "body": envelope.body,
            "smtputf8": envelope.smtputf8,
            "ret": envelope.ret,
            "envid": envelope.envid,
        },
        "recipients": [_recipient(copy, item, view, hop(item.next_hop), now) for item in copy.recipients],
        "holders": [_holder(item) for item in copy.holders],
        "hops": [_hop(item) for item in view.hops],
        "refusals": [_refusal(item) for item in refusals if copy.exposed],
    }


def _remembered(view: MessageView) -> RememberedMessage:
    outcome, revoked = view.outcome, view.tombstone
    return {
        "id": view.id,
        "outcome": {
            "epoch": outcome.epoch,
            "settled": list(outcome.delivered),
            "kept_until": timestamp(outcome.keep_until),
        }
        if outcome
        else None,
        "revoked": {
            "epoch": revoked.epoch,
            "rank": revoked.rank,
            "kept_until": timestamp(revoked.keep_until),
        }
        if revoked
        else None,
        "handed_over_by": _handed(view.handed) if view.handed else None,
        "crashes": list(view.crashes),
    }


def _recipient(
    copy: Copy, recipient: Recipient, view: MessageView, hop: HopStatus, now: datetime
) -> RecipientEntry:
    doing = _doing(copy, recipient, view, now)
    kept = doing == "ready" or (doing == "retry" and hop.resting(now))
    return {
        "number": recipient.number,
        "address": recipient.address,
        "next_hop": recipient.next_hop,
        "status": recipient.status.value,
        "doing": doing,
        "why": hop.keeps(now) if kept else _unread(recipient),
        "attempts": recipient.attempts,
        "next_attempt": maybe(hop.tried_at(recipient.next_attempt, now) if kept else recipient.next_attempt),
        "last_reply": recipient.last_reply,
        "suspended": maybe(None if recipient.settled else recipient.suspended),
        "delay_notified": recipient.delay_notified,
        "unread": {"tries": recipient.unread.tries, "host": recipient.unread.host}
        if recipient.unread
        else None,
        "notify": list(recipient.notify),
        "orcpt": recipient.orcpt,
        "report": recipient.report,
        "journal": recipient.journal,
    }


def _unread(recipient: Recipient) -> str:
    """Why a recipient waits longer than after a failure."""
    unread = recipient.unread
    if recipient.settled or unread is None or not unread.tries:
        return ""
    tries = "once" if unread.tries == 1 else f"{unread.tries} times"
    return f"{unread.host} took the content {tries}, its answer cannot be read"


def _doing(copy: Copy, recipient: Recipient, view: MessageView, now: datetime) -> str:
    if recipient.settled:
        return "done"
    if copy.stage is Stage.SET_ASIDE:
        return "waits for the operator"
    if copy.role is Role.SHADOW:
        return "held"
    if recipient.next_hop in view.active:
        return "active"
    if copy.damaged:
        return "waits for a good copy"
    if copy.confirmation is Confirmation.ASK:
        return "asking"
    if recipient.is_suspended(now):
        return "suspended"
    return "retry" if recipient.next_attempt and recipient.next_attempt > now else "ready"


def _holder(holder: Holder) -> HolderEntry:
    return {
        "name": holder.name,
        "state": holder.state.value,
        "rank": holder.rank,
        "database_id": holder.database_id,
        "mark": mark(holder.mark),
    }


def _hop(kept: HopShadow) -> KeptForHop:
    return {
        "name": kept.hop,
        "database_id": kept.database_id,
        "mark": mark(kept.mark),
        "recipients": list(kept.recipients),
        "since": timestamp(kept.since),
    }


def _handed(handed: Handed) -> HandedOver:
    return {
        "name": handed.peer,
        "database_id": handed.database_id,
        "id": handed.their_id,
        "numbers": list(handed.numbers),
    }


def _refusal(refusal: RefusalView) -> RefusalEntry:
    return {"name": refusal.member, "reply": refusal.reply, "at": timestamp(refusal.at)}


def _state(copy: Copy) -> str:
    """The state: queued, shadow, safety_net or set_aside."""
    return "shadow" if copy.held else copy.stage.value
