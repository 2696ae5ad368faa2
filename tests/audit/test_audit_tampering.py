"""One cell is changed at a time in files that are sealed again: it is seen, or on the list."""

from __future__ import annotations

from pathlib import Path

import pytest
from plainly import judged
from tampering import unseen

from shadowaudit.core.verdict import PROVEN
from shadowaudit.generate.cluster import generate

STORIES = ("promotion", "handover", "exposed", "in-transit", "orphan", "damaged-copy", "restored", "bounced")

ANYWHERE: dict[str, str] = {}
"""Columns and entries whose change is not seen, whatever the event, and why."""


@pytest.mark.slow
def test_each_cell_that_is_changed_is_seen_or_on_the_list(tmp_path: Path) -> None:
    clean = tmp_path / "clean"
    generate(clean, messages=24, faults=dict.fromkeys(STORIES, 1), seed=3)
    assert judged(clean)[0].status == PROVEN
    found = unseen(clean, tmp_path / "logs")
    assert {what: events for what, events in found.items() if what not in ANYWHERE} == {}
