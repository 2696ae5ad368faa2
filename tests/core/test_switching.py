"""A setting that is switched for all members: which record counts, when the file does, what owners say."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from datetime import timedelta
from enum import StrEnum
from typing import Any

import pytest
from decision_inputs import POLICY
from giving_records import hears
from hypothesis import given
from hypothesis import strategies as st
from ledger_at_hand import DB, NOW, RUN, A, B, C, LedgerAtHand, M, ledger_of, message

from shadowrelay.core.decisions import VerdictKind
from shadowrelay.core.identifiers import Mark, RequestId, ServerName
from shadowrelay.core.messages import Confirmation, Damage, Holder, HolderState, Role
from shadowrelay.core.policy import Policy, ShadowMessagePreference
from shadowrelay.core.switches import Switch, SwitchValue
from shadowrelay.core.switching import (
    REDUNDANCY,
    SPANS,
    SWITCHED,
    WHY_NOT,
    carried,
    fault,
    flipped,
    in_force,
    released,
    relied_on,
    settled,
)
from shadowrelay.wire.records import record_from, record_told


def switch(value: SwitchValue = False, **changes: object) -> Switch:
    plain = Switch(
        id=RequestId("01900000-0000-7000-8000-000000000001"),
        name=REDUNDANCY,
        value=value,
        against=True,
        operator="ann",
        reason="the link is down",
        changed_by=A,
        changed_at=NOW,
    )
    return replace(plain, **changes)  # type: ignore[arg-type]


def merge(on: LedgerAtHand, given: Switch, *, file: bool = True) -> Switch:
    found = hears(on, given, policy=replace(POLICY, shadow_redundancy_enabled=file))
    assert found is not None
    return found


def on_with(given: Switch | None, *, file: bool) -> bool:
    """Is shadow redundancy on where the settings file says that?"""
    policy = replace(POLICY, shadow_redundancy_enabled=file)
    return in_force(policy, [given] if given else []).shadow_redundancy_enabled


def test_without_a_switch_the_settings_file_counts() -> None:
    assert on_with(None, file=True)
    assert not on_with(None, file=False)


def test_a_switch_counts_until_the_settings_file_says_something_else_than_at_the_switch() -> None:
    off = switch(against=True)
    assert not on_with(off, file=True)
    on = switch(value=True, against=False)
    assert on_with(on, file=False)
    assert on_with(replace(on, value=False, against=False), file=True), "the file was changed since"
    assert not on_with(replace(off, value=True), file=False), "likewise"


def test_each_node_keeps_what_its_own_file_said_when_it_learnt_the_switch() -> None:
    one, other = ledger_of(A), ledger_of(B)
    made = one.apply(flipped(one, switch(value=True, against=True), POLICY))
    learnt = merge(other, made, file=False)
    assert (learnt.against, on_with(learnt, file=False)) == (False, True), "for all members at once"
    assert one.switch(REDUNDANCY) == made
    assert merge(other, made, file=True) == learnt, "the same revision again changes nothing"


def test_each_change_is_a_revision_and_the_highest_counts_in_every_order() -> None:
    first = switch(changed_by=A, revision=1)
    later = switch(value=True, changed_by=B, revision=2)
    for order in ([first, later], [later, first]):
        on = ledger_of(C)
        for each in order:
            merge(on, each)
        known = on.switch(REDUNDANCY)
        assert known == later
        made = on.apply(flipped(on, switch(), POLICY))
        assert merge(on, later) == made == on.switch(REDUNDANCY)


def test_a_change_counts_over_all_that_its_node_knows_though_a_clock_was_ahead() -> None:
    one, other = ledger_of(A), ledger_of(B)
    ahead = one.apply(flipped(one, switch(changed_at=NOW + timedelta(hours=3)), POLICY))
    merge(other, ahead)
    after = other.apply(flipped(other, switch(value=True, changed_by=B), POLICY))
    assert merge(one, after) == after == one.switch(REDUNDANCY)


def test_a_change_counts_over_earlier_ones_that_its_node_lost_with_its_disk() -> None:
    one, lost = ledger_of(A), ledger_of(B)
    for value in (False, True, False):
        one.apply(flipped(one, switch(value=value), POLICY))
    known = one.switch(REDUNDANCY)
    assert known is not None
    after = lost.apply(
        flipped(lost, switch(value=True, changed_by=B, changed_at=NOW + timedelta(seconds=1)), POLICY)
    )
    assert merge(lost, known) == after
    assert merge(one, after) == after == one.switch(REDUNDANCY)


def test_of_two_changes_at_one_moment_the_first_node_by_name_counts_everywhere() -> None:
    one, other = switch(changed_by=A), switch(value=True, changed_by=B)
    for order in ([one, other], [other, one]):
        on = ledger_of(C)
        assert [merge(on, given) for given in order][-1].changed_by == A


def test_of_two_changes_with_one_revision_the_later_one_counts_everywhere() -> None:
    one, other = switch(changed_by=A), switch(value=True, changed_by=B, changed_at=NOW + timedelta(seconds=1))
    for order in ([one, other], [other, one]):
        on = ledger_of(C)
        assert [merge(on, given) for given in order][-1].changed_by == B


def setting(name: str, value: SwitchValue, **changes: object) -> Switch:
    return switch(name=name, value=value, against=None, **changes)


VALUES: list[tuple[str, object]] = [
    ("reject_message_on_shadow_failure", True),
    ("shadow_message_preference_setting", ShadowMessagePreference.REMOTE_ONLY),
    ("max_retries_for_local_site_shadow", 7),
    ("max_retries_for_remote_site_shadow", 0),
    ("queue_glitch_retry_count", 1),
    ("queue_glitch_retry_interval", timedelta(seconds=90)),
    ("transient_failure_retry_count", 15),
    ("transient_failure_retry_interval", timedelta(hours=12)),
    ("outbound_connection_failure_retry_interval", timedelta(milliseconds=1001)),
    ("unreadable_answer_retry_count", 0),
    ("unreadable_answer_retry_interval", timedelta(days=1)),
]


def test_each_setting_of_the_policy_is_switched_or_says_why_not() -> None:
    assert {*SWITCHED} == {name for name, _ in VALUES} | SPANS
    assert {*SWITCHED, *WHY_NOT} == {one.name for one in fields(Policy)}
    assert not {*SWITCHED} & {*WHY_NOT}


def another(name: str, value: object) -> Any:
    """A value of the setting that is neither this nor, unless there are but two, its default."""
    match getattr(POLICY, name):
        case bool(known):
            return known
        case timedelta() as known:
            return known + (
                timedelta(seconds=1) if known + timedelta(seconds=1) != value else timedelta(seconds=2)
            )
        case StrEnum() as known:
            return next(one for one in type(known) if one not in (known, value))
        case known:
            return next(one for one in range(9) if one not in (known, value))


@pytest.mark.parametrize(("name", "value"), VALUES)
def test_a_value_that_was_set_for_all_counts_until_it_is_unset_whatever_the_file_says(
    name: str, value: object
) -> None:
    for said in (getattr(POLICY, name), value, another(name, value)):
        file, on = replace(POLICY, **{name: said}), ledger_of(B)
        given = record_from(Switch, json.loads(json.dumps(record_told(setting(name, carried(value))))))
        assert hears(on, given) == given
        assert getattr(in_force(file, on.records(Switch)), name) == value
        assert in_force(file, on.records(Switch)) == replace(file, **{name: value})
        unset = on.apply(flipped(on, setting(name, None), POLICY))
        assert unset.revision > given.revision, "a member that was away has to learn it"
        assert in_force(file, on.records(Switch)) == file


@pytest.mark.parametrize(
    "given",
    [
        setting("data_dir", "/"),
        setting("shadow_heartbeat_frequency", 1000),
        setting("shadow_resubmit_time_span", 999),
        setting("opening_timeout", 1000),
        setting(REDUNDANCY, None),
        setting(REDUNDANCY, True),
        setting("reject_message_on_shadow_failure", 1),
        setting("reject_message_on_shadow_failure", "true"),
        setting("queue_glitch_retry_count", True),
        setting("queue_glitch_retry_count", 16),
        setting("queue_glitch_retry_count", -1),
        setting("queue_glitch_retry_interval", 999),
        setting("queue_glitch_retry_interval", "1m"),
        setting("queue_glitch_retry_interval", 12 * 3600 * 1000 + 1),
        setting("shadow_message_preference_setting", "nowhere"),
        setting("shadow_message_preference_setting", 2),
    ],
    ids=lambda one: f"{one.name}={one.value}",
)
def test_a_value_that_a_setting_cannot_have_is_refused_and_does_not_count_where_it_is_on_record(
    given: Switch,
) -> None:
    assert fault(given)
    assert in_force(POLICY, [given]) == POLICY


SPAN = "shadow_resubmit_time_span"
FILE = timedelta(hours=3)
"""The time span of the settings files."""


def spans(on: LedgerAtHand, name: str = SPAN) -> tuple[object, object]:
    """The value by which a node does its part, and the one that it relies on."""
    records = on.records(Switch)
    return tuple(getattr(made(POLICY, records), name) for made in (in_force, relied_on))  # type: ignore[return-value]


def span(length: timedelta | None, name: str = SPAN, **changes: object) -> Switch:
    return setting(name, carried(length), **changes)


@pytest.mark.parametrize("name", sorted(SPANS))
def test_a_longer_span_counts_at_once_and_is_relied_on_when_every_member_has_it(name: str) -> None:
    before, longer = getattr(POLICY, name), timedelta(hours=20) + getattr(POLICY, name) / 10
    longer = max(longer, before + timedelta(hours=1)) if name != SPAN else longer
    for on, learn in ((ledger_of(A), flipped), (ledger_of(B), None)):
        given = span(longer, name)
        made = on.apply(learn(on, given, POLICY)) if learn else hears(on, given)
        assert made
        assert spans(on, name) == (longer, before if name == SPAN else longer)
        assert on.apply(settled(on, made))
        assert spans(on, name) == (longer, longer)


@pytest.mark.parametrize("name", sorted(SPANS))
def test_a_shorter_span_is_relied_on_at_once_and_counts_when_every_member_has_it_for_long_enough(
    name: str,
) -> None:
    before, shorter = getattr(POLICY, name), timedelta(minutes=10)
    for on, learn in ((ledger_of(A), flipped), (ledger_of(B), None)):
        given = span(shorter, name)
        made = on.apply(learn(on, given, POLICY)) if learn else hears(on, given)
        assert made
        pending = before, shorter if name == SPAN else before
        assert spans(on, name) == pending
        assert hears(on, made) == made
        assert spans(on, name) == pending, "the same revision again changes nothing"
        assert on.apply(settled(on, made))
        assert spans(on, name) == (shorter, shorter)
        assert not on.apply(settled(on, made)), "once"
        unset = on.apply(flipped(on, span(None, name), POLICY))
        assert not on.apply(settled(on, made)), "a revision of before settles nothing"
        assert spans(on, name) == pending
        assert on.apply(settled(on, unset))
        assert spans(on, name) == (before, before)


def test_a_span_that_is_changed_again_before_it_is_settled_keeps_what_may_be_in_force_anywhere() -> None:
    on = ledger_of(A)
    for hours in (1, 8, 2):
        on.apply(flipped(on, span(timedelta(hours=hours)), POLICY))
    assert spans(on) == (timedelta(hours=8), timedelta(hours=1))


def test_what_may_be_in_force_is_on_record_over_a_restart_and_each_nodes_own() -> None:
    one, other = ledger_of(A), ledger_of(B)
    made = one.apply(flipped(one, span(timedelta(hours=20)), POLICY))
    assert record_from(Switch, json.loads(json.dumps(record_told(made)))).shortest == made.shortest
    learnt = hears(other, replace(made, longest=1, shortest=1))
    assert learnt
    assert (learnt.longest, learnt.shortest) == (made.longest, made.shortest), "a member says nothing of ours"
    assert "longest" not in record_told(replace(made, longest=None, shortest=None))


LENGTHS = st.one_of(st.none(), st.integers(1, 24).map(lambda hours: timedelta(hours=hours)))
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("set"), st.integers(0, 2), LENGTHS),
        st.tuples(st.just("give"), st.integers(0, 2), st.integers(0, 2)),
        st.tuples(st.just("settle"), st.integers(0, 2), st.none()),
    ),
    max_size=30,
)


@given(STEPS)
def test_nobody_ever_relies_on_a_longer_span_than_anybody_else_goes_by(steps: list[Any]) -> None:
    """Members hear of changes in any order, and settle what they know that all others have."""
    nodes = [ledger_of(name) for name in (A, B, C)]
    heard: dict[int, set[tuple[str, int, int]]] = {0: set(), 1: set(), 2: set()}  # who has what, as it knows
    for number, (what, at, more) in enumerate(steps):
        on = nodes[at]
        known = on.switch(SPAN)
        if what == "set":
            id_ = RequestId(f"01900000-0000-7000-8000-{number:012d}")
            by = {"id": id_, "changed_by": on.name, "changed_at": NOW + timedelta(seconds=number % 4)}
            on.apply(flipped(on, span(more, **by), POLICY))
        elif what == "give" and known is not None and more != at:
            answer = hears(nodes[more], known)
            assert answer is not None
            heard[at].add((known.id, known.revision, more))
            hears(on, answer)
            now = on.switch(SPAN)
            assert now is not None
            heard[more].add((now.id, now.revision, at))
        elif what == "settle" and known is not None:
            others = {0, 1, 2} - {at}
            if all((known.id, known.revision, other) in heard[at] for other in others):
                on.apply(settled(on, known))
        lasting = [spans(one) for one in nodes]
        for one, (_, relied) in enumerate(lasting):
            for other, (own, _) in enumerate(lasting):
                assert relied <= own, (one, other, steps)  # type: ignore[operator]


def owning(*states: HolderState, **changes: object) -> LedgerAtHand:
    names = (B, C)
    holders = tuple(
        Holder(name, DB[name], Mark(RUN[name], 5), rank, state)
        for rank, (name, state) in enumerate(zip(names, states, strict=False), 1)
    )
    return ledger_of(A, replace(message(), holders=holders, ranks_given=2, **changes))  # type: ignore[arg-type]


def test_holders_are_told_that_their_owner_has_the_message_and_no_longer_count() -> None:
    on = owning(HolderState.HOLDING, HolderState.LOST)
    assert on.apply(released(on, M, NOW))
    assert {holder.state for holder in on.copies[M].holders} == {HolderState.SUPERSEDED}
    assert on.copies[M].exposed, "once it is on again, a second copy is made"
    told = {(event.addressee, event.verdict.kind, event.verdict.argument) for event in on.told}
    assert told == {(DB[B], VerdictKind.SUPERSEDED, "1"), (DB[C], VerdictKind.SUPERSEDED, "2")}
    assert not on.apply(released(on, M, NOW)), "once"
    assert len(on.told) == 2


@pytest.mark.parametrize(
    "changes",
    [
        {"confirmation": Confirmation.ASK},
        {"confirmation": Confirmation.IN_DOUBT},
        {"damage": Damage.CONTENT},
        {"role": Role.SHADOW, "owner": ServerName("z.example.org")},
    ],
)
def test_a_node_that_may_not_own_the_message_or_has_no_good_copy_lets_no_copy_go(
    changes: dict[str, object],
) -> None:
    on = owning(HolderState.HOLDING, **changes)
    before = on.copies[M]
    assert not on.apply(released(on, M, NOW))
    assert (on.copies[M], on.told) == (before, [])
