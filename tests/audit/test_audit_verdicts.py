"""Verdicts on rows that are written down here: what no generated story has."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from shadowaudit.core.events import SENT, Event, Kind
from shadowaudit.core.evidence import Gap
from shadowaudit.core.facts import FileFacts, Snapshot
from shadowaudit.core.findings import MEANING, Class, Finding, combined
from shadowaudit.core.judge import judge
from shadowaudit.core.verdict import INCOMPLETE, PROVEN, VIOLATED, Verdict
from shadowaudit.core.weighing import weigh

NODES = ("mx1", "mx2", "mx3")
EVIDENCE = weigh(
    [
        FileFacts(
            path=node, node=node, database=node, boot="a", first=1, last=9, rows=9,
            first_is_snapshot=True, last_closes_snapshot=True,
        )
        for node in NODES
    ]
)  # fmt: skip


def row(node: str, sequence: int, kind: Kind, peer: str = "", reason: str = "") -> Event:
    if kind in SENT:
        reason = reason or "250 2.0.0 OK"
    return Event(
        node=node, database=node, boot="a", sequence=sequence, at=sequence, kind=kind, recipients=(1,),
        peer=peer, reason=reason,
    )  # fmt: skip


DELIVERED = (
    row("mx2", 2, Kind.HARECEIVE, "mx1"),
    row("mx1", 2, Kind.HAREDIRECT, "mx2"),
    row("mx1", 3, Kind.RECEIVE),
    row("mx1", 4, Kind.DELIVER),
    row("mx2", 3, Kind.HADISCARD, "mx1", "ExplicitlyDiscarded"),
)


def found(*events: Event) -> set[Class]:
    return {one.what for one in judge(events, EVIDENCE).findings}


def test_a_message_that_was_held_and_delivered_gives_no_finding() -> None:
    assert found(*DELIVERED) == set()


def test_a_message_that_a_filter_dropped_was_never_owed_but_one_that_was_taken_is() -> None:
    dropped = row("mx1", 2, Kind.DROP)
    assert found(dropped) == set()
    taken = DELIVERED[:3]
    assert found(*taken, row("mx1", 4, Kind.DROP)) >= found(*taken)


@pytest.mark.parametrize("node", ["mx2", "mx3"])
def test_a_node_that_delivers_what_it_does_not_own_is_named(node: str) -> None:
    assert found(*DELIVERED, row(node, 5, Kind.DELIVER)) == {Class.UNKNOWN_ORIGIN, Class.DUPLICATE}


@pytest.mark.parametrize(("allow_open", "status"), [(False, INCOMPLETE), (True, PROVEN)])
def test_what_is_open_at_the_end_of_a_log_is_allowed_when_nodes_run(*, allow_open: bool, status: int) -> None:
    classes = {Class.OPEN.value: 1}
    verdict = Verdict(totals={}, classes=classes, evidence=EVIDENCE, files=3, nodes=3, allow_open=allow_open)
    assert verdict.status == status


def again(*rows: Event) -> tuple[Event, ...]:
    """Rows of the second epoch."""
    return tuple(replace(one, epoch=2) for one in rows)


TAKEN = (
    row("mx2", 2, Kind.HARECEIVE, "mx1"),
    row("mx1", 2, Kind.HAREDIRECT, "mx2"),
    row("mx1", 3, Kind.RECEIVE),
    *again(
        row("mx2", 3, Kind.RESUBMIT, "mx1", "heartbeat-lost"),
        row("mx2", 4, Kind.DELIVER),
        row("mx1", 4, Kind.TRANSFER, "mx2"),
        row("mx1", 5, Kind.HARECEIVE, "mx2", "taken"),
        row("mx1", 6, Kind.HADISCARD, "mx2", "ExplicitlyDiscarded"),
    ),
)


def without(kind: Kind, node: str, events: tuple[Event, ...] = TAKEN) -> tuple[Event, ...]:
    return tuple(one for one in events if (one.kind, one.node) != (kind, node))


def test_a_message_that_was_taken_over_contradicts_nothing() -> None:
    assert found(*TAKEN) == {Class.PROMOTED, Class.EXPOSED}


def test_rows_are_played_in_the_order_of_their_numbers_however_they_were_read() -> None:
    assert found(*reversed(TAKEN)) == found(*TAKEN)


@pytest.mark.parametrize(
    ("what", "events"),
    [
        ("received twice", (*DELIVERED, row("mx1", 5, Kind.RECEIVE))),
        (
            "a copy came that was there already",
            (row("mx2", 1, Kind.HARECEIVE, "mx1"), *DELIVERED),
        ),
        ("TRANSFER without the copy that is kept", without(Kind.HARECEIVE, "mx1")),
        ("ownership ended without TRANSFER", without(Kind.TRANSFER, "mx1")),
        (
            "a copy changed its owner that was not there",
            (*TAKEN, row("mx3", 5, Kind.HARECEIVE, "mx2", "taken")),
        ),
        ("TRANSFER of what the node did not own", (*TAKEN, row("mx3", 5, Kind.TRANSFER, "mx2"))),
        ("it lists other recipients than were left", (*DELIVERED, row("mx2", 5, Kind.LOAD))),
        (
            "it lists other recipients than were left",
            (
                *(replace(one, recipients=(1, 2)) for one in DELIVERED[:3]),
                row("mx1", 4, Kind.DELIVER),
                replace(row("mx1", 5, Kind.LOAD), recipients=(1, 2)),
            ),
        ),
        ("a copy was let go that was not there", without(Kind.HARECEIVE, "mx2", DELIVERED)),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_rows_of_one_node_that_cannot_follow_each_other_are_told(
    what: str, events: tuple[Event, ...]
) -> None:
    details = [one.detail for one in judge(events, EVIDENCE).findings if one.what is Class.INCONSISTENT]
    assert [what in one for one in details] == [True]


def test_a_node_that_promotes_what_it_does_not_hold_is_named() -> None:
    events = without(Kind.HARECEIVE, "mx2")
    assert Class.UNKNOWN_ORIGIN in found(*events)


def test_a_copy_that_another_node_made_is_none_of_the_owner() -> None:
    events = (*without(Kind.HAREDIRECT, "mx1", DELIVERED), row("mx3", 2, Kind.HAREDIRECT, "mx2"))
    assert Class.ONE_COPY in found(*events)


def test_a_delivery_that_a_holder_was_told_of_and_no_whole_log_shows_is_a_violation() -> None:
    assert found(*without(Kind.DELIVER, "mx1", DELIVERED)) >= {Class.PREMATURE_DISCARD, Class.OPEN}


def test_a_database_that_was_set_back_goes_on_with_the_life_that_began_last() -> None:
    """The rows that were given up have higher numbers than what it did since."""

    def life(boot: str, first: int, last: int, **more: Any) -> FileFacts:
        return FileFacts(
            path=boot, node="mx1", database="mx1", boot=boot, first=first, last=last, rows=last - first + 1,
            first_is_snapshot=True, **more,
        )  # fmt: skip

    listed = (Snapshot(id="s", listed=1, count=1, end=13),)
    now = life("b", 11, 13, begins=100, last_closes_snapshot=True, snapshots=listed)
    events = (
        row("mx1", 5, Kind.RECEIVE),
        row("mx1", 18, Kind.DEFER),
        replace(row("mx1", 12, Kind.LOAD), boot="b", entries={"Role": "primary"}),
    )
    evidence = weigh([life("a", 1, 20), now], lost=["mx1"])
    assert {one.what for one in judge(events, evidence).findings} == {Class.ONE_COPY, Class.IN_TRANSIT}
    sent = (events[0], row("mx1", 18, Kind.DELIVER), events[2])
    assert {one.what for one in judge(sent, evidence).findings} == {Class.ONE_COPY, Class.ORPHAN}
    given_up = (row("mx1", 11, Kind.RECEIVE),)
    assert {one.what for one in judge(given_up, evidence).findings} == {Class.ONE_COPY, Class.UNPROVEN_LOSS}


def test_a_takeover_allows_no_second_delivery_by_the_same_database() -> None:
    assert Class.DUPLICATE in found(*TAKEN, row("mx2", 5, Kind.DELIVER))
    assert Class.DUPLICATE not in found(*TAKEN, row("mx1", 7, Kind.DELIVER))


GIVEN_AWAY = (
    row("mx2", 2, Kind.HARECEIVE, "mx1"),
    row("mx1", 2, Kind.HAREDIRECT, "mx2"),
    row("mx1", 3, Kind.RECEIVE),
    row("mx1", 4, Kind.TRANSFER, "mx3"),
    row("mx1", 5, Kind.HARECEIVE, "mx3", "taken"),
    row("mx1", 6, Kind.HADISCARD, "mx3", "Superseded"),
    row("mx2", 3, Kind.HADISCARD, "mx1", "Superseded"),
)
"""mx3 took it over, all others let it go, and mx3's log has no row about it."""


@pytest.mark.parametrize(
    ("worth", "what"),
    [
        ({}, Class.LOST),
        ({"whole": False}, Class.UNPROVEN_LOSS),
        ({"from_start": False}, Class.UNPROVEN_LOSS),
        ({"lost": True}, Class.UNPROVEN_LOSS),
        ({"rolled_back": True}, Class.UNPROVEN_LOSS),
        ({"closed": False}, Class.OPEN),
        (None, Class.UNPROVEN_LOSS),
    ],
    ids=str,
)
def test_a_message_is_lost_only_if_the_log_of_who_had_it_last_can_tell(
    worth: dict[str, bool] | None, what: Class
) -> None:
    databases, nodes = dict(EVIDENCE.databases), dict(EVIDENCE.nodes)
    if worth is None:
        del databases["mx3"], nodes["mx3"]
    else:
        databases["mx3"] = replace(databases["mx3"], **worth)
    findings = judge(GIVEN_AWAY, replace(EVIDENCE, databases=databases, nodes=nodes)).findings
    assert [one.what for one in findings] == [what]


def test_what_an_earlier_snapshot_listed_and_the_last_one_does_not_vanished() -> None:
    files = [
        FileFacts(
            path="mx1", node="mx1", database="mx1", boot="a", first=1, last=9, rows=9, first_is_snapshot=True,
            last_closes_snapshot=True,
            snapshots=(Snapshot(id="s", listed=1, count=1, end=5), Snapshot(id="t", count=0, end=9)),
        )
    ]  # fmt: skip
    events = (
        row("mx1", 2, Kind.HAREDIRECT, "mx2"),
        row("mx1", 3, Kind.RECEIVE),
        replace(row("mx1", 4, Kind.LOAD), entries={"Role": "primary"}),
    )
    assert Class.VANISHED in {one.what for one in judge(events, weigh(files)).findings}


@pytest.mark.parametrize(
    ("reason", "epoch", "what"),
    [
        ("database-replaced", 2, Class.FALSE_PROMOTION),
        ("database-rolled-back", 2, Class.FALSE_PROMOTION),
        ("handed-over", 2, Class.PROMOTED),
        ("handed-over", 3, Class.FALSE_PROMOTION),
        ("heartbeat-lost", 2, Class.PROMOTED),
    ],
)
def test_a_promotion_is_judged_by_the_owners_own_log(reason: str, epoch: int, what: Class) -> None:
    entries = {"OwnerDb": "mx1", "Reason": reason}
    events = [
        replace(one, reason=reason, entries=entries, epoch=epoch) if one.kind is Kind.RESUBMIT else one
        for one in TAKEN
    ]
    findings = {one.what for one in judge(events, EVIDENCE).findings}
    assert findings - {Class.INCONSISTENT} == {what, Class.EXPOSED}
    assert (Class.INCONSISTENT in findings) == (epoch > 2)


@pytest.mark.parametrize(("lost", "what"), [(True, Class.HOLDERS_WORD), (False, Class.PREMATURE_DISCARD)])
def test_what_a_holder_was_told_counts_if_its_row_may_be_gone_with_the_owners_disk(
    *, lost: bool, what: Class
) -> None:
    databases = {**EVIDENCE.databases, "mx1": replace(EVIDENCE.databases["mx1"], lost=lost)}
    *others, word = without(Kind.DELIVER, "mx1", DELIVERED)
    events = (*others, replace(word, entries={"TellerDb": "mx1"}, reference="a:12"))
    findings = judge(events, replace(EVIDENCE, databases=databases)).findings
    assert what in {one.what for one in findings}


@pytest.mark.parametrize(
    ("lost", "what"),
    [
        (("mx1", "mx2"), {Class.UNPROVEN_LOSS}),
        (("mx2",), {Class.ORPHAN}),  # its owner's log is whole, and never received it
        (("mx1",), set()),  # the copy is still there
    ],
)
def test_a_copy_that_went_with_its_disk_may_have_been_the_last_of_a_message_that_was_accepted(
    lost: tuple[str, ...], what: set[Class]
) -> None:
    """Its owner's reception, and what that accepted, went with another disk."""
    databases = {
        name: replace(one, lost=name in lost, closed=name not in lost, snapshot=None)
        for name, one in EVIDENCE.databases.items()
    }
    held = replace(row("mx2", 9, Kind.HARECEIVE, "mx1"), entries={"OwnerDb": "mx1"})
    findings = judge([held], replace(EVIDENCE, databases=databases)).findings
    assert {one.what for one in findings} == what


def test_a_violation_that_is_seen_counts_although_evidence_is_missing() -> None:
    gap = Gap("a row is missing", "somewhere", "who knows")
    told: dict[str, Any] = {"totals": {}, "files": 3, "nodes": 3, "evidence": replace(EVIDENCE, gaps=(gap,))}
    assert Verdict(classes={}, **told).status == INCOMPLETE
    assert Verdict(classes={Class.LOST.value: 1}, **told).status == VIOLATED


def test_a_broken_promise_beside_missing_evidence_says_both() -> None:
    gap = Gap("a row is missing", "somewhere", "who knows")
    told: dict[str, Any] = {"totals": {}, "files": 3, "nodes": 3}
    lost = {Class.LOST.value: 1}
    whole = Verdict(classes=lost, evidence=EVIDENCE, **told)
    assert (whole.strength, "missing" in whole.sentence) == ("full", False)
    partly = Verdict(classes=lost, evidence=replace(EVIDENCE, gaps=(gap,)), **told)
    assert partly.strength == "incomplete"
    unsettled = Verdict(classes=lost | {Class.UNPROVEN_LOSS.value: 1}, evidence=EVIDENCE, **told)
    for one, missing in ((partly, "1 gap"), (unsettled, "1 message not proven")):
        assert one.sentence.startswith("1 of 0 messages was lost")
        assert f"evidence is missing ({missing})" in one.sentence


def test_a_database_that_is_merely_not_at_hand_is_not_said_to_be_lost() -> None:
    assert "lost" not in MEANING[Class.HOLDERS_WORD][1]


def test_findings_of_one_class_on_several_nodes_are_one_with_all_rows() -> None:
    one, other = (Finding(Class.VANISHED, f"mx{n}", (n,), (n, 9)) for n in (1, 2))
    assert combined([one, other]) == (Finding(Class.VANISHED, "mx1; mx2", (1, 2), (1, 9, 2)),)
