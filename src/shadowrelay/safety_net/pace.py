"""How soon and how fast a node carries out requests: which members are due to be given the records, whether
they have answered, and how many messages the rate allows.

Times are seconds of a clock that counts suspension.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field

from shadowrelay.core.identifiers import Incarnation, RequestId, ServerName
from shadowrelay.core.policy import Policy
from shadowrelay.core.safety_net.resubmission import AT_ONCE
from shadowrelay.core.values import dataclass
from shadowrelay.members.sharing import News, Shared

REFRESH = 5.0  # seconds after which members are given the requests again, and tell how far they are


@dataclass(slots=True)
class Given:
    """What this process knows of the records that a member has. ``run``: the incarnation that it is about: a
    later one may have another database, or an older state of its own.
    """

    since: float  # since when it can be reached, and its answer is waited for
    run: Incarnation | None = None
    news: News = frozenset()
    refused: Mapping[RequestId, str] = field(default_factory=dict)
    at: float | None = None  # when it answered last, since it can be reached
    had: News = frozenset()  # what it was told, also if the rest could not be


@dataclass(slots=True)
class Pace:
    """In the memory of this process."""

    policy: Policy
    refilled: float  # when the allowance was counted last
    refresh: float = REFRESH
    given: dict[ServerName, Given] = field(default_factory=dict)
    _allowance: float = 0.0
    _turn: int = 0

    def due(
        self, reachable: Mapping[ServerName, Incarnation | None], news: News, now: float
    ) -> tuple[ServerName, ...]:
        """The members that can be reached, and do not have the records as they are now, or not lately.
        ``reachable``: with the incarnation in which each was met last.
        """
        for name in self.given.keys() - reachable.keys():
            del self.given[name]
        found = []
        for name, run in sorted(reachable.items()):
            known = self.given.get(name)
            if known is None or known.run != run:
                known = self.given[name] = Given(now, run)
            fresh = known.at is not None and now - known.at < self.refresh
            if not fresh or known.news != news:
                found.append(name)
        return tuple(found)

    def answered(self, name: ServerName, shared: Shared, told: News, now: float) -> Mapping[RequestId, str]:
        """A member was given the records, when they were as ``told``. Returns the refusals that are new."""
        known = self.given.get(name)
        if known is None:
            return {}
        if shared.failed is not None:
            known.had = shared.had
            return {}
        refused = dict(shared.refused)
        news = {request: why for request, why in refused.items() if known.refused.get(request) != why}
        known.news, known.refused, known.at, known.had = told, refused, now, shared.had
        return news

    def may_go_on(self, now: float) -> bool:
        """Has every member that can be reached told what it knows of the requests? This waits for it for the
        reconcile timeout at most.
        """
        patience = self.policy.reconcile_timeout.total_seconds()
        return all(known.at is not None or now - known.since >= patience for known in self.given.values())

    def in_turn(self, requests: Sequence[RequestId]) -> tuple[RequestId, ...]:
        """Each turn begins with another request, so that a large one does not keep the others waiting."""
        self._turn += 1
        first = self._turn % max(1, len(requests))
        return (*requests[first:], *requests[:first])

    def most(self, now: float) -> int:
        """How many messages may be made now."""
        rate = float(self.policy.resubmit_rate)
        self._allowance = min(rate, self._allowance + (now - self.refilled) * rate)
        self.refilled = now
        return min(AT_ONCE, int(self._allowance))

    def made(self, count: int) -> None:
        """So many messages were made."""
        self._allowance -= count
