"""What a lineage says of a mark that somebody remembers."""

from __future__ import annotations

from ledger_at_hand import DB, RUN, A, B, lineage

from shadowrelay.core.identifiers import Beginning, Continuity, Lineage, Mark


def test_another_database_id_is_a_broken_lineage() -> None:
    assert lineage(A).continuity(DB[B], Mark(RUN[A], 1)) is Continuity.BROKEN


def test_an_incarnation_that_did_not_run_that_far_is_a_broken_lineage() -> None:
    later = Lineage(DB[A], (Beginning(RUN[A], 0), Beginning(RUN[B], 7)), 20)
    assert later.continuity(DB[A], Mark(RUN[A], 7)) is Continuity.UNBROKEN
    assert later.continuity(DB[A], Mark(RUN[A], 8)) is Continuity.BROKEN


def test_a_list_that_does_not_reach_back_proves_nothing() -> None:
    pruned = Lineage(DB[A], (Beginning(RUN[B], 7),), 20)
    assert pruned.continuity(DB[A], Mark(RUN[A], 5)) is Continuity.UNKNOWN
    assert pruned.continuity(DB[A], Mark(RUN[A], 9)) is Continuity.BROKEN
