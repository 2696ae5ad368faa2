"""Inputs to begin with: what clients and members say in the dialogues that the tests hold, and odd values."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

TESTS = Path(__file__).parents[1]
_ESCAPE = re.compile(rb"\\x([0-9a-f]{2})")

TOKENS = (
    *(
        "MAIL FROM:<",
        "RCPT TO:<",
        "DATA",
        "BDAT ",
        " LAST",
        "EHLO ",
        "RSET",
        "QUIT",
        "NOOP",
        "\r\n.\r\n",
        "\r\n",
    ),
    *(
        " SIZE=",
        " BODY=8BITMIME",
        " SMTPUTF8",
        " RET=HDRS",
        " ENVID=",
        " AUTH=<>",
        " NOTIFY=NEVER",
        " ORCPT=utf-8;",
    ),
    *(
        "XSHADOW ",
        " XSHADOW=",
        " XFORK=1;",
        "XQDISCARD ",
        " AT=",
        " AFTER=",
        " CHECK=",
        " REVOKE=",
        " KNOWN=",
        " SEEN=",
        " CLAIM=",
        "seen ",
    ),
    *(
        "0000000000000001:0",
        "0000000000000001@0",
        "01900000-0000-7000-8000-000000000001",
        ";1;1",
        "delivered",
        "taken=",
    ),
    *(
        "250-",
        "250 ",
        "354 ",
        "421 ",
        "2.1.0 ",
        "[IPv6:::1]",
        "[127.0.0.1]",
        '"\\',
        "%",
        "!",
        "@a,@b:",
        "+3D",
        "\x00",
    ),
    *(
        "#Footer: first=1 last=1 rows=1 sha256=",
        "S:Seq=1;S:Boot=",
        "'=",
        '""',
        "\u2028",
        "\u0661",
        "\xff",
        "\x85",
    ),
)
"""Words of the grammars, for the fuzzer's dictionary."""


def _octets(line: str) -> bytes:
    """One line of a dialogue as it is sent: see tests/smtp/test_receive_dialogues.py."""
    whole = line.removesuffix("\\c")
    end = b"" if whole != line else b"\r\n"
    raw = _ESCAPE.sub(lambda found: bytes([int(found[1], 16)]), whole.encode())
    return raw.replace(rb"\r", b"\r").replace(rb"\n", b"\n") + end


@cache
def _spoken(folder: str, kinds: str) -> tuple[tuple[bytes, ...], ...]:
    """Of each dialogue, what these speakers say, line by line."""
    found = []
    for path in sorted((TESTS / folder).glob("*.txt")):
        lines = path.read_text("utf-8").splitlines()
        found.append(tuple(_octets(line[3:]) for line in lines if line[:1] in kinds and line[1:2] == ":"))
    return tuple(found)


def clients() -> Iterator[bytes]:
    """Whole sessions of clients."""
    yield from (b"".join(lines) for lines in _spoken("dialogues", "C"))


def members() -> Iterator[bytes]:
    """Whole sessions of members, as callers."""
    yield from (b"".join(lines) for lines in _spoken("wire/golden", "CB"))


def answers() -> Iterator[bytes]:
    """Whole sessions of members, as those that were called."""
    for lines in _spoken("wire/golden", "S"):
        yield b"".join((b"220 mx2 ESMTP\r\n250-mx2\r\n250-XSHADOW 1\r\n250 XQDISCARD\r\n", *lines))


def arguments(verb: bytes) -> Iterator[bytes]:
    """What follows a verb in any dialogue."""
    for lines in (*_spoken("dialogues", "C"), *_spoken("wire/golden", "C")):
        yield from (
            line.removesuffix(b"\r\n")[len(verb) + 1 :]
            for line in lines
            if line.upper().startswith(verb + b" ")
        )


def lines(verb: bytes = b"") -> Iterator[bytes]:
    """Each line that a member answers; with a verb, the words after it."""
    for spoken in _spoken("wire/golden", "S"):
        yield from (line.removesuffix(b"\r\n")[10:] for line in spoken if verb in line)


def chunked(found: Iterator[bytes]) -> Iterator[bytes]:
    """The same, with the octets in front that ``registry.cut`` takes for sizes: whole, and in small
    pieces.
    """
    for data in found:
        yield b"\x01\x60" + data
        yield b"\x03\x00\x04\x12" + data


CONTENTS = (
    b"Subject: one\r\n\r\nbody\r\n",
    b"Received: a\r\n b\r\nReceived: c\r\nMessage-ID: <1@x>\r\n\r\n..dots\r\n.\r\n.\r\n..\r\n",
    b"\r\nno header\r\n",
    b"no body\r\n",
    b"bare\rcr\nlf\r\n.\n",
    b"\x00\xff\x80\r\n" + b"x" * 1200 + b"\r\n",
    "Subject: ünï\r\n\tfolded\r\n\r\n".encode(),
)


def contents() -> Iterator[bytes]:
    """Messages, odd ones among them."""
    yield from CONTENTS
