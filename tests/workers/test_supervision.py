"""What a supervisor decides, on a clock of the test's own."""

from __future__ import annotations

from collections.abc import Collection

from shadowrelay.workers import supervision
from shadowrelay.workers.supervision import Do, State, Watched, due, ended, wanted


class Watching:
    """Does what is due, as the supervisor does; processes do what the test says, and answer unless they are
    among ``hung``.
    """

    def __init__(self, count: int, with_data: Collection[int] = ()) -> None:
        self.now = 1000.0
        self.hung: set[int] = set()
        self.workers: dict[int, Watched] = {}
        self.want(count, with_data)

    def want(self, count: int, with_data: Collection[int] = ()) -> None:
        self.workers = wanted(self.workers, count, with_data, self.now)

    def passes(self, seconds: float = 0.0) -> list[tuple[Do, int]]:
        """What was done but for asking whether workers answer."""
        self.now += seconds
        found = due(self.workers, self.now)
        for do, number in found:
            one = self.workers[number]
            self.workers[number] = {
                Do.START: supervision.started,
                Do.LEAVE: supervision.leaving,
                Do.END: lambda one, _: supervision.told_to_end(one),
                Do.ASK: self.asked,
                Do.KILL: lambda one, _: supervision.killed(one),
            }[do](one, self.now)
        return [(do, number) for do, number in found if do is not Do.ASK]

    def asked(self, one: Watched, now: float) -> Watched:
        asked = supervision.asked(one, now)
        return asked if one.number in self.hung else supervision.answered(asked)

    def serves(self, *numbers: int) -> None:
        for number in numbers:
            self.workers[number] = supervision.serves(self.workers[number], self.now)

    def emptied(self, number: int) -> None:
        self.workers[number] = supervision.emptied(self.workers[number])

    def ends(self, number: int, why: str = "killed by SIGKILL") -> None:
        self.workers[number] = ended(self.workers[number], why, self.now)

    def states(self) -> dict[int, State]:
        return {number: one.state for number, one in self.workers.items()}


def serving(count: int) -> Watching:
    node = Watching(count)
    node.passes()
    node.serves(*range(1, count + 1))
    return node


def test_all_wanted_workers_start_at_once_and_nothing_is_done_twice():
    node = Watching(3)
    assert node.passes() == [(Do.START, 1), (Do.START, 2), (Do.START, 3)]
    assert node.passes(1000.0) == []
    assert set(node.states().values()) == {State.STARTING}


def test_a_worker_that_dies_starts_again_after_a_second_and_the_others_go_on():
    node = serving(2)
    node.now += 5.0
    node.ends(2)
    assert node.passes() == []
    assert supervision.next_at(node.workers) == node.now + 1.0
    assert node.passes(1.0) == [(Do.START, 2)]
    assert (node.workers[2].restarts, node.workers[2].why) == (1, "killed by SIGKILL")
    assert node.workers[1].restarts == 0


def test_a_worker_that_fails_again_and_again_is_started_ever_more_rarely_at_least_once_a_minute():
    node, pauses = serving(1), []
    for _ in range(9):
        node.ends(1, "exit status 1: it could not go on")
        at = supervision.next_at(node.workers)
        assert at is not None
        pauses.append(at - node.now)
        assert node.passes(pauses[-1] - 0.01) == []
        assert node.passes(0.01) == [(Do.START, 1)]
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60, 60]


def test_a_worker_that_served_for_a_minute_is_well_again():
    node = serving(1)
    for _ in range(5):
        node.ends(1)
        node.passes(60.0)
    node.serves(1)
    node.now += 60.0
    node.ends(1)
    assert supervision.next_at(node.workers) == node.now + 1.0
    assert node.workers[1].restarts == 6


def test_a_worker_that_never_serves_is_not_well_however_long_it_takes():
    node = Watching(1)
    for _ in range(3):
        node.passes(60.0)
        node.now += 600.0
        node.ends(1)
    assert node.workers[1].failures == 3


def test_more_workers_start_at_once_and_those_that_go_are_emptied_before_they_end():
    node = serving(1)
    node.want(3)
    assert node.passes() == [(Do.START, 2), (Do.START, 3)]
    node.serves(2, 3)
    node.want(1, with_data=(2, 3))
    assert node.passes() == [(Do.LEAVE, 2), (Do.LEAVE, 3)]
    assert node.passes(3600.0) == []
    node.emptied(3)
    assert node.passes() == [(Do.END, 3)]
    node.ends(3, "exit status 0: unasked")
    assert node.states() == {1: State.SERVING, 2: State.LEAVING, 3: State.ENDED}
    assert node.passes(3600.0) == []
    assert node.workers[3].restarts == 0


def test_a_worker_that_dies_while_it_leaves_starts_again_to_be_emptied():
    node = serving(2)
    node.want(1, with_data=(2,))
    node.passes()
    node.ends(2)
    assert node.passes(1.0) == [(Do.START, 2)]
    node.serves(2)
    assert node.passes() == [(Do.LEAVE, 2)]


def test_a_worker_that_starts_is_told_to_leave_once_it_serves():
    node = Watching(2)
    node.passes()
    node.want(1, with_data=(2,))
    assert node.passes() == []
    node.serves(1, 2)
    assert node.passes() == [(Do.LEAVE, 2)]


def test_a_worker_that_is_wanted_again_while_it_leaves_ends_and_starts_anew():
    node = serving(2)
    node.want(1, with_data=(2,))
    node.passes()
    node.want(2, with_data=(2,))
    assert node.passes() == [(Do.END, 2)]
    node.ends(2, "exit status 0: unasked")
    assert node.passes() == [(Do.START, 2)]
    node.serves(2)
    assert node.passes() == []
    assert node.workers[2].restarts == 0


def test_a_worker_that_left_and_is_wanted_again_starts():
    node = serving(2)
    node.want(1, with_data=(2,))
    node.passes()
    node.emptied(2)
    node.passes()
    node.ends(2)
    node.want(2)
    assert node.passes() == [(Do.START, 2)]


def test_workers_of_a_former_number_that_may_have_mail_start_and_leave():
    node = Watching(1, with_data=(3,))
    assert node.passes() == [(Do.START, 1), (Do.START, 3)]
    node.serves(1, 3)
    assert node.passes() == [(Do.LEAVE, 3)]


def test_a_worker_that_never_ran_is_forgotten_when_it_is_not_wanted_any_more():
    node = serving(1)
    node.want(2)
    node.want(1)
    assert node.passes(3600.0) == []
    assert list(node.workers) == [1]


def killed_after(node: Watching, number: int) -> float:
    """Seconds until a worker is killed because it hangs."""
    since = node.now
    while (Do.KILL, number) not in node.passes(1.0):
        assert node.now - since < 3600.0, "it is never killed"
    return node.now - since


def test_a_worker_that_does_not_answer_for_a_minute_is_killed_once_and_starts_again():
    node = serving(2)
    node.passes(600.0)
    node.hung = {2}
    assert 60.0 <= killed_after(node, 2) <= 66.0
    assert node.passes(600.0) == []
    node.ends(2)
    assert node.workers[2].why == "it hung: no answer for 60 s; killed by SIGKILL"
    assert node.passes(1.0) == [(Do.START, 2)]
    node.hung.clear()
    node.serves(2)
    assert [node.passes(5.0) for _ in range(30)] == [[]] * 30


def test_a_worker_that_answers_in_the_last_moment_has_a_whole_minute_again():
    node = serving(1)
    node.hung = {1}
    for _ in range(11):
        assert node.passes(5.0) == []
    node.workers[1] = supervision.answered(node.workers[1])
    assert killed_after(node, 1) >= 60.0


def test_a_worker_is_not_killed_because_its_supervisor_was_frozen():
    node = serving(1)
    node.hung = {1}
    node.passes(5.0)
    assert node.passes(3600.0) == []
    assert killed_after(node, 1) >= 45.0


def test_a_worker_that_starts_may_be_silent_for_long():
    node = Watching(1)
    node.hung = {1}
    node.passes()
    assert node.passes(3600.0) == []


def test_a_worker_that_leaves_or_was_told_to_end_and_hangs_is_killed():
    node = serving(2)
    node.want(1, with_data=(2,))
    node.passes()
    node.hung = {2}
    assert killed_after(node, 2) <= 66.0
    node.ends(2)
    node.passes(1.0)
    node.serves(2)
    node.hung.clear()
    node.passes()
    node.emptied(2)
    assert node.passes() == [(Do.END, 2)]
    node.hung = {2}
    assert killed_after(node, 2) <= 66.0
    node.ends(2)
    assert node.states()[2] is State.ENDED
