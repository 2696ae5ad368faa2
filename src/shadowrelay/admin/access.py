"""Who asks the admin API, and what the asker may do: bearer tokens, and sessions of a browser.

A token is compared by its digest, with all tokens and without an early end: the time of a comparison tells
neither which token nor how long one is.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import stat
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from time import monotonic
from typing import Protocol

import structlog

from shadowrelay.admin.guard import RequestRefused
from shadowrelay.core.identifiers import ServerName
from shadowrelay.core.operating import Scope

SHARED = "admin token"
"""The name of the token in ``admin.token``. Several people may have it, so a request may say who asks."""

ANONYMOUS = "anonymous"
"""The operator at a node without any token, if a request names nobody."""

IDLE = timedelta(hours=12)
"""A session that nobody uses for so long ends."""

MOST_SESSIONS = 1000
"""Sessions at a time. One more ends the one that was not used for longest."""

LEAST_SECRET = 16
"""Characters that a token has at least."""

LOOK_AGAIN = 1.0
"""Seconds after which the file of a token is looked at again."""

_MOST_SECRET = 4096  # octets of a token's file
_REQUIRED = "this node requires a bearer token: that of its setting admin.token, or one of admin.tokens"

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """Who asks. ``csrf``: what a form of this session has to carry; '' with a bearer token.

    ``shared``: ``operator`` is no person's name, so a request may name its operator itself. ``cookie``: the
    browser sends it by itself, so a page of another site may have caused the request.
    """

    operator: str
    scope: Scope
    csrf: str = field(default="", repr=False)
    shared: bool = False
    cookie: bool = False

    def require(self, needed: Scope) -> None:
        """Raise RequestRefused 403 unless this session may do that."""
        if not self.scope.allows(needed):
            raise RequestRefused(
                403,
                f"{self.operator} may {self.scope}, not {needed}: use a token whose scope is {needed} "
                "(setting admin.tokens)",
            )

    def operator_named(self, name: str | None) -> str:
        """The operator of an act that names one itself: the name of a token that is one person's counts."""
        return name if name and self.shared else self.operator


class Token(Protocol):
    """A token: who has it, and what for."""

    @property
    def name(self) -> str: ...

    @property
    def scope(self) -> Scope: ...

    @property
    def shared(self) -> bool: ...

    def digest(self) -> bytes | None:
        """The digest of the secret; None while there is none, and nobody is admitted by it."""
        ...


def digest_of(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()


@dataclass(frozen=True, slots=True)
class FixedToken:
    """A token whose secret is known, such as that in ``admin.token``."""

    secret: str = field(repr=False)
    name: str = SHARED
    scope: Scope = Scope.OPERATE
    shared: bool = True

    def digest(self) -> bytes:
        return digest_of(self.secret)


class TokenFile:
    """A token whose secret is in a file. A changed file counts within a second; one that is gone or cannot be
    read admits nobody, and the log says so once.
    """

    shared = False

    def __init__(self, name: str, scope: Scope, path: Path, clock: Callable[[], float] = monotonic) -> None:
        self.name, self.scope, self.path = name, scope, path
        self._clock = clock
        self._looked_at = float("-inf")
        self._stamp: tuple[int, ...] | None = None
        self._digest: bytes | None = None
        self._wrong = ""

    def digest(self) -> bytes | None:
        now = self._clock()
        if now - self._looked_at >= LOOK_AGAIN:
            self._looked_at = now
            self._look()
        return self._digest

    def _look(self) -> None:
        try:
            found = self.path.stat()
            stamp = (found.st_ino, found.st_size, found.st_mtime_ns)
            if stamp != self._stamp:
                self._digest = digest_of(read_secret(self.path))
                self._stamp = stamp
            self._wrong = ""
        except (OSError, ValueError) as error:
            self._digest = self._stamp = None
            if str(error) != self._wrong:
                _log.error("token_not_read", token=self.name, file=str(self.path), error=str(error))
            self._wrong = str(error)


def read_secret(path: Path) -> str:
    """The token in a file: its first line. Raises OSError, and ValueError with what is wrong."""
    if not stat.S_ISREG(path.stat().st_mode):
        raise ValueError("is no file")
    with path.open("rb") as file:
        octets = file.read(_MOST_SECRET)
    try:
        secret = octets.decode("utf-8").split("\n", 1)[0].strip()
    except UnicodeDecodeError:
        raise ValueError("is not UTF-8") from None
    if len(secret) < LEAST_SECRET:
        raise ValueError(f"its first line has less than {LEAST_SECRET} characters")
    return secret


@dataclass(slots=True)
class _Kept:
    """A session in memory. It ends with the token that began it."""

    session: Session
    token: bytes
    used_at: float


class Access:
    """The tokens in force, and the sessions that began with one of them. Without tokens everybody may
    operate.

    Sessions are in memory alone: a restart ends them.
    """

    def __init__(self, tokens: Sequence[Token] = (), clock: Callable[[], float] = monotonic) -> None:
        self._tokens = tuple(tokens)
        self._clock = clock
        self._sessions: OrderedDict[bytes, _Kept] = OrderedDict()
        # One session for everybody: no page of another site can read its csrf (check_host, check_origin).
        self._anonymous = Session(operator=ANONYMOUS, scope=Scope.OPERATE, csrf=_random(), shared=True)

    @property
    def open(self) -> bool:
        """Whether this node has no token: whoever reaches it may do everything."""
        return not self._tokens

    def replace(self, tokens: Sequence[Token]) -> None:
        """Take other tokens. Sessions of a token that is gone end."""
        self._tokens = tuple(tokens)

    def who(self, authorization: str, session_id: str) -> Session:
        """Who sent a request with that header Authorization and that cookie. Raises RequestRefused 401."""
        if self.open:
            return self._anonymous
        if authorization:
            scheme, _, secret = authorization.partition(" ")
            found = self._token(digest_of(secret.strip())) if scheme.lower() == "bearer" else None
            if found is not None:
                return Session(operator=found.name, scope=found.scope, shared=found.shared)
        elif session_id and (kept := self._kept(session_id)) is not None:
            return kept.session
        raise RequestRefused(401, _REQUIRED)

    def login(self, secret: str, operator: str = "") -> tuple[str, Session]:
        """Begin a session; returns its id. ``operator`` counts for a shared token.

        Raises RequestRefused 401.
        """
        digest = digest_of(secret.strip())
        token = self._token(digest)
        if token is None:
            raise RequestRefused(401, "this token is not one of this node")
        name = operator if operator and token.shared else token.name
        session = Session(operator=name, scope=token.scope, csrf=_random(), cookie=True)
        session_id = _random()
        self._sessions[digest_of(session_id)] = _Kept(session, digest, self._clock())
        while len(self._sessions) > MOST_SESSIONS:
            self._sessions.popitem(last=False)
        return session_id, session

    def logout(self, session_id: str) -> None:
        """End a session. A session that is not there is ended."""
        self._sessions.pop(digest_of(session_id), None)

    def _kept(self, session_id: str) -> _Kept | None:
        key, now = digest_of(session_id), self._clock()
        kept = self._sessions.get(key)
        if kept is None:
            return None
        token = self._token(kept.token)
        idle = now - kept.used_at >= IDLE.total_seconds()
        if idle or token is None or token.scope is not kept.session.scope:
            del self._sessions[key]
            return None
        kept.used_at = now
        self._sessions.move_to_end(key)
        return kept

    def _token(self, given: bytes) -> Token | None:
        """The token with that digest; of two with one secret, the one that may do less."""
        found: Token | None = None
        for token in self._tokens:
            same = hmac.compare_digest(token.digest() or bytes(len(given)), given)
            if same and (found is None or found.scope.allows(token.scope)):
                found = token
        return found


def access_by(token: str | None) -> Access:
    """Access with ``admin.token`` alone; without a token, for everybody."""
    return Access(() if token is None else (FixedToken(token),))


def cookie_name(node: ServerName) -> str:
    """The name of a session's cookie. Browsers give a cookie to all ports of a host, and labs have many nodes
    on one: so each node has a name of its own.
    """
    return f"shadowrelay-{node}"


def _random() -> str:
    return secrets.token_urlsafe(32)
