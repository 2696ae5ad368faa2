"""The law of time: a node's decisions go by reckoned time, and a wall clock that steps decides nothing.

Reckoned time begins with the wall clock when a database is made. Within an incarnation the boot clock carries
it on, and nothing else: it never moves. Each opening carries it on from what was saved. In the same boot of
the machine the boot clock tells how long the node was away. After another boot the wall clock tells it: this
time is a span that may not have passed, until something confirms it.

Endings use the lower bound of an age: without these spans (``not_aged``). *May others have forgotten?* uses
the upper bound (``Reckoning.away``), which after another boot is not known before the wall clock is
confirmed. See docs/explanation/time.md and decision 0038.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import UTC, datetime, timedelta
from enum import StrEnum

from shadowrelay.core.spans import Span, joined, since_when, within
from shadowrelay.core.values import dataclass, replace

TOLERANCE = timedelta(minutes=1)
"""A wall clock that is wrong by no more is as good as right: certificates, people and logs allow for that."""

SETTLES = timedelta(minutes=10)
"""After a boot, the wall clock must go with the boot clock for so long to confirm the absence."""

USUAL = timedelta(days=2)
"""A longer absence is not confirmed by that: members have to agree on the time, or an operator says so."""

KEPT = timedelta(days=400)
"""So long a span is kept after its end: nothing is older that still ages."""

BELIEVED = timedelta(days=30)
"""A wall clock that claims a longer absence is wrong until members or an operator say that it is right."""

MOST_SPANS = 32
"""Spans that are kept; more are joined to longer ones."""

PATIENCE = timedelta(minutes=20)
"""If nothing confirms the wall clock for so long after an opening, the absence counts as endless."""


@dataclass(frozen=True, slots=True)
class ClockReading:
    """What the clocks of the machine say at one moment. ``boot``: time since the machine was started,
    suspension included. ``boot_id`` names that start.
    """

    wall: datetime
    boot: timedelta
    boot_id: str


@dataclass(frozen=True, slots=True)
class Reckoning:
    """How a node reckons its time: it was ``time`` when the boot clock said ``boot``.

    ``ahead``: how far the wall clock is ahead of reckoned time, as is agreed. ``settled``: something has
    confirmed that, since the opening. ``spans``: time that may not have passed; ``pending``: the same, of
    this opening, until it is settled. ``least``: what a right wall clock said when it was ``time``, or more;
    None: nothing has confirmed the wall clock yet. ``left``: the same when the node was last alive before an
    absence that the wall clock has to tell. ``away``: how long the node was away, at most; None: not known.
    ``seen``: how far the wall clock was ahead when it stepped last, and ``calm_since``: what the boot clock
    said then.
    """

    time: datetime
    boot: timedelta
    boot_id: str
    ahead: timedelta = timedelta(0)
    settled: bool = False
    spans: tuple[Span, ...] = ()
    pending: Span | None = None
    least: datetime | None = None
    left: datetime | None = None
    away: timedelta | None = timedelta(0)
    seen: timedelta = timedelta(0)
    calm_since: timedelta = timedelta(0)

    def at(self, boot: timedelta) -> datetime:
        """The reckoned time when the boot clock says that."""
        return self.time + (boot - self.boot)

    def ahead_now(self, reading: ClockReading) -> timedelta:
        """How far the wall clock is ahead of reckoned time."""
        return reading.wall - self.at(reading.boot)

    def not_aged(self, since: datetime, now: datetime) -> timedelta:
        """How much of the time since then may not have passed. ``now`` is reckoned time."""
        return within(self.doubtful, since, now)

    def since_when(self, age: timedelta, now: datetime) -> datetime:
        """What began then has certainly that age now."""
        return since_when(self.doubtful, age, now)

    @property
    def doubtful(self) -> list[Span]:
        """The time that may not have passed."""
        spans = (*self.spans, self.pending) if self.pending else self.spans
        return joined(spans) if spans else []


def begun(reading: ClockReading) -> Reckoning:
    """The reckoning of a new database: the wall clock is all there is."""
    return Reckoning(reading.wall, reading.boot, reading.boot_id, calm_since=reading.boot)


def saved(reckoning: Reckoning, reading: ClockReading) -> Reckoning:
    """The reckoning as it is saved: at this moment."""
    gone = reading.boot - reckoning.boot
    least = reckoning.least and reckoning.least + gone
    return replace(reckoning, time=reckoning.time + gone, boot=reading.boot, least=least)


def carried_on(found: Reckoning, reading: ClockReading) -> Reckoning:
    """The reckoning of the next opening. ``found`` is what was saved last.

    Here alone reckoned time moves: by the time for which the node was away, and to a wall clock that was
    ahead by agreement; nothing ages by the latter. It never moves back.
    """
    same = found.boot_id == reading.boot_id and found.boot <= reading.boot
    time = found.at(reading.boot) if same else found.time
    spans, ahead, least = list(found.spans), found.ahead, found.least
    left = None if found.settled else found.left  # an absence before is as uncertain as it was
    if ahead > TOLERANCE:
        spans, time, ahead = [*spans, (time, time + ahead)], time + ahead, timedelta(0)
    if same:
        pending, gone = found.pending, reading.boot - found.boot
        least, away = least and least + gone, None if left else gone
    else:
        if found.pending:
            spans.append(found.pending)
        left, away = left or least, None
        claimed = reading.wall - time - ahead
        until = max(time, reading.wall) if timedelta(0) < claimed <= BELIEVED else time
        pending = (time, until) if until > time else None
        if pending and not found.settled:  # the wall clock of before may have been wrong
            spans, pending = [*spans, pending], None
        if until > time:
            time, ahead = until, reading.wall - until
    return Reckoning(
        time,
        reading.boot,
        reading.boot_id,
        ahead,
        same and found.settled,
        _few(joined(spans), time),
        pending,
        least,
        left,
        away,
        reading.wall - time,
        reading.boot,
    )


def _few(spans: list[Span], now: datetime) -> tuple[Span, ...]:
    """Without spans that are older than all that ages. Too many become longer ones, so that less ages."""
    kept = [span for span in spans if now - span[1] < KEPT]
    while len(kept) > MOST_SPANS:
        kept[:2] = [(kept[0][0], kept[1][1])]
    return tuple(kept)


class Doubt(StrEnum):
    """Why a node does not trust its wall clock."""

    STEPPED = "stepped"
    """It does not go with the boot clock."""
    DIFFERS = "differs"
    """The majority of the members does not have that time."""


class Opinion(StrEnum):
    """What the members say of a wall clock."""

    NONE = "none"
    AGREE = "agree"
    DIFFER = "differ"


def opinion(differences: Collection[timedelta]) -> Opinion:
    """What the members say: for each, how far its wall clock is ahead of ours. Each has a voice.

    Of two that differ, neither is believed.
    """
    if not differences:
        return Opinion.NONE
    ours = 1 + sum(abs(one) <= TOLERANCE for one in differences)
    return Opinion.AGREE if 2 * ours > len(differences) + 1 else Opinion.DIFFER


@dataclass(frozen=True, slots=True)
class Judgement:
    """What is to be thought of the wall clock, and the reckoning as it is now. Nothing ends while there is a
    doubt. ``step``: how far the wall clock is ahead of what was agreed.
    """

    reckoning: Reckoning
    step: timedelta
    doubts: frozenset[Doubt] = frozenset()


def judged(
    reckoning: Reckoning,
    reading: ClockReading,
    differences: Collection[timedelta] = (),
    *,
    confirmed: bool = False,
    settles: timedelta = SETTLES,
) -> Judgement:
    """Judge the wall clock. ``differences``: see ``opinion``. ``confirmed``: an operator said that it is
    right, although members differ. ``settles``: see ``SETTLES``.

    Where no member says anything, a wall clock is believed that is not known yet from before the boot, and
    then goes with the boot clock for a while. Once it is settled, it may not step.
    """
    ahead, said = reckoning.ahead_now(reading), opinion(differences)
    if abs(ahead - reckoning.seen) > TOLERANCE:
        reckoning = replace(reckoning, seen=ahead, calm_since=reading.boot)
    step = ahead - reckoning.ahead
    stepped = abs(step) > TOLERANCE
    calm = not reckoning.settled and said is Opinion.NONE and _calm(reckoning, reading, step, settles)
    if said is Opinion.AGREE or calm:
        reckoning = agreed(reckoning, reading)
        step, stepped = timedelta(0), False
    elif reckoning.settled and not stepped:  # it may go a little faster or slower, which confirms nothing
        reckoning = replace(reckoning, ahead=ahead)
        step = timedelta(0)
    doubts = {Doubt.STEPPED} if stepped else set()
    if said is Opinion.DIFFER and not confirmed:
        doubts.add(Doubt.DIFFERS)
    return Judgement(reckoning, step, frozenset(doubts))


def agreed(reckoning: Reckoning, reading: ClockReading) -> Reckoning:
    """The wall clock is right now: the members agree with it, or an operator says so.

    If it went back since the opening, the node was not away for all of the time that the clock had claimed.
    """
    ahead = reckoning.ahead_now(reading)
    spans = reckoning.spans
    if reckoning.pending and ahead - reckoning.ahead < -TOLERANCE:
        spans = (*spans, reckoning.pending)
    opened = reading.wall - (reading.boot - reckoning.boot)  # what a right wall clock said then
    away = opened + TOLERANCE - reckoning.left if reckoning.left else reckoning.away
    return replace(
        reckoning,
        ahead=ahead,
        settled=True,
        spans=spans,
        pending=None,
        least=opened - TOLERANCE,
        away=away,
    )


def away_longer(
    reckoning: Reckoning, than: timedelta, boot: timedelta, patience: timedelta = PATIENCE
) -> bool | None:
    """May the node have been away for longer than that before this opening? None: it is not known yet.

    ``boot``: what the boot clock says now. If nothing confirms the wall clock, nothing bounds the absence.
    """
    if reckoning.away is not None:
        return reckoning.away > than
    return True if reckoning.settled or boot - reckoning.boot >= patience else None


def _calm(reckoning: Reckoning, reading: ClockReading, step: timedelta, settles: timedelta) -> bool:
    """Did the wall clock go with the boot clock for a while, and does it claim nothing unusual?"""
    claimed = reckoning.pending[1] - reckoning.pending[0] if reckoning.pending else timedelta(0)
    return reading.boot - reckoning.calm_since >= settles and max(abs(step), claimed) <= USUAL


NEVER = datetime(1970, 1, 1, tzinfo=UTC)
"""Nothing of ours began before."""


@dataclass(frozen=True, slots=True)
class Endings:
    """What may end now, by the lower bound of its age. ``now`` is reckoned time; ``spans``: see
    ``Reckoning.doubtful``; ``doubt``: nothing may.
    """

    now: datetime
    spans: Sequence[Span] = ()
    doubt: bool = False

    @property
    def at(self) -> datetime:
        """What would have ended by then has ended."""
        return NEVER if self.doubt else self.now

    def before(self, age: timedelta) -> datetime:
        """What began by then certainly has that age."""
        return NEVER if self.doubt else since_when(self.spans, age, self.now)

    def age(self, since: datetime) -> timedelta:
        """The age that what began then certainly has."""
        if self.doubt:
            return timedelta(0)
        return max(self.now - since - within(self.spans, since, self.now), timedelta(0))

    @property
    def planned_by(self) -> datetime:
        """An end that was planned for then has come, whenever it was planned."""
        return (
            NEVER if self.doubt else self.now - sum((end - begin for begin, end in self.spans), timedelta(0))
        )
