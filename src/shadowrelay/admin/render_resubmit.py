"""Resubmit requests, previews, and messages in Safety Net, as JSON (docs/reference/api.md)."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime, timedelta

from shadowrelay.admin.render import maybe
from shadowrelay.core.identifiers import ServerName
from shadowrelay.core.requests import Progress, Request, Selector
from shadowrelay.core.tracking_row import timestamp
from shadowrelay.database.resubmission import Kept, MadeCount
from shadowrelay.operator.preview import Preview, Share
from shadowrelay.operator.resubmit import Having, Shown
from shadowrelay.shown.fold import fold
from shadowrelay.shown.messages import KeptEntry
from shadowrelay.shown.records import (
    HavingEntry,
    MailCounts,
    ResubmitCounts,
    ResubmitEntry,
    ResubmitMade,
    ResubmitPreview,
    ResubmitProgress,
    SelectorEntry,
    ShareEstimate,
)


def told(found: Request) -> ResubmitMade:
    """A request without its progress."""
    return {
        "id": found.id,
        "number": found.number,
        "state": found.state.value,
        "made_by": found.made_by,
        "made_at": timestamp(found.made_at),
        "operator": found.operator,
        "reason": found.reason,
        "selector": selector(found.selector),
        "gone": list(found.gone),
        "revision": found.revision,
        "changed_by": found.changed_by,
        "changed_at": timestamp(found.changed_at),
    }


def selector(found: Selector) -> SelectorEntry:
    return {
        "since": _exact(found.since),
        "until": _exact(found.until),
        "to": list(found.next_hops),
        "sender": found.sender if found.sender != "" else "<>",
        "recipient": found.recipient,
        "message_id": found.message_id,
        "network_message_id": found.network_message_id,
    }


def request(found: Shown) -> ResubmitEntry:
    """A request with how far each node is. A sum has the parts that are on record, whoever else has mail."""
    parts = {(one.node, one.owner): one for one in found.progress}
    pairs = {*parts, *((node, owner) for node, left in found.left.items() for owner in left)}
    progress = [_progress(found, pair, parts.get(pair)) for pair in sorted(pairs)]
    sums = fold(ResubmitCounts, progress)
    return {
        "request": told(found.request),
        "open": found.open,
        "done": found.done,
        "made": sums.get("made", 0),
        "skipped": sums.get("skipped", {}),
        "left": (sums.get("left") or 0) if found.left else None,
        "progress": progress,
        "members": [having(one) for one in found.having],
    }


def _progress(found: Shown, pair: tuple[ServerName, ServerName], one: Progress | None) -> ResubmitProgress:
    node, owner = pair
    left = found.left.get(node)
    return {
        "node": node,
        "owner": owner,
        "made": one.made if one else 0,
        "skipped": {cause.value: count for cause, count in one.skipped} if one else {},
        "left": None if left is None else left.get(owner, 0),
        "rate": found.rates.get(pair),
        "reached": maybe(one.place.at) if one else None,
        "done": one.done if one else False,
    }


def having(one: Having) -> HavingEntry:
    return {"name": one.member, "has": one.has, "at": maybe(one.at), "why": one.why}


def preview(found: Preview, now: datetime) -> ResubmitPreview:
    """What a request would do."""
    return {
        **_made(found.total),
        "at_most": found.most,
        "nodes": [
            {
                "node": one.node,
                **_made(one.own),
                "refused": _refused(one.own),
                "reaches_back_to": maybe(one.reaches_back_to),
            }
            for one in found.nodes
        ],
        "held": [{**_share(one), "why": one.why} for one in found.shares],
        "unreachable": [
            {
                "member": one.member,
                "since": maybe(one.away.since),
                "why": one.away.why,
                "answered_at": maybe(None if one.answered_in is None else now + one.answered_in),
                "answered_in": _seconds(one.answered_in),
                "held": _share(one.share),
            }
            for one in found.unreached
        ],
        "refused": _refused(found.total),
        "warnings": list(found.warnings),
    }


def _share(found: Share) -> ShareEstimate:
    return {
        "owner": found.owner,
        **_made(found.count),
        "at_most": found.most,
        "holders": {name: _made(count) for name, count in sorted(found.holders.items())},
    }


def _made(count: MadeCount) -> MailCounts:
    return {"messages": count.messages, "recipients": count.recipients, "octets": count.octets}


def _refused(count: MadeCount) -> dict[str, int]:
    return {name: number for name, number in asdict(count).items() if name not in _made(count)}


def kept(found: Kept) -> KeptEntry:
    """A message in Safety Net."""
    return {
        "id": found.id,
        "place": _place(found),
        "settled_at": timestamp(found.settled_at),
        "role": found.role.value,
        "owner": found.owner,
        "sender": found.sender,
        "message_id": found.message_id,
        "subject": found.subject,
        "size": found.size,
        "request": found.request,
        "damaged": found.damaged,
        "recipients": [
            {"address": to, "next_hop": hop, "status": status} for to, hop, status in found.recipients
        ],
    }


def _place(found: Kept) -> str:
    """Where the next page begins after it."""
    return f"{_exact(found.settled_at)}/{found.id}"


def _exact(moment: datetime) -> str:
    """To the microsecond: a window, or a place in it, must not move."""
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")


def _seconds(duration: timedelta | None) -> float | None:
    return None if duration is None else round(duration.total_seconds(), 3)
