"""What Safety Net gives back: rows that are written down here, for what no generated story has."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from auditing import Auditor
from click.testing import CliRunner
from plainly import by_rows, judged
from test_audit_verdicts import DELIVERED, EVIDENCE, again, row

from shadowaudit.cli import main
from shadowaudit.core.events import Event, Kind
from shadowaudit.core.evidence import Evidence
from shadowaudit.core.findings import MEANING, Class, Finding, Severity
from shadowaudit.core.fingerprint import key_of
from shadowaudit.core.judge import judge
from shadowaudit.core.resubmitted import resubmission_id
from shadowaudit.core.verdict import PROVEN
from shadowaudit.core.weighing import weigh
from shadowaudit.logs.file import digest_file
from shadowlab.generate.cluster import generate
from shadowlab.generate.message import OWNER, Message
from shadowlab.generate.resubmitting import RESUBMITTING
from shadowlab.generate.stories import FAULTS

ORIGINAL = "01a1f0be-24e4-766c-be62-dc047c6895f0"
REQUEST = "5afe7e70-0000-4000-8000-000000000001"
NEW = resubmission_id(REQUEST, ORIGINAL)
ANNA, BEN = "anna@example.com", "ben@example.com"


def about(events: tuple[Event, ...], message: str = ORIGINAL, address: str = ANNA) -> tuple[Event, ...]:
    return tuple(replace(one, message=message, addresses=(address,)) for one in events)


def begins(node: str, sequence: int, kind: Kind = Kind.RESUBMITTED) -> Event:
    one = replace(row(node, sequence, kind), reason=f"request {REQUEST}", context=f"request {REQUEST}")
    entries = {"Request": REQUEST, "Owner": "mx1"}
    (found,) = about((replace(one, source="SAFETYNET", reference=ORIGINAL, entries=entries),), NEW)
    return found


def given_back(node: str, sequence: int = 8) -> Event:
    """That row among those of the original."""
    return begins(node, sequence, Kind.RESUBMISSION)


def but(name: str, **changes: bool) -> Evidence:
    """A database is worth less."""
    one = replace(EVIDENCE.databases[name], **changes)
    return replace(EVIDENCE, databases={**EVIDENCE.databases, name: one})


def found(*events: Event, evidence: Evidence = EVIDENCE) -> dict[Class, Finding]:
    return {one.what: one for one in judge(events, evidence).findings}


GOOD = about(DELIVERED)
UNDELIVERED = tuple(one for one in GOOD if one.kind is not Kind.DELIVER)
LOST = but("mx1", lost=True, closed=False)


# Of the original.


@pytest.mark.parametrize("node", ["mx1", "mx2"])
def test_what_was_delivered_may_be_given_back_by_its_owner_and_by_its_holder(node: str) -> None:
    assert found(*GOOD, given_back(node)) == {}


@pytest.mark.parametrize("kind", [Kind.DELIVER, Kind.DUPLICATEDELIVER, Kind.SEND])
def test_so_may_what_was_sent_inside_the_boundary_in_any_way(kind: Kind) -> None:
    reply = "250 2.0.0 Duplicate dropped" if kind is Kind.DUPLICATEDELIVER else "250 OK"
    events = tuple(
        replace(one, kind=kind, reason=reply, context=reply) if one.kind is Kind.DELIVER else one
        for one in GOOD
    )
    assert Severity.VIOLATION not in {MEANING[one][0] for one in found(*events, given_back("mx1"))}


@pytest.mark.parametrize(("kind", "reply"), [(Kind.SENDEXTERNAL, "250 OK"), (Kind.FAIL, "550 no")])
def test_what_crossed_the_boundary_or_bounced_may_not(kind: Kind, reply: str) -> None:
    events = tuple(
        replace(one, kind=kind, reason=reply, sender="<>") if one.kind is Kind.DELIVER else one
        for one in GOOD
    )
    finding = found(*events, given_back("mx2"))[Class.RESUBMITTED_OUTSIDE]
    assert (finding.severity, finding.recipients) == (Severity.VIOLATION, (1,))
    assert f"given back by mx2 as {NEW}" in finding.detail
    assert {kind, Kind.RESUBMISSION} == {(*events, given_back("mx2"))[index].kind for index in finding.rows}
    for evidence in (LOST, but("mx3", whole=False)):
        assert Class.RESUBMITTED_OUTSIDE in found(*events, given_back("mx2"), evidence=evidence)


def test_each_recipient_is_judged_by_its_own_end_and_found_by_its_address() -> None:
    """The new message need not number them as the original does."""
    two = tuple(replace(one, recipients=(1, 2), addresses=(BEN, ANNA)) for one in GOOD)
    inside = replace(two[3], recipients=(2,), addresses=("anna@EXAMPLE.com",))
    outside = replace(two[3], kind=Kind.SENDEXTERNAL, sequence=5, recipients=(1,), addresses=(BEN,))
    events = (*two[:3], inside, outside, two[4])
    assert found(*events, given_back("mx1")) == {}
    both = replace(given_back("mx1"), recipients=(1, 2), addresses=(ANNA, BEN))
    assert found(*events, both)[Class.RESUBMITTED_OUTSIDE].recipients == (2,)


def test_what_no_log_delivers_is_a_violation_if_all_logs_are_complete() -> None:
    (finding,) = (one for one in judge((*UNDELIVERED, given_back("mx2")), EVIDENCE).findings
                  if one.what is Class.RESUBMITTED_EARLY)  # fmt: skip
    assert finding.severity is Severity.VIOLATION
    for evidence in (LOST, but("mx1", closed=False), but("mx1", whole=False)):
        classes = found(*UNDELIVERED, given_back("mx2"), evidence=evidence)
        assert Class.RESUBMITTED_EARLY not in classes
        assert MEANING[Class.RESUBMITTED_UNVERIFIED][0] is Severity.NOTE
        assert Class.RESUBMITTED_UNVERIFIED in classes


def test_where_the_owners_disk_is_lost_the_delivery_in_another_log_is_enough() -> None:
    taken = again(row("mx2", 3, Kind.RESUBMIT, "mx1", "heartbeat-lost"), row("mx2", 4, Kind.DELIVER))
    events = (*GOOD[:3], *about(taken), given_back("mx2"))
    classes = found(*events, evidence=LOST)
    assert {Class.RESUBMITTED_EARLY, Class.RESUBMITTED_UNVERIFIED}.isdisjoint(classes)


def test_a_delivery_that_the_same_database_logs_later_came_too_late() -> None:
    later = tuple(replace(one, sequence=9) if one.kind is Kind.DELIVER else one for one in GOOD)
    assert set(found(*later, given_back("mx1"))) == {Class.RESUBMITTED_EARLY}
    assert Class.RESUBMITTED_EARLY in found(*later, given_back("mx1"), evidence=but("mx2", closed=False))


def test_a_holder_gives_nothing_back_before_it_heard_of_the_delivery() -> None:
    late = tuple(replace(one, sequence=9) if one.kind is Kind.HADISCARD else one for one in GOOD)
    assert found(*GOOD, given_back("mx2", 4)) == {}
    detail = found(*late, given_back("mx2", 4))[Class.RESUBMITTED_EARLY].detail
    assert "had not heard" in detail
    gap = but("mx2", whole=False)
    assert Class.RESUBMITTED_EARLY not in found(*late, given_back("mx2", 4), evidence=gap)


def test_of_what_no_log_knows_it_depends_on_all_logs() -> None:
    (finding,) = judge((given_back("mx2"),), EVIDENCE).findings
    assert finding.what is Class.RESUBMITTED_EARLY
    from_late = but("mx2", from_start=False)
    (finding,) = judge((given_back("mx2"),), from_late).findings
    assert finding.what is Class.RESUBMITTED_UNVERIFIED


def test_what_was_given_back_is_not_given_back_again() -> None:
    events = (
        begins("mx1", 3),
        *about((row("mx1", 4, Kind.HAREDIRECT, "mx2"), row("mx1", 5, Kind.DELIVER)), NEW),
    )
    held = about(
        (row("mx2", 3, Kind.HARECEIVE, "mx1"), row("mx2", 4, Kind.HADISCARD, "mx1", "ExplicitlyDiscarded")),
        NEW,
    )
    assert found(*events, *held) == {}
    more = replace(given_back("mx1"), reference=NEW, message="another")
    assert set(found(*events, *held, more)) == {Class.RESUBMITTED_AGAIN}


@pytest.mark.parametrize(("name", "good"), [("Content", "xxh3-128:aa"), ("size", 7)])
def test_its_content_is_that_of_the_original(name: str, good: str | int) -> None:
    def saying(one: Event, what: str | int) -> Event:
        if name == "size":
            return replace(one, size=int(what))
        return replace(one, entries={**one.entries, name: str(what)})

    events = tuple(saying(one, good) if one.kind is not Kind.HAREDIRECT else one for one in GOOD)
    assert found(*events, saying(given_back("mx1"), good)) == {}
    classes = found(*events, saying(given_back("mx1"), 8 if name == "size" else "xxh3-128:bb"))
    assert set(classes) == {Class.ALTERED}
    assert found(*GOOD, saying(given_back("mx1"), good)) == {}, "the original has none to compare"


# Of the new message.


def test_a_new_message_that_is_copied_before_it_is_sent_gives_no_finding() -> None:
    rest = (
        row("mx1", 3, Kind.HAREDIRECT, "mx2"),
        row("mx2", 2, Kind.HARECEIVE, "mx1"),
        row("mx1", 4, Kind.DELIVER),
    )
    gone = row("mx2", 3, Kind.HADISCARD, "mx1", "ExplicitlyDiscarded")
    assert found(begins("mx1", 2), *about((*rest, gone), NEW)) == {}
    late = (replace(rest[0], sequence=5), *rest[1:])
    classes = found(begins("mx1", 2), *about((*late, gone), NEW))
    assert set(classes) == {Class.EXPOSED}
    assert "after it was resubmitted" in classes[Class.EXPOSED].detail


def test_it_is_no_promotion_and_begins_no_epoch() -> None:
    sent = about((row("mx1", 4, Kind.DELIVER),), NEW)
    assert set(found(begins("mx1", 2), *sent)) == {Class.EXPOSED}
    assert Class.INCONSISTENT in found(replace(begins("mx1", 2), epoch=2), *again(*sent))


@pytest.mark.parametrize(
    "changes",
    [
        {"message": resubmission_id("another", ORIGINAL)},
        {"reference": "another"},
        {"reference": ""},
        {"entries": {}},
        {"entries": {"Request": "another"}},
        {"context": "request another"},
    ],
    ids=str,
)
def test_its_id_is_the_one_that_request_and_original_give(changes: dict[str, object]) -> None:
    one = replace(begins("mx1", 2), **changes)  # type: ignore[arg-type]
    sent = about((row("mx1", 4, Kind.DELIVER),), one.message)
    assert Class.INCONSISTENT in found(one, *sent)


def test_a_hop_that_says_later_that_it_is_delivered_makes_a_duplicate_that_is_allowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was asked in vain, and delivers all the same."""

    def story(m: Message) -> None:
        RESUBMITTING["sent-again-past-a-hop"][0](m)
        told = {
            "source": "REDUNDANCY",
            "server": "edge.example.net",
            "context": f"ExplicitlyDiscarded;{m.id}",
        }
        m.add(130_000, OWNER, m.row("HADISCARD", **told))

    monkeypatch.setitem(FAULTS, "later", (story, ()))
    generate(tmp_path, messages=4, faults={"later": 1}, seed=1)
    assert judged(tmp_path)[0].status == PROVEN


@pytest.mark.parametrize("back", [False, True])
def test_a_database_that_was_set_back_has_forgotten_what_a_hop_said(tmp_path: Path, *, back: bool) -> None:
    generate(tmp_path, messages=4, faults={"sent-again-past-a-hop-that-delivered": 1}, seed=1)
    digests = [digest_file(path) for path in sorted(tmp_path.rglob("MSGTRK*.LOG"))]
    evidence = weigh([one for one, _ in digests], lost=(), allow_open=False, opened=(), since=None, notes=())
    databases = {name: replace(one, rolled_back=back) for name, one in evidence.databases.items()}
    judged_so = by_rows(digests, replace(evidence, databases=databases)).values()
    accused = any(Class.RESUBMITTED_OUTSIDE in classes for _, classes in judged_so)
    assert accused is not back


def test_two_nodes_may_make_it_and_one_of_them_sends_it() -> None:
    made = (begins("mx1", 2), begins("mx2", 2))
    sent = about((row("mx1", 4, Kind.DELIVER),), NEW)
    told = about((row("mx2", 4, Kind.HADISCARD, "mx1", "DeliveredElsewhere"),), NEW)
    assert set(found(*made, *sent, *told)) == {Class.EXPOSED}
    both = about((row("mx2", 4, Kind.DELIVER),), NEW)
    assert Class.DUPLICATE in found(*made, *sent, *both)
    other = replace(made[1], entries={**made[1].entries, "Content": "xxh3-128:bb"})
    first = replace(made[0], entries={**made[0].entries, "Content": "xxh3-128:aa"})
    assert Class.ALTERED in found(first, other, *sent, *told), "unlike a report it has one content"


# Journal copies.


def journal(message: str) -> tuple[Event, ...]:
    one = replace(row("mx1", 2, Kind.JOURNAL), source="AGENT", reference=ORIGINAL)
    return about((one, row("mx1", 3, Kind.DELIVER)), message)


def test_a_journal_copy_needs_no_second_one_before_it_is_made_and_has_a_derived_id() -> None:
    assert found(*journal(NEW)) == {}
    assert set(found(*journal("01a1f0be-24e4-766c-be62-dc047c6895f1"))) == {Class.INCONSISTENT}


# In files.


def test_the_original_is_looked_at_though_its_sums_agree_and_others_are_not(
    here: Auditor, tmp_path: Path
) -> None:
    generate(tmp_path / "logs", messages=50, faults={"resubmitted": 1, "journal-copy": 1}, seed=2)
    verdict = here(tmp_path / "logs")
    assert (verdict.totals["suspects"], verdict.totals["resubmitted"], verdict.totals["received"]) == (
        2,
        1,
        50,
    )
    assert verdict.classes == {}


def test_an_original_in_logs_that_are_gone_is_named_by_its_own_id(tmp_path: Path) -> None:
    """Its rows were deleted; whoever gave it back still names it."""
    truth = generate(tmp_path / "logs", messages=1, faults={"resubmitted": 1}, seed=2)
    assert truth.messages == 2
    for path in sorted((tmp_path / "logs").rglob("*.LOG")):
        lines = path.read_bytes().splitlines(keepends=True)
        kept = [line for line in lines if b"SAFETYNET" in line or line.startswith(b"#") or b",LOAD," in line]
        path.write_bytes(b"".join(kept))
    _, classes = judged(tmp_path / "logs")
    (original,) = (name for name, found in classes.items() if Class.RESUBMITTED_UNVERIFIED in found)
    tables = [digest_file(path)[1].to_pylist() for path in sorted((tmp_path / "logs").rglob("*.LOG"))]
    rows = {(one["high"], one["low"]): one for table in tables for one in table}
    assert (rows[key_of(original)]["rows"], rows[key_of(original)]["odd"]) == (0, 1)


def test_what_is_given_back_is_told_where_totals_are_and_explained_with_the_other_id(tmp_path: Path) -> None:
    logs, out = tmp_path / "logs", tmp_path / "out"
    generate(logs, messages=3, faults={"resubmitted": 1}, seed=2)
    told = CliRunner().invoke(main, ["verify", str(logs), "--engine", "here", "--out", str(out)])
    assert (told.exit_code, " 1 given back;" in told.output) == (0, True), told.output
    assert "given back by Safety Net" in (out / "report.html").read_text("utf-8")
    assert json.loads((out / "verdict.json").read_text("utf-8"))["totals"]["resubmitted"] == 1
    lines = (line for path in logs.rglob("*.LOG") for line in path.read_text("utf-8").splitlines())
    (row,) = (line for line in lines if "SAFETYNET" in line)
    cells = row.split(",")
    new, original = cells[11], cells[17]
    for asked, other in ((new, f"of {original}"), (original, f"as {new}")):
        shown = CliRunner().invoke(main, ["explain", asked, str(logs)])
        assert other in " ".join(shown.output.split()), shown.output
        assert "nothing to remark" in shown.output


@pytest.mark.parametrize("fault", ["resubmitted", "resubmitted-outside"])
def test_a_message_that_was_settled_is_judged_again_when_it_is_given_back(
    here: Auditor, tmp_path: Path, fault: str
) -> None:
    """The row that does so may be in a log that is read days later."""
    logs, state = tmp_path / "logs", tmp_path / "state"
    truth = generate(logs, messages=60, faults={fault: 2}, seed=3, file_size=4000)
    late = {path: path.read_bytes() for path in logs.rglob("*.LOG") if b"SAFETYNET" in path.read_bytes()}
    for path in late:
        path.unlink()
    before = here(logs, out=tmp_path / "before", state=state)
    assert Class.RESUBMITTED_OUTSIDE not in before.classes
    for path, octets in late.items():
        path.write_bytes(octets)
    after = here(logs, out=tmp_path / "after", state=state)
    assert after.classes == here(logs, out=tmp_path / "anew").classes == truth.classes
    assert after.totals["resubmitted"] == 2
