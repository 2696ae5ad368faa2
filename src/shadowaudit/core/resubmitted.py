"""Was it right to give a message back? A row RESUBMIT of Safety Net begins a message, about an original.

The rows of the message that it begins tell whether its id is right. All else the original's rows tell, among
which that row stands as well (``Kind.RESUBMISSION``).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from shadowaudit.core.events import (
    COMPARED,
    DISCARDED,
    FINALS,
    ORIGINS,
    PAST_A_HOP,
    SENT,
    SETTLED_ELSEWHERE,
    Event,
    Kind,
    canonical,
    is_derived,
)
from shadowaudit.core.evidence import Evidence
from shadowaudit.core.findings import Class, Finding
from shadowaudit.core.fingerprint import derived

_INSIDE = frozenset({Kind.DELIVER, Kind.DUPLICATEDELIVER, Kind.SEND})
"""Delivered inside the boundary: what Safety Net may give back."""


_GIVEN_BACK = frozenset({Kind.RESUBMISSION, Kind.SENT_PAST})


def resubmission_id(request: str, original: str) -> str:
    """The id of the message that gives ``original`` back for that request: the nodes derive it."""
    return derived(f"resubmit\0{request}\0{original}")


def _again_id(event: Event, original: str, hop_database: str) -> str:
    """The id of the message that goes past a hop with these recipients."""
    numbers = ",".join(map(str, event.recipients))
    return derived(f"hop\0{original}\0{hop_database}\0{numbers}")


def contradictory(events: Mapping[int, Event]) -> Iterator[Finding]:
    """``events``: rows about one message, by their index. Find origins that cannot be so."""
    for index, event in events.items():
        wrong = ""
        if event.kind in (Kind.JOURNAL, Kind.MEMBERS) and not is_derived(event.message):
            what = "journal copy" if event.kind is Kind.JOURNAL else "message to members"
            wrong = f"a {what} whose id is not derived"
        elif event.kind is Kind.RESUBMITTED:
            request = event.entries.get("Request", "")
            if event.message != resubmission_id(request, event.reference):
                wrong = "RESUBMIT with another id than its request and its original give"
            elif event.context != f"request {request}":
                wrong = "RESUBMIT says two things of its request"
        elif event.kind is Kind.SENT_AGAIN:
            original, _, hop_database = event.reference.partition(PAST_A_HOP)
            said = event.peer, hop_database, event.context
            if event.message != _again_id(event, original, hop_database):
                wrong = "RESUBMIT past a hop with another id than its original and the hop's database give"
            elif said != tuple(map(event.entries.get, ("Hop", "HopDb", "Reason"))):
                wrong = "RESUBMIT says two things of the hop"
        if wrong:
            yield Finding(Class.INCONSISTENT, f"{event.node}: {wrong}", event.recipients, (index,))


def undue(
    events: Mapping[int, Event], about: Mapping[int, Event], evidence: Evidence, *, untold: bool
) -> Iterator[Finding]:
    """``events``: rows about the original, by their index. ``about``: rows of other messages that name it.

    ``untold``: there may be more rows than these.
    """
    rows = {index: event for index, event in about.items() if event.kind in _GIVEN_BACK}
    if not rows:
        return
    case = _Original(events, evidence, untold=untold)
    for index, event in rows.items():
        if event.kind is Kind.SENT_PAST:
            yield from case.past_a_hop(index, event)
            continue
        yield from case.again(index, event)
        yield from case.altered(index, event)
        yield from case.recipients(index, event)


@dataclass(frozen=True, slots=True)
class _Ends:
    """Rows that settle one recipient: by sending it inside the boundary or otherwise, on any node; and those
    by which the node that gives it back knew of that.
    """

    inside: Sequence[int]
    outside: Sequence[int]
    known: Sequence[int]


class _Original:
    def __init__(self, events: Mapping[int, Event], evidence: Evidence, *, untold: bool) -> None:
        self.events, self.evidence, self.untold = events, evidence, untold
        self.origins = [index for index, event in events.items() if event.kind in ORIGINS]
        self._about: dict[str, list[int]] = defaultdict(list)  # rows by recipient
        for index, event in events.items():
            for address in {canonical(one) for one in event.addresses}:
                self._about[address].append(index)

    def again(self, index: int, event: Event) -> Iterator[Finding]:
        if first := [at for at in self.origins if self.events[at].kind is Kind.RESUBMITTED]:
            yield Finding(Class.RESUBMITTED_AGAIN, _as(event), event.recipients, (*first, index))

    def altered(self, index: int, event: Event) -> Iterator[Finding]:
        """Its content is that of the original, or of a maker of it if it is a report."""
        if self.untold and is_derived(event.reference):
            return
        compared = {at: one for at, one in self.events.items() if one.kind in COMPARED}
        contents = {at: text for at, one in compared.items() if (text := one.entries.get("Content"))}
        sizes = {at: str(one.size) for at, one in compared.items() if one.size is not None}
        size = "" if event.size is None else str(event.size)
        content = event.entries.get("Content", "")
        for name, given, told in (("content", content, contents), ("size", size, sizes)):
            if told and given and given not in told.values():
                detail = f"another {name} than {self.events[min(told)].kind} has; {_as(event)}"
                yield Finding(Class.ALTERED, detail, rows=(min(told), index))

    def recipients(self, index: int, event: Event) -> Iterator[Finding]:
        prefix = self._is_whole(event.database)
        found: dict[tuple[Class, str], list[int]] = defaultdict(list)
        proof: dict[tuple[Class, str], dict[int, None]] = defaultdict(dict)
        for number, address in zip(event.recipients, event.addresses, strict=False):
            ends = self._ends(address, event)
            if ends.outside and not ends.inside:
                how = " and ".join(sorted({self.events[at].kind for at in ends.outside}))
                what, rows = (Class.RESUBMITTED_OUTSIDE, how), ends.outside
            elif prefix and not ends.known:
                what = Class.RESUBMITTED_EARLY, "that node had not heard of a delivery"
                rows = self.origins
            elif not ends.inside:
                told = prefix and self._is_all_told()
                kind = Class.RESUBMITTED_EARLY if told else Class.RESUBMITTED_UNVERIFIED
                what, rows = (kind, "no log has its delivery"), self.origins
            else:
                continue
            found[what].append(number)
            proof[what].update(dict.fromkeys(rows))
        for what, numbers in found.items():
            detail = f"{what[1]}; {_as(event)}"
            yield Finding(what[0], detail, tuple(sorted(numbers)), (*proof[what], index))

    def past_a_hop(self, index: int, event: Event) -> Iterator[Finding]:
        """Had the hop told the node that it is delivered, before the node sent it another way?

        A database that was set back since knows nothing of what it was told.
        """
        database = self.evidence.databases.get(event.database)
        if database is not None and database.rolled_back:
            return
        mine = {at: one for at, one in self.events.items() if one.database == event.database}
        words = {at: one for at, one in mine.items() if one.by_a_hop and one.reason == DISCARDED}
        said = [at for at, one in words.items() if self._place(one) < self._place(event)]
        sent = Counter(canonical(to) for one in mine.values() if one.kind in SENT for to in one.addresses)
        known = {
            to
            for at in said
            for to in map(canonical, words[at].addresses)
            # Where it was sent to one hop, the word is that one's, whatever the row calls it.
            if words[at].peer == event.peer or sent[to] < 2
        }
        pairs = zip(event.recipients, event.addresses, strict=False)
        if again := tuple(sorted(number for number, to in pairs if canonical(to) in known)):
            detail = f"the hop had said that it is delivered; {_as(event)}"
            yield Finding(Class.RESUBMITTED_OUTSIDE, detail, again, (*said, index))

    def _ends(self, address: str, given: Event) -> _Ends:
        """Clocks of two nodes tell no order: only what the same database tells later came too late."""
        inside, outside, known = [], [], []
        for at in self._about.get(canonical(address), ()):
            one = self.events[at]
            here = one.database == given.database
            if here and self._place(one) > self._place(given):
                continue
            if one.kind in _INSIDE:
                inside.append(at)
            elif one.kind in FINALS:
                outside.append(at)
            told = one.kind is Kind.HADISCARD and one.reason in SETTLED_ELSEWHERE
            if here and (told or one.kind in _INSIDE):
                known.append(at)
        return _Ends(inside, outside, known)

    def _place(self, event: Event) -> tuple[int, int]:
        """Where the row stands in its database: which life, and which row."""
        database = self.evidence.databases.get(event.database)
        boots = [segment.boot for segment in database.segments] if database else []
        return boots.index(event.boot) if event.boot in boots else 0, event.sequence

    def _is_whole(self, name: str) -> bool:
        """Have we each row of that database, up to the last one that we have?"""
        database = self.evidence.databases.get(name)
        return database is not None and database.unbroken and not database.rolled_back

    def _is_all_told(self) -> bool:
        """Of a message that no row begins, any node may have rows that are missing."""
        ends = (one.ends for one in self.evidence.databases.values())
        return not self.untold and (bool(self.origins) or all(ends))


def _as(event: Event) -> str:
    return f"given back by {event.node} as {event.message}"
