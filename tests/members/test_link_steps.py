"""The scripts of the talk, step by step: what is in one transaction, and what is looked at again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ledger_at_hand import NOW, RUN, A, B, C, LedgerAtHand, M, ledger_of, lineage, message, steps

from shadowrelay.core.decisions import Verdict, VerdictKind
from shadowrelay.core.identifiers import Mark, ServerName
from shadowrelay.core.members.conversation import Answered, Greeting, Line, Query
from shadowrelay.core.members.second_opinion import Others, others
from shadowrelay.core.messages import Reason, Role, Stage
from shadowrelay.core.ownership.heartbeat import Alarm
from shadowrelay.core.policy import Policy
from shadowrelay.core.reception.shadow_servers import MemberPlace
from shadowrelay.core.steps import Ask, Script, Unanswered
from shadowrelay.members.inquiry import Inquiry
from shadowrelay.members.link import Consequence, poll, unreachable


def polling() -> Script[Unanswered | None]:
    return poll(Greeting(A, lineage(A)), Inquiry(), Policy(), lambda: NOW)


def test_events_and_how_far_they_are_applied_are_one_transaction() -> None:
    """Whoever says AFTER has applied them: the other end forgets them for good."""
    on = ledger_of(B, message(Role.SHADOW))
    told = (Line(3, Verdict(M, 1, VerdictKind.DELIVERED)),)
    for step in steps(polling(), on, lambda _: Answered(told, Mark(RUN[A], 11))):
        applied = on.known[A].applied == Mark(RUN[A], 3)
        assert applied == (on.copies[M].stage is Stage.SAFETY_NET)
        if isinstance(step, Ask):
            assert not applied
    assert applied


def test_an_answer_is_applied_before_the_next_question_says_so() -> None:
    on = ledger_of(B, message(Role.SHADOW))
    page = tuple(
        Line(number, Verdict(M, 1, VerdictKind.DELIVERED, recipients=(1,))) for number in range(1, 201)
    )
    asked: list[Query] = []
    for step in steps(polling(), on, lambda _: Answered(page, Mark(RUN[A], 11))):
        if isinstance(step, Ask):
            asked.append(step.query)
        if len(asked) == 2:
            break
    assert [query.after for query in asked] == [None, Mark(RUN[A], 200)]


ALARMS = (Alarm.HOLDER_LOST, Alarm.PROMOTE)


def came_of(on: LedgerAtHand, answer: object, *, silent: bool = True) -> Consequence:
    asked = others_of({name: name for name in (A, B, C)})
    *_, result = steps(unreachable(A, ALARMS, asked, lambda: silent, lambda: NOW), on, lambda _: answer)
    assert isinstance(result, Consequence)
    return result


def test_nothing_is_promoted_while_another_member_is_in_contact_with_the_owner() -> None:
    on = ledger_of(B, message(Role.SHADOW))
    assert came_of(on, Answered((), Mark(RUN[C], 5), seen=A)) == Consequence(seen_by=C)
    assert on.copies[M].pending is None


def test_nothing_is_promoted_when_the_owner_was_heard_of_while_the_others_were_asked() -> None:
    on = ledger_of(B, message(Role.SHADOW))
    assert came_of(on, Answered((), Mark(RUN[C], 5)), silent=False) == Consequence()
    assert on.copies[M].pending is None


def test_what_nobody_objects_to_is_to_be_promoted() -> None:
    on = ledger_of(B, message(Role.SHADOW))
    assert came_of(on, Answered((), Mark(RUN[C], 5))) == Consequence(promoting=1)
    assert on.copies[M].pending is Reason.HEARTBEAT_LOST


BESIDE = Answered((), Mark(RUN[C], 5))
"""What C says, that stands beside B: it had no contact with A either."""


def test_a_cut_off_machine_does_not_promote_because_its_own_members_answer() -> None:
    on, d = ledger_of(B, message(Role.SHADOW)), ServerName("d")
    hosts = {B: "rack1", C: "rack1", A: "rack2", d: "rack3"}
    script = unreachable(A, ALARMS, others_of(hosts), lambda: True, lambda: NOW)
    assert answered(script, on, {C: BESIDE}) == Consequence(alone=True)
    assert on.copies[M].pending is None
    script = unreachable(A, ALARMS, others_of(hosts), lambda: True, lambda: NOW)
    assert answered(script, on, {d: BESIDE}) == Consequence(promoting=1)


def test_two_machines_are_a_boundary_of_two_however_many_members_they_have() -> None:
    d = ServerName("d")
    for answers in ({C: BESIDE}, {d: BESIDE}, {}):  # a member beside B, one beside A, none
        on = ledger_of(B, message(Role.SHADOW))
        hosts = {B: "rack1", C: "rack1", A: "rack2", d: "rack2"}
        script = unreachable(A, ALARMS, others_of(hosts), lambda: True, lambda: NOW)
        assert answered(script, on, answers) == Consequence(promoting=1)


def test_a_member_beside_us_that_had_contact_with_the_owner_is_believed() -> None:
    on = ledger_of(B, message(Role.SHADOW))
    seen = Answered((), Mark(RUN[C], 5), seen=A)
    script = unreachable(
        A, ALARMS, others_of({B: "rack1", C: "rack1", A: "rack2"}), lambda: True, lambda: NOW
    )
    assert answered(script, on, {C: seen}) == Consequence(seen_by=C)
    assert on.copies[M].pending is None


def others_of(hosts: Mapping[ServerName, str]) -> Others:
    """Who B asks about A."""
    places = {name: MemberPlace(name, "site", host) for name, host in hosts.items()}
    return others(places.pop(B), places.values(), A)


def answered(script: Script[Any], on: LedgerAtHand, answers: Mapping[ServerName, Answered]) -> Any:
    """Its result, if these members answer so, and no other one does."""
    *_, result = steps(script, on, lambda step: answers.get(step.to, Unanswered("connect", "refused")))
    return result


def test_a_node_that_reaches_nobody_promotes_nothing() -> None:
    on = ledger_of(B, message(Role.SHADOW))
    assert came_of(on, Unanswered("connect", "refused")) == Consequence(alone=True)
    assert on.copies[M].pending is None
