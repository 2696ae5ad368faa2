"""A settlement that has a report is announced once that report is safe."""

from __future__ import annotations

from dataclasses import replace

from decision_inputs import HOP, SPEAKER, attempt, holder
from ledger_at_hand import DB, NOW, A, B, LedgerAtHand, M, ledger_of, message

from shadowrelay.core.decisions import Outcome, VerdictKind
from shadowrelay.core.delivery.settling import AttemptResult, Ending, Report, settle
from shadowrelay.core.events.reports import ReportKind, report_id
from shadowrelay.core.events.side_effects import already_safe, report_is_safe, waited_in_vain
from shadowrelay.core.identifiers import Incarnation, MessageId, NextHop
from shadowrelay.core.members.answers import answer
from shadowrelay.core.messages import Confirmation, Role
from shadowrelay.core.reception import redundancy
from shadowrelay.core.reception.redundancy import Leg

DSN = report_id(M, 1, ReportKind.FAILED)


def fail(on: LedgerAtHand) -> None:
    report = Report(id=DSN, about=1, content=b"x", next_hop=NextHop("back"))
    on.apply(settle(on, M, [AttemptResult(1, Ending.REJECTED, "550 5.1.1")], [report], HOP, NOW))


def test_a_failure_is_announced_only_when_its_report_is_safe() -> None:
    on = ledger_of(A, message(holders=(holder(B),)))
    fail(on)
    assert on.told == []
    on.apply(redundancy.repaired(on, DSN, attempt(Leg.ACKNOWLEDGED), NOW))
    assert [(e.addressee, e.verdict.argument, e.verdict.recipients) for e in on.told] == [
        (DB[B], "failed", (1,))
    ]


def test_a_report_that_somebody_else_made_is_safe_at_once() -> None:
    on = ledger_of(A, message(holders=(holder(B),)))
    on.copies[DSN] = replace(message(Role.SHADOW, owner=B, owner_database=DB[B]), id=DSN)
    assert already_safe(on, DSN)
    fail(on)
    assert on.copies[M].recipients[0].report is None
    assert len(on.told) == 1


def test_a_report_that_nobody_knows_is_not_safe() -> None:
    assert not already_safe(ledger_of(A), DSN)


def test_only_the_recipients_that_waited_for_this_report_are_announced() -> None:
    on = ledger_of(A, message(holders=(holder(B),)))
    fail(on)
    first, second = on.copies[M].recipients
    on.copies[M] = on.copies[M].with_recipients([replace(second, report=MessageId("another"))])
    on.apply(report_is_safe(on, on.copies[DSN], NOW))
    assert [recipient.report for recipient in on.copies[M].recipients] == [None, "another"]
    assert first.report == DSN


def test_a_wait_for_a_report_that_was_settled_long_ago_ends() -> None:
    on = ledger_of(A, message(holders=(holder(B),)))
    fail(on)
    on.apply(waited_in_vain(on, on.copies[M], NOW))
    assert on.told == []
    del on.copies[DSN]
    on.outcomes[DSN] = Outcome(DSN, 1, (1,), NOW)
    on.apply(waited_in_vain(on, on.copies[M], NOW))
    assert [(e.addressee, e.verdict.recipients) for e in on.told] == [(DB[B], (1,))]


def test_an_owner_that_is_asked_ends_a_wait_for_what_is_safe_already() -> None:
    """A page of before said again that the recipient waits: its report left long ago."""
    on = ledger_of(A, message(holders=(holder(B),)))
    fail(on)
    on.apply(settle(on, M, [AttemptResult(2, Ending.ACCEPTED, "250 2.0.0")], (), HOP, NOW))
    assert [one.kind for one in answer(on, SPEAKER[B], M, 1, None, NOW).then] == [VerdictKind.DELIVERED]
    assert on.copies[M].recipients[0].waits
    del on.copies[DSN]
    on.outcomes[DSN] = Outcome(DSN, 1, (1,), NOW)
    said = on.apply(answer(on, SPEAKER[B], M, 1, None, NOW))
    assert sorted((one.argument, one.recipients) for one in said) == [("failed", (1,)), ("relayed", (2,))]
    assert not any(one.waits for one in on.copies[M].recipients)


def test_what_is_made_of_a_message_of_an_earlier_process_is_asked_about_first() -> None:
    """The database may have been put back to before it made the same."""
    now, before = ledger_of(A, message()), ledger_of(A, message(offered_in=Incarnation("9" * 16)))
    for on in (now, before):
        fail(on)
    assert now.copies[DSN].confirmation is Confirmation.NONE
    assert (before.copies[DSN].confirmation, before.copies[DSN].confirm_since) == (Confirmation.ASK, NOW)
