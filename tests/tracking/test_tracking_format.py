from __future__ import annotations

import csv
import io
from datetime import UTC, datetime

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from shadowrelay.tracking.format import (
    COLUMNS,
    custom_entries,
    header,
    neutralise,
    parse_row,
    render,
    restore,
    row_identity,
    timestamp,
)


def row(**columns: str) -> str:
    named = {name.replace("_", "-"): text for name, text in columns.items()}
    return render(
        named, sequence=7, incarnation="00112233445566aa", database_id="db-1", server="mx1.example.net"
    )


def test_a_row_has_the_thirty_columns_in_exchanges_order_and_ends_in_crlf() -> None:
    text = row(event_id="SEND", source="SMTP", message_subject="Hello", custom_data="S:Epoch=1")
    assert text.endswith("\r\n")
    fields = text.removesuffix("\r\n").split(",")
    assert len(fields) == len(COLUMNS) == 30
    assert fields[COLUMNS.index("event-id")] == "SEND"
    assert fields[COLUMNS.index("message-subject")] == "Hello"
    assert COLUMNS[0] == "date-time"
    assert COLUMNS[26] == "custom-data"


def test_what_the_commit_knows_stands_first_in_custom_data() -> None:
    custom = parse_row(row(custom_data="S:Epoch=1;S:Fork=1+2"))["custom-data"]
    assert custom == "S:Seq=7;S:Boot=00112233445566aa;S:Db=db-1;S:Epoch=1;S:Fork=1+2"
    assert parse_row(row())["custom-data"] == "S:Seq=7;S:Boot=00112233445566aa;S:Db=db-1"


def test_an_entry_forged_through_a_semicolon_does_not_replace_the_rows_own() -> None:
    parsed = parse_row(row(custom_data="S:Reason=x;S:Seq=99;S:Boot=ffff;S:Db=other"))
    assert row_identity(parsed) == (7, "00112233445566aa")
    assert custom_entries(parsed["custom-data"])["Db"] == "db-1"


@pytest.mark.parametrize("event", ["RECEIVE", "HARECEIVE", "HADISCARD", "RESUBMIT", "LOAD"])
def test_this_node_is_the_server_of_what_it_receives(event: str) -> None:
    parsed = parse_row(row(event_id=event, client_hostname="mx2.example.net"))
    assert parsed["server-hostname"] == "mx1.example.net"
    assert parsed["client-hostname"] == "mx2.example.net"


@pytest.mark.parametrize(
    "event", ["SEND", "SENDEXTERNAL", "DELIVER", "HAREDIRECT", "DEFER", "FAIL", "TRANSFER"]
)
def test_this_node_is_the_client_of_what_it_sends(event: str) -> None:
    parsed = parse_row(row(event_id=event, server_hostname="mx2.example.net"))
    assert parsed["client-hostname"] == "mx1.example.net"
    assert parsed["server-hostname"] == "mx2.example.net"


def test_an_attempt_that_reached_no_server_names_only_this_node() -> None:
    parsed = parse_row(row(event_id="HAREDIRECTFAIL"))
    assert (parsed["client-hostname"], parsed["server-hostname"]) == ("mx1.example.net", "")


def test_a_field_is_quoted_only_if_it_holds_a_comma_or_a_quote() -> None:
    assert ',"a, ""b""",' in row(message_subject='a, "b"')
    assert ",a b;c," in row(message_subject="a b;c")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\r\nb", r"a\x0d\x0ab"),
        ("a\tb\x00c\x7f", r"a\x09b\x00c\x7f"),
        ("a\x85b\u2028c\u2029", r"a\x85b\u2028c\u2029"),
        ("a\udc80b", r"a\udc80b"),
        ("a\u202eb\ufeff", r"a\u202eb\ufeff"),
    ],
)
def test_control_characters_are_written_visibly(text: str, shown: str) -> None:
    assert parse_row(row(message_subject=text))["message-subject"] == shown


@pytest.mark.parametrize(
    "text", ["=1+1", "+1", "-1", "@SUM(A1)", " =1", '"=1"', "\u00a0=1", "'=1", "\uff1d1", '=1,"2']
)
def test_no_field_begins_a_formula_and_the_parser_gives_it_back(text: str) -> None:
    line = row(message_subject=text)
    (fields,) = csv.reader([line])
    assert fields[COLUMNS.index("message-subject")].startswith("'")
    assert parse_row(line)["message-subject"] == text


def test_a_tab_before_a_formula_is_no_longer_a_tab() -> None:
    assert neutralise("\t=1") == r"\x09=1"


@given(st.text())
@example("'=1")
@example("''=1")
def test_restoring_takes_off_what_neutralising_put_on_and_nothing_else(text: str) -> None:
    shown = neutralise(text)
    assert shown in {restore(shown), "'" + restore(shown)}
    assert neutralise(restore(shown)) == shown


ANYTHING = st.text(st.characters(exclude_categories=())) | st.text("=+-@,;\"'\r\n\t\x00\x85\u2028\ud800 a#\\")


@given(st.dictionaries(st.sampled_from(COLUMNS), ANYTHING))
@example({"message-subject": "a\nb"})  # each part is plain
def test_whatever_strangers_write_the_row_parses_back_to_as_many_fields(columns: dict[str, str]) -> None:
    line = render(columns, sequence=1, incarnation="00aa", database_id="db", server="mx1")
    assert len(line.splitlines()) == 1
    (plain,) = csv.reader(io.StringIO(line.encode("utf-8").decode("utf-8"), newline=""), strict=True)
    parsed = parse_row(line)
    assert len(plain) == len(parsed) == len(COLUMNS)
    assert [restore(field) for field in plain] == list(parsed.values())
    assert not any(
        field.lstrip(" \"'").startswith(("=", "+", "-", "@")) and field[0] != "'" for field in plain if field
    )
    assert row_identity(parsed) == (1, "00aa")


def test_a_recipient_list_longer_than_the_csv_modules_limit_is_read_back() -> None:
    recipients = ";".join(f"{number}@{'x' * 200}.example" for number in range(1000))
    assert len(recipients) > csv.field_size_limit()
    assert parse_row(row(recipient_address=recipients))["recipient-address"] == recipients


@pytest.mark.parametrize(
    "line",
    ["", ",".join([""] * 29), ",".join([""] * 31), '"' + "," * 29, 'a"b' + "," * 29, '"a"b' + "," * 29],
)
def test_a_line_that_is_not_a_row_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match="not a row"):
        parse_row(line)


def test_the_header_names_the_fields() -> None:
    lines = header(datetime(2026, 11, 21, 10, 0, 0, 5999, tzinfo=UTC)).split("\r\n")
    assert [line.split(":")[0] for line in lines] == [
        "#Software",
        "#Version",
        "#Log-type",
        "#Date",
        "#Fields",
        "",
    ]
    assert lines[2] == "#Log-type: Message Tracking Log"
    assert lines[3] == "#Date: 2026-11-21T10:00:00.005Z"
    assert lines[4] == "#Fields: " + ",".join(COLUMNS)


def test_a_naive_datetime_is_refused() -> None:
    with pytest.raises(ValueError, match="naive"):
        timestamp(datetime(2026, 11, 21))  # noqa: DTZ001
