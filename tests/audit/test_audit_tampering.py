"""One thing is changed at a time in files that are sealed again: it is seen, or on the page."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from tampering import CHANGED, HIDDEN, Cell, Forging, changes, generated, hiding, unlisted, unseen

from shadowaudit.core.verdict import VIOLATED
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


def test_a_sample_of_changes_hides_no_violation_and_sums_clear_nothing_of_it(tmp_path: Path) -> None:
    found, cleared = hiding(tmp_path, FAULTS, one_in=191)
    assert found - HIDDEN.keys() == set()
    assert cleared == {}


@pytest.mark.parametrize(
    ("fault", "cell"),
    [
        ("false-copy", ("HAREDIRECT", "server-hostname", CHANGED)),
        ("sent-again-past-a-hop-that-delivered", ("HADISCARD", "server-hostname", CHANGED)),
        ("sent-again-past-a-hop-that-delivered", ("RESUBMIT", "reference", CHANGED)),
        ("sent-again-past-a-hop-that-delivered", ("RESUBMIT", "S:Hop", CHANGED)),
    ],
)
def test_another_name_of_a_holder_or_a_hop_hides_no_violation(tmp_path: Path, fault: str, cell: Cell) -> None:
    generate(tmp_path / "clean", messages=1, faults={fault: 1}, seed=3)
    forging = Forging(tmp_path / "clean", tmp_path / "logs")
    change = next(one for one in changes(tmp_path / "clean") if one.cell == cell)
    assert forging.judged(change)[0].status == VIOLATED


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_each_change_that_hides_a_violation_is_on_the_page(tmp_path: Path, fault: str) -> None:
    found, cleared = hiding(tmp_path, [fault])
    assert found == {one for one in HIDDEN if one[0] == fault}
    assert cleared == {}, "what rows convict, sums do not clear"
