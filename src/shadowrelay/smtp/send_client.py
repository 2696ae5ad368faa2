"""aiosmtplib's client on our protocol: it connects, greets, starts TLS, logs in and quits.

The mail transaction is not the library's: it would not pipeline, and would rewrite the content. It is written
on the client's ``protocol`` (``send_transaction``). docs/dependencies.md says which parts of the library run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from aiosmtplib import SMTP
from aiosmtplib.errors import SMTPException, SMTPHeloError, SMTPResponseException
from aiosmtplib.response import SMTPResponse
from aiosmtplib.typing import SMTPStatus

from shadowrelay.smtp.send_hop import Awaited, ConnectionFailed, NextHopServer, SessionStep, one_line
from shadowrelay.smtp.send_protocol import HopProtocol
from shadowrelay.wire.replies import Reply

SESSION_ERRORS = (SMTPException, OSError, TimeoutError)
"""What talking to a next hop may raise."""


class HopClient(SMTP):
    """For one connection. Each of its commands raises what the library raises: see ``step``. ``awaits`` is
    kept up to date.
    """

    protocol: HopProtocol | None

    def __init__(self, server: NextHopServer, awaits: Awaited) -> None:
        # Without a local hostname the library would look one up in the DNS, and block the event loop for it.
        super().__init__(
            hostname=server.host,
            port=server.port,
            local_hostname=server.local_hostname,
            start_tls=False,
            timeout=server.timeouts.ehlo,
        )
        self.server = server
        self.awaits = awaits
        if server.login is not None:
            # One alone: of several, ``login`` goes on to the next one when the first is refused.
            self.AUTH_METHODS = (server.login.mechanism,)

    async def _create_connection(self, timeout: float | None) -> SMTPResponse:
        """Connect, and hear the greeting. The library's own hard-codes its protocol, and has one deadline for
        both. Raises ConnectionFailed.
        """
        loop = asyncio.get_running_loop()
        with self.step("connect"):
            async with asyncio.timeout(timeout):
                self.transport, self.protocol = await loop.create_connection(
                    lambda: HopProtocol(loop, self._on_connection_lost), self.server.host, self.server.port
                )
        with self.step("greeting"):
            greeting = await self.protocol.read_response(self.server.timeouts.greeting)
            if greeting.code != SMTPStatus.ready:
                raise SMTPResponseException(greeting.code, greeting.message)
        return greeting

    async def lhlo(self) -> SMTPResponse:
        """What EHLO is, in LMTP (RFC 2033 4.1)."""
        response = await self.execute_command(b"LHLO", self.server.local_hostname.encode("ascii"))
        if response.code != SMTPStatus.completed:
            raise SMTPHeloError(response.code, response.message)
        self.last_ehlo_response = response
        return response

    @contextmanager
    def step(self, name: SessionStep) -> Iterator[None]:
        """What the library raises meanwhile becomes ConnectionFailed, with the server's own words if any."""
        self.awaits.begin(name)
        try:
            yield
        except SMTPResponseException as error:
            if error.code < 0:
                raise ConnectionFailed(name, error.message) from error
            reply = Reply(error.code, None, tuple(error.message.split("\n")))
            raise ConnectionFailed(name, "refused", reply=one_line(reply)) from error
        except SESSION_ERRORS as error:
            raise ConnectionFailed(name, describe(error)) from error
        finally:
            self.awaits.end()


def describe(error: BaseException) -> str:
    """An error in one line, for the log and the queue list. Of what is no reply: the server's own text."""
    return no_reply(error) or str(error) or type(error).__name__


def no_reply(error: BaseException) -> str:
    """What the server said that is no reply; '' if the error is another one."""
    return error.message if isinstance(error, SMTPResponseException) else ""
