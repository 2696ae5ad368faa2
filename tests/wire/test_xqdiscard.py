"""XQDISCARD is read as it was written; whatever else comes is refused, and only that."""

from __future__ import annotations

import string
from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from spelling import lines, queries, recipient_lists

from shadowrelay.core.decisions import Verdict, VerdictKind
from shadowrelay.core.digests import of_content
from shadowrelay.core.events.discard_notices import RECIPIENTS_PER_EVENT
from shadowrelay.core.identifiers import Incarnation, Mark, MessageId
from shadowrelay.core.members.conversation import MAX_LINES, MAX_QUESTIONS, Line, Query, Question, Revocation
from shadowrelay.core.members.damage import Wanted
from shadowrelay.wire.replies import Reply
from shadowrelay.wire.xqdiscard import (
    format_line,
    format_query,
    format_recipients,
    parse_line,
    parse_query,
    parse_recipients,
)
from shadowrelay.wire.xshadow import MAX_LINE, Malformed

ONE, TWO = "00112233445566aa", "00112233445566bb"
A, B = "01900000-0000-7000-8000-00000000000a", "01900000-0000-7000-8000-00000000000b"
QUERY = f"200 AT={TWO}:9 AFTER={ONE}:4 CHECK={A};1,{B};2;1 REVOKE={B};1;3"
LINE = f"12 {A} 3 taken=mx2.example.org 1-3,7"

anything = st.one_of(
    st.text(),
    st.text(alphabet=string.digits + string.ascii_lowercase[:6] + " ;:,@=-*"),
    st.builds(
        lambda text, at, new: text[:at] + new + text[at + len(new) :],
        st.sampled_from([QUERY, LINE, "1-3,7"]),
        st.integers(0, 200),
        st.text(max_size=3),
    ),
)


@given(queries)
def test_a_query_is_read_as_it_was_written(query: Query) -> None:
    assert parse_query(format_query(query)) == query


@given(lines)
def test_an_answer_is_read_as_it_was_written(line: Line) -> None:
    assert parse_line(format_line(line)) == line


@given(recipient_lists)
def test_recipients_are_read_as_they_were_written(numbers: tuple[int, ...]) -> None:
    assert parse_recipients(format_recipients(reversed(numbers))) == numbers


@given(anything)
@example("1-1000000")
@example("1-10001")
@pytest.mark.parametrize("parse", [parse_query, parse_line, parse_recipients])
def test_any_text_is_read_or_refused(parse, text: str) -> None:  # type: ignore[no-untyped-def]
    with suppress(Malformed):
        parse(text)


def test_what_a_query_says() -> None:
    assert parse_query(QUERY) == Query(
        most=200,
        at=Mark(Incarnation(TWO), 9),
        after=Mark(Incarnation(ONE), 4),
        questions=(Question(MessageId(A), 1), Question(MessageId(B), 2, 1)),
        revoke=Revocation(MessageId(B), 1, 3),
    )


def test_what_an_answer_says() -> None:
    verdict = Verdict(MessageId(A), 3, VerdictKind.TAKEN, "mx2.example.org", (1, 2, 3, 7))
    assert parse_line(LINE) == Line(12, verdict)
    assert parse_line(f"- {A} 1 delivered *") == Line(None, Verdict(MessageId(A), 1, VerdictKind.DELIVERED))


def test_nobody_gets_more_lines_than_there_may_be() -> None:
    assert parse_query("100000").most == MAX_LINES


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "-1",
        "200 ",
        "200 CHECK",
        "200 CHECK=",
        "200 MORE=1",
        f"200 AT={TWO}:9 AT={TWO}:9",
        f"200 at={TWO}:9",
        f"200 CHECK={A}",
        f"200 CHECK={A};1;1;1",
        f"200 CHECK={A};1,",
        f"200 CHECK={A};damaged",
        f"200 CHECK={A};1;damaged;damaged",
        f"200 FETCH={A};1",
        f"200 FETCH={A};1;sha1:00",
        f"200 FETCH={A},{A}",
        f"200 REVOKE={A};1",
        "200 CHECK=" + ",".join([f"{A};1"] * (MAX_QUESTIONS + 1)),
    ],
)
def test_a_query_that_is_not_of_the_grammar_is_refused(text: str) -> None:
    with pytest.raises(Malformed):
        parse_query(text)


@pytest.mark.parametrize(
    "text",
    [
        LINE + " more",
        LINE.replace("12", "x"),
        LINE.replace("taken", "stolen"),
        LINE.replace("=mx2.example.org", ""),  # taken, but by whom?
        LINE.replace("mx2.example.org", "mx2."),
        LINE.replace("mx2.example.org", "MX2"),
        f"12 {A} 3 superseded=soon *",
        f"12 {A} 3 held=mx2.example.org *",
        f"12 {A} 3 superseded=-1 *",
        f"12 {A} 3 rejected=why *",
        f"12 {A} 3 unknown= *",
        f"12 {A} 3 delivered= *",
        f"12 {A} 3 delivered=somehow *",
        f"12 {A} 3 delivered 0",
        f"12 {A} 3 delivered 3-1",
        f"12 {A} 3 delivered 3,2",
        f"12 {A} 3 delivered 1-2-3",
        f"12 {A} 3 delivered 1,",
        f"12 {A} 3 delivered 1-20000",
    ],
)
def test_an_answer_that_is_not_of_the_grammar_is_refused(text: str) -> None:
    with pytest.raises(Malformed):
        parse_line(text)


def reply_line(line: Line) -> bytes:
    """As it leaves: the last one of an answer, with our mark."""
    return Reply(250, "2.0.0", f"{format_line(line)} {TWO}:{10**15}").encode()


def test_the_longest_event_fits_into_a_line() -> None:
    """Every other recipient of a message with very many: nothing can be said as a range."""
    scattered = tuple(range(1_000_000 - 2 * RECIPIENTS_PER_EVENT, 1_000_000, 2))
    assert len(scattered) == RECIPIENTS_PER_EVENT
    verdict = Verdict(MessageId(A), 10**9, VerdictKind.DELIVERED, "relayed", scattered)
    assert len(reply_line(Line(10**15, verdict))) <= MAX_LINE


def test_the_most_questions_fit_into_a_line() -> None:
    question = Question(MessageId(A), 10**5, 10**5, damaged=True)
    mark = Mark(Incarnation(TWO), 10**15)
    query = Query(MAX_LINES, mark, mark, (question,) * MAX_QUESTIONS, Revocation(MessageId(A), 10**5, 10**5))
    query = replace(query, wanted=Wanted(MessageId(A), 10**5, of_content(b"")))
    assert len(f"XQDISCARD {format_query(query)}\r\n") <= MAX_LINE
