"""The contract of a Receive connector: what the stages that take mail in are told, and what they answer.

A connector speaks SMTP or LMTP and decides nothing but syntax and limits. For each transaction it calls a
Receiver: ``mail``, ``rcpt`` per recipient, ``content`` once, and then the Sink that this returned.
"""

from __future__ import annotations

import ssl
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Literal, Protocol, TypeAlias

from shadowrelay.core.reception.users import Verifier
from shadowrelay.core.values import dataclass
from shadowrelay.wire.esmtp import COMMAND_LINE, MailFrom, RcptTo
from shadowrelay.wire.networks import Networks
from shadowrelay.wire.replies import Reply

Service: TypeAlias = Literal["SMTP", "ESMTP", "LMTP"]


@dataclass(frozen=True, slots=True)
class Client:
    """Facts about a session. A new one replaces it at EHLO and STARTTLS; ``id`` stays."""

    id: str
    connector: str
    address: str  # of the client, '' when unknown
    port: int = 0
    local: tuple[str, int] = ("", 0)
    helo: str = ""
    tls: bool = False
    certificate: Mapping[str, Any] | None = None  # verified; as ssl.SSLSocket.getpeercert() returns it
    service: Service = "SMTP"  # as which it greeted us
    login: str = ""  # the user who logged in, '' for nobody
    mechanism: str = ""  # by which that user logged in
    tls_version: str = ""  # such as TLSv1.3

    def protocol(self, *, smtputf8: bool) -> str:
        """How a message came, for its Received field (RFC 3848, RFC 6531 section 4.3)."""
        name = "UTF8" + self.service.removeprefix("E") if smtputf8 else self.service
        return name + ("S" if self.tls else "") + ("A" if self.login else "")


class Logins(Protocol):
    """Who may log in (RFC 4954), by name and password."""

    @property
    def offered(self) -> bool:
        """Whether there are users. Without them AUTH is an unknown command."""
        ...

    @property
    def scram(self) -> bool:
        """Whether SCRAM-SHA-256 is offered."""
        ...

    def verifier(self, name: str) -> Verifier:
        """What SCRAM keeps of the user's password; an unknown name has something that nobody can prove."""
        ...

    def proven(self, session: Client, name: str, *, right: bool) -> None:
        """Called once with the outcome of each exchange of SCRAM that came to a proof."""
        ...

    async def check(self, session: Client, name: str, password: bytes) -> bool:
        """Whether this is the user's password. An unknown name takes as long as a wrong password.

        May raise Refused when it cannot tell at the moment. It is cancelled when the client has gone.
        """
        ...


class Hangup:
    """Closes the connection without a reply to the message: the client cannot know its fate, and retries."""

    __slots__ = ()


class Delayed(ABC):
    """Replies that wait, though what they say is durable already. They are said in the end, or the connection
    ends without them: no other reply may take their place (RFC 5321 section 4.2.5).
    """

    __slots__ = ("replies",)

    def __init__(self, replies: Sequence[Reply]) -> None:
        self.replies = replies

    @abstractmethod
    async def wait(self, most: float | None) -> None:
        """Return when the replies are due, or after ``most`` seconds (None: no limit but its own)."""

    @abstractmethod
    def hasten(self) -> None:
        """End the wait: the client is gone, or the session has to end."""

    @abstractmethod
    def over(self, *, said: bool) -> None:
        """Called once, behind the wait. ``said``: the replies left for a client that was there."""


class Sink(Protocol):
    """One message's content, exactly as the client meant it: dot-unstuffed, CRLF line ends, nothing added.

    Exactly one of ``finish`` and ``abort`` is called, once, and nothing after it.
    """

    async def write(self, data: bytes) -> None:
        """Take the next octets; the client waits meanwhile.

        May raise Refused: ``abort`` follows, the rest is read and thrown away, and that reply is sent. Any
        other exception is answered 451 4.3.0 in the same way.
        """
        ...

    async def finish(self) -> Sequence[Reply] | Hangup | Delayed:
        """The content is complete. SMTP: one reply; LMTP: one for each accepted recipient, in order.

        It runs to its end even if the client is gone. An exception counts as a Hangup: nobody
        knows what has been kept, so no reply would be true.
        """
        ...

    async def abort(self) -> None:
        """Keep nothing: the connection was lost before the end, or the content is refused."""
        ...


class Receiver(Protocol):
    """Takes mail in on one connector. Any method may raise Refused instead of returning the reply."""

    async def mail(self, session: Client, mail: MailFrom) -> Reply | None:
        """Begin a transaction. None is ``250 2.1.0``; after a negative reply none has begun."""
        ...

    async def rcpt(
        self, session: Client, mail: MailFrom, rcpt: RcptTo, accepted: Sequence[RcptTo]
    ) -> Reply | None:
        """Judge one recipient. None is ``250 2.1.5``."""
        ...

    async def content(self, session: Client, mail: MailFrom, recipients: Sequence[RcptTo]) -> Sink | Reply:
        """Called before the 354, or at the first BDAT; a negative reply ends the transaction."""
        ...

    async def reset(self, session: Client) -> None:
        """Forget the transaction: it ended without ``Sink.finish`` (RSET, EHLO, refusal, disconnection)."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RateLimits:
    """The most in a minute, of one network, or of one user who logged in; None means no limit."""

    connections: int | None = None  # of a network, whoever logs in then
    messages: int | None = None
    recipients: int | None = None
    user_messages: int | None = None
    user_recipients: int | None = None
    ipv4_prefix: int = 32  # bits of what counts as one network
    ipv6_prefix: int = 64


class Pressed(Protocol):
    presses: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectorOptions:
    """All that can be set on a Receive connector; sizes are octets, None means no limit.

    Raises ValueError when the inactivity timeout is not the smaller one.
    """

    hostname: str
    host: str = "127.0.0.1"
    port: int = 0  # 0: any free one
    name: str = "default"
    greeting: str = "ESMTP"
    lmtp: bool = False
    tls: ssl.SSLContext | None = None  # STARTTLS is offered, unless TLS is implicit
    implicit_tls: bool = False
    requiretls: bool = False  # offered under TLS (RFC 8689)
    connection_timeout: timedelta | None = timedelta(minutes=10)
    inactivity_timeout: timedelta = timedelta(minutes=5)  # also the most that one command line may take
    data_timeout: timedelta = timedelta(minutes=10)  # for one DATA, or one BDAT
    tarpit_interval: timedelta = timedelta(seconds=5)  # before each 5yz reply
    max_protocol_errors: int = 5
    max_junk_commands: int | None = 100  # between two messages; those that bring none forward
    max_inbound_connections: int | None = 5000
    max_inbound_connections_per_source: int | None = 20
    rates: RateLimits | None = None
    max_recipients_per_message: int = 200
    max_message_size: int = 36 * 1024 * 1024
    max_header_size: int = 256 * 1024
    max_text_line: int | None = 1000  # CRLF included
    any_dots: bool = False  # local parts such as user..name are taken
    line_ends_checked: bool = True  # a CR or LF that stands alone in the content is refused
    max_command_line: int = COMMAND_LINE  # CRLF included; extended per verb by its parameters
    logins: Logins | None = None  # AUTH is offered where TLS is active
    proxy_networks: Networks = ()  # their connections begin with a PROXY header
    xclient_networks: Networks = ()  # hosts that may say for which client they speak
    proxy_timeout: timedelta = timedelta(seconds=5)  # for that header
    pressed: Pressed | None = None  # while it presses, MAIL may have to wait

    def __post_init__(self) -> None:
        if self.connection_timeout is not None and self.inactivity_timeout >= self.connection_timeout:
            raise ValueError("the inactivity timeout must be smaller than the connection timeout")
        if self.implicit_tls and self.tls is None:
            raise ValueError("implicit TLS needs a certificate")
        if self.implicit_tls and self.proxy_networks:
            raise ValueError("a PROXY header cannot come before implicit TLS")
