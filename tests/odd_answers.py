"""Answers to a final dot: well-formed ones in all spellings, mutations of them, and what RFC 5321 4.2.1 says
of each. And a next hop that gives them.
"""

from __future__ import annotations

import asyncio
import random
import socket
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass

UNREADABLE = "unreadable"
SILENT = "silent"

CODES = (250, 250, 250, 251, 252, 451, 452, 550, 554, 354)
TEXTS = (
    b"",
    b"ok",
    b"2.0.0 queued as 4711",
    b"nul \0 in it",
    b"cr \r in it",
    b"\xff\xfe",
    b"-",
    b"250 550",
    b"x" * 3000,
)


def well_formed(draw: random.Random) -> bytes:
    """One reply: RFC 5321 4.2.1, lines ended by CRLF or by LF alone, with or without text."""
    code = b"%d" % draw.choice(CODES)
    end = draw.choice((b"\r\n", b"\r\n", b"\n"))
    lines = [code + b"-" + draw.choice(TEXTS) + end for _ in range(draw.choice((0, 0, 0, 1, 2, 5)))]
    lines.append(
        draw.choice((code, code + b" " + draw.choice(TEXTS), code + b" " + draw.choice(TEXTS))) + end
    )
    return b"".join(lines)


def _broken_code(reply: bytes, draw: random.Random) -> bytes:
    wrong = draw.choice(
        (b"25x", b"999", b"199", b"2 0", b"   ", b"\xb2\xb5\xb0", b"25", b"", b"2500", b"HTT")
    )
    return wrong + reply[3:]


def _mixed_codes(reply: bytes, draw: random.Random) -> bytes:
    return draw.choice((b"250-first\r\n", b"251-first\r\n", b"550-first\r\n", b"354-first\n")) + reply


def _cut(reply: bytes, draw: random.Random) -> bytes:
    return reply[: draw.randrange(len(reply))]


def _other_separator(reply: bytes, draw: random.Random) -> bytes:
    return reply[:3] + draw.choice((b"_", b"\t", b"\0", b"x", b".")) + reply[3:]


def _endless(reply: bytes, draw: random.Random) -> bytes:
    return reply[:3] + b"-more\r\n"


def _doubled(reply: bytes, draw: random.Random) -> bytes:
    return reply + reply


def _empty_line(reply: bytes, draw: random.Random) -> bytes:
    return draw.choice((b"\r\n", b"\n")) + reply


def _long(reply: bytes, draw: random.Random) -> bytes:
    return reply[:3] + b"-" + b"y" * draw.choice((600, 40_000, 300_000)) + b"\r\n" + reply


def _flipped(reply: bytes, draw: random.Random) -> bytes:
    at = draw.randrange(len(reply))
    return reply[:at] + bytes([reply[at] ^ 1 << draw.randrange(8)]) + reply[at + 1 :]


MUTATIONS: Sequence[Callable[[bytes, random.Random], bytes]] = (
    _broken_code,
    _mixed_codes,
    _cut,
    _other_separator,
    _endless,
    _doubled,
    _empty_line,
    _long,
    _flipped,
)


def answers(seed: int, replies: int) -> bytes:
    """What a hop says where so many replies are due, before it closes the connection; often one is odd."""
    draw = random.Random(seed)
    said = [well_formed(draw) for _ in range(replies)]
    if draw.random() < 0.75:
        at = draw.randrange(replies)
        said[at] = draw.choice(MUTATIONS)(said[at], draw)
        if draw.random() < 0.3:
            del said[at + 1 :]
    return b"".join(said)


def read_by_rfc(said: bytes, replies: int) -> list[str]:
    """What the first so many replies are: a code, UNREADABLE, or SILENT where nothing came at all.

    RFC 5321 4.2 and 4.2.1: a line is three digits, then nothing, a space or a hyphen, and text; the hyphen
    says that more lines follow, which have the same code. A line that lacks its end is none. Of the code the
    first digit is 2 to 5. Behind what cannot be read nobody knows where a reply begins.
    """
    found: list[str] = []
    left = said
    while len(found) < replies:
        if not left:
            found.append(SILENT)
            continue
        code = ""
        while True:
            line, end, left = left.partition(b"\n")
            digits = line[:3].decode("latin-1")
            after = line[:-1][3:4] if line.endswith(b"\r") else line[3:4]
            readable = (
                bool(end)
                and len(digits) == 3
                and all(digit in "0123456789" for digit in digits)
                and digits[0] in "2345"
                and after in (b"", b" ", b"-")
                and code in ("", digits)
            )
            if not readable:
                return found + [UNREADABLE] * (replies - len(found))
            code = digits
            if after != b"-":
                break
        found.append(code)
    return found


@dataclass
class Odd:
    """How the hop ends what it says: STAY leaves the connection open, RESET sends a reset behind it."""

    said: bytes
    early: bytes = b""  # behind the answer to DATA, in the same write
    ends: str = "close"


class OddHop:
    """A next hop that takes every message, and gives these answers to the content, one after the other.

    The last one stays. ``taken``: how many final dots came.
    """

    def __init__(self, *odd: Odd, at: tuple[str, int] = ("127.0.0.1", 0)) -> None:
        self.odd = list(odd)
        self.at = at
        self.taken = 0
        self.recipients = 0  # of all that was taken

    async def __aenter__(self) -> OddHop:
        self._writers: list[asyncio.StreamWriter] = []
        self._server = await asyncio.start_server(self._accept, *self.at)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for writer in self._writers:
            writer.transport.abort()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        try:
            await self._talk(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 odd.example ESMTP\r\n")
        recipients = 0
        while line := await reader.readline():
            verb = line[:4].upper()
            if verb in (b"EHLO", b"LHLO"):
                writer.write(b"250-odd.example\r\n250 PIPELINING\r\n")
            elif verb == b"DATA":
                odd = self.odd.pop(0) if len(self.odd) > 1 else self.odd[0]
                writer.write(b"354 go ahead\r\n" + odd.early)
                while await reader.readline() != b".\r\n":
                    if reader.at_eof():
                        return
                self.taken += 1
                self.recipients += recipients
                recipients = 0
                if odd.ends == "reset":
                    theirs: socket.socket = writer.get_extra_info("socket")
                    theirs.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                writer.write(odd.said)
                await writer.drain()
                if odd.ends != "stay":
                    return
            elif verb == b"QUIT":
                writer.write(b"221 bye\r\n")
                return
            else:
                recipients += verb == b"RCPT"
                writer.write(b"250 2.0.0 ok\r\n")
