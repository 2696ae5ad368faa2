"""The sessions of one connector: counted in all and per source, and told to end."""

from __future__ import annotations

import asyncio
from typing import Protocol

from shadowrelay.shared_counts import OwnCounts, SessionCounts
from shadowrelay.smtp.receiving.rates import MinuteRates
from shadowrelay.wire.networks import source_of
from shadowrelay.wire.replies import Reply

TOO_MANY = Reply(421, "4.3.2", "Too many connections, try again later")
TOO_MANY_FROM_SOURCE = Reply(421, "4.7.0", "Too many connections from your address")
STOPPING = Reply(421, "4.3.2", "Service is shutting down")


class Stoppable(Protocol):
    """A session, as the register needs it."""

    def drain(self) -> None:
        """Leave as soon as no transaction is under way."""
        ...

    def expire(self) -> None:
        """Leave now, unless a message is being committed."""
        ...


_ALL = ""
"""The key of all sessions. Those of sources begin with a word."""


class Register:
    """The open sessions. One register per connector, so members never compete with strangers.

    ``counts`` says how many there are of each source, and in all: in this process, if nothing else is given.
    """

    def __init__(
        self,
        most: int | None,
        most_per_source: int | None,
        counts: SessionCounts | None = None,
        rates: MinuteRates | None = None,
    ) -> None:
        self._most, self._most_per_source = most, most_per_source
        self.rates = rates
        self._counts = counts or OwnCounts()
        self._admitted: dict[Stoppable, str | None] = {}  # its source; None while unknown
        self._sessions: dict[Stoppable, asyncio.Task[None]] = {}  # all of them, also those being turned away
        self._closing = False

    def limit(self, most: int | None, most_per_source: int | None) -> None:
        """Admit so many from now on. Sessions that are more than that go on."""
        self._most, self._most_per_source = most, most_per_source

    def __len__(self) -> int:
        return len(self._sessions)

    def enter(self, session: Stoppable, task: asyncio.Task[None], address: str | None) -> Reply | None:
        """Admit a session, or return the reply that turns it away: then it takes no place, however long it
        stays.

        Without an address it counts for no source until ``identify`` names one.
        """
        self._sessions[session] = task
        if self._closing:
            return STOPPING
        if not self._counts.take(_ALL, self._most):
            return TOO_MANY
        self._admitted[session] = None
        return None if address is None else self.identify(session, address)

    def identify(self, session: Stoppable, address: str) -> Reply | None:
        """Note the address of an admitted client, or return the reply that turns it away after all.

        A client that had another address counts there no more.
        """
        source = _source_key(address)
        if not self._counts.take(source, self._most_per_source):
            self._give_back(session)
            return TOO_MANY_FROM_SOURCE
        if self.rates and (refusal := self.rates.connection(address)):
            self._counts.give(source)
            self._give_back(session)
            return refusal
        if (former := self._admitted[session]) is not None:
            self._counts.give(former)
        self._admitted[session] = source
        return None

    def leave(self, session: Stoppable) -> None:
        del self._sessions[session]
        if session in self._admitted:
            self._give_back(session)

    def _give_back(self, session: Stoppable) -> None:
        source = self._admitted.pop(session)
        self._counts.give(_ALL)
        if source is not None:
            self._counts.give(source)

    def reopen(self) -> None:
        """Take connections again, after ``close``."""
        self._closing = False

    async def close(self, drain: float) -> None:
        """End idle sessions at once, the others after their transaction, or after ``drain`` seconds."""
        self._closing = True
        tasks = dict(self._sessions)
        for session in tasks:
            session.drain()
        if tasks:
            await asyncio.wait(tasks.values(), timeout=drain)
        for session in self._sessions:
            session.expire()
        if self._sessions:
            await asyncio.wait(tuple(self._sessions.values()))


def _source_key(address: str) -> str:
    return f"from {source_of(address)}"
