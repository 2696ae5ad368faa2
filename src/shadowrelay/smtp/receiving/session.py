"""The verbs of a Receive connector.

A connector with verbs of its own subclasses ReceiveSession: a method ``smtp_XVERB(argument)`` is the verb
XVERB, and ``keywords`` and the two parameter sets say what EHLO, MAIL and RCPT know besides.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Coroutine, Sequence
from typing import ClassVar

import structlog
from aiosmtpd.smtp import AuthResult, LoginPassword

from shadowrelay.core.values import replace
from shadowrelay.smtp.duplex import Interrupted, Why
from shadowrelay.smtp.receiving.connection import syntax
from shadowrelay.smtp.receiving.content import LOCAL_ERROR, Body, ContentCheck, read_chunk, read_data
from shadowrelay.smtp.receiving.contract import ConnectorOptions, Hangup, Receiver, Service
from shadowrelay.smtp.receiving.hooks import HOOKS
from shadowrelay.smtp.receiving.lifecycle import MailTransaction, SessionLifecycle
from shadowrelay.smtp.receiving.limits import Register
from shadowrelay.smtp.receiving.words import MAIL_NEEDED
from shadowrelay.wire.addresses import is_literal
from shadowrelay.wire.esmtp import (
    MAIL_KEYWORDS,
    RCPT_KEYWORDS,
    RcptTo,
    parse_mail,
    parse_rcpt,
    refuse_routing,
)
from shadowrelay.wire.replies import Refused, Reply

log = structlog.get_logger(__name__)

START = Reply(354, None, "End data with <CR><LF>.<CR><LF>")

# ASCII alone (RFC 6531 section 3.7.1): the name stands in the trace field of messages that may be 7-bit.
_NAME = re.compile(r"[\w.:-]{1,255}", re.ASCII)
_CHUNK = re.compile(r"(\d{1,19})(?: +(LAST))?", re.IGNORECASE | re.ASCII)
_HANDSHAKE = 30.0  # seconds


def _sequence(text: str) -> Reply:
    return Reply(503, "5.5.1", text)


def _name(argument: str | None) -> str:
    if argument is None or not (_NAME.fullmatch(argument) or is_literal(argument)):
        raise Refused(501, "5.5.4", "Host name or address literal needed")
    return argument


class ReceiveSession(SessionLifecycle):
    """One SMTP or LMTP session."""

    extra_mail_parameters: ClassVar[frozenset[str]] = frozenset()
    extra_rcpt_parameters: ClassVar[frozenset[str]] = frozenset()
    _checking: asyncio.Task[bool] | None = None  # of a name and a password

    def __init__(self, receiver: Receiver, options: ConnectorOptions, register: Register) -> None:
        super().__init__(receiver, options, register, HOOKS)

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
            offered.append("AUTH PLAIN LOGIN")
        return offered

    def judge(self, rcpt: RcptTo) -> None:
        """Hook: refuse recipients that this connector takes from nobody. Raises Refused."""
        refuse_routing(rcpt)

    # Who is there

    # The library drops the transaction before it looks at the name (RFC 5321 section 4.1.4: it is kept).

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
        """A client introduced itself; the answer, without its last line end."""
        await self.forget()
        self.client = replace(self.client, helo=name, service=service)
        keywords = () if service == "SMTP" else self.keywords()
        # The answers to HELO and EHLO carry no enhanced codes (RFC 2034 section 3).
        reply = Reply(250, None, (self.hostname, *keywords))
        return self.encoded(reply)[:-2]

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
            return await self.leave(Reply(421, "4.7.0", "Nothing may follow STARTTLS"))
        await self.forget()
        await self.answer(Reply(220, "2.0.0", "Ready to start TLS"))
        await self.duplex.flush()
        if self.duplex.forget_input():
            log.warning("starttls_injection_refused", session=self.client.id, client=self.client.address)
            raise Interrupted(Why.GONE)
        try:
            secured = await self.loop.start_tls(
                transport,  # type: ignore[arg-type]
                self,
                context,
                server_side=True,
                ssl_handshake_timeout=_HANDSHAKE,
            )
        except OSError as error:
            log.info("tls_handshake_failed", client=self.client.address, error=str(error))
            raise Interrupted(Why.GONE) from None
        if secured is None:
            raise Interrupted(Why.GONE)
        self.secured(secured)
        return None

    # AUTH PLAIN and LOGIN (RFC 4954, RFC 4616): the library's exchanges, with a check that is awaited.
    # Passwords are kept nowhere, and are in no log.

    @syntax("AUTH <mechanism>")
    async def smtp_AUTH(self, arg: str | None) -> None:
        if self.transaction is not None:
            raise Refused(503, "5.5.1", "A transaction is under way")
        mechanism, _, response = (arg or "").partition(" ")
        await super().smtp_AUTH(f"{mechanism.upper()} {response}".rstrip())

    async def auth_PLAIN(self, _: object, args: list[str]) -> AuthResult:
        return await self._checked(await super().auth_PLAIN(_, args))

    async def auth_LOGIN(self, _: object, args: list[str]) -> AuthResult:
        return await self._checked(await super().auth_LOGIN(_, args))

    async def _checked(self, result: AuthResult) -> AuthResult:
        """The claim that the exchange led to, if it did; without the password."""
        claim, logins = result.auth_data, self.options.logins
        if not isinstance(claim, LoginPassword) or logins is None:
            return result
        name = claim.login.decode("utf-8", "replace")
        right = await self._awaited(logins.check(self.client, name, claim.password))
        if right:
            self.client = replace(self.client, login=name)
        return AuthResult(success=right, handled=False)

    def drain(self) -> None:
        super().drain()
        # An exchange, whose next line may be long in coming, is no transaction.
        if self.verb == "AUTH" and self.transaction is None:
            self.duplex.interrupt(Why.STOPPING)

    # A check may wait for many others: whoever has gone, or is to go, does not.

    async def _awaited(self, check: Coroutine[None, None, bool]) -> bool:
        self._checking = asyncio.ensure_future(check)
        try:
            return await self._checking
        except asyncio.CancelledError:
            raise Interrupted(Why.GONE if self._lost.is_set() else Why.STOPPING) from None
        finally:
            self._checking = None

    def connection_lost(self, error: Exception | None) -> None:
        super().connection_lost(error)
        self._give_up()

    def expire(self) -> None:
        super().expire()
        self._give_up()

    def _give_up(self) -> None:
        if self._checking is not None:
            self._checking.cancel()

    # The transaction

    @syntax("RCPT TO:<address>", extended=" [SP <parameters>]")
    async def smtp_RCPT(self, arg: str | None) -> None:
        if (transaction := self.transaction) is not None:
            transaction.refused += 1  # until the opposite is known
        await super().smtp_RCPT(arg)

    def _getaddr(self, arg: str) -> tuple[str, str]:
        """What is behind FROM: or TO:, or all that VRFY has. The library is told of the address alone: it
        knows too few parameters, and would have them in upper case.
        """
        if self.verb == "MAIL":
            return self._sender(arg), ""
        return (self._recipient(arg) if self.verb == "RCPT" else arg), ""

    def _sender(self, path: str) -> str:
        envelope = self.envelope
        if self.transaction is not None or envelope is None:
            raise Refused(503, "5.5.1", "A transaction is under way")
        keywords = self._parameters(MAIL_KEYWORDS, self.extra_mail_parameters)
        envelope.mail = parse_mail(f"FROM:{path}", keywords=keywords, any_dots=self.options.any_dots)
        return envelope.mail.sender or "<>"  # to the library nothing is no address

    def _recipient(self, path: str) -> str:
        transaction = self.transaction
        if transaction is None:
            raise Refused(503, "5.5.1", "MAIL needed first")
        if transaction.chunking:
            raise Refused(503, "5.5.1", "BDAT is under way")
        keywords = self._parameters(RCPT_KEYWORDS, self.extra_rcpt_parameters)
        rcpt = parse_rcpt(
            f"TO:{path}",
            smtputf8=transaction.mail.smtputf8,
            keywords=keywords,
            any_dots=self.options.any_dots,
        )
        self.judge(rcpt)
        transaction.rcpt = rcpt
        return rcpt.address

    @syntax("DATA")
    async def smtp_DATA(self, argument: str | None) -> None:
        refusal = self._content_is_due()
        if argument:
            refusal = Reply(501, "5.5.4", "Syntax: DATA")
        elif refusal is None and self.transaction is not None and self.transaction.chunking:
            refusal = _sequence("BDAT is under way")
        if refusal is not None or self.transaction is None:
            return await self.answer(refusal or LOCAL_ERROR)
        body = await self._open(self.transaction)
        if isinstance(body, Reply):
            await self.forget()
            return await self.answer(body)
        self.write_reply(self.decorate(START))
        await self.duplex.flush()
        await read_data(self.duplex, body, self._deadline())
        return await self._finish(self.transaction, body)

    @syntax("BDAT <octets> [LAST]")
    async def smtp_BDAT(self, argument: str | None) -> None:
        found = _CHUNK.fullmatch(argument or "")
        if found is None:
            # The octets that follow cannot be told from commands.
            await self.answer(Reply(501, "5.5.4", "Syntax: BDAT octets [LAST]"))
            return await self.hang_up()
        octets, last = int(found[1]), found[2] is not None
        transaction, refusal = self.transaction, self._content_is_due()
        if transaction is None or refusal is not None:
            await read_chunk(self.duplex, octets, None, self._deadline())
            return await self.answer(refusal or LOCAL_ERROR)
        transaction.chunking = True
        if transaction.failed is None and transaction.body is None:
            opened = await self._open(transaction)
            if isinstance(opened, Reply):
                transaction.failed = opened
        await read_chunk(self.duplex, octets, transaction.body, self._deadline())
        if transaction.body is not None:
            transaction.failed = transaction.failed or transaction.body.refusal
        if last and transaction.failed is None and transaction.body is not None:
            return await self._finish(transaction, transaction.body)
        reply = transaction.failed or Reply(250, "2.0.0", f"{octets} octets received")
        if last:
            await self.forget()
        for _ in range(self._replies_due(transaction) if last else 1):
            await self.answer(reply)
        return None

    def _content_is_due(self) -> Reply | None:
        transaction = self.transaction
        if transaction is None:
            return MAIL_NEEDED
        if transaction.recipients:
            return None
        if transaction.refused:
            # LMTP has a code of its own for it: a reply for each recipient would follow (RFC 2033 4.2).
            return Reply(503 if self.options.lmtp else 554, "5.5.1", "No valid recipients")
        return _sequence("RCPT needed first")

    async def _open(self, transaction: MailTransaction) -> Body | Reply:
        options = self.options
        try:
            sink = await self.receiver.content(self.client, transaction.mail, tuple(transaction.recipients))
        except Refused as refused:
            return refused.reply
        except Exception as error:
            return await self.handle_exception(error)
        if isinstance(sink, Reply):
            return sink
        check = ContentCheck(
            most=options.max_message_size,
            most_header=options.max_header_size,
            most_line=options.max_text_line,
            pairs=options.line_ends_checked,
        )
        transaction.body = Body(sink, check)
        return transaction.body

    async def _finish(self, transaction: MailTransaction, body: Body) -> None:
        """End of content: the replies, and the transaction is over whatever they are."""
        expected = self._replies_due(transaction)
        self.junk = 0
        refusal = await body.end()
        replies: Sequence[Reply]
        if refusal is not None:
            await self.forget()
            replies = [refusal] * expected
        else:
            self.renew_envelope()
            outcome = await body.finish()
            if isinstance(outcome, Hangup):
                return await self.hang_up()
            replies = outcome
        if len(replies) != expected:
            log.error("sink_miscounted_replies", session=self.client.id, got=len(replies), expected=expected)
            return await self.hang_up()
        for reply in replies:
            await self.answer(reply)
        return None

    def _replies_due(self, transaction: MailTransaction) -> int:
        """After the content: LMTP has a reply for each recipient (RFC 2033 section 4.2)."""
        return len(transaction.recipients) if self.options.lmtp else 1

    def _parameters(self, known: frozenset[str], extra: frozenset[str]) -> frozenset[str]:
        return frozenset() if self.client.service == "SMTP" else known | extra

    def _deadline(self) -> float:
        return self.loop.time() + self.options.data_timeout.total_seconds()
