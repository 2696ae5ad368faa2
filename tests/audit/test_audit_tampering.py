"""One thing is changed at a time in files that are sealed again: it is seen, or on the page."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from tampering import changes, generated, unlisted, unseen

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
