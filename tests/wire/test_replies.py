from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shadowrelay.wire.replies import Refused, Reply, ReplyError, ReplyReader, parse_reply


def test_every_line_of_a_reply_carries_both_codes() -> None:
    reply = Reply(550, "5.7.1", ("Not here", "nor there"))
    assert reply.encode() == b"550-5.7.1 Not here\r\n550 5.7.1 nor there\r\n"


def test_a_greeting_has_no_enhanced_code() -> None:
    assert Reply(220, None, "mx.example.net ESMTP").encode() == b"220 mx.example.net ESMTP\r\n"


def test_nothing_in_a_text_can_begin_another_reply() -> None:
    assert Reply(451, "4.3.0", "a\r\n250 2.0.0 ü").encode() == b"451 4.3.0 a??250 2.0.0 ?\r\n"


def test_a_line_is_cut_at_its_limit() -> None:
    assert len(Reply(250, "2.0.0", "x" * 1000).encode(most=512)) == 512
    assert len(Reply(250, None, "x" * 1000).encode(most=512)) == 512
    assert len(Reply(250, "2.0.0", "x" * 1000).encode()) == 1012


def test_a_reply_reads_as_one_printable_line() -> None:
    assert str(Reply(250, "2.0.0", ("one", "two\x1b"))) == "250 2.0.0 one two?"


def test_a_reply_is_of_one_class() -> None:
    assert Reply(250, None, "").positive
    assert Reply(451, None, "").transient
    assert Reply(550, None, "").permanent
    assert not Reply(354, None, "").positive


def test_a_dropped_duplicate_is_recognised_by_its_first_words() -> None:
    assert Reply(250, "2.0.0", "Duplicate dropped, delivered before").duplicate
    assert not Reply(250, "2.0.0", "Delivered").duplicate
    assert not Reply(550, "5.0.0", "Duplicate dropped").duplicate


def test_a_refusal_carries_its_reply() -> None:
    assert Refused(452, "4.3.1", "No space").reply == Reply(452, "4.3.1", "No space")


def test_a_reply_without_enhanced_code_keeps_its_text() -> None:
    assert parse_reply([b"250 5.1.1 is what others say"]) == Reply(250, None, "5.1.1 is what others say")
    assert parse_reply([b"250"]) == Reply(250, None, "")
    other_digits = "2.\u0661.0 fine"
    assert parse_reply([f"250 {other_digits}".encode()]) == Reply(250, None, other_digits)


@pytest.mark.parametrize(
    "lines",
    [
        [],
        [b""],
        [b"25"],
        [b"2x0 ok"],
        [b"199 early"],
        [b"600 late"],
        [b"250_ok"],
        [b"250-not the last"],
        [b"250 one", b"250 two"],
        [b"250-one", b"251 two"],
    ],
)
def test_what_is_no_reply_is_an_error(lines: list[bytes]) -> None:
    with pytest.raises(ReplyError):
        parse_reply(lines)


replies = st.builds(
    Reply,
    st.sampled_from([250, 354, 421, 550]),
    st.none(),
    st.lists(st.text(st.characters(min_codepoint=97, max_codepoint=122)), min_size=2, max_size=4).map(tuple),
)


@given(st.lists(replies), st.integers(1, 7))
def test_replies_are_read_as_they_were_written_however_they_arrive(sent: list[Reply], step: int) -> None:
    stream = b"".join(reply.encode() for reply in sent)
    reader = ReplyReader()
    got = [reply for at in range(0, len(stream), step) for reply in reader.feed(stream[at : at + step])]
    assert got == sent


def test_an_endless_reply_is_cut_off() -> None:
    with pytest.raises(ReplyError):
        ReplyReader(most=100).feed(b"250-" + b"x" * 100)
    with pytest.raises(ReplyError):
        ReplyReader(most=100).feed(b"250-x\r\n" * 100)
