"""Was there a second copy on another machine before the message was acknowledged, and how long was none?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from shadowaudit.core.events import FINALS, Event, Kind
from shadowaudit.core.evidence import Evidence
from shadowaudit.core.findings import Class, Finding
from shadowaudit.core.replay import Trace

_NOT_REDUNDANT = frozenset({"Failed", "Unknown"})
"""S:Replication of what had one copy, or may have had; the log says so itself."""


class Copies:
    """The copies of one message. ``exposed``, once its findings were asked for: milliseconds with one that
    counts, each span by the clock of the node that tells of it; None if there was none.
    """

    def __init__(
        self,
        events: Sequence[Event],
        by_kind: Mapping[Kind, Sequence[int]],
        traces: Mapping[str, Trace],
        evidence: Evidence,
    ) -> None:
        """``by_kind``: indexes of the events, each row once."""
        self.events, self.traces, self.evidence = events, traces, evidence
        self._by_kind = by_kind
        self.exposed: int | None = None

    def _rows(self, *kinds: Kind) -> list[int]:
        return sorted(index for kind in kinds for index in self._by_kind.get(kind, ()))

    def findings(self) -> Iterator[Finding]:
        for index in self._rows(Kind.RECEIVE):
            yield from self._redundant(index)
        for index in self._rows(Kind.RESUBMIT):
            yield self._alone(index, "after it was promoted")
        for index in self._rows(Kind.RESUBMITTED):
            if self._sent_alone(index):
                yield self._alone(index, "after it was resubmitted")
        yield from self._beside()
        for trace in self.traces.values():
            for begin, end in trace.damages:
                yield self._unsound(trace, begin, end)
        for index in self._rows(Kind.HAREDIRECT):
            holder = self.events[index].peer
            came = any(self.events[at].node == holder for at in self._rows(Kind.HARECEIVE, Kind.LOAD))
            if not came and self.evidence.complete(holder):
                detail = f"{holder} is said to hold a copy, and its log knows of none"
                yield Finding(Class.FALSE_COPY, detail, rows=(index,))

    def _redundant(self, index: int) -> Iterator[Finding]:
        received = self.events[index]
        copies = [at for at in self._rows(Kind.HAREDIRECT) if self.events[at].database == received.database]
        before = [at for at in copies if self.events[at].sequence < received.sequence]
        if any(not self.events[at].beside for at in before):
            return
        after = self._copy_after(index)
        if before:
            yield self._alone(index, "after it was accepted with a copy on its own machine")
        elif received.entries.get("Replication") in _NOT_REDUNDANT:
            yield self._alone(index, "after it was accepted")
        elif not self.traces[received.database].database.unbroken:
            return  # the row may be one that is missing
        elif after is not None:
            yield Finding(Class.LATE_COPY, "HAREDIRECT comes after RECEIVE", rows=(index, after))
        else:
            detail = "no second copy was stored before it was accepted, and no row says so"
            yield Finding(Class.ONE_COPY, detail, rows=(index,))

    def _sent_alone(self, index: int) -> bool:
        """Had the node no other copy when it sent what it had resubmitted, or has it none to this day?"""
        begin, after = self.events[index], self._copy_after(index)
        ends = (self.events[at] for at in self._rows(*FINALS))
        sent = min((one.sequence for one in ends if one.database == begin.database), default=None)
        return after is None or (sent is not None and sent < self.events[after].sequence)

    def _copy_after(self, index: int) -> int | None:
        """The first HAREDIRECT of that node after that row, of a copy on another machine."""
        since = self.events[index]
        later = [
            at
            for at in self._rows(Kind.HAREDIRECT)
            if self.events[at].database == since.database
            and self.events[at].sequence > since.sequence
            and not self.events[at].beside
        ]
        return min(later, key=lambda at: self.events[at].sequence, default=None)

    def _alone(self, index: int, since: str) -> Finding:
        """From that row on the node had the only copy, until it made another, or the message ended."""
        begin = self.events[index]
        after = self._copy_after(index)
        mine = begin.database
        ends = [self.events[at].at for at in self._rows(*FINALS) if self.events[at].database == mine]
        until = self.events[after].at if after is not None else max(ends, default=begin.at)
        alone = max(0, until - begin.at)
        self.exposed = (self.exposed or 0) + alone
        rows = (*self._rows(Kind.HAREDIRECTFAIL), index) if after is None else (index, after)
        repaired = "then it was copied again" if after is not None else "it was never copied again"
        return Finding(Class.EXPOSED, f"one copy for {alone / 1000:.1f} s {since}; {repaired}", rows=rows)

    def _beside(self) -> Iterator[Finding]:
        """What the holders' rows say, where the rows of their owner are missing."""
        told = {
            self.events[index].node for index in self._rows(Kind.RECEIVE, Kind.RESUBMITTED, Kind.HAREDIRECT)
        }
        copies = [index for index in self._rows(Kind.HARECEIVE) if not self.events[index].reason]
        for owner in sorted({self.events[index].peer for index in copies} - told):
            rows = [index for index in copies if self.events[index].peer == owner]
            if all(self.events[index].beside for index in rows):
                detail = f"all copies that were made for {owner} are on its own machine"
                yield Finding(Class.EXPOSED, detail, rows=tuple(rows))

    def _unsound(self, trace: Trace, begin: int, end: int | None) -> Finding:
        """Between these rows what the node had was no copy."""
        since = self.events[begin]
        until = self.events[end] if end is not None else None
        alone = max(0, until.at - since.at) if until else 0
        self.exposed = (self.exposed or 0) + alone
        then = "it is damaged at the end"
        if until is not None:
            again = until.kind in (Kind.HARECEIVE, Kind.HARESTORE)
            then = f"{alone / 1000:.1f} s later {'a good one came' if again else 'it was needed no more'}"
        detail = f"the copy of {trace.database.node} was damaged; {then}"
        return Finding(Class.EXPOSED, detail, rows=(begin, *(() if end is None else (end,))))
