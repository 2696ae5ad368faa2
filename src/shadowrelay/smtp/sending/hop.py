"""What is said about a next hop: the server, its password and deadlines, and what it made of a message."""

from __future__ import annotations

import asyncio
import base64
import re
import ssl
import stat
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Literal

from shadowrelay.core.delivery.hop_shadows import Tracker
from shadowrelay.core.delivery.settling import Ending
from shadowrelay.core.delivery.tls_policy import ANYTHING, FailedTls, WantedTls, stricter
from shadowrelay.core.identifiers import NextHop, ServerName
from shadowrelay.core.values import dataclass, replace
from shadowrelay.wire import addresses
from shadowrelay.wire.networks import Networks, within
from shadowrelay.wire.replies import Reply

SessionStep = Literal[
    "dns",
    "connect",
    "greeting",
    "ehlo",
    "tls",
    "auth",
    "xshadow",
    "mail",
    "rcpt",
    "data",
    "rset",
    "xqdiscard",
]

MechanismName = Literal["plain", "login", "cram-md5", "xoauth2"]

_LONGEST_TEXT = 600
_LOG_IN = frozenset({530, 534, 535, 538})
"""These ask for a login, for TLS, or for another mechanism (RFC 4954 section 6, RFC 3207 section 4): they are
about us, and not about the message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """Seconds that one step may take, whole replies included; the defaults are those of RFC 5321 4.5.3.2.

    ``connect`` is for each address of a host. ``idle``: how long a session may wait for mail.
    """

    connect: float = 30.0
    tls: float = 30.0
    greeting: float = 300.0
    ehlo: float = 300.0
    auth: float = 300.0
    mail: float = 300.0
    rcpt: float = 300.0
    data: float = 120.0
    block: float = 180.0
    final_dot: float = 600.0
    quit: float = 5.0
    idle: float = 600.0

    @classmethod
    def within(cls, silence: float) -> Timeouts:
        """The next hop may be silent for so long, and at no step but the last for longer than RFC 5321 asks.

        The answer to the final dot is the last step: a server may need the time, and a session given up there
        may make a duplicate (RFC 5321 4.5.3.2.6).
        """
        usual = cls()
        shorter = {name: min(getattr(usual, name), silence) for name in cls.__slots__}
        return cls(**shorter | {"final_dot": silence, "idle": silence})


@dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    """Our name at a next hop (RFC 4954). The password stays in its file until it is sent.

    ``without_tls``: it may be sent in clear text, or to a server whose certificate is not verified.
    """

    username: str
    password_file: Path
    mechanism: MechanismName = "plain"
    without_tls: bool = False


@dataclass(frozen=True, slots=True)
class Pinned:
    """The hops that a route may tell to track: their certificates (DER), each with the hop's name; and the
    certificate that shows them who we are, with its key (paths of PEM files). ``hosts``: of some
    certificates, the only host that may show them. ``secured``: hops that are believed at addresses of these
    networks, without a certificate.
    """

    peers: Mapping[bytes, ServerName]
    certificate: Path | None
    key: Path | None
    hosts: Mapping[bytes, str] = field(default_factory=dict)
    secured: Mapping[ServerName, Networks] = field(default_factory=dict)

    @property
    def names(self) -> frozenset[ServerName]:
        return frozenset((*self.peers.values(), *self.secured))

    def at(self, host: str) -> Pinned | None:
        """Those that this host may show; None if nothing is known of it: it is any other host."""
        peers = {shown: name for shown, name in self.peers.items() if self.hosts.get(shown, host) == host}
        known = Pinned(peers, self.certificate, self.key, secured=self.secured)
        return known if known.names else None

    def believed(self, address: str) -> ServerName | None:
        """The hop at that address that needs no certificate."""
        return next((name for name, where in self.secured.items() if within(address, where)), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class NextHopServer:
    """One server that takes mail for a next hop. A ``host`` that begins with a slash is a Unix socket.

    ``inside`` says that it belongs to the boundary. ``opportunistic`` encrypts without asking who answers
    (RFC 7435) and falls back to clear text; ``required`` verifies the certificate against ``ca_file`` (None:
    the system's authorities) and, with ``check_hostname``, its name, and never falls back.

    ``pinned``: where STARTTLS is offered, the server must show one of these certificates, octet for octet;
    authorities and names then do not matter, and there is no falling back.

    ``wanted``: what the world says of this host (DANE, MTA-STS), beside what the settings say in ``tls``.
    """

    name: NextHop
    host: str
    port: int
    local_hostname: str
    protocol: Literal["smtp", "lmtp"] = "smtp"
    inside: bool = False
    tls: Literal["none", "opportunistic", "required"] = "opportunistic"
    ca_file: str | None = None
    check_hostname: bool = True
    login: Login | None = None
    pinned: Pinned | None = None
    wanted: WantedTls = ANYTHING
    timeouts: Timeouts = field(default_factory=Timeouts)

    def __post_init__(self) -> None:
        if not (addresses.is_domain(self.local_hostname) or addresses.is_literal(self.local_hostname)):
            raise ValueError("local_hostname is a domain name or an address literal")
        if self.login and self.tls != "required" and not self.login.without_tls:
            raise ValueError("a password is said under verified TLS only")

    @property
    def shows_pinned(self) -> bool:
        """Whether the server is to show a pinned certificate."""
        return self.pinned is not None and bool(self.pinned.peers)

    @property
    def verified(self) -> bool:
        """Whether each session with it is encrypted, and has shown who answers."""
        if self.wanted.never_clear and self.wanted.kind != "encrypted":
            return True
        return self.tls == "required" and (self.check_hostname or self.shows_pinned)

    @property
    def is_final(self) -> bool:
        """Whether mail has arrived there: a mailbox inside the boundary, or a Unix socket of this machine.
        What RFC 8689 asks of relays ends there (4.4).
        """
        return self.protocol == "lmtp" and (self.inside or self.host.startswith("/"))

    def requiring(self, *, found: bool) -> NextHopServer | None:
        """The server as mail with REQUIRETLS wants it (RFC 8689 4.2.1): verified, by its name too. None: it
        may not be asked. ``found``: in the DNS, so that nobody knows whether it is the domain's.
        """
        if found:
            if (asked := stricter(self.wanted)) is None:
                return None
            return self if asked is self.wanted else replace(self, wanted=asked)
        if self.verified:
            return self
        return None if self.tls == "none" else replace(self, tls="required", check_hostname=True)


@dataclass(slots=True)
class Awaited:
    """What a session waits for at this moment, and since when on the loop's clock. '' if for nothing."""

    what: SessionStep | Literal["content", "final dot", ""] = ""
    since: float = 0.0
    _loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)

    def begin(self, what: SessionStep | Literal["content", "final dot"]) -> None:
        """The session now waits for ``what``."""
        self.what, self.since = what, self._loop.time()

    def end(self) -> None:
        """The session waits for nothing."""
        self.what = ""


@dataclass(frozen=True, slots=True)
class RecipientResult:
    """``reply`` is one line such as ``250 2.1.5 ok``; ``remote``: the next hop said it; if not, we did."""

    number: int
    ending: Ending
    reply: str
    remote: bool = True


def one_line(reply: Reply) -> str:
    """The reply as it is kept: one printable line of at most 600 characters."""
    return str(reply)[:_LONGEST_TEXT]


def refused(number: int, reply: Reply) -> RecipientResult:
    """A reply other than 2yz before the content, or 4yz or 5yz to it: 5yz rejects, anything else defers.

    A code out of place (3yz to RCPT, say) is the hop's error, and one that asks for a login is about us: both
    defer.
    """
    for_good = reply.permanent and reply.code not in _LOG_IN
    ending = Ending.REJECTED if for_good else Ending.DEFERRED
    return RecipientResult(number, ending, one_line(reply))


def final(number: int, reply: Reply) -> RecipientResult:
    """The reply to the final dot. One that is out of place (3yz) cannot be read as an answer."""
    if reply.positive:
        ending = Ending.DUPLICATE if reply.duplicate else Ending.ACCEPTED
        return RecipientResult(number, ending, one_line(reply))
    if reply.transient or reply.permanent:
        return refused(number, reply)
    return unread(number, one_line(reply))


def lost(number: int, step: str, said: str = "") -> RecipientResult:
    """The session ended before the final dot was written: not taken, to be tried again. ``said``: the
    server's own text, if it was no reply.
    """
    text = _with(f"451 4.4.2 Session lost at {step}", said)
    return RecipientResult(number, Ending.DEFERRED, text, remote=False)


def in_doubt(number: int) -> RecipientResult:
    """The session ended between the final dot and its reply, of which nothing came."""
    text = "451 4.4.2 Session lost after the final dot"
    return RecipientResult(number, Ending.IN_DOUBT, text, remote=False)


def unread(number: int, said: str) -> RecipientResult:
    """Something came after the final dot that is no answer: ``said``."""
    text = _with("451 4.5.0 It took the content, its answer cannot be read", said)
    return RecipientResult(number, Ending.UNREADABLE, text, remote=False)


def _with(text: str, said: str) -> str:
    return f"{text}: {said}"[:_LONGEST_TEXT] if said else text


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryResult:
    """One attempt: a result for each recipient, in the order given.

    ``dsn_offered``: the hop answers for NOTIFY itself (RFC 3461); otherwise a ``relayed`` report is ours to
    make. ``encrypted`` is the TLS version, '' for clear text. ``overflow``: recipients past the hop's limit
    (452 while others were taken, RFC 5321 4.5.3.1.10); they are DEFERRED in ``results``, but may be offered
    again at once, in the same session, without counting a failure.
    """

    results: tuple[RecipientResult, ...]
    dsn_offered: bool
    encrypted: str = ""
    overflow: tuple[int, ...] = ()
    tracks: Tracker | None = None  # the hop tracks what it accepted


class Unfit(Exception):
    """This server may not have the message, and was told nothing of it; another one may be fit. ``reply`` is
    that for its recipients if none is.
    """

    def __init__(self, reply: Reply) -> None:
        super().__init__(str(reply))
        self.reply = reply


NO_REQUIRETLS = Reply(550, "5.7.30", "REQUIRETLS needed, and the next hop does not offer it")
NOT_VERIFIED = Reply(550, "5.7.10", "Encryption needed (REQUIRETLS), and the next hop cannot be verified")


class ConnectionFailed(Exception):
    """There is no usable session; nothing changed for any recipient.

    ``reply`` is the next hop's refusal, if it said anything. ``reused``: the session had served earlier
    messages and was found dead before MAIL was answered, or ended by 421 before the content, so a fresh one
    should be tried at once. ``result``: what of TLS failed that the server's ``wanted`` asks for (RFC
    8460 4.3); '' for any other failure.
    """

    def __init__(
        self,
        step: SessionStep,
        error: str,
        *,
        reply: str = "",
        reused: bool = False,
        result: FailedTls | Literal[""] = "",
    ) -> None:
        super().__init__(f"{step}: {error}")
        self.step = step
        self.error = error
        self.reply = reply
        self.reused = reused
        self.result = result

    @property
    def turned_away(self) -> bool:
        """The next hop answers, but wants no session now: often because it has enough of ours."""
        return self.step in {"greeting", "ehlo", "auth"} and self.reply.startswith("421")

    @property
    def unverified(self) -> bool:
        """The server has no TLS, or has shown a certificate that is not its own. Silence is neither."""
        return self.step == "tls" and isinstance(self.__cause__, ssl.SSLCertVerificationError | None)


_LONGEST_PASSWORD = 8 * 1024  # octets; an access token has a few thousand
_CONTROL = re.compile(rb"[\x00-\x1f\x7f]")
_MASK = "********"
_BEGINNING = 8  # characters of Base64 that identify a secret: a server may repeat a part


class NoPassword(Exception):
    """The file holds no password. The message says why; it follows the file's name."""


def read_password(path: Path) -> bytes:
    """The one line of the file, without its end. Raises NoPassword."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):  # opening a pipe would wait for a writer
            raise NoPassword("is not a regular file")
        with path.open("rb") as file:
            content = file.read(_LONGEST_PASSWORD + 1)
    except OSError as error:
        raise NoPassword(f"cannot be read: {error.strerror}") from error
    password = content.removesuffix(b"\n").removesuffix(b"\r")
    if not password:
        raise NoPassword("is empty")
    if len(content) > _LONGEST_PASSWORD:
        raise NoPassword(f"has more than {_LONGEST_PASSWORD} octets")
    if _CONTROL.search(password):
        raise NoPassword("has more than one line, or control characters")
    return password


def masked(text: str, username: str, password: bytes) -> str:
    """The text without the password: some servers repeat what they refuse, as it is or in Base64."""
    name = username.encode()
    text = text.replace(password.decode("utf-8", "replace"), _MASK)
    for said in (
        b"\0" + name + b"\0" + password,  # PLAIN
        b"user=" + name + b"\1auth=Bearer " + password + b"\1\1",  # XOAUTH2
        password,  # LOGIN
    ):
        beginning = base64.b64encode(said).decode("ascii")[:_BEGINNING]
        text = re.sub(re.escape(beginning) + "[A-Za-z0-9+/=]*", _MASK, text)
    return text
