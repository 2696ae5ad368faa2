"""Every planted bug is noticed: a simulation that stays green under them would prove nothing.

If what is on record shows nothing any more: ``scripts/prove mutants --kind simulation --seeds 3000``.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from .mutants import MUTANTS, Breaks, Mutant, hunt
from .scenario import told, verdicts
from .seeds import run_seed


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_the_planted_bug_is_caught(mutant: Mutant) -> None:
    assert bool(mutant.scenario) != (mutant.seed is not None)
    caught = hunt(mutant)
    print(f"{mutant.name}: {caught or 'NOT CAUGHT'}")
    assert caught
    assert (Breaks.HISTORY in caught) is (mutant.breaks is Breaks.HISTORY)


def test_another_history_alone_does_not_break_the_promise() -> None:
    (late,) = (mutant for mutant in MUTANTS if mutant.scenario == "late_greeting")
    assert hunt(late)
    assert hunt(replace(late, breaks=Breaks.PROMISE)) == ""


def test_a_verdict_is_told_apart_from_what_happened() -> None:
    text = (
        "wait 3\n----\nRECEIVE mx1 m1 | 250 m1 |\nPROBLEM m1 | quiet: lost 1\n\ndrain\n----\nquiet: lost 0\n"
    )
    assert told(text) == ["RECEIVE mx1 m1", "250 m1", "PROBLEM m1", "quiet: lost 1", "quiet: lost 0"]
    assert verdicts(text) == ["PROBLEM m1", "quiet: lost 1", "quiet: lost 0"]


def test_the_seeds_that_catch_bugs_are_good_without_them() -> None:
    for seed in sorted({mutant.seed for mutant in MUTANTS if mutant.seed is not None}):
        assert run_seed(seed)[0].problems == []


def test_there_are_at_least_twenty_planted_bugs() -> None:
    assert len(MUTANTS) >= 20
