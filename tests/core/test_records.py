"""The law by which records merge, over all kinds of them."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from itertools import permutations
from typing import Any

import pytest
from giving_records import hears
from hypothesis import given
from hypothesis import strategies as st
from ledger_at_hand import NOW, A, B, C, ledger_of

from shadowrelay.core import switching
from shadowrelay.core.identifiers import DatabaseId, NextHop, RequestId
from shadowrelay.core.jobs import Filter, Job, JobState, Verb
from shadowrelay.core.records import Record, newest, next_revision
from shadowrelay.core.requests import Request, RequestState, Selector
from shadowrelay.core.retirements import RetiredMember
from shadowrelay.core.suspensions import Suspension
from shadowrelay.core.switches import Switch
from shadowrelay.members.sharing import RULES
from shadowrelay.wire.records import record_from, record_told

SECOND, HOUR = timedelta(seconds=1), timedelta(hours=1)
ID = RequestId("01900000-0000-7000-9000-000000000001")
BY: dict[str, Any] = {"id": ID, "operator": "ann", "reason": "why", "changed_by": A, "changed_at": NOW}
PLAIN: dict[str, Record] = {
    "request": Request(
        number=1, made_by=A, made_at=NOW, selector=Selector(since=NOW - HOUR, until=NOW), **BY
    ),
    "job": Job(verb=Verb.REMOVE, filter=Filter(sender="a@b.example"), made_by=A, made_at=NOW, **BY),
    "suspension": Suspension(next_hop=NextHop("inside"), suspended=True, **BY),
    "switch": Switch(name=switching.REDUNDANCY, value=True, against=True, **BY),
    "retired": RetiredMember(member=C, database_id=DatabaseId(ID), **BY),
}
CHANGED_FOR = st.sampled_from([None, "", "bob"])
BODIES: dict[str, dict[str, st.SearchStrategy[Any]]] = {
    "request": {
        "state": st.sampled_from(RequestState),
        "gone": st.sampled_from([(), (B,), (B, C)]),
        "last_operator": CHANGED_FOR,
    },
    "job": {"state": st.sampled_from(JobState), "last_operator": CHANGED_FOR},
    "suspension": {
        "suspended": st.booleans(),
        "until": st.sampled_from([None, NOW + SECOND]),
        "spans": st.sampled_from([(), ((NOW - SECOND, NOW),)]),
    },
    "switch": {"value": st.one_of(st.none(), st.booleans(), st.integers(0, 3), st.text("ab", max_size=2))},
    "retired": {},
}


def revisions_of(kind: str) -> st.SearchStrategy[Record]:
    """Revisions of one record, as nodes may have made them that did not hear each other, or lost a disk."""
    return st.builds(
        replace,
        st.just(PLAIN[kind]),  # type: ignore[arg-type]
        revision=st.integers(1, 3),
        changed_by=st.sampled_from([A, B, C]),
        changed_at=st.sampled_from([NOW, NOW + SECOND]),
        operator=st.sampled_from(["ann", "bob"]),
        **BODIES[kind],
    )


revisions = st.sampled_from(list(PLAIN)).flatmap(
    lambda kind: st.lists(revisions_of(kind), min_size=3, max_size=4)
)


def test_every_kind_that_members_give_is_here() -> None:
    assert PLAIN.keys() == BODIES.keys() == RULES.keys()


@given(revisions)
def test_merging_is_commutative_associative_and_idempotent(found: list[Record]) -> None:
    one, other, third = found[:3]
    assert newest(one, other) == newest(other, one)
    assert newest(newest(one, other), third) == newest(one, newest(other, third))
    assert newest(one, one) == one


@given(revisions)
def test_of_any_two_revisions_that_differ_one_counts_over_the_other(found: list[Record]) -> None:
    one, other, third = found[:3]
    assert newest(one, other) in (one, other)
    if newest(one, other) == other and newest(other, third) == third:
        assert newest(one, third) == third


@given(revisions)
def test_members_that_hear_of_the_same_revisions_agree_whatever_the_order(found: list[Record]) -> None:
    ends = set()
    for order in permutations(found):
        on = ledger_of(A)
        for one in order:
            hears(on, one)
        ends.add(on.record(type(found[0]), found[0].key))
    assert len(ends) == 1


@given(revisions)
def test_what_was_ended_for_good_anywhere_stays_so_and_else_the_highest_revision_counts(
    found: list[Record],
) -> None:
    last = found[0]
    for one in found[1:]:
        last = newest(last, one)
    assert last.final == any(one.final for one in found)
    assert last.revision == max(one.revision for one in found if one.final == last.final)


@given(st.integers(0, 1 << 50), st.integers(-100_000, 100_000))
def test_a_change_counts_over_all_that_its_node_knows_and_over_what_it_lost_whatever_the_clock_says(
    known: int, seconds: int
) -> None:
    now = NOW + timedelta(seconds=seconds)
    assert next_revision(known, now) > known
    assert next_revision(0, now + SECOND) > next_revision(0, now)


@given(revisions)
def test_a_record_is_what_was_told_but_for_what_a_node_keeps_for_itself(found: list[Record]) -> None:
    for one in found:
        assert record_from(type(one), record_told(one)) == one
        assert "kept_at" not in record_told(one)


@pytest.mark.parametrize("kind", ["request", "job"])
def test_who_changed_a_record_is_kept_beside_an_older_member_that_does_not_tell(kind: str) -> None:
    named = replace(PLAIN[kind], last_operator="#bob")
    older = record_from(type(named), {**record_told(named), "last_operator": None})
    assert newest(named, older) == newest(older, named) == named
    assert "last_operator" not in record_told(older)


@pytest.mark.parametrize("kind", PLAIN)
def test_a_node_counts_from_when_it_first_had_a_record_itself_whoever_dated_it(kind: str) -> None:
    on, ages = ledger_of(B), 40 * timedelta(days=1)
    dated = replace(PLAIN[kind], changed_at=NOW - 9 * ages)
    hears(on, dated, now=NOW, age=SECOND)
    hears(on, replace(dated, revision=7, changed_at=NOW + ages), now=NOW + ages, age=ages)
    known = on.record(type(dated), dated.key)
    assert known is not None
    assert (known.revision, known.kept_at, known.age) == (7, NOW, SECOND)
