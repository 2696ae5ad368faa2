"""The bench's arithmetic: what is divided by what, what is judged, what smtp-sink is understood to say."""

from __future__ import annotations

import pytest

from .figures import Row, Spread, Target, number, percentile
from .proc import highest
from .report import cells
from .smtp_tools import counted


def row(
    ours: tuple[float, ...] | None = None,
    postfix: tuple[float, ...] | None = None,
    without: tuple[float, ...] | None = None,
    target: Target | None = None,
) -> Row:
    spreads = [None if values is None else Spread(values) for values in (ours, postfix, without)]
    return Row("section", "measure", "messages/s", *spreads, target=target)


def test_a_ratio_is_of_rounds_that_ran_side_by_side_and_not_of_medians():
    # In the second round the machine was busy, for both.
    ratio = row(ours=(100, 10, 120), postfix=(50, 10, 40)).ratio
    assert ratio == Spread((2.0, 1.0, 3.0))
    assert ratio.median == 2.0


def test_a_ratio_is_over_the_relay_without_shadowing_where_that_was_measured():
    assert row(ours=(6,), postfix=(2,), without=(3,)).ratio == Spread((2.0,))


def test_what_has_nothing_beside_it_has_no_ratio():
    assert row(ours=(6,)).ratio is None
    assert row(postfix=(6,)).ratio is None


def test_what_is_beside_nothing_has_no_ratio_and_is_told_all_the_same():
    beside = row(ours=(16.9, 17.1), postfix=(0.8, 0.0))
    assert beside.ratio is None
    assert cells(beside)[2:6] == ("17.0 (16.9–17.1)", "0.40 (0.00–0.80)", "–", "–")
    assert "ratio" not in beside.tree()


def test_a_target_of_a_ratio_is_judged_by_its_median_in_either_direction():
    assert row((90, 110, 300), (100, 100, 100), target=Target(">=", 1.0)).verdict == "pass"
    assert row((90, 99, 300), (100, 100, 100), target=Target(">=", 1.0)).verdict == "MISS"
    assert row((5,), without=(2,), target=Target("<=", 2.5)).verdict == "pass"
    assert row((5.1,), without=(2,), target=Target("<=", 2.5)).verdict == "MISS"


def test_a_target_of_our_own_value_does_not_look_at_others():
    assert row((151,), (1000,), target=Target("<=", 150, of_ratio=False)).verdict == "MISS"
    assert row((149,), (1,), target=Target("<=", 150, of_ratio=False)).verdict == "pass"


def test_a_target_that_could_not_be_measured_is_missed():
    assert row((100,), target=Target(">=", 1.0)).verdict == "MISS"


def test_what_has_no_target_is_not_judged():
    assert row((100,), (1,)).verdict == ""


def test_a_percentile_is_a_value_that_was_measured():
    hundred = [float(value) for value in range(100, 0, -1)]
    assert percentile(hundred, 0.50) == 50
    assert percentile(hundred, 0.99) == 99
    assert percentile([7.0], 0.99) == percentile([7.0], 0.0) == 7
    assert percentile([1.0, 1000.0], 0.99) == 1000


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (12345.6, "12,346"),
        (99.96, "100"),
        (56.78, "56.8"),
        (9.996, "10.0"),
        (0.894, "0.89"),
        (0.0024, "0.0024"),
        (0, "0.00"),
    ],
)
def test_a_number_is_as_precise_as_it_is_read(value: float, text: str):
    assert number(value) == text


def test_several_rounds_show_their_spread_and_one_does_not():
    assert str(Spread((3.0, 1.0, 2.0))) == "2.00 (1.00–3.00)"
    assert str(Spread((3.0,))) == "3.00"


def test_the_count_of_a_sink_is_that_of_its_last_whole_record():
    assert counted(b"sess=1 quit=0 mesg=41\rsess=1 quit=0 mesg=42\r") == 42
    # smtp-sink is writing: mesg=4 may become 43.
    assert counted(b"sess=1 quit=0 mesg=42\rsess=1 quit=0 mesg=4") == 42
    # The tail of the file begins in the middle of a record.
    assert counted(b"t=0 mesg=7\r") == 7


def test_a_sink_that_has_said_nothing_has_taken_nothing():
    assert counted(b"") == counted(b"sess=1 quit=0 me") == 0


def test_what_is_highest_at_the_end_counts_though_nobody_looked_before():
    values = iter((1, 5))
    with highest(lambda: next(values), every=3600) as most:
        pass
    assert most == [5]
