"""A session's two directions: buffered input with deadlines, buffered output.

Replies wait in a buffer until no command is left to read, so the replies to a batch of pipelined commands
(RFC 2920) leave in one write.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Callable
from enum import Enum

BLOCK = 65_536
"""Octets taken at once."""

LINGER = 1.0
"""Seconds for a client that we cut off to read the reason, and for any other to take its last reply."""

MOST_WAITING = BLOCK
"""Past this many unread octets the transport stops reading."""


class Why(Enum):
    """Why a session cannot go on."""

    GONE = "gone"
    TIMEOUT = "timeout"
    STOPPING = "stopping"
    OVER = "over"  # the session is complete


class Interrupted(BaseException):
    """Reading or writing has ended for good.

    A BaseException: aiosmtpd's command loop would answer an Exception, and go on.
    """

    def __init__(self, why: Why) -> None:
        super().__init__(why.value)
        self.why = why


class Duplex:
    """Reads lines and blocks, writes replies. Only one task uses it; ``interrupt`` may come from others.

    The protocol hands over what arrives (``received``, ``ended``). The transport is paused while more than a
    block waits. ``inactivity`` is in seconds; ``until`` is the loop time at which the connection has to end.
    """

    def __init__(self, transport: asyncio.Transport, inactivity: float, until: float | None) -> None:
        self._transport = transport
        self._inactivity, self._until = inactivity, until
        self._loop = asyncio.get_running_loop()
        self.input = bytearray()  # what arrived and was not read
        self.output = bytearray()  # what was written since the last flush
        self.over = self._paused = self._blocked = False  # over: nothing more will arrive
        self._came = False  # something arrived since the reader looked
        self._waiting: asyncio.Future[None] | None = None
        self._writable: asyncio.Future[None] | None = None
        self._deadline = math.inf
        self._alarm: asyncio.TimerHandle | None = None
        self._interrupted: Why | None = None
        self.told: Callable[[], None] | None = None  # called when the input ends, or is interrupted

    # Called by the protocol

    def received(self, data: bytes) -> None:
        self.input += data
        self._came = True
        if not self._paused and len(self.input) > MOST_WAITING:
            self._paused = True
            self._transport.pause_reading()
        if (waiting := self._waiting) is not None and not waiting.done():
            waiting.set_result(None)

    def ended(self) -> None:
        """Nothing more will arrive; what did arrive is still read."""
        self.over = True
        _wake(self._waiting)
        if self.told is not None:
            self.told()

    def lost(self) -> None:
        """The connection is gone in both directions."""
        self.ended()
        self.writable()
        if self._alarm is not None:
            self._alarm.cancel()

    def unwritable(self) -> None:
        """The client takes less than we write."""
        self._blocked = True

    def writable(self) -> None:
        self._blocked = False
        _wake(self._writable)

    def secured(self, transport: asyncio.Transport) -> None:
        """TLS is active: from now on this is the transport."""
        self._transport = transport

    def interrupt(self, why: Why) -> None:
        """End the current or the next wait: for input, or for a client that does not read."""
        self._interrupted = why
        _wake(self._waiting)
        _wake(self._writable)
        if self.told is not None:
            self.told()

    @property
    def interrupted(self) -> bool:
        """Whether ``interrupt`` ended the reading."""
        return self._interrupted is not None

    @property
    def left(self) -> float | None:
        """Seconds until the connection has to end; None: it need not."""
        return None if self._until is None else max(0.0, self._until - self._loop.time())

    async def read_line(self, most: int) -> bytes | None:
        """A line with its line end (which may be a bare LF), or None for one longer than ``most``.

        The whole line must arrive within the inactivity timeout, even if it drips.
        """
        too_long, searched, deadline = False, 0, 0.0
        while (end := self.input.find(b"\n", searched)) < 0:
            deadline = deadline or self._loop.time() + self._inactivity
            searched = len(self.input)
            if searched > most:
                self.input.clear()
                too_long, searched = True, 0
            await self._fill(deadline)
        line = bytes(self.input[: end + 1])
        del self.input[: end + 1]
        return None if too_long or end >= most else line

    async def read_block(self, most: int, deadline: float) -> bytes:
        """Between one and ``most`` octets, as soon as there are any."""
        if not self.input:
            await self._fill(min(deadline, self._loop.time() + self._inactivity))
        if len(self.input) <= most:
            block = bytes(self.input)
            self.input.clear()
        else:
            block = bytes(self.input[:most])
            del self.input[:most]
        # Resume now, not at the next wait: the end of an idle connection must be noticed.
        if self._paused and len(self.input) <= MOST_WAITING:
            self._resume()
        return block

    def unread(self, data: bytes) -> None:
        """Put back what belongs to the next command."""
        self.input[:0] = data

    async def _fill(self, deadline: float) -> None:
        self._came = False
        if self.output or self._blocked:
            await self.flush()
        if self._until is not None and self._until < deadline:
            deadline = self._until
        if self._paused and not self._came:
            self._resume()
        while not self._came:
            if self._interrupted is not None:
                raise Interrupted(self._interrupted)
            if self.over:
                raise Interrupted(Why.GONE)
            if self._loop.time() >= deadline:
                raise Interrupted(Why.TIMEOUT)
            self._deadline = deadline
            if self._alarm is None or self._alarm.when() > deadline:
                self._ring_at(deadline)
            self._waiting = waiting = self._loop.create_future()
            try:
                await waiting
            finally:
                self._waiting = None

    def _resume(self) -> None:
        """Let more arrive."""
        self._paused = False
        self._transport.resume_reading()

    def _ring_at(self, deadline: float) -> None:
        """Wake the reader at that time. One timer serves many waits: it may ring early, never late."""
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm = self._loop.call_at(deadline, self._ring)

    def _ring(self) -> None:
        self._alarm = None
        if self._waiting is None:
            return
        if self._loop.time() >= self._deadline:
            _wake(self._waiting)
        else:
            self._ring_at(self._deadline)

    def write(self, data: bytes) -> None:
        """Add to what leaves with the next flush."""
        self.output += data

    async def flush(self, patience: float | None = None) -> None:
        """Send all that was written. ``patience``: seconds for a client that does not read (None: the
        inactivity timeout).
        """
        if self.output:
            # On a closing transport uvloop raises RuntimeError; asyncio's own loop drops the octets.
            if self._transport.is_closing():
                raise Interrupted(Why.GONE)
            self._transport.write(bytes(self.output))
            self.output.clear()
        if not self._blocked:
            return
        if self._interrupted is None:
            self._writable = self._loop.create_future()
            try:
                async with asyncio.timeout(self._inactivity if patience is None else patience):
                    await self._writable
            except TimeoutError:
                raise Interrupted(Why.GONE) from None
            finally:
                self._writable = None
        if self._blocked and self._interrupted is not None:
            raise Interrupted(self._interrupted)

    def forget_input(self) -> bool:
        """Throw away unread input; True when there was some."""
        found = bool(self.input)
        self.input.clear()
        return found

    async def linger(self, seconds: float) -> None:
        """Close our direction and read on for a while.

        Closing a socket with unread octets resets it, and the client might never see our last reply.
        """
        self._interrupted = None
        with contextlib.suppress(OSError, Interrupted):
            await self.flush(seconds)
            if self._transport.is_closing() or not self._transport.can_write_eof():
                return
            self._transport.write_eof()
            deadline = self._loop.time() + seconds
            self._until = None
            while True:
                await self._fill(deadline)
                self.input.clear()


def _wake(waiting: asyncio.Future[None] | None) -> None:
    if waiting is not None and not waiting.done():
        waiting.set_result(None)
