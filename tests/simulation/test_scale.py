"""What docs/explanation/scale.md says of large boundaries: its figures follow from its formulas, and 64
members on the virtual clock say as much as the formulas say.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from shadowrelay.core.policy import Policy

from .counted import WARM, Large

PAGE = (Path(__file__).parents[2] / "docs/explanation/scale.md").read_text("utf-8")
ROW = re.compile(
    r"^\| (?P<what>[^|]+) \| `(?P<formula>[^`]+)` \| (?P<all>[\d,.]+) \| (?P<one>[\d,.]+) \|", re.MULTILINE
)
FORMULAS = {
    found["what"].partition(",")[0].partition(":")[0]: found["formula"] for found in ROW.finditer(PAGE)
}
LINKS, COPIES, HEARTBEATS = "sessions of links", "sessions for copies", "heartbeats a second"
POLLS, CHECKS, OPINIONS = "polls a second", "CHECKs a second", "second opinions when a machine is lost"
POLICY = Policy()
TIMERS = {
    "h": POLICY.shadow_heartbeat_frequency.total_seconds(),
    "p": POLICY.discard_poll_interval.total_seconds(),
}
HERE = {"M": 1600.0, "W": 16.0, "E": 1584.0, "k": float(POLICY.holder_choices), "r": 160_000.0, "late": 0.01}
SPAN = 480.0
"""Seconds of silence before promotion: more than the three heartbeats for which members vouch for another."""

_DOES: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


def value(formula: str, **known: float) -> float:
    """What a formula of the page amounts to."""

    def of(node: ast.expr) -> float:
        match node:
            case ast.Constant(value=int() | float() as number):
                return float(number)
            case ast.Name(id=name):
                return known[name]
            case ast.BinOp(left=left, op=does, right=right):
                return _DOES[type(does)](of(left), of(right))
            case ast.Call(func=ast.Name(id="min"), args=parts):
                return min(map(of, parts))
        raise ValueError(ast.dump(node))

    return of(ast.parse(formula, mode="eval").body)


def expected(what: str, choices: int) -> float:
    return value(FORMULAS[what], M=64.0, W=16.0, E=48.0, k=float(choices or 48), **TIMERS)


def about(number: float) -> object:
    return pytest.approx(number, rel=0.1)


def number(text: str) -> float:
    return float(text.replace(",", ""))


def test_the_figures_of_the_page_follow_from_its_formulas_and_the_defaults() -> None:
    rows = list(ROW.finditer(PAGE))
    assert set(FORMULAS) == {LINKS, COPIES, HEARTBEATS, POLLS, CHECKS, OPINIONS}
    for row in rows:
        exact = value(row["formula"], **HERE, **TIMERS)
        assert number(row["all"]) == round(exact), row["what"]
        assert number(row["one"]) == pytest.approx(exact / HERE["M"], rel=0.01), row["what"]


@pytest.mark.slow
def test_64_members_without_mail_talk_as_often_as_the_page_says() -> None:
    boundary = Large(4, 16, choices=POLICY.holder_choices)
    boundary.world.run(60)
    with boundary.counting() as counted:
        boundary.world.run(60 + TIMERS["h"])
    heartbeats = expected(HEARTBEATS, POLICY.holder_choices) * TIMERS["h"]
    assert counted.greetings == about(heartbeats)
    assert counted.polls == about(heartbeats)
    assert boundary.sessions() == about(expected(LINKS, POLICY.holder_choices))


@pytest.mark.slow
@pytest.mark.parametrize("choices", [4, 16])
def test_64_members_that_hold_copies_talk_as_often_as_the_page_says(choices: int) -> None:
    boundary = Large(4, 16, choices=choices, mail=choices)
    with boundary.counting() as since_the_start:
        boundary.world.run(WARM)
        with boundary.counting() as counted:
            boundary.world.run(WARM + 5)
    assert counted.polls / 5 == about(expected(POLLS, choices))
    assert since_the_start.checks == about(value(FORMULAS[CHECKS], r=boundary.sent, late=1.0))
    assert boundary.sessions() == about(expected(LINKS, choices) + expected(COPIES, choices))


@pytest.mark.slow
def test_members_ask_as_many_others_about_a_machine_that_is_lost_as_the_page_says() -> None:
    boundary = Large(4, 16, choices=2, mail=2, span=SPAN)
    boundary.world.run(WARM)
    boundary.lose("rack1")
    with boundary.counting() as counted:
        boundary.world.run(WARM + SPAN + 2 * TIMERS["h"])
    assert counted.opinions == about(expected(OPINIONS, 2))
