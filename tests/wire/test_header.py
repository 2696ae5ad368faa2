"""The header section is found and read, however it arrives, and nothing in it is changed."""

from __future__ import annotations

from email import message_from_bytes
from email.policy import default

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shadowrelay.wire.header import LONGEST_FIELD_NAME, HeaderScan, lacks_header, received_field

pieces = st.sampled_from(
    [
        b"\r\n",
        b"\r",
        b"\n",
        b"Received: x",
        b"Subject: s",
        b":",
        b" ",
        b"\t",
        b"Message-ID: <m@x>",
        b"\xff",
        b"\0",
    ]
)
contents = st.lists(st.one_of(pieces, st.binary(max_size=6)), max_size=12).map(b"".join)


def scanned(content: bytes, *cuts: int) -> HeaderScan:
    """The scan of a content that arrived in parts."""
    scan, begin = HeaderScan(), 0
    for end in (*sorted(cuts), len(content)):
        if not scan.complete:
            scan.feed(content[begin:end])
        else:
            scan.rest += content[begin:end]
        begin = max(begin, end)
    if not scan.complete:
        scan.finish()
    return scan


@given(contents, st.lists(st.integers(0, 60), max_size=4))
def test_nothing_is_lost_or_changed_however_it_arrives(content: bytes, cuts: list[int]) -> None:
    cuts = [min(cut, len(content)) for cut in cuts]
    scan, whole = scanned(content, *cuts), scanned(content)
    assert scan.section + scan.rest == (b"\r\n" if lacks_header(content) else b"") + content
    assert (scan.section, scan.names, scan.received, scan.message_id) == (
        whole.section,
        whole.names,
        whole.received,
        whole.message_id,
    )
    assert len(scan.subject) <= 255


def test_the_header_ends_at_the_first_empty_line() -> None:
    scan = scanned(b"Subject: one\r\n\r\nSubject: two\r\n\r\nReceived: not one\r\n")
    assert scan.section == b"Subject: one\r\n"
    assert scan.rest == b"\r\nSubject: two\r\n\r\nReceived: not one\r\n"
    assert (scan.subject, scan.received) == ("one", 0)


def test_a_message_may_have_no_header_or_no_body() -> None:
    assert (scanned(b"\r\nbody\r\n").section, scanned(b"\r\nbody\r\n").rest) == (b"", b"\r\nbody\r\n")
    headless = scanned(b"Subject: only\r\n")
    assert (headless.section, headless.rest, headless.subject) == (b"Subject: only\r\n", b"", "only")
    assert scanned(b"").section == b""


@pytest.mark.parametrize("cuts", [(), (1,), (3, 5, 7)], ids=str)
def test_a_message_that_begins_with_its_text_has_an_empty_line_above_it(cuts: tuple[int, ...]) -> None:
    text = b"Dear all,\r\nSubject: is no field here\r\n\r\nReceived: neither\r\n"
    scan = scanned(text, *cuts)
    assert (scan.section, scan.rest) == (b"", b"\r\n" + text)
    assert (scan.names, scan.subject, scan.received) == (set(), "", 0)


def test_a_text_in_one_line_is_known_before_it_ends() -> None:
    scan = HeaderScan()
    assert scan.feed(b"x" * LONGEST_FIELD_NAME)


@pytest.mark.parametrize("size", [1, 97, LONGEST_FIELD_NAME, 5_000])
def test_what_a_long_first_line_is_does_not_depend_on_the_pieces_in_which_it_comes(size: int) -> None:
    message = b"x" * (LONGEST_FIELD_NAME + 1) + b":\r\nmore\r\n"
    scan = HeaderScan()
    for at in range(0, len(message), size):
        if scan.feed(message[at : at + size]):
            break
    assert scan.rest.startswith(b"\r\nxxx")


@pytest.mark.parametrize("first", [b"X :", b"From a@b Mon Jan 1\r\n", b">From a\r\n", b"\r\n", b""], ids=repr)
def test_a_field_the_line_of_a_mailbox_file_and_an_empty_line_are_no_text(first: bytes) -> None:
    assert not lacks_header(first)


def test_what_is_read_of_it() -> None:
    scan = scanned(
        b"Received: from a\r\n\tby b\r\nRECEIVED : folded\r\n\r\n"[:-2]
        + b"Message-ID:\r\n <one@example.org>\r\nmessage-id: <two@example.org>\r\n"
        + b"Subject: a long\r\n one \xc3\xbc\xff\r\nX-Received: no\r\n\r\n"
    )
    assert scan.received == 2
    assert scan.message_id == "<one@example.org>"
    assert scan.subject == "a long one ü\ufffd"
    assert scan.names == {"received", "message-id", "subject", "x-received"}


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        (
            {"recipient": "b@example.net"},
            "from client.example ([192.0.2.1])\tby mx1.example.org with ESMTPS\tid 0190"
            "\tfor <b@example.net>;",
        ),
        ({}, "from client.example ([192.0.2.1])\tby mx1.example.org with ESMTPS\tid 0190;"),
        (
            {"address": "2001:db8::1"},
            "from client.example ([IPv6:2001:db8::1])\tby mx1.example.org with ESMTPS\tid 0190;",
        ),
        (
            {"login": "alice@example.org"},
            "from client.example ([192.0.2.1])\t(authenticated: alice@example.org)"
            "\tby mx1.example.org with ESMTPS\tid 0190;",
        ),
        (
            {"login": "a) b(\\\r\nX: ü"},
            "from client.example ([192.0.2.1])\t(authenticated: a??b????X:??)"
            "\tby mx1.example.org with ESMTPS\tid 0190;",
        ),
    ],
    ids=["one recipient", "several", "IPv6", "who logged in", "who logged in, at his worst"],
)
def test_the_trace_field_is_of_the_standard_form(facts: dict[str, str], expected: str) -> None:
    field = received_field(
        **{  # type: ignore[arg-type]
            "helo": "client.example",
            "address": "192.0.2.1",
            "by": "mx1.example.org",
            "protocol": "ESMTPS",
            "message_id": "0190",
            "date": "Sat, 21 Nov 2026 10:00:00 +0000",
        }
        | facts
    )
    assert field.endswith(b";\r\n\tSat, 21 Nov 2026 10:00:00 +0000\r\n")
    assert all(len(line) < 998 for line in field.split(b"\r\n"))
    parsed = message_from_bytes(field + b"\r\n", policy=default)["Received"]
    assert str(parsed).replace("\r\n", "") == expected + "\tSat, 21 Nov 2026 10:00:00 +0000"
