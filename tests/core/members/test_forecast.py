"""What the silence of a member leads to, in a sentence."""

from __future__ import annotations

from datetime import timedelta

import pytest
from ledger_at_hand import C

from shadowrelay.core.members.forecast import Forecast
from shadowrelay.core.values import replace

SILENT = Forecast(
    losing_in=2,
    promoting_in=timedelta(minutes=3, seconds=5),
    held_for_it=12,
    seen_by=None,
    cut_off=False,
)


@pytest.mark.parametrize(
    ("losing_in", "said"),
    [
        (2, "its copies for us no longer count after 2 more failures"),
        (1, "its copies for us no longer count after 1 more failure"),
        (0, "its copies of our messages do not count: they are made again elsewhere"),
    ],
)
def test_its_copies_count_until_that_many_heartbeats_failed(losing_in: int, said: str) -> None:
    assert str(replace(SILENT, losing_in=losing_in)).partition("; ")[0] == said


def promotion(of: Forecast) -> str:
    return str(of).partition("; ")[2]


def test_what_is_held_for_it_is_promoted_in_time_and_at_once_when_it_is_due() -> None:
    assert promotion(SILENT) == "its messages are promoted in 3 min 5 s"
    due = replace(SILENT, promoting_in=timedelta(0), held_for_it=1)
    assert promotion(due) == "its messages are promoted now"
    assert promotion(replace(due, promoting_in=timedelta(-1))) == "its messages are promoted now"
    assert promotion(replace(SILENT, held_for_it=0, seen_by=C)) == "nothing is held for it"


def test_time_promotes_nothing_while_somebody_has_contact_with_it_or_we_may_be_cut_off() -> None:
    cut_off = replace(SILENT, cut_off=True)
    assert promotion(cut_off).startswith("its messages are not promoted by time: this node reaches no")
    seen = f"its messages are not promoted by time: {C} is in contact with it"
    assert promotion(replace(SILENT, seen_by=C)) == promotion(replace(cut_off, seen_by=C)) == seen
