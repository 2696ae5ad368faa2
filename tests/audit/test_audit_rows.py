"""What is no row proves nothing: it is counted and shown, and a fault of the collection accuses nobody."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from auditing import Auditor
from click.testing import CliRunner
from plainly import judged
from resealing import logs as files_of
from resealing import resealed
from test_audit_exchange import YEARS, log, row

from shadowaudit.cli import main
from shadowaudit.core.facts import Fault
from shadowaudit.core.findings import Class
from shadowaudit.core.verdict import INCOMPLETE, PROVEN, Verdict
from shadowlab.generate.cluster import generate

TO = "u@example.test"


def asked(here: Auditor, directory: Path) -> Verdict:
    """The verdict by rows alone, and the engine's, which is the same."""
    plain, _ = judged(directory)
    verdict = here(directory)
    assert (verdict.status, verdict.classes) == (plain.status, plain.classes)
    return verdict


def unreadable(verdict: Verdict) -> list[str]:
    return [gap.what for gap in verdict.evidence.gaps if re.search(r"\brows? that cannot be read", gap.what)]


# Exchange's rows.


def test_a_log_of_exchange_that_ends_inside_a_row_proves_nothing(here: Auditor, tmp_path: Path) -> None:
    cut = ",".join(row(2016, "RECEIVE", to=f"{TO};second@example.test").split(",")[:12]) + f",{TO}"
    log(tmp_path, 2016, [row(2016, "RECEIVE", 2), row(2016, "DELIVER", 2), cut])
    log(tmp_path, 2016, [row(2016, "DELIVER", to=TO)], name="MSGTRK2026112111-1.LOG")
    verdict = asked(here, tmp_path)
    assert verdict.status == INCOMPLETE
    (told,) = unreadable(verdict)
    assert "1 row that" in told
    assert "2026-11-21T10:00:01.000Z" in told


@pytest.mark.parametrize("year", YEARS)
@pytest.mark.parametrize("more", [-1, 1], ids=["a column less", "a column more"])
@pytest.mark.parametrize("subject", ["", '"quoted"', '5" disks'], ids=["plain", "quoted", "a quote inside"])
def test_a_row_that_has_not_the_columns_of_its_fields_is_none(
    here: Auditor, tmp_path: Path, year: int, more: int, subject: str
) -> None:
    cells = row(year, "DELIVER", 2, message_subject=subject).split(",")
    line = ",".join(cells[:more] if more < 0 else [*cells, ""])
    log(tmp_path, year, [row(year, "RECEIVE"), row(year, "DELIVER"), line])
    verdict = asked(here, tmp_path)
    assert (verdict.status, verdict.classes) == (INCOMPLETE, {})
    assert len(unreadable(verdict)) == 1


NO_TIME = ("", "yesterday", "2026-13-21T10:00:00Z", "2026-11-21T10:00:00", "1795255200000", "date-time")


@pytest.mark.parametrize("time", NO_TIME)
def test_a_row_without_a_valid_time_is_none(here: Auditor, tmp_path: Path, time: str) -> None:
    log(tmp_path, 2016, [row(2016, "RECEIVE"), row(2016, "DELIVER", date_time=time)])
    verdict = asked(here, tmp_path)
    assert (verdict.status, verdict.classes) == (INCOMPLETE, {Class.OPEN: 1})
    assert len(unreadable(verdict)) == 1


def test_a_line_of_names_is_no_row(here: Auditor, tmp_path: Path) -> None:
    rows = [row(2016, "RECEIVE"), ",".join(YEARS[2016]), row(2016, "DELIVER")]
    log(tmp_path, 2016, rows)
    verdict = asked(here, tmp_path)
    assert (verdict.status, verdict.classes) == (INCOMPLETE, {})
    assert len(unreadable(verdict)) == 1


@pytest.mark.parametrize("event", ["RECEIVE", "DELIVER"])
@pytest.mark.parametrize("count", ["2", "0", "x"])
def test_a_row_that_counts_other_recipients_than_it_lists_is_none(
    here: Auditor, tmp_path: Path, event: str, count: str
) -> None:
    rows = [row(2016, one, recipient_count=count if one == event else "1") for one in ("RECEIVE", "DELIVER")]
    log(tmp_path, 2016, rows)
    verdict = asked(here, tmp_path)
    assert verdict.status == INCOMPLETE
    assert len(unreadable(verdict)) == 1


def test_addresses_that_are_no_text_are_not_taken_for_equal(here: Auditor, tmp_path: Path) -> None:
    path = log(tmp_path, 2016, [row(2016, "RECEIVE", to="m?ller@x"), row(2016, "DELIVER", to="m!ller@x")])
    path.write_bytes(path.read_bytes().replace(b"m?ller", b"m\xfcller").replace(b"m!ller", b"m\xf6ller"))
    verdict = asked(here, tmp_path)
    assert verdict.status == INCOMPLETE
    assert len(unreadable(verdict)) == 1


# Our rows, in files that are sealed again.

HARM = {
    "no time": (rb",DELIVER,", rb"^[^,]*", b""),
    "no such day": (rb",DELIVER,", rb"^2026-11", b"2026-13"),
    "no epoch": (rb",DELIVER,", rb"S:Epoch=1", b"S:Epoch="),
    "epoch 0": (rb",DELIVER,", rb"S:Epoch=1", b"S:Epoch=0"),
    "an epoch that is no number": (rb",DELIVER,", rb"S:Epoch=1", b"S:Epoch=one"),
    "an epoch below 0": (rb",HADISCARD,", rb"S:Epoch=1", b"S:Epoch=-1"),
    "a recipient twice": (rb",HADISCARD,.*,4096,2,", rb"S:Epoch=1", b"S:Epoch=1;S:Recipients=1+1"),
    "recipient 0": (rb",HADISCARD,", rb"S:Epoch=1", b"S:Epoch=1;S:Recipients=0"),
    "a recipient that is no number": (rb",DELIVER,", rb"S:Epoch=1", b"S:Epoch=1;S:Recipients=x"),
    "more than it lists": (rb",DELIVER,", rb",4096,\d+,", b",4096,7,"),
    "a count that is no number": (rb",RECEIVE,", rb",4096,\d+,", b",4096,one,"),
    "no size": (rb",DELIVER,", rb",4096,", b",,"),
    "a size that is none": (rb",DELIVER,", rb",4096,", b",4k,"),
    "an id that is none": (rb",DELIVER,", rb",[0-9a-f]{8}-", b",x"),
    "no id": (rb",DELIVER,", rb",[0-9a-f-]{36},", b",,"),
    "an id where a snapshot ends": (
        rb"S:Count=",
        rb",LOAD,,,,",
        b",LOAD,,,01a1f0be-24e4-766c-be62-dc047c6895f0,",
    ),
    "another role": (rb"S:Role=", rb"S:Role=\w+", b"S:Role=owner"),
    "another damage": (rb",HADAMAGE,", rb"S:Damaged=\w+", b"S:Damaged=all"),
    "another doubt": (rb",DELIVER,", rb"S:Epoch=1", b"S:Epoch=1;S:InDoubt=maybe"),
    "another redundancy": (rb",RECEIVE,", rb"S:Epoch=1", b"S:Epoch=1;S:Replication=None"),
    "an event that nobody knows": (rb",DELIVER,", rb",DELIVER,", b",DELIVERED,"),
}


@pytest.mark.parametrize("harm", HARM)
def test_a_row_of_ours_without_a_value_that_it_needs_is_none(
    here: Auditor, tmp_path: Path, harm: str
) -> None:
    which, old, new = HARM[harm]
    logs = tmp_path / "logs"
    generate(logs, messages=30, faults={"in-transit": 1, "damaged-copy": 1}, seed=2)
    path = next(one for one in files_of(logs) if re.search(which, one.read_bytes()))
    lines = path.read_bytes().splitlines(keepends=True)
    place = next(number for number, line in enumerate(lines) if re.search(which, line))
    changed = re.sub(old, new, lines[place], count=1)
    assert changed != lines[place]
    lines[place] = changed
    path.write_bytes(b"".join(lines))
    resealed(logs)
    verdict = asked(here, logs)
    assert verdict.status != PROVEN
    assert len(unreadable(verdict)) == 1


# Files.


@pytest.mark.parametrize(
    ("codec", "name"),
    [("utf-16", "UTF-16"), ("utf-16-le", "UTF-16"), ("utf-16-be", "UTF-16"), ("utf-32", "UTF-32")],
)
def test_a_log_in_another_encoding_is_named(here: Auditor, tmp_path: Path, codec: str, name: str) -> None:
    path = log(tmp_path, 2016, [row(2016, "RECEIVE"), row(2016, "DELIVER")])
    path.write_bytes(path.read_text("utf-8-sig").encode(codec))
    verdict = asked(here, tmp_path)
    assert verdict.status == INCOMPLETE
    (gap,) = verdict.evidence.gaps
    assert gap.what == f"{Fault.ENCODING}: {name}: convert it, and ask again"


def test_a_log_of_ours_in_another_encoding_is_named(here: Auditor, tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    generate(logs, messages=30, faults={}, seed=2)
    path = files_of(logs)[0]
    path.write_bytes(path.read_bytes().decode().encode("utf-16"))
    verdict = asked(here, logs)
    assert verdict.status == INCOMPLETE
    assert any(Fault.ENCODING in gap.what and gap.where == str(path) for gap in verdict.evidence.gaps)


@pytest.mark.parametrize("torn", [0, 40], ids=["whole rows", "inside a row"])
def test_a_log_that_was_collected_while_it_grew_and_again_counts_once(
    here: Auditor, tmp_path: Path, torn: int
) -> None:
    rows = [row(2016, event, number) for number in (1, 2, 3) for event in ("RECEIVE", "DELIVER")]
    whole = log(tmp_path / "later", 2016, rows)
    alone = here(tmp_path / "later")
    part = log(tmp_path / "sooner", 2016, rows[:5])
    part.write_bytes(part.read_bytes() + rows[5].encode()[:torn])
    verdict = asked(here, tmp_path)
    assert (verdict.status, verdict.classes, verdict.totals) == (PROVEN, {}, alone.totals)
    (note,) = verdict.evidence.notes
    assert str(part) in note
    assert str(whole) in note


def test_rows_that_two_files_tell_octet_for_octet_are_one(here: Auditor, tmp_path: Path) -> None:
    """The later file begins elsewhere, as a part that was exported does."""
    rows = [row(2016, event, number) for number in (1, 2, 3) for event in ("RECEIVE", "DELIVER")]
    log(tmp_path / "one", 2016, rows[:4])
    log(tmp_path / "other", 2016, rows[2:])
    verdict = asked(here, tmp_path)
    assert (verdict.status, verdict.classes) == (PROVEN, {})


def test_rows_that_two_servers_files_tell_at_one_time_all_count(here: Auditor, tmp_path: Path) -> None:
    """They begin at the same moment, and one is longer: that does not make it the other, collected later."""
    log(tmp_path / "one", 2016, [row(2016, "RECEIVE", to="b@contoso.com")])
    rows = [row(2016, "RECEIVE"), row(2016, "DELIVER")]
    log(tmp_path / "other", 2016, rows)
    assert asked(here, tmp_path).classes == {Class.OPEN: 1}


def test_rows_that_one_file_tells_twice_are_two(here: Auditor, tmp_path: Path) -> None:
    log(tmp_path, 2016, [row(2016, "RECEIVE"), row(2016, "DELIVER"), row(2016, "DELIVER")])
    assert asked(here, tmp_path).classes == {Class.DUPLICATE: 1}


def test_files_that_are_passed_over_are_named(tmp_path: Path) -> None:
    path = log(tmp_path / "logs", 2016, [row(2016, "RECEIVE"), row(2016, "DELIVER")])
    text = path.read_bytes()
    others = ["MSGTRK2026112112-1.LOG.old", "exported.csv"]
    for name in others:
        path.with_name(name).write_bytes(text)
    path.with_name("notes.txt").write_text("nothing of ours", "utf-8")
    path.with_name(f"{path.name}.gz").write_bytes(b"the same, packed")
    arguments = ["verify", str(path.parent), "--engine", "here", "--out", str(tmp_path / "out"), "--json"]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == PROVEN, result.output
    (note,) = json.loads((tmp_path / "out" / "verdict.json").read_text("utf-8"))["notes"]
    named = note.partition(": ")[2].removesuffix(".").split(", ")
    assert named == sorted(str(path.with_name(name)) for name in others)


# A copy without an end.

SHADOW = {"server_hostname": "EX02", "client_hostname": "EX01"}


def held(*more: str) -> list[str]:
    return [row(2016, "HARECEIVE", **SHADOW), *more]


def test_a_copy_without_an_end_is_open_where_the_primarys_log_is_not_at_hand(
    here: Auditor, tmp_path: Path
) -> None:
    log(tmp_path / "EX02", 2016, held())
    verdict = asked(here, tmp_path)
    assert (verdict.status, verdict.classes) == (INCOMPLETE, {Class.OPEN: 1})


@pytest.mark.parametrize("to", ["anna@contoso.com", ""])
def test_a_copy_that_was_discarded_is_not(here: Auditor, tmp_path: Path, to: str) -> None:
    discarded = row(2016, "HADISCARD", to=to, source_context="ExplicitlyDiscarded;x", **SHADOW)
    log(tmp_path / "EX02", 2016, held(discarded))
    assert asked(here, tmp_path).status == PROVEN


def test_nor_is_one_whose_primary_tells_its_end(here: Auditor, tmp_path: Path) -> None:
    log(tmp_path / "EX02", 2016, held())
    log(tmp_path / "EX01", 2016, [row(2016, "RECEIVE"), row(2016, "DELIVER")])
    assert asked(here, tmp_path).status == PROVEN
