"""Exchange's own logs: three generations of columns, real events, weaker proof."""

from __future__ import annotations

from pathlib import Path

import pytest
from auditing import Auditor
from plainly import judged

from shadowaudit.core.events import listed
from shadowaudit.core.findings import Class
from shadowaudit.core.verdict import INCOMPLETE, PROVEN, VIOLATED
from shadowaudit.logs.file import digest_file
from shadowlab.generate.writing import FIELDS

ALL = FIELDS.split(",")
YEARS = {2010: [*ALL[:11], *ALL[12:26]], 2013: ALL[:27], 2016: ALL}
ID = "9b3c0f5e-2d4b-4f0a-8a31-08d3e2b9{:04x}"


def row(year: int, event: str, number: int = 1, to: str = "anna@contoso.com", **more: str) -> str:
    cells = {
        "date-time": f"2026-11-21T10:00:{number % 60:02}.000Z",
        "source": "SMTP",
        "event-id": event,
        "message-id": f"<m{number}@contoso.com>",
        "network-message-id": ID.format(number),
        "recipient-address": to,
        "recipient-count": str(len(listed(to))),
        "server-hostname": "EX01",
        "client-hostname": "EX01" if event.startswith("SEND") else "client",
        "message-subject": '"Re: prices, and ""more"""',
        "sender-address": "otto@contoso.com",
    } | {name.replace("_", "-"): text for name, text in more.items()}
    return ",".join(cells.get(name, "") for name in YEARS[year])


def log(
    directory: Path, year: int, rows: list[str], *, name: str = "MSGTRK2026112110-1.LOG", end: str = "\r\n"
) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    head = [
        "#Software: Microsoft Exchange Server",
        f"#Version: 15.02.{year}.004",
        "#Log-type: Message Tracking Log",
        "#Date: 2026-11-21T10:00:00.000Z",
        f"#Fields: {','.join(YEARS[year])}",
    ]
    path = directory / name
    path.write_bytes("\ufeff".encode() + "".join(line + end for line in [*head, *rows]).encode())
    return path


@pytest.mark.parametrize("year", YEARS)
@pytest.mark.parametrize("end", ["\r\n", "\n"], ids=["CRLF", "LF"])
def test_logs_of_each_generation_are_read_by_their_own_fields(tmp_path: Path, year: int, end: str) -> None:
    rows = [
        row(year, "RECEIVE", to="anna@contoso.com;'odd;one'@contoso.com" if year else ""),
        row(year, "AGENTINFO"),
        "#a comment may stand anywhere",
        row(year, "SENDEXTERNAL", to="anna@contoso.com;'odd;one'@contoso.com"),
    ]
    path = log(tmp_path, year, rows, end=end)
    facts = digest_file(path)[0]
    assert (facts.rows, facts.messages, facts.faults, facts.node) == (3, 1, (), "EX01")
    verdict, found = judged(tmp_path)
    assert (verdict.status, found, verdict.evidence.weaker) == (PROVEN, {}, True)
    assert "weaker proof" in verdict.sentence


def test_a_list_and_its_members_end_once_each_in_the_report(here: Auditor, tmp_path: Path) -> None:
    members = [f"{name}@contoso.com" for name in "abc"]
    rows = [
        row(2016, "RECEIVE", to="all@contoso.com"),
        row(2016, "EXPAND", to=";".join(members), related_recipient_address="all@contoso.com"),
        *(row(2016, "DELIVER", to=one) for one in members),
    ]
    log(tmp_path / "logs", 2016, rows)
    told = here(tmp_path / "logs").recipients
    assert told == {
        "accepted": 4, "delivered": 3, "bounced": 0, "otherwise": 1, "open": 0, "again": 0
    }  # fmt: skip


def test_a_list_member_with_a_semicolon_is_one_member() -> None:
    assert listed("a@x;'b;c@x';d@x") == ("a@x", "b;c@x", "d@x")
    assert listed("'o'brien@x;e@x") == ("'o'brien@x", "e@x")


def test_a_line_break_in_quotes_does_not_end_a_row(tmp_path: Path) -> None:
    rows = [row(2016, "RECEIVE", message_subject='"one\r\n#two"'), row(2016, "DELIVER", source="STOREDRIVER")]
    facts = digest_file(log(tmp_path, 2016, rows))[0]
    assert (facts.rows, facts.faults) == (2, ())
    assert judged(tmp_path)[0].status == PROVEN


STORIES: dict[str, tuple[list[tuple[str, dict[str, str]]], set[Class], int]] = {
    "delivered": ([("RECEIVE", {}), ("NOTIFYMAPI", {}), ("DELIVER", {})], set(), PROVEN),
    "failed": ([("RECEIVE", {}), ("FAIL", {})], set(), PROVEN),
    "handed on to a server whose logs are elsewhere": (
        [("RECEIVE", {}), ("SEND", {"server_hostname": "EX09"})], set(), PROVEN,
    ),
    "a group's members instead of the group": (
        [("RECEIVE", {"to": "all@contoso.com"}), ("EXPAND", {"to": "a@contoso.com;b@contoso.com"}),
         ("DELIVER", {"to": "a@contoso.com;b@contoso.com"})], set(), PROVEN,
    ),
    "another address instead of the first": (
        [("RECEIVE", {"to": "old@contoso.com"}), ("RESOLVE", {"to": "new@contoso.com"}),
         ("DELIVER", {"to": "new@contoso.com"})], set(), PROVEN,
    ),
    "delivered twice": ([("RECEIVE", {}), ("DELIVER", {}), ("DELIVER", {})], {Class.DUPLICATE}, VIOLATED),
    "delivered twice after it was resubmitted": (
        [("RECEIVE", {}), ("DELIVER", {}), ("RESUBMIT", {"source": "REDUNDANCY"}), ("DELIVER", {})],
        {Class.ALLOWED_DUPLICATE, Class.PROMOTED_UNVERIFIED}, PROVEN,
    ),
    "accepted without a shadow": (
        [("RECEIVE", {"custom_data": "S:Replication=Failed"}), ("DELIVER", {})], {Class.EXPOSED}, PROVEN,
    ),
    "never ended": ([("RECEIVE", {}), ("DEFER", {})], {Class.OPEN}, INCOMPLETE),
}  # fmt: skip


@pytest.mark.parametrize("story", STORIES)
def test_exchanges_events_have_their_class(tmp_path: Path, story: str) -> None:
    events, expected, status = STORIES[story]
    log(tmp_path, 2016, [row(2016, event, **more) for event, more in events])
    verdict, found = judged(tmp_path)
    assert set().union(*found.values()) == expected
    assert verdict.status == status


def test_a_message_that_two_servers_handled_is_one_message(tmp_path: Path) -> None:
    log(tmp_path / "ex01", 2016, [row(2016, "RECEIVE"), row(2016, "SEND", server_hostname="EX02")])
    log(tmp_path / "ex02", 2016, [row(2016, "RECEIVE", server_hostname="EX02"), row(2016, "DELIVER")])
    verdict, found = judged(tmp_path)
    assert (verdict.status, found, verdict.totals["messages"]) == (PROVEN, {}, 1)
    (tmp_path / "ex02" / "MSGTRK2026112110-1.LOG").write_bytes(
        log(tmp_path / "x", 2016, [row(2016, "RECEIVE", server_hostname="EX02")]).read_bytes()
    )
    (tmp_path / "x" / "MSGTRK2026112110-1.LOG").unlink()
    assert set().union(*judged(tmp_path)[1].values()) == {Class.OPEN}


CHANGED = {
    "one after the other": (
        ["anna@old.com"],
        [("RESOLVE", "an@contoso.com", "anna@old.com"), ("REDIRECT", "ben@contoso.com", "an@contoso.com")],
        ["ben@contoso.com"], PROVEN,
    ),
    "three times": (
        ["a@old.com"],
        [("RESOLVE", "b@old.com", "a@old.com"), ("RESOLVE", "c@old.com", "b@old.com"),
         ("EXPAND", "d@old.com", "c@old.com")],
        [], INCOMPLETE,
    ),
    "a group": (
        ["all@contoso.com"], [("EXPAND", "a@contoso.com;b@contoso.com", "all@contoso.com")],
        ["a@contoso.com", "B@Contoso.com"], PROVEN,
    ),
    "a group without members": (["all@contoso.com"], [("EXPAND", "", "all@contoso.com")], [], PROVEN),
    "a member without an end": (
        ["all@contoso.com"], [("EXPAND", "a@contoso.com;b@contoso.com", "all@contoso.com")],
        ["a@contoso.com"], INCOMPLETE,
    ),
    "one that nobody changed": (
        ["anna@old.com", "otto@contoso.com"], [("RESOLVE", "anna@contoso.com", "anna@old.com")],
        ["anna@contoso.com"], INCOMPLETE,
    ),
    "to itself": (["a@contoso.com"], [("RESOLVE", "a@contoso.com", "a@contoso.com")], [], INCOMPLETE),
    "delivered to somebody else": (["a@contoso.com"], [], ["x@contoso.com"], INCOMPLETE),
    "no word of whom it replaced": (
        ["all@contoso.com"], [("EXPAND", "a@contoso.com", "")], ["a@contoso.com"], PROVEN,
    ),
}  # fmt: skip


@pytest.mark.parametrize("story", CHANGED)
def test_addresses_are_followed_through_what_replaces_them(tmp_path: Path, story: str) -> None:
    accepted, changes, delivered, status = CHANGED[story]
    rows = [row(2016, "RECEIVE", to=";".join(accepted))]
    rows += [row(2016, event, to=new, related_recipient_address=old) for event, new, old in changes]
    rows += [row(2016, "DELIVER", to=one) for one in delivered]
    log(tmp_path, 2016, rows)
    verdict, found = judged(tmp_path)
    assert verdict.status == status
    assert set().union(*found.values()) == (set() if status == PROVEN else {Class.OPEN})


def test_a_size_that_differs_between_exchanges_servers_is_none_of_ours(tmp_path: Path) -> None:
    log(tmp_path, 2016, [row(2016, "RECEIVE", total_bytes="10"), row(2016, "DELIVER", total_bytes="20")])
    assert judged(tmp_path)[0].status == PROVEN
