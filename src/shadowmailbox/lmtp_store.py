"""A server that takes mail by LMTP as a store, such as Dovecot."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from datetime import timedelta
from email.utils import format_datetime
from typing import TypeAlias

import structlog

from shadowmailbox.store import ContentFile, MailboxMessage, TellAnswers
from shadowrelay.core.delivery.settling import Ending
from shadowrelay.core.identifiers import NextHop
from shadowrelay.core.messages import Envelope, Recipient
from shadowrelay.core.values import dataclass
from shadowrelay.smtp.sending.message import BLOCK
from shadowrelay.smtp.sending.session import (
    ConnectionFailed,
    DeliveryResult,
    DeliverySession,
    NextHopServer,
    RecipientResult,
    Timeouts,
)
from shadowrelay.wire.replies import Refused, Reply, ReplyError, parse_reply

log = structlog.get_logger(__name__)

NO_PLACE = Reply(451, "4.3.2", "All sessions with the mailbox store are busy, try again later")

_IDLE = 20.0  # seconds that an unused session is kept: less than any server's patience
_NAME = NextHop("store")
_TellResult: TypeAlias = Callable[[DeliveryResult], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class LmtpOptions:
    """``host`` may be the path of a Unix socket; then ``port`` is 0. ``timeout`` is for each step."""

    host: str
    port: int
    hostname: str
    timeout: timedelta = timedelta(minutes=5)
    max_sessions: int = 20


class LmtpStore:
    """Sends messages on, over at most ``max_sessions`` sessions.

    ``failures`` counts messages that did not reach the store, or of which its answer for somebody is not
    known. ``reachable``: the last attempt at a session succeeded.
    """

    def __init__(self, options: LmtpOptions) -> None:
        self.failures = 0
        self.reachable = True
        self._options = options
        self._places = asyncio.Semaphore(options.max_sessions)
        self._idle: list[tuple[DeliverySession, float]] = []
        self._tidying: asyncio.TimerHandle | None = None
        self._closing: set[asyncio.Task[None]] = set()
        seconds = options.timeout.total_seconds()
        self._server = NextHopServer(
            name=_NAME,
            host=options.host,
            port=options.port,
            local_hostname=options.hostname,
            protocol="lmtp",
            inside=True,
            tls="none",
            timeouts=Timeouts(
                connect=min(seconds, 30.0),
                greeting=seconds,
                ehlo=seconds,
                mail=seconds,
                rcpt=seconds,
                data=seconds,
                block=seconds,
                final_dot=seconds,
                quit=min(seconds, 5.0),
            ),
        )

    def judges(self, mailbox: str | None) -> Reply | None:
        """The store judges for itself, when it gets the message."""
        del mailbox
        return None

    async def deliver(self, message: MailboxMessage, heard: TellAnswers) -> None:
        trace = self._trace(message)
        envelope = Envelope(
            sender=message.mail.sender,
            size=message.size + len(trace),
            body="8BITMIME" if message.eight_bit else message.mail.body,
            smtputf8=message.mail.smtputf8,
            ret=message.mail.ret,
            envid=message.mail.envid,
        )
        pending = [
            Recipient(index, one.rcpt.address, _NAME, one.rcpt.notify, one.rcpt.orcpt)
            for index, one in enumerate(message.addressees)
        ]
        told: set[int] = set()

        async def tell(results: Iterable[RecipientResult], later: Iterable[int] = ()) -> None:
            fresh = [one for one in results if one.number not in told and one.number not in later]
            told.update(one.number for one in fresh)
            if any(one.ending is not Ending.REJECTED and not one.remote for one in fresh):
                self.failures += 1
                log.warning("store_session_lost", session=message.client.id, reply=fresh[0].reply)
            await heard({one.number: answer(one) for one in fresh})

        async def as_it_comes(result: DeliveryResult) -> None:
            await tell(result.results)

        async with self._place():
            while pending:
                result = await self._attempt(envelope, pending, trace, message, as_it_comes)
                await tell(result.results, result.overflow)
                pending = [one for one in pending if one.number in result.overflow]

    async def close(self) -> None:
        if self._tidying is not None:
            self._tidying.cancel()
            self._tidying = None
        idle, self._idle = self._idle, []
        await asyncio.gather(*(session.close() for session, _ in idle), *self._closing)

    async def _attempt(
        self,
        envelope: Envelope,
        recipients: list[Recipient],
        trace: bytes,
        message: MailboxMessage,
        heard: _TellResult,
    ) -> DeliveryResult:
        """One transaction. If a kept session turns out to be dead, a fresh one is tried. Raises Refused."""
        while True:
            session = self._kept() or DeliverySession(self._server)
            try:
                if not session.alive:
                    await session.connect()
                result = await session.deliver(
                    envelope,
                    recipients,
                    _pieces(trace, message.content),
                    eight_bit=message.eight_bit,
                    afresh=lambda: _pieces(trace, message.content),
                    heard=heard,
                )
            except ConnectionFailed as failed:
                session.abort()
                if failed.reused:
                    continue
                self.reachable = False
                self.failures += 1
                log.warning(
                    "store_unreachable", store=f"{self._server.host}:{self._server.port}", error=str(failed)
                )
                raise Refused.by(_unreachable(failed)) from None
            except BaseException:
                session.abort()
                raise
            self.reachable = True
            self._keep(session)
            return result

    @asynccontextmanager
    async def _place(self) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(self._options.timeout.total_seconds()):
                await self._places.acquire()
        except TimeoutError:
            self.failures += 1
            raise Refused.by(NO_PLACE) from None
        try:
            yield
        finally:
            self._places.release()

    def _kept(self) -> DeliverySession | None:
        while self._idle:
            session, _ = self._idle.pop()
            if session.alive:
                return session
            session.abort()
        return None

    def _keep(self, session: DeliverySession) -> None:
        if not session.alive:
            session.abort()
            return
        loop = asyncio.get_running_loop()
        self._idle.append((session, loop.time()))
        if self._tidying is None:
            self._tidying = loop.call_later(_IDLE, self._tidy)

    def _tidy(self) -> None:
        """Close the sessions that nobody has used for a while."""
        loop = asyncio.get_running_loop()
        old = loop.time() - _IDLE
        for session in [session for session, since in self._idle if since <= old]:
            task = loop.create_task(session.close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)
        self._idle = [(session, since) for session, since in self._idle if since > old]
        self._tidying = loop.call_later(_IDLE, self._tidy) if self._idle else None

    def _trace(self, message: MailboxMessage) -> bytes:
        client = message.client
        address = f"[{'IPv6:' if ':' in client.address else ''}{client.address}]"
        protocol = client.protocol(smtputf8=message.mail.smtputf8)
        return (
            f"Received: from {client.helo} ({address})\r\n"
            f"\tby {self._options.hostname} with {protocol} id {client.id};\r\n"
            f"\t{format_datetime(message.at)}\r\n" + ("\r\n" if message.headless else "")
        ).encode()


def answer(result: RecipientResult) -> Reply:
    """What the relay is told: the store's reply, with its codes and text.

    A reply that says nothing of the message becomes 451: no answer after the final dot, 421 (the store ended
    its session with us), and a 5yz that is about us (530: log in first).
    """
    try:
        reply = parse_reply([result.reply.encode()])
    except ReplyError:
        return Reply(451, "4.3.0", result.reply)
    match result.ending:
        case Ending.ACCEPTED | Ending.DUPLICATE:
            sure = reply.positive
        case Ending.REJECTED:
            sure = reply.permanent
        case _:
            sure = reply.transient and reply.code != 421
    if not sure:
        return Reply(451, "4.3.0", f"The mailbox store said {result.reply}")
    return Reply(reply.code, reply.enhanced or f"{reply.code // 100}.0.0", reply.text)


def _unreachable(failed: ConnectionFailed) -> Reply:
    status = "4.4.1" if failed.step == "connect" else "4.4.2"
    said = f": {failed.reply}" if failed.reply else ""
    return Reply(451, status, f"The mailbox store takes no mail now ({failed.step}{said})")


async def _pieces(trace: bytes, content: ContentFile) -> AsyncIterator[bytes]:
    """The content below the trace. The first piece has the header, by which some stores refuse it."""
    content.seek(0)
    yield trace + await asyncio.to_thread(content.read, BLOCK)
    while block := await asyncio.to_thread(content.read, BLOCK):
        yield block
