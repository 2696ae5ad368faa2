"""SMTP replies (RFC 5321 section 4.2) with enhanced status codes (RFC 2034, RFC 3463)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from shadowrelay.core.values import dataclass

DUPLICATE_DROPPED = "Duplicate dropped"
"""How a mailbox server's 250 begins if it had the message already; this relay recognises it."""

MAX_REPLY_LINE = 512
"""RFC 5321 section 4.5.3.1.5: the octets of a reply line, code and CRLF included."""

_ENHANCED = re.compile(r"([245])\.(\d{1,3})\.(\d{1,3})(?: |$)", re.ASCII)
_LINE = re.compile(rb"([2-5][0-9]{2})(?:([ -])|\Z)(.*)", re.DOTALL)
_LONGEST_SAID = 600  # characters kept of text that is no reply
_UNPRINTABLE = re.compile(r"[^\x20-\x7e]")


class ReplyError(ValueError):
    """The server sent something that is no SMTP reply, or is too long.

    ``said``: its text, in one printable line; '' if there is none to show.
    """

    said = ""


@dataclass(frozen=True, slots=True)
class Reply:
    """One SMTP reply of one or more lines.

    ``enhanced`` is None for a greeting, an answer to EHLO, and 354 (RFC 2034 section 3). ``text``: one line
    or several, without the codes.
    """

    code: int
    enhanced: str | None
    text: str | tuple[str, ...]

    @property
    def lines(self) -> tuple[str, ...]:
        return (self.text,) if isinstance(self.text, str) else self.text

    @property
    def positive(self) -> bool:
        return 200 <= self.code < 300

    @property
    def transient(self) -> bool:
        return 400 <= self.code < 500

    @property
    def permanent(self) -> bool:
        return 500 <= self.code < 600

    @property
    def duplicate(self) -> bool:
        """Is it positive because the receiver had the message already?"""
        return self.positive and bool(self.lines) and self.lines[-1].startswith(DUPLICATE_DROPPED)

    def encode(self, *, most: int | None = None) -> bytes:
        """The octets on the wire, CRLF included; every line has both codes.

        A character that is not printable ASCII becomes ``?``: a reply may quote a client, and never needs
        SMTPUTF8. A line longer than ``most`` octets is cut; None means any length.
        """
        return _encoded(self, most)

    def __str__(self) -> str:
        """The reply as one printable line, for the tracking log and DSNs."""
        codes = f"{self.code} {self.enhanced}" if self.enhanced else str(self.code)
        return _UNPRINTABLE.sub("?", f"{codes} {' '.join(self.lines)}").rstrip()


@lru_cache(maxsize=256)
def _encoded(reply: Reply, most: int | None) -> bytes:
    """Cached, because nearly every reply is one of a few."""
    start = f"{reply.enhanced} " if reply.enhanced else ""
    lines = reply.lines or ("",)
    room = None if most is None else most - 6 - len(start)
    encoded = [
        f"{reply.code}{'-' if number < len(lines) else ' '}{start}{_UNPRINTABLE.sub('?', line)[:room]}\r\n"
        for number, line in enumerate(lines, 1)
    ]
    return "".join(encoded).encode("ascii")


class Refused(Exception):
    """Raised to refuse a command or a message; carries the negative reply."""

    def __init__(self, code: int, enhanced: str, text: str) -> None:
        super().__init__(code, enhanced, text)
        self.reply = Reply(code, enhanced, text)

    @classmethod
    def by(cls, reply: Reply) -> Refused:
        """The exception for a reply that has one line and an enhanced code."""
        return cls(reply.code, reply.enhanced or "", "".join(reply.lines))


NO_ROOM = Reply(452, "4.3.1", "Insufficient system resources")
"""The reply of a node that runs out of disk: it takes nothing for now, from senders and members alike."""


def parse_reply(lines: Sequence[bytes]) -> Reply:
    """Read a reply from its complete lines, given without line ends.

    An enhanced code counts only if its class is that of the reply code. Raises ReplyError.
    """
    parsed = [_parse_line(line) for line in lines]
    if not parsed:
        raise ReplyError("no reply line")
    code = parsed[0][0]
    for number, (other, last, _) in enumerate(parsed, 1):
        if other != code:
            raise ReplyError("the lines of a reply differ in their code")
        if last != (number == len(parsed)):
            raise ReplyError("the last line of a reply, and only that one, has a space after the code")
    enhanced: str | None = None
    texts = []
    for _, _, line in parsed:
        text = line
        found = _ENHANCED.match(text)
        if found and int(found[1]) == code // 100:
            enhanced = enhanced or found[0].rstrip()
            text = text[found.end() :]
        texts.append(text)
    return Reply(code, enhanced, texts[0] if len(texts) == 1 else tuple(texts))


def _parse_line(line: bytes) -> tuple[int, bool, str]:
    """(code, is it the last line, text). A code alone is a last line (RFC 5321 section 4.2)."""
    found = _LINE.fullmatch(line)
    if found is None:
        raise ReplyError("not a reply line")
    code, separator, text = found.groups()
    return int(code), separator != b"-", text.decode("utf-8", "replace")


class ReplyReader:
    """Cuts a stream of octets into replies. A reply may have at most ``most`` octets."""

    __slots__ = ("_buffer", "_held", "_lines", "_most")

    def __init__(self, most: int = 65_536) -> None:
        self._most = most
        self._buffer = bytearray()
        self._lines: list[bytes] = []
        self._held = 0

    def feed(self, data: bytes) -> list[Reply]:
        """The replies that ``data`` completes, in order. Raises ReplyError; then the stream is useless."""
        self._buffer += data
        replies: list[Reply] = []
        begin = 0
        while (end := self._buffer.find(b"\n", begin)) >= 0:
            line = bytes(self._buffer[begin:end]).removesuffix(b"\r")
            self._held += end + 1 - begin
            begin = end + 1
            self._lines.append(line)
            if self._held > self._most:
                raise ReplyError("reply too long")
            if line[3:4] != b"-":
                replies.append(self._parsed())
        del self._buffer[:begin]
        if self._held + len(self._buffer) > self._most:
            raise ReplyError("reply too long")
        return replies

    def _parsed(self) -> Reply:
        lines, self._lines, self._held = self._lines, [], 0
        try:
            return parse_reply(lines)
        except ReplyError as error:
            text = b" ".join(lines).decode("utf-8", "replace")
            error.said = _UNPRINTABLE.sub("?", text).strip()[:_LONGEST_SAID]
            raise
