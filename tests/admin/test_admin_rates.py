"""How often a next hop was tried in the last minute, from counts that only grow."""

from __future__ import annotations

from shadowrelay.admin.rates import Rates


def test_attempts_of_the_last_minute_are_told_of_each_next_hop_that_has_a_count() -> None:
    counts: dict[str, int] = {"inside": 5}
    rates = Rates(dict, lambda: dict(counts))
    assert rates.tried("inside") is None
    rates.sample()
    assert rates.tried("inside") == 0
    for second in range(1, 101):
        counts["inside"] += 2
        if second == 70:
            counts["new"] = 4
        rates.sample()
    assert (rates.tried("inside"), rates.tried("new"), rates.tried("other hop")) == (120, 4, None)
