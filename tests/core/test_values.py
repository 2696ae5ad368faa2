"""Values: what the type checker forbids, and what the interpreter does."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from dataclasses import field
from pathlib import Path

import pytest

from shadowrelay.core.values import dataclass, replace

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Named:
    name: str
    tags: tuple[str, ...] = ()
    notes: list[str] = field(default_factory=list, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Numbered(Named):
    number: int

    def __post_init__(self) -> None:
        if self.number < 0:
            raise ValueError("below zero")


@dataclasses.dataclass(frozen=True)
class Library:
    name: str


def test_a_copy_has_what_was_changed_and_shares_the_rest() -> None:
    one = Numbered("a", ("x",), ["note"], number=1)
    other = replace(one, number=2)
    assert (one.number, other) == (1, dataclasses.replace(one, number=2))
    assert other.notes is one.notes
    assert replace(one) == one
    assert replace(one) is not one


def test_a_field_may_have_any_name() -> None:
    @dataclass(frozen=True, slots=True)
    class Awkward:
        old: int
        new: int
        kind: str = ""
        copy: int = 0

    assert replace(Awkward(1, 2), kind="a", new=3, old=4, copy=5) == Awkward(4, 3, "a", 5)
    assert replace(Awkward(1, 2), kind="b") == Awkward(1, 2, "b")


def test_values_that_are_equal_have_one_hash() -> None:
    assert len({Named("a", ("x",)), Named("a", ("x",), ["compared by nobody"]), Named("b")}) == 2


def test_a_copy_is_checked_as_what_it_was_made_from() -> None:
    with pytest.raises(ValueError, match="below zero"):
        replace(Numbered("a", number=1), number=-1)


def test_a_name_that_is_no_field_is_refused() -> None:
    with pytest.raises(AttributeError):
        replace(Named("a"), **{"nmae": "b"})


def test_a_class_that_the_library_made_frozen_is_none_of_ours() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        replace(Library("a"), name="b")


def test_the_type_checker_lets_nobody_assign_to_a_field(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.py"
    wrong.write_text(
        "from shadowrelay.core.messages import Envelope\n"
        "from shadowrelay.core.values import replace\n"
        "def wrong(one: Envelope) -> None:\n"
        "    one.size = 1\n"
        "    replace(one, sise=1)\n"
        "    replace(one, size='1')\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--cache-dir", str(tmp_path / "cache"), str(wrong)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    lines = [line.partition("wrong.py:")[2][:2] for line in done.stdout.splitlines() if "error" in line]
    assert lines[:3] == ["4:", "5:", "6:"], done.stdout
