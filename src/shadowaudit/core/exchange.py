"""The verdict on one message of Exchange's logs: weaker, for they number nothing and may be cut anywhere.

Within an organisation SEND hands a message to the next server, whose RECEIVE goes on with it; only what
nobody goes on with is an end. EXPAND, RESOLVE and REDIRECT replace recipients by others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Sequence

from shadowaudit.core.events import Event, Kind
from shadowaudit.core.findings import Class, Finding
from shadowaudit.core.fingerprint import digest
from shadowaudit.core.judge import Judgement

_ENDS = frozenset({Kind.DELIVER, Kind.SENDEXTERNAL, Kind.FAIL, Kind.DUPLICATEDELIVER, Kind.EXPIRE, Kind.DROP})
_DELIVERED = frozenset({Kind.DELIVER, Kind.SENDEXTERNAL})
_CHANGES = frozenset({Kind.EXPAND, Kind.RESOLVE, Kind.REDIRECT})
_HANDED = frozenset({Kind.SEND, Kind.TRANSFER, Kind.POISONMESSAGE})


def judge_exchange(events: Sequence[Event], servers: frozenset[str]) -> Judgement:
    """Judge one message. ``servers``: the servers whose logs we have, in lower case."""
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
    ended = {n for e in events if e.kind in _ENDS for n in e.recipients} | _handed(events, servers)
    owed = {number for i in received for number in events[i].recipients}
    begun = tuple(received)
    if not received:  # the log of its first server is missing: the shadow copy tells what is owed
        begun = tuple(i for i, event in enumerate(events) if event.kind is Kind.HARECEIVE)
        owed = {number for i in begun for number in events[i].recipients}
        for event in events:
            if event.kind is Kind.HADISCARD:
                ended |= set(event.recipients) or owed
    changes = _Changes(events)
    missing = {number for number in owed | changes.members(owed) if not changes.settled(number, ended)}
    if not missing or not begun:
        return []
    last = max(events, key=lambda event: event.at)
    detail = f"the last row is {last.kind} at {last.node}; Exchange's logs cannot tell lost from still queued"
    delivered = {number for event in events if event.kind in _DELIVERED for number in event.recipients}
    if delivered - owed - changes.members(owed):
        detail += "; it was delivered to an address that no RESOLVE, EXPAND or REDIRECT put in place of one"
    return [Finding(Class.OPEN, detail, tuple(sorted(missing)), begun)]


def _handed(events: Sequence[Event], servers: frozenset[str]) -> set[int]:
    """Recipients that were handed to a server whose logs we do not have."""
    handed: set[int] = set()
    for event in events:
        if event.kind in _HANDED:
            inside = event.peer.lower() in servers or event.peer.partition(".")[0].lower() in servers
            if not inside or event.kind is not Kind.SEND:
                handed |= set(event.recipients)
    return handed


class _Changes:
    """Which addresses were put in place of others."""

    def __init__(self, events: Sequence[Event]) -> None:
        self._by: dict[int, set[int]] = {}
        self._all: set[int] = set()  # of rows that do not say in whose place
        self._vague = False
        for event in (one for one in events if one.kind in _CHANGES):
            before = [digest(address.lower()) for address in event.related]
            self._all |= set(event.recipients)
            self._vague = self._vague or not before
            pairwise = len(before) == len(event.recipients)
            for place, one in enumerate(before):
                new = event.recipients[place : place + 1] if pairwise else event.recipients
                self._by.setdefault(one, set()).update(new)

    def members(self, owed: Iterable[int]) -> set[int]:
        """The addresses that took the place of these, and of those again."""
        found: set[int] = set(self._all) if self._vague else set()
        waiting = list(owed)
        while waiting:
            new = self._by.get(waiting.pop(), set()) - found
            found |= new
            waiting += new
        return found

    def settled(self, number: int, ended: Container[int]) -> bool:
        """Has it an end, or is another address in its place? These have to end as well."""
        replaced = self._by.get(number, {number}) != {number}
        return number in ended or replaced or (self._vague and number not in self._all)


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
