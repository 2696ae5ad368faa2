"""Seeds with distribution lists: each member gets the message, and none gets it twice without a cause."""

from __future__ import annotations

import pytest

from .seeds import Run, run_seed


@pytest.mark.parametrize("first", range(0, 60, 20))
def test_no_seed_loses_or_duplicates_what_goes_to_a_list(first: int) -> None:
    wrong = {}
    for seed in range(first, first + 20):
        verdict, _ = run_seed(seed, lists=True)
        if verdict.problems:
            wrong[seed] = verdict.problems[:3]
    assert wrong == {}


def test_lists_are_expanded_and_members_get_the_message() -> None:
    run = Run(2, lists=True)
    assert run.go().problems == []
    made = run.world.expanded
    assert made
    delivered = {key for key in run.world.deliveries if key[0] in made}
    assert delivered == {(one, number) for one, about in made.items() for number, _ in about.members}
