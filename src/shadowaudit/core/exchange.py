"""The verdict on one message of Exchange's logs: weaker, for they number nothing and may be cut anywhere.

Within an organisation SEND hands a message to the next server, whose RECEIVE goes on with it; only what
nobody goes on with is an end. EXPAND, RESOLVE and REDIRECT replace recipients by others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from shadowaudit.core.events import Event, Kind
from shadowaudit.core.findings import Class, Finding
from shadowaudit.core.judge import Judgement

_ENDS = frozenset({Kind.DELIVER, Kind.SENDEXTERNAL, Kind.FAIL, Kind.DUPLICATEDELIVER, Kind.EXPIRE, Kind.DROP})
_DELIVERED = frozenset({Kind.DELIVER, Kind.SENDEXTERNAL})
_CHANGES = frozenset({Kind.EXPAND, Kind.RESOLVE, Kind.REDIRECT})
_HANDED = frozenset({Kind.SEND, Kind.TRANSFER, Kind.POISONMESSAGE})


def judge_exchange(events: Sequence[Event], servers: frozenset[str]) -> Judgement:
    """Judge one message. ``servers``: those whose logs are at hand, in lower case."""
    found: list[Finding] = []
    received = [i for i, event in enumerate(events) if event.kind is Kind.RECEIVE]
    failed = [i for i in received if events[i].entries.get("Replication") == "Failed"]
    if failed:
        found.append(Finding(Class.EXPOSED, "accepted without a shadow copy", rows=tuple(failed)))
    resubmitted = [i for i, e in enumerate(events) if e.kind is Kind.RESUBMIT]
    for index in resubmitted:
        if events[index].source != "SAFETYNET":
            found.append(Finding(Class.PROMOTED_UNVERIFIED, "resubmitted", rows=(index,)))
    found += _fate(events, received, servers)
    found += _duplicates(events, bool(resubmitted))
    return Judgement(tuple(found))


def _fate(events: Sequence[Event], received: Sequence[int], servers: frozenset[str]) -> list[Finding]:
    owed = {number for i in received for number in events[i].recipients}
    replaced = {n for e in events if e.kind in _CHANGES for n in e.recipients}
    settled = {n for e in events if e.kind in _ENDS for n in e.recipients}
    changed = any(e.kind in _CHANGES for e in events)
    handed: set[int] = set()
    for event in events:
        if event.kind in _HANDED:
            inside = event.peer.lower() in servers or event.peer.partition(".")[0].lower() in servers
            if not inside or event.kind is not Kind.SEND:
                handed |= set(event.recipients)
    missing = (owed | replaced) - settled - handed
    if changed:  # a group's own address has no end, its members have
        missing -= owed
    if not missing or not received:
        return []
    last = max(events, key=lambda event: event.at)
    detail = f"the last row is {last.kind} at {last.node}; Exchange's logs cannot tell lost from still queued"
    return [Finding(Class.OPEN, detail, tuple(sorted(missing)), tuple(received))]


def _duplicates(events: Sequence[Event], resubmitted: bool) -> list[Finding]:  # noqa: FBT001
    times: Counter[int] = Counter()
    for event in events:
        if event.kind in _DELIVERED:
            times.update(event.recipients)
    double = tuple(sorted(number for number, count in times.items() if count > 1))
    if not double:
        return []
    rows = tuple(i for i, e in enumerate(events) if e.kind in _DELIVERED and set(e.recipients) & set(double))
    if resubmitted:
        return [Finding(Class.ALLOWED_DUPLICATE, "it was resubmitted", double, rows)]
    return [Finding(Class.DUPLICATE, "no cause in the logs", double, rows)]
