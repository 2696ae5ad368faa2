"""Copies are damaged of which there is another one, and every way of damage changes what it strikes."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from shadowlab.chaos.spoiling import WAYS, exchange, in_pairs, spoil, victims

HERE, ELSEWHERE = [f"m{number}" for number in range(20)], [f"m{number}" for number in range(10, 30)]
CONTENT = b"Subject: one\r\n\r\n" + bytes(range(1, 200)) * 50 + b"\r\n"


def test_nothing_is_damaged_of_which_there_is_no_other_copy():
    for seed in range(50):
        chosen = victims(HERE, ELSEWHERE, 6, Random(seed))
        assert len(chosen) == len(set(chosen)) == 6
        assert set(chosen) <= set(HERE) & set(ELSEWHERE)


def test_as_many_as_there_are_when_they_are_few():
    assert victims(["a", "b"], ["b", "c"], 6, Random(1)) == ("b",)
    assert victims(["a"], ["c"], 6, Random(1)) == ()


def test_the_same_chance_chooses_the_same_in_whatever_order_they_are_listed():
    chosen = victims(HERE, ELSEWHERE, 3, Random(7))
    assert victims(HERE[::-1], set(ELSEWHERE), 3, Random(7)) == chosen
    assert {victims(HERE, ELSEWHERE, 3, Random(seed)) for seed in range(9)} != {chosen}


def test_every_way_makes_another_content_and_no_two_the_same():
    made = [way(CONTENT, Random(3)) for way in WAYS.values()]
    assert CONTENT not in made
    assert len(set(made)) == len(made)


def test_one_bit_differs():
    for seed in range(20):
        changed = WAYS["flip"](CONTENT, Random(seed))
        assert changed is not None
        assert sum((one ^ other).bit_count() for one, other in zip(CONTENT, changed, strict=True)) == 1


@pytest.mark.parametrize("way", WAYS)
def test_what_is_empty_can_be_damaged_no_further_than_it_can(way: str, tmp_path: Path):
    file = tmp_path / "content"
    file.write_bytes(b"")
    spoil(file, way, Random(1))
    assert file.exists() is (way != "gone")


def test_a_file_is_changed_where_it_lies(tmp_path: Path):
    file = tmp_path / "content"
    file.write_bytes(CONTENT)
    before = file.stat().st_ino
    spoil(file, "cut", Random(1))
    assert CONTENT.startswith(file.read_bytes())
    assert (file.stat().st_ino, file.stat().st_size) == (before, len(CONTENT) // 2)


def test_two_are_exchanged_and_an_odd_one_is_left_alone(tmp_path: Path):
    files = [tmp_path / name for name in "abc"]
    for file in files:
        file.write_text(file.name)
    for one, other in in_pairs(files):
        exchange(one, other)
    assert [file.read_text() for file in files] == ["b", "a", "c"]
