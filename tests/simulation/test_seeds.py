"""Seeds: nothing lost, nothing unexpected, every duplicate with a cause the promise allows.

These are the first of the ten thousand that continuous integration goes through (``scripts/simulate``).
"""

from __future__ import annotations

import os
import re

import pytest

from tests.proof.planted import SEED, SIMULATION

from .cli import Totals, run_many
from .hashed import said_under
from .seeds import run_seed

SHOWING = {int(found[1]) for fault in SIMULATION if (found := re.search(rf"{SEED}\[(\d+)\]", fault.test))}
SEEDS = int(os.environ.get("SHADOWRELAY_SEEDS", "20"))
CHUNK = 250
JOBS = 1 if "PYTEST_XDIST_WORKER" in os.environ else min(2, os.cpu_count() or 1)


@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_no_seed_loses_or_duplicates_mail_without_a_cause(first: int) -> None:
    totals = Totals()
    for verdict in run_many(range(first, min(first + CHUNK, SEEDS)), JOBS):
        totals.add(verdict)
    assert not totals.failures, totals.failures
    assert totals.counts["lost"] == totals.counts["unexpected"] == 0
    assert totals.counts["acknowledged"] > totals.counts["seeds"]


@pytest.mark.parametrize("seed", [0, 7])
def test_the_same_seed_gives_the_same_history(seed: int) -> None:
    assert run_seed(seed, verbose=True)[1] == run_seed(seed, verbose=True)[1]


SAID = """
from hashlib import sha256
from tests.simulation.seeds import run_seed
for seed, *kinds in ((3,), (100, "hosts"), (104, "hosts"), (7, "lists"), (7, "by_hand")):
    history = run_seed(seed, verbose=True, **dict.fromkeys(kinds, True))[1]
    print(seed, *kinds, len(history), sha256("\\n".join(history).encode()).hexdigest())
"""


@pytest.mark.slow
def test_a_seed_gives_the_same_history_whatever_python_hashes_with() -> None:
    """A history that follows the order of a set cannot be played again."""
    said = said_under(range(1, 4), SAID)
    assert said[0].count("\n") == 5
    assert said[0] == said[1] == said[2]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("seed", sorted(SHOWING))
def test_a_seed_that_shows_a_planted_fault_is_good_without_it(seed: int) -> None:
    assert run_seed(seed)[0].problems == []
