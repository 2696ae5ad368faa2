"""A receiving session from greeting to goodbye: command loop, replies, limits.

The verbs are in ``session``.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from contextlib import suppress

import structlog
from aiosmtpd.proxy_protocol import ProxyData
from aiosmtpd.smtp import Envelope

from shadowrelay.core.values import replace
from shadowrelay.smtp.duplex import BLOCK, Interrupted, Why
from shadowrelay.smtp.receiving.connection import LINGER, ClientConnection
from shadowrelay.smtp.receiving.content import LOCAL_ERROR, Body
from shadowrelay.smtp.receiving.contract import ConnectorOptions, Receiver
from shadowrelay.smtp.receiving.limits import STOPPING, Register
from shadowrelay.smtp.receiving.streams import CommandReader, HeaderReader, client_of
from shadowrelay.smtp.receiving.words import in_our_words
from shadowrelay.wire.esmtp import LINE_EXTENSIONS, MailFrom, RcptTo
from shadowrelay.wire.replies import MAX_REPLY_LINE, Refused, Reply

log = structlog.get_logger(__name__)

UNKNOWN_COMMAND = Reply(500, "5.5.2", "Command not recognised")
LINE_TOO_LONG = Reply(500, "5.5.2", "Command line too long")
NOT_UTF8 = Reply(500, "5.5.2", "Command line is not UTF-8")
BARE_LINE_END = Reply(500, "5.5.2", "Command line must end in CRLF")
BAD_CHARACTER = Reply(501, "5.5.2", "Control character in command")
TIMEOUT = Reply(421, "4.4.2", "Timeout, closing connection")
TOO_MANY_COMMANDS = Reply(421, "4.7.0", "Too many commands without a message, closing connection")
TOO_MANY_ERRORS = Reply(421, "4.7.0", "Too many errors, closing connection")

TURN = 64
"""Commands that one client has served before everybody else has a turn, however many it sends at once."""

_GROUPED = frozenset({"MAIL", "RCPT", "RSET", "DATA", "BDAT"})
"""Verbs whose replies may wait for those of the commands behind them (RFC 2920 section 3.2)."""

_PROTOCOL_ERRORS = frozenset({500, 501, 502, 503, 504, 535, 538, 555})
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")


class MailTransaction(Envelope):
    """From MAIL to the reply after the content; before MAIL, an empty one.

    ``failed`` is what later chunks of a refused body get.
    """

    def __init__(self) -> None:
        super().__init__()
        self.mail: MailFrom
        self.rcpt: RcptTo  # the one that is being judged
        self.recipients: list[RcptTo] = []
        self.refused = 0
        self.body: Body | None = None
        self.chunking = False
        self.failed: Reply | None = None


class SessionLifecycle(ClientConnection):
    """What is said in one connection. ``register`` counts it; ``receiver`` is told of its transactions."""

    def __init__(
        self, receiver: Receiver, options: ConnectorOptions, register: Register, hooks: object
    ) -> None:
        super().__init__(options, hooks)
        self.receiver = receiver
        self.envelope: MailTransaction | None
        self.verb = ""  # of the command that is served
        self.junk = 0  # commands since the last message
        self._register = register
        self._leaving = self._draining = self._busy = self._grouped = False
        self._errors = self._served = 0
        self._longest_reply = max(MAX_REPLY_LINE, options.max_command_line)
        self.limit_commands()

    def limit_commands(self) -> None:
        """As our extensions have it: the library adds to MAIL at each EHLO."""
        base = self.options.max_command_line
        for verb, more in LINE_EXTENSIONS.items():
            self.command_size_limits[verb] = base + more
        self.command_size_limit = self.max_command_size_limit

    def drain(self) -> None:
        """Leave as soon as no transaction is under way."""
        self._draining = True
        if self.transaction is None and not self._busy:
            self.duplex.interrupt(Why.STOPPING)

    def expire(self) -> None:
        """Leave now, unless a message is being committed: then right after its reply."""
        self._draining = True
        self.duplex.interrupt(Why.STOPPING)

    # The conversation

    async def _handle_client(self) -> None:
        task = self._handler_coroutine
        behind_proxy = self._proxy_timeout is not None
        address = None if behind_proxy else self.client.address
        refusal = STOPPING if task is None else self._register.enter(self, task, address)
        try:
            if refusal is not None:
                await self.turn_away(refusal)
            else:
                await self._converse()
        finally:
            await self.close()
            await self.forget()
            self._register.leave(self)
            self.release()

    async def _converse(self) -> None:
        """Until it is over. The library's part ends by itself only where a proxy does not say whose it is."""
        try:
            await super()._handle_client()
            header = self.session.proxy_data if self.session else None
            if header is not None and header.error:
                log.info("proxy_header_refused", proxy=self.client.address, error=header.error)
        except Interrupted as interrupted:
            if interrupted.why is Why.OVER:
                with suppress(Interrupted):
                    await self.duplex.flush()
                return
            log.debug("session_interrupted", session=self.client.id, why=interrupted.why.value)
            await self.forget()
            if interrupted.why is Why.STOPPING:
                await self.leave(STOPPING)
            elif interrupted.why is Why.TIMEOUT and not isinstance(self._reader, HeaderReader):
                await self.leave(TIMEOUT)
        except ConnectionResetError as error:  # the library takes any for the client's
            await self.leave(await self.handle_exception(error))

    async def turn_away(self, refusal: Reply) -> None:
        """There is no place for this client."""
        log.info("connection_refused", client=self.client.address, reply=str(refusal))
        await self.leave(refusal)

    async def proxied(self, header: ProxyData) -> bool:
        """Who is behind the proxy, and whether there is a place for that client."""
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

    async def next_command(self) -> bytes:
        """The next line that the library may see; those that it must not see are answered here."""
        while True:
            self._busy = False
            if (unsent := self.duplex.unsent) and (not self._grouped or unsent > BLOCK):
                await self.duplex.flush()
            if self._leaving:
                raise Interrupted(Why.OVER)
            if self._draining and self.transaction is None:
                raise Interrupted(Why.STOPPING)
            if self._served == TURN:  # of what is there already no command has to be waited for
                self._served = 0
                await asyncio.sleep(0)
            self._served += 1
            line = await self.duplex.read_line(self.command_size_limit)
            self._busy = True
            found = self._command(line)
            if isinstance(found, bytes):
                return found
            await (self.leave(found) if found is TOO_MANY_COMMANDS else self.answer(found))

    def _command(self, line: bytes | None) -> bytes | Reply:
        """The command without its line end, or what refuses it."""
        self._grouped = False
        if line is None:
            return LINE_TOO_LONG
        if not line.endswith(b"\r\n") or b"\r" in line[:-2]:
            return BARE_LINE_END
        command = line[:-2].rstrip(b" \t")
        try:
            verb, _, argument = command.decode("utf-8").partition(" ")
        except UnicodeDecodeError:
            return NOT_UTF8
        if not verb.isascii():  # in capitals it might be
            return UNKNOWN_COMMAND
        self.verb = verb = verb.upper()
        self._grouped = verb in _GROUPED
        if len(line) > self.command_size_limits.get(verb, self.options.max_command_line):
            return LINE_TOO_LONG
        if verb not in self._smtp_methods or not self.offers(verb):
            return UNKNOWN_COMMAND
        if _CONTROL.search(argument):
            return BAD_CHARACTER
        if self.options.max_junk_commands is not None and self.is_junk(verb, argument):
            self.junk += 1
            if self.junk > self.options.max_junk_commands:
                log.info("session_ended_by_junk", session=self.client.id, client=self.client.address)
                return TOO_MANY_COMMANDS
        return command

    def is_junk(self, verb: str, argument: str) -> bool:
        """Does a command bring a message no further? Past some hundred of them a client only costs time.

        Never RCPT: a client that goes on after 452 has to keep the recipients that were taken before.
        """
        if verb == "BDAT":
            return argument.startswith("0")  # no octet
        return verb not in {"RCPT", "DATA", "STARTTLS", "QUIT"}

    def offers(self, verb: str) -> bool:
        """Whether a verb with a method of its own is known on this connector; else it is unknown."""
        match verb:
            case "AUTH":
                logins = self.options.logins
                return logins is not None and self.options.tls is not None and logins.offered
            case "LHLO":
                return self.options.lmtp
            case "HELO" | "EHLO":
                return not self.options.lmtp
            case "STARTTLS":
                return self.options.tls is not None and not self.options.implicit_tls
            case _:
                return True

    def _syntax_available(self, method: Callable[..., object]) -> bool:
        """For HELP; of EXPN, which is refused, the library has no syntax to tell."""
        return hasattr(method, "__smtp_syntax__") and self.offers(method.__name__.removeprefix("smtp_"))

    # Replies

    async def push(self, status: Reply | bytes | str) -> None:
        """The library's way to reply, and that of its hooks. Octets leave as they are."""
        if isinstance(status, Reply):
            await self.answer(status)
        elif isinstance(status, bytes):
            self.duplex.write(status + b"\r\n")
        elif status.startswith("220 "):  # the greeting
            self.write_reply(in_our_words(status))
        else:
            await self.answer(in_our_words(status))

    def decorate(self, reply: Reply) -> Reply:
        """Hook: every reply but the greeting and the answer to EHLO passes here."""
        return reply

    async def answer(self, reply: Reply) -> None:
        """Reply to a command. Negative replies are slow in coming, and too many end the session."""
        if reply.code in _PROTOCOL_ERRORS:
            self._errors += 1
            if self._errors > self.options.max_protocol_errors:
                log.info("session_ended_by_errors", session=self.client.id, client=self.client.address)
                return await self.leave(TOO_MANY_ERRORS)
        if reply.permanent and self.options.tarpit_interval:
            await self._tarpit(self.options.tarpit_interval.total_seconds())
        self.write_reply(self.decorate(reply))
        return None

    def write_reply(self, reply: Reply) -> None:
        """Put a reply, as it is, among those that leave at the next flush."""
        self.duplex.write(self.encoded(reply))

    def encoded(self, reply: Reply) -> bytes:
        """As it leaves: no line is longer than what the other end has to take."""
        return reply.encode(most=self._longest_reply)

    async def leave(self, reply: Reply) -> None:
        """Say why, and close."""
        self._leaving = True
        self.write_reply(self.decorate(reply))
        await self.duplex.linger(LINGER)

    async def hang_up(self) -> None:
        """Close without a reply to what was asked last."""
        self._leaving = True

    async def _tarpit(self, seconds: float) -> None:
        await self.duplex.flush()
        try:
            async with asyncio.timeout(seconds):
                await self._lost.wait()
        except TimeoutError:
            return
        raise Interrupted(Why.GONE)

    async def handle_exception(self, error: Exception) -> Reply:  # type: ignore[override]
        """Our mistake is no reason to bounce mail, and none of the client's business."""
        if isinstance(error, Refused):
            return error.reply
        log.error("session_error", session=self.client.id, client=self.client.address, exc_info=error)
        return LOCAL_ERROR

    # The transaction

    @property
    def transaction(self) -> MailTransaction | None:
        """The one that is under way."""
        envelope = self.envelope
        return envelope if envelope is not None and envelope.mail_from is not None else None

    def _create_envelope(self) -> MailTransaction:
        return MailTransaction()

    def _set_rset_state(self) -> None:
        """Others have to be told, who take their time: what follows in the library calls ``forget``."""
        if self.envelope is None:
            super()._set_rset_state()  # type: ignore[no-untyped-call]

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
