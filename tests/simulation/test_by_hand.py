"""Seeds in which operators remove, bounce, suspend and resume messages: nothing is delivered against a
confirmed order, and nothing else is lost.
"""

from __future__ import annotations

import pytest

from shadowrelay.core.jobs import Verb

from .seeds import Run, run_seed


def problems(seeds: range) -> dict[int, list[str]]:
    verdicts = {seed: run_seed(seed, by_hand=True)[0] for seed in seeds}
    return {seed: verdict.problems[:3] for seed, verdict in verdicts.items() if verdict.problems}


@pytest.mark.parametrize("first", range(0, 100, 50))
@pytest.mark.slow
def test_no_seed_delivers_against_a_confirmed_order_or_loses_other_mail(first: int) -> None:
    assert problems(range(first, first + 50)) == {}


def test_no_attempt_that_is_under_way_on_another_member_delivers_against_a_confirmed_order() -> None:
    """In these seeds two members own a message, and one is sending it when it hears what was ordered."""
    assert {seed: run_seed(seed, by_hand=True)[0].problems for seed in (185, 369)} == {185: [], 369: []}


@pytest.mark.slow
@pytest.mark.parametrize("first", range(100, 1100, 250))
def test_no_seed_of_very_many_delivers_against_a_confirmed_order(first: int) -> None:
    assert problems(range(first, first + 250)) == {}


def test_most_orders_are_confirmed_and_some_wait_for_a_member_that_is_away() -> None:
    orders = []
    for seed in (114, 116, 119):
        run = Run(seed, by_hand=True)
        assert run.go().problems == []
        orders += run.world.orders
    waited = [one.confirmed - one.given for one in orders if one.confirmed is not None]
    assert {one.verb for one in orders if one.confirmed} == {Verb.REMOVE, Verb.BOUNCE, Verb.SUSPEND}
    assert max(waited) > 2.0
