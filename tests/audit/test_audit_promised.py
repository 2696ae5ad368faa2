"""What was done is what was promised: addresses, sizes, replies, epochs and reports, on all nodes' rows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from test_audit_verdicts import DELIVERED, EVIDENCE, again, row

from shadowaudit.core.events import COMPARED, Event, Kind
from shadowaudit.core.evidence import Database, Evidence
from shadowaudit.core.findings import MEANING, Class, Finding, Severity
from shadowaudit.core.judge import judge
from shadowaudit.core.reported import absent, report_id
from shadowaudit.core.verdict import PROVEN, Verdict

ID = "01a1f0be-24e4-766c-be62-dc047c6895f0"
ANNA, BEN = "anna@example.com", "ben@example.com"


def addressed(*addresses: str, events: tuple[Event, ...] = DELIVERED) -> tuple[Event, ...]:
    """All rows with these recipients."""
    numbers = tuple(range(1, len(addresses) + 1))
    return tuple(
        replace(one, message=ID, recipients=numbers, addresses=addresses, size=10, sender="s@example.com")
        for one in events
    )


def but(events: tuple[Event, ...], which: Kind, **changes: Any) -> tuple[Event, ...]:
    """These rows, but those of a kind with changes."""
    return tuple(replace(one, **changes) if one.kind is which else one for one in events)


def found(*events: Event, evidence: Evidence = EVIDENCE) -> dict[Class, Finding]:
    return {one.what: one for one in judge(events, evidence).findings}


VIOLATIONS = {what for what, (severity, _) in MEANING.items() if severity is Severity.VIOLATION}
GOOD = addressed(ANNA, BEN)
UNKNOWN = replace(
    EVIDENCE, databases={**EVIDENCE.databases, "mx1": replace(EVIDENCE.databases["mx1"], whole=False)}
)


def test_rows_that_say_the_same_of_every_recipient_give_no_finding() -> None:
    assert found(*GOOD) == {}


# Addresses.


def test_a_recipient_that_is_delivered_under_another_address_is_misdelivered() -> None:
    findings = found(*but(GOOD, Kind.DELIVER, addresses=(ANNA, "eve@example.com")))
    assert set(findings) == {Class.MISDELIVERED}
    finding = findings[Class.MISDELIVERED]
    assert (finding.severity, finding.recipients) == (Severity.VIOLATION, (2,))
    assert {GOOD[index].kind for index in finding.rows} == {Kind.RECEIVE, Kind.DELIVER}


@pytest.mark.parametrize("kind", [Kind.HARECEIVE, Kind.HAREDIRECT, Kind.HADISCARD])
def test_a_copy_for_another_address_is_altered(kind: Kind) -> None:
    assert set(found(*but(GOOD, kind, addresses=(ANNA, "eve@example.com")))) == {Class.ALTERED}


def test_addresses_that_were_exchanged_are_not_equal() -> None:
    assert set(found(*but(GOOD, Kind.DELIVER, addresses=(BEN, ANNA)))) == {Class.MISDELIVERED}


def test_a_domain_is_the_same_in_any_case_and_a_local_part_is_not() -> None:
    assert found(*but(GOOD, Kind.DELIVER, addresses=("anna@EXAMPLE.com", BEN))) == {}
    assert set(found(*but(GOOD, Kind.DELIVER, addresses=("Anna@example.com", BEN)))) == {Class.MISDELIVERED}


def test_what_missing_rows_cannot_explain_is_a_violation_though_rows_are_missing() -> None:
    events = but(GOOD, Kind.DELIVER, addresses=(ANNA, "eve@example.com"))
    assert Class.MISDELIVERED in found(*events, evidence=UNKNOWN)


@pytest.mark.parametrize(
    ("kind", "what"),
    [(Kind.HARECEIVE, Class.ALTERED), (Kind.HAREDIRECT, Class.ALTERED), (Kind.DELIVER, Class.MISDELIVERED)],
)
def test_a_row_with_more_recipients_than_were_accepted_is_found(kind: Kind, what: Class) -> None:
    more = but(GOOD, kind, recipients=(1, 2, 3), addresses=(ANNA, BEN, "c@example.com"))
    assert found(*more)[what].recipients == (3,)


@pytest.mark.parametrize("kind", [Kind.HARECEIVE, Kind.HAREDIRECT])
def test_a_copy_that_was_made_before_the_250_has_all_recipients(kind: Kind) -> None:
    fewer = but(GOOD, kind, recipients=(1,), addresses=(ANNA,))
    assert found(*fewer)[Class.ALTERED].recipients == (2,)


def test_a_copy_that_was_made_again_later_need_not_have_those_that_were_settled() -> None:
    held = replace(row("mx3", 2, Kind.HARECEIVE, "mx1"), recipients=(2,), addresses=(BEN,))
    made = replace(row("mx1", 4, Kind.HAREDIRECT, "mx3"), recipients=(2,), addresses=(BEN,))
    gone = replace(row("mx3", 3, Kind.HADISCARD, "mx1", "ExplicitlyDiscarded"), recipients=(2,))
    first = replace(row("mx1", 4, Kind.DELIVER), recipients=(1,), addresses=(ANNA,))
    later = replace(row("mx1", 6, Kind.DELIVER), recipients=(2,), addresses=(BEN,))
    events = (*(one for one in GOOD if one.kind is not Kind.DELIVER), first, replace(made, sequence=5), later)
    assert found(*events, held, gone) == {}


def test_without_its_reception_the_rows_are_compared_with_one_another() -> None:
    lost = {**EVIDENCE.databases, "mx1": replace(EVIDENCE.databases["mx1"], lost=True)}
    events = tuple(one for one in GOOD if one.node == "mx2")
    changed = but(events, Kind.HADISCARD, addresses=(ANNA, "eve@example.com"))
    assert Class.ALTERED in found(*changed, evidence=replace(EVIDENCE, databases=lost))


# Sizes.


@pytest.mark.parametrize("kind", [Kind.HARECEIVE, Kind.DELIVER, Kind.HADISCARD])
def test_what_is_held_or_sent_in_another_size_is_altered(kind: Kind) -> None:
    findings = found(*but(GOOD, kind, size=0))
    assert set(findings) == {Class.ALTERED}
    assert findings[Class.ALTERED].detail.startswith("another size than RECEIVE")


@pytest.mark.parametrize("kind", [Kind.HARECEIVE, Kind.DELIVER, Kind.HADISCARD])
def test_what_is_held_or_sent_for_another_sender_is_altered(kind: Kind) -> None:
    findings = found(*but(GOOD, kind, sender="eve@example.com"))
    assert set(findings) == {Class.ALTERED}
    assert findings[Class.ALTERED].detail.startswith("another sender than RECEIVE")


def test_sizes_of_rows_that_decide_nothing_are_not_compared() -> None:
    assert Kind.DEFER not in COMPARED
    deferred = replace(row("mx1", 4, Kind.DEFER), size=0)
    assert found(*but(GOOD, Kind.DELIVER, sequence=5), deferred) == {}


def test_a_report_has_the_size_of_one_of_its_makers() -> None:
    report = report_id(ID, 1)
    sizes = {"mx1": 7, "mx2": 8}
    made = [replace(row(node, 2, Kind.DSN), message=report, size=size) for node, size in sizes.items()]
    sent = replace(row("mx2", 3, Kind.DELIVER), message=report)
    for size, expected in ((7, False), (8, False), (9, True)):
        assert (Class.ALTERED in found(*made, replace(sent, size=size))) is expected


# Replies and epochs.


@pytest.mark.parametrize("kind", [Kind.DELIVER, Kind.SEND, Kind.SENDEXTERNAL])
@pytest.mark.parametrize("reply", ["550 5.1.1 no such user", "451 4.3.0 later", "", "connection lost"])
def test_a_delivery_with_a_reply_of_failure_cannot_be(kind: Kind, reply: str) -> None:
    assert set(found(*but(GOOD, Kind.DELIVER, kind=kind, reason=reply))) == {Class.INCONSISTENT}


def test_nor_a_failure_with_a_reply_of_success() -> None:
    assert Class.INCONSISTENT in found(*but(GOOD, Kind.DELIVER, kind=Kind.FAIL, sender="<>"))
    deferred = row("mx1", 4, Kind.DEFER, reason="250 2.0.0 OK")
    assert set(found(*but(GOOD, Kind.DELIVER, sequence=5), deferred)) == {Class.INCONSISTENT}


@pytest.mark.parametrize("kind", [Kind.DELIVER, Kind.HADISCARD, Kind.HARECEIVE])
def test_an_epoch_that_no_promotion_began_cannot_be(kind: Kind) -> None:
    assert Class.INCONSISTENT in found(*but(GOOD, kind, epoch=7))
    events = tuple(replace(one, epoch=7) if one.node == "mx2" else one for one in GOOD)
    assert "no promotion began" in found(*events)[Class.INCONSISTENT].detail
    assert Class.INCONSISTENT not in found(*events, evidence=UNKNOWN), "a missing row may be its promotion"


def test_a_message_is_received_in_its_first_epoch() -> None:
    assert Class.INCONSISTENT in found(*but(GOOD, Kind.RECEIVE, epoch=2), evidence=UNKNOWN)


PROMOTED = (
    *GOOD[:3],
    replace(row("mx1", 4, Kind.DEFER, reason="451 later"), epoch=1),
    *again(
        row("mx2", 3, Kind.RESUBMIT, "mx1", "heartbeat-lost"),
        row("mx2", 4, Kind.DELIVER),
        row("mx1", 5, Kind.TRANSFER, "mx2"),
        row("mx1", 6, Kind.HARECEIVE, "mx2", "taken"),
        row("mx1", 7, Kind.HADISCARD, "mx2", "ExplicitlyDiscarded"),
    ),
)


@pytest.mark.parametrize(
    "epochs",
    [
        pytest.param({4: 3, 5: 3}, id="a promotion that leaves one out"),
        pytest.param({4: 1, 5: 1}, id="a promotion that begins none"),
        pytest.param({5: 1}, id="a delivery in the one before"),
        pytest.param({3: 2}, id="an attempt in another node's"),
        pytest.param({6: 3}, id="ownership that ends in another than the copy begins in"),
        pytest.param({8: 1}, id="a copy that is let go in the one before"),
    ],
)
def test_an_epoch_follows_from_the_row_before(epochs: dict[int, int]) -> None:
    rows = addressed(ANNA, events=PROMOTED)
    assert Class.INCONSISTENT not in found(*rows)
    changed = (replace(one, epoch=epochs.get(at, one.epoch)) for at, one in enumerate(rows))
    assert Class.INCONSISTENT in found(*changed)


@pytest.mark.parametrize("kind", [Kind.DEFER, Kind.HADAMAGE, Kind.SUSPEND, Kind.RESUME])
def test_an_attempt_for_what_a_node_never_had_cannot_be(kind: Kind) -> None:
    detail = found(*GOOD, row("mx3", 3, kind, reason="451 later"))[Class.INCONSISTENT].detail
    assert f"mx3: {kind} of what the node never had" in detail


def test_a_snapshot_lists_it_in_the_role_that_its_node_has() -> None:
    for role in ("primary", "shadow"):
        listed = replace(GOOD[0], kind=Kind.LOAD, sequence=3, entries={"Role": role})
        rows = (*GOOD[:3], listed, replace(GOOD[4], sequence=4), GOOD[3])
        assert (Class.INCONSISTENT in found(*rows)) == (role == "primary")


@pytest.mark.parametrize(
    ("entry", "text", "good"),
    [
        ("Reason", "heartbeat-lost", True), ("Reason", "owner-forgot", False),
        ("Owner", "mx1", True), ("Owner", "mx3", False), ("OwnerDb", "db", True), ("OwnerDb", "other", False),
    ],
)  # fmt: skip
def test_what_a_promotion_says_twice_is_the_same(entry: str, text: str, *, good: bool) -> None:
    rows = tuple(
        replace(one, entries={entry: text}, reference="db") if one.kind is Kind.RESUBMIT else one
        for one in addressed(ANNA, events=PROMOTED)
    )
    assert (Class.INCONSISTENT in found(*rows)) != good


def test_a_copy_is_let_go_for_a_reason_that_there_is() -> None:
    assert set(found(*but(GOOD, Kind.HADISCARD, reason="Forgotten"))) == {Class.INCONSISTENT}


# Reports.


def failed(reference: str = "", **more: str) -> tuple[Event, ...]:
    events = addressed(ANNA)
    entries = dict(more)
    return but(events, Kind.DELIVER, kind=Kind.FAIL, reason="550 no", reference=reference, entries=entries)


def made(message: str) -> Event:
    return replace(row("mx2", 8, Kind.REPORT), message=message, reference=ID)


def test_a_bounce_whose_report_no_log_makes_is_found() -> None:
    report = report_id(ID, 1)
    assert set(found(*failed(report))) == {Class.REPORT_MISSING}
    assert found(*failed(report), made(report)) == {}
    assert set(found(*failed(report), made("another"))) == {Class.REPORT_MISSING}
    assert MEANING[Class.REPORT_MISSING][0] is Severity.VIOLATION


def test_a_bounce_without_a_report_is_found_unless_another_node_made_it() -> None:
    assert set(found(*failed())) == {Class.REPORT_MISSING}
    assert found(*failed(), made(report_id(ID, 1))) == {}
    assert set(found(*failed(), made(report_id(ID, 2)))) == {Class.REPORT_MISSING}


def test_nobody_is_told_of_a_report_that_bounces_or_who_asked_for_none() -> None:
    assert found(*(replace(one, sender="<>") for one in failed())) == {}
    assert found(*failed(NoReport="1")) == {}
    assert set(found(*failed(NoReport="2"))) == {Class.REPORT_MISSING}


def test_a_report_may_have_been_made_in_rows_that_are_missing() -> None:
    findings = found(*failed(report_id(ID, 1)), evidence=UNKNOWN)
    assert Class.REPORT_MISSING not in findings
    assert Class.UNPROVEN_LOSS in findings


OFFSPRING = "284295c2-d582-87cc-ae76-332608a9369d"
"""The id of a message that was made of another one, as that to the members of a list is."""


def expanded() -> tuple[Event, ...]:
    events, reply = addressed(ANNA), "250 2.1.5 Expanded to 2 recipients"
    return but(events, Kind.DELIVER, kind=Kind.EXPAND, reason=reply, reference=OFFSPRING, related=(ANNA,))


@pytest.mark.parametrize("rows", [failed(), failed(report_id(ID, 1)), expanded()], ids=["", "named", "list"])
def test_what_a_node_has_need_not_be_made_by_a_row(rows: tuple[Event, ...]) -> None:
    """The owner that made it lost its log, and who took the message over makes no second one."""
    ((_, named),) = absent(rows)
    assert set(found(*rows)) <= {Class.REPORT_MISSING, Class.LOST}
    known = replace(made(named), kind=Kind.KNOWN)
    assert Class.UNPROVEN_LOSS in found(*rows, evidence=UNKNOWN)
    assert Class.UNPROVEN_LOSS not in found(*rows, known, evidence=UNKNOWN)
    assert Class.UNPROVEN_LOSS in found(*rows, replace(known, message=ID), evidence=UNKNOWN)
    assert found(*rows, known).keys() & VIOLATIONS, "no log is lost: it has to be made by a row"


@pytest.mark.parametrize("rows", [failed(report_id(OFFSPRING, 1)), failed(ID), failed(report_id(ID, 2))])
def test_what_cannot_be_the_report_on_a_message_is_not_looked_for(rows: tuple[Event, ...]) -> None:
    assert list(absent(rows)) == []
    assert list(absent(replace(one, reference=ID) for one in expanded())) == []


@pytest.mark.parametrize("rows", [failed(), failed(report_id(ID, 1)), expanded()], ids=["", "named", "list"])
@pytest.mark.parametrize(
    "change", [{"whole": False}, {"closed": False}, {"from_start": False}, {"lost": True}]
)
def test_what_a_message_led_to_that_was_made_of_another_may_stand_in_the_log_of_any_node(
    rows: tuple[Event, ...], change: dict[str, bool]
) -> None:
    other = Database(id="mx4", node="mx4", segments=EVIDENCE.databases["mx3"].segments, closed=True)
    known = replace(EVIDENCE, databases={**EVIDENCE.databases, "mx4": other})
    unknown = replace(EVIDENCE, databases={**EVIDENCE.databases, "mx4": replace(other, **change)})
    offspring = tuple(replace(one, message=OFFSPRING) for one in rows)
    assert found(*offspring, evidence=known).keys() & VIOLATIONS
    assert set(found(*offspring, evidence=unknown)) == {Class.UNPROVEN_LOSS}
    assert found(*rows, evidence=unknown).keys() & VIOLATIONS, "all who had that one are known"


def test_logs_without_a_word_of_who_asked_for_reports_are_not_searched() -> None:
    assert list(absent(replace(one, schema="01.00.0000.000") for one in failed())) == []


# Rows from before digests.


def test_without_digests_the_proof_is_a_weaker_one() -> None:
    evidence = replace(EVIDENCE, undigested=3)
    verdict = Verdict(totals={"messages": 2}, classes={}, evidence=evidence, files=3, nodes=3)
    assert (verdict.status, verdict.strength) == (PROVEN, "weaker")
    assert "weaker proof" in verdict.sentence
    assert ["no digests" in one for one in verdict.caveats] == [True]
    whole = Verdict(totals={"messages": 2}, classes={}, evidence=EVIDENCE, files=3, nodes=3)
    assert (whole.status, whole.strength, whole.caveats) == (PROVEN, "full", ())


def test_a_bounce_in_a_log_that_does_not_say_who_wanted_no_report_breaks_no_promise() -> None:
    old = tuple(replace(one, schema="01.00.0000.000") for one in failed())
    assert set(found(*old)) == set(found(*old, evidence=UNKNOWN)) - {Class.OPEN} == {Class.REPORT_UNKNOWN}
    assert found(*old, made(report_id(ID, 1))) == {}
    named = (replace(one, schema="01.00.0000.000") for one in failed(report_id(ID, 1)))
    assert set(found(*named)) == {Class.REPORT_MISSING}, "it names one"


def test_the_proof_of_such_logs_is_a_weaker_one() -> None:
    classes = {Class.REPORT_UNKNOWN.value: 2}
    verdict = Verdict(totals={"messages": 2}, classes=classes, evidence=EVIDENCE, files=3, nodes=3)
    assert (verdict.status, verdict.strength) == (PROVEN, "weaker")
    assert ["2 messages bounced without one" in one for one in verdict.caveats] == [True]
