"""Odd messages: each has to leave as it came, or to be refused before its 250.

``python tests/corpus/odd_messages.py DIRECTORY`` writes them as files.
"""

from __future__ import annotations

import random
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

SEEDS = (3, 14, 15, 92, 65, 35)
"""Of the mixtures at the end."""

_HEADER = re.compile(rb"[!-9;-~]+[ \t]*:|\r\n|>?From |$")  # a field, the end of one, or of a mailbox file

_HEAD = b"From: a@outside.test\r\nSubject: odd\r\n"


@dataclass(frozen=True, slots=True)
class Odd:
    """``by``: DATA, BDAT or both; ``refused``: the codes of the reply, '' for a message that is taken."""

    name: str
    content: bytes
    by: tuple[str, ...] = ("DATA", "BDAT")
    parameters: str = ""
    refused: str = ""

    @property
    def arrives(self) -> bytes:
        """What DATA makes of it at the next hop: a last line has an end there. A text without a header field
        stands below an empty line, which ends the fields that are put above it.
        """
        above = b"" if _HEADER.match(self.content) else b"\r\n"
        below = b"" if self.content.endswith(b"\r\n") or not self.content else b"\r\n"
        return above + self.content + below


def messages() -> Iterator[Odd]:
    """All of them; the same ones each time."""
    yield from _octets()
    yield from _line_ends()
    yield from _headers()
    yield from _sizes()
    for seed in SEEDS:
        yield Odd(f"mixture-{seed}", _mixture(random.Random(seed)))


def _octets() -> Iterator[Odd]:
    everything = bytes(octet for octet in range(256) if octet not in b"\r\n")
    yield Odd("eight-bit", _HEAD + b"\r\n\xe4\xf6\xfc \xff\xfe\x80\r\n", parameters=" BODY=8BITMIME")
    yield Odd("eight-bit-undeclared", _HEAD + b"\r\n\xe4\xf6\xfc\r\n")
    yield Odd("nul", _HEAD + b"\r\n\0\r\nx\0y\0\r\n\0\0\0\r\n")
    yield Odd("nul-in-header", b"Subject: a\0b\r\nX-\0: c\r\n\r\nbody\r\n")
    yield Odd("every-octet", _HEAD + b"\r\n" + everything + b"\r\n" + everything[::-1] + b"\r\n")
    yield Odd("blank-ends", _HEAD + b"\r\ntrailing   \r\n\t\r\n \r\n\x0b\x0c\x7f\r\n")
    yield Odd("from-lines", _HEAD + b"\r\nFrom here on\r\n>From there\r\n")
    yield Odd("line-of-998", _HEAD + b"\r\n" + b"x" * 998 + b"\r\n")
    yield Odd("line-of-999", _HEAD + b"\r\n" + b"x" * 999 + b"\r\n", refused="554 5.6.0")
    yield Odd("binary", b"\r\n" + bytes(range(256)) * 50, by=("BDAT",), refused="550 5.6.11")


def _line_ends() -> Iterator[Odd]:
    yield Odd("only-dots", b"\r\n.\r\n..\r\n...\r\n.\r\n")
    yield Odd("a-dot-alone", b".\r\n")
    yield Odd("dots-in-header", b".X: y\r\n..: z\r\n\r\n.\r\n")
    yield Odd("lines-of-dots", _HEAD + b"\r\n" + b"".join(b"." * count + b"\r\n" for count in range(1, 300)))
    yield Odd("dots-everywhere", _HEAD + b"\r\n" + b".\r\n" * 20_000)
    yield Odd("no-last-line-end", _HEAD + b"\r\nno end", by=("BDAT",))
    yield Odd("a-last-dot", _HEAD + b"\r\nno end\r\n.", by=("BDAT",))
    yield Odd("nothing", b"", by=("BDAT",))
    yield Odd("one-octet", b"x", by=("BDAT",))
    yield Odd("empty-lines", b"\r\n" * 500)
    yield Odd("bare-cr", _HEAD + b"\r\na\rb\r\n", refused="550 5.6.11")
    yield Odd("bare-lf", _HEAD + b"\r\na\nb\r\n", refused="550 5.6.11")
    yield Odd("bare-lf-in-header", b"Subject: a\nX: b\r\n\r\nbody\r\n", refused="550 5.6.11")
    yield Odd("mixed-ends", _HEAD + b"\r\na\r\nb\nc\rd\r\r\n\n\re\r\n", refused="550 5.6.11")
    yield Odd("smuggled", _HEAD + b"\r\na\r\n.\nMAIL FROM:<x@y>\r\n", refused="550 5.6.11")
    yield Odd("last-cr", _HEAD + b"\r\nend\r", by=("BDAT",), refused="550 5.6.11")


def _headers() -> Iterator[Odd]:
    yield Odd("no-header", b"\r\nbody alone\r\n")
    yield Odd("no-body", _HEAD)
    yield Odd("empty-body", _HEAD + b"\r\n")
    yield Odd("no-colon", b"this is no field\r\nneither is this\r\n\r\nbody\r\n")
    yield Odd("odd-folds", b"Subject: a\r\n \r\n\t\r\n b\r\n  c\r\nTo:\r\n d@e\r\n\r\nbody\r\n")
    yield Odd("fold-first", b" folded at once\r\nSubject: a\r\n\r\nbody\r\n")
    yield Odd("ids-twice", b"Message-ID: <1@x>\r\nMESSAGE-ID : <2@x>\r\nDate: never\r\n\r\nbody\r\n")
    yield Odd("utf8-header", "Subject: Grüße – ☃\r\n\r\nbody\r\n".encode())
    yield Odd("utf8-declared", "Subject: Grüße – ☃\r\n\r\nbody\r\n".encode(), parameters=" SMTPUTF8")
    yield Odd("invalid-utf8", b"Subject: \xff\xfe\xc3(\r\nX: \xed\xa0\x80\r\n\r\nbody\r\n")
    yield Odd(
        "huge-header", b"".join(b"X-%d: %s\r\n" % (n, b"h" * 900) for n in range(200)) + b"\r\nbody\r\n"
    )
    yield Odd("long-field-name", b"X" * 990 + b": y\r\n\r\nbody\r\n")
    received = b"Received: from a by b; Sat, 21 Nov 2026 10:00:00 +0000\r\n"
    yield Odd("many-received", received * 50 + b"\r\nbody\r\n")
    yield Odd("looping", received * 101 + b"\r\nbody\r\n", refused="554 5.4.6")
    too_big = b"".join(b"X-%d: %s\r\n" % (n, b"h" * 900) for n in range(300))
    yield Odd("header-past-the-limit", too_big + b"\r\nbody\r\n", refused="552 5.3.4")
    deep = b"".join(
        b'Content-Type: multipart/mixed; boundary="%d"\r\n\r\n--%d\r\n' % (n, n) for n in range(500)
    )
    yield Odd("deep-mime", b"MIME-Version: 1.0\r\n" + deep + b"\r\nthe bottom\r\n")


def _sizes() -> Iterator[Odd]:
    """Around the sizes at which a content goes to a file, and begins to stream to the holder."""
    line = b"0123456789" * 7 + b"\r\n"
    for size in (
        64 * 1024 - 1,
        64 * 1024,
        64 * 1024 + 1,
        256 * 1024 - 1,
        256 * 1024,
        256 * 1024 + 1,
        3_000_000,
    ):
        content = (_HEAD + b"\r\n" + line * (size // len(line)))[: size - 2] + b"\r\n"
        yield Odd(f"size-{size}", content.replace(b"\r\r\n", b"x\r\n"))


def _mixture(choices: random.Random) -> bytes:
    parts = [
        b".",
        b"..",
        b"\r\n",
        b"\r\n.",
        b"\r\n..\r\n",
        b"\0",
        b"\xff",
        b"x" * 400,
        b": ",
        b"\t",
        "ü".encode(),
    ]
    drawn = b"".join(choices.choices(parts, k=2_000))
    return b"\r\n".join(line[:998] for line in drawn.split(b"\r\n")) + b"\r\n"


if __name__ == "__main__":
    target = Path(sys.argv[1])
    target.mkdir(parents=True, exist_ok=True)
    for odd in messages():
        (target / f"{odd.name}.eml").write_bytes(odd.content)
