"""A member that is retired on one node is retired on all; nothing takes that back."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from core.giving_records import hears
from core.ledger_at_hand import DB, NOW, A, B, C, LedgerAtHand
from stations import Station, boundary, eventually

from shadowrelay.core.decisions import Decision, Member
from shadowrelay.core.identifiers import DatabaseId, Lineage, RequestId
from shadowrelay.core.retirements import RetiredMember
from shadowrelay.core.retiring import to_follow
from shadowrelay.members import record_replication


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_replication, "INTERVAL", 0.05)


def is_retired(one: Station, gone: Station) -> bool:
    known = one.database.ledger.member(gone.name)
    return known is not None and known.retired and gone.name not in one.node.boundary.watches


async def test_it_is_said_to_one_node_and_all_others_know_who_said_so(tmp_path: Path) -> None:
    async with boundary(tmp_path, "mx1", "mx2", "mx3", "mx4") as (*others, gone):
        one = others[0]
        for each in others:
            each.run_links()
            each.run(each.node.replication.run())
        assert not (await one.node.retire(gone.name, "ann"))["already"]
        await eventually(lambda: all(is_retired(each, gone) for each in others))
        for each in others:
            (record,) = await each.read(lambda ledger: tuple(ledger.records(RetiredMember)))
            assert (record.member, record.operator, record.changed_by) == (gone.name, "ann", one.name)
        assert (await others[1].node.retire(gone.name, "bob"))["already"]
        (record,) = await one.read(lambda ledger: tuple(ledger.records(RetiredMember)))
        assert record.operator == "ann"


def retired(member: str = C, database: DatabaseId | None = DB[C]) -> RetiredMember:
    return RetiredMember(
        id=RequestId("01900000-0000-7000-9000-000000000001"),
        member=C if member == C else A,
        database_id=database,
        operator="ann",
        reason="it is gone",
        changed_by=B,
        changed_at=NOW,
    )


def test_a_record_is_followed_by_a_node_that_met_another_database_of_the_member() -> None:
    on = LedgerAtHand(A)
    hears(on, retired())
    assert list(to_follow(on)) == [retired()]
    known = on.member(C)
    assert known is not None
    assert known.lineage is not None
    other = replace(known, lineage=Lineage(DatabaseId("another"), known.lineage.beginnings, 1))
    on.apply(Decision(None, (other,)))
    assert list(to_follow(on)) == [retired()]


@pytest.mark.parametrize("database", [None, DB[C]])
def test_a_member_that_is_retired_here_or_that_this_node_never_met_needs_no_database(
    database: DatabaseId | None,
) -> None:
    on = LedgerAtHand(A)
    hears(on, retired(database=database))
    assert len(list(to_follow(on))) == 1
    on.apply(Decision(None, (replace(on.member(C) or Member(C), retired=True),)))
    assert list(to_follow(on)) == []


def test_a_node_never_retires_itself() -> None:
    on = LedgerAtHand(A)
    hears(on, retired(A, None))
    assert list(to_follow(on)) == []
