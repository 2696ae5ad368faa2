"""What a supervisor decides, on a clock of the test's own."""

from __future__ import annotations

from collections.abc import Collection

from shadowrelay.service import supervision
from shadowrelay.service.supervision import Do, State, Watched, due, ended, wanted


class Watching:
    """Does what is due, as the supervisor does; processes do what the test says."""

    def __init__(self, count: int, with_data: Collection[int] = ()) -> None:
        self.now = 1000.0
        self.workers: dict[int, Watched] = {}
        self.want(count, with_data)

    def want(self, count: int, with_data: Collection[int] = ()) -> None:
        self.workers = wanted(self.workers, count, with_data, self.now)

    def passes(self, seconds: float = 0.0) -> list[tuple[Do, int]]:
        self.now += seconds
        found = due(self.workers, self.now)
        for do, number in found:
            one = self.workers[number]
            self.workers[number] = {
                Do.START: supervision.started,
                Do.LEAVE: supervision.leaving,
                Do.END: lambda one, _: supervision.told_to_end(one),
            }[do](one, self.now)
        return found

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
