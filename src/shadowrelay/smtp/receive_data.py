"""The content of a message on its way from DATA or BDAT into a sink."""

from __future__ import annotations

from collections.abc import Sequence

import structlog

from shadowrelay.smtp.duplex import BLOCK, Duplex
from shadowrelay.smtp.receive import Hangup, Sink
from shadowrelay.smtp.receive_content import ContentCheck, DotDecoder
from shadowrelay.wire.replies import Refused, Reply

log = structlog.get_logger(__name__)

LOCAL_ERROR = Reply(451, "4.3.0", "Local error in processing, try again later")


class Body:
    """One message's content: checked, then pushed into the sink block by block.

    Once it is refused, the sink is aborted and the rest is swallowed: the client has to be heard out
    before it listens to a reply.
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
        """The client has sent everything: the reply, if the message is refused."""
        if self.refusal is None:
            self.refusal = self._check.end()
        if self.refusal is not None:
            await self.abort()
        return self.refusal

    async def finish(self) -> Sequence[Reply] | Hangup:
        """Hand over a message that was not refused.

        It runs in the session's own task, which nothing cancels: a task of its own to shield it would be two
        turns of the event loop more, for which a sender waits.
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
