"""Headers in files: within a subject there is none, and a second one counts from its place on."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from plainly import judged
from test_audit_exchange import YEARS, row
from typed import read

from shadowaudit.core.text import split_row
from shadowaudit.core.verdict import PROVEN
from shadowaudit.logs.extract import Source
from shadowaudit.logs.file import digest_file
from shadowaudit.logs.lines import Reading
from shadowaudit.logs.manifest import Found
from shadowaudit.logs.seek import journeys

BOM = "\ufeff"
SUBJECTS = [
    "plain",
    "in,commas",
    'with "quotes"',
    "two\r\nlines",
    "#Fields: date-time,event-id,recipient-address",
    "x\r\n#Fields: date-time,event-id,recipient-address",
    "x\r\n#Fields: nothing",
    'x "\r\n#Fields: a\r\n" y',
    "x\r\n#Software: shadowrelay\r\ny",
    f"x\r\n#Footer: first=1 last=2 rows=3 sha256={'0' * 64}\r\ny",
    f"x\r\n{BOM}#Fields: a",
    f"{BOM}x\r\n{BOM}\r\n",
    "\r\n\r\n# \r\n",
    "x\r\n2026-11-21T10:00:00.000Z,y",
]


def quoted(subject: str) -> str:
    return '"' + subject.replace('"', '""') + '"'


def header(year: int, *, mark: bool, more: str = "") -> str:
    lines = [
        "#Software: Microsoft Exchange Server",
        f"#Version: 15.02.{year}.004{more}",
        "#Log-type: Message Tracking Log",
        "#Date: 2026-11-21T10:00:00.000Z",
        f"#Fields: {','.join(YEARS[year])}",
    ]
    return BOM * mark + "".join(f"{line}\r\n" for line in lines)


Section = tuple[int, bool, str, list[str]]
"""Columns of that year, whether a byte order mark stands before, more in a comment, and subjects."""


def written(path: Path, sections: list[Section]) -> list[tuple[int, str]]:
    """A file of these sections; number and subject of each message, of two rows each, in that order."""
    parts, told = [], []
    for year, mark, more, subjects in sections:
        parts.append(header(year, mark=mark, more=more))
        for subject in subjects:
            told.append((len(told) + 1, subject))
            for event in ("RECEIVE", "DELIVER"):
                parts.append(row(year, event, len(told), message_subject=quoted(subject)) + "\r\n")
    path.write_bytes("".join(parts).encode())
    return told


SECTIONS = st.lists(
    st.tuples(
        st.sampled_from(sorted(YEARS)),
        st.booleans(),
        st.sampled_from(["", ' "x"']),
        st.lists(st.sampled_from(SUBJECTS), max_size=4),
    ),
    min_size=1,
    max_size=5,
)


@given(sections=SECTIONS, size=st.integers(40, 4000))
@settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@pytest.mark.slow
def test_every_row_is_read_by_the_columns_above_it_wherever_blocks_end(
    tmp_path: Path, sections: list[Section], size: int
) -> None:
    path = tmp_path / "MSGTRK2026112110-1.LOG"
    told = written(path, sections)
    facts = digest_file(path)[0]
    if told:
        assert (facts.rows, facts.messages, facts.unreadable, facts.faults) == (
            2 * len(told),
            len(told),
            0,
            (),
        )
    found = [(row["message_subject"], row["problem"]) for row in read(path)]
    assert found == [(subject, None) for _, subject in told for _ in range(2)]
    reading, cells = Reading(path), []
    for block in reading.blocks(size):
        fields = reading.layout.fields
        for number in range(block.rows):
            parsed = split_row(block.row(number), len(fields), strict=False)
            assert parsed is not None
            cells.append(dict(zip(fields, parsed, strict=True))["message-subject"])
    assert cells == [subject for _, subject in told for _ in range(2)]
    assert tuple(reading.headers) == facts.headers


@pytest.mark.parametrize("second", [2010, 2013])
@pytest.mark.parametrize("mark", [False, True])
def test_a_message_whose_rows_stand_under_two_headers_is_judged_by_both(
    tmp_path: Path, second: int, *, mark: bool
) -> None:
    """A server went on with its file after an upgrade."""
    path = tmp_path / "EX01" / "MSGTRK2026112110-1.LOG"
    path.parent.mkdir()
    subject = quoted("x\r\n#Fields: nothing")
    rows = [row(2016, "RECEIVE", message_subject=subject), row(second, "DELIVER", message_subject=subject)]
    path.write_bytes(
        f"{header(2016, mark=True)}{rows[0]}\r\n{header(second, mark=mark)}{rows[1]}\r\n".encode()
    )
    if second != 2010:  # logs of 2010 do not name messages by an id
        verdict, found = judged(tmp_path)
        assert (verdict.status, found) == (PROVEN, {})
    facts = digest_file(path)[0]
    assert (facts.rows, facts.unreadable, facts.faults, len(facts.headers)) == (2, 0, (), 1)
    source = Source.of(facts)
    assert source.fields == tuple(YEARS[2016])
    assert source.fields_at(facts.headers[0] + 1) == tuple(YEARS[second])
    found_by = journeys("otto@contoso.com", [Found(path, path.stat().st_size, 0)], most=5).found
    assert len(found_by) == (2 if second == 2010 else 1)
