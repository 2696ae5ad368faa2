"""A setting that is switched for all members: which record counts, when the file does, what owners say."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from datetime import timedelta

import pytest
from decision_inputs import POLICY
from giving_records import hears
from ledger_at_hand import DB, NOW, RUN, A, B, C, LedgerAtHand, M, ledger_of, message

from shadowrelay.core.decisions import VerdictKind
from shadowrelay.core.identifiers import Mark, RequestId, ServerName
from shadowrelay.core.messages import Confirmation, Damage, Holder, HolderState, Role
from shadowrelay.core.policy import Policy, ShadowMessagePreference
from shadowrelay.core.switches import Switch, SwitchValue
from shadowrelay.core.switching import (
    REDUNDANCY,
    SWITCHED,
    WHY_NOT,
    carried,
    fault,
    flipped,
    in_force,
    released,
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
    made = one.apply(flipped(one, switch(value=True, against=True)))
    learnt = merge(other, made, file=False)
    assert (learnt.against, on_with(learnt, file=False)) == (False, True), "for all members at once"
    assert one.switch(REDUNDANCY) == made
    assert merge(other, made, file=True) == learnt, "the same revision again changes nothing"


def test_each_change_is_a_revision_and_the_highest_counts_in_every_order() -> None:
    first = switch(changed_by=A, revision=1)
    later = switch(value=True, changed_by=B, revision=2)
    for order in ([first, later], [later, first]):
        on = ledger_of(C)
        for given in order:
            merge(on, given)
        known = on.switch(REDUNDANCY)
        assert known == later
        made = on.apply(flipped(on, switch()))
        assert merge(on, later) == made == on.switch(REDUNDANCY)


def test_a_change_counts_over_all_that_its_node_knows_though_a_clock_was_ahead() -> None:
    one, other = ledger_of(A), ledger_of(B)
    ahead = one.apply(flipped(one, switch(changed_at=NOW + timedelta(hours=3))))
    merge(other, ahead)
    after = other.apply(flipped(other, switch(value=True, changed_by=B)))
    assert merge(one, after) == after == one.switch(REDUNDANCY)


def test_a_change_counts_over_earlier_ones_that_its_node_lost_with_its_disk() -> None:
    one, lost = ledger_of(A), ledger_of(B)
    for value in (False, True, False):
        one.apply(flipped(one, switch(value=value)))
    known = one.switch(REDUNDANCY)
    assert known is not None
    after = lost.apply(flipped(lost, switch(value=True, changed_by=B, changed_at=NOW + timedelta(seconds=1))))
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
    assert tuple(name for name, _ in VALUES) == SWITCHED
    assert {*SWITCHED, *WHY_NOT} == {one.name for one in fields(Policy)}
    assert not {*SWITCHED} & {*WHY_NOT}


@pytest.mark.parametrize(("name", "value"), VALUES)
def test_a_value_that_was_set_for_all_counts_until_it_is_unset_whatever_the_file_says(
    name: str, value: object
) -> None:
    for file in (POLICY, replace(POLICY, **{name: value})):  # type: ignore[arg-type]
        on = ledger_of(B)
        given = record_from(Switch, json.loads(json.dumps(record_told(setting(name, carried(value))))))
        assert hears(on, given) == given
        assert getattr(in_force(file, on.records(Switch)), name) == value
        assert in_force(file, on.records(Switch)) == replace(file, **{name: value})  # type: ignore[arg-type]
        unset = on.apply(flipped(on, setting(name, None)))
        assert unset.revision > given.revision, "a member that was away has to learn it"
        assert in_force(file, on.records(Switch)) == file


@pytest.mark.parametrize(
    "given",
    [
        setting("data_dir", "/"),
        setting("shadow_resubmit_time_span", 1000),
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
