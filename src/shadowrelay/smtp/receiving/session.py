"""A receiving session: from the first octet to the last, and its verbs.

A connector with verbs of its own subclasses ReceiveSession: a method ``smtp_XVERB(argument)`` is the verb
XVERB, and is named in ``ours``. ``keywords`` and the two parameter sets say what EHLO, MAIL and RCPT know
besides.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from typing import Any, ClassVar, cast

import structlog
from aiosmtpd.proxy_protocol import ProxyData

from shadowrelay.core.values import replace
from shadowrelay.smtp.duplex import Interrupted, Why
from shadowrelay.smtp.receiving.content import (
    LOCAL_ERROR,
    MESSAGE_TOO_BIG,
    Body,
    read_chunk,
    read_data,
)
from shadowrelay.smtp.receiving.contract import ConnectorOptions, Delayed, Hangup, Receiver, Service
from shadowrelay.smtp.receiving.conversation import GREETING_NEEDED, MAIL_NEEDED, Conversation
from shadowrelay.smtp.receiving.library import CommandReader, HeaderReader, LibrarySession, client_of, syntax
from shadowrelay.smtp.receiving.limits import STOPPING, Register
from shadowrelay.smtp.receiving.transaction import (
    HOOKS,
    RECIPIENT_OK,
    SENDER_OK,
    TOO_MANY_RECIPIENTS,
    MailTransaction,
)
from shadowrelay.wire.addresses import is_literal
from shadowrelay.wire.esmtp import (
    MAIL_KEYWORDS,
    RCPT_KEYWORDS,
    WITH_REQUIRETLS,
    RcptTo,
    after,
    parse_mail,
    parse_rcpt,
    refuse_routing,
)
from shadowrelay.wire.networks import within
from shadowrelay.wire.replies import Refused, Reply, encoded
from shadowrelay.wire.xclient import ATTRIBUTES, parse_xclient

log = structlog.get_logger(__name__)

TIMEOUT = Reply(421, "4.4.2", "Timeout, closing connection")
START = Reply(354, None, "End data with <CR><LF>.<CR><LF>")

# ASCII alone (RFC 6531 section 3.7.1): the name stands in the trace field of messages that may be 7-bit.
_NAME = re.compile(r"[\w.:-]{1,255}", re.ASCII)
_CHUNK = re.compile(r"(\d{1,19})(?: +(LAST))?", re.IGNORECASE | re.ASCII)


def _sequence(text: str) -> Reply:
    return Reply(503, "5.5.1", text)


def _name(argument: str | None) -> str:
    if argument is None or not (_NAME.fullmatch(argument) or is_literal(argument)):
        raise Refused(501, "5.5.4", "Host name or address literal needed")
    return argument


class ReceiveSession(LibrarySession):
    """One SMTP or LMTP session. ``register`` counts it; ``receiver`` is told of its transactions."""

    ours: ClassVar[frozenset[str]] = frozenset({"MAIL", "RCPT", "DATA", "BDAT"})
    always: ClassVar[frozenset[str]] = ours  # offered to whoever is there
    extra_mail_parameters: ClassVar[frozenset[str]] = frozenset()
    extra_rcpt_parameters: ClassVar[frozenset[str]] = frozenset()

    def __init__(self, receiver: Receiver, options: ConnectorOptions, register: Register) -> None:
        super().__init__(options, HOOKS)
        self.receiver = receiver
        self.conversation: Conversation
        self.verbs: Mapping[str, Callable[[str], Awaitable[None]]]
        self.answer: Callable[[Reply], Coroutine[Any, Any, None]]
        self._register = register
        self._introducer: str | None = None  # the host that said XCLIENT

    # What a connector of its own kind changes

    def offers(self, verb: str) -> bool:
        """Whether this connector offers a verb that has a method; if not, it is an unknown command."""
        match verb:
            case "AUTH":
                logins = self.options.logins
                return logins is not None and self.options.tls is not None and logins.offered
            case "LHLO":
                return self.options.lmtp
            case "HELO" | "EHLO":
                return not self.options.lmtp
            case "XCLIENT":
                return self._introduces
            case "STARTTLS":
                return self.options.tls is not None and not self.options.implicit_tls
            case _:
                return True

    def keywords(self) -> list[str]:
        """Hook: what EHLO offers, one line each."""
        options = self.options
        offered = [
            "PIPELINING",
            f"SIZE {options.max_message_size}",
            "8BITMIME",
            "SMTPUTF8",
            "ENHANCEDSTATUSCODES",
            "CHUNKING",
            "DSN",
            f"LIMITS RCPTMAX={options.max_recipients_per_message}",
        ]
        if self.offers("STARTTLS") and not self.client.tls:
            offered.append("STARTTLS")
        if self.client.tls and self.offers("AUTH"):
            scram = options.logins is not None and options.logins.scram
            offered.append("AUTH SCRAM-SHA-256 PLAIN LOGIN" if scram else "AUTH PLAIN LOGIN")
        if self.client.tls and options.requiretls:
            offered.append("REQUIRETLS")
        if self._introduces:
            offered.append(f"XCLIENT {' '.join(ATTRIBUTES)}")
        return offered

    @property
    def _introduces(self) -> bool:
        """Whether the host at the other end may say for which client it speaks."""
        known = self.options.xclient_networks
        return bool(known) and within(self._introducer or self.client.address, known)

    def judge(self, rcpt: RcptTo) -> None:
        """Hook: refuse recipients that this connector takes from nobody. Raises Refused."""
        refuse_routing(rcpt)

    def decorate(self, reply: Reply) -> Reply:
        """Hook: every reply but the greeting and the answer to EHLO passes here."""
        return reply

    # From the first octet to the last

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.verbs = {verb: method for verb, method in self._smtp_methods.items() if verb in self.ours}
        self.conversation = Conversation(
            self, self.duplex, self.options, self.command_size_limits, self._lost
        )
        self.answer = self.conversation.answer

    def release(self) -> None:
        super().release()
        del self.conversation, self.verbs, self.answer

    def drain(self) -> None:
        """Leave as soon as no transaction is under way. MAIL that waits has begun none."""
        self.conversation.drain()
        if self.conversation.verb == "MAIL":
            self.give_up_waiting()

    def expire(self) -> None:
        """Leave now, unless a message is being committed: then right after its reply."""
        self.conversation.expire()
        self.give_up_waiting()

    async def _handle_client(self) -> None:
        task = self._handler_coroutine
        behind_proxy = self._proxy_timeout is not None
        address = None if behind_proxy or self._introduces else self.client.address
        refusal = STOPPING if task is None else self._register.enter(self, task, address)
        try:
            if refusal is not None:
                await self.turn_away(refusal)
            else:
                # The library's command loop. It ends by itself only where a PROXY header brings no session.
                await super()._handle_client()
                header = self.session.proxy_data if self.session else None
                if header is not None and header.error:
                    log.info("proxy_header_refused", proxy=self.client.address, error=header.error)
        except Interrupted as interrupted:
            await self._interrupted(interrupted.why)
        except ConnectionResetError as error:  # the library takes each for the client's
            await self.conversation.leave(await self.handle_exception(error))
        finally:
            await self.close()
            await self.forget()
            self._register.leave(self)
            self.release()

    async def _interrupted(self, why: Why) -> None:
        """Reading has ended for good: say why, if the client may still hear it."""
        if why is Why.OVER:
            with suppress(Interrupted):
                await self.duplex.flush()
            return
        log.debug("session_interrupted", session=self.client.id, why=why.value)
        await self.forget()
        if why is Why.STOPPING:
            await self.conversation.leave(STOPPING)
        elif why is Why.TIMEOUT and not isinstance(self._reader, HeaderReader):
            await self.conversation.leave(TIMEOUT)

    async def turn_away(self, refusal: Reply) -> None:
        """Refuse a client for which there is no place."""
        log.info("connection_refused", client=self.client.address, reply=str(refusal))
        await self.conversation.leave(refusal)

    async def proxied(self, header: ProxyData) -> bool:
        """Note the client behind the proxy; returns whether there is a place for it."""
        try:
            origin = client_of(header)
        except ValueError as error:
            log.info("proxy_header_refused", proxy=self.client.address, error=str(error))
            return False
        if origin is not None:
            self.client = replace(self.client, address=origin[0], port=origin[1])
        self._read_with(CommandReader(self.duplex, self.next_command))
        refusal = self._register.identify(self, self.client.address)
        if refusal is not None:
            await self.turn_away(refusal)
        return refusal is None

    def next_command(self) -> Awaitable[bytes]:
        """The next command for the library; see ``Conversation.next_command``."""
        return self.conversation.next_command()

    def knows(self, verb: str) -> bool:
        """Whether there is such a verb, and it is offered."""
        return verb in self._smtp_methods and self.offers(verb)

    def _syntax_available(self, method: Callable[..., object]) -> bool:
        """For HELP: a verb that is offered. The library has no syntax for EXPN, which is refused."""
        return hasattr(method, "__smtp_syntax__") and self.offers(method.__name__.removeprefix("smtp_"))

    def push(self, status: Reply | bytes | str) -> Coroutine[Any, Any, None]:
        """The library's way to reply, and that of its hooks."""
        return self.conversation.push(status)

    async def handle_exception(self, error: Exception) -> Reply:  # type: ignore[override]
        """An error of our own must not bounce mail; its text is for the log alone."""
        if isinstance(error, Refused):
            return error.reply
        log.error("session_error", session=self.client.id, client=self.client.address, exc_info=error)
        return LOCAL_ERROR

    # Who is there

    # The library drops the transaction before it checks the name; RFC 5321 section 4.1.4 keeps it.

    @syntax("HELO <hostname>")
    async def smtp_HELO(self, hostname: str | None) -> None:
        await super().smtp_HELO(_name(hostname))

    @syntax("EHLO <hostname>")
    async def smtp_EHLO(self, hostname: str | None) -> None:
        await super().smtp_EHLO(_name(hostname))
        self.limit_commands()

    @syntax("LHLO <hostname>")
    async def smtp_LHLO(self, hostname: str | None) -> None:
        await self.smtp_EHLO(hostname)

    async def greeted(self, service: Service, name: str) -> bytes:
        """The answer to HELO or EHLO, without its last line end."""
        await self.forget()
        self.client = replace(self.client, helo=name, service=service)
        keywords = () if service == "SMTP" else self.keywords()
        # The answers to HELO and EHLO carry no enhanced codes (RFC 2034 section 3).
        reply = Reply(250, None, (self.hostname, *keywords))
        return encoded(reply, self.conversation.longest_reply)[:-2]

    @syntax("XCLIENT <attribute=value> ...")
    async def smtp_XCLIENT(self, argument: str | None) -> None:
        """From now on the client is the one that is named. All begins anew, but TLS."""
        if self.transaction is not None:
            raise Refused(503, "5.5.1", "A transaction is under way")
        named = parse_xclient(argument or "")
        self._introducer = self._introducer or self.client.address
        if named.address is not None:
            refusal = self._register.identify(self, named.address)
            if refusal is not None:
                return await self.turn_away(refusal)
        before = self.client
        self.client = replace(
            before,
            address=before.address if named.address is None else named.address,
            port=before.port if named.port is None else named.port,
            service=cast("Service", named.protocol or "SMTP"),
            helo=named.helo or "",
            login=named.login or "",
            mechanism="",
        )
        self.session = self._create_session()
        return await self.push(f"220 {self.hostname} {self.__ident__}")

    @syntax("STARTTLS")
    async def smtp_STARTTLS(self, argument: str | None) -> None:
        if argument:
            raise Refused(501, "5.5.4", "Syntax: STARTTLS")
        context, transport = self.options.tls, self.transport
        if self.client.tls or context is None or transport is None:
            return await self.answer(_sequence("TLS is active already"))
        if self.duplex.forget_input():
            # Commands slipped in front of the handshake would be taken for the client's own.
            log.warning("starttls_injection_refused", session=self.client.id, client=self.client.address)
            return await self.conversation.leave(Reply(421, "4.7.0", "Nothing may follow STARTTLS"))
        await self.forget()
        await self.answer(Reply(220, "2.0.0", "Ready to start TLS"))
        await self.duplex.flush()
        if self.duplex.forget_input():
            log.warning("starttls_injection_refused", session=self.client.id, client=self.client.address)
            raise Interrupted(Why.GONE)
        await self.start_tls(context, transport)
        return None

    # The transaction

    async def forget(self) -> None:
        """End the transaction, if there is one, without a message."""
        transaction = self.transaction
        if transaction is None:
            return
        self.renew_envelope()
        if transaction.body is not None:
            await transaction.body.abort()
        try:
            await self.receiver.reset(self.client)
        except Exception:
            log.exception("receiver_reset_failed", session=self.client.id)

    @syntax("MAIL FROM: <address>", extended=" [SP <mail-parameters>]")
    async def smtp_MAIL(self, argument: str) -> None:
        envelope, options = self.envelope, self.options
        if not self.client.helo:
            return await self.answer(GREETING_NEEDED)
        if self.transaction is not None or envelope is None:
            after("FROM:", argument)
            raise Refused(503, "5.5.1", "A transaction is under way")
        known = WITH_REQUIRETLS if options.requiretls else MAIL_KEYWORDS
        keywords = self._parameters(known, self.extra_mail_parameters)
        envelope.mail = mail = parse_mail(argument, keywords=keywords, any_dots=options.any_dots)
        if mail.requiretls and options.requiretls and not self.client.tls:
            raise Refused(530, "5.7.10", "REQUIRETLS needs TLS: issue STARTTLS first")
        if mail.size is not None and mail.size > options.max_message_size:
            return await self.answer(MESSAGE_TOO_BIG)
        rates = self._register.rates
        if rates and (refusal := rates.message(self.client)):
            return await self.answer(refusal)
        begun = self.receiver.mail(self.client, mail)
        reply = await (self._patiently(begun) if options.pressed and options.pressed.presses else begun)
        if reply is None or reply.positive:
            envelope.mail_from = mail.sender
        return await self.answer(reply or SENDER_OK)

    async def _patiently(self, begun: Coroutine[None, None, Reply | None]) -> Reply | None:
        """The answer to MAIL, which may take long, unless the client says no more that could follow it."""

        def look() -> None:
            if self.duplex.over and not self.duplex.input:
                self.give_up_waiting()

        self.duplex.told = look
        asyncio.get_running_loop().call_soon(look)
        try:
            return await self._awaited(begun)
        finally:
            self.duplex.told = None

    @syntax("RCPT TO:<address>", extended=" [SP <parameters>]")
    async def smtp_RCPT(self, argument: str) -> None:
        transaction, options = self.transaction, self.options
        if transaction is None:
            return await self.answer(MAIL_NEEDED if self.client.helo else GREETING_NEEDED)
        transaction.refused += 1  # until the opposite is known
        if transaction.chunking:
            after("TO:", argument)
            raise Refused(503, "5.5.1", "BDAT is under way")
        keywords = self._parameters(RCPT_KEYWORDS, self.extra_rcpt_parameters)
        utf8, dots = transaction.mail.smtputf8, options.any_dots
        rcpt = parse_rcpt(argument, smtputf8=utf8, keywords=keywords, any_dots=dots)
        self.judge(rcpt)
        accepted = tuple(transaction.recipients)
        if len(accepted) >= options.max_recipients_per_message:
            return await self.answer(TOO_MANY_RECIPIENTS)
        rates = self._register.rates
        if rates and (refusal := rates.recipient(self.client)):
            return await self.answer(refusal)
        reply = await self.receiver.rcpt(self.client, transaction.mail, rcpt, accepted)
        if reply is None or reply.positive:
            transaction.refused -= 1
            transaction.recipients.append(rcpt)
        return await self.answer(reply or RECIPIENT_OK)

    def _getaddr(self, arg: str) -> tuple[str, str]:
        """VRFY's argument is returned as it is."""
        return arg, ""

    # Every end of data ends the transaction, whatever its reply is (RFC 5321 section 4.1.1.4, RFC 3030
    # section 2): what a client sends behind it is never taken for more of the same envelope.

    @syntax("DATA")
    async def smtp_DATA(self, argument: str) -> None:
        transaction = self.transaction
        if argument:
            return await self.answer(Reply(501, "5.5.4", "Syntax: DATA"))
        if transaction is None:
            return await self.answer(MAIL_NEEDED)
        if transaction.chunking:
            return await self.answer(_sequence("BDAT is under way"))
        body = self.lacks(transaction) or await self._open(transaction)
        if isinstance(body, Reply):
            if transaction.asked:  # else the verbs are out of order, and the state stays (4.1.4)
                await self.forget()
            return await self.answer(body)
        self.conversation.write(self.decorate(START))
        await self.duplex.flush()
        await read_data(self.duplex, body, self._deadline())
        return await self._finish(transaction, body)

    @syntax("BDAT <octets> [LAST]")
    async def smtp_BDAT(self, argument: str) -> None:
        found = _CHUNK.fullmatch(argument)
        if found is None:
            # The octets that follow cannot be told from commands.
            await self.answer(Reply(501, "5.5.4", "Syntax: BDAT octets [LAST]"))
            return self.conversation.hang_up()
        octets, last, transaction = int(found[1]), found[2] is not None, self.transaction
        if transaction is None:
            await read_chunk(self.duplex, octets, None, self._deadline())
            return await self.answer(MAIL_NEEDED)
        body = await self._chunked(transaction)
        await read_chunk(self.duplex, octets, body, self._deadline())
        if body is not None:
            transaction.failed = body.refusal
            if last and transaction.failed is None:
                return await self._finish(transaction, body)
        reply = transaction.failed or Reply(250, "2.0.0", f"{octets} octets received")
        if last:
            await self.forget()
        for _ in range(transaction.replies_due if last else 1):
            await self.answer(reply)
        return None

    async def _chunked(self, transaction: MailTransaction) -> Body | None:
        """The body that takes the next chunk; None once one was refused: the content would have a hole."""
        transaction.chunking = True
        if transaction.failed is None:
            transaction.failed = self.lacks(transaction)
        if transaction.failed is None and transaction.body is None:
            opened = await self._open(transaction)
            if isinstance(opened, Reply):
                transaction.failed = opened
        return transaction.body if transaction.failed is None else None

    def lacks(self, transaction: MailTransaction) -> Reply | None:
        """Hook: the reply that refuses content now, if there is something amiss with the recipients."""
        return transaction.lacks()

    async def _open(self, transaction: MailTransaction) -> Body | Reply:
        try:
            return await transaction.open(self.receiver, self.client)
        except Exception as error:
            return await self.handle_exception(error)

    async def _finish(self, transaction: MailTransaction, body: Body) -> None:
        """End of content: the replies, and the transaction is over whatever they are."""
        expected = transaction.replies_due
        self.conversation.junk = 0
        refusal = await body.end()
        replies: Sequence[Reply]
        if refusal is not None:
            await self.forget()
            replies = [refusal] * expected
        else:
            self.renew_envelope()
            outcome = await body.finish()
            if isinstance(outcome, Hangup):
                return self.conversation.hang_up()
            if isinstance(outcome, Delayed):
                return await self.conversation.say_late(outcome)
            replies = outcome
        if len(replies) != expected:
            log.error("sink_miscounted_replies", session=self.client.id, got=len(replies), expected=expected)
            return self.conversation.hang_up()
        for reply in replies:
            await self.answer(reply)
        return None

    def _parameters(self, known: frozenset[str], extra: frozenset[str]) -> frozenset[str]:
        return frozenset() if self.client.service == "SMTP" else known | extra

    def _deadline(self) -> float:
        return self.loop.time() + self.options.data_timeout.total_seconds()
