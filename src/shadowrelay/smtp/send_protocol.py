"""aiosmtplib's protocol, taught what a relay needs: pipelined and long replies, writing with backpressure.

The library reads one reply per command, drops what arrives with it, and refuses a reply over 32 KiB. Here
replies are counted: as many are kept as commands were written, in order, and whatever comes beyond is
unsolicited and dropped, so that it is never taken for the reply to a later command.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from collections import deque
from collections.abc import Callable
from typing import cast

from aiosmtplib.errors import SMTPReadTimeoutError, SMTPResponseException, SMTPServerDisconnected
from aiosmtplib.protocol import SMTPProtocol
from aiosmtplib.response import SMTPResponse
from aiosmtplib.typing import SMTPStatus

from shadowrelay.wire.replies import Reply, ReplyError, ReplyReader

LONGEST_REPLY = 256 * 1024
"""Octets. A long reply still means what its code says, so it is read to its end."""

_LINES = re.compile(rb"[^\n]*\n|[^\n]+")


class HopProtocol(SMTPProtocol):
    """One connection to a next hop. A session owns it: it is not for two tasks at once."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, lost: Callable[[SMTPProtocol], None] | None = None
    ) -> None:
        super().__init__(loop=loop, connection_lost_callback=lost)
        self._reader = ReplyReader(LONGEST_REPLY)
        self._replies: deque[Reply] = deque()
        self._outstanding = 1  # the greeting
        self._broken: Exception | None = None
        self._news = asyncio.Event()

    def data_received(self, data: bytes) -> None:
        try:
            # Line by line, so that good replies count although rubbish follows them in the same segment.
            for line in _LINES.findall(data):
                if not self._outstanding or self._broken:
                    break
                complete = self._reader.feed(line)
                self._replies.extend(complete)
                self._outstanding -= len(complete)
        except ReplyError as error:
            self._break(SMTPResponseException(SMTPStatus.invalid_response.value, error.said or str(error)))
            self.abort()
        self._news.set()

    def eof_received(self) -> bool:
        self._break(SMTPServerDisconnected("closed by the next hop"))
        return super().eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self._break(SMTPServerDisconnected(f"connection lost: {exc}" if exc else "connection lost"))
        super().connection_lost(exc)

    def expect(self, replies: int = 1) -> None:
        """Keep that many more replies: to be called before the commands are written that they answer."""
        self._outstanding += replies

    async def write_block(self, block: bytes, timeout: float) -> None:
        """Write, then wait until the transport wants more: what is unsent stays below a block.

        Raises TimeoutError when the next hop takes nothing for that many seconds.
        """
        self.write(block)
        if self._paused:
            async with asyncio.timeout(timeout):
                await self._drain_helper()

    async def reply(self, timeout: float | None) -> Reply:
        """The reply to the oldest command not yet answered; replies that came before an end are still read.

        Raises SMTPServerDisconnected, SMTPReadTimeoutError (the connection is aborted then: a late reply must
        not answer a later command), or SMTPResponseException with code -1 for what is no reply.
        """
        if self._replies:
            return self._replies.popleft()
        try:
            async with asyncio.timeout(timeout):
                while not self._replies:
                    if self._broken:
                        raise self._broken
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            self.abort()
            raise SMTPReadTimeoutError("no reply in time") from None
        return self._replies.popleft()

    async def execute_command(self, *args: bytes, timeout: float | None = None) -> SMTPResponse:
        """A command of the library's own, and its reply."""
        self.expect()
        return await super().execute_command(*args, timeout=timeout)

    async def start_tls(
        self, tls_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> SMTPResponse:
        """STARTTLS, and the handshake. What arrives behind the reply is dropped: nothing more is expected."""
        self.expect()
        return await super().start_tls(tls_context, server_hostname=server_hostname, timeout=timeout)

    async def execute_data_command(self, message: bytes, timeout: float | None = None) -> SMTPResponse:
        """Never: the library would rewrite the content, and take a lost reply for any other error."""
        raise NotImplementedError("content leaves by send_transaction")

    async def read_response(self, timeout: float | None = None) -> SMTPResponse:
        """As ``reply``, for the library's own commands."""
        reply = await self.reply(timeout)
        text = "\n".join(reply.lines)
        return SMTPResponse(reply.code, f"{reply.enhanced} {text}" if reply.enhanced else text)

    def early_reply(self) -> Reply | None:
        """A reply that came before it was due, if there is one; nothing is waited for."""
        return self._replies.popleft() if self._replies else None

    def abort(self) -> None:
        """Close at once; what is buffered is not sent."""
        if self.transport is not None:
            cast(asyncio.WriteTransport, self.transport).abort()

    def _break(self, error: Exception) -> None:
        self._broken = self._broken or error
        self._news.set()
