"""Of a message in Safety Net a new one is made: by whom, of what, for which recipients, and once."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from asked import REQUEST, SETTLED, request, request_id, settled
from decision_inputs import POLICY, SPEAKER, holder
from ledger_at_hand import NOW, A, B, C, LedgerAtHand, M, ledger_of

from shadowrelay.core.decisions import Content, Outcome, SaveCopy, VerdictKind
from shadowrelay.core.events.reports import ReportKind, is_due, resubmitted_id
from shadowrelay.core.identifiers import MessageId, ServerName
from shadowrelay.core.members.answers import answer
from shadowrelay.core.members.claims import sighting_of_member
from shadowrelay.core.members.conversation import Answered
from shadowrelay.core.members.second_opinion import others
from shadowrelay.core.messages import Confirmation, Copy, Damage, HolderState, Role, Status
from shadowrelay.core.ownership.transfer import with_better_holder
from shadowrelay.core.reception.shadow_servers import MemberPlace
from shadowrelay.core.reckoning import Endings
from shadowrelay.core.requests import Place, Progress, Request, RequestState, Skipped
from shadowrelay.core.safety_net import resubmission
from shadowrelay.core.safety_net.resubmission import Contacts
from shadowrelay.core.steps import Ask, Unanswered
from shadowrelay.safety_net.resubmitting import asked_elsewhere

EVERYBODY = Contacts(frozenset({B, C}), frozenset({B, C}), frozenset())
NEW = resubmitted_id(REQUEST, M)
Made = tuple[list[Copy], dict[Skipped, int]]


def carried_out(
    on: LedgerAtHand,
    asked: Request | None = None,
    owner: ServerName = A,
    contacts: Contacts = EVERYBODY,
    elsewhere: Collection[MessageId] = (),
    unsound: Collection[MessageId] = (),
) -> Made:
    """Carry out what is left of a request for one owner. The messages made, and what was skipped."""
    asked = asked or request()
    if on.request(asked.id) is None:
        on._put("records", (Request, asked.id), asked)
    before = set(on.copies)
    while found := resubmission.batch(on, asked.id, owner, contacts, POLICY, Endings(NOW)):
        resubmission.made(on, found, elsewhere, unsound, contacts, POLICY, NOW)
    parts = [one for one in on.progress(asked.id) if (one.node, one.owner) == (on.name, owner)]
    return [on.copies[id_] for id_ in set(on.copies) - before], dict(parts[0].skipped) if parts else {}


def test_a_message_of_our_own_is_made_with_the_content_of_the_original() -> None:
    original = settled()
    (new,), skipped = carried_out(ledger_of(A, original))
    assert (new.id, new.epoch, new.owner, new.content_of, new.request) == (NEW, 1, A, M, REQUEST)
    assert new.envelope.sender == original.envelope.sender
    assert new.digests is not None
    assert original.digests is not None
    assert new.digests.content == original.digests.content
    assert [one.address for one in new.unsettled] == [one.address for one in original.recipients]
    assert (new.received_at, skipped) == (NOW, {})


def test_the_tracking_log_says_of_what_for_whom_and_for_which_request() -> None:
    on = ledger_of(A, settled())
    carried_out(on)
    (event,) = on.events
    row = event.columns()
    assert (row["event-id"], row["source"], row["reference"]) == ("RESUBMIT", "SAFETYNET", M)
    assert row["network-message-id"] == NEW
    assert f"S:Request={REQUEST};S:Owner=a" in row["custom-data"]


@pytest.mark.parametrize("kind", ReportKind)
def test_nobody_gets_a_report_about_it(kind: ReportKind) -> None:
    asking = settled()
    all_kinds = ("SUCCESS", "FAILURE", "DELAY")
    wanted = replace(asking, recipients=tuple(replace(r, notify=all_kinds) for r in asking.recipients))
    (new,), _ = carried_out(ledger_of(A, wanted))
    assert not any(is_due(kind, one, new.envelope) for one in new.recipients)


def changed(copy: Copy, number: int, **how: Any) -> Copy:
    return copy.with_recipients(replace(r, **how) for r in copy.recipients if r.number == number)


@pytest.mark.parametrize(
    "how",
    [
        {"status": Status.RELAYED},
        {"status": Status.FAILED},
        {"settled_at": None},
        {"settled_at": SETTLED - timedelta(hours=2)},
        {"settled_at": SETTLED + timedelta(hours=1)},
    ],
)
def test_only_recipients_that_were_delivered_inside_in_the_window_get_it_again(how: dict[str, Any]) -> None:
    (new,), _ = carried_out(ledger_of(A, changed(settled(), 1, **how)))
    assert [one.number for one in new.recipients] == [2]


def test_what_crossed_the_boundary_is_never_made_and_is_counted() -> None:
    assert carried_out(ledger_of(A, settled(status=Status.RELAYED))) == ([], {Skipped.OUTSIDE: 1})


@pytest.mark.parametrize(
    ("selector", "numbers"),
    [
        ({"recipient": "x@example.net"}, [1]),
        ({"recipient": "*@example.net"}, [1, 2]),
        ({"recipient": "*@xample.net"}, []),
        ({"next_hops": ("h",)}, [1, 2]),
        ({"next_hops": ("i",)}, []),
        ({"sender": "S@example.org".lower()}, [1, 2]),
        ({"sender": "*@example.com"}, []),
        ({"network_message_id": M}, [1, 2]),
        ({"network_message_id": NEW}, []),
        ({"message_id": "<other@x>"}, []),
    ],
)
def test_a_request_names_next_hop_sender_recipient_or_message(
    selector: dict[str, Any], numbers: list[int]
) -> None:
    asked = request()
    made, skipped = carried_out(
        ledger_of(A, settled()), replace(asked, selector=replace(asked.selector, **selector))
    )
    assert [one.number for new in made for one in new.recipients] == numbers
    assert skipped == {}


def test_a_message_that_was_itself_resubmitted_is_not_made_again() -> None:
    again = settled(content_of=MessageId("m"), request=request_id(9))
    assert carried_out(ledger_of(A, again)) == ([], {Skipped.RESUBMITTED: 1})


def test_a_content_that_is_damaged_or_was_not_compared_is_not_used() -> None:
    assert carried_out(ledger_of(A, settled(damage=Damage.CONTENT))) == ([], {Skipped.DAMAGED: 1})
    assert carried_out(ledger_of(A, settled(digests=None))) == ([], {Skipped.DAMAGED: 1})
    assert carried_out(ledger_of(A, settled()), unsound=[M]) == ([], {Skipped.DAMAGED: 1})


def test_two_requests_for_the_same_message_make_two() -> None:
    on = ledger_of(A, settled())
    first, second = carried_out(on)[0], carried_out(on, request(2))[0]
    assert len({one.id for one in (*first, *second)}) == 2


def test_what_a_member_has_or_had_is_not_made() -> None:
    assert carried_out(ledger_of(A, settled()), elsewhere=[M]) == ([], {Skipped.ELSEWHERE: 1})


def test_what_is_on_record_here_is_not_made_again_even_when_it_is_long_gone() -> None:
    on = ledger_of(A, settled())
    on._put("outcomes", NEW, Outcome(NEW, 1, (1, 2), NOW))
    assert carried_out(on) == ([], {Skipped.ELSEWHERE: 1})


def test_a_batch_that_was_made_already_changes_nothing() -> None:
    on = ledger_of(A, settled())
    on._put("records", (Request, REQUEST), request())
    found = resubmission.batch(on, REQUEST, A, EVERYBODY, POLICY, Endings(NOW))
    assert found is not None
    assert resubmission.made(on, found, (), (), EVERYBODY, POLICY, NOW) == 1
    assert resubmission.made(on, found, (), (), EVERYBODY, POLICY, NOW) == 0


@pytest.mark.parametrize("state", [RequestState.PAUSED, RequestState.REMOVED])
def test_a_request_that_is_paused_or_removed_meanwhile_makes_nothing(state: RequestState) -> None:
    on = ledger_of(A, settled())
    on._put("records", (Request, REQUEST), request())
    found = resubmission.batch(on, REQUEST, A, EVERYBODY, POLICY, Endings(NOW))
    assert found is not None
    on._put("records", (Request, REQUEST), request().changed(state, B, NOW, "ann"))
    assert resubmission.made(on, found, (), (), EVERYBODY, POLICY, NOW) == 0
    assert resubmission.batch(on, REQUEST, A, EVERYBODY, POLICY, Endings(NOW)) is None


def test_a_request_that_is_too_old_makes_nothing() -> None:
    on = ledger_of(A, settled())
    on._put("records", (Request, REQUEST), request())
    later = NOW + POLICY.resubmit_request_age
    assert resubmission.batch(on, REQUEST, A, EVERYBODY, POLICY, Endings(later)) is None


# The second copy.


def test_it_waits_for_its_second_copy_and_then_leaves_at_once() -> None:
    (new,), _ = carried_out(ledger_of(A, settled()))
    assert {one.next_attempt for one in new.recipients} == {NOW + POLICY.shadow_time_cap}
    uncertain, _ = with_better_holder(new, holder(B, state=HolderState.UNCERTAIN), (), NOW)
    assert {one.next_attempt for one in uncertain.recipients} == {NOW + POLICY.shadow_time_cap}
    safe, _ = with_better_holder(new, holder(B), (), NOW)
    assert {one.next_attempt for one in safe.recipients} == {None}


def test_a_second_copy_does_not_hasten_a_retry() -> None:
    (new,), _ = carried_out(ledger_of(A, settled()))
    later = NOW + timedelta(hours=1)
    tried = new.with_recipients(replace(r, attempts=1, next_attempt=later) for r in new.recipients)
    safe, _ = with_better_holder(tried, holder(B), (), NOW)
    assert {one.next_attempt for one in safe.recipients} == {later}


def test_in_a_boundary_of_one_it_waits_for_nobody() -> None:
    alone = Contacts(frozenset(), frozenset(), frozenset())
    (new,), _ = carried_out(ledger_of(A, settled()), contacts=alone)
    assert (new.confirmation, {one.next_attempt for one in new.recipients}) == (Confirmation.NONE, {None})


def test_every_member_is_asked_about_it_before_it_leaves() -> None:
    (new,), _ = carried_out(ledger_of(A, settled()))
    assert (new.confirmation, new.confirm_since) == (Confirmation.ASK, NOW)


# Whose turn it is.


def held(**changes: Any) -> Copy:
    return settled(Role.SHADOW, **changes)


SILENT = replace(EVERYBODY, reachable=frozenset({C}), members=frozenset({A, C}), silent=frozenset({A}))
AWAY = replace(SILENT, silent=frozenset())
AT_HAND = Contacts(frozenset({A, C}), frozenset({A, C}), frozenset())


def made_by_holder(
    contacts: Contacts, on: LedgerAtHand | None = None, asked: Request | None = None
) -> list[Copy]:
    return carried_out(on or ledger_of(B, held()), asked, owner=A, contacts=contacts)[0]


def test_a_holder_leaves_it_to_an_owner_that_can_be_reached_or_was_silent_for_a_short_time() -> None:
    assert made_by_holder(AT_HAND) == []
    assert made_by_holder(AWAY) == []


def test_a_holder_answers_for_an_owner_that_is_silent_for_long() -> None:
    (new,) = made_by_holder(SILENT)
    assert (new.id, new.owner) == (NEW, B)


def test_a_holder_answers_for_an_owner_that_was_retired_or_is_no_member() -> None:
    assert made_by_holder(Contacts(frozenset({C}), frozenset({C}), frozenset()))
    on = ledger_of(B, held())
    on._put("known", A, replace(on.known[A], retired=True))
    assert made_by_holder(AWAY, on)


def test_an_operator_says_that_an_owner_is_gone_and_is_not_believed_while_it_answers() -> None:
    gone = request(gone=(A,))
    assert made_by_holder(AWAY, asked=gone)
    assert made_by_holder(AT_HAND, asked=gone) == []


def test_a_holder_answers_for_a_database_that_its_owner_does_not_have_any_more() -> None:
    on = ledger_of(B, held(owner_database="db-of-before"))
    on._put("known", A, replace(on.known[A], broken_at=NOW - timedelta(minutes=5)))
    assert made_by_holder(AT_HAND, on)


@pytest.mark.parametrize(
    ("ago", "count"), [(timedelta(minutes=80), 1), (timedelta(minutes=149), 1), (timedelta(minutes=151), 0)]
)
def test_a_holder_answers_for_what_was_settled_before_a_rollback_and_for_an_hour_more(
    ago: timedelta, count: int
) -> None:
    on = ledger_of(B, held())
    on._put("known", A, replace(on.known[A], broken_at=NOW - ago))
    assert len(made_by_holder(AT_HAND, on)) == count


def test_what_was_passed_over_is_made_when_its_owner_is_lost_for_good() -> None:
    on = ledger_of(B, held())
    on._put("known", A, replace(on.known[A], broken_at=SETTLED - timedelta(hours=5)))
    assert made_by_holder(AT_HAND, on) == []
    assert len(made_by_holder(SILENT, on)) == 1


def test_an_owner_that_comes_back_meanwhile_makes_its_messages_itself() -> None:
    on = ledger_of(B, held())
    on._put("records", (Request, REQUEST), request())
    found = resubmission.batch(on, REQUEST, A, SILENT, POLICY, Endings(NOW))
    assert found is not None
    assert resubmission.made(on, found, (), (), AT_HAND, POLICY, NOW) == 0


def test_the_question_at_epoch_0_finds_the_message_and_records_nobody() -> None:
    on = ledger_of(A, settled())
    (new,), _ = carried_out(on)
    said = answer(on, SPEAKER, NEW, 0, None, NOW)
    assert [one.kind for one in said.then] == [VerdictKind.TAKEN]
    assert said.writes == ()
    assert on.copies[NEW] == new


def test_the_content_is_not_stored_again() -> None:
    decision = resubmission.make(ledger_of(A, settled()), request(), settled(), EVERYBODY, POLICY, NOW)
    (write,) = decision.writes
    assert isinstance(write, SaveCopy)
    assert write.content == Content(of=M)


def test_owners_are_this_node_and_all_that_were_ever_members() -> None:
    on = ledger_of(A)
    assert resubmission.owners(on, Contacts(frozenset({C}), frozenset(), frozenset())) == (A, B, C)


# Silence is no proof of a loss.


def told(on: LedgerAtHand, **changes: Any) -> LedgerAtHand:
    """The owner said how far it has come."""
    own = Progress(request=REQUEST, node=A, owner=A)
    on._put("parts", (Progress, (REQUEST, A, A)), replace(own, **changes))
    return on


GONE = request(gone=(A,))
PASSED = {"place": Place(SETTLED, M)}


@pytest.mark.parametrize("has", [{"done": True}, PASSED])
@pytest.mark.parametrize(("contacts", "asked"), [(SILENT, None), (AWAY, GONE)])
def test_what_an_owner_said_to_have_gone_through_is_left_to_it_while_it_is_away(
    has: dict[str, Any], contacts: Contacts, asked: Request | None
) -> None:
    on = told(ledger_of(B, held()), **has)
    assert carried_out(on, asked, owner=A, contacts=contacts) == ([], {Skipped.ELSEWHERE: 1})


def test_what_an_owner_has_not_come_to_is_made_while_it_is_away() -> None:
    before = Place(SETTLED - timedelta(seconds=1), M)
    assert len(made_by_holder(SILENT, told(ledger_of(B, held()), place=before))) == 1


def test_what_was_left_to_an_owner_is_made_when_it_is_retired_or_lost_its_database() -> None:
    on = told(ledger_of(B, held()), done=True)
    assert made_by_holder(SILENT, on) == []
    on._put("known", A, replace(on.known[A], retired=True))
    assert len(made_by_holder(SILENT, on)) == 1
    on = told(ledger_of(B, held(owner_database="db-of-before")), done=True)
    assert len(made_by_holder(SILENT, on)) == 1


def test_members_are_asked_whether_they_see_an_owner_only_if_silence_alone_is_against_it() -> None:
    def asks(contacts: Contacts, asked: Request) -> bool:
        on = ledger_of(B, held())
        on._put("records", (Request, REQUEST), asked)
        found = resubmission.batch(on, REQUEST, A, contacts, POLICY, Endings(NOW))
        assert found is not None
        return found.suspected

    assert asks(SILENT, request())
    assert not asks(SILENT, GONE)
    assert not asks(Contacts(frozenset({C}), frozenset({C}), frozenset()), request())


def what_is_elsewhere(said: Sequence[Answered | Unanswered], places: Sequence[MemberPlace]) -> Any:
    """What the script says about a silent owner, when the members that can be reached say that."""
    on = ledger_of(B, held())
    on._put("records", (Request, REQUEST), request())
    found = resubmission.batch(on, REQUEST, A, SILENT, POLICY, Endings(NOW))
    assert found is not None
    sighting = sighting_of_member(on, A)
    reachable = [place.name for place in places[: len(said)]]
    script = asked_elsewhere(found, reachable, sighting, others(HERE, places, A))
    try:
        step = script.send(None)
        for answered in said:
            assert isinstance(step, Ask)
            assert step.query.sighting == sighting is not None
            step = script.send(answered)
    except StopIteration as stop:
        return stop.value
    raise AssertionError("it asks on")


HERE = MemberPlace(B, "s", "host-b")
ALONG = MemberPlace(C, "s", "host-b")
THIRD = MemberPlace(C, "s", "host-c")
OWNER = MemberPlace(A, "s", "host-a")
NO = Unanswered("connect", "refused")
ANSWER = Answered((), SPEAKER[C].mark)


@pytest.mark.parametrize(
    ("said", "places", "may"),
    [
        ([ANSWER], [THIRD, OWNER], True),
        ([replace(ANSWER, seen=A)], [THIRD, OWNER], False),
        ([NO], [THIRD, OWNER], False),
        ([], [THIRD, OWNER], False),
        ([ANSWER], [ALONG, OWNER], True),
        ([], [OWNER], True),
    ],
)
def test_a_silent_owner_is_answered_for_if_no_member_sees_it_and_another_machine_answers(
    said: list[Answered | Unanswered], places: list[MemberPlace], may: bool
) -> None:
    assert what_is_elsewhere(said, places) == (frozenset() if may else None)
