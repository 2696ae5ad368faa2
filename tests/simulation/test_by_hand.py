"""Seeds in which operators remove, bounce, suspend and resume messages: nothing is delivered against a
confirmed order, and nothing else is lost.
"""

from __future__ import annotations

import pytest

from .seeds import run_seed


@pytest.mark.parametrize("first", range(0, 120, 40))
def test_no_seed_delivers_against_a_confirmed_order_or_loses_other_mail(first: int) -> None:
    wrong = {}
    for seed in range(first, first + 40):
        verdict, _ = run_seed(seed, by_hand=True)
        if verdict.problems:
            wrong[seed] = verdict.problems[:3]
    assert wrong == {}
