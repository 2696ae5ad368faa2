"""Back pressure as rules: levels, what they refuse, and for how long MAIL waits."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shadowrelay.core.pressure import (
    LEAST_DELAY,
    MOST_DELAY,
    Inflow,
    PressureLevel,
    PressureStanding,
    Resource,
    Thresholds,
    counted,
    of_disk,
    of_log_disk,
    of_memory,
    stance,
)

QUEUE = counted(100, 200, 150, 50)
LOW, MEDIUM, HIGH, FULL = PressureLevel


def levels(thresholds: Thresholds, *readings: float) -> list[PressureLevel]:
    """The levels that these readings lead to, one after the other."""
    standing, found = PressureStanding(), []
    for reading in readings:
        standing = standing.after(thresholds, reading, 0.0)
        found.append(standing.level)
    return found


def test_a_level_ends_below_another_reading_than_it_begins_at() -> None:
    assert levels(QUEUE, 99, 100, 199, 50, 49, 99) == [LOW, MEDIUM, MEDIUM, MEDIUM, LOW, LOW]
    assert levels(QUEUE, 200, 150, 149, 199, 49) == [HIGH, HIGH, MEDIUM, MEDIUM, LOW]
    assert levels(QUEUE, 1_000_000, 0) == [HIGH, LOW]


def test_memory_is_full_halfway_to_its_limit() -> None:
    marks = of_memory(72, 75, 73, 71)
    assert levels(marks, 87.4, 87.5, 75, 74.9, 72.9, 70.9) == [HIGH, FULL, FULL, HIGH, MEDIUM, LOW]


def test_a_disk_is_full_at_the_minimum_until_a_quarter_more_is_free() -> None:
    marks = of_disk(90, 95, 92, 85, minimum=4_000, size=100_000)
    assert levels(marks, 95.9, 96, 95, 94.9, 91) == [HIGH, FULL, FULL, HIGH, MEDIUM]
    none = of_disk(90, 95, 92, 85, minimum=0, size=100_000)
    assert levels(none, 100) == [HIGH]


@pytest.mark.parametrize("size", [4_000, 5_000, 8_000, 1_000_000])
def test_a_disk_of_the_log_alone_refuses_copies_last_however_small_it_is(size: int) -> None:
    marks = of_log_disk(89, 99, 90, 80, minimum=4_000, size=size)
    assert levels(marks, 50, 89, 98.9, 99, 99.4) == [LOW, MEDIUM, MEDIUM, HIGH, HIGH]
    assert levels(marks, 100, 98, 85, 79) == [FULL, HIGH, MEDIUM, LOW]


@given(
    st.lists(st.integers(1, 1000), min_size=3, max_size=3),
    st.integers(1, 1000),
    st.sampled_from(PressureLevel),
    st.floats(0, 1200),
    st.floats(0, 1200),
)
def test_more_of_a_reading_never_lowers_a_level_and_one_reading_leads_to_one_level(
    marks: list[int], between: int, before: PressureLevel, one: float, other: float
) -> None:
    ends, medium, high = sorted(marks)
    thresholds = counted(medium, high, min(max(between, ends), high), ends)
    if before is not FULL:
        less, more = sorted((one, other))
        assert thresholds.level(before, less) <= thresholds.level(before, more)
        settled = thresholds.level(before, one)
        assert thresholds.level(settled, one) is settled
    assert (thresholds.level(LOW, one) is LOW) == (one < medium)
    assert (thresholds.level(HIGH, one) is LOW) == (one < ends)


@given(st.dictionaries(st.sampled_from(Resource), st.sampled_from(PressureLevel)), st.floats(0, 1000))
def test_the_scarcest_resource_decides_and_copies_are_refused_by_a_full_one_alone(
    found: dict[Resource, PressureLevel], now: float
) -> None:
    told = stance({what: PressureStanding(level) for what, level in found.items()}, now)
    worst = max(found.values(), default=LOW)
    assert told.refuses <= Inflow(worst)
    assert (told.refuses is Inflow.COPIES) == (worst is FULL)
    assert (told.refuses is Inflow.TRUSTED) == (worst is HIGH)
    assert told.pauses == (worst > LOW)
    assert told.delay == 0 or LEAST_DELAY <= told.delay <= MOST_DELAY


@pytest.mark.parametrize("what", [Resource.QUEUE, Resource.UNCOMMITTED])
def test_mail_is_slowed_more_and_more_before_any_is_refused_and_not_at_all_afterwards(what: Resource) -> None:
    standing = PressureStanding().after(QUEUE, 100, 1000.0)
    waits = [stance({what: standing}, 1000.0 + passed) for passed in range(0, 330, 30)]
    assert [told.delay for told in waits] == [10, 15, 20, 25, 30, 35, 40, 45, 50, 55, 55]
    assert [told.refuses for told in waits] == [Inflow.NONE] * 10 + [Inflow.OUTSIDE]
    worse = standing.after(QUEUE, 200, 1010.0)
    assert stance({what: worse}, 1010.0).refuses is Inflow.TRUSTED
    assert worse.after(QUEUE, 150, 1020.0).since == standing.since
    over = worse.after(QUEUE, 0, 1020.0)
    assert stance({what: over}, 1020.0).delay == 0
    assert stance({what: over.after(QUEUE, 100, 2000.0)}, 2000.0).delay == LEAST_DELAY


@pytest.mark.parametrize("what", [Resource.DATA_DISK, Resource.LOG_DISK, Resource.MEMORY])
def test_where_slowness_does_not_help_nobody_waits(what: Resource) -> None:
    told = stance({what: PressureStanding(MEDIUM)}, 5.0)
    assert (told.refuses, told.delay, told.pauses) == (Inflow.OUTSIDE, 0, True)
