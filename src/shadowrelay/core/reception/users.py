"""The users file: users who may log in, each a line with a name and what is kept of the password.

    alice:SCRAM-SHA-256$600000:<salt>$<stored key>:<server key>
    bob:$scrypt$ln=14,r=8,p=5$<salt>$<hash>

The first is SCRAM's verifier (RFC 5803, in PostgreSQL's spelling): a client may prove that it knows the
password without sending it. The second is a hash in the PHC string format that passlib and others write
(base64 without padding): the password has to be sent. Empty lines, and lines that begin with ``#``, are
ignored.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from base64 import b64decode, b64encode
from binascii import Error as BadBase64
from collections.abc import Mapping
from typing import TypeAlias

from shadowrelay.core.values import dataclass

SALT = 16
"""Octets of a new salt."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@+=~/-]{0,127}")
_HASH = re.compile(
    r"\$scrypt\$ln=([0-9]{1,2}),r=([0-9]{1,2}),p=([0-9]{1,2})\$([A-Za-z0-9+/]+)\$([A-Za-z0-9+/]+)"
)
_VERIFIER = re.compile(
    r"SCRAM-SHA-256\$([0-9]{1,8}):([A-Za-z0-9+/]+=*)\$([A-Za-z0-9+/]{43}=):([A-Za-z0-9+/]{43}=)"
)
_MOST_MEMORY = 256 * 2**20
_LENGTH = 32

ITERATIONS = 600_000
"""For new verifiers: a fifth of a second of a processor (OWASP's choice for PBKDF2 with SHA-256)."""

_FEWEST, _MOST = 4096, 5_000_000
"""Iterations of a verifier: RFC 7677 section 4, and what a login may cost."""

_SHORTEST_SALT = 12
"""Octets of a verifier's salt: what clients take."""


class UsersInvalid(ValueError):
    """A line of the file is invalid. The text names the line's number, and quotes nothing of it."""


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of scrypt (RFC 7914): 128 · r · 2^ln octets of memory, gone through p times."""

    ln: int = 14
    r: int = 8
    p: int = 5

    @property
    def memory(self) -> int:
        return 128 * self.r * ((1 << self.ln) + self.p + 2)


COST = Cost()
"""For new hashes: 16 MiB, and a fifth of a second of a processor (OWASP's choice for little memory)."""


@dataclass(frozen=True, slots=True)
class Hashed:
    """A password as the file keeps it."""

    cost: Cost
    salt: bytes
    digest: bytes


@dataclass(frozen=True, slots=True)
class Verifier:
    """What SCRAM-SHA-256 keeps of a password (RFC 5802 section 3): who reads it can check a proof, and give
    none.
    """

    iterations: int
    salt: bytes
    stored_key: bytes
    server_key: bytes


KeptPassword: TypeAlias = Hashed | Verifier


def is_name(name: str) -> bool:
    """Is this a valid name? Names appear in header fields and logs, so few characters are allowed."""
    return _NAME.fullmatch(name) is not None


def hashed(password: bytes, salt: bytes, cost: Cost = COST) -> Hashed:
    """Hash a password. This takes the time and memory of ``cost``, and releases the interpreter meanwhile."""
    return Hashed(cost, salt, _digest(password, salt, cost, _LENGTH))


def verifier(password: bytes, salt: bytes, iterations: int = ITERATIONS) -> Verifier:
    """SCRAM's verifier of a password. This takes the time of ``iterations``, and releases the interpreter
    meanwhile.
    """
    salted = hashlib.pbkdf2_hmac("sha256", _prepared(password), salt, iterations)
    client, server = (hmac.digest(salted, key, "sha256") for key in (b"Client Key", b"Server Key"))
    return Verifier(iterations, salt, hashlib.sha256(client).digest(), server)


def _prepared(password: bytes) -> bytes:
    """The password as SCRAM reads it (SASLprep, RFC 4013); octets that are no text stay as they are."""
    if password.isascii():
        return password
    # Here, for passwords with umlauts alone: the import is slow.
    from scramp.utils import ScramException, saslprep

    try:
        return saslprep(password.decode()).encode() or password
    except (UnicodeDecodeError, ScramException):
        return password


def matches(password: bytes, kept: KeptPassword) -> bool:
    """Is it that password? This costs as much as ``hashed`` or ``verifier``, whatever the answer."""
    if isinstance(kept, Verifier):
        found = verifier(password, kept.salt, kept.iterations)
        return hmac.compare_digest(found.stored_key, kept.stored_key)
    return hmac.compare_digest(_digest(password, kept.salt, kept.cost, len(kept.digest)), kept.digest)


def _digest(password: bytes, salt: bytes, cost: Cost, length: int) -> bytes:
    return hashlib.scrypt(
        password, salt=salt, n=1 << cost.ln, r=cost.r, p=cost.p, maxmem=2 * cost.memory, dklen=length
    )


def parse_users(text: str) -> dict[str, KeptPassword]:
    """The users of a file. Raises UsersInvalid."""
    users: dict[str, KeptPassword] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        name, _, kept = line.rstrip().partition(":")
        if not is_name(name):
            raise UsersInvalid(f"line {number} has no name that a user can have")
        if name in users:
            raise UsersInvalid(f"line {number} has the name of a line before")
        users[name] = _parsed(kept, number)
    return users


def _parsed(kept: str, number: int) -> KeptPassword:
    if found := _VERIFIER.fullmatch(kept):
        return _verifier(found, number)
    found = _HASH.fullmatch(kept)
    if found is None:
        raise UsersInvalid(f"line {number} has no verifier of SCRAM-SHA-256 and no hash of scrypt")
    cost = Cost(int(found[1]), int(found[2]), int(found[3]))
    try:
        salt, digest = (
            b64decode(part + "=" * (-len(part) % 4), validate=True) for part in found.groups()[3:]
        )
    except BadBase64:
        raise UsersInvalid(f"line {number} has no hash of scrypt") from None
    if min(cost.ln, cost.r, cost.p) < 1 or len(digest) < 16:
        raise UsersInvalid(f"line {number} has a hash that anybody could guess")
    if cost.ln > 20 or cost.memory > _MOST_MEMORY:
        raise UsersInvalid(f"line {number} has a hash that takes more than {_MOST_MEMORY >> 20} MiB to check")
    return Hashed(cost, salt, digest)


def _verifier(found: re.Match[str], number: int) -> Verifier:
    iterations = int(found[1])
    try:
        salt, stored_key, server_key = (b64decode(part, validate=True) for part in found.groups()[1:])
    except BadBase64:
        raise UsersInvalid(f"line {number} has no verifier of SCRAM-SHA-256") from None
    if iterations < _FEWEST or len(salt) < _SHORTEST_SALT:
        raise UsersInvalid(f"line {number} has a verifier that anybody could guess")
    if iterations > _MOST:
        raise UsersInvalid(f"line {number} has a verifier of more than {_MOST} iterations")
    return Verifier(iterations, salt, stored_key, server_key)


def format_users(users: Mapping[str, KeptPassword]) -> str:
    """The text of a users file, as ``parse_users`` reads it."""
    return "".join(f"{name}:{_formatted(kept)}\n" for name, kept in users.items())


def _formatted(kept: KeptPassword) -> str:
    if isinstance(kept, Verifier):
        salt, stored_key, server_key = (
            b64encode(part).decode() for part in (kept.salt, kept.stored_key, kept.server_key)
        )
        return f"SCRAM-SHA-256${kept.iterations}:{salt}${stored_key}:{server_key}"
    cost = kept.cost
    salt, digest = (b64encode(part).decode().rstrip("=") for part in (kept.salt, kept.digest))
    return f"$scrypt$ln={cost.ln},r={cost.r},p={cost.p}${salt}${digest}"
