"""The content of a message: how DATA wraps it, what it must look like, and its way into a sink.

Content is a sequence of lines that end in CRLF. A CR or LF that stands alone is refused wherever it is:
programs differ on whether it ends a line, and that difference smuggles messages. NUL and 8-bit octets are
content like any other, kept as they are.
"""

from __future__ import annotations

from collections.abc import Sequence

import structlog

from shadowrelay.smtp.duplex import BLOCK, Duplex
from shadowrelay.smtp.receiving.contract import Delayed, Hangup, Sink
from shadowrelay.wire.line_ends import all_paired, has_dot_line
from shadowrelay.wire.replies import Refused, Reply

log = structlog.get_logger(__name__)

BARE_LINE_END = Reply(550, "5.6.11", "Bare carriage return or line feed in the message")
LINE_TOO_LONG = Reply(554, "5.6.0", "Text line too long")
HEADER_TOO_BIG = Reply(552, "5.3.4", "Message header too big")
MESSAGE_TOO_BIG = Reply(552, "5.3.4", "Message size exceeds the limit")

LOCAL_ERROR = Reply(451, "4.3.0", "Local error in processing, try again later")

_END = b"\r\n.\r\n"


class DotDecoder:
    """Undoes the transparency of DATA (RFC 5321 section 4.5.2), block by block.

    Only CRLF.CRLF ends the content; the CRLF before the dot belongs to it.
    """

    __slots__ = ("_window",)

    def __init__(self) -> None:
        # The last two octets already given out, then those held back. The line end of the DATA command
        # stands for the former, so that a dot in the first line is seen as one.
        self._window = b"\r\n"

    def feed(self, data: bytes) -> tuple[bytes, bytes | None]:
        """Content octets, and what follows the end (None while the end is not reached)."""
        window = self._window + data
        # The end may have begun in the last four octets, so those wait for the next block.
        cut = max(2, len(window) - len(_END) + 1)
        if not has_dot_line(window):
            self._window = window[cut - 2 :]
            return window[2:cut], None
        end = window.find(_END)
        if end >= 0:
            return window[: end + 2].replace(b"\r\n.", b"\r\n")[2:], window[end + len(_END) :]
        self._window = window[cut - 2 :]
        return window[:cut].replace(b"\r\n.", b"\r\n")[2:], None


class ContentCheck:
    """Judges content as it passes, in blocks of any size; it looks at blocks, not at lines."""

    __slots__ = (
        "_after_cr",
        "_header",
        "_header_tail",
        "_line",
        "_most",
        "_most_header",
        "_most_line",
        "_pairs",
        "size",
    )

    def __init__(self, *, most: int, most_header: int, most_line: int | None, pairs: bool = True) -> None:
        self.size = 0
        self._pairs = pairs
        self._most, self._most_header, self._most_line = most, most_header, most_line
        self._after_cr = False  # the last octet was a CR
        self._line = 0  # octets of the current line so far
        self._header = 0  # octets of the header so far
        self._header_tail: bytes | None = b"\r\n"  # its last octets, None once it is over

    def feed(self, data: bytes) -> Reply | None:
        """The reply that refuses the content, None as long as nothing is wrong.

        Of several faults it is the first in the content, however the blocks are cut: a block with a fault is
        halved.
        """
        if not data:
            return None
        before = self.size, self._after_cr, self._line, self._header, self._header_tail
        fault = self._judge(data)
        if fault is None or len(data) == 1:
            return fault
        self.size, self._after_cr, self._line, self._header, self._header_tail = before
        half = len(data) // 2
        return self.feed(data[:half]) or self.feed(data[half:]) or fault

    def _judge(self, data: bytes) -> Reply | None:
        self.size += len(data)
        if self.size > self._most:
            return MESSAGE_TOO_BIG
        if self._header_tail is not None and not self._header_fits(data):
            return HEADER_TOO_BIG
        if self._pairs and not self._line_ends_are_pairs(data):
            return BARE_LINE_END
        if self._most_line is not None and not self._lines_fit(data, self._most_line):
            return LINE_TOO_LONG
        return None

    def end(self) -> Reply | None:
        """Call at the end of the content. The reply, if its last octet is a CR."""
        return BARE_LINE_END if self._after_cr else None

    def _header_fits(self, data: bytes) -> bool:
        held = self._header_tail or b""
        tail = held + data[: self._most_header + 4]
        end = tail.find(b"\r\n\r\n")
        self._header += len(data) if end < 0 else end + 4 - len(held)
        self._header_tail = tail[-3:] if end < 0 else None
        return self._header <= self._most_header

    def _line_ends_are_pairs(self, data: bytes) -> bool:
        if self._after_cr:
            if not data.startswith(b"\n"):
                return False
            data = data[1:]
        self._after_cr = data.endswith(b"\r")
        return all_paired(data[:-1] if self._after_cr else data)

    def _lines_fit(self, data: bytes, most: int) -> bool:
        begin, end = -self._line, len(data)  # where the current line began, seen from this block
        while begin + most < end:
            # The last line end within reach: every line before it is shorter still.
            newline = data.rfind(b"\n", begin if begin > 0 else 0, begin + most)
            if newline < 0:
                return False
            begin = newline + 1
        newline = data.rfind(b"\n", begin if begin > 0 else 0)
        self._line = end - (newline + 1 if newline >= 0 else begin)
        return True


class Body:
    """One message's content: checked, then pushed into the sink block by block.

    Once it is refused, the sink is aborted and the rest is thrown away: the client reads no reply before it
    has sent everything.
    """

    def __init__(self, sink: Sink, check: ContentCheck) -> None:
        self._sink = sink
        self._check = check
        self._over = False
        self.refusal: Reply | None = None

    async def write(self, data: bytes) -> None:
        if self.refusal is not None or not data:
            return
        self.refusal = self._check.feed(data)
        if self.refusal is None:
            try:
                await self._sink.write(data)
            except Refused as refused:
                self.refusal = refused.reply
            except Exception:
                log.exception("sink_write_failed")
                self.refusal = LOCAL_ERROR
        if self.refusal is not None:
            await self.abort()

    async def end(self) -> Reply | None:
        """Call when the client has sent everything. The reply, if the message is refused."""
        if self.refusal is None:
            self.refusal = self._check.end()
        if self.refusal is not None:
            await self.abort()
        return self.refusal

    async def finish(self) -> Sequence[Reply] | Hangup | Delayed:
        """Hand over a message that was not refused.

        It runs in the session's own task, which nothing cancels. A shielded task would take two more turns of
        the event loop, for which a sender waits.
        """
        self._over = True
        try:
            return await self._sink.finish()
        except Exception:
            log.exception("sink_finish_failed")
            return Hangup()

    async def abort(self) -> None:
        """Keep nothing; does nothing after the end."""
        if self._over:
            return
        self._over = True
        try:
            await self._sink.abort()
        except Exception:
            log.exception("sink_abort_failed")


async def read_data(duplex: Duplex, body: Body, deadline: float) -> None:
    """Read up to CRLF.CRLF. Raises Interrupted when that never comes."""
    decoder = DotDecoder()
    rest = None
    while rest is None:
        content, rest = decoder.feed(await duplex.read_block(BLOCK, deadline))
        await body.write(content)
    duplex.unread(rest)


async def read_chunk(duplex: Duplex, octets: int, body: Body | None, deadline: float) -> None:
    """Read exactly ``octets``; without a body they are thrown away."""
    while octets:
        block = await duplex.read_block(min(octets, BLOCK), deadline)
        octets -= len(block)
        if body is not None:
            await body.write(block)
