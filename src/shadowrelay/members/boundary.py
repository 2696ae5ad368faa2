"""The members of the boundary as this process sees them: their sites and hosts, and who can be reached."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import field

from shadowrelay.core.identifiers import ServerName
from shadowrelay.core.members.second_opinion import Others, others
from shadowrelay.core.ownership.heartbeat import Alarm, Watch
from shadowrelay.core.policy import Policy
from shadowrelay.core.reception.redundancy import Concern, Leg, OfferAttempt
from shadowrelay.core.reception.shadow_servers import (
    MemberPlace,
    Placed,
    Sites,
    Turn,
    healthy_turn,
    near,
    next_turn,
    placed,
    preferred,
)
from shadowrelay.core.safety_net.resubmission import Contacts
from shadowrelay.core.values import dataclass, replace

LEAVES_FOR = 15.0
"""Seconds for which a member that said that it leaves is asked for nothing."""

SECOND_CHANCE = 1.0
"""Seconds in which a member that failed lately has to be connected to and greeted, or it fails again.

If it is the only candidate, every message tries it, and would otherwise wait as long as the first one did.
"""

A_MOMENT = 0.1
"""Seconds of a try to reach a spent member for which messages wait that may do without a copy."""


@dataclass(frozen=True, slots=True)
class Spent:
    """A member failed in all attempts that a message has (decision 0040). ``until``: a time after which that
    says nothing any more, unless its heartbeats fail as well. ``refuses``: it answers, but takes no copies.
    """

    until: float
    refuses: bool


@dataclass(slots=True)
class Boundary:
    """The members, in the memory of this process. Times are seconds of a clock that counts suspension."""

    own: MemberPlace
    places: tuple[MemberPlace, ...]
    policy: Policy
    relied: Policy | None = None  # what others surely go by; None: they have this policy
    watches: dict[ServerName, Watch] = field(default_factory=dict)
    _skipped: dict[ServerName, float] = field(default_factory=dict)
    _spent: dict[ServerName, Spent] = field(default_factory=dict)
    _leaving: dict[ServerName, float] = field(default_factory=dict)
    _turn: int = 0
    _placed: tuple[tuple[MemberPlace, ...], bool, Placed] | None = None  # of which places, by nearness or not
    _silences: set[ServerName] = field(default_factory=set)  # members whose long silence ended, not yet noted

    def __post_init__(self) -> None:
        for place in self.places:
            self.watches[place.name] = Watch(place.name)

    def retire(self, name: ServerName) -> None:
        """Forget a member: an operator said that it is gone for good."""
        self.places = tuple(place for place in self.places if place.name != name)
        self.watches.pop(name, None)
        self._spent.pop(name, None)
        self._silences.discard(name)

    def admit(self, place: MemberPlace) -> None:
        """Take a member in, or note where it stands now."""
        rest = tuple(one for one in self.places if one.name != place.name)
        self.places = (*rest, place)
        self.watches.setdefault(place.name, Watch(place.name))

    def reachable(self) -> frozenset[ServerName]:
        """The members whose answers are waited for: no attempt failed since the last contact, or the member
        has introduced itself since.
        """
        return frozenset(watch.name for watch in self.watches.values() if watch.reachable or watch.greeted)

    def silent(self, name: ServerName) -> bool:
        """Was there no contact with that member in this process, or none since the last failure?"""
        watch = self.watches.get(name)
        return watch is None or watch.silent

    def greeted(self, name: ServerName) -> None:
        """That member introduced itself. Call this before the greeting is stored, so that no question is
        concluded without the member's answer.
        """
        if name in self.watches:
            self.watches[name] = replace(self.watches[name], greeted=True)

    def answered(self, name: ServerName, asked_at: float) -> None:
        """That member answered what we asked at time ``asked_at``.

        If the silence before was too long, it must still be noted: the answer does not tell what the member
        promoted during it.
        """
        if name in self.watches:
            if self._overdue(self.watches[name], asked_at):
                self._silences.add(name)
            self.watches[name] = self.watches[name].answered(asked_at)
            self._skipped.pop(name, None)
            self._is_back(name)

    def called(self, name: ServerName, at: float) -> None:
        """That member called us."""
        if name in self.watches:
            self.watches[name] = self.watches[name].called(at)
            self._is_back(name)

    def contacts(self, at: float) -> Contacts:
        """The members, as far as it matters for whom this node answers when a request is carried out."""
        patience = self.policy.unresponsive_primary_interval.total_seconds()
        silent = (
            name
            for name, watch in self.watches.items()
            if watch.failing_since is not None and at - watch.failing_since >= patience
        )
        return Contacts(frozenset(self.watches), self.reachable(), frozenset(silent))

    def sighted(self, at: float) -> frozenset[ServerName]:
        """The members with which there was contact within three heartbeats, for second opinions."""
        return frozenset(name for name, watch in self.watches.items() if watch.sighted(at, self.policy))

    def elsewhere(self) -> frozenset[ServerName]:
        """The members on other machines than ours."""
        return frozenset(place.name for place in self.places if place.host != self.own.host)

    def voice_of(self, name: ServerName) -> ServerName | None:
        """Under whose name the wall clock of that machine is kept: its workers have one clock, and so
        one voice. None on our own machine, where they have ours.
        """
        host = next((place.host for place in self.places if place.name == name), self.own.host)
        there = (place.name for place in self.places if place.host == host)
        return min(there) if host != self.own.host else None

    def placed(self) -> Placed:
        """The members that may hold copies, in the order of the settings; or by nearness, where there are
        more than this node chooses among. It is found once for all messages.
        """
        few = 0 < self.policy.holder_choices < len(self.places)
        known = self._placed
        if known is None or known[0] is not self.places or known[1] != few:
            found = placed(self.own, near(self.own, self.places) if few else self.places)
            known = self._placed = (self.places, few, found)
        return known[2]

    def others(self, name: ServerName) -> Others:
        """The members that can give a second opinion on that member."""
        return others(self.own, self.places, name)

    def failed(self, name: ServerName, at: float, error: str) -> tuple[Alarm, ...]:
        """A heartbeat with that member failed. Returns the alarms that follow."""
        self.watches[name], alarms = self.watches[name].failed(at, error, self.policy)
        return alarms

    def cut_off(self, at: float) -> tuple[ServerName, ...]:
        """The members with which there is, or was, no contact for ``shadow_resubmit_time_span``.

        Each stays in the result until it is ``noted``. The queue asks this before it claims or sends
        anything.
        """
        watches = self.watches.items()
        return tuple([name for name, one in watches if name in self._silences or self._overdue(one, at)])

    def _overdue(self, watch: Watch, at: float) -> bool:
        """May that member have promoted our messages? It may go by a shorter span than we do."""
        return watch.overdue(at, self.relied or self.policy)

    def noted(self, name: ServerName, at: float) -> None:
        """The messages that this member may have promoted in its silence are marked to be asked about."""
        self._silences.discard(name)
        if (watch := self.watches.get(name)) and self._overdue(watch, at):
            self.watches[name] = replace(watch, cut_off=True)

    def at_hand(self, at: float) -> frozenset[ServerName]:
        """The members that answered us within ``shadow_resubmit_time_span``, and have not failed since."""
        return frozenset(
            name
            for name, watch in self.watches.items()
            if watch.reachable
            and watch.contact_at is not None
            and not (watch.cut_off or self._overdue(watch, at))
        )

    def attempted(self, attempt: OfferAttempt, at: float) -> None:
        """An offer ended. Other messages skip the member only if the failure is about the member itself."""
        if attempt.leg is Leg.ACKNOWLEDGED:
            self._skipped.pop(attempt.name, None)
            self._spent.pop(attempt.name, None)
        elif attempt.concern is Concern.MEMBER:
            self._skipped[attempt.name] = at + self.policy.member_skip_interval.total_seconds()

    def in_vain(self, attempts: Sequence[OfferAttempt]) -> None:
        """All attempts for a message are used up, and no member took it: those that failed are ``spent``."""
        for attempt in {attempt.name: attempt for attempt in attempts}.values():
            if attempt.concern is Concern.MEMBER and (until := self._skipped.get(attempt.name)) is not None:
                self._spent[attempt.name] = Spent(until, refuses=attempt.mark is not None)

    def _is_back(self, name: ServerName) -> None:
        """That member can be reached. If it answered and took no copies, it may still do so."""
        if (spent := self._spent.get(name)) and not spent.refuses:
            del self._spent[name]

    def spent(self, at: float) -> frozenset[ServerName]:
        """The members that failed lately in all attempts of a message, or did and are silent since."""
        if not self._spent:  # nearly always
            return frozenset()
        return frozenset(
            name
            for name, spent in self._spent.items()
            if spent.until > at or ((watch := self.watches.get(name)) and watch.failing_since is not None)
        )

    def unheard_of(self, name: ServerName, at: float) -> bool:
        """Is that member spent, and did it not answer at all?"""
        return name in self.spent(at) and not self._spent[name].refuses

    def leaves(self, name: ServerName, at: float) -> None:
        """That member says that it leaves: it takes no copies, and nothing may be handed over to it. It says
        so again as long as it holds copies for us.
        """
        self._leaving[name] = at + LEAVES_FOR

    def skipped(self, at: float) -> frozenset[ServerName]:
        """The members that failed lately, leave or cannot be reached: asked only when no other is left."""
        found = [name for name, watch in self.watches.items() if watch.failing_since is not None]
        for those in filter(None, (self._skipped, self._leaving)):
            found += [name for name, until in those.items() if until > at]
        return frozenset(found)

    def patience(self, name: ServerName, at: float) -> float | None:
        """Seconds in which a member must be greeted for an offer; None: each step has its own timeout."""
        return SECOND_CHANCE if name in self.skipped(at) else None

    def candidates(self, at: float, policy: Policy | None = None) -> Candidates:
        """The candidates for a copy of one message that began to arrive at time ``at``. The ``policy`` counts
        for it to the end; None: that of now, each time.
        """
        self._turn += 1
        return Candidates(self, at, self._turn, policy or self.policy)


@dataclass(slots=True)
class Candidates:
    """The members to ask for a copy of one message, chosen after each attempt from all attempts so far."""

    boundary: Boundary
    began: float
    turn: int
    policy: Policy
    first: Turn | None = None
    needed: bool = True  # without a copy the message is refused
    spent: frozenset[ServerName] = frozenset()  # when the message began

    def __post_init__(self) -> None:
        self.needed = self.policy.reject_message_on_shadow_failure
        self.spent = self.boundary.spent(self.began)
        self.first = self._next(())

    def after(self, attempts: Sequence[OfferAttempt]) -> Turn | None:
        """The member to ask after these attempts; None if no member or no number of attempts is left."""
        if not attempts:
            return self.first  # a session with it may be open already
        turn = self._next(attempts)
        if turn is None:
            self.boundary.in_vain(attempts)
        return turn

    def _next(self, attempts: Sequence[OfferAttempt]) -> Turn | None:
        known = self.boundary
        # What other messages found out meanwhile costs no message its 250.
        spent = self.spent if self.needed or not attempts else known.spent(self.began)
        return next_turn(self._order(), attempts, known.skipped(self.began), self.policy, spent)

    def healthy(
        self, attempts: Sequence[OfferAttempt], first: Collection[ServerName] = frozenset()
    ) -> Turn | None:
        """The next member that did not fail lately and can be reached, those of ``first`` before all others;
        None if there is none.
        """
        return healthy_turn(self._order(), attempts, self.boundary.skipped(self.began), first)

    def _order(self) -> tuple[Sites, ...]:
        return preferred(self.boundary.placed(), self.policy, turn=self.turn)
