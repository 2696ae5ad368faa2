"""How long work in the background rests, so that it is spread over its time."""

from __future__ import annotations

from datetime import timedelta

import pytest

from shadowrelay.core.members.pace import PER_MESSAGE, Amount, pause, share

HOUR = timedelta(hours=1)
ALL = Amount(10, 10 * PER_MESSAGE)


@pytest.mark.parametrize(
    ("done", "elapsed", "rest"),
    [
        (Amount(), timedelta(0), timedelta(0)),
        (Amount(5, 5 * PER_MESSAGE), timedelta(0), HOUR / 2),
        (Amount(5, 5 * PER_MESSAGE), HOUR / 4, HOUR / 4),
        (Amount(5, 5 * PER_MESSAGE), HOUR, timedelta(0)),
        (ALL, timedelta(0), HOUR),
        (ALL + ALL, timedelta(0), HOUR),
        (Amount(0, PER_MESSAGE), timedelta(0), HOUR / 20),
    ],
)
def test_work_is_spread_over_its_time(done: Amount, elapsed: timedelta, rest: timedelta) -> None:
    assert pause(done, ALL, elapsed, HOUR) == rest


def test_small_messages_count_for_more_than_their_octets() -> None:
    assert share(Amount(1, 0), Amount(2, 0)) == 0.5


def test_of_nothing_all_is_done() -> None:
    assert share(Amount(), Amount()) == 1.0
