"""One cell is changed at a time in files that are sealed again: it is seen, or on the list."""

from __future__ import annotations

from pathlib import Path

import pytest
from plainly import judged
from tampering import ANYWHERE, IN_SOME, unlisted, unseen

from shadowaudit.core.verdict import PROVEN
from shadowlab.generate.cluster import generate

STORIES = ("promotion", "handover", "exposed", "in-transit", "orphan", "damaged-copy", "restored", "bounced")
GIVEN_BACK = ("resubmitted", "resubmitted-by-holder", "journal-copy", "expanded", "rewritten")
OPERATED = ("removed", "removed-with-report", "bounced-by-hand", "suspended", "retried", "queue-suspended")


@pytest.mark.slow
def test_each_cell_of_what_an_operator_did_that_is_changed_is_seen_or_on_the_list(tmp_path: Path) -> None:
    clean = tmp_path / "clean"
    generate(clean, messages=6, faults=dict.fromkeys(OPERATED, 1), seed=3)
    assert judged(clean)[0].status == PROVEN
    assert unlisted(unseen(clean, tmp_path / "logs")) == {}


@pytest.mark.slow
def test_each_cell_of_what_is_given_back_that_is_changed_is_seen_or_on_the_list(tmp_path: Path) -> None:
    clean = tmp_path / "clean"
    generate(clean, messages=5, faults=dict.fromkeys(GIVEN_BACK, 1), seed=3)
    assert judged(clean)[0].status == PROVEN
    assert unlisted(unseen(clean, tmp_path / "logs")) == {}


@pytest.mark.slow
def test_each_cell_that_is_changed_is_seen_or_on_the_list(tmp_path: Path) -> None:
    clean = tmp_path / "clean"
    generate(clean, messages=24, faults=dict.fromkeys(STORIES, 1), seed=3)
    assert judged(clean)[0].status == PROVEN
    found = unseen(clean, tmp_path / "logs")
    assert unlisted(found) == {}
    of_others = {"S:Recipients", "recipient-status, its end", "S:Owner"}
    of_others |= {"S:Operator", "S:Reason", "S:Job", "S:Queue", "S:TellerDb"}
    assert {*ANYWHERE, *IN_SOME} - set(found) == of_others, "the list has nothing that is seen"
