"""The mail transaction, and what aiosmtpd calls at each verb: from its words to those of a Receiver."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Protocol

from aiosmtpd.proxy_protocol import ProxyData
from aiosmtpd.smtp import Envelope, Session

from shadowrelay.smtp.duplex import Interrupted, Why
from shadowrelay.smtp.receiving.content import Body, ContentCheck
from shadowrelay.smtp.receiving.contract import Client, ConnectorOptions, Receiver, Service
from shadowrelay.smtp.receiving.conversation import OK
from shadowrelay.wire.esmtp import MailFrom, RcptTo
from shadowrelay.wire.replies import Reply

SENDER_OK = Reply(250, "2.1.0", "Sender OK")
RECIPIENT_OK = Reply(250, "2.1.5", "Recipient OK")
TOO_MANY_RECIPIENTS = Reply(452, "4.5.3", "Too many recipients")
BYE = Reply(221, "2.0.0", "Bye")


class MailTransaction(Envelope):
    """From MAIL to the reply after the content; before MAIL, an empty one.

    ``chunking``: a chunk came. ``failed`` answers all chunks behind one that was refused.
    """

    def __init__(self, options: ConnectorOptions) -> None:
        super().__init__()
        self.mail: MailFrom
        self.recipients: list[RcptTo] = []
        self.refused = 0
        self.body: Body | None = None
        self.chunking = False
        self.failed: Reply | None = None
        self._options = options

    def lacks(self) -> Reply | None:
        """The reply that refuses content, if no recipient would get it."""
        if self.recipients:
            return None
        if self.refused:
            # LMTP has a code of its own for it: a reply for each recipient would follow (RFC 2033 4.2).
            return Reply(503 if self._options.lmtp else 554, "5.5.1", "No valid recipients")
        return Reply(503, "5.5.1", "RCPT needed first")

    @property
    def asked(self) -> bool:
        """Whether a recipient was named, accepted or not."""
        return bool(self.recipients or self.refused)

    @property
    def replies_due(self) -> int:
        """After the content: LMTP has a reply for each recipient (RFC 2033 section 4.2)."""
        return max(1, len(self.recipients)) if self._options.lmtp else 1

    async def open(self, receiver: Receiver, client: Client) -> Body | Reply:
        """The body that takes the content, or the reply that refuses it. Raises what the receiver raises."""
        options = self._options
        sink = await receiver.content(client, self.mail, tuple(self.recipients))
        if isinstance(sink, Reply):
            return sink
        check = ContentCheck(
            most=options.max_message_size,
            most_header=options.max_header_size,
            most_line=options.max_text_line,
            pairs=options.line_ends_checked,
        )
        self.body = Body(sink, check)
        return self.body


class Hooked(Protocol):
    """A session, as the hooks need it."""

    client: Client
    options: ConnectorOptions
    receiver: Receiver

    async def proxied(self, header: ProxyData) -> bool: ...

    async def greeted(self, service: Service, name: str) -> bytes: ...

    async def forget(self) -> None: ...

    @property
    def answer(self) -> Callable[[Reply], Awaitable[None]]: ...


class Hooks:
    """One object for all sessions. Static methods, for a bound one would be made for each session."""

    def __dir__(self) -> list[str]:
        return _NAMES

    @staticmethod
    async def handle_PROXY(
        server: Hooked, session: Session, envelope: MailTransaction, header: ProxyData
    ) -> bool:
        del session, envelope
        return await server.proxied(header)

    @staticmethod
    async def handle_HELO(server: Hooked, session: Session, envelope: MailTransaction, name: str) -> bytes:
        del envelope
        session.host_name = name
        return await server.greeted("SMTP", name)

    @staticmethod
    async def handle_EHLO(
        server: Hooked, session: Session, envelope: MailTransaction, name: str, offered: list[str]
    ) -> list[bytes]:
        del envelope, offered
        session.host_name = name
        return [await server.greeted("LMTP" if server.options.lmtp else "ESMTP", name)]

    @staticmethod
    async def handle_RSET(server: Hooked, session: Session, envelope: MailTransaction) -> Reply:
        del session, envelope
        await server.forget()
        return OK

    @staticmethod
    async def handle_QUIT(server: Hooked, session: Session, envelope: MailTransaction) -> Reply:
        """The library would cancel its own task after its reply."""
        del session, envelope
        await server.answer(BYE)
        raise Interrupted(Why.OVER)


# The library's constructor looks at the hooks for every session; this spares it most of that.
_NAMES = [name for name in vars(Hooks) if name.startswith("handle_")]
Hooks.handle_EHLO.__signature__ = inspect.signature(Hooks.handle_EHLO)  # type: ignore[attr-defined]
HOOKS = Hooks()
