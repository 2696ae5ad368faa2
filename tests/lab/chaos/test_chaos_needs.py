"""Chaos makes the faults that the machine allows, and says which it does not, and why."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from shadowlab.chaos import equipment, running
from shadowlab.chaos.catalogue import CATALOGUE
from shadowlab.chaos.equipment import Need
from shadowlab.chaos.plan import Plan
from shadowlab.cli.breaking import chaos
from shadowlab.errors import LabError

NEEDING = {need: {name for name, kind in CATALOGUE.items() if kind.needs is need} for need in Need}


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> list[Plan]:
    """What would be done."""
    plans: list[Plan] = []

    def note(plan: Plan, directory: Path | None, *, keep: bool) -> None:
        del directory, keep
        plans.append(plan)
        raise LabError("noted")

    monkeypatch.setattr(running, "unleash", note)
    return plans


def called(monkeypatch: pytest.MonkeyPatch, lacking: dict[Need, str], *arguments: str) -> Result:
    monkeypatch.setattr(equipment, "lacking", lambda need: lacking.get(need, ""))
    return CliRunner().invoke(chaos, arguments)


def test_all_is_everything_where_nothing_is_lacking(monkeypatch: pytest.MonkeyPatch, planned: list[Plan]):
    told = called(monkeypatch, {})
    assert set(planned[0].faults) == set(CATALOGUE)
    assert "left out" not in told.output


@pytest.mark.parametrize("need", Need)
def test_all_leaves_out_what_the_machine_does_not_allow_and_says_why(
    monkeypatch: pytest.MonkeyPatch, planned: list[Plan], need: Need
):
    told = called(monkeypatch, {need: "it is a bank holiday"})
    assert set(planned[0].faults) == set(CATALOGUE) - NEEDING[need]
    assert "it is a bank holiday" in told.output
    assert all(name in told.output for name in NEEDING[need])


@pytest.mark.parametrize("name", ["power-cut", "clock"])
def test_what_was_asked_for_by_name_is_not_left_out_silently(
    monkeypatch: pytest.MonkeyPatch, planned: list[Plan], name: str
):
    told = called(monkeypatch, dict.fromkeys(Need, "it is a bank holiday"), "--faults", f"kill,{name}")
    assert told.exit_code == 2
    assert "it is a bank holiday" in told.output
    assert planned == []
