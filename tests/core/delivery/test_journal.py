"""A journal copy is made once, with the first settlement, and settlements wait until it is safe."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from decision_inputs import HOP, POLICY, SPEAKER, attempt, holder
from ledger_at_hand import DB, NOW, A, B, LedgerAtHand, M, ledger_of, message

from shadowrelay.core.decisions import DamagedRow, Outcome, VerdictKind
from shadowrelay.core.delivery.journal import JournalCopy, journal_of
from shadowrelay.core.delivery.settling import AttemptResult, Ending, Report, settle
from shadowrelay.core.events.reports import ReportKind, derived_id, is_derived, report_id
from shadowrelay.core.events.side_effects import waited_in_vain
from shadowrelay.core.identifiers import MessageId, NextHop, RequestId
from shadowrelay.core.members.answers import answer
from shadowrelay.core.messages import Confirmation, Copy, Damage, Role, Stage, Status
from shadowrelay.core.ownership.handover import hand_over
from shadowrelay.core.reception import redundancy
from shadowrelay.core.reception.redundancy import Leg
from shadowrelay.core.safety_net.expiry import expire

ADDRESS, ARCHIVE = "journal@archive.example", NextHop("archive")
JOURNALS = {NextHop("h"): (ADDRESS, ARCHIVE)}
J = derived_id("journal", M, ADDRESS)
DSN = report_id(M, 1, ReportKind.FAILED)


def wanted(copy: Copy) -> JournalCopy:
    found = journal_of(copy, JOURNALS)
    assert found
    return found


def settles(on: LedgerAtHand, *numbers: int, reports: tuple[Report, ...] = (), fails: bool = False) -> None:
    ending, reply = (Ending.REJECTED, "550 5.1.1") if fails else (Ending.ACCEPTED, "250 2.0.0")
    results = [AttemptResult(n, ending, reply) for n in numbers]
    copy = on.copies[M]
    on.apply(settle(on, M, results, (*reports, wanted(copy)), HOP, NOW))


def told(on: LedgerAtHand) -> list[tuple[int, ...]]:
    return [event.verdict.recipients for event in on.told]


def owned(**changes: object) -> LedgerAtHand:
    return ledger_of(A, message(holders=(holder(B),), **changes))


def safe(on: LedgerAtHand, message_id: MessageId = J) -> None:
    on.apply(redundancy.repaired(on, message_id, attempt(Leg.ACKNOWLEDGED), NOW))


def test_the_copy_has_the_content_of_the_message_and_goes_to_the_journal_alone() -> None:
    on = owned()
    settles(on, 1)
    made = on.copies[J]
    assert is_derived(J)
    assert (made.content_of, made.reports_on, made.request, made.owned, made.exposed) == (
        M,
        M,
        None,
        True,
        True,
    )
    assert [(one.address, one.next_hop, one.notify) for one in made.recipients] == [
        (ADDRESS, ARCHIVE, ("NEVER",))
    ]
    assert (made.envelope.sender, made.envelope.size, made.envelope.ret) == ("", 1, None)
    assert made.digests
    assert made.digests.content == message().digests.content  # type: ignore[union-attr]
    assert made.confirmation is Confirmation.NONE
    assert [(e.event_id, e.source) for e in on.events] == [("SENDEXTERNAL", "SMTP"), ("RECEIVE", "AGENT")]
    assert on.events[-1].columns()["reference"] == M


def test_settlements_are_announced_once_the_journal_copy_has_a_second_copy() -> None:
    on = owned()
    settles(on, 1)
    assert told(on) == []
    settles(on, 2)
    assert told(on) == []
    assert [one.journal for one in on.copies[M].recipients] == [J, J]
    safe(on)
    assert told(on) == [()]
    assert not any(one.waits for one in on.copies[M].recipients)


def test_a_message_has_one_journal_copy_however_often_it_is_settled() -> None:
    on = owned()
    settles(on, 1)
    safe(on)
    settles(on, 2)
    assert [e.event_id for e in on.events if e.source == "AGENT"] == ["RECEIVE"]
    assert told(on) == [(1,), (2,)]


def test_a_journal_copy_that_was_delivered_is_safe() -> None:
    on = owned()
    settles(on, 1)
    on.apply(settle(on, J, [AttemptResult(1, Ending.ACCEPTED, "250")], (), HOP, NOW))
    assert on.copies[J].stage is Stage.SAFETY_NET
    assert told(on) == [(1,)]


@pytest.mark.parametrize("first", ["report", "journal"])
def test_a_failure_waits_for_its_report_and_for_the_journal_copy(first: str) -> None:
    on = owned()
    report = Report(id=DSN, about=1, content=b"x", next_hop=NextHop("back"))
    settles(on, 1, reports=(report,), fails=True)
    one = on.copies[M].recipients[0]
    assert (one.report, one.journal) == (DSN, J)
    both = [DSN, J] if first == "report" else [J, DSN]
    safe(on, both[0])
    assert told(on) == []
    assert on.copies[M].recipients[0].waits
    safe(on, both[1])
    assert told(on) == [(1,)]


def test_nothing_is_journaled_before_anything_is_settled() -> None:
    on = owned()
    results = [AttemptResult(1, Ending.DEFERRED, "451", timedelta(60))]
    on.apply(settle(on, M, results, (wanted(on.copies[M]),), HOP, NOW))
    assert J not in on.copies


def test_a_message_that_others_have_settled_in_part_was_journaled_by_them() -> None:
    on = owned()
    first = on.copies[M].recipients[0]
    on.copies[M] = on.copies[M].with_recipients([replace(first, status=Status.DELIVERED)])
    settles(on, 2)
    assert J not in on.copies
    assert told(on) == [(2,)]


@pytest.mark.parametrize(
    "changes", [{"epoch": 2}, {"role": Role.SHADOW, "owner": B, "owner_database": DB[B]}]
)
def test_of_a_message_that_was_taken_over_another_node_may_have_made_it(changes: dict[str, object]) -> None:
    on = ledger_of(A, message(**changes))
    settles(on, 1)
    assert on.copies[J].confirmation is Confirmation.ASK


def test_a_journal_copy_that_is_known_here_is_not_made_again() -> None:
    on = owned()
    on.outcomes[J] = Outcome(J, 1, (1,), NOW)
    settles(on, 1)
    assert J not in on.copies
    assert told(on) == [(1,)]
    held = owned()
    held.copies[J] = replace(message(Role.SHADOW, owner=B, owner_database=DB[B]), id=J)
    settles(held, 1)
    assert held.copies[J].held
    assert told(held) == [(1,)]


def test_a_journal_copy_that_was_promoted_here_ends_the_wait_when_it_is_safe() -> None:
    on = owned(epoch=2)
    on.copies[J] = replace(message(), id=J, content_of=M)
    settles(on, 1)
    assert told(on) == []
    safe(on)
    assert told(on) == [(1,)]


def test_what_is_not_journaled() -> None:
    assert journal_of(message(), {}) is None
    assert journal_of(message(), {NextHop("another"): (ADDRESS, ARCHIVE)}) is None
    assert journal_of(replace(message(), id=J), JOURNALS) is None
    assert journal_of(replace(message(), id=DSN), JOURNALS) is None
    assert journal_of(message(request=RequestId("01900000-0000-4000-8000-000000000001")), JOURNALS) is None
    assert journal_of(message(damage=Damage.CONTENT), JOURNALS) is None


def test_a_message_whose_recipients_have_two_journals_goes_to_both_under_an_id_of_its_own() -> None:
    copy = message()
    two = copy.with_recipients([replace(copy.recipients[1], next_hop=NextHop("other"))])
    found = journal_of(two, JOURNALS | {NextHop("other"): ("a@b.example", NextHop("b"))})
    assert found
    assert [(one.number, one.address) for one in found.recipients] == [(1, "a@b.example"), (2, ADDRESS)]
    assert found.id != wanted(copy).id == J


def test_safety_net_keeps_a_message_whose_journal_copy_is_not_safe() -> None:
    on = owned()
    settles(on, 1, 2)
    later = NOW + POLICY.safety_net_hold_time
    assert on.apply(expire(on, on.copies[M], POLICY, later, ())) is False
    assert M in on.copies
    del on.copies[J]
    on.outcomes[J] = Outcome(J, 1, (1,), NOW)
    on.apply(waited_in_vain(on, on.copies[M], later))
    assert told(on) == [()]
    assert on.apply(expire(on, on.copies[M], POLICY, later, ())) is True


def test_a_message_of_which_the_holder_does_not_know_what_is_delivered_is_not_handed_over() -> None:
    on = owned()
    settles(on, 1)
    assert on.apply(hand_over(on, on.copies[M], {B}, NOW)) is None
    safe(on)
    assert on.apply(hand_over(on, on.copies[M], {B}, NOW)) == B


def test_an_owner_yields_once_it_can_tell_what_it_has_delivered() -> None:
    on = owned()
    settles(on, 1)
    asked = {"epoch": 2, "rank": 1, "now": NOW}

    def said() -> list[VerdictKind]:
        return [one.kind for one in on.apply(answer(on, SPEAKER[B], M, **asked))]

    assert said() == [VerdictKind.PENDING]
    assert on.copies[M].owned
    safe(on)
    assert said() == [VerdictKind.DELIVERED, VerdictKind.YOURS]
    assert on.copies[M].held


def test_a_message_whose_rows_were_damaged_during_the_attempt_is_journaled_all_the_same() -> None:
    on = owned()
    sent = on.copies.pop(M)
    on.state.damaged[M] = DamagedRow(M, NOW, "a sum differs")
    results = [AttemptResult(1, Ending.ACCEPTED, "250")]
    for _ in range(2):
        on.apply(settle(on, M, results, (wanted(sent),), HOP, NOW, sent=sent))
    assert on.copies[J].content_of == M
    assert [e.event_id for e in on.events if e.source == "AGENT"] == ["RECEIVE"]
