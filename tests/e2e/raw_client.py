"""A client that sends exactly the octets it is given, in the pieces it is told: for odd messages, floods and
strangers. Whoever sends ordinary mail takes smtplib.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager

DEADLINE = 60.0  # seconds for one reply


class RawClient:
    """An SMTP client over a socket. Replies are read line by line; nothing is checked."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        connection.settimeout(DEADLINE)
        self._input = connection.makefile("rb")

    def send(self, *pieces: bytes) -> None:
        for piece in pieces:
            self.socket.sendall(piece)

    def reply(self) -> str:
        """The last line of the next reply, '' at the end of the connection."""
        line = self._input.readline()
        while line[3:4] == b"-":
            line = self._input.readline()
        return line.decode("ascii").rstrip("\r\n")

    def say(self, *commands: str) -> str:
        """Send commands at once; the reply to the last one."""
        self.send("".join(f"{command}\r\n" for command in commands).encode())
        return [self.reply() for _ in commands][-1]

    def begin(self, *recipients: str, sender: str = "sender@outside.test", parameters: str = "") -> str:
        """MAIL and RCPT: the reply to the last RCPT."""
        mail = f"MAIL FROM:<{sender}>{parameters}"
        return self.say(mail, *(f"RCPT TO:<{recipient}>" for recipient in recipients))

    def data(self, content: bytes, *, piece: int = 1 << 20) -> str:
        """The content by DATA, in segments of that size; it has to end in CRLF."""
        assert self.say("DATA").startswith("354 ")
        stuffed = (b"\r\n" + content).replace(b"\r\n.", b"\r\n..")[2:] + b".\r\n"
        self.send(*(stuffed[at : at + piece] for at in range(0, len(stuffed), piece)))
        return self.reply()

    def bdat(self, content: bytes, *, piece: int = 1 << 20) -> str:
        """The content in chunks of that size: the reply to the last one."""
        chunks = [content[at : at + piece] for at in range(0, len(content), piece)] or [b""]
        for chunk in chunks[:-1]:
            self.send(b"BDAT %d\r\n" % len(chunk), chunk)
        self.send(b"BDAT %d LAST\r\n" % len(chunks[-1]), chunks[-1])
        return [self.reply() for _ in chunks][-1]


@contextmanager
def connected(address: tuple[str, int]) -> Iterator[RawClient]:
    """A client that was greeted and said EHLO."""
    with socket.create_connection(address, timeout=DEADLINE) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        client = RawClient(connection)
        assert client.reply().startswith("220 ")
        assert client.say("EHLO client.lab.test").startswith("250 ")
        yield client
