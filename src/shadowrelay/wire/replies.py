"""SMTP replies (RFC 5321 section 4.2) with enhanced status codes (RFC 2034, RFC 3463)."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Sequence
from functools import lru_cache

from shadowrelay.core.values import dataclass

DUPLICATE_DROPPED = "Duplicate dropped"
"""How a mailbox server's 250 begins if it had the message already; this relay recognises it."""

MAX_REPLY_LINE = 512
"""RFC 5321 section 4.5.3.1.5: the octets of a reply line, code and CRLF included."""

_ENHANCED = re.compile(r"([245])\.(\d{1,3})\.(\d{1,3})(?: |$)", re.ASCII)
_LINE = re.compile(rb"([2-5][0-9]{2})(?:([ -])|\Z)(.*)", re.DOTALL)
_USUAL = re.compile(
    rb"(([2-5])[0-9]{2}) (?:((?!3)\2\.[0-9]{1,3}\.[0-9]{1,3})(?: |(?=\r\n)))?([ -~]*)\r\n"
)  # code, its class, enhanced code, text
_CODE = 4  # octets of a line that say its code, and whether it is the last one
_LONGEST_SAID = 600  # characters shown of text that is no reply
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
        return self.positive and "".join(self.lines[-1:]).startswith(DUPLICATE_DROPPED)

    def encode(self, *, most: int | None = None) -> bytes:
        """The octets on the wire, CRLF included; every line has both codes.

        A character that is not printable ASCII becomes ``?``: a reply may quote a client, and never needs
        SMTPUTF8. A line longer than ``most`` octets is cut; None means any length.
        """
        return encoded(self, most)

    def __str__(self) -> str:
        """The reply as one printable line, for the tracking log and DSNs."""
        codes = f"{self.code} {self.enhanced}" if self.enhanced else str(self.code)
        return _UNPRINTABLE.sub("?", f"{codes} {' '.join(self.lines)}").rstrip()


@lru_cache(maxsize=256)
def encoded(reply: Reply, most: int | None) -> bytes:
    """See ``Reply.encode``. Cached, because nearly every reply is one of a few."""
    start = f"{reply.enhanced} " if reply.enhanced else ""
    lines = (reply.text,) if isinstance(reply.text, str) else reply.text or ("",)
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


@lru_cache(maxsize=256)
def usual(line: bytes) -> Reply | None:
    """The reply of one printable line with its CRLF, as members and most servers write it. None: the line is
    something else, and ``parse_reply`` reads it. Both read the same. Cached, as nearly every reply is one of
    a few.
    """
    if (found := _USUAL.fullmatch(line)) is None:
        return None
    code, _, enhanced, text = found.groups()
    return Reply(int(code), str(enhanced, "ascii") if enhanced else None, str(text, "ascii"))


class ReplyReader:
    """Cuts a stream of octets into replies. A reply may have at most ``most`` octets.

    ``cuts``: a longer one is no error, but is read to its end and cut, so that memory stays bounded. Its code
    stands in every line, and is compared in every line.
    """

    __slots__ = ("_code", "_cuts", "_held", "_line", "_lines", "_most", "_size")

    def __init__(self, most: int = 65_536, *, cuts: bool = False) -> None:
        self._most = most
        self._cuts = cuts
        self._line = bytearray()  # the line that has no end yet
        self._begin()

    def _begin(self) -> None:
        self._lines: list[bytes] = []
        self._code = b""  # of the lines before, '' before the first one
        self._size = self._held = 0  # octets of the reply so far; those that are kept

    @property
    def begun(self) -> str:
        """What has come of a reply that is not complete, in one printable line; '' if nothing has."""
        return shown([*self._lines, bytes(self._line)]) or "?" if self._size else ""

    def feed(self, data: bytes) -> list[Reply]:
        """The replies that ``data`` completes, in order. Raises ReplyError; then the stream is useless."""
        replies: list[Reply] = []
        self.take(data, replies, len(data))
        return replies

    def take(self, data: bytes, replies: list[Reply] | deque[Reply], most: int) -> int:
        """As ``feed``, but add them to ``replies``, until there are ``most`` of them. Returns how many octets
        of ``data`` that took. What is complete before an error is added.
        """
        begin, size, room = 0, len(data), most - len(replies)
        while begin < size and room > 0:
            if (end := data.find(b"\n", begin)) < 0:
                self._add(data[begin:], line_ends=False)
                return size
            fresh = not self._size and end - begin < self._most
            if (reply := usual(data[begin : end + 1]) if fresh else None) is None:
                self._add(data[begin:end], line_ends=True)
                reply = self._line_ended()
            begin = end + 1
            if reply is not None:
                replies.append(reply)
                room -= 1
        return begin

    def _add(self, octets: bytes, *, line_ends: bool) -> None:
        self._size += len(octets) + line_ends
        if self._size > self._most and not self._cuts:
            raise ReplyError("reply too long")
        # The code of a line is always kept.
        kept = octets[: max(self._most - self._held, _CODE - len(self._line), 0)]
        self._line += kept
        self._held += len(kept)

    def _line_ended(self) -> Reply | None:
        line = bytes(self._line).removesuffix(b"\r")
        self._line.clear()
        code, whole = line[: _CODE - 1], self._held < self._most
        if self._code and code != self._code:
            self._lines.append(line)
            raise self._unreadable("the lines of a reply differ in their code")
        self._code = code
        last = line[_CODE - 1 : _CODE] != b"-"
        if whole or last or not self._lines:
            self._lines.append(line)
        return self._parsed() if last else None

    def _parsed(self) -> Reply:
        try:
            reply = parse_reply(self._lines)
        except ReplyError as error:
            raise self._unreadable(str(error)) from None
        self._begin()
        return reply

    def _unreadable(self, why: str) -> ReplyError:
        error = ReplyError(why)
        error.said = shown(self._lines)
        return error


def shown(lines: Sequence[bytes | bytearray]) -> str:
    """What a server said, in one printable line of at most 600 characters."""
    text = b" ".join(lines)[: 4 * _LONGEST_SAID].decode("utf-8", "replace")
    return _UNPRINTABLE.sub("?", text).strip()[:_LONGEST_SAID]
