"""What aiosmtpd reads from: the next acceptable command, or the header of a proxy.

It is given no StreamReader, which would be one more copy and wake-up of all that arrives, and would hand out
what a command must not be.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from ipaddress import IPv4Address, IPv6Address, ip_address

from aiosmtpd.proxy_protocol import AF, PROTO, V2_CMD, V2_SIGNATURE, ProxyData

from shadowrelay.smtp.duplex import Duplex
from shadowrelay.wire.replies import Refused

_MOST_SASL = 12_288
"""RFC 4954 section 4: octets of a line in an authentication exchange, CRLF included."""

_MOST_V1 = 107
"""Octets of a version 1 header, CRLF included."""

_LOCAL = V2_SIGNATURE + b"\x20"
"""Before the family of addresses, which counts for nothing where a proxy speaks for itself."""

_V1 = re.compile(
    rb"PROXY (?:UNKNOWN(?: [ -~]*)?"
    rb"|TCP4(?: [0-9.]+){2}(?: (?:0|[1-9][0-9]{0,4})){2}"
    rb"|TCP6(?: [0-9A-Fa-f.:]+){2}(?: (?:0|[1-9][0-9]{0,4})){2})\r\n"
)


class CommandReader:
    """``next_command`` returns the next line that the library may see."""

    def __init__(self, duplex: Duplex, next_command: Callable[[], Awaitable[bytes]]) -> None:
        self._duplex = duplex
        self.readuntil = next_command

    async def readline(self) -> bytes:
        """A line of an authentication exchange. Raises Refused."""
        line = await self._duplex.read_line(_MOST_SASL)
        if line is None:
            raise Refused(500, "5.5.6", "Authentication exchange line is too long")
        if not line.endswith(b"\r\n") or b"\r" in line[:-2]:
            raise Refused(500, "5.5.2", "Line must end in CRLF")
        return line

    def close(self) -> None:
        """The library closes what it writes to when it is cancelled: ``Connection.close`` does."""


class HeaderReader:
    """Reads no further than a PROXY header goes. ``deadline`` is a loop time."""

    def __init__(self, duplex: Duplex, deadline: float) -> None:
        self._duplex = duplex
        self._deadline = deadline
        self._begun = b""  # up to what the family is of

    async def read(self, most: int) -> bytes:
        block = await self._duplex.read_block(most, self._deadline)
        at = len(_LOCAL) - len(self._begun)
        if 0 <= at < len(block) and self._begun + block[:at] == _LOCAL:
            block = block[:at] + b"\0" + block[at + 1 :]  # the library would want addresses of it
        self._begun += block[: at + 1]
        return block

    async def readexactly(self, octets: int) -> bytes:
        found = b""
        while len(found) < octets:
            found += await self.read(octets - len(found))
        return found

    async def readuntil(self, separator: bytes = b"\n") -> bytes:
        """Up to the end of the line, or to what is too long for a header."""
        found = b""
        while not found.endswith(separator) and len(found) < _MOST_V1:
            found += await self.read(1)
        return found

    def close(self) -> None:
        """See ``CommandReader``."""


def client_of(header: ProxyData) -> tuple[str, int] | None:
    """Address and port of the client behind a proxy; None where the proxy speaks for itself.

    Raises ValueError for what the library lets pass: other spellings of version 1, and what is not TCP.
    """
    if header.version == 1:
        if _V1.fullmatch(header.whole_raw) is None:
            raise ValueError("not as version 1 is written")
    elif header.command == V2_CMD.LOCAL:
        return None
    if header.protocol == PROTO.UNSPEC and header.family == AF.UNSPEC:
        return None
    source = header.src_addr
    if header.protocol != PROTO.STREAM or not isinstance(source, IPv4Address | IPv6Address):
        raise ValueError("not a TCP connection")
    if isinstance(source, IPv6Address) and source.ipv4_mapped is not None:  # of a socket that takes both
        source = ip_address(source.ipv4_mapped)
    return str(source), header.src_port or 0
