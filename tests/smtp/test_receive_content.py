from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from shadowrelay.smtp.receiving.content import (
    BARE_LINE_END,
    HEADER_TOO_BIG,
    LINE_TOO_LONG,
    MESSAGE_TOO_BIG,
    ContentCheck,
    DotDecoder,
)
from shadowrelay.wire.replies import Reply

tokens = st.lists(st.sampled_from([b"\r\n", b"\r", b"\n", b".", b"x", b"..", b"\r\n.", b"\x00"]), max_size=30)
steps = st.integers(1, 9)


def decoded(stream: bytes, step: int) -> tuple[bytes, bytes | None]:
    """The content, and what is left unread; None when the end never came."""
    decoder, content = DotDecoder(), b""
    for at in range(0, len(stream), step):
        block, rest = decoder.feed(stream[at : at + step])
        content += block
        if rest is not None:
            return content, rest + stream[at + step :]
    return content, None


@given(tokens, steps)
@example([b"..", b"\r\n", b"\r\n."], 1)
def test_only_crlf_dot_crlf_ends_data_and_every_block_size_gives_the_same(
    parts: list[bytes], step: int
) -> None:
    stream = b"".join(parts)
    ending = b"\r\n" + stream + b"\r\n.\r\nNEXT"
    end = ending.index(b"\r\n.\r\n")
    expected = re.sub(rb"\r\n\.", b"\r\n", ending[: end + 2])[2:]
    assert decoded(stream + b"\r\n.\r\nNEXT", step) == (expected, ending[end + 5 :])


@given(tokens)
def test_what_a_client_stuffs_arrives_unstuffed(parts: list[bytes]) -> None:
    content = b"".join(parts) + b"\r\n"
    stuffed = re.sub(rb"(^|\r\n)\.", rb"\1..", content)
    assert decoded(stuffed + b".\r\n", 4) == (content, b"")


def judged(content: bytes, step: int, **limits: int | None) -> Reply | None:
    check = ContentCheck(
        most=limits.get("most") or 10**6,
        most_header=limits.get("most_header") or 10**6,
        most_line=limits.get("most_line"),
    )
    for at in range(0, len(content), step):
        refusal = check.feed(content[at : at + step])
        if refusal is not None:
            return refusal
    return check.end()


@given(tokens, steps)
def test_a_bare_cr_or_lf_is_seen_wherever_blocks_are_cut(parts: list[bytes], step: int) -> None:
    content = b"".join(parts)
    bare = b"\r" in content.replace(b"\r\n", b"") or b"\n" in content.replace(b"\r\n", b"")
    assert judged(content, step) == (BARE_LINE_END if bare else None)


@given(st.lists(st.integers(0, 14), max_size=8), steps)
def test_a_line_longer_than_the_limit_is_seen_wherever_blocks_are_cut(lengths: list[int], step: int) -> None:
    content = b"".join(b"x" * length + b"\r\n" for length in lengths)
    too_long = any(length + 2 > 12 for length in lengths)
    assert judged(content, step, most_line=12) == (LINE_TOO_LONG if too_long else None)


@given(st.integers(0, 20), st.integers(0, 30), steps)
def test_a_header_is_measured_up_to_its_empty_line(header: int, body: int, step: int) -> None:
    lines = b"h" * header + b"\r\n" if header else b""
    content = lines + b"\r\n" + b"b" * body
    too_big = len(lines) + 2 > 15
    assert judged(content, step, most_header=15) == (HEADER_TOO_BIG if too_big else None)


def test_a_message_without_an_empty_line_is_all_header() -> None:
    assert judged(b"x" * 16, 5, most_header=15) == HEADER_TOO_BIG


def test_a_message_may_be_as_big_as_the_limit() -> None:
    assert judged(b"x" * 100, 7, most=100) is None
    assert judged(b"x" * 101, 7, most=100) == MESSAGE_TOO_BIG


@pytest.mark.parametrize("block", [1, 2, 7, 64, 1000])
def test_of_several_faults_the_first_one_is_named_wherever_blocks_are_cut(block: int) -> None:
    long, bare, fill = b"x" * 60 + b"\r\n", b"a\rb\r\n", b"\r\n" + b"ok\r\n" * 30
    for content, reply in (
        (b"S: x\r\n" + fill + bare + long, "550 5.6.11"),
        (b"S: x\r\n" + fill + long + bare, "554 5.6.0"),
        (bare + b"H: 12345678\r\n" * 20 + fill, "550 5.6.11"),
        (b"H: 12345678\r\n" * 20 + bare + fill, "552 5.3.4"),
    ):
        check = ContentCheck(most=10_000, most_header=200, most_line=50)
        parts = [content[at : at + block] for at in range(0, len(content), block)]
        told = next((str(fault) for part in parts if (fault := check.feed(part))), "")
        assert told.startswith(reply)
