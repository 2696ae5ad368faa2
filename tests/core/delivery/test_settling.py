"""What an attempt leads to: recipients settled, reports, discard events."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from decision_inputs import HOP, attempt, holder
from ledger_at_hand import DB, NOW, A, B, Books, C, M, books, message

from shadowrelay.core.delivery.settling import AttemptResult, Ending, Report, settle
from shadowrelay.core.events import side_effects
from shadowrelay.core.events.reports import ReportKind, report_id
from shadowrelay.core.identifiers import NextHop
from shadowrelay.core.messages import HolderState, Role, Stage, Status
from shadowrelay.core.reception import redundancy
from shadowrelay.core.reception.redundancy import Leg


def test_a_delivery_that_somebody_else_settled_meanwhile_has_its_row_all_the_same(on_a: Books) -> None:
    first = message().recipients[0]
    on_a.copies[M] = message().with_recipients([replace(first, status=Status.DELIVERED)])
    results = [AttemptResult(1, Ending.ACCEPTED, "250 ok"), AttemptResult(2, Ending.ACCEPTED, "250 ok")]
    on_a.apply(settle(on_a, M, results, (), HOP, NOW))
    rows = [event for event in on_a.events if event.event_id == "SENDEXTERNAL"]
    assert sorted(r.number for row in rows for r in row.recipients) == [1, 2]
    assert on_a.copies[M].recipients[0].status is Status.DELIVERED


def test_settling_tells_every_possible_holder_in_the_same_decision() -> None:
    on = books(A, message(holders=(holder(B), holder(C, HolderState.UNCERTAIN, 2))))
    results = [
        AttemptResult(1, Ending.ACCEPTED, "250 2.0.0"),
        AttemptResult(2, Ending.DEFERRED, "451 4.3.2", timedelta(60)),
    ]
    on.apply(settle(on, M, results, (), HOP, NOW))
    assert {(e.addressee, e.verdict.recipients) for e in on.told} == {(DB[B], (1,)), (DB[C], (1,))}
    assert [event.event_id for event in on.events] == ["SENDEXTERNAL", "DEFER"]


def test_a_delivery_that_was_overtaken_by_a_promotion_still_settles() -> None:
    on = books(A, message(Role.SHADOW, owner=B, owner_database=DB[B], epoch=2))
    results = [AttemptResult(n, Ending.ACCEPTED, "250 2.0.0") for n in (1, 2)]
    on.apply(settle(on, M, results, (), HOP, NOW))
    assert on.copies[M].stage is Stage.SAFETY_NET
    assert [e.addressee for e in on.told] == [DB[B]]


DSN = report_id(M, 1, ReportKind.FAILED)


def fail(on: Books) -> None:
    report = Report(id=DSN, about=1, content=b"x", next_hop=NextHop("back"))
    on.apply(settle(on, M, [AttemptResult(1, Ending.REJECTED, "550 5.1.1")], [report], HOP, NOW))


def test_a_failure_is_announced_only_when_its_report_is_safe() -> None:
    on = books(A, message(holders=(holder(B),)))
    fail(on)
    assert on.told == []
    on.apply(redundancy.repaired(on, DSN, attempt(Leg.ACKNOWLEDGED), NOW))
    assert [(e.addressee, e.verdict.argument, e.verdict.recipients) for e in on.told] == [
        (DB[B], "failed", (1,))
    ]


def test_a_report_that_somebody_else_made_is_safe_at_once() -> None:
    on = books(A, message(holders=(holder(B),)))
    on.copies[DSN] = replace(message(Role.SHADOW, owner=B, owner_database=DB[B]), id=DSN)
    assert side_effects.already_safe(on, DSN)
    fail(on)
    assert on.copies[M].recipients[0].report is None
    assert len(on.told) == 1


def test_two_nodes_cannot_make_two_reports() -> None:
    assert report_id(M, 1, ReportKind.FAILED) == report_id(M, 1, ReportKind.FAILED)
    assert report_id(M, 1, ReportKind.FAILED) != report_id(M, 2, ReportKind.FAILED)
