"""How fast requests are carried out."""

from __future__ import annotations

from datetime import timedelta

from shadowrelay.core.identifiers import RequestId
from shadowrelay.core.policy import Policy
from shadowrelay.safety_net.resubmitting import Pace

POLICY = Policy(reconcile_timeout=timedelta(seconds=30), resubmit_rate=10)
R, S, T = (RequestId(f"01900000-0000-7000-9000-00000000000{n}") for n in range(3))


def test_no_more_is_made_than_the_rate_allows_and_nothing_is_saved_up() -> None:
    pace = Pace(POLICY, 0.0)
    assert pace.most(0.5) == 5
    pace.made(5)
    assert pace.most(0.5) == 0
    assert pace.most(100.0) == 10
    pace.made(10)
    assert pace.most(100.5) == 5


def test_each_turn_begins_with_another_request() -> None:
    pace = Pace(POLICY, 0.0)
    assert [pace.in_turn((R, S, T))[0] for _ in range(4)] == [S, T, R, S]
    assert pace.in_turn(()) == ()
