"""A copy counts only if it is a good copy on another machine; and what was sent is what was accepted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from test_audit_verdicts import DELIVERED, EVIDENCE, TAKEN, again, found, row, without

from shadowaudit.core.events import ORIGINS, Event, Kind
from shadowaudit.core.evidence import Evidence
from shadowaudit.core.facts import FileFacts, Snapshot
from shadowaudit.core.findings import MEANING, Class, Severity
from shadowaudit.core.judge import Judgement, judge
from shadowaudit.core.weighing import weigh


def told(*events: Event, evidence: Evidence = EVIDENCE) -> dict[Class, str]:
    return {one.what: one.detail for one in judge(events, evidence).findings}


def saying(event: Event, **entries: str) -> Event:
    return replace(event, entries={**event.entries, **entries})


# What was sent is what was accepted.

REPORT = "8a0c2f4e-0000-8000-8000-000000000001"
RIGHT = {"Content": "xxh3-128:aa", "Envelope": "xxh3-128:ee"}


def digested(events: tuple[Event, ...], **other: Mapping[str, str]) -> tuple[Event, ...]:
    """All rows with their digests, but for those of some kinds that say something else."""
    rows = {Kind.HAREDIRECT, Kind.TRANSFER, Kind.RESUBMIT}
    return tuple(
        one if one.kind in rows else saying(one, **{**RIGHT, **other.get(one.kind, {})}) for one in events
    )


@pytest.mark.parametrize("events", [DELIVERED, TAKEN], ids=["delivered", "taken over"])
def test_rows_with_the_same_digests_give_no_finding(events: tuple[Event, ...]) -> None:
    assert found(*digested(events)) == found(*events)


@pytest.mark.parametrize("name", ["Content", "Envelope"])
@pytest.mark.parametrize("kind", [Kind.DELIVER, Kind.HARECEIVE, Kind.HADISCARD])
def test_what_is_held_or_sent_with_another_digest_is_altered(kind: Kind, name: str) -> None:
    events = digested(DELIVERED, **{kind: {name: "xxh3-128:00"}})
    finding = next(one for one in judge(events, EVIDENCE).findings if one.what is Class.ALTERED)
    assert MEANING[finding.what][0] is Severity.VIOLATION
    assert name.lower() in finding.detail
    assert {events[index].kind for index in finding.rows} == {Kind.RECEIVE, kind}


def test_nodes_that_differ_are_found_though_the_reception_is_in_nobodys_log() -> None:
    lost = {**EVIDENCE.databases, "mx1": replace(EVIDENCE.databases["mx1"], lost=True)}
    events = digested(without(Kind.RECEIVE, "mx1", DELIVERED), HADISCARD={"Content": "xxh3-128:00"})
    assert Class.ALTERED in told(*events, evidence=replace(EVIDENCE, databases=lost))


def test_a_message_has_digests_of_one_algorithm() -> None:
    assert found(*digested(DELIVERED, DELIVER={"Content": "sha-512:aa"})) == {Class.ALTERED}


def test_a_row_of_a_version_before_digests_alters_nothing() -> None:
    events = digested(DELIVERED)
    before = "01.00.0000.000"
    older = (replace(one, entries={}, schema=before) if one.kind in ORIGINS else one for one in events)
    assert found(*older) == set()


def test_a_node_that_had_it_before_digests_never_says_the_one_of_its_envelope() -> None:
    """It was upgraded since: its later rows have the new version."""
    events = digested(DELIVERED)
    before = "01.00.0000.000"
    held = (replace(one, entries={}, schema=before) if one.kind is Kind.HARECEIVE else one for one in events)
    late = {"Content": RIGHT["Content"]}
    after = (replace(one, entries=late) if one.kind is Kind.HADISCARD else one for one in held)
    assert found(*after) == set()


@pytest.mark.parametrize("name", ["Content", "Envelope"])
def test_a_digest_that_one_row_alone_lacks_is_missing_evidence(name: str) -> None:
    events = digested(DELIVERED)
    for index, one in enumerate(events):
        if name in one.entries:
            entries = {key: text for key, text in one.entries.items() if key != name}
            some = (*events[:index], replace(one, entries=entries), *events[index + 1 :])
            assert found(*some) == {Class.UNDIGESTED}, one.kind


def report(content: str, *, evidence: Evidence = EVIDENCE, others: bool = True) -> Judgement:
    """A report that mx1 and mx2 made, each in its own octets; it is delivered with that content."""
    one, other = RIGHT | {"Content": "xxh3-128:11"}, RIGHT | {"Content": "xxh3-128:22"}
    events = (
        saying(row("mx1", 2, Kind.DSN), **one),
        saying(row("mx2", 2, Kind.DSN), **other),
        row("mx1", 3, Kind.TRANSFER, "mx2"),
        saying(row("mx1", 4, Kind.HARECEIVE, "mx2", "taken"), **one),
        saying(row("mx1", 5, Kind.HARESTORE, "mx2"), **other),
        saying(row("mx2", 3, Kind.DELIVER), **RIGHT | {"Content": content}),
        saying(row("mx1", 6, Kind.HADISCARD, "mx2", "ExplicitlyDiscarded"), **other),
    )
    events = tuple(replace(one, message=REPORT) for one in events)
    return judge(events if others else events[1:], evidence)


def test_a_report_of_two_makers_has_the_content_of_either() -> None:
    for content in ("xxh3-128:11", "xxh3-128:22"):
        assert Class.ALTERED not in {one.what for one in report(content).findings}
    for content in ("xxh3-128:33", "sha-512:11"):
        assert Class.ALTERED in {one.what for one in report(content).findings}


def test_the_row_of_another_maker_may_have_gone_with_its_disk() -> None:
    lost = {**EVIDENCE.databases, "mx1": replace(EVIDENCE.databases["mx1"], lost=True)}
    judgement = report("xxh3-128:22", evidence=replace(EVIDENCE, databases=lost), others=False)
    assert Class.ALTERED not in {one.what for one in judgement.findings}


# On another machine.


def test_a_copy_on_its_owners_machine_is_none() -> None:
    entries = {
        Kind.HAREDIRECT: {"Host": "rack1", "ShadowHost": "rack1"},
        Kind.HARECEIVE: {"Host": "rack1", "OwnerHost": "rack1"},
    }
    events = [saying(one, **entries.get(one.kind, {})) for one in DELIVERED]
    assert set(told(*events)) == {Class.EXPOSED}
    assert judge(events, EVIDENCE).exposed == 1  # until it was delivered
    elsewhere = [saying(one, ShadowHost="rack2") if one.kind is Kind.HAREDIRECT else one for one in events]
    assert set(told(*elsewhere)) == set()


def test_after_a_promotion_a_copy_beside_the_new_owner_does_not_end_the_exposure() -> None:
    beside = saying(row("mx2", 4, Kind.HAREDIRECT, "mx3"), Host="rack1", ShadowHost="rack1")
    elsewhere = saying(row("mx2", 7, Kind.HAREDIRECT, "mx1"), Host="rack1", ShadowHost="rack2")
    fellow = row("mx3", 2, Kind.HARECEIVE, "mx1")
    gone = row("mx3", 3, Kind.HADISCARD, "mx2", "Superseded")
    taken = [replace(one, sequence=9, at=9) if one.kind is Kind.DELIVER else one for one in TAKEN]
    beside, elsewhere = again(beside, elsewhere)
    assert judge([*taken, fellow, gone, beside], EVIDENCE).exposed == 9 - 3
    judgement = judge([*taken, fellow, gone, beside, elsewhere], EVIDENCE)
    assert judgement.exposed == 7 - 3
    assert {one.what for one in judgement.findings} == {Class.EXPOSED, Class.PROMOTED}


def test_what_holders_say_of_machines_counts_where_the_owners_rows_are_lost() -> None:
    lost = {**EVIDENCE.databases, "mx1": replace(EVIDENCE.databases["mx1"], lost=True)}
    evidence = replace(EVIDENCE, databases=lost)
    held = saying(row("mx2", 2, Kind.HARECEIVE, "mx1"), Host="rack1", OwnerHost="rack1")
    other = saying(row("mx3", 2, Kind.HARECEIVE, "mx1"), Host="rack2", OwnerHost="rack1")
    assert Class.EXPOSED in told(held, evidence=evidence)
    assert Class.EXPOSED not in told(held, other, evidence=evidence)


# A good copy.


def with_snapshot(*held: str) -> Evidence:
    """The nodes' logs end with a snapshot; rows 90 to 98 are its rows."""
    return weigh(
        [
            FileFacts(
                path=node, node=node, database=node, boot="a", first=1, last=99, rows=99,
                first_is_snapshot=True, last_closes_snapshot=True,
                snapshots=(Snapshot(id="s", listed=held.count(node), count=held.count(node), end=99),),
            )
            for node in ("mx1", "mx2", "mx3")
        ]
    )  # fmt: skip


def load(node: str, role: str) -> Event:
    return saying(row(node, 98, Kind.LOAD), Role=role)


def damaged(node: str, sequence: int, what: str = "content") -> Event:
    told = saying(row(node, sequence, Kind.HADAMAGE), Damaged=what)
    return replace(told, recipients=() if what == "rows" else told.recipients)


QUEUED = (*DELIVERED[:3], load("mx1", "primary"), load("mx2", "shadow"))
BOTH = with_snapshot("mx1", "mx2")


def test_a_message_with_one_damaged_copy_is_exposed_and_in_transit() -> None:
    assert set(told(*QUEUED, evidence=BOTH)) == {Class.IN_TRANSIT}
    for node, other in (("mx1", "mx2"), ("mx2", "mx1")):
        findings = told(*QUEUED, damaged(node, 10), evidence=BOTH)
        assert set(findings) == {Class.IN_TRANSIT, Class.EXPOSED}
        assert findings[Class.IN_TRANSIT] == f"held by {other}"
        assert node in findings[Class.EXPOSED]


@pytest.mark.parametrize(
    ("events", "span"),
    [
        ((damaged("mx2", 10), replace(row("mx2", 17, Kind.HARECEIVE, "mx1", "again"))), 7),
        (
            (
                damaged("mx1", 10), row("mx1", 17, Kind.HARESTORE, "mx2"),
                row("mx2", 10, Kind.HARESTORE, "mx2"),
            ),
            7,
        ),
        ((damaged("mx2", 10), row("mx2", 17, Kind.HARESTORE, "mx2")), 0),  # it gave what was good before
        ((damaged("mx2", 10), damaged("mx2", 12), row("mx2", 17, Kind.HARECEIVE, "mx1", "again")), 7),
    ],
)  # fmt: skip
def test_it_is_exposed_until_a_good_copy_takes_its_place(events: tuple[Event, ...], span: int) -> None:
    judgement = judge([*QUEUED, *events], BOTH)
    assert {one.what for one in judgement.findings} == {Class.IN_TRANSIT, Class.EXPOSED}
    assert judgement.exposed == span


def test_ownership_that_is_taken_makes_no_damaged_copy_good() -> None:
    events = (
        *TAKEN[:4], damaged("mx1", 3 + 1), row("mx1", 5, Kind.TRANSFER, "mx2"),
        row("mx1", 6, Kind.HARECEIVE, "mx2", "taken"), load("mx1", "shadow"), load("mx2", "primary"),
    )  # fmt: skip
    assert told(*events, evidence=BOTH)[Class.IN_TRANSIT] == "held by mx2"


def test_what_was_let_go_may_have_been_damaged() -> None:
    released = row("mx2", 9, Kind.HADISCARD, "mx1", "ExplicitlyDiscarded")
    judgement = judge([*DELIVERED[:4], damaged("mx2", 5), released], EVIDENCE)
    assert {one.what for one in judgement.findings} == {Class.EXPOSED}
    assert judgement.exposed == 9 - 5
    later = judge([*DELIVERED, damaged("mx2", 9), damaged("mx1", 9, "rows")], EVIDENCE)
    assert later.findings == ()


SUSPENDED = row("mx1", 20, Kind.SUSPEND, reason="damaged, and no member has a good copy")


@pytest.mark.parametrize("what", ["content", "rows"])
def test_a_message_whose_every_copy_is_damaged_has_a_kind_of_its_own(what: str) -> None:
    listed = QUEUED if what == "content" else QUEUED[:3]
    events = (*listed, damaged("mx1", 10, what), damaged("mx2", 10, what), SUSPENDED)
    findings = told(*events, evidence=BOTH)
    assert set(findings) == {Class.DAMAGED, Class.SET_ASIDE, Class.EXPOSED}
    assert MEANING[Class.DAMAGED][0] is Severity.VIOLATION


def test_a_damaged_copy_that_its_holder_set_aside_is_its_operators_to_fail() -> None:
    """The rows are damaged at the owner, the content at the holder: dropped there, and bounced here."""
    events = (
        *DELIVERED[:3], damaged("mx1", 10, "rows"), damaged("mx2", 10), SUSPENDED, row("mx1", 21, Kind.DROP),
        row("mx2", 22, Kind.SUSPEND), row("mx2", 23, Kind.FAIL),
    )  # fmt: skip
    findings = told(*events)
    assert {MEANING[one][0] for one in findings} == {Severity.NOTE}
    assert findings[Class.SET_ASIDE] == "an operator has decided"


@pytest.mark.parametrize(
    ("rows", "then"),
    [
        ((), "an operator has to decide"),
        (("RESUME", "SUSPEND"), "an operator has to decide"),
        (("RESUME", "DELIVER"), "an operator has decided"),
        (("DROP",), "an operator dropped it"),
    ],
)
def test_what_was_set_aside_tells_what_the_operator_decided(rows: tuple[str, ...], then: str) -> None:
    more = tuple(row("mx1", 21 + number, Kind(kind)) for number, kind in enumerate(rows))
    assert told(*QUEUED[:3], damaged("mx1", 10), SUSPENDED, *more)[Class.SET_ASIDE] == then


def test_recipients_that_were_delivered_before_are_none_of_it() -> None:
    two = [one if one.kind is Kind.LOAD else replace(one, recipients=(1, 2)) for one in (*QUEUED, SUSPENDED)]
    sent = replace(row("mx1", 5, Kind.DELIVER), recipients=(2,))
    settled = replace(row("mx2", 5, Kind.HADISCARD, "mx1", "ExplicitlyDiscarded"), recipients=(2,))
    findings = judge([*two, sent, settled, damaged("mx1", 10), damaged("mx2", 10)], BOTH).findings
    assert [one.recipients for one in findings if one.what is Class.DAMAGED] == [(1,)]
    assert Class.LOST not in {one.what for one in findings}


def test_who_sets_it_aside_has_asked_all_others_whose_logs_may_be_missing() -> None:
    databases = {**BOTH.databases, "mx3": replace(BOTH.databases["mx3"], whole=False)}
    evidence = replace(BOTH, databases=databases)
    third = (row("mx1", 4, Kind.HAREDIRECT, "mx3"),)
    events = (*QUEUED, *third, damaged("mx1", 10), damaged("mx2", 10))
    assert Class.UNPROVEN_LOSS in told(*events, evidence=evidence)
    assert Class.DAMAGED in told(*events, SUSPENDED, evidence=evidence)


def test_what_nobody_received_is_not_said_to_have_been_acknowledged() -> None:
    databases = {
        **BOTH.databases,
        "mx1": replace(BOTH.databases["mx1"], lost=True, closed=False, snapshot=None),
    }
    events = (row("mx2", 2, Kind.HARECEIVE, "mx1"), damaged("mx2", 10), load("mx2", "shadow"))
    aside = row("mx2", 20, Kind.SUSPEND)
    findings = told(*events, aside, evidence=replace(BOTH, databases=databases))
    assert set(findings) == {Class.UNPROVEN_LOSS, Class.SET_ASIDE, Class.EXPOSED}


def test_rows_that_could_not_be_believed_are_neither_vanished_nor_a_contradiction() -> None:
    """Its node drops them without a word once nobody needs them, and may take the message again."""
    told_of = (*DELIVERED[:4], damaged("mx2", 10, "rows"))
    assert set(told(*told_of, evidence=with_snapshot())) == {Class.EXPOSED}
    again = replace(row("mx2", 20, Kind.HARECEIVE, "mx1"), recipients=(2,))
    both = (replace(one, recipients=(1, 2)) for one in DELIVERED[:3])
    more = (*both, again, replace(load("mx2", "shadow"), recipients=(2,)))
    held = (*more, row("mx1", 4, Kind.DELIVER), damaged("mx2", 10, "rows"))
    queued = replace(load("mx1", "primary"), recipients=(2,))
    assert set(told(*held, queued, evidence=BOTH)) == {Class.EXPOSED, Class.IN_TRANSIT}


def test_a_message_whose_rows_were_restored_is_its_nodes_again() -> None:
    events = (
        damaged("mx1", 2, "rows"), row("mx1", 3, Kind.HARESTORE, "mx2"), row("mx1", 4, Kind.DELIVER),
        row("mx2", 2, Kind.HARECEIVE, "mx1"), row("mx2", 3, Kind.HARESTORE, "mx2"),
        row("mx2", 4, Kind.HADISCARD, "mx1", "ExplicitlyDiscarded"),
    )  # fmt: skip
    assert set(told(*events)) == {Class.NEVER_ACKNOWLEDGED}


# An arrival that was refused, and is found later.


def test_a_refused_arrival_that_its_holder_delivers_breaks_no_promise() -> None:
    taken = again(row("mx2", 3, Kind.RESUBMIT, "mx1", "owner-forgot"), row("mx2", 4, Kind.DELIVER))
    events = (row("mx2", 2, Kind.HARECEIVE, "mx1"), *taken)
    assert Class.NEVER_ACKNOWLEDGED in told(*events)
    yielded = (row("mx1", 5, Kind.HARECEIVE, "mx2"), row("mx1", 6, Kind.HADISCARD, "mx2", "Superseded"))
    severities = {MEANING[one][0] for one in told(*events, *again(*yielded))}
    assert severities == {Severity.NOTE}


def test_nor_one_that_is_lost_or_damaged_after_that() -> None:
    taken = again(row("mx2", 3, Kind.RESUBMIT, "mx1", "owner-forgot"))
    events = (row("mx2", 2, Kind.HARECEIVE, "mx1"), *taken)
    lost = {**EVIDENCE.databases, "mx2": replace(EVIDENCE.databases["mx2"], lost=True, closed=False)}
    spoilt = again(load("mx2", "primary"), damaged("mx2", 10), row("mx2", 20, Kind.SUSPEND))
    for rows, evidence in ((events, replace(EVIDENCE, databases=lost)), ((*events, *spoilt), BOTH)):
        assert {MEANING[one][0] for one in told(*rows, evidence=evidence)} == {Severity.NOTE}


def test_nor_one_that_a_stale_page_brings_back_after_a_start() -> None:
    events = (
        row("mx2", 2, Kind.HARECEIVE, "mx1"), row("mx2", 3, Kind.HADISCARD, "mx1", "Rejected"),
        row("mx1", 4, Kind.HAREDIRECTFAIL), saying(row("mx1", 5, Kind.RECEIVE), Replication="Unknown"),
        row("mx1", 6, Kind.DELIVER),
    )  # fmt: skip
    assert set(told(*events)) == {Class.EXPOSED}
