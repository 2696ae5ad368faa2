"""Logins of users that send: passwords are checked outside the event loop, few at a time."""

from __future__ import annotations

import asyncio
import hashlib
import os
import secrets
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import monotonic
from weakref import WeakValueDictionary

import structlog

from shadowrelay.core.reception.users import (
    COST,
    ITERATIONS,
    SALT,
    Hashed,
    KeptPassword,
    UsersInvalid,
    Verifier,
    matches,
    parse_users,
)
from shadowrelay.file_stamps import LOOK_AGAIN, Stamp, stamp
from shadowrelay.smtp.receiving.contract import Client
from shadowrelay.wire.networks import source_of
from shadowrelay.wire.replies import Refused

log = structlog.get_logger(__name__)

SUCCEEDED, FAILED, PUT_OFF = "succeeded", "failed", "put_off"

NONE = {SUCCEEDED: 0, FAILED: 0, PUT_OFF: 0}

AT_A_TIME = max(1, (os.cpu_count() or 1) // 4)
"""How many checks run at once: one takes a fifth of a second of a processor."""

MOST_WAITING = 50
"""How many checks, of as many sources, may wait or run; the check of one more source is put off."""

_NICENESS = 10
_REMEMBERED = 1000


class UserLogins:
    """The logins of the users in one file, which may change at any time.

    A correct password is remembered, under a key of this process, as long as its hash stays the same. So a
    client that logs in for each message costs one check, and does not wait behind a crowd of strangers.
    """

    def __init__(self, path: Path, connector: str) -> None:
        self.counts = Counter(NONE)
        self.path, self._connector = path, connector
        self._users: dict[str, KeptPassword] = {}
        self._file = b""  # a secret that every worker knows: the digest of the file
        self._nothing = secrets.token_bytes(SALT), secrets.token_bytes(32)
        self._seen: Stamp | None = None
        self._wrong = ""  # what is wrong with the file
        self._looked_at = -LOOK_AGAIN
        self._key = secrets.token_bytes(32)
        self._right: dict[bytes, KeptPassword] = {}
        self._threads: ThreadPoolExecutor | None = None
        self._waiting = 0
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    @property
    def offered(self) -> bool:
        return bool(self._known())

    @property
    def scram(self) -> bool:
        """Whether each user has a verifier: clients take the best that is offered, and do not try another."""
        users = self._known().values()
        return bool(users) and all(isinstance(kept, Verifier) for kept in users)

    def verifier(self, name: str) -> Verifier:
        """A user's verifier. An unknown name has one too, the same at each node and worker with this file."""
        kept = self._known().get(name)
        if isinstance(kept, Verifier):
            return kept
        made = hashlib.blake2b(name.encode(), key=self._file).digest()
        alike = next((kept for kept in self._users.values() if isinstance(kept, Verifier)), None)
        iterations, salt = (alike.iterations, len(alike.salt)) if alike else (ITERATIONS, SALT)
        return Verifier(iterations, (made * 8)[:salt], secrets.token_bytes(32), secrets.token_bytes(32))

    def proven(self, session: Client, name: str, *, right: bool) -> None:
        """Count a login, and log one that failed."""
        self.counts[SUCCEEDED if right else FAILED] += 1
        if not right:
            # Only names of users are logged: people type their passwords into that field.
            known = {"user": name} if name in self._users else {}
            log.info("login_failed", client=session.address, connector=self._connector, **known)

    async def check(self, session: Client, name: str, password: bytes) -> bool:
        kept = self._known().get(name)
        secret = hashlib.blake2b(name.encode() + b"\0" + password, key=self._key).digest()
        right = kept is not None and self._right.get(secret) == kept
        if not right:
            right = await self._matches(session, password, kept or self._decoy(name))
            if right and kept is not None:
                self._remember(secret, kept)
        self.proven(session, name, right=right)
        return right

    def _decoy(self, name: str) -> KeptPassword:
        """A hash for an unknown name: nothing matches it, and checking takes as long as for a user.

        One name always gets the same cost.
        """
        users = list(self._users.values()) or [Hashed(COST, *self._nothing)]
        number = int.from_bytes(hashlib.blake2b(name.encode(), key=self._key, digest_size=8).digest(), "big")
        alike, (salt, digest) = users[number % len(users)], self._nothing
        if isinstance(alike, Verifier):
            return Verifier(alike.iterations, salt, digest, digest)
        return Hashed(alike.cost, salt, digest)

    async def _matches(self, session: Client, password: bytes, kept: KeptPassword) -> bool:
        """Check a password, one at a time for each source: a crowd from one source waits for itself."""
        async with self._turns.setdefault(source_of(session.address), asyncio.Lock()):
            if self._waiting >= MOST_WAITING:
                self.counts[PUT_OFF] += 1
                log.info("login_put_off", client=session.address, waiting=self._waiting)
                raise Refused(454, "4.7.0", "Too many logins at once, try again later")
            if self._threads is None:
                self._threads = ThreadPoolExecutor(AT_A_TIME, f"logins-{self._connector}", _step_back)
            self._waiting += 1
            try:
                loop = asyncio.get_running_loop()
                return await loop.run_in_executor(self._threads, matches, password, kept)
            finally:
                self._waiting -= 1

    def _remember(self, secret: bytes, kept: KeptPassword) -> None:
        if len(self._right) >= _REMEMBERED:
            del self._right[next(iter(self._right))]
        self._right[secret] = kept

    def _known(self) -> dict[str, KeptPassword]:
        """The users of the file. The file is looked at again after a while, so changes are seen."""
        now = monotonic()
        if now - self._looked_at >= LOOK_AGAIN:
            self._looked_at = now
            wrong = ""
            try:
                self._look()
            except (OSError, UnicodeDecodeError, UsersInvalid) as error:
                wrong = str(error)
                if wrong != self._wrong:  # told once
                    log.error("users_not_read", file=str(self.path), error=wrong)
            self._wrong = wrong
        return self._users

    def _look(self) -> None:
        try:
            seen = stamp(self.path, UsersInvalid)
        except FileNotFoundError:
            self._users, self._seen = {}, None
            raise
        if seen == self._seen:
            return
        text = self.path.read_text("utf-8")
        self._users = parse_users(text)
        self._file = hashlib.blake2b(text.encode()).digest()
        self._seen = seen
        log.info("users_read", file=str(self.path), users=len(self._users))


def _step_back() -> None:
    """Lower the priority of the threads that check passwords: mail is more urgent."""
    try:
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)
    except OSError as error:
        log.debug("checks_as_urgent_as_others", error=str(error))
