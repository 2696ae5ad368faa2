"""A session with a next hop, used for one message after the other."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from functools import partial
from typing import Literal, Protocol

from shadowrelay.core.delivery.settling import Ending
from shadowrelay.core.delivery.tls_policy import FailedTls
from shadowrelay.core.identifiers import MessageId, ServerName
from shadowrelay.core.members.conversation import Answered, Greeting, Query
from shadowrelay.core.messages import Envelope, Recipient
from shadowrelay.core.values import replace
from shadowrelay.smtp.sending import tracked
from shadowrelay.smtp.sending.connection import SESSION_ERRORS, HopConnection, Lookup, open_connection
from shadowrelay.smtp.sending.hop import (
    NO_REQUIRETLS,
    NOT_VERIFIED,
    Awaited,
    ConnectionFailed,
    DeliveryResult,
    Login,
    NextHopServer,
    Pinned,
    RecipientResult,
    SessionStep,
    Timeouts,
    Unfit,
)
from shadowrelay.smtp.sending.message import (
    ContentNeeds,
    ContentSource,
    examine,
    exceeds,
    found_too_long,
    mail_command,
    rcpt_command,
    refusals,
    shortened,
)
from shadowrelay.smtp.sending.tracked import Tracks
from shadowrelay.smtp.sending.transaction import DeliveryTransaction, Withdrawn
from shadowrelay.wire.delivered_to import delivered_to_since

__all__ = [
    "ConnectionFailed",
    "DeliveryResult",
    "DeliverySession",
    "Login",
    "NextHopServer",
    "Pinned",
    "RecipientResult",
    "Timeouts",
    "Unfit",
    "Withdrawn",
]


class HopTalk(Protocol):
    """Who we are, and what is remembered of hops. Whatever it does is durable when it returns."""

    def may_track(self) -> bool:
        """Whether hops are told to track messages now. They are asked about what they track all the same."""
        ...

    async def greet(self, session: DeliverySession) -> None:
        """Introduce ourselves with ``say_hello``, and remember the hop. Raises ConnectionFailed."""
        ...

    async def ask(self, session: DeliverySession) -> None:
        """Fetch with ``ask_hop`` all that the hop has to say. Raises ConnectionFailed."""
        ...


TlsTold = Callable[[NextHopServer, "FailedTls | Literal['']"], None]
"""Called with what became of TLS each time a session was to be opened: '' if it showed what was wanted."""


class DeliverySession:
    """Talks to one server, for one task at a time. It closes at 421, and when no reply comes in time."""

    def __init__(
        self,
        server: NextHopServer,
        lookup: Lookup | None = None,
        talk: HopTalk | None = None,
        told: TlsTold | None = None,
    ) -> None:
        self.server = server
        self.hop: Tracks | None = None  # it tracks what we ask it to
        self.served = 0  # messages that were offered
        self.most = sys.maxsize  # messages after which it is to be closed
        self.lane = ""  # as which it counts, since then on the loop's clock, until it calls ``ended``
        self.since = 0.0
        self.ended: Callable[[], None] | None = None
        self._lookup = lookup
        self._talk = talk
        self._told = told
        self.awaits = Awaited()
        self._connection: HopConnection | None = None
        self._reused = False
        self._needs_reset = False

    @property
    def alive(self) -> bool:
        """Whether another message may be tried. True is no promise: the server may have left meanwhile."""
        return self._connection is not None and self._connection.protocol.is_connected

    @property
    def encrypted(self) -> str:
        """The TLS version; '' for clear text."""
        return self._connection.encrypted if self._connection else ""

    async def connect(self) -> None:
        """Open the session, AUTH and XSHADOW included. Raises ConnectionFailed; may be called again after
        that.
        """
        self._drop()
        try:
            self._connection = await open_connection(self.server, self.awaits, self._lookup)
        except ConnectionFailed as failure:
            if self._told is not None and failure.result:
                self._told(self.server, failure.result)
            raise
        if self._told is not None:
            self._told(self.server, self._connection.told)
        self._reused = self._needs_reset = False
        if self._talk is not None and tracked.may_be_told(self._connection):
            try:
                await self._talk.greet(self)
            except BaseException:
                self.abort()
                raise

    @property
    def shown(self) -> ServerName | None:
        """The hop whose pinned certificate was shown, if any was."""
        return self._connection.peer if self._connection else None

    @property
    def peer(self) -> ServerName:
        """The same. Raises ConnectionFailed if none was."""
        if self.shown is None:
            raise ConnectionFailed("xshadow", "it has shown no pinned certificate")
        return self.shown

    async def say_hello(self, ours: Greeting) -> Greeting | None:
        """XSHADOW. None: the hop does not want to know us, so it tracks nothing. Raises ConnectionFailed."""
        theirs = await tracked.greet(self._usable("xshadow"), ours)
        self.hop = Tracks(theirs.name, theirs.lineage.database_id) if theirs else None
        return theirs

    async def ask_hop(self, query: Query) -> tuple[Answered, tuple[str, ...]]:
        """XQDISCARD: what the hop delivered, and malformed lines. Raises ConnectionFailed, the session
        aborted.
        """
        connection = self._usable("xqdiscard")
        try:
            answer = await tracked.ask(connection, query)
        except BaseException:
            self.abort()
            raise
        if self.hop:
            self.hop.owes = False
        return answer

    @property
    def owes(self) -> bool:
        """Did the hop take messages that it tracks since it was last asked about them?"""
        return self.hop is not None and self.hop.owes and self.alive

    async def ask(self) -> None:
        """Ask the hop what it delivered, if it tracks anything. Never raises but for cancellation."""
        if self._talk is not None and self.hop is not None and self.alive:
            with contextlib.suppress(ConnectionFailed):
                await self._talk.ask(self)

    async def deliver(
        self,
        envelope: Envelope,
        recipients: Sequence[Recipient],
        content: ContentSource,
        *,
        message_id: MessageId | None = None,
        eight_bit: bool | None = None,
        afresh: Callable[[], ContentSource] | None = None,
        wanted: Callable[[], Awaitable[bool]] | None = None,
        heard: Callable[[DeliveryResult], Awaitable[None]] | None = None,
        requiretls: bool = False,
    ) -> DeliveryResult:
        """Offer one message for these recipients, and say what became of each.

        The content has CRLF line ends and leaves octet for octet; one that lacks the last CRLF gets it. A
        report of ours leaves with less of the message that it returns if the hop's SIZE asks for that, or
        once the hop refuses the whole for its length. A stream is the caller's to close, and is not touched
        before DATA. ``message_id``: our id of the message, by which a hop tracks it. ``eight_bit`` says
        whether a streamed content holds octets above 127 (None: as BODY declares, unless ``afresh`` reads the
        content once more). ``wanted`` is asked before the content leaves. ``heard`` is told each answer of an
        LMTP server but the last, as soon as it comes; the result at the end has it too. ``requiretls``: the
        message leaves with REQUIRETLS, or not at all.

        Raises Unfit, the session as it was, if it cannot have the message so.

        Raises ConnectionFailed, with nothing changed for any recipient, until MAIL is answered, and at a 421
        in a used session until the content leaves; if it says ``reused``, try again at once on a fresh
        session. After that a lost session is a result: DEFERRED
        before the final dot, IN_DOUBT after it. What a streamed content raises passes through, the session
        aborted; so does Withdrawn, when the message was not wanted any more.
        """
        report_id = None if envelope.sender else message_id
        shorter: tuple[ContentNeeds, bytes] | None = None
        extensions = self._usable("mail").extensions
        try:
            need, content = await examine(envelope, content, extensions, eight_bit=eight_bit, afresh=afresh)
            if report_id and exceeds(need, extensions):
                shorter = await shortened(need, content, report_id, afresh)
        except BaseException:  # the content is read: it may be damaged, or not to be read at all
            self.abort()
            raise
        offer = partial(
            self._offer,
            envelope,
            recipients,
            message_id=message_id,
            wanted=wanted,
            heard=heard,
            requiretls=requiretls,
        )
        if shorter is not None:
            return await offer(*shorter)
        result = await offer(need, content)
        if report_id and found_too_long(result.results):
            try:
                shorter = await shortened(need, content, report_id, afresh)
            except BaseException:
                self.abort()
                raise
        return await self._again(partial(offer, *shorter)) if shorter else result

    async def _again(self, offer: Callable[[], Awaitable[DeliveryResult]]) -> DeliveryResult:
        """Make that offer in this session; if the hop has closed it, in a fresh one."""
        if self.alive:
            try:
                return await offer()
            except ConnectionFailed as failed:
                if not failed.reused:
                    raise
        await self.connect()
        return await offer()

    async def _offer(
        self,
        envelope: Envelope,
        recipients: Sequence[Recipient],
        need: ContentNeeds,
        content: ContentSource,
        *,
        message_id: MessageId | None,
        wanted: Callable[[], Awaitable[bool]] | None,
        heard: Callable[[DeliveryResult], Awaitable[None]] | None,
        requiretls: bool,
    ) -> DeliveryResult:
        """One transaction, if the hop can take the content for anybody."""
        connection = self._usable("mail")
        verified = envelope.tls is not None and self.server.verified
        if requiretls and not verified:
            raise Unfit(NOT_VERIFIED)
        if requiretls and "REQUIRETLS" not in connection.extensions:
            raise Unfit(NO_REQUIRETLS)
        tracking = self.hop if message_id and self._talk and self._talk.may_track() else None
        if tracking and not tracked.may_track(connection):
            tracking = None
        results: dict[int, RecipientResult] = {}
        for refusal in refusals(envelope, recipients, need, connection.extensions):
            results[refusal.number] = refusal
        offered = [one for one in recipients if one.number not in results] if results else recipients
        overflow: list[int] = []
        if offered:
            if self._needs_reset:
                await self.reset()
            mail = mail_command(envelope, need, connection.extensions, verified=verified)
            rcpts = [(one.number, rcpt_command(one, connection.extensions)) for one in offered]
            if tracking and message_id:
                mail = tracked.tracked_mail(mail, message_id)
                rcpts = [(number, tracked.tracked_rcpt(rcpt, number)) for number, rcpt in rcpts]
            transaction = DeliveryTransaction(
                connection=connection,
                server=self.server,
                reused=self._reused,
                mail=mail,
                rcpts=rcpts,
                wanted=wanted,
                heard=None if heard is None else partial(self._heard, heard, connection),
            )
            try:
                await transaction.run(content)
            finally:
                self.awaits.end()
            self._reused = True
            self.served += 1
            self._needs_reset = transaction.needs_reset
            results |= transaction.results
            overflow = transaction.overflow
        endings = [result.ending for result in results.values()]
        taken = Ending.ACCEPTED in endings or Ending.DUPLICATE in endings
        if taken and tracking:
            tracking.owes = True
        return DeliveryResult(
            results=tuple([results[recipient.number] for recipient in recipients]),
            dsn_offered="DSN" in connection.extensions,
            encrypted=connection.encrypted,
            overflow=tuple(overflow) if taken else (),
            tracks=tracking.tracker(connection) if taken and tracking else None,
        )

    async def _heard(
        self,
        heard: Callable[[DeliveryResult], Awaitable[None]],
        connection: HopConnection,
        result: RecipientResult,
    ) -> None:
        offered = "DSN" in connection.extensions
        await heard(DeliveryResult(results=(result,), dsn_offered=offered, encrypted=connection.encrypted))

    async def reset(self) -> None:
        """RSET. Raises ConnectionFailed."""
        client = self._usable("rset").client
        try:
            with client.step("rset"):
                await client.rset(timeout=self.server.timeouts.mail)
        except ConnectionFailed as failed:
            self.abort()
            failed.reused = self._reused
            raise
        self._needs_reset = False

    async def close(self) -> None:
        """Ask a hop that tracks what it delivered, say QUIT, and close. Never raises but for cancellation."""
        if self.owes:
            await self.ask()
        try:
            if self._connection is not None:
                with contextlib.suppress(*SESSION_ERRORS):  # it was going to end anyway
                    await self._connection.client.quit(timeout=self.server.timeouts.quit)
        finally:
            self.abort()

    def abort(self) -> None:
        """Close at once, without QUIT."""
        self._drop()
        if self.ended is not None:
            ended, self.ended = self.ended, None
            ended()

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.protocol.abort()
            self._connection = None
        self.hop = None

    def _usable(self, step: SessionStep) -> HopConnection:
        if self._connection is None:
            raise ConnectionFailed(step, "not connected")
        return self._connection


async def remembers_since(
    server: NextHopServer, timeout: float, lookup: Lookup | None = None
) -> datetime | None:
    """From when on; None if it drops nothing, or does not say. Asks in a short session without a login.

    Raises ConnectionFailed.
    """
    try:
        async with asyncio.timeout(timeout):
            connection = await open_connection(replace(server, login=None), Awaited(), lookup)
            try:
                with contextlib.suppress(*SESSION_ERRORS):
                    await connection.client.quit(timeout=server.timeouts.quit)
            finally:
                connection.protocol.abort()
            return delivered_to_since(connection.extensions)
    except TimeoutError:
        raise ConnectionFailed("ehlo", "no answer in time") from None
