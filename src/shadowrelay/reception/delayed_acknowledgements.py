"""Delayed acknowledgements of one node: the 250s that wait, and what wakes them.

Nothing is polled: each commit that changes an awaited message tells so, and so does the queue when a next hop
fails.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta

import structlog

from shadowrelay import failpoints, measures
from shadowrelay.core.digests import ContentDigest, of_envelope
from shadowrelay.core.identifiers import MessageId, NextHop
from shadowrelay.core.messages import AsSent, Copy, Recipient
from shadowrelay.core.policy import Policy
from shadowrelay.core.reception.delays_and_repeats import (
    Admitted,
    End,
    LateQuestion,
    Skip,
    TargetQueue,
    answered,
    ended,
)
from shadowrelay.core.reception.redundancy import Arrival
from shadowrelay.core.values import dataclass
from shadowrelay.database.ledger import SqlLedger
from shadowrelay.database.transport import DatabaseFailed, TransportDatabase
from shadowrelay.smtp.receiving.contract import Client, Delayed
from shadowrelay.wire.esmtp import MailFrom, RcptTo
from shadowrelay.wire.replies import Reply

log = structlog.get_logger(__name__)

MOST_WAITING = 1000
"""Sessions that wait at a time. More are answered at once."""

OUTCOMES = (
    *(end.value for end in End),
    *(f"skipped_{skip.value}" for skip in Skip),
    "promoted",
    "repeated",
)
"""What metrics count."""


def _none(_: NextHop) -> bool:
    """No queue is suspended."""
    return False


def _nowhere(_: Sequence[NextHop]) -> Sequence[NextHop]:
    """No other transport server takes what is promoted."""
    return ()


class DelayedAcknowledgements:
    """The delayed acknowledgements of a node.

    ``retrying``: whether a next hop has failed and took no mail since. ``suspended``: whether an operator
    suspended its queue. ``promotion``: see ``LateQuestion``.
    """

    def __init__(
        self,
        database: TransportDatabase,
        policy: Policy,
        clock: Callable[[], datetime],
        retrying: Callable[[NextHop], bool],
        suspended: Callable[[NextHop], bool] = _none,
        promotion: Callable[[Sequence[NextHop]], Sequence[NextHop]] = _nowhere,
    ) -> None:
        self.database = database
        self.policy = policy
        self.clock = clock
        self.retrying, self.suspended, self.promotion = retrying, suspended, promotion
        self.speaking: set[MessageId] = set()  # their clients are here, or are just being answered
        self.at_once = measures.Histogram()  # 250s that did not wait: from the end of the content on
        self._counts = Counter(dict.fromkeys(OUTCOMES, 0))
        self._waiting: dict[MessageId, set[Waiting]] = {}
        self._long: set[NextHop] = set()
        database.when_changed(self._changed)

    @property
    def counts(self) -> Mapping[str, int]:
        """How the delayed acknowledgements since the start ended, by outcome."""
        return self._counts

    @property
    def waiting(self) -> int:
        """How many sessions wait now."""
        return sum(bool(one.hops) for some in self._waiting.values() for one in some)

    def begin(self, message_id: MessageId, sent: AsSent, delay: timedelta) -> Waiting:
        """Before the message is stored: nothing that becomes of it may be missed. Then ``admitted``, or
        ``drop``.
        """
        crowded = sum(map(len, self._waiting.values())) >= MOST_WAITING
        waiting = Waiting(self, message_id, sent, delay, crowded=crowded)
        self.speaking.add(message_id)
        self.enter(waiting)
        return waiting

    def queue(self, next_hop: NextHop, messages: int | None) -> TargetQueue:
        """A target queue with that many messages; remembers whether it is long. None: not counted."""
        found = TargetQueue(
            next_hop,
            messages or 0,
            retrying=self.retrying(next_hop),
            suspended=self.suspended(next_hop),
            long=next_hop in self._long,
        )
        if messages is None:
            return found
        if found.stays_long:
            self._long.add(next_hop)
        else:
            self._long.discard(next_hop)
        return found

    def release(self, next_hop: NextHop) -> None:
        """A target queue went into retry, or was suspended: whoever waits for it is answered now."""
        for waiting in [one for some in self._waiting.values() for one in some if next_hop in one.hops]:
            waiting.end(End.RETRY)

    def queues_suspended(self) -> None:
        """Queues may have been suspended: whoever waits for one of them is answered now."""
        for waiting in [one for some in self._waiting.values() for one in some]:
            if any(self.suspended(hop) for hop in waiting.hops):
                waiting.end(End.RETRY)

    def counted(self, outcome: str) -> None:
        self._counts[outcome] += 1

    def enter(self, waiting: Waiting) -> None:
        self._waiting.setdefault(waiting.message_id, set()).add(waiting)
        self.database.ledger.awaited.add(waiting.message_id)

    def leave(self, waiting: Waiting) -> None:
        """Idempotent."""
        left = self._waiting.get(waiting.message_id, set())
        left.discard(waiting)
        if not left:
            self._waiting.pop(waiting.message_id, None)
            self.database.ledger.awaited.discard(waiting.message_id)

    def _changed(self, copy: Copy) -> None:
        for waiting in tuple(self._waiting.get(copy.id, ())):
            waiting.see(copy)


@dataclass(frozen=True, slots=True)
class LateSender:
    """A sender whose 250 may wait: what it said, as it said it."""

    acknowledgements: DelayedAcknowledgements
    delay: timedelta
    session: Client
    mail: MailFrom
    recipients: Sequence[RcptTo]

    def begin(self, arrival: Arrival, content: ContentDigest) -> Waiting:
        said = (
            Recipient(number, one.address, NextHop(""), one.notify, one.orcpt)
            for number, one in enumerate(self.recipients, 1)
        )
        client = f"{self.session.address} {self.session.helo}"
        sent = AsSent(client, of_envelope(self.mail.envelope(), said), content.value)
        return self.acknowledgements.begin(arrival.id, sent, self.delay)


class Waiting(Delayed):
    """The 250 of one message. ``until``: when it is sent anyway, by the clock that plans deliveries."""

    __slots__ = ("_due", "_end", "_ends", "_known", "_of", "_sent", "crowded", "hops", "message_id", "until")

    def __init__(
        self,
        of: DelayedAcknowledgements,
        message_id: MessageId,
        sent: AsSent,
        delay: timedelta,
        *,
        crowded: bool,
    ) -> None:
        super().__init__(())
        self.message_id, self.until, self.crowded = message_id, of.clock() + delay, crowded
        self._ends = asyncio.get_running_loop().time() + delay.total_seconds()
        self.hops: Sequence[NextHop] = ()
        self._of, self._sent = of, sent
        self._due = asyncio.Event()
        self._end: End | None = None
        self._known = False

    def question(self) -> LateQuestion:
        return LateQuestion(
            sent=self._sent,
            queue=self._of.queue,
            promotion=self._of.promotion,
            crowded=self.crowded,
            speaking=self._of.speaking,
        )

    async def admitted(self, found: Admitted, reply: Reply) -> None:
        """The message is admitted: from here on this is the reply that waits, perhaps for nothing."""
        of, course = self._of, found.course
        self.replies = (reply,)
        if found.repeats is not None:
            of.counted("repeated")
            log.info("message_repeated", message=found.repeats, made=self.message_id if found.made else "")
        if found.awaits != self.message_id:
            of.leave(self)
            of.speaking.discard(self.message_id)
            self.message_id = found.awaits
            of.speaking.add(self.message_id)
            of.enter(self)
        self._known = found.known
        if course is None or course.skipped is not None:
            if course is not None and course.skipped is not None:
                of.counted(f"skipped_{course.skipped.value}")
            of.leave(self)
            self._due.set()
            return
        if course.promoted is not None:
            of.counted("promoted")
            log.info("message_promoted_to_hop", message=self.message_id, next_hop=course.promoted)
        self.hops = found.hops
        if not found.made:  # what became of it between that transaction and now was not seen
            copy = await of.database.transact_briefly(self._look)
            if copy is None:
                self.end(End.SETTLED)
            else:
                self.see(copy)
        if any(of.retrying(hop) or of.suspended(hop) for hop in self.hops):
            self.end(End.RETRY)

    def _look(self, ledger: SqlLedger) -> Copy | None:
        return ledger.copy(self.message_id)

    def see(self, copy: Copy) -> None:
        """The message as it is now, durably."""
        if (end := ended(copy, self.until)) is not None:
            self.end(end)

    def end(self, end: End) -> None:
        """The reply is due, for that reason. The first one counts."""
        if not self._due.is_set():
            self._end = end
            self._due.set()

    async def wait(self, most: float | None) -> None:
        left = max(0.0, self._ends - asyncio.get_running_loop().time())
        try:
            async with asyncio.timeout(left if most is None else min(left, most)):
                await self._due.wait()
        except TimeoutError:
            self.end(End.TIMED_OUT)
        self._of.leave(self)
        if self._end is not None:
            self._of.counted(self._end.value)
        failpoints.passed("before-250")

    def hasten(self) -> None:
        self.end(End.CUT_SHORT)

    def over(self, *, said: bool) -> None:
        self._of.leave(self)
        if said and self._known:
            # Queued behind the 250, and in front of whatever the client sends next.
            try:
                done = self._of.database.transact_briefly(
                    lambda ledger: ledger.apply(answered(self.message_id))
                )
                done.add_done_callback(_seen)
            except DatabaseFailed:  # the node ends: see ``answered``
                pass
        self._of.speaking.discard(self.message_id)

    def drop(self) -> None:
        """No message was admitted, or its 250 does not wait: forget this."""
        self._of.leave(self)
        self._of.speaking.discard(self.message_id)


def _seen(done: asyncio.Future[None]) -> None:
    if isinstance(error := done.exception(), Exception):
        log.warning("acknowledgement_not_recorded", error=str(error))
