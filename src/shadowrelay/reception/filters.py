"""The filters of one message: asked in turn at MAIL, at RCPT and behind the content; and what they change.

A filter that fails, in whatever way, is *down* for this message: by its setting the message is put off, or
taken as if that filter had not been asked at all.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

import structlog

from shadowrelay import __version__
from shadowrelay.core.values import dataclass
from shadowrelay.reception.changes import FilteredMessage
from shadowrelay.reception.filter_watch import FilterWatch
from shadowrelay.smtp.filters.codec import Ruling, Said
from shadowrelay.smtp.filters.session import (
    CONTINUE,
    Budget,
    FilterFailed,
    FilterOptions,
    FilterSession,
    Peer,
)
from shadowrelay.smtp.receiving.contract import Client
from shadowrelay.wire.esmtp import MailFrom, RcptTo, format_mail, format_rcpt
from shadowrelay.wire.replies import Reply

log = structlog.get_logger(__name__)

DOWN = Reply(451, "4.7.1", "Mail cannot be checked for now, try again later")
REJECTED = Reply(550, "5.7.1", "Refused by policy")
PUT_OFF = Reply(451, "4.7.1", "Put off by policy, try again later")

_OFFERED = frozenset({"SIZE", "8BITMIME", "SMTPUTF8", "DSN", "AUTH"})

T = TypeVar("T")

Put = Callable[[FilterSession], Awaitable[Ruling]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Filtering:
    """The filters of a connector in their order, and how many seconds all of them together may take.
    ``watches``: of each filter, by its name.
    """

    filters: tuple[FilterOptions, ...]
    watches: Mapping[str, FilterWatch]
    most: float
    own: str
    connector: str


@dataclass(frozen=True, slots=True)
class Filtered:
    """What became of a message. ``reply``: it is not taken. ``discarded``: by that filter."""

    message: FilteredMessage
    reply: Reply | None = None
    discarded: str = ""


class FilterChain:
    """The filters of one transaction, from MAIL on. ``close`` follows in any case."""

    def __init__(self, filtering: Filtering, client: Client, mail: MailFrom) -> None:
        self._filtering = filtering
        self._client = client
        self._mail = mail
        self._budget = Budget(filtering.most)
        self._asked: list[FilterSession] = []
        self._took: dict[str, float] = {}  # seconds, by filter
        self._failed = False  # a filter without which no mail is taken is down
        self.unfiltered: list[str] = []  # filters that are down, and without which mail is taken
        self.discarded = ""  # by which filter

    async def begin(self) -> Reply | None:
        """Open a session with each filter, and tell of client and sender. The reply that refuses MAIL."""
        client, known = self._client, self._of_client()
        peer = Peer(client.address, client.port)
        helo, mail = known | _of_tls(client), known | _of_mail(client, self._mail)
        words = _words(format_mail(self._mail, _OFFERED), f"<{self._mail.sender}>")

        async def told(session: FilterSession) -> Ruling:
            await session.open()
            said = await session.client(peer, known)
            if said.said is Said.CONTINUE:
                said = await session.helo(client.helo, helo)
            return await session.mail(words, mail) if said.said is Said.CONTINUE else said

        self._asked = [FilterSession(one, self._budget) for one in self._filtering.filters]
        return await self._each(told)

    async def rcpt(self, rcpt: RcptTo) -> Reply | None:
        """The reply that refuses this recipient."""
        words = _words(format_rcpt(rcpt, _OFFERED), f"<{rcpt.address}>")
        local, _, domain = rcpt.address.rpartition("@")
        known = {"{rcpt_addr}": rcpt.address, "{rcpt_host}": domain if local else "", "{rcpt_mailer}": "smtp"}
        return await self._each(lambda session: session.rcpt(words, known))

    async def content(self, message: FilteredMessage, known: Mapping[str, str]) -> Filtered:
        """Show the message to each filter, as those before it left it. Raises OSError of the spool."""
        for session in list(self._asked):
            if self.discarded or self._failed:
                break
            if session.over:
                continue
            replaced = message.replacement()
            shown = session.content(message.shown(), message.body(), known, replaced.write)
            try:
                said, edits = await self._timed(session, shown)
                if said.said in (Said.CONTINUE, Said.ACCEPT):
                    message = message.changed(edits, replaced)
                self._watch(session).decided()
            except (FilterFailed, ValueError) as failed:
                replaced.spool.discard()
                said = self._down(session, failed)
            except BaseException:
                replaced.spool.discard()
                raise
            if reply := self._reply(session, said):
                return Filtered(message, reply)
        return Filtered(message, DOWN if self._failed else None, self.discarded)

    def close(self) -> None:
        for session in self._asked:
            session.close()
        self._asked.clear()
        for name, seconds in self._took.items():
            self._filtering.watches[name].seconds.observe(seconds)
        self._took.clear()

    def taken(self) -> None:
        """The message is committed, perhaps without some of the filters."""
        for name in self.unfiltered:
            self._filtering.watches[name].unfiltered += 1

    def _watch(self, session: FilterSession) -> FilterWatch:
        return self._filtering.watches[session.options.name]

    async def _timed(self, session: FilterSession, what: Awaitable[T]) -> T:
        left = self._budget.left
        try:
            return await what
        finally:
            name = session.options.name
            self._took[name] = self._took.get(name, 0.0) + left - self._budget.left

    async def _each(self, step: Put) -> Reply | None:
        for session in self._asked:
            if self.discarded or self._failed:
                break
            if session.over:
                continue
            try:
                said = await self._timed(session, step(session))
                if said.said is not Said.CONTINUE:
                    self._watch(session).decided()
            except FilterFailed as failed:
                said = self._down(session, failed)
            if reply := self._reply(session, said):
                return reply
        return DOWN if self._failed else None

    def _down(self, session: FilterSession, failed: Exception) -> Ruling:
        options = session.options
        log.warning(
            "filter_down",
            filter=options.name,
            connector=self._filtering.connector,
            session=self._client.id,
            error=str(failed),
            taken=options.accepts_when_down,
        )
        self._watch(session).failed(str(failed), taken=options.accepts_when_down)
        session.close()
        if options.accepts_when_down:
            self.unfiltered.append(options.name)
            return CONTINUE
        self._failed = True
        return Ruling(Said.REPLY, DOWN)

    def _reply(self, session: FilterSession, said: Ruling) -> Reply | None:
        match said.said:
            case Said.REJECT:
                reply = REJECTED
            case Said.TEMPFAIL:
                reply = PUT_OFF
            case Said.REPLY:
                reply = said.reply or REJECTED
            case Said.DISCARD:
                self.discarded = session.options.name
                return None
            case _:
                return None
        if reply is not DOWN:
            log.info("filter_refused", filter=session.options.name, session=self._client.id, reply=str(reply))
        return reply

    def _of_client(self) -> dict[str, str]:
        """The macros of Postfix's lists that are about the connection."""
        client, of = self._client, self._filtering
        host, port = client.local
        return {
            "j": of.own,
            "v": f"shadowrelay {__version__}",
            "_": f"unknown [{client.address}]",
            "{daemon_name}": of.connector,
            "{daemon_addr}": host,
            "{daemon_port}": str(port or ""),
            "{client_addr}": client.address,
            "{client_name}": "unknown",
            "{client_ptr}": "unknown",
            "{client_port}": str(client.port or ""),
        }


def _words(command: bytes, path: str) -> list[str]:
    """The path, and each parameter. A path may have spaces in quotes."""
    _, _, rest = command.decode().partition(":")
    return [path, *rest.removeprefix(path).split()]


def _of_tls(client: Client) -> dict[str, str]:
    return {"{tls_version}": client.tls_version}


def _of_mail(client: Client, mail: MailFrom) -> dict[str, str]:
    local, _, domain = mail.sender.rpartition("@")
    return {
        **_of_tls(client),
        "{auth_authen}": client.login,
        "{auth_type}": client.mechanism,
        "{mail_addr}": mail.sender,
        "{mail_host}": domain if local else "",
        "{mail_mailer}": "smtp",
    }
