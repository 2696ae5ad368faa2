"""One thing is changed at a time in files that are sealed again: it is seen, or on the page."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from tampering import RENAMED, Forging, changes, generated, unlisted, unseen

from shadowaudit.core.verdict import PROVEN, VIOLATED
from shadowlab.generate.cluster import generate
from shadowlab.generate.stories import FAULTS

sys.path.append(str(Path(__file__).parents[2]))
from tests.pages.audit_matrix import PAGE, page


def test_a_sample_of_changes_is_seen_or_listed_and_sums_clear_nothing_that_rows_convict(
    tmp_path: Path,
) -> None:
    found, cleared = unseen(generated(tmp_path / "clean"), tmp_path / "logs", one_in=23)
    assert unlisted(found) == set()
    assert cleared == {}


@pytest.mark.slow
def test_each_change_is_seen_or_on_the_page(tmp_path: Path) -> None:
    clean = generated(tmp_path / "clean")
    found, cleared = unseen(clean, tmp_path / "logs")
    assert unlisted(found) == set()
    assert cleared == {}, "what rows convict, sums do not clear"
    assert PAGE.read_text("utf-8") == page(found), "python -m tests.pages.audit_matrix writes it"
    assert {change.event for change in changes(clean)} >= {"RECEIVE", "EXPAND", "HARESTORE", "TRANSFER"}


@pytest.mark.slow
def test_no_other_events_name_hides_a_violation_but_on_which_side_of_the_boundary_a_hop_is(
    tmp_path: Path,
) -> None:
    hidden = set()
    for fault in FAULTS:
        generate(tmp_path / fault / "clean", messages=1, faults={fault: 1}, seed=3)
        forging = Forging(tmp_path / fault / "clean", tmp_path / fault / "logs")
        if forging.verdict.status == VIOLATED:
            for change in changes(tmp_path / fault / "clean"):
                if change.how == RENAMED:
                    verdict, cleared = forging.judged(change)
                    assert cleared == set(), (fault, change.cell)
                    hidden |= {(fault, change.event, change.what)} if verdict.status == PROVEN else set()
    assert hidden == {("resubmitted-outside", "SENDEXTERNAL", "as SEND")}
