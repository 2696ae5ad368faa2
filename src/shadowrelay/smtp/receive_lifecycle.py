"""A receiving session from greeting to goodbye: command loop, replies, limits.

The verbs are in ``receive_session``.
"""

from __future__ import annotations

import asyncio
import re
from dataclasses import field

import structlog

from shadowrelay.core.values import dataclass
from shadowrelay.smtp.duplex import BLOCK, Interrupted, Why
from shadowrelay.smtp.receive import ConnectorOptions, Receiver
from shadowrelay.smtp.receive_connection import LINGER, Connection
from shadowrelay.smtp.receive_data import LOCAL_ERROR, Body
from shadowrelay.smtp.receive_limits import STOPPING, Register
from shadowrelay.wire.esmtp import LINE_EXTENSIONS, MailFrom, RcptTo
from shadowrelay.wire.replies import MAX_REPLY_LINE, Refused, Reply

log = structlog.get_logger(__name__)

UNKNOWN_COMMAND = Reply(500, "5.5.2", "Command not recognised")
LINE_TOO_LONG = Reply(500, "5.5.2", "Command line too long")
BARE_LINE_END = Reply(500, "5.5.2", "Command line must end in CRLF")
BAD_CHARACTER = Reply(501, "5.5.2", "Control character in command")
TIMEOUT = Reply(421, "4.4.2", "Timeout, closing connection")
TOO_MANY_COMMANDS = Reply(421, "4.7.0", "Too many commands without a message, closing connection")
TOO_MANY_ERRORS = Reply(421, "4.7.0", "Too many errors, closing connection")

TURN = 64
"""Commands that one client has served before everybody else has a turn, however many it sends at once."""

_GROUPED = frozenset({"MAIL", "RCPT", "RSET", "DATA", "BDAT"})
"""Verbs whose replies may wait for those of the commands behind them (RFC 2920 section 3.2)."""

_PROTOCOL_ERRORS = frozenset({500, 501, 502, 503, 504, 555})
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")


@dataclass(slots=True)
class Transaction:
    """From MAIL to the reply after the content. ``failed`` is what later chunks of a refused body get."""

    mail: MailFrom
    recipients: list[RcptTo] = field(default_factory=list)
    refused: int = 0
    body: Body | None = None
    chunking: bool = False
    failed: Reply | None = None


class SessionLifecycle(Connection):
    """What is said in one connection. ``register`` counts it; ``receiver`` is told of its transactions."""

    def __init__(self, receiver: Receiver, options: ConnectorOptions, register: Register) -> None:
        super().__init__(options, receiver)
        self.receiver = receiver
        self.transaction: Transaction | None = None
        self._register = register
        self._leaving = self._draining = self._busy = self._grouped = False
        self._errors = 0
        self.junk = 0  # commands since the last message
        # Per session: in the library they are shared by all.
        base = options.max_command_line
        self.command_size_limits = {verb: base + more for verb, more in LINE_EXTENSIONS.items()}
        self._longest = max(self.command_size_limits.values())

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
        refusal = STOPPING if task is None else self._register.enter(self, task, self.peer.address)
        try:
            if refusal is not None:
                log.info("connection_refused", client=self.peer.address, reply=str(refusal))
                await self.leave(refusal)
            else:
                await self._converse()
        except Interrupted as interrupted:
            log.debug("session_interrupted", session=self.peer.id, why=interrupted.why.value)
            await self.forget()
            if interrupted.why is not Why.GONE:
                await self.leave(TIMEOUT if interrupted.why is Why.TIMEOUT else STOPPING)
        finally:
            await self.close()
            await self.forget()
            self._register.leave(self, self.peer.address)

    async def _converse(self) -> None:
        greeting = "LMTP" if self.options.lmtp else self.options.greeting
        self.duplex.write(Reply(220, None, f"{self.hostname} {greeting}").encode())
        served = 0
        while not self._leaving:
            if self._draining and self.transaction is None:
                raise Interrupted(Why.STOPPING)
            if served == TURN:  # of what is there already no command has to be waited for
                served = 0
                await asyncio.sleep(0)
            served += 1
            line = await self.duplex.read_line(self._longest)
            self._busy = True
            try:
                await self._serve(line)
            except Refused as refused:
                await self.answer(refused.reply)
            except Interrupted:
                raise
            except Exception as error:
                await self.handle_exception(error)
                await self.answer(LOCAL_ERROR)
            self._busy = False
            if not self._grouped or self.duplex.unsent > BLOCK:
                await self.duplex.flush()
        await self.duplex.flush()

    async def _serve(self, line: bytes | None) -> None:
        self._grouped = False
        if line is None:
            return await self.answer(LINE_TOO_LONG)
        if not line.endswith(b"\r\n") or b"\r" in line[:-2]:
            return await self.answer(BARE_LINE_END)
        try:
            command = line[:-2].decode("utf-8").rstrip(" \t")
        except UnicodeDecodeError:
            raise Refused(500, "5.5.2", "Command line is not UTF-8") from None
        verb, _, argument = command.partition(" ")
        verb = verb.upper()
        self._grouped = verb in _GROUPED
        if len(line) > self.command_size_limits.get(verb, self.options.max_command_line):
            return await self.answer(LINE_TOO_LONG)
        method = getattr(self, f"smtp_{verb}", None) if verb.isalnum() and self.offers(verb) else None
        if method is None:
            return await self.answer(UNKNOWN_COMMAND)
        if _CONTROL.search(argument):
            return await self.answer(BAD_CHARACTER)
        if self.options.max_junk_commands is not None and self.is_junk(verb, argument):
            self.junk += 1
            if self.junk > self.options.max_junk_commands:
                log.info("session_ended_by_junk", session=self.peer.id, client=self.peer.address)
                return await self.leave(TOO_MANY_COMMANDS)
        await method(argument.lstrip(" ") or None)
        return None

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
            case "AUTH":  # the library's; nobody logs in here
                return False
            case "LHLO":
                return self.options.lmtp
            case "HELO" | "EHLO":
                return not self.options.lmtp
            case "STARTTLS":
                return self.options.tls is not None and not self.options.implicit_tls
            case _:
                return True

    # Replies

    def decorate(self, reply: Reply) -> Reply:
        """Hook: every reply but the greeting and the answer to EHLO passes here."""
        return reply

    async def answer(self, reply: Reply) -> None:
        """Reply to a command. Negative replies are slow in coming, and too many end the session."""
        if reply.code in _PROTOCOL_ERRORS:
            self._errors += 1
            if self._errors > self.options.max_protocol_errors:
                log.info("session_ended_by_errors", session=self.peer.id, client=self.peer.address)
                return await self.leave(TOO_MANY_ERRORS)
        if reply.permanent and self.options.tarpit_interval:
            await self._tarpit(self.options.tarpit_interval.total_seconds())
        self.write_reply(self.decorate(reply))
        return None

    def write_reply(self, reply: Reply) -> None:
        """Put a reply, as it is, among those that leave at the next flush."""
        self.duplex.write(reply.encode(most=max(MAX_REPLY_LINE, self.options.max_command_line)))

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

    async def handle_exception(self, error: Exception) -> str:
        """Our mistake is no reason to bounce mail, and none of the client's business."""
        log.error("session_error", session=self.peer.id, client=self.peer.address, exc_info=error)
        return str(LOCAL_ERROR)

    # The transaction

    async def forget(self) -> None:
        """End the transaction, if there is one, without a message."""
        transaction, self.transaction = self.transaction, None
        if transaction is None:
            return
        if transaction.body is not None:
            await transaction.body.abort()
        try:
            await self.receiver.reset(self.peer)
        except Exception:
            log.exception("receiver_reset_failed", session=self.peer.id)
