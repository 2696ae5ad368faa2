"""Files that somebody wants to break the audit with: a clear sentence each, and never a false proof."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from auditing import Auditor
from plainly import judged
from resealing import logs as files_of

from shadowaudit.core.copies import distinct
from shadowaudit.core.facts import Fault, FileFacts
from shadowaudit.core.text import restored, split_row
from shadowaudit.core.verdict import INCOMPLETE, PROVEN
from shadowaudit.logs.file import digest_file
from shadowaudit.logs.lines import Reading, Room
from shadowaudit.logs.manifest import NoLogsError, find
from shadowaudit.logs.state import State
from shadowlab.generate.cluster import generate
from shadowlab.generate.writing import footer


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    generate(tmp_path / "logs", messages=30, faults={}, seed=2)
    return tmp_path / "logs"


def lines_of(path: Path) -> list[bytes]:
    return path.read_bytes().splitlines(keepends=True)


def write(path: Path, lines: list[bytes], *, sealed: bool) -> FileFacts:
    """Put these lines in place; ``sealed``: with the footer that fits them."""
    if sealed:
        old = lines.pop()
        first, last = (int(part.split(b"=")[1]) for part in old.split()[1:3])
        covered = b"".join(lines)
        rows = sum(not line.startswith(b"#") for line in covered.split(b"\r\n")[:-1])
        lines = [covered, footer(covered, first, last, rows)]
    path.write_bytes(b"".join(lines))
    return digest_file(path)[0]


def at(lines: list[bytes], event: bytes) -> int:
    return next(number for number, line in enumerate(lines) if b"," + event + b"," in line)


@pytest.mark.parametrize(
    "subject",
    [
        b"=1+1",
        b'"say ""hello"", twice"',
        b"a\x00b",
        b"-" * 1_000_000,
        b"\xe2\x80\xae",
        b"x\x1b[31m",
    ],
    ids=["formula", "quotes", "nul", "1 MB", "direction", "escape"],
)
def test_a_subject_may_hold_anything_and_the_row_still_counts(logs: Path, subject: bytes) -> None:
    path = files_of(logs)[0]
    lines = lines_of(path)
    place = at(lines, b"RECEIVE")
    lines[place] = lines[place].replace(b",Report,", b"," + subject + b",")
    write(path, lines, sealed=True)
    assert judged(logs)[0].status == PROVEN


@pytest.mark.parametrize(
    ("field", "text"), [("'=1+1", "=1+1"), ("' @x", " @x"), ("'o'brien", "'o'brien"), ("=1", "=1")]
)
def test_the_apostrophe_before_a_formula_is_taken_off_and_no_other(field: str, text: str) -> None:
    assert restored(field) == text


def test_doubled_quotes_in_a_field_are_one_and_a_comma_in_quotes_is_none() -> None:
    assert split_row(b'a,"say ""b"", c",d\r\n', 3, strict=True) == ["a", 'say "b", c', "d"]
    assert [split_row(b'a,"b"\r\n', count, strict=True) for count in (1, 3)] == [None, None]


def test_a_row_that_is_no_utf_8_is_unreadable(logs: Path) -> None:
    path = files_of(logs)[0]
    lines = lines_of(path)
    place = at(lines, b"RECEIVE")
    lines[place] = lines[place].replace(b",Report,", b",\xff\xfe,")
    assert Fault.UNREADABLE_ROWS in write(path, lines, sealed=True).faults


@pytest.mark.parametrize(
    ("harm", "fault"),
    [
        (lambda line: line[:40] + b"\r\n", Fault.UNREADABLE_ROWS),
        (lambda line: line.replace(b",", b"", 1), Fault.UNREADABLE_ROWS),
        (lambda line: line.replace(b",", b",,", 1), Fault.UNREADABLE_ROWS),
        (lambda line: b'"' + line, Fault.UNREADABLE_ROWS),
        (lambda line: line.replace(b"S:Db=", b"S:Db=x", 1), Fault.MIXED),
        (lambda line: line.replace(b"S:Boot=", b"S:Boot=x", 1), Fault.MIXED),
        (lambda line: line.replace(b"S:Seq=", b"S:Seq=9", 1), Fault.GAP),
        (lambda line: line.replace(b"S:Seq=", b"S:Seq=x", 1), Fault.MIXED),
        (lambda line: b"", Fault.GAP),
        (lambda line: line + line, Fault.NOT_RISING),
    ],
    ids=["half a line", "a column less", "a column more", "an open quote", "another database", "another life",
         "a leap", "no number", "a row gone", "a row twice"],
)  # fmt: skip
def test_a_row_that_cannot_be_is_reported_and_nothing_is_proven(
    logs: Path, harm: object, fault: Fault
) -> None:
    path = files_of(logs)[0]
    lines = lines_of(path)
    place = at(lines, b"DELIVER")
    lines[place] = harm(lines[place])  # type: ignore[operator]
    facts = write(path, lines, sealed=True)
    assert fault in facts.faults, facts.faults
    verdict, _ = judged(logs)
    assert verdict.status != PROVEN
    assert any(gap.where == str(path) for gap in verdict.evidence.gaps)


@pytest.mark.parametrize(
    ("harm", "fault"),
    [
        (lambda lines: lines[:-1], Fault.NO_FOOTER),
        (lambda lines: [*lines, b"more\r\n"], Fault.TRAILING),
        (
            lambda lines: [*lines[:8], lines[8].replace(b"example", b"exbmple", 1), *lines[9:]],
            Fault.WRONG_HASH,
        ),
        (lambda lines: [line.replace(b" rows=", b" rows=1") for line in lines], Fault.WRONG_COUNT),
        (lambda lines: [line.replace(b" last=", b" last=1") for line in lines], Fault.WRONG_RANGE),
        (lambda lines: [line for line in lines if not line.startswith(b"#Fields")], Fault.NO_FIELDS),
        (lambda lines: [b"\x00" * 5000], Fault.NO_FIELDS),
        (lambda lines: [], Fault.NO_FIELDS),
    ],
    ids=[
        "no footer",
        "more after it",
        "an octet",
        "another count",
        "another range",
        "no columns",
        "zeros",
        "empty",
    ],
)
def test_a_file_that_was_tampered_with_is_named(logs: Path, harm: object, fault: Fault) -> None:
    path = files_of(logs)[0]
    facts = write(path, harm(lines_of(path)), sealed=False)  # type: ignore[operator]
    assert fault in facts.faults, facts.faults
    verdict, _ = judged(logs)
    assert verdict.status == INCOMPLETE or verdict.status == 1
    assert any(gap.where == str(path) and fault in gap.what for gap in verdict.evidence.gaps)


def test_a_file_under_a_name_that_is_not_its_own_is_named(logs: Path) -> None:
    path = files_of(logs)[0]
    moved = path.rename(path.with_name(path.name.replace("-1.LOG", "-2.LOG")))
    assert Fault.WRONG_RANGE in digest_file(moved)[0].faults


@pytest.mark.slow
def test_a_row_that_is_missing_at_the_edge_of_a_block_is_missed(
    logs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocks_of = Reading.blocks_of
    monkeypatch.setattr(Reading, "blocks_of", lambda reading, file, *_: blocks_of(reading, file, 2000))
    path = files_of(logs)[0]
    lines = lines_of(path)
    for place in range(6, len(lines) - 2):
        facts = write(path, lines[:place] + lines[place + 1 :], sealed=True)
        assert facts.faults == (Fault.GAP,)


EXCHANGES = b"#Software: Microsoft Exchange Server\r\n"


def disguised(path: Path, *, footer: bool = False, name: str = "", header: bytes = EXCHANGES) -> Path:
    """A log of ours with another header, so that it would be judged as one that numbers nothing."""
    lines = [header, *lines_of(path)[1:]]
    path.write_bytes(b"".join(lines if footer else lines[:-1]))
    return path.rename(path.with_name(name)) if name else path


@pytest.mark.parametrize(
    "how",
    [
        {},
        {"header": b""},
        {"footer": True},
        {"name": "MSGTRK2026112110-1.LOG"},
        {"name": "MSGTRK2026112110-1.LOG", "footer": True},
    ],
    ids=["Exchange's header", "no header", "with its footer", "Exchange's name too", "name and footer"],
)
def test_a_log_of_ours_that_pretends_to_be_exchanges_is_no_weaker_proof(
    logs: Path, how: dict[str, Any]
) -> None:
    paths = [disguised(path, **how) for path in files_of(logs)]
    verdict, found = judged(logs)
    assert (verdict.status, found) == (INCOMPLETE, {})
    for path in paths:
        assert any(gap.where == str(path) and Fault.WRONG_HEADER in gap.what for gap in verdict.evidence.gaps)


def test_an_empty_log_of_ours_that_pretends_to_be_exchanges_is_named(logs: Path) -> None:
    path = files_of(logs)[0]
    path.write_bytes(EXCHANGES + b"".join(line for line in lines_of(path)[1:] if line.startswith(b"#F")))
    assert digest_file(path)[0].faults == (Fault.WRONG_HEADER,)


def test_a_row_of_ours_far_down_in_exchanges_log_is_named(logs: Path) -> None:
    rows = b"2026-11-21T10:00:00Z,,,,EX01,,,SMTP,RECEIVE,,<m>,,a@x" + b"," * 17 + b"\r\n"
    ours = lines_of(files_of(logs)[0])
    path = logs / "MSGTRK2026112110-1.LOG"
    path.write_bytes(EXCHANGES + ours[4] + rows * 200_000 + ours[5])
    assert Fault.WRONG_HEADER in digest_file(path)[0].faults


@pytest.mark.parametrize("name", ["{}", "MSGTRK-a-copy.LOG", "MSGTRK-mx0.example.net-0123456789abcdef-1.LOG"])
def test_a_file_under_two_names_counts_once_and_is_noted(here: Auditor, logs: Path, name: str) -> None:
    alone = here(logs)
    for path in files_of(logs):
        copy = path.parent / "copy" / name.format(path.name)
        copy.parent.mkdir()
        copy.write_bytes(path.read_bytes())
    verdict = here(logs)
    assert (verdict.status, verdict.classes, verdict.totals) == (PROVEN, {}, alone.totals)
    assert (verdict.files, verdict.nodes) == (alone.files, alone.nodes)
    (note,) = verdict.evidence.notes
    assert note.startswith("3 copies of files are there as well, octet by octet the same, and not counted: ")


@pytest.mark.parametrize("name", ["{}", "MSGTRK-a-copy.LOG"])
@pytest.mark.parametrize("sealed", [False, True], ids=["changed", "changed and closed again"])
def test_a_file_that_tells_the_same_rows_otherwise_is_a_fault_and_makes_no_duplicates(
    here: Auditor, logs: Path, name: str, *, sealed: bool
) -> None:
    for path in files_of(logs):
        (path.parent / "copy").mkdir()
        lines = lines_of(path)
        place = at(lines, b"RECEIVE")
        lines[place] = lines[place].replace(b"Report", b"Rapport")
        write(path.parent / "copy" / name.format(path.name), lines, sealed=sealed)
    verdict = here(logs)
    assert (verdict.status, verdict.classes) == (INCOMPLETE, {})
    assert len([gap for gap in verdict.evidence.gaps if "are there twice" in gap.what]) == 3
    assert verdict.evidence.notes == ()


def test_a_log_that_was_moved_after_it_was_read_counts_once(logs: Path, tmp_path: Path) -> None:
    state = State(tmp_path / "state")
    state.create()
    for path in files_of(logs):
        state.read(str(path))
    moved = tmp_path / "archive"
    logs.rename(moved)
    told = [digest_file(path)[0] for path in files_of(moved)]
    files, notes = distinct([*state.all(), *told], gone={one.path for one in state.all()})
    assert {Path(one.path) for one in files} == set(files_of(moved))
    assert len(notes) == 1


@pytest.mark.slow
def test_a_list_of_a_million_recipients_is_read(tmp_path: Path) -> None:
    generate(tmp_path / "logs", messages=3, faults={}, seed=2)
    changed = 0
    for path in files_of(tmp_path / "logs"):
        lines = lines_of(path)
        first = next((line for line in lines if b",RECEIVE," in line), None)
        if first is None or changed:
            continue
        changed += 1
        many = b";".join(b"u%d@example.com" % number for number in range(1_000_000))
        cells = first.split(b",")
        cells[12], cells[15] = many, b"1000000"
        lines[lines.index(first)] = b",".join(cells)
        facts = write(path, lines, sealed=True)
        assert facts.faults == ()
    assert changed
    assert judged(tmp_path / "logs")[0].status == 1, "a million less one were never delivered"


def test_where_there_is_no_log_the_reader_is_told_what_is_looked_for(tmp_path: Path) -> None:
    with pytest.raises(NoLogsError, match=r"no tracking log in .*MSGTRK….LOG"):
        find([tmp_path])
    with pytest.raises(NoLogsError, match="does not exist"):
        find([tmp_path / "nowhere"])


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, logs: Path) -> None:
    (logs / "mx1" / "MSGTRK-mx1.example.net-00-1.LOG").symlink_to(tmp_path / "gone")
    facts = digest_file(logs / "mx1" / "MSGTRK-mx1.example.net-00-1.LOG")[0]
    assert facts.faults == (Fault.UNREADABLE_FILE,), "and nothing of a header that nobody saw"
    assert judged(logs)[0].status == INCOMPLETE


def test_what_a_file_before_left_in_memory_is_not_read(tmp_path: Path) -> None:
    room = Room()
    longer, shorter, bare = (tmp_path / name for name in ("longer", "shorter", "bare"))
    generate(tmp_path / "logs", messages=40, faults={}, seed=5)
    (log, *_) = sorted((tmp_path / "logs").rglob("*.LOG"))
    longer.write_bytes(b"\xef\xbb\xbf" + log.read_bytes())
    shorter.write_bytes(log.read_bytes()[: log.stat().st_size // 2])
    bare.write_bytes(b"\xef")
    for path in (longer, bare, shorter, log, bare, longer):
        facts, states = digest_file(path, room)
        alone, expected = digest_file(path)
        assert facts == alone
        assert states.equals(expected)


@pytest.mark.parametrize("count", ["²", "٢", "-1", "", "1e3", "9" * 30])
def test_a_snapshot_whose_count_is_no_number_lists_not_what_it_says(logs: Path, count: str) -> None:
    path = files_of(logs)[0]
    lines = lines_of(path)
    place = max(number for number, line in enumerate(lines) if b";S:Count=" in line)
    lines[place] = re.sub(rb"S:Count=\d+", f"S:Count={count}".encode(), lines[place])
    write(path, lines, sealed=True)
    verdict, _ = judged(logs)
    assert verdict.status == INCOMPLETE
    assert any("snapshot" in gap.what for gap in verdict.evidence.gaps)
