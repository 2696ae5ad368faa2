"""Recipients files: what they say, what is wrong with them and where, and a file that changes."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest
from stations import eventually

from shadowrelay.core.recipients import AddressBook, Becomes, DistributionList
from shadowrelay.reception import recipients
from shadowrelay.reception.recipient_files import (
    BookLimits,
    RecipientsInvalid,
    oddities,
    parse_table,
    parse_toml,
    read_recipients,
)
from shadowrelay.reception.recipients import RecipientsFile

TOML = """
[aliases]
"Sales@example.net" = "bob@example.net"
"info@example.net" = ["sales@example.net"]
"@old.example" = "bob@example.net"

[lists."team@example.net"]
members = ["bob@example.net", "eve@other.example"]
owner = "team-owner@example.net"

[domains."Example.net"]
known = true
recipients = ["Bob@example.net", "team-owner@example.net"]
"""

TABLE = """
# virtual(5)
example.net        anything
bob@example.net    bob@example.net
Sales@example.net  bob@example.net
team@example.net   bob@example.net,
    eve@other.example
# a comment in between
    ann@other.example
@old.example bob@example.net
"""


def test_a_file_in_toml() -> None:
    book = parse_toml(TOML, BookLimits())
    assert book.aliases == {
        "sales@example.net": "bob@example.net",
        "info@example.net": "sales@example.net",
        "@old.example": "bob@example.net",
    }
    team = DistributionList(("bob@example.net", "eve@other.example"), "team-owner@example.net")
    assert book.lists == {"team@example.net": team}
    assert book.known == {"example.net": {"bob@example.net", "team-owner@example.net"}}
    assert list(oddities(book)) == []


def test_a_table_as_postfix_has_it() -> None:
    book = parse_table(TABLE, BookLimits())
    assert book.aliases == {
        "bob@example.net": "bob@example.net",
        "sales@example.net": "bob@example.net",
        "@old.example": "bob@example.net",
    }
    members = ("bob@example.net", "eve@other.example", "ann@other.example")
    assert book.lists == {"team@example.net": DistributionList(members)}
    assert book.known == {"example.net": frozenset()}
    assert book.resolve("nobody@example.net").what is Becomes.UNKNOWN
    assert book.resolve("bob@example.net").what is Becomes.MAILBOX


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[aliases\n", "is no TOML: .*line 1"),
        ("[alias]\n", r'line 1: "alias" is unknown here: the tables are \[aliases\]'),
        ('[aliases]\n"a" = "b@x.example"\n', 'line 2: "a" is no address: write an address such as'),
        ('[aliases]\n"a@x.example" = "b c@x.example"\n', 'line 2: "b c@x.example" is no address'),
        (
            '[aliases]\n"a@x.example" = ["b@x.example", "c@x.example"]\n',
            "line 2: .*2 targets.*make it a list",
        ),
        ('[aliases]\n"a@x.example" = 1\n', 'line 2: "1" is no address'),
        ('[aliases]\n"a@x.example" = "bücher@x.example"\n', "line 2: .*not ASCII"),
        ('[aliases]\n"a@x.example" = "b@x.example"\n"A@x.example" = "c@x.example"\n', "line 3: .*already"),
        (
            '[aliases]\n"a@x.example" = "b@x.example"\n"b@x.example" = "a@x.example"\n',
            "line 2: a loop of aliases: .* let one of them lead elsewhere",
        ),
        ('[lists."l@x.example"]\n', "line 1: .*no members"),
        ('[lists."l@x.example"]\nmembers = ["a@x.example"]\nmember = 1\n', "line .: member is unknown"),
        ('[lists."@x.example"]\nmembers = ["a@x.example"]\n', "line 1: .*is no address: a list has one"),
        ('[lists."l@x.example"]\nmembers = ["a@x.example"]\nowner = "me"\n', 'line 1: "me" is no address'),
        ('[domains."x.example"]\n', "line 1: known has to be true or false"),
        ('[domains."x.example"]\nknown = true\nrecipients = ["a@y.example"]\n', "line 3: .*not in x.example"),
        ('[domains."x.example"]\nknown = false\nrecipients = ["a@x.example"]\n', "known = false"),
        ('[domains."a@x.example"]\nknown = true\n', "line 1: .*no domain"),
    ],
)
def test_what_is_wrong_in_toml_is_told_with_its_line(text: str, told: str) -> None:
    with pytest.raises(RecipientsInvalid, match=told):
        parse_toml(text, BookLimits())


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("  a@x.example b@x.example\n", "line 1: it continues no line"),
        ("a@x.example\n", 'line 1: "a@x.example" becomes nothing'),
        ("\nroot bob@x.example\n", 'line 2: "root" is no address'),
        ("a@x.example b@x.example\n# c\na@x.example c@x.example\n", "line 3: .*already"),
        ("a@x.example b@x.example\nb@x.example a@x.example\n", "line 1: a loop of aliases"),
        ("@x.example b@x.example c@x.example\n", "line 1: .*let it lead to a list"),
        ("a@x.example bob\n", 'line 1: "bob" is no address'),
    ],
)
def test_what_is_wrong_in_a_table_is_told_with_its_line(text: str, told: str) -> None:
    with pytest.raises(RecipientsInvalid, match=told):
        parse_table(text, BookLimits())


def test_lists_past_the_limits_are_refused() -> None:
    text = (
        "a@x.example b@x.example x@x.example\nb@x.example c@x.example y@x.example\n"
        "c@x.example z@x.example v@x.example\n"
    )
    parse_table(text, BookLimits(most_depth=3, most_members=4))
    with pytest.raises(RecipientsInvalid, match=r"line 1: lists are nested 3 deep .*max_list_depth \(2\)"):
        parse_table(text, BookLimits(most_depth=2))
    with pytest.raises(RecipientsInvalid, match=r"line 1: .*has 4 members.*max_list_members \(3\)"):
        parse_table(text, BookLimits(most_members=3))


def test_what_is_odd_is_told() -> None:
    text = TOML + '[lists."l@example.net"]\nmembers = ["l@example.net", "gone@example.net"]\n'
    text = text.replace('"sales@example.net"]', '"gone@example.net"]')
    odd = "\n".join(oddities(parse_toml(text, BookLimits())))
    assert "info@example.net leads to gone@example.net, which nobody has" in odd
    assert "l@example.net comes to l@example.net again inside itself" in odd
    assert "l@example.net has the member gone@example.net, which nobody has" in odd


def test_the_name_decides_how_a_file_is_read(tmp_path: Path) -> None:
    for name, text in (("r.toml", TOML), ("virtual", TABLE)):
        (tmp_path / name).write_text(text)
        assert "team@example.net" in read_recipients(tmp_path / name, BookLimits()).lists
    (tmp_path / "latin").write_bytes(b"\xe4@x.example a@x.example\n")
    with pytest.raises(RecipientsInvalid, match="is not UTF-8"):
        read_recipients(tmp_path / "latin", BookLimits())


def test_a_changed_file_counts_and_a_bad_one_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recipients, "LOOK_AGAIN", 0.0)
    path = tmp_path / "virtual"
    path.write_text("a@x.example b@x.example\n")
    file = RecipientsFile(path, BookLimits())
    first = file.book()
    assert file.book() is first
    path.write_text("a@x.example c@x.example d@x.example\n")
    assert file.book().lists.keys() == {"a@x.example"}
    path.write_text("a@x.example\n")
    assert file.book().lists.keys() == {"a@x.example"}
    assert "becomes nothing" in file.wrong
    os.unlink(path)
    assert file.book().lists.keys() == {"a@x.example"}
    assert "No such file" in file.wrong
    path.write_text("b@x.example c@x.example\n")
    assert file.book().aliases == {"b@x.example": "c@x.example"}
    assert file.wrong == ""


def test_a_bad_file_is_read_once_until_it_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recipients, "LOOK_AGAIN", 0.0)
    path, read = tmp_path / "virtual", 0

    def counted(path: Path, limits: BookLimits) -> AddressBook:
        nonlocal read
        read += 1
        return read_recipients(path, limits)

    monkeypatch.setattr(recipients, "read_recipients", counted)
    path.write_text("a@x.example b@x.example\n")
    file = RecipientsFile(path, BookLimits())
    path.write_text("a@x.example\n")
    assert {file.wrong for _ in range(5)} == {
        'line 1: "a@x.example" becomes nothing: write an address behind it'
    }
    assert read == 2
    path.write_text("a@x.example c@x.example\n")
    assert file.wrong == ""
    assert read == 3


async def test_the_loop_goes_on_and_the_book_from_before_counts_while_a_file_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recipients, "LOOK_AGAIN", 0.0)
    go_on, path = threading.Event(), tmp_path / "virtual"
    path.write_text("a@x.example b@x.example\n")
    file = RecipientsFile(path, BookLimits())
    before = file.book()

    def slow(path: Path, limits: BookLimits) -> AddressBook:
        assert go_on.wait(5)
        return read_recipients(path, limits)

    monkeypatch.setattr(recipients, "read_recipients", slow)
    path.write_text("a@x.example c@x.example\n")
    assert {id(file.book()) for _ in range(3)} == {id(before)}
    go_on.set()
    await eventually(lambda: file.book() is not before)
    assert file.book().aliases == {"a@x.example": "c@x.example"}


@pytest.mark.slow
def test_fifty_thousand_aliases_and_a_thousand_lists_are_read_in_about_a_second() -> None:
    lines = [f"u{n}@x.example m{n}@store.example" for n in range(50_000)]
    for n in range(1_000):
        lines.append(f"l{n}@x.example " + " ".join(f"u{n * 31 + m}@x.example" for m in range(20)))
    began = time.process_time()
    book = parse_table("\n".join(lines), BookLimits())
    assert [*oddities(book)] == []
    assert time.process_time() - began < 5  # with a rebuilt set of domains for each list it takes 20


def test_a_bad_file_is_refused_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "virtual").write_text("a@x.example\n")
    with pytest.raises(RecipientsInvalid):
        RecipientsFile(tmp_path / "virtual", BookLimits())
