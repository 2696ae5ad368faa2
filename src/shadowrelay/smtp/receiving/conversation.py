"""What a client and we say to each other in one session: commands, replies, and the limits of both."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from functools import lru_cache
from typing import ClassVar, Protocol

import structlog

from shadowrelay.smtp.duplex import LINGER, Duplex, Interrupted, Why
from shadowrelay.smtp.receiving.contract import Client, ConnectorOptions, Delayed
from shadowrelay.wire.replies import MAX_REPLY_LINE, Reply, encoded

log = structlog.get_logger(__name__)

UNKNOWN_COMMAND = Reply(500, "5.5.2", "Command not recognised")
LINE_TOO_LONG = Reply(500, "5.5.2", "Command line too long")
NOT_UTF8 = Reply(500, "5.5.2", "Command line is not UTF-8")
BARE_LINE_END = Reply(500, "5.5.2", "Command line must end in CRLF")
BAD_CHARACTER = Reply(501, "5.5.2", "Control character in command")
TOO_MANY_COMMANDS = Reply(421, "4.7.0", "Too many commands without a message, closing connection")
TOO_MANY_ERRORS = Reply(421, "4.7.0", "Too many errors, closing connection")

OK = Reply(250, "2.0.0", "OK")
GREETING_NEEDED = Reply(503, "5.5.1", "Say hello first")
MAIL_NEEDED = Reply(503, "5.5.1", "MAIL needed first")

_OURS = {
    "250 OK": OK,
    "221 Bye": Reply(221, "2.0.0", "Bye"),
    "503 Error: send HELO first": GREETING_NEEDED,
    "503 Error: send EHLO first": GREETING_NEEDED,
    "503 Error: need MAIL command": MAIL_NEEDED,
    **dict.fromkeys(
        ("501 Syntax: MAIL FROM: <address>", "501 Syntax: MAIL FROM: <address> [SP <mail-parameters>]"),
        Reply(501, "5.5.4", "Syntax: MAIL FROM:<address>"),
    ),
    **dict.fromkeys(
        ("501 Syntax: RCPT TO: <address>", "501 Syntax: RCPT TO: <address> [SP <mail-parameters>]"),
        Reply(501, "5.5.4", "Syntax: RCPT TO:<address>"),
    ),
}

_ENHANCED = {
    214: "2.0.0", 235: "2.7.0", 252: "2.0.0", 500: "5.5.2", 501: "5.5.4", 502: "5.5.1", 503: "5.5.1",
    504: "5.5.4", 530: "5.7.0", 535: "5.7.8", 538: "5.7.11", 552: "5.3.4", 553: "5.1.3", 554: "5.7.0",
    555: "5.5.4", 421: "4.7.0", 454: "4.7.0",
}  # fmt: skip

TURN = 64
"""Commands of one client that are served before others have a turn, however many it sends at once."""

_GROUPED = frozenset({"MAIL", "RCPT", "RSET"})
"""Verbs whose replies may wait for those of the commands behind them (RFC 2920 section 3.2). No reply to a
content does: the next command may take long, and the client would send again what was taken."""

_FORWARD = frozenset({"RCPT", "DATA", "STARTTLS", "QUIT"})  # BDAT too, if it has octets
_PROTOCOL_ERRORS = frozenset({500, 501, 502, 503, 504, 535, 538, 555})
USUAL = re.compile(rb"([A-Za-z]+)(?: ([!-~](?:[ -~]*[!-~])?))?\r\n")
"""A command line as nearly all are: printable ASCII, one space behind the verb, none at the end."""
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")


class Served(Protocol):
    """A session, as its conversation needs it."""

    client: Client
    verbs: Mapping[str, Callable[[str], Awaitable[None]]]  # that the library does not serve
    always: ClassVar[frozenset[str]]  # verbs that any client may use

    @property
    def transaction(self) -> object | None:
        """The one that is under way."""
        ...

    def knows(self, verb: str) -> bool:
        """Whether this client may use a verb; else it is unknown."""
        ...

    async def handle_exception(self, error: Exception) -> Reply:
        """The reply to a command that raised an error."""
        ...

    def decorate(self, reply: Reply) -> Reply:
        """Every reply but the greeting and the answer to EHLO passes here."""
        ...


class Conversation:
    """Takes commands and gives replies, for the one task of its session; ``drain`` and ``expire`` may come
    from others. ``limits``: octets of a command line, by verb. ``lost`` is set when the client is gone.
    """

    def __init__(
        self,
        session: Served,
        duplex: Duplex,
        options: ConnectorOptions,
        limits: Mapping[str, int],
        lost: asyncio.Event,
    ) -> None:
        self.verb = self.argument = ""  # of the command that is served
        self.junk = 0  # commands since the last message
        self._session, self._duplex, self._options = session, duplex, options
        self._limits, self._longest_command = limits, max(limits.values())
        # Octets of a line of a reply, at most: what the other end must take.
        self.longest_reply = max(MAX_REPLY_LINE, options.max_command_line)
        self._lost = lost
        self._leaving = self._draining = self._busy = self._grouped = False
        self._errors = self._served = 0

    # How it ends

    def drain(self) -> None:
        """Leave as soon as no transaction is under way. A login is none, and its next line may take long."""
        self._draining = True
        if self._session.transaction is None and (not self._busy or self.verb == "AUTH"):
            self._duplex.interrupt(Why.STOPPING)

    def expire(self) -> None:
        """Leave now, unless a message is being committed: then right after its reply."""
        self._draining = True
        self._duplex.interrupt(Why.STOPPING)

    async def leave(self, reply: Reply) -> None:
        """Say why, and close."""
        self._leaving = True
        self.write(self._session.decorate(reply))
        await self._duplex.linger(LINGER)

    def hang_up(self) -> None:
        """Close without a reply to what was asked last."""
        self._leaving = True

    # Commands

    async def next_command(self) -> bytes:
        """The next command for the library. A verb that is ours is served before: the library's loop would
        look once more for all that is looked for here. Lines that it must not see are answered.
        """
        duplex = self._duplex
        while True:
            self._busy = False
            if duplex.output and (not self._grouped or self._served == TURN):
                await duplex.flush()
            if self._leaving:
                raise Interrupted(Why.OVER)
            if self._draining and self._session.transaction is None:
                raise Interrupted(Why.STOPPING)
            if self._served == TURN:  # commands that are here already never make this task wait
                self._served = 0
                await asyncio.sleep(0)
            self._served += 1
            line = await duplex.read_line(self._longest_command)
            self._busy = True
            refusal = LINE_TOO_LONG if line is None else self._refused(line)
            if refusal is not None:
                await (self.leave(refusal) if refusal is TOO_MANY_COMMANDS else self.answer(refusal))
            elif (serve := self._session.verbs.get(self.verb)) is not None:
                try:
                    await serve(self.argument)
                except Exception as error:
                    await self.answer(await self._session.handle_exception(error))
            elif line is not None:
                return line[:-2].rstrip(b" \t")

    def _refused(self, line: bytes) -> Reply | None:
        """The reply that refuses the command; None: its verb and argument are these now."""
        self._grouped, options = False, self._options
        if usual := USUAL.fullmatch(line):
            verb, argument = str(usual[1], "ascii").upper(), str(usual[2] or b"", "ascii")
        elif isinstance(found := any_words(line), Reply):
            return found
        else:
            verb, argument = found
        self.verb, self.argument = verb, argument
        self._grouped = verb in _GROUPED
        if len(line) > options.max_command_line and len(line) > self._limits[verb]:
            return LINE_TOO_LONG
        if verb not in self._session.always and not self._session.knows(verb):
            return UNKNOWN_COMMAND
        if usual is None and _CONTROL.search(argument):
            return BAD_CHARACTER
        # What brings no message forward is junk: a client that sends a hundred of them only costs time. RCPT
        # never is: a client that goes on after 452 has to keep the recipients that were taken before.
        junk = argument.startswith("0") if verb == "BDAT" else verb not in _FORWARD
        if junk and options.max_junk_commands is not None:
            self.junk += 1
            if self.junk > options.max_junk_commands:
                client = self._session.client
                log.info("session_ended_by_junk", session=client.id, client=client.address)
                return TOO_MANY_COMMANDS
        return None

    # Replies

    async def push(self, status: Reply | bytes | str) -> None:
        """Reply as the library does, in our words. Octets leave as they are."""
        if isinstance(status, Reply):
            await self.answer(status)
        elif isinstance(status, bytes):
            self._duplex.write(status + b"\r\n")
        elif status.startswith("220 "):  # the greeting
            self.write(in_our_words(status))
        else:
            await self.answer(in_our_words(status))

    async def answer(self, reply: Reply) -> None:
        """Reply to a command. Permanent refusals are slow, and too many protocol errors end the session."""
        if reply.code in _PROTOCOL_ERRORS:
            self._errors += 1
            if self._errors > self._options.max_protocol_errors:
                client = self._session.client
                log.info("session_ended_by_errors", session=client.id, client=client.address)
                return await self.leave(TOO_MANY_ERRORS)
        if reply.code >= 500 and self._options.tarpit_interval:
            await self._tarpit(self._options.tarpit_interval.total_seconds())
        self._duplex.output += encoded(self._session.decorate(reply), self.longest_reply)
        return None

    async def say_late(self, delayed: Delayed) -> None:
        """Say replies that wait, whatever becomes of the wait.

        A client that closed its direction before the wait began still reads. One that closes it meanwhile has
        given up, as far as we can know: then the replies count as not said.
        """
        duplex, said = self._duplex, False
        try:
            await duplex.flush()  # what was said before need not wait
            there, over = duplex.over, self._lost.is_set() or duplex.interrupted
            duplex.told = delayed.hasten
            await delayed.wait(0.0 if over else duplex.left)
            duplex.told = None
            for reply in delayed.replies:
                await self.answer(reply)
            await duplex.flush()
            said = not self._lost.is_set() and (there or not duplex.over)
        finally:
            duplex.told = None
            delayed.over(said=said)

    def write(self, reply: Reply) -> None:
        """Put a reply, as it is, among those that leave at the next flush."""
        self._duplex.output += encoded(reply, self.longest_reply)

    async def _tarpit(self, seconds: float) -> None:
        await self._duplex.flush()
        try:
            async with asyncio.timeout(seconds):
                await self._lost.wait()
        except TimeoutError:
            return
        raise Interrupted(Why.GONE)


def any_words(line: bytes) -> tuple[str, str] | Reply:
    """Verb and argument of a command line of any form, or the reply that refuses it."""
    if not line.endswith(b"\r\n") or b"\r" in line[:-2]:
        return BARE_LINE_END
    try:
        verb, _, argument = line[:-2].rstrip(b" \t").decode("utf-8").partition(" ")
    except UnicodeDecodeError:
        return NOT_UTF8
    if not verb.isascii():  # ``upper`` could make it ASCII
        return UNKNOWN_COMMAND
    return verb.upper(), argument.lstrip(" \t")


@lru_cache(maxsize=256)
def in_our_words(status: str) -> Reply:
    """A reply of the library: with an enhanced code, and the code that the RFC has for it."""
    if status in _OURS:
        return _OURS[status]
    code, text = int(status[:3]), status[4:]
    if code == 250:  # HELP, for which RFC 5321 has a code of its own
        code, text = 214, text.removeprefix("Supported commands: ")
    enhanced = _ENHANCED.get(code)
    if enhanced and text.startswith(f"{enhanced[0]}."):
        enhanced, _, text = text.partition(" ")
    return Reply(code, enhanced, text)
