"""The law of time: what a wall clock that steps, and a boot, do to reckoned time and to ages."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from shadowrelay.core import reckoning
from shadowrelay.core.reckoning import (
    BELIEVED,
    MOST_SPANS,
    PATIENCE,
    SETTLES,
    TOLERANCE,
    USUAL,
    ClockReading,
    Doubt,
    Opinion,
    Reckoning,
    agreed,
    away_longer,
    begun,
    carried_on,
    judged,
    opinion,
    saved,
)

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
NOTHING = timedelta(0)
SECOND, MINUTE, HOUR, DAY = timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
YEAR = 365 * DAY
RIGHT = (NOTHING, NOTHING)  # two members whose clocks are as ours


def reading(since: timedelta, wall: timedelta | None = None, boot_id: str = "one") -> ClockReading:
    """So long after NOW by the boot clock, and by the wall clock, if that is not the same."""
    return ClockReading(NOW + (since if wall is None else wall), HOUR + since, boot_id)


def settled(at: Reckoning, when: ClockReading) -> Reckoning:
    return judged(at, when, RIGHT).reckoning


START = begun(reading(NOTHING))
TRUSTED = settled(START, reading(NOTHING))


@pytest.mark.parametrize("step", [YEAR, -YEAR, 20 * HOUR, -20 * HOUR, 2 * MINUTE])
def test_a_wall_clock_that_steps_does_not_move_reckoned_time_and_raises_a_doubt(step: timedelta) -> None:
    off = reading(4 * SECOND, 4 * SECOND + step)
    assert TRUSTED.at(off.boot) == NOW + 4 * SECOND
    found = judged(TRUSTED, off)
    assert found.doubts == {Doubt.STEPPED}
    assert found.step == step
    assert found.reckoning.at(off.boot) == NOW + 4 * SECOND


def test_when_the_wall_clock_is_right_again_the_doubt_is_over() -> None:
    off = judged(TRUSTED, reading(SECOND, YEAR)).reckoning
    after = judged(off, reading(5 * SECOND))
    assert not after.doubts
    assert abs(after.step) <= TOLERANCE


def test_a_step_within_a_minute_is_none_however_many_there_are() -> None:
    at = TRUSTED
    for number in range(1, 20):
        found = judged(at, reading(number * MINUTE, number * (MINUTE + 50 * SECOND)))
        assert not found.doubts
        at = found.reckoning
    assert at.at(HOUR + 19 * MINUTE) == NOW + 19 * MINUTE
    assert at.ahead == 19 * 50 * SECOND


@pytest.mark.parametrize(
    ("differences", "said"),
    [
        ([], Opinion.NONE),
        ([NOTHING], Opinion.AGREE),
        ([MINUTE], Opinion.AGREE),
        ([MINUTE + SECOND], Opinion.DIFFER),  # of two that differ none is right
        ([NOTHING, YEAR], Opinion.AGREE),
        ([YEAR, YEAR], Opinion.DIFFER),
        ([YEAR, -YEAR], Opinion.DIFFER),
        ([NOTHING, YEAR, YEAR], Opinion.DIFFER),  # two against two
        ([NOTHING, -MINUTE, YEAR, YEAR], Opinion.AGREE),
    ],
)
def test_the_majority_says_what_time_it_is_and_we_have_a_voice(
    differences: list[timedelta], said: Opinion
) -> None:
    assert opinion(differences) is said


def test_members_that_differ_veto_though_the_clock_goes_as_ever_and_an_operator_overrules_them() -> None:
    differ = [-YEAR, -YEAR]
    assert judged(TRUSTED, reading(DAY), differ).doubts == {Doubt.DIFFERS}
    assert not judged(TRUSTED, reading(DAY), differ, confirmed=True).doubts
    assert judged(TRUSTED, reading(DAY, YEAR), [-YEAR, -YEAR]).doubts == set(Doubt)


def test_a_step_is_believed_when_members_agree_and_moves_reckoned_time_at_the_next_opening() -> None:
    found = judged(TRUSTED, reading(HOUR, 21 * HOUR), RIGHT)
    assert not found.doubts
    assert found.reckoning.ahead == 20 * HOUR
    assert found.reckoning.at(2 * HOUR) == NOW + HOUR
    again = carried_on(saved(found.reckoning, reading(HOUR, 21 * HOUR)), reading(2 * HOUR, 22 * HOUR))
    assert (again.time, again.ahead) == (NOW + 22 * HOUR, NOTHING)
    # What was taken in between has the age that it had.
    assert again.time - NOW - again.not_aged(NOW, again.time) == 2 * HOUR
    assert not judged(again, reading(2 * HOUR, 22 * HOUR)).doubts


def test_an_operator_confirms_a_step_where_no_member_says_anything() -> None:
    off = reading(HOUR, YEAR)
    assert judged(TRUSTED, off).doubts
    assert judged(
        TRUSTED, reading(HOUR + 2 * SETTLES, YEAR + 2 * SETTLES)
    ).doubts  # waiting alone does not help
    assert not judged(agreed(TRUSTED, off), off).doubts


def test_in_the_same_boot_the_boot_clock_says_how_long_the_node_was_away() -> None:
    for wall in (3 * DAY, YEAR, -YEAR):
        again = carried_on(saved(TRUSTED, reading(HOUR)), reading(3 * DAY, wall))
        assert (again.time, again.away) == (NOW + 3 * DAY, 3 * DAY - HOUR)
        assert not again.doubtful


def rebooted(wall: timedelta, before: Reckoning = TRUSTED) -> tuple[Reckoning, ClockReading]:
    off = reading(HOUR)
    after = ClockReading(NOW + wall, 10 * SECOND, "two")
    return carried_on(saved(before, off), after), after


def test_after_a_boot_the_wall_clock_says_it_but_nothing_ages_before_that_is_confirmed() -> None:
    again, at = rebooted(6 * HOUR)
    assert (again.time, again.away) == (NOW + 6 * HOUR, None)
    assert again.time - NOW - again.not_aged(NOW, again.time) == HOUR
    assert again.since_when(2 * HOUR, again.time + HOUR) == NOW
    assert not judged(again, at).doubts
    sure = judged(again, at, RIGHT).reckoning
    assert not sure.doubtful
    assert sure.time - NOW - sure.not_aged(NOW, sure.time) == 6 * HOUR


def later(at: ClockReading, by: timedelta, step: timedelta = NOTHING) -> ClockReading:
    return ClockReading(at.wall + by + step, at.boot + by, at.boot_id)


@pytest.mark.parametrize(("away", "confirmed"), [(DAY, True), (USUAL - HOUR, True), (3 * DAY, False)])
def test_where_no_member_speaks_a_calm_wall_clock_confirms_a_usual_absence(
    away: timedelta, confirmed: bool
) -> None:
    again, at = rebooted(HOUR + away)
    before = judged(again, later(at, SETTLES - SECOND)).reckoning
    assert before.doubtful
    after = judged(before, later(at, SETTLES))
    assert not after.doubts
    assert (not after.reckoning.doubtful) is confirmed


def test_a_wall_clock_that_is_set_meanwhile_has_to_be_calm_anew_and_what_it_took_back_does_not_age() -> None:
    again, at = rebooted(20 * HOUR)
    back = later(at, 5 * MINUTE, -18 * HOUR)
    found = judged(again, back)
    assert found.doubts == {Doubt.STEPPED}
    found = judged(found.reckoning, later(back, SETTLES - SECOND))
    assert found.doubts
    found = judged(found.reckoning, later(back, SETTLES))
    assert not found.doubts
    assert found.reckoning.doubtful == [(NOW + HOUR, NOW + 20 * HOUR)]


@pytest.mark.parametrize("wall", [-20 * HOUR, -YEAR, HOUR + BELIEVED + MINUTE, YEAR])
def test_after_a_boot_with_a_time_that_cannot_be_time_goes_on_and_there_is_a_doubt(wall: timedelta) -> None:
    again, at = rebooted(wall)
    assert again.time == NOW + HOUR
    assert again.away is None
    assert judged(again, at).doubts == {Doubt.STEPPED}
    right = later(at, SECOND, 2 * HOUR - wall)
    assert not judged(again, right, RIGHT).doubts


@pytest.mark.parametrize("wall", [6 * HOUR, -9 * DAY, 4 * HOUR, YEAR, HOUR])
def test_after_a_boot_nobody_knows_how_long_the_node_was_away_before_the_wall_clock_is_confirmed(
    wall: timedelta,
) -> None:
    again, at = rebooted(wall)  # it was away for five hours
    again = judged(again, at, (YEAR,)).reckoning  # of two that differ neither is right
    assert again.away is None
    assert away_longer(again, DAY, at.boot + PATIENCE - MINUTE) is None
    assert away_longer(again, DAY, at.boot + PATIENCE) is True
    right = later(at, MINUTE, 6 * HOUR - wall)
    sure = judged(again, right, RIGHT).reckoning
    assert sure.away is not None
    assert 5 * HOUR <= sure.away <= 5 * HOUR + 2 * TOLERANCE
    assert away_longer(sure, DAY, right.boot) is False
    assert away_longer(sure, 4 * HOUR, right.boot) is True


def test_where_the_wall_clock_was_never_confirmed_before_a_boot_an_absence_is_endless() -> None:
    """Its clock may have been ahead when it ran: then an absence seems short."""
    again, at = rebooted(6 * HOUR, begun(reading(NOTHING)))
    assert away_longer(again, DAY, at.boot) is None
    assert away_longer(judged(again, at, RIGHT).reckoning, DAY, at.boot) is True


def test_a_clock_that_creeps_ahead_bounds_no_absence() -> None:
    """Alone: nobody says that it is wrong by now."""
    at, minutes = TRUSTED, 0
    for minutes in range(1, 200):
        at = judged(at, reading(minutes * MINUTE, minutes * (MINUTE + 50 * SECOND))).reckoning
    off = reading(minutes * MINUTE)
    again = carried_on(saved(at, off), ClockReading(off.wall + 3 * DAY, MINUTE, "two"))
    sure = judged(again, ClockReading(off.wall + 3 * DAY, MINUTE, "two"), RIGHT).reckoning
    assert sure.away is not None
    assert 3 * DAY <= sure.away <= 3 * DAY + 2 * TOLERANCE


def test_a_restart_does_not_make_an_absence_shorter_that_nothing_has_confirmed() -> None:
    again, at = rebooted(2 * HOUR)  # it was away for three days
    off = later(at, MINUTE)
    restarted = carried_on(saved(again, off), later(off, SECOND))
    assert restarted.away is None
    right = later(off, MINUTE, 3 * DAY - HOUR)
    sure = judged(restarted, right, RIGHT).reckoning
    assert sure.away is not None
    assert sure.away >= 3 * DAY
    off = later(right, MINUTE)
    assert carried_on(saved(sure, off), later(off, SECOND)).away == SECOND


def test_a_new_database_whose_clock_was_wrong_ages_nothing_by_the_difference() -> None:
    """The machine has no battery: it takes mail 20 hours behind, boots again, and the clock is right."""
    again, at = rebooted(21 * HOUR, begun(reading(NOTHING)))
    sure = judged(again, at, RIGHT).reckoning
    assert sure.time - NOW - sure.not_aged(NOW, sure.time) == HOUR


def test_many_uncertain_absences_stay_few_and_age_less() -> None:
    at, boot = TRUSTED, 0
    for boot in range(100):
        off = ClockReading(at.at(at.boot + MINUTE), at.boot + MINUTE, at.boot_id)
        at = carried_on(saved(at, off), ClockReading(off.wall + HOUR, SECOND, f"boot {boot}"))
    assert len(at.doubtful) <= MOST_SPANS + 1
    assert at.time - NOW - at.not_aged(NOW, at.time) <= 100 * MINUTE


def test_another_boot_that_has_run_for_longer_is_another_boot() -> None:
    """A disk that is moved to another machine: the boot clocks have nothing to do with each other."""
    again = carried_on(saved(TRUSTED, reading(HOUR)), ClockReading(NOW + 2 * HOUR, 30 * DAY, "two"))
    assert again.time == NOW + 2 * HOUR
    assert again.doubtful


def test_a_boot_clock_that_goes_back_is_another_boot() -> None:
    again = carried_on(saved(TRUSTED, reading(HOUR)), ClockReading(NOW + 2 * HOUR, SECOND, "one"))
    assert again.time == NOW + 2 * HOUR
    assert again.doubtful


class Machine(RuleBasedStateMachine):
    """A machine with a wall clock that anybody may set, of a boundary whose two other members are right.

    No age is ever longer than the true one: by no step, restart or boot. Reckoned time never goes back.
    """

    steps = st.sampled_from([NOTHING, YEAR, -YEAR, 20 * HOUR, -20 * HOUR, 2 * HOUR, -2 * MINUTE, 90 * SECOND])
    whiles = st.sampled_from([SECOND, MINUTE, 9 * MINUTE, HOUR, 20 * HOUR, 3 * DAY])

    @initialize(step=steps)
    def first(self, step: timedelta) -> None:
        self.true = NOW
        self.offset, self.booted, self.boots = step, NOW - HOUR, 0
        self.at = begun(self.read())
        self.taken: list[tuple[datetime, datetime]] = []
        self.last = self.at.time
        self.slack = NOTHING
        self.left: datetime | None = None

    def read(self) -> ClockReading:
        return ClockReading(self.true + self.offset, self.true - self.booted, f"boot {self.boots}")

    def now(self) -> datetime:
        return self.at.at(self.read().boot)

    @rule(long=whiles)
    def pass_time(self, long: timedelta) -> None:
        self.true += long

    @rule(step=steps)
    def set_clock(self, step: timedelta) -> None:
        self.offset = step

    @rule()
    def take(self) -> None:
        self.taken.append((self.true, self.now()))

    @rule()
    def look(self) -> None:
        found = judged(self.at, self.read(), (-self.offset, -self.offset))
        assert bool(found.doubts) or abs(self.offset) <= TOLERANCE
        self.at = found.reckoning

    @rule(long=whiles)
    def restart(self, long: timedelta) -> None:
        kept = saved(self.at, self.read())
        self.left = self.true
        self.true += long
        self.at = carried_on(kept, self.read())
        self.opened = self.true

    @rule(long=whiles, up=whiles, step=steps)
    def reboot(self, long: timedelta, up: timedelta, step: timedelta) -> None:
        kept = saved(self.at, self.read())
        self.left = self.true
        self.true += long
        self.opened = self.true
        self.offset, self.booted, self.boots = step, self.true - up, self.boots + 1
        self.at = carried_on(kept, self.read())
        self.slack += 2 * TOLERANCE  # an agreed time may be wrong by so much, at either end

    @invariant()
    def reckoned_time_never_goes_back(self) -> None:
        assert self.now() >= self.last
        self.last = self.now()

    @invariant()
    def nothing_is_older_than_it_is(self) -> None:
        for true, since in self.taken:
            age = self.now() - since - self.at.not_aged(since, self.now())
            assert NOTHING <= age <= self.true - true + self.slack

    @precondition(lambda self: self.left is not None)
    @invariant()
    def no_absence_is_longer_than_it_may_have_been(self) -> None:
        assert self.left is not None
        assert self.at.away is None or self.at.away >= self.opened - self.left

    @precondition(lambda self: bool(self.taken))
    @rule(index=st.integers(min_value=0), age=whiles)
    def since_when_is_the_inverse(self, index: int, age: timedelta) -> None:
        since = self.taken[index % len(self.taken)][1]
        now = self.now()
        old = now - since - self.at.not_aged(since, now) >= age
        assert old is (since <= self.at.since_when(age, now))


Machine.TestCase.settings = settings(max_examples=150, stateful_step_count=25, deadline=None)
test_a_machine_whose_clock_steps_ages_nothing_too_early = Machine.TestCase


Run = tuple[timedelta, timedelta, timedelta, bool, timedelta]
"""How far the wall clock is ahead at an opening, how long the node runs, how far it is ahead after half of
that, whether the machine is booted then, and how long the node is away.
"""
_OFF = st.sampled_from(
    [NOTHING, NOTHING, 30 * SECOND, -30 * SECOND, -10 * DAY, 10 * DAY, -3 * HOUR, HOUR, YEAR]
)
_LONG = st.timedeltas(min_value=SECOND, max_value=4 * DAY)
_RUN = st.tuples(_OFF, st.timedeltas(min_value=SECOND, max_value=2 * DAY), _OFF, st.booleans(), _LONG)


@settings(max_examples=2000, deadline=None)
@given(st.lists(_RUN, min_size=2, max_size=5))
@pytest.mark.slow
def test_the_upper_bound_of_an_absence_is_one_whatever_wall_clocks_do(history: list[Run]) -> None:
    """Members that are right tell the time. The bound is known if the wall clock was right in this run and in
    the one before.
    """
    true, booted, boots = NOW, NOW - HOUR, 0
    at: Reckoning | None = None
    left, known = true, False

    def read(ahead: timedelta) -> ClockReading:
        return ClockReading(true + ahead, true - booted, f"boot {boots}")

    for first, up, then, reboots, away in history:
        absence, opened_before = true - left, at is not None
        at = carried_on(at, read(first)) if at else begun(read(first))
        for ahead in (first, then):
            at = judged(at, read(ahead), (-ahead, -ahead)).reckoning
            assert at.away is None or not opened_before or at.away >= absence
            true += up / 2
        right = any(abs(ahead) <= TOLERANCE for ahead in (first, then))
        if opened_before and right and known:
            assert at.away is not None
            assert at.away <= absence + 4 * TOLERANCE  # each clock that is right may be a minute off
            assert away_longer(at, absence + 4 * TOLERANCE, true - booted) is False
        known = right
        at, left = saved(at, read(then)), true
        true += away
        if reboots:
            booted, boots = true - MINUTE, boots + 1


@given(st.timedeltas(min_value=-YEAR, max_value=YEAR), st.timedeltas(min_value=NOTHING, max_value=DAY))
def test_alone_and_without_a_boot_ages_are_exact_whatever_the_wall_clock_says(
    wall: timedelta, long: timedelta
) -> None:
    at, when = judged(TRUSTED, reading(SECOND, wall)).reckoning, reading(long, wall)
    at = carried_on(saved(judged(at, when).reckoning, when), reading(long + HOUR, -wall))
    now = at.at(2 * HOUR + long)
    assert now - NOW - at.not_aged(NOW, now) == long + HOUR


def test_what_is_written_on_the_page_is_what_the_module_says() -> None:
    assert (TOLERANCE, SETTLES, USUAL, BELIEVED) == (MINUTE, 10 * MINUTE, 2 * DAY, 30 * DAY)
    assert reckoning.__doc__
