"""Records that every member has, given and changed under faults, on the product's own loops.

Continuous integration goes through more of these seeds (``scripts/simulate --records``).
"""

from __future__ import annotations

import asyncio
import os
import re

import pytest

from tests.proof.planted import RECORDS, SIMULATION

from .cli import Totals, run_many
from .hashed import said_under
from .records import run_records
from .virtual_loop import Stuck, VirtualLoop

SEEDS = int(os.environ.get("SHADOWRELAY_SEEDS", "3"))
SHOWING = {int(found[1]) for fault in SIMULATION if (found := re.search(rf"{RECORDS}\[(\d+)\]", fault.test))}
JOBS = 1 if "PYTEST_XDIST_WORKER" in os.environ else min(2, os.cpu_count() or 1)


def test_members_agree_once_all_is_healed_and_no_act_is_undone() -> None:
    totals = Totals()
    for verdict in run_many(range(SEEDS), JOBS, records=True):
        totals.add(verdict)
    assert not totals.failures, totals.failures
    assert totals.counts["acknowledged"] > totals.counts["seeds"]
    assert sum(totals.faults.values()) > totals.counts["seeds"]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("seed", sorted(SHOWING))
def test_a_seed_of_records_that_shows_a_planted_fault_is_good_without_it(seed: int) -> None:
    assert run_records(seed)[0].problems == []


SAID = """
from tests.simulation.records import run_records
print(*run_records(3)[1], sep="\\n")
"""


@pytest.mark.slow
def test_a_seed_gives_the_same_history_whatever_python_hashes_with() -> None:
    first, second = said_under(range(1, 3), SAID)
    assert first == second
    assert "all is healed" in first


def test_virtual_time_passes_only_for_timers_and_in_their_order() -> None:
    loop, seen = VirtualLoop(), []

    async def after(seconds: float) -> None:
        await asyncio.sleep(seconds)
        seen.append(loop.time())

    async def all_of_them() -> None:
        await asyncio.gather(*(after(seconds) for seconds in (3600.0, 0.5, 60.0)))

    loop.run_until_complete(all_of_them())
    assert seen == [0.5, 60.0, 3600.0]
    with pytest.raises(Stuck):
        loop.run_until_complete(asyncio.Event().wait())
    loop.close()
