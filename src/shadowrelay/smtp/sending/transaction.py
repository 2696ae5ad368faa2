"""One mail transaction: MAIL, RCPT, DATA, content, and what the replies mean for each recipient."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import field
from typing import Literal, NoReturn

from shadowrelay.core.delivery.settling import Ending
from shadowrelay.core.values import dataclass, replace
from shadowrelay.smtp.sending.connection import SESSION_ERRORS, HopConnection, describe, no_reply
from shadowrelay.smtp.sending.hop import (
    ConnectionFailed,
    NextHopServer,
    RecipientResult,
    final,
    in_doubt,
    lost,
    one_line,
    refused,
    unread,
)
from shadowrelay.smtp.sending.message import BLOCK, BareLineEnding, ContentSource, DotStuffer, blocks
from shadowrelay.wire.replies import Reply

SENT_WITH_THE_DOT = 16 * 1024
"""Up to this many octets of content share a write with the final dot. More is written before it, so that a
session lost in the middle of them is known to be lost before the dot."""


class Withdrawn(Exception):
    """The message was withdrawn before its content left; the next hop keeps nothing."""


class _Over(Exception):
    """Every recipient has its result, and the session is closed."""


@dataclass(slots=True, kw_only=True)
class DeliveryTransaction:
    """For one use. When ``run`` returns, ``results`` holds every recipient.

    ``heard`` is told what an LMTP server answered for one recipient, while others wait for their answer.
    ``needs_reset``: the server may still remember a sender and recipients. ``took_some``: it has accepted a
    recipient. ``overflow``: see DeliveryResult.
    """

    connection: HopConnection
    server: NextHopServer
    reused: bool
    mail: bytes
    rcpts: Sequence[tuple[int, bytes]]
    wanted: Callable[[], Awaitable[bool]] | None = None
    heard: Callable[[RecipientResult], Awaitable[None]] | None = None
    results: dict[int, RecipientResult] = field(default_factory=dict)
    overflow: list[int] = field(default_factory=list)
    needs_reset: bool = False
    took_some: bool = False

    @property
    def _open(self) -> list[int]:
        """Recipients without result; once all RCPTs are answered, those that the hop accepted."""
        return [number for number, _ in self.rcpts if number not in self.results]

    async def run(self, content: ContentSource) -> None:
        """Raises ConnectionFailed when the session ends before MAIL is answered, or a used one by 421 before
        the content; Withdrawn; and what ``content`` raises.

        Whatever is raised, cancellation included, the connection is aborted; if that is before the final
        dot, the next hop keeps nothing (RFC 5321 4.1.1.4).
        """
        try:
            if "PIPELINING" in self.connection.extensions:
                await self._pipelined(content)
            else:
                await self._in_turn(content)
        except _Over:
            self.connection.protocol.abort()
        except BaseException:
            self.connection.protocol.abort()
            raise

    async def _pipelined(self, content: ContentSource) -> None:
        numbers, rcpts = zip(*self.rcpts, strict=True)
        await self._mail(b"".join((self.mail, *rcpts, b"DATA\r\n")), replies=len(rcpts) + 2)
        for number in numbers:
            await self._rcpt(number)
        await self._data(content)

    async def _in_turn(self, content: ContentSource) -> None:
        await self._mail(self.mail, replies=1)
        for number in self._open:
            self._say(dict(self.rcpts)[number], "RCPT")
            await self._rcpt(number)
        self.needs_reset = True
        if self._open:
            self._say(b"DATA\r\n", "DATA")
            await self._data(content)

    async def _mail(self, commands: bytes, *, replies: int) -> None:
        protocol = self.connection.protocol
        try:
            protocol.expect(replies)
            protocol.write(commands)
            self.connection.client.awaits.begin("mail")
            reply = await protocol.reply(self.server.timeouts.mail)
        except SESSION_ERRORS as error:
            raise ConnectionFailed("mail", describe(error), reused=self.reused) from error
        if reply.code == 421 and self.reused:
            # The server had given up waiting for us: that says nothing about this message.
            raise ConnectionFailed("mail", "session closed", reply=one_line(reply), reused=True)
        if reply.code == 421:
            self._give_up(lambda number: refused(number, reply))
        if not reply.positive:
            self._settle(lambda number: refused(number, reply))

    async def _rcpt(self, number: int) -> None:
        reply = await self._hear("rcpt", self.server.timeouts.rcpt)
        if number in self.results:  # after a refused MAIL, RCPT only repeats it
            return
        if reply.positive:
            self.took_some = True
            return
        result = refused(number, reply)
        if _past_the_limit(reply, others=self.took_some):
            result = replace(result, ending=Ending.DEFERRED)
            self.overflow.append(number)
        self.results[number] = result

    async def _data(self, content: ContentSource) -> None:
        reply = await self._hear("data", self.server.timeouts.data)
        if reply.code != 354:
            self._settle(lambda number: refused(number, reply))
            self.needs_reset = True
            if not (reply.transient or reply.permanent):
                raise _Over  # the two sides disagree about where they are
        elif numbers := self._open:
            await self._content(content, numbers)
        elif self.server.protocol == "lmtp":
            raise _Over  # no recipient, hence no reply to wait for (RFC 2033 4.2)
        else:
            # Pipelined DATA was taken although no RCPT was: end it with nothing in it (RFC 2920 3.1).
            self._say(b".\r\n", "DATA")
            await self._hear("data", self.server.timeouts.final_dot)
            self.needs_reset = True

    async def _content(self, content: ContentSource, numbers: Sequence[int]) -> None:
        if self.wanted is not None and not await self.wanted():
            raise Withdrawn
        stuffer, pending = DotStuffer(), b""
        try:
            if isinstance(content, bytes) and len(content) <= BLOCK:
                pending = stuffer.feed(content)
            else:
                async with aclosing(blocks(content)) as pieces:
                    async for block in pieces:
                        await self._write(pending)
                        pending = stuffer.feed(block)
            dot = stuffer.end()
        except BareLineEnding:
            text = "550 5.6.11 Bare carriage return or line feed in the message"
            self._give_up(lambda number: RecipientResult(number, Ending.REJECTED, text, remote=False))
        if len(pending) > SENT_WITH_THE_DOT:
            await self._write(pending)
            pending = b""
        self._leave_if_it_spoke()
        answers = [[number] for number in numbers] if self.server.protocol == "lmtp" else [numbers]
        self._say(pending + dot, "content", replies=len(answers))
        # From here on the next hop may have the message.
        for answered in answers:
            await self._final(answered)
            if self.heard is not None and answered is not answers[-1]:
                await self.heard(self.results[answered[0]])

    async def _write(self, block: bytes) -> None:
        self._leave_if_it_spoke()
        if not block:
            return
        self.connection.client.awaits.begin("content")
        try:
            await self.connection.protocol.write_block(block, self.server.timeouts.block)
        except SESSION_ERRORS as error:
            self._leave_if_it_spoke()
            said = no_reply(error)
            self._give_up(lambda number: lost(number, "content", said))

    def _leave_if_it_spoke(self) -> None:
        """What came before the final dot says nothing of the message, whatever its code: neither that it was
        taken, nor that it never will be.
        """
        if said := self.connection.protocol.unasked:
            self._give_up(lambda number: lost(number, "content", said))

    async def _final(self, numbers: Sequence[int]) -> None:
        """The reply to the final dot: one for all, or with LMTP one for each, in the order of RCPT."""
        self.connection.client.awaits.begin("final dot")
        try:
            reply = await self.connection.protocol.reply(self.server.timeouts.final_dot)
        except SESSION_ERRORS as error:
            # Behind what cannot be read nobody can say which answer is whose.
            said = no_reply(error)
            self._give_up(lambda number: unread(number, said) if said else in_doubt(number))
        if reply.code == 421:
            self._give_up(lambda number: refused(number, reply))
        for number in numbers:
            self.results[number] = final(number, reply)
        if not (reply.positive or reply.transient or reply.permanent):
            self._give_up(lambda number: unread(number, one_line(reply)))

    def _say(self, octets: bytes, step: str, *, replies: int = 1) -> None:
        try:
            self.connection.protocol.expect(replies)
            self.connection.protocol.write(octets)
        except SESSION_ERRORS as error:
            said = no_reply(error)
            self._give_up(lambda number: lost(number, step, said))

    async def _hear(self, step: Literal["rcpt", "data"], timeout: float) -> Reply:
        self.connection.client.awaits.begin(step)
        try:
            reply = await self.connection.protocol.reply(timeout)
        except SESSION_ERRORS as error:
            said = no_reply(error)
            self._give_up(lambda number: lost(number, step.upper(), said))
        if reply.code == 421 and self.reused and self._open:
            # The server has had enough of this session, of its messages or recipients. A fresh one may do.
            raise ConnectionFailed(step, "session closed", reply=one_line(reply), reused=True)
        if reply.code == 421:
            self._give_up(lambda number: refused(number, reply))
        return reply

    def _settle(self, result: Callable[[int], RecipientResult]) -> None:
        self.results.update((number, result(number)) for number in self._open)

    def _give_up(self, result: Callable[[int], RecipientResult]) -> NoReturn:
        self._settle(result)
        raise _Over


def _past_the_limit(reply: Reply, *, others: bool) -> bool:
    """Too many recipients in one transaction (RFC 5321 4.5.3.1.10); 552 is how RFC 821 spelt it. ``others``:
    the server has taken some in this transaction.

    A 552 without a status may mean a full mailbox too. It is believed of a recipient that was the first.
    """
    if reply.enhanced in {"4.5.3", "5.5.3"}:
        return others or reply.code in {452, 552}
    return reply.enhanced is None and (reply.code == 452 or (reply.code == 552 and others))
