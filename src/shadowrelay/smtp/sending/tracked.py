"""What a session says beside mail to a hop that tracks our messages (docs/reference/protocol.md).

The hop has shown the certificate that is pinned for it, and we have shown ours.
"""

from __future__ import annotations

from shadowrelay.core.delivery.hop_shadows import Tracker
from shadowrelay.core.identifiers import DatabaseId, MessageId, ServerName
from shadowrelay.core.members.conversation import Answered, Greeting, Line, Query
from shadowrelay.core.values import dataclass
from shadowrelay.smtp.sending.connection import HopConnection
from shadowrelay.smtp.sending.hop import ConnectionFailed, one_line
from shadowrelay.wire import hops
from shadowrelay.wire.replies import Reply
from shadowrelay.wire.xshadow import Malformed

ANSWER = 30.0
"""Seconds that the answer to XSHADOW or XQDISCARD may take: a hop that needs longer is asked another time."""


@dataclass(slots=True)
class Tracks:
    """The hop at the other end: its name and database, as it introduced itself in this session.

    ``owes``: it took messages since it was last asked what it delivered.
    """

    name: ServerName
    database_id: DatabaseId
    owes: bool = False

    def tracker(self, connection: HopConnection) -> Tracker | None:
        """What the hop's last reply says of the message that it just took; None if it had no mark."""
        mark = connection.protocol.mark
        return None if mark is None else Tracker(self.name, self.database_id, mark)


def may_be_told(connection: HopConnection) -> bool:
    """Has the route the right, has the hop shown its certificate, and does it speak of tracked messages?"""
    return connection.peer is not None and hops.answered(connection.extensions)


def may_track(connection: HopConnection) -> bool:
    """Does the hop offer to track messages now?"""
    return hops.offered(connection.extensions)


def tracked_mail(command: bytes, message_id: MessageId) -> bytes:
    """MAIL that asks the hop to track this message of ours."""
    return _with(command, hops.MAIL_PARAMETER, hops.format_tracked(message_id))


def tracked_rcpt(command: bytes, number: int) -> bytes:
    """RCPT with our number of the recipient."""
    return _with(command, hops.RCPT_PARAMETER, hops.format_fork(number))


def _with(command: bytes, parameter: str, value: str) -> bytes:
    return command.removesuffix(b"\r\n") + f" {parameter}={value}\r\n".encode("ascii")


async def greet(connection: HopConnection, ours: Greeting) -> Greeting | None:
    """XSHADOW. None: the hop does not want to know us, so nothing is tracked. Raises ConnectionFailed."""
    with connection.client.step("xshadow"):
        connection.protocol.marked = True
        reply = await _said(connection, f"XSHADOW {hops.format_greeting(ours)}")
        if reply.code != 250:
            connection.protocol.marked = False
            return None
        try:
            theirs = hops.parse_greeting(reply.lines[-1])
        except Malformed as error:
            raise ConnectionFailed("xshadow", str(error)) from error
    if theirs.name != connection.peer:
        raise ConnectionFailed(
            "xshadow", f"it has the certificate of {connection.peer}, and is {theirs.name}"
        )
    return theirs


async def ask(connection: HopConnection, query: Query) -> tuple[Answered, tuple[str, ...]]:
    """XQDISCARD. Malformed lines are skipped, and returned beside the answer. Raises ConnectionFailed."""
    with connection.client.step("xqdiscard"):
        reply = await _said(connection, f"XQDISCARD {hops.format_query(query)}")
        mark = connection.protocol.mark
    if reply.code not in (250, 251):
        raise ConnectionFailed("xqdiscard", "refused", reply=one_line(reply))
    if mark is None:
        raise ConnectionFailed("xqdiscard", "the answer has no mark")
    lines: list[Line] = []
    bad: list[str] = []
    for text in reply.lines if reply.code == 250 else ():
        try:
            lines.append(hops.parse_line(text))
        except Malformed:
            bad.append(text)
    return Answered(tuple(lines), mark), tuple(bad)


async def _said(connection: HopConnection, command: str) -> Reply:
    connection.protocol.expect()
    connection.protocol.write(command.encode("ascii") + b"\r\n")
    return await connection.protocol.reply(ANSWER)
