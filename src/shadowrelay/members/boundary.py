"""The members of the boundary as this process sees them now: where they stand, and who can be reached."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

from shadowrelay.core.identifiers import ServerName
from shadowrelay.core.members.second_opinion import Others, others
from shadowrelay.core.ownership.heartbeat import Alarm, Watch
from shadowrelay.core.policy import Policy
from shadowrelay.core.reception.redundancy import Concern, Leg, OfferAttempt
from shadowrelay.core.reception.shadow_servers import (
    MemberPlace,
    Sites,
    Turn,
    healthy_turn,
    next_turn,
    preferred,
)
from shadowrelay.core.values import dataclass, replace

SECOND_CHANCE = 1.0
"""Seconds in which a member that failed lately has to be connected to and greeted, or it fails again.

Where it is the only candidate each message tries it, and each would wait as long as the first one did.
"""


@dataclass(slots=True)
class Boundary:
    """Memory of this process. Times are seconds of a clock that counts suspension."""

    own: MemberPlace
    places: tuple[MemberPlace, ...]
    policy: Policy
    watches: dict[ServerName, Watch] = field(default_factory=dict)
    _skipped: dict[ServerName, float] = field(default_factory=dict)
    _turn: int = 0
    _silences: set[ServerName] = field(default_factory=set)  # that have ended, and were not noted

    def __post_init__(self) -> None:
        for place in self.places:
            self.watches[place.name] = Watch(place.name)

    def retire(self, name: ServerName) -> None:
        """That member is gone for good: an operator said so."""
        self.places = tuple(place for place in self.places if place.name != name)
        self.watches.pop(name, None)
        self._silences.discard(name)

    def reachable(self) -> frozenset[ServerName]:
        """Members whose answers are waited for: no attempt has failed to reach them since the last contact,
        or they have introduced themselves since.
        """
        return frozenset(watch.name for watch in self.watches.values() if watch.reachable or watch.greeted)

    def silent(self, name: ServerName) -> bool:
        """No contact with that member so far, or none since the last failure."""
        watch = self.watches.get(name)
        return watch is None or watch.silent

    def greeted(self, name: ServerName) -> None:
        """That member introduced itself. Said before what follows from it is written down: nothing it is to
        be asked about may be concluded before it was asked.
        """
        if name in self.watches:
            self.watches[name] = replace(self.watches[name], greeted=True)

    def answered(self, name: ServerName, asked_at: float) -> None:
        """That member answered what we asked at that time.

        A silence that was too long has still to be noted: what was promoted in it is not known by an answer.
        """
        if name in self.watches:
            if self.watches[name].overdue(asked_at, self.policy):
                self._silences.add(name)
            self.watches[name] = self.watches[name].answered(asked_at)
            self._skipped.pop(name, None)

    def called(self, name: ServerName, at: float) -> None:
        """That member called us."""
        if name in self.watches:
            self.watches[name] = self.watches[name].called(at)

    def sighted(self, at: float) -> frozenset[ServerName]:
        """Members with which there was contact within three heartbeats: for another's second opinion."""
        return frozenset(name for name, watch in self.watches.items() if watch.sighted(at, self.policy))

    def elsewhere(self) -> frozenset[ServerName]:
        """Members on other machines than ours."""
        return frozenset(place.name for place in self.places if place.host != self.own.host)

    def others(self, name: ServerName) -> Others:
        """Who can be asked for a second opinion on that member."""
        return others(self.own, self.places, name)

    def failed(self, name: ServerName, at: float, error: str) -> tuple[Alarm, ...]:
        """A heartbeat failed; what that calls for."""
        self.watches[name], alarms = self.watches[name].failed(at, error, self.policy)
        return alarms

    def cut_off(self, at: float) -> tuple[ServerName, ...]:
        """Members with which there is, or was, no contact for the resubmit time span; each until ``noted``.

        Asked before anything is claimed or sent.
        """
        return tuple(
            name
            for name, watch in self.watches.items()
            if name in self._silences or watch.overdue(at, self.policy)
        )

    def noted(self, name: ServerName, at: float) -> None:
        """What that member may have promoted in its silence is written down: it is asked about."""
        self._silences.discard(name)
        if (watch := self.watches.get(name)) and watch.overdue(at, self.policy):
            self.watches[name] = replace(watch, cut_off=True)

    def at_hand(self, at: float) -> frozenset[ServerName]:
        """Members that answered us within the resubmit time span, and have not failed since."""
        return frozenset(
            name
            for name, watch in self.watches.items()
            if watch.reachable
            and watch.contact_at is not None
            and not (watch.cut_off or watch.overdue(at, self.policy))
        )

    def attempted(self, attempt: OfferAttempt, at: float) -> None:
        """An offer has ended. Only what it says of the member counts for other messages."""
        if attempt.leg is Leg.ACKNOWLEDGED:
            self._skipped.pop(attempt.name, None)
        elif attempt.concern is Concern.MEMBER:
            self._skipped[attempt.name] = at + self.policy.member_skip_interval.total_seconds()

    def skipped(self, at: float) -> frozenset[ServerName]:
        """Members that failed lately, or cannot be reached: asked only when no other one is left."""
        lately = {name for name, until in self._skipped.items() if until > at}
        return frozenset(lately | {name for name, watch in self.watches.items() if not watch.reachable})

    def patience(self, name: ServerName, at: float) -> float | None:
        """Seconds that a member may take until it is greeted for a copy; None: each step has its own time."""
        return SECOND_CHANCE if name in self.skipped(at) else None

    def candidates(self, at: float) -> Candidates:
        """Whom to ask for a copy of one message, which began to arrive at that time."""
        self._turn += 1
        return Candidates(self, at, self._turn)


@dataclass(slots=True)
class Candidates:
    """Whom to ask for a copy of one message, told after each attempt what became of all of them so far."""

    boundary: Boundary
    began: float
    turn: int
    first: Turn | None = None

    def __post_init__(self) -> None:
        self.first = next_turn(self._order(), (), self.boundary.skipped(self.began), self.boundary.policy)

    def after(self, attempts: Sequence[OfferAttempt]) -> Turn | None:
        """The next one, or the first; None when nobody is left, or nothing of the number of attempts."""
        if not attempts:
            return self.first  # a session with it may be open already
        return next_turn(self._order(), attempts, self.boundary.skipped(self.began), self.boundary.policy)

    def healthy(self, attempts: Sequence[OfferAttempt]) -> Turn | None:
        """The next one of which nothing is known that speaks against asking it now."""
        return healthy_turn(self._order(), attempts, self.boundary.skipped(self.began))

    def _order(self) -> tuple[Sites, ...]:
        return preferred(self.boundary.own, self.boundary.places, self.boundary.policy, turn=self.turn)
