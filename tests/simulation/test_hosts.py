"""Seeds of nodes with several workers, of which a host takes all when it fails: killed, away, frozen, cut off
from the other hosts, or with all disks lost.

A host that is cut off is isolated, though its workers see each other: none of them promotes by time where
there is a third host (``Invariants._alone``). Before the next fault every message is on two hosts.

Continuous integration goes through more of them (``scripts/simulate --hosts``).
"""

from __future__ import annotations

import os
import re

import pytest

from shadowrelay.core.workers import node_of
from tests.proof.planted import HOSTS, SIMULATION

from .hosts import KINDS, planned
from .seeds import Run, run_seed

SHOWING = {int(found[1]) for fault in SIMULATION if (found := re.search(rf"{HOSTS}\[(\d+)\]", fault.test))}


def problems(seeds: range) -> dict[int, list[str]]:
    verdicts = {seed: run_seed(seed, hosts=True)[0] for seed in seeds}
    return {seed: verdict.problems[:3] for seed, verdict in verdicts.items() if verdict.problems}


@pytest.mark.slow
def test_no_host_that_fails_takes_mail_with_it() -> None:
    assert problems(range(int(os.environ.get("SHADOWRELAY_SEEDS", "3")))) == {}


def test_every_way_in_which_a_host_fails_is_among_the_first_seeds() -> None:
    assert {kind for seed in range(9) for kind in planned(seed).kinds} >= set(KINDS)


@pytest.mark.parametrize("seed", sorted(SHOWING))
def test_a_seed_with_workers_that_shows_a_planted_fault_is_good_without_it(seed: int) -> None:
    assert run_seed(seed, hosts=True)[0].problems == []


def test_no_worker_holds_a_copy_of_what_its_node_accepted() -> None:
    run = Run(2, hosts=True)
    run.checks.keep_log = True
    assert run.go().problems == []
    received = [(name, event.primary) for _, name, event in run.checks.log if event.event_id == "HARECEIVE"]
    assert received
    assert all(node_of(name) != node_of(primary) for name, primary in received)
