"""A session's two directions: buffered input with deadlines, buffered output.

Replies wait in a buffer until the client has nothing more to be read, so the replies to a batch of
pipelined commands (RFC 2920) leave in one write.
"""

from __future__ import annotations

import asyncio
import contextlib
from enum import Enum

BLOCK = 65_536
"""Octets taken from the transport at once."""


class Why(Enum):
    """Why a session cannot go on."""

    GONE = "gone"
    TIMEOUT = "timeout"
    STOPPING = "stopping"


class Interrupted(Exception):
    """Reading or writing has ended for good."""

    def __init__(self, why: Why) -> None:
        super().__init__(why.value)
        self.why = why


class Duplex:
    """Reads lines and blocks, writes replies. Only one task uses it; ``interrupt`` may come from others.

    ``inactivity`` is in seconds; ``until`` is the loop time at which the connection has to end.
    """

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        inactivity: float,
        until: float | None,
    ) -> None:
        self._reader, self._writer = reader, writer
        self._inactivity, self._until = inactivity, until
        self._loop = asyncio.get_running_loop()
        self._input = bytearray()
        self._output = bytearray()
        self._waiting: asyncio.Timeout | None = None
        self._interrupted: Why | None = None

    def interrupt(self, why: Why) -> None:
        """End the wait for input, now or when it begins."""
        self._interrupted = why
        if self._waiting is not None:
            self._waiting.reschedule(self._loop.time())

    @property
    def unsent(self) -> int:
        """Octets written since the last flush."""
        return len(self._output)

    async def read_line(self, most: int) -> bytes | None:
        """A line with its line end (which may be a bare LF), or None for one longer than ``most``.

        The whole line has to arrive within the inactivity timeout, however it drips.
        """
        deadline = self._loop.time() + self._inactivity
        searched, too_long = 0, False
        while (end := self._input.find(b"\n", searched)) < 0:
            if len(self._input) > most:
                self._input.clear()
                too_long = True
            searched = len(self._input)
            await self._fill(deadline)
        line = bytes(self._input[: end + 1])
        del self._input[: end + 1]
        return None if too_long or len(line) > most else line

    async def read_block(self, most: int, deadline: float) -> bytes:
        """Between one and ``most`` octets, as soon as there are any."""
        if not self._input:
            await self._fill(min(deadline, self._loop.time() + self._inactivity))
        block = bytes(self._input[:most])
        del self._input[:most]
        return block

    def unread(self, data: bytes) -> None:
        """Put back what belongs to the next command."""
        self._input[:0] = data

    async def _fill(self, deadline: float) -> None:
        await self.flush()
        if self._until is not None:
            deadline = min(deadline, self._until)
        if self._interrupted is not None:
            raise Interrupted(self._interrupted)
        if self._loop.time() >= deadline:
            raise Interrupted(Why.TIMEOUT)
        try:
            async with asyncio.timeout_at(deadline) as self._waiting:
                data = await self._reader.read(BLOCK)
        except OSError:  # TimeoutError and SSLError are OSErrors
            expired = self._waiting is not None and self._waiting.expired()
            raise Interrupted((self._interrupted or Why.TIMEOUT) if expired else Why.GONE) from None
        finally:
            self._waiting = None
        if not data:
            raise Interrupted(Why.GONE)
        self._input += data

    def write(self, data: bytes) -> None:
        """Add to what leaves with the next flush."""
        self._output += data

    async def flush(self) -> None:
        """Send all that was written. A client that does not read is given the inactivity timeout."""
        if self._output:
            self._writer.write(bytes(self._output))
            self._output.clear()
        if not self._writer.transport.get_write_buffer_size():
            return
        try:
            async with asyncio.timeout(self._inactivity):
                await self._writer.drain()
        except OSError:
            raise Interrupted(Why.GONE) from None

    def forget_input(self) -> bool:
        """Throw away what was received; True when there was something."""
        buffered: bytearray = self._reader._buffer  # type: ignore[attr-defined]
        found = bool(self._input or buffered)
        self._input.clear()
        buffered.clear()
        return found

    async def linger(self, seconds: float) -> None:
        """Close our direction and read on for a while.

        Closing a socket with unread octets resets it, and the client might never see our last reply.
        """
        with contextlib.suppress(OSError, Interrupted):
            await self.flush()
            if self._writer.is_closing() or not self._writer.can_write_eof():
                return
            self._writer.write_eof()
            async with asyncio.timeout(seconds):
                while await self._reader.read(BLOCK):
                    pass
