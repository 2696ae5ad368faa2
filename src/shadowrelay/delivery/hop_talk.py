"""The conversation with hops that track our messages: who is there, and what it has delivered.

The scripts ``greet`` and ``poll`` order the steps, as they do between members: what a hop says is durable
before anything that rests on it is said.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from functools import partial

import structlog

from shadowrelay.core.delivery.hop_watch import HopWatch
from shadowrelay.core.identifiers import Lineage, ServerName
from shadowrelay.core.ledger import Transaction
from shadowrelay.core.members import hop_discards, hops
from shadowrelay.core.members.conversation import MAX_LINES, Answered, Greeting
from shadowrelay.core.steps import Ask, Greet, Transact, Unanswered
from shadowrelay.database.transport import DatabaseFailed, TransportDatabase
from shadowrelay.members.pool import seconds
from shadowrelay.running import Performer
from shadowrelay.smtp.sending.hop import ConnectionFailed
from shadowrelay.smtp.sending.session import DeliverySession

LONGEST = 20.0
"""Seconds after which a talk asks no more. A single answer has a deadline of its own (``tracked.ANSWER``)."""

log = structlog.get_logger(__name__)


async def greet(hop: ServerName) -> Greeting | Unanswered:
    """Introduce this node to a hop, and store the hop's answer."""
    mine, asked_at = await Transact(lambda ledger: (hops.introduce(ledger, hop), _lineage_of(ledger, hop)))
    theirs = await Greet(hop, mine)
    if isinstance(theirs, Unanswered):
        return theirs
    found = theirs
    await Transact(lambda ledger: ledger.apply(hops.met(ledger, found, asked_at)))
    return theirs


def _lineage_of(ledger: Transaction, hop: ServerName) -> Lineage | None:
    peer = ledger.hop_peer(hop)
    return peer.lineage if peer else None


async def poll(
    hop: ServerName, clock: Callable[[], datetime], ended: Callable[[], bool] = lambda: False
) -> Unanswered | None:
    """Fetch what the hop has to say, until there is nothing more. None: all went well.

    Each answer is applied durably before the next query acknowledges it. A hop may answer without end: when
    the talk has ``ended``, the rest is for the next talk.
    """
    most: int | None = MAX_LINES
    while most is not None and not ended():
        query = await Transact(partial(hop_discards.ask, hop=hop, most=most))
        answered = await Ask(hop, query)
        if isinstance(answered, Unanswered):
            return answered

        def apply(ledger: Transaction, answered: Answered = answered) -> int | None:
            return hop_discards.told(ledger, hop, answered, clock())

        most = await Transact(apply)
    return None


class HopConversations:
    """What this process knows of hops that track, and how it talks with them: a ``HopTalk``.

    ``may_track``: see ``HopTalk``. ``watches``: by name; every talk in any session counts. ``met_at``: where
    each hop was met (host, port).
    """

    def __init__(
        self,
        database: TransportDatabase,
        clock: Callable[[], datetime],
        enabled: Callable[[], bool] = lambda: True,
    ) -> None:
        self.may_track = enabled
        self._database = database
        self._clock = clock
        self.watches: dict[ServerName, HopWatch] = {}
        self.met_at: dict[ServerName, set[tuple[str, int]]] = {}

    async def greet(self, session: DeliverySession) -> None:
        """See ``HopTalk``."""
        name, failures, began = session.peer, [], seconds()

        async def say(step: Greet) -> Greeting | Unanswered:
            try:
                theirs = await session.say_hello(step.greeting)
            except ConnectionFailed as failed:
                failures.append(failed)
                return Unanswered(failed.step, failed.error)
            return theirs or Unanswered("xshadow", "refused")

        told = await Performer(transact=self._database.transact, greet=say).run(greet(name))
        if failures:
            raise failures[0]
        if isinstance(told, Unanswered):
            log.warning("hop_does_not_track", hop=name, error=told.error)
        else:
            self.met_at.setdefault(name, set()).add((session.server.host, session.server.port))
            # It is back: what it takes from now on must not be sent past it.
            self.watches[name] = self.watch(name).answered(began)

    async def ask(self, session: DeliverySession) -> None:
        """See ``HopTalk``."""
        name, failures, began = session.peer, [], seconds()

        async def ask(step: Ask) -> Answered | Unanswered:
            try:
                answered, bad = await session.ask_hop(step.query)
            except ConnectionFailed as failed:
                failures.append(failed)
                return Unanswered(failed.step, failed.error)
            for line in bad:
                log.error("discard_line_skipped", hop=name, line=line[:200])
            return answered

        try:
            talk = poll(name, self._clock, lambda: seconds() - began > LONGEST)
            await Performer(transact=self._database.transact, ask=ask).run(talk)
        except DatabaseFailed:  # which ends the node, and says so
            return
        if failures:
            raise failures[0]
        self.watches[name] = self.watch(name).answered(began)

    def watch(self, name: ServerName) -> HopWatch:
        return self.watches.get(name) or HopWatch(name)
