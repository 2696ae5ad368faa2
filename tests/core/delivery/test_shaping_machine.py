"""A lane and its workers, in any order of what happens: the pure rules, and the counts that workers share."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from shadowrelay.core.delivery.shaping import (
    LaneLimits,
    Pattern,
    after_message,
    after_refusal,
    at_first,
)
from shadowrelay.shared_counts import SIZE, SharedCounts

WORKERS = (0, 1)
_worker = st.sampled_from(WORKERS)


class Lane(RuleBasedStateMachine):
    """Two workers, each with a pace of its own, open and end sessions in one lane, and hear answers."""

    @initialize(most=st.integers(1, 6), first=st.integers(1, 6), growth=st.integers(1, 3))
    def begin(self, most: int, first: int, growth: int) -> None:
        self.shape = LaneLimits(
            name="a", match=("*",), connections=most, first_connections=first, growth=growth
        )
        self.paces = [at_first(self.shape) for _ in WORKERS]
        memory = memoryview(bytearray(SIZE))
        self.counts = [SharedCounts(memory, number + 1) for number in WORKERS]
        self.open = [0, 0]
        self.now = datetime(2026, 11, 30, tzinfo=UTC)
        self.asked = [self.now for _ in WORKERS]  # until when a pause was asked for

    @rule(worker=_worker)
    def opens(self, worker: int) -> None:
        """A session is opened while the lane does not pause, if all workers together have room."""
        pace = self.paces[worker]
        if pace.paused(self.now):
            return
        allowed = sum(self.open) < pace.connections
        assert self.counts[worker].take("lane", pace.connections) is allowed
        self.open[worker] += allowed

    @precondition(lambda self: any(self.open))
    @rule(worker=_worker)
    def ends(self, worker: int) -> None:
        if self.open[worker]:
            self.counts[worker].give("lane")
            self.open[worker] -= 1

    @rule(worker=_worker)
    def took(self, worker: int) -> None:
        """A message is taken: never fewer connections, one more at most, and none during a pause."""
        before = self.paces[worker]
        after = after_message(before, self.shape, self.now)
        assert 0 <= after.connections - before.connections <= (not before.paused(self.now))
        assert after.paused_until == before.paused_until
        self.paces[worker] = after

    @rule(worker=_worker, pause=st.integers(1, 90))
    def refused(self, worker: int, pause: int) -> None:
        """It is asked for less: never more connections, half of those in use at most, once in a pause."""
        before = self.paces[worker]
        pattern = Pattern(
            name="p", match=("*",), code=421, enhanced="", text=(), pause=timedelta(seconds=pause)
        )
        after = after_refusal(before, pattern, "421 less", sum(self.open), self.now)
        if before.paused(self.now):
            assert after.connections == before.connections
        else:
            assert after.connections == max(1, min(before.connections, sum(self.open)) // 2)
        # What is heard in a pause was said to what was sent before it: a longer pause counts, no other.
        if not before.paused(self.now) or pattern.pause > before.pause:
            assert self.now + pattern.pause > self.asked[worker] or before.paused_until is None
            self.asked[worker] = self.now + pattern.pause
        self.paces[worker] = after

    @rule(seconds=st.integers(1, 60))
    def passes(self, seconds: int) -> None:
        self.now += timedelta(seconds=seconds)

    @rule(worker=_worker)
    def waits(self, worker: int) -> None:
        """A pause lasts as long as was asked for, and ends."""
        self.now = max(self.now, self.asked[worker])
        assert not self.paces[worker].paused(self.now)

    @invariant()
    def there_are_never_more_sessions_than_the_limit(self) -> None:
        if hasattr(self, "shape"):
            assert sum(self.open) <= self.shape.connections
            assert all(1 <= pace.connections <= self.shape.connections for pace in self.paces)
            assert self.counts[0].of("lane") == sum(self.open)

    @invariant()
    def a_pause_lasts_as_long_as_it_was_asked_for(self) -> None:
        if hasattr(self, "shape"):
            for pace, asked in zip(self.paces, self.asked, strict=True):
                assert pace.paused(self.now) is (self.now < asked)


def test_in_any_order_a_lane_keeps_its_limits_and_a_pause_its_time() -> None:
    run_state_machine_as_test(Lane, settings=settings(max_examples=60, stateful_step_count=30, deadline=None))
