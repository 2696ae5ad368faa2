"""Short forms of ``scripts/prove explore --hops``: all but its largest exploration, to the end."""

from __future__ import annotations

import pytest

from .hops.search import PLANS, Plan, explore

LARGE = {"client's reply", "session", "kill A"}
SMALL = [*(plan for plan in PLANS if plan.fault not in LARGE), Plan("kill A", late=True)]
ALLOWED = {
    "sink's reply": {"sink's reply lost"},
    "disk A": {"A's disk lost before the client had its reply"},
    "disk B": {"B's disk lost"},
    "put back B": {"B put back"},
}


@pytest.mark.parametrize("plan", SMALL, ids=lambda plan: plan.title)
def test_every_order_of_steps_between_hops_keeps_the_promise(plan: Plan) -> None:
    found = explore(plan)
    assert found.complete, "\n".join([found.problem, *found.trace])
    assert found.resting > 0
    assert bool(found.excused) == (plan.fault in {"disk A", "put back A"})
    if not plan.other and plan.fault not in {"kill B"}:
        assert found.duplicates.keys() == ALLOWED.get(plan.fault, set())


@pytest.mark.parametrize("fault", sorted(LARGE))
def test_no_first_steps_into_a_fault_break_the_promise_between_hops(fault: str) -> None:
    found = explore(Plan(fault), most=4_000)
    assert not found.problem, "\n".join([found.problem, *found.trace])


def test_a_hop_out_of_reach_is_passed_by_only_if_there_is_another_host() -> None:
    alone, passed_by = explore(Plan("cut off")), explore(Plan("cut off", other=True))
    assert not alone.duplicates
    assert "given up, and back with the same database" in passed_by.duplicates


def test_a_row_that_nothing_takes_away_is_told_as_stuck() -> None:
    """The search itself can fail: a loss that nothing excuses is told, with the way to it."""
    found = explore(Plan("put back A"))
    assert found.aging > 0
    assert found.waiting > 0
