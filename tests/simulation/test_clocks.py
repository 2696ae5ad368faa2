"""Wall clocks that step, and machines that boot again: what a boundary does stays the same."""

from __future__ import annotations

from collections import Counter

import pytest

from .clocks import of_every_third
from .seeds import Run


def run(seed: int, *, still: bool = False) -> Run:
    """Gone through; ``still``: each step of a clock is one of no length."""
    found = Run(seed, verbose=True, still=still)
    assert found.go().problems == []
    return found


def done(found: Run) -> list[str]:
    """All that happened, but for what clocks say."""
    return [line for line in found.world.history if "clock" not in line]


@pytest.mark.slow
def test_a_wall_clock_that_steps_changes_nothing_of_what_a_boundary_does() -> None:
    """No promotion, no retry, no packet: as if it had stood still. Of a boot of the machine only the wall
    clock tells how long it took; what goes by age waits for the right time; operators type dates.
    """
    compared = 0
    for seed in filter(of_every_third, range(240)):
        stepped = run(seed)
        if not (stepped.world.faults.get("reboot") or stepped.short or stepped.operator):
            pairs = zip(done(stepped), done(run(seed, still=True)), strict=False)  # one may end before
            assert [(one, other) for one, other in pairs if one != other] == []
            compared += 1
    assert compared > 35


@pytest.mark.slow
def test_every_third_seed_has_clocks_that_step_and_machines_that_boot_again() -> None:
    faults, doubts = Counter[str](), Counter[str]()
    for seed in range(90):
        found = Run(seed, verbose=True)
        found.go()
        assert bool(found.world.faults.get("wall clock")) == of_every_third(seed)
        faults.update(found.world.faults)
        doubts.update(line.partition("doubts its clock: ")[2] for line in found.world.history)
    assert faults["wall clock"] > 45
    assert faults["reboot"] > 2
    assert {"stepped", "differs, stepped", "no more"} <= doubts.keys()
