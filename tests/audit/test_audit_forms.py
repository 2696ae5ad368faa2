"""Each row has the form of its event: what was erased, or stands under another name, is missing evidence."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pytest
from auditing import Auditor
from plainly import judged
from resealing import copied, event, resealed, rows
from resealing import logs as files_of
from test_audit_good_copies import found
from test_audit_verdicts import row

from shadowaudit.core.events import ADMIN, Event, Kind
from shadowaudit.core.findings import Class
from shadowaudit.core.forms import FORMS, unfit
from shadowaudit.core.verdict import INCOMPLETE, PROVEN
from shadowlab.generate.cluster import generate
from shadowrelay.core.identifiers import ServerName
from shadowrelay.core.pressure import PressureLevel, Resource
from shadowrelay.core.tracking import PressureChanged
from shadowrelay.tracking.format import render

CURRENT, BEFORE = "01.00.0001.000", "01.00.0000.000"


def without(entry: str) -> Callable[[bytes], bytes]:
    return lambda line: re.sub(rb";S:" + entry.encode() + rb"=[^;,]*", b"", line, count=1)


def column(number: int, text: bytes = b"") -> Callable[[bytes], bytes]:
    def changed(line: bytes) -> bytes:
        cells = line.split(b",")
        cells[number] = text
        return b",".join(cells)

    return changed


def named(name: str) -> Callable[[bytes], bytes]:
    return column(8, name.encode())


ERASED = [
    *(("HARECEIVE", without(one)) for one in ("Epoch", "OwnerDb", "Rank", "Content", "Envelope")),
    *(("HAREDIRECT", without(one)) for one in ("Epoch", "Shadow", "ShadowDb")),
    *(("HADISCARD", without(one)) for one in ("TellerDb", "Content", "Envelope")),
    *(("REMOVE", without(one)) for one in ("Operator", "Job", "Fork", "Content")),
    *(("RESUBMIT", without(one)) for one in ("Owner", "OwnerDb", "Reason")),
    *(("DELIVER", column(number)) for number in (4, 5, 7, 13, 14, 19)),
    *(("FAIL", column(number)) for number in (5, 7, 13, 19)),
    *(("HARECEIVE", column(number)) for number in (2, 17)),
    *(("RECEIVE", column(number)) for number in (7, 19, 29)),
]

RENAMED = [
    ("RECEIVE", "DSN"),
    ("RECEIVE", "HARECEIVE"),
    ("DELIVER", "EXPAND"),
    ("DELIVER", "DEFER"),
    ("DEFER", "DELIVER"),
    ("HADAMAGE", "HARESTORE"),
    ("REMOVE", "SUSPEND"),
    ("REMOVE", "FAIL"),
    ("HAREDIRECT", "HARECEIVE"),
    ("HADISCARD", "HARECEIVE"),
    ("TRANSFER", "RESUBMIT"),
]


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Path:
    logs = tmp_path_factory.mktemp("forms") / "logs"
    stories = ("promotion", "handover", "removed", "bounced", "damaged-copy", "in-transit")
    generate(logs, messages=12, faults=dict.fromkeys(stories, 1), seed=3)
    return logs


@pytest.mark.parametrize(
    ("name", "change"),
    [*ERASED, *((one, named(other)) for one, other in RENAMED)],
    ids=[*(f"{name} {number}" for number, (name, _) in enumerate(ERASED)), *map(" as ".join, RENAMED)],
)
def test_what_is_erased_or_renamed_is_missing_evidence_and_accuses_nobody(
    clean: Path, tmp_path: Path, here: Auditor, name: str, change: Callable[[bytes], bytes]
) -> None:
    verdict = here(clean, out=tmp_path / "first")
    assert verdict.status == PROVEN
    target = tmp_path / "logs"
    for path in files_of(clean):
        copy = target / path.relative_to(clean)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(path.read_bytes())
    path, line = next((path, line) for path in files_of(target) for line in rows(path) if event(line) == name)
    path.write_bytes(path.read_bytes().replace(line, change(line), 1))
    resealed(target)
    assert here(target).status == INCOMPLETE
    assert judged(target)[0].status == INCOMPLETE


def test_rows_of_the_first_version_are_judged_as_they_were(clean: Path, tmp_path: Path) -> None:
    """They lack much of what later ones have. The source of an event was always the same."""
    target = tmp_path / "logs"
    for path in files_of(clean):
        copy = target / path.relative_to(clean)
        copy.parent.mkdir(parents=True, exist_ok=True)
        text = path.read_bytes().replace(CURRENT.encode(), BEFORE.encode())
        copy.write_bytes(re.sub(rb";S:(ShadowDb|OwnerDb|TellerDb|Fork)=[^;,]*", b"", text))
    resealed(target)
    assert judged(target)[0].status == PROVEN
    assert unfit("RECEIVE", "SMTP", BEFORE, frozenset()) == ""
    assert unfit("RECEIVE", "DSN", BEFORE, frozenset()) == "RECEIVE of source 'DSN'"
    assert unfit("RECEIVE", "SMTP", "01.00.0009.000", frozenset()) == "schema-version '01.00.0009.000'"


ALIKE = {
    ("DELIVER", "DUPLICATEDELIVER"),  # the reply tells
    ("SEND", "SENDEXTERNAL"),
    ("RESUME", "RETRY"),
    ("RESUME", "SUSPEND"),
    ("RETRY", "SUSPEND"),
    ("DUPLICATERECEIVE", "HAREDIRECTFAIL"),
    *(("REMOVE", other) for other in ("RESUME", "RETRY", "SUSPEND")),  # without digests
    *(("HAREDIRECTFAIL", "RECEIVE"), ("DUPLICATERECEIVE", "RECEIVE")),  # the same
    ("DROP", "RESUME"),
    *(("HADISCARD", one) for one in ("DUPLICATERECEIVE", "HAREDIRECTFAIL", "RECEIVE", "TRANSFER")),
}


def test_which_events_of_one_source_may_have_one_form_is_known() -> None:
    alike = {
        tuple(sorted((one.event.value, other.event.value)))
        for one in FORMS
        for other in FORMS
        if one.event != other.event and one.source == other.source and other.fits(one.always)
    }
    assert alike == {tuple(sorted(pair)) for pair in ALIKE}


DUPLICATE = (
    row("mx2", 2, Kind.HARECEIVE, "mx1"),
    row("mx1", 2, Kind.HAREDIRECT, "mx2"),
    row("mx1", 3, Kind.RECEIVE),
    row("mx1", 5, Kind.DELIVER),
    row("mx1", 7, Kind.DELIVER),
    row("mx2", 3, Kind.HADISCARD, "mx1", "ExplicitlyDiscarded"),
)


@pytest.mark.parametrize(
    ("sequence", "recipients", "what"),
    [
        (4, (1,), Class.ALLOWED_DUPLICATE),
        (6, (1,), Class.ALLOWED_DUPLICATE),
        (8, (1,), Class.DUPLICATE),
        (6, (2,), Class.DUPLICATE),
    ],
    ids=["before both", "before the second", "after both", "of another recipient"],
)
def test_a_doubt_excuses_its_own_recipient_and_what_is_delivered_later(
    sequence: int, recipients: tuple[int, ...], what: Class
) -> None:
    doubt = replace(row("mx1", sequence, Kind.DEFER), recipients=recipients, entries={"InDoubt": "true"})
    assert what in found(*DUPLICATE, doubt)
    other = Class.DUPLICATE if what is Class.ALLOWED_DUPLICATE else Class.ALLOWED_DUPLICATE
    assert other not in found(*DUPLICATE, doubt)


def asked(node: str, sequence: int, kind: Kind, *recipients: int) -> Event:
    entries = {"Operator": "kim", "Job": "1"}
    return replace(row(node, sequence, kind), source=ADMIN, entries=entries, recipients=recipients or (1,))


@pytest.mark.parametrize(
    ("suspended", "what"),
    [
        (asked("mx1", 4, Kind.SUSPEND), set()),
        (asked("mx2", 9, Kind.SUSPEND), set()),
        (asked("mx1", 4, Kind.SUSPEND, 2), {Class.INCONSISTENT}),
        (asked("mx1", 6, Kind.SUSPEND), {Class.INCONSISTENT}),
        (asked("mx1", 4, Kind.RETRY), {Class.INCONSISTENT}),
    ],
    ids=["here before", "at another node", "another recipient", "here afterwards", "tried, not suspended"],
)
def test_an_operator_resumes_what_one_suspended(suspended: Event, what: set[Class]) -> None:
    events = (*DUPLICATE[:3], asked("mx1", 5, Kind.RESUME), replace(DUPLICATE[4]), DUPLICATE[5])
    assert found(*events, suspended) & {Class.INCONSISTENT} == what


@pytest.mark.parametrize("entry", ["", "Resource", "Level", "Before", "Reading"])
def test_a_row_of_back_pressure_is_about_no_message_and_has_all_its_entries(
    clean: Path, tmp_path: Path, here: Auditor, entry: str
) -> None:
    target = copied(clean, tmp_path / "logs")
    path, line = next(
        (path, line) for path in files_of(target) for line in rows(path) if event(line) == "RECEIVE"
    )
    whose = re.search(rb"S:Boot=([^;]+);S:Db=([^;,]+)", line)
    assert whose
    boot, database = (one.decode() for one in whose.groups())
    told = PressureChanged(
        at=datetime.fromisoformat(line.split(b",")[0].decode()),
        resource=Resource.LOG_DISK,
        before=PressureLevel.LOW,
        level=PressureLevel.MEDIUM,
        reading=89.5,
    )
    server = ServerName(path.parent.name)
    more = render(told.columns(), sequence=1, incarnation=boot, database_id=database, server=server).encode()
    more = without(entry)(more) if entry else more
    path.write_bytes(path.read_bytes().replace(line, line + more, 1))
    resealed(target)
    before, after = here(clean, out=tmp_path / "first"), here(target)
    assert (after.status, after.classes) == (INCOMPLETE if entry else PROVEN, before.classes)
    assert (judged(target)[0].status == PROVEN) == (not entry)
