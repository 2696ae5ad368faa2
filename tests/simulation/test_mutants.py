"""Every planted bug is noticed: a simulation that stays green under them would prove nothing.

If what is on record shows nothing any more: ``scripts/prove mutants --kind simulation --seeds 3000``.
"""

from __future__ import annotations

import pytest

from .mutants import MUTANTS, Mutant, hunt
from .seeds import run_seed


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_the_planted_bug_is_caught(mutant: Mutant) -> None:
    assert bool(mutant.scenario) != (mutant.seed is not None)
    caught = hunt(mutant)
    print(f"{mutant.name}: {caught or 'NOT CAUGHT'}")
    assert caught


def test_the_seeds_that_catch_bugs_are_good_without_them() -> None:
    for seed in sorted({mutant.seed for mutant in MUTANTS if mutant.seed is not None}):
        assert run_seed(seed)[0].problems == []


def test_there_are_at_least_twenty_planted_bugs() -> None:
    assert len(MUTANTS) >= 20
