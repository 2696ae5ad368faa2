"""A session with another member, as its client: pipelined, bodies by BDAT, exact octets."""

from __future__ import annotations

import asyncio
import contextlib
import ssl

from shadowrelay.core.identifiers import Mark, ServerName
from shadowrelay.core.members.conversation import Answered, Greeting, Line, Query
from shadowrelay.core.operating import Act, ActAnswer
from shadowrelay.core.values import dataclass, replace
from shadowrelay.core.workers import node_of
from shadowrelay.smtp.duplex import BLOCK, Duplex, Interrupted, Why
from shadowrelay.wire import xoperate, xqdiscard, xshadow
from shadowrelay.wire.esmtp import extensions
from shadowrelay.wire.replies import Reply, ReplyError, ReplyReader

NO_ANSWER = "no answer in time"

_MOST_REPLY = 1 << 20  # 200 lines of 4,096 octets


class MemberFailed(Exception):
    """The session failed, and is of no more use: the step, and the error."""

    def __init__(self, step: str, error: str) -> None:
        super().__init__(f"{step}: {error}")
        self.step = step
        self.error = error


class MemberGone(MemberFailed):
    """The connection was closed or reset. The member itself may be well."""


@dataclass(frozen=True, slots=True)
class MemberAddress:
    """Where a member's peer connector is, and the TLS that shows who we are (None in a secured network)."""

    name: ServerName
    host: str
    port: int
    tls: ssl.SSLContext | None

    @property
    def at(self) -> tuple[str, int]:
        return self.host, self.port


class MemberConnection(asyncio.Protocol):
    """One session, made by ``dial``. One task at a time uses it; a failure closes it and raises MemberFailed.

    ``timeout``: seconds that a reply may take, or that the other end may read nothing.
    """

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self._transport: asyncio.Transport
        self._duplex: Duplex
        self._error = "the connection was closed"
        self._parser = ReplyReader(_MOST_REPLY)
        self._replies: list[Reply] = []
        self.address: MemberAddress | None = None  # where it was dialled
        self.greeting: Greeting | None = None
        self.version = xshadow.VERSION  # the latest one that both ends speak

    # Called by the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]
        self._duplex = Duplex(self._transport, self._timeout, None)

    def data_received(self, data: bytes) -> None:
        self._duplex.received(data)

    def eof_received(self) -> bool:
        self._duplex.ended()
        return self._transport.get_extra_info("ssl_object") is None  # TLS has no connection open one way

    def connection_lost(self, error: Exception | None) -> None:
        if error is not None:
            self._error = _said(error)
        self._duplex.lost()

    def pause_writing(self) -> None:
        self._duplex.unwritable()

    def resume_writing(self) -> None:
        self._duplex.writable()

    # The session

    @classmethod
    async def dial(cls, address: MemberAddress, own_name: ServerName, timeout: float) -> MemberConnection:
        """Connect, up to EHLO. ``timeout``: seconds that each step may take."""
        step = "connect"
        try:
            async with asyncio.timeout(timeout):
                _, session = await asyncio.get_running_loop().create_connection(
                    lambda: cls(timeout),
                    address.host,
                    address.port,
                    ssl=address.tls,
                    server_hostname=node_of(address.name) if address.tls else None,
                )
        except (OSError, TimeoutError) as error:
            raise MemberFailed(step, _said(error)) from error
        session.address = address
        await session._expect("greeting", 220)
        session.write(f"EHLO {own_name}\r\n".encode())
        offered = extensions(await session._expect("ehlo", 250))
        if not (versions := xshadow.offered(offered)):
            session.abort()
            raise MemberFailed("ehlo", "the other end does not talk to us as to a member")
        session.version = max(versions)
        return session

    @property
    def lost(self) -> bool:
        """Closed at our end; or closed at the other end, and all that it said is read."""
        return self._transport.is_closing() or (self._duplex.over and not self._duplex.input)

    @property
    def closed(self) -> bool:
        """Closed at either end, even if something is left to read."""
        return self._transport.is_closing() or self._duplex.over

    @property
    def usable(self) -> bool:
        """Whether an exchange may begin. Unasked words of the other end can only mean that it leaves."""
        return not (self._replies or self._duplex.input or self._duplex.over or self._transport.is_closing())

    async def greet(self, ours: Greeting) -> Greeting:
        """XSHADOW."""
        ours = replace(ours, version=self.version)
        self.write(f"XSHADOW {xshadow.format_greeting(ours)}\r\n".encode())
        reply = await self._expect("xshadow", 250)
        try:
            text, _ = marked(reply)
            self.greeting = xshadow.parse_greeting(text[-1])
        except xshadow.Malformed as error:
            self.abort()
            raise MemberFailed("xshadow", str(error)) from error
        return self.greeting

    async def ask(self, query: Query) -> tuple[Answered, tuple[str, ...]]:
        """XQDISCARD. Malformed lines are skipped, and returned beside the answer."""
        self.write(f"XQDISCARD {xqdiscard.format_query(query)}\r\n".encode())
        reply = await self._expect("xqdiscard", 250, 251)
        bad: list[str] = []
        lines: list[Line] = []
        try:
            texts, mark = marked(reply)
        except xshadow.Malformed as error:
            self.abort()
            raise MemberFailed("xqdiscard", str(error)) from error
        seen: ServerName | None = None
        for text in texts if reply.code == 250 else ():
            try:
                if (name := xqdiscard.parse_seen(text)) is None:
                    lines.append(xqdiscard.parse_line(text))
                else:
                    seen = name
            except xshadow.Malformed:
                bad.append(text)
        return Answered(tuple(lines), mark, seen), tuple(bad)

    async def operate(self, act: Act) -> ActAnswer:
        """XOPERATE. A refusal is an answer: asking again does not help."""
        if self.version < 3:
            return ActAnswer({}, "it runs a version that knows no resubmit requests")
        try:
            self.write(f"XOPERATE {xoperate.format_act(act)}\r\n".encode())
        except xoperate.TooLong as error:
            return ActAnswer({}, str(error))
        reply = await self.reply("xoperate")
        try:
            texts, _ = marked(reply)
            if reply.code == 250:
                return xoperate.parse_answer(texts)
        except xshadow.Malformed as error:
            self.abort()
            raise MemberFailed("xoperate", str(error)) from error
        if reply.permanent and reply.code == 550:
            return ActAnswer({}, " ".join(texts))
        self.abort()
        raise MemberFailed("xoperate", str(reply))

    async def close(self) -> None:
        """Say QUIT if the session is usable, and close."""
        if self.usable:
            with contextlib.suppress(MemberFailed):
                self.write(b"QUIT\r\n")
                await self._expect("quit", 221)
        self.abort()

    def abort(self) -> None:
        """Close at once."""
        if not self._transport.is_closing():
            self._transport.abort()

    def write(self, data: bytes) -> None:
        """Send; see ``drain``."""
        # After a reset asyncio's own loop drops the octets, and uvloop raises RuntimeError where there is no
        # TLS. The next reply tells what became of the session.
        if not self._transport.is_closing():
            self._transport.write(data)

    async def drain(self, step: str) -> None:
        """Wait until the transport wants more; not at all while it holds little."""
        try:
            await self._duplex.flush()
        except Interrupted:
            self.abort()
            raise MemberFailed(step, NO_ANSWER) from None
        except asyncio.CancelledError:
            self.abort()
            raise
        if self.lost:
            self.abort()
            raise MemberGone(step, self._error)

    async def reply(self, step: str) -> Reply:
        """The next reply."""
        if self._replies:
            return self._replies.pop(0)
        deadline = asyncio.get_running_loop().time() + self._timeout
        try:
            while not self._replies:
                self._replies += self._parser.feed(await self._duplex.read_block(BLOCK, deadline))
        except Interrupted as interrupted:
            self.abort()
            if interrupted.why is Why.TIMEOUT:
                raise MemberFailed(step, NO_ANSWER) from None
            raise MemberGone(step, self._error) from None
        except ReplyError as error:
            self.abort()
            raise MemberFailed(step, str(error)) from error
        except asyncio.CancelledError:
            self.abort()
            raise
        return self._replies.pop(0)

    async def _expect(self, step: str, *codes: int) -> Reply:
        reply = await self.reply(step)
        if reply.code not in codes:
            self.abort()
            raise MemberFailed(step, str(reply))
        return reply


def marked(reply: Reply) -> tuple[tuple[str, ...], Mark]:
    """The lines of a reply, and the mark that the last one ends with."""
    *before, last = reply.lines
    text, _, mark = last.rpartition(" ")
    return (*before, text), xshadow.parse_mark(mark)


def _said(error: BaseException) -> str:
    return NO_ANSWER if isinstance(error, TimeoutError) else str(error) or type(error).__name__
