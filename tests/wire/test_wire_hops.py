"""What hops say to each other is the members' grammar with less in it; whatever else comes is refused."""

from __future__ import annotations

import string
from contextlib import suppress

import pytest
from golden_dialogues import FOLDER, read
from hypothesis import given
from hypothesis import strategies as st
from spelling import greetings, marks, message_ids, numbers

from shadowrelay.core.decisions import Verdict, VerdictKind
from shadowrelay.core.events.discard_notices import HOP_EPOCH
from shadowrelay.core.identifiers import (
    Beginning,
    DatabaseId,
    Incarnation,
    Lineage,
    Mark,
    MessageId,
    ServerName,
)
from shadowrelay.core.members.conversation import MAX_LINES, Greeting, Line, Query
from shadowrelay.core.values import replace
from shadowrelay.wire import hops
from shadowrelay.wire.esmtp import COMMAND_LINE
from shadowrelay.wire.xshadow import MAX_LINE, Malformed

ID = MessageId("01900000-0000-7000-8000-000000000001")
PARSERS = [hops.parse_greeting, hops.parse_tracked, hops.parse_fork, hops.parse_query, hops.parse_line]
recipients = st.lists(st.integers(1, 1_000_000), min_size=1, max_size=40, unique=True).map(
    lambda found: tuple(sorted(found))
)
DIALOGUES = {file.stem: file.read_text("utf-8") for file in sorted((FOLDER / "hops").glob("*.txt"))}


@given(greetings)
def test_a_greeting_is_read_as_it_was_written(greeting: Greeting) -> None:
    assert hops.parse_greeting(hops.format_greeting(greeting)) == replace(greeting, version=1)


@given(st.integers(0, MAX_LINES), st.one_of(st.none(), marks))
def test_a_query_is_read_as_it_was_written(most: int, after: Mark | None) -> None:
    query = Query(most, after=after)
    assert hops.parse_query(hops.format_query(query)) == query


@given(numbers, message_ids, st.sampled_from(["", "relayed", "failed"]), recipients)
def test_an_event_is_read_as_it_was_written(
    event: int, message_id: MessageId, outcome: str, about: tuple[int, ...]
) -> None:
    line = Line(event, Verdict(message_id, HOP_EPOCH, VerdictKind.DELIVERED, outcome, about))
    assert hops.parse_line(hops.format_line(line)) == line


@given(message_ids, st.integers(1, 1_000_000))
def test_what_mail_and_rcpt_say_is_read_as_it_was_written(message_id: MessageId, number: int) -> None:
    assert hops.parse_tracked(hops.format_tracked(message_id)) == message_id
    assert hops.parse_fork(hops.format_fork(number)) == number


@given(st.one_of(st.text(), st.text(alphabet=string.hexdigits + " ;:,@=-*AFTERCHECK")))
@pytest.mark.parametrize("parse", PARSERS)
def test_any_text_is_read_or_refused(parse, text: str) -> None:  # type: ignore[no-untyped-def]
    with suppress(Malformed):
        parse(text)


@pytest.mark.parametrize(
    "text",
    [
        f"200 CHECK={ID};1",
        f"200 REVOKE={ID};1;1",
        f"200 FETCH={ID}",
        f"200 SEEN=mx1.example.org;{ID};0000000000000001:1",
        "200 AT=0000000000000001:1",
        "",
    ],
)
def test_what_only_members_may_ask_is_refused(text: str) -> None:
    with pytest.raises(Malformed):
        hops.parse_query(text)


@pytest.mark.parametrize(
    "text",
    [
        f"1 {ID} 1 delivered *",  # the hop knows only the recipients that it took
        f"- {ID} 1 delivered 1",
        f"1 {ID} 1 taken=mx1.example.org 1",
        f"1 {ID} 1 rejected 1",
        f"1 {ID} 1 unknown 1",
    ],
)
def test_an_event_that_could_discard_too_much_is_refused(text: str) -> None:
    with pytest.raises(Malformed):
        hops.parse_line(text)


def test_the_extension_is_offered_with_both_keywords_and_our_version() -> None:
    offered = dict(keyword.partition(" ")[::2] for keyword in hops.KEYWORDS)
    assert hops.offered(offered)
    assert not hops.offered({"XSHADOW": "1"})
    assert not hops.offered({"XSHADOW": "2 3", "XQDISCARD": ""})


def test_the_longest_of_each_fits_into_its_line() -> None:
    largest = 10**15
    beginnings = tuple(Beginning(Incarnation(f"{number:016x}"), largest) for number in range(64))
    lineage = Lineage(DatabaseId(ID), beginnings, largest)
    greeting = hops.format_greeting(Greeting(ServerName("m" * 253), lineage, Incarnation("0" * 16)))
    longest = {
        "XSHADOW": f"XSHADOW {greeting}\r\n",
        "XQDISCARD": f"XQDISCARD {hops.format_query(Query(200, after=lineage.mark))}\r\n",
        "MAIL": "x" * COMMAND_LINE + f" {hops.MAIL_PARAMETER}={hops.format_tracked(ID)}",
        "RCPT": "x" * COMMAND_LINE + f" {hops.RCPT_PARAMETER}={hops.format_fork(1_000_000)}",
    }
    for verb, line in longest.items():
        assert len(line) <= COMMAND_LINE + hops.LINE_EXTENSIONS[verb], verb
    assert len(f"250 2.0.0 {greeting} {lineage.mark}\r\n") <= MAX_LINE


@pytest.mark.parametrize("name", DIALOGUES)
def test_every_line_of_a_dialogue_is_read_and_written_the_same(name: str) -> None:
    _, exchanges = read(DIALOGUES[name])
    for exchange in exchanges:
        verb, arguments = exchange.command.partition(" ")[::2]
        taken = exchange.reply[-1].startswith("25")
        if taken and verb == "XSHADOW":
            assert hops.format_greeting(hops.parse_greeting(arguments)) == arguments
            assert [hops.format_greeting(hops.parse_greeting(line)) for line in exchange.lines(marked=True)]
        elif taken and verb == "XQDISCARD":
            assert hops.format_query(hops.parse_query(arguments)) == arguments
            if exchange.reply[-1].startswith("250"):
                for line in exchange.lines(marked=True):
                    assert hops.format_line(hops.parse_line(line)) == line
        elif exchange.reply[-1].startswith("501 5.5.4 ") and verb in {"XSHADOW", "XQDISCARD"}:
            with pytest.raises(Malformed):
                (hops.parse_greeting if verb == "XSHADOW" else hops.parse_query)(arguments)
