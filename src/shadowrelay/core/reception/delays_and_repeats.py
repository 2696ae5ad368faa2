"""Delayed acknowledgement: when a 250 waits until every next hop has the message, and what a repeat is.

Nobody but this node has a message that it accepts exposed. While its sender has no 250 the sender keeps it,
so a disk that is lost meanwhile loses nothing (Exchange 2010: *Delayed Acknowledgement*, *Bypassing Delayed
Acknowledgement*). The message is durable here all the same, and is delivered whatever becomes of the session.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from datetime import datetime, timedelta
from enum import StrEnum

from shadowrelay.core.decisions import Acknowledged, Decision, DropCopy, SaveCopy, Unacknowledged, Write
from shadowrelay.core.digests import of_envelope
from shadowrelay.core.identifiers import MessageId, NextHop
from shadowrelay.core.ledger import Ledger
from shadowrelay.core.messages import AsSent, Copy, Digests, Recipient, Status
from shadowrelay.core.policy import Policy
from shadowrelay.core.reception.redundancy import Answer, Arrival
from shadowrelay.core.recipients import LISTS
from shadowrelay.core.tracking import Repeated
from shadowrelay.core.values import dataclass, replace

LONG = 100
"""Messages in a target queue. With more the delay is skipped, until there are fewer (Exchange)."""

REPEATED_WITHIN = timedelta(days=1)
"""How long a message whose 250 was never written is known by what its client sent."""


class Skip(StrEnum):
    """Why a 250 does not wait."""

    RETRY = "retry"  # the target queue is in retry
    SUSPENDED = "suspended"  # an operator suspended the target queue
    LONG = "long"  # the target queue has more than a hundred messages
    CROWDED = "crowded"  # too many sessions wait already


@dataclass(frozen=True, slots=True)
class TargetQueue:
    """The queue of a next hop when a message comes: how many messages it has, a hundred and one at most.

    ``long``: it had more than a hundred, and not fewer since.
    """

    next_hop: NextHop
    messages: int = 0
    retrying: bool = False
    suspended: bool = False
    long: bool = False

    @property
    def stays_long(self) -> bool:
        """Whether the delay is skipped for its length."""
        return self.messages > LONG or (self.long and self.messages == LONG)

    @property
    def ready(self) -> bool:
        return not (self.retrying or self.suspended)


@dataclass(frozen=True, slots=True)
class Course:
    """What the 250 of a message does: it waits, unless ``skipped`` says why not. ``promoted``: the message is
    relayed to that next hop, another transport server, in place of its own.
    """

    skipped: Skip | None = None
    promoted: NextHop | None = None


def course(
    targets: Sequence[TargetQueue], promotion: Sequence[TargetQueue], policy: Policy, *, crowded: bool
) -> Course:
    """The course of a message with those target queues.

    ``promotion``: the queues of other transport servers, in order. With promotion a target queue that has
    any message counts as too slow. Of the servers the first that is ready is taken; if none is, the rules are
    those without promotion. ``crowded``: as many sessions wait as may.
    """
    if crowded:
        return Course(Skip.CROWDED)
    if policy.shadow_redundancy_promotion_enabled and any(not one.ready or one.messages for one in targets):
        known = {one.next_hop for one in targets}
        server = next((one for one in promotion if one.ready and one.next_hop not in known), None)
        if server is not None:
            return Course(promoted=server.next_hop)
    if any(one.retrying for one in targets):
        return Course(Skip.RETRY)
    if any(one.suspended for one in targets):
        return Course(Skip.SUSPENDED)
    return Course(Skip.LONG if any(one.stays_long for one in targets) else None)


@dataclass(frozen=True, slots=True, kw_only=True)
class LateQuestion:
    """What the decision about a delayed 250 has to know, besides the ledger.

    ``queue``: a target queue, with its number of messages, None if they were not counted.
    ``promotion``: other transport servers, in order, that may get a message with these target queues.
    ``speaking``: messages whose clients are still here, or are about to get their 250: what a client sends
    beside those is no repeat.
    """

    sent: AsSent
    queue: Callable[[NextHop, int | None], TargetQueue]
    promotion: Callable[[Sequence[NextHop]], Sequence[NextHop]] = lambda _: ()
    crowded: bool = False
    speaking: Collection[MessageId] = ()


@dataclass(frozen=True, slots=True)
class Admitted:
    """How a message was admitted that would have been accepted exposed.

    ``course`` is None if the 250 has nothing to wait for. ``awaits``: the message that it waits for: the new
    one, or the one that the client repeats. ``repeats``: the latter. ``known``: whether ``awaits`` is known
    by what its client sent, until the 250 is written. ``hops``: the next hops that it waits for.
    """

    answer: Answer
    awaits: MessageId
    course: Course | None = None
    repeats: MessageId | None = None
    known: bool = False
    hops: tuple[NextHop, ...] = ()

    @property
    def made(self) -> bool:
        """Whether there is a new message."""
        return self.awaits != self.repeats


def admit(
    ledger: Ledger,
    arrival: Arrival,
    accepted: Callable[[Arrival], Decision[Answer]],
    asked: LateQuestion,
    policy: Policy,
    now: datetime,
    *,
    arrived: Copy | None = None,
    given: bool = False,
) -> Decision[Admitted]:
    """Accept a message of which no member has a copy, and say whether its 250 waits.

    ``accepted`` is the decision to accept it. ``arrived``: what is stored of it. ``given``: a member may have
    a copy, so it cannot be taken for a repeat. If the client repeats a message whose 250 was never written,
    no second copy is made of what is still here, and nothing is sent again to recipients that have it, or
    whom a filter takes out this time.
    """
    plain = accepted(arrival)
    if plain.then is not Answer.ACCEPTED or not _exposed(plain):
        return plain.but(Admitted(plain.then, arrival.id))
    original = None if given else _original(ledger, asked, now)
    if original is not None:
        failed = (one for one in original.recipients if one.status is Status.FAILED)
        again = tuple(one for one in failed if one.address not in arrival.removed)
        if not again:
            return _repeated(ledger, arrival, original, asked, policy, arrived, now)
        if arrived is None:
            return _repeated_in_part(ledger, arrival, accepted, original, again, asked, policy, now)
    way, hops = _way(ledger, arrival.recipients, asked, policy), _hops(arrival.recipients)
    if way.promoted is not None:
        plain, hops = accepted(_rewritten(arrival, way.promoted)), (way.promoted,)
    known = way.skipped is None
    waits: tuple[Write, ...] = (Unacknowledged(arrival.id, asked.sent, now),) if known else ()
    admitted = Admitted(Answer.ACCEPTED, arrival.id, way, known=known, hops=hops)
    return replace(plain, writes=(*plain.writes, *waits)).but(admitted)


def _exposed(decision: Decision[Answer]) -> bool:
    saved = (write.after for write in decision.writes if isinstance(write, SaveCopy))
    return any(copy.exposed for copy in saved)


def _original(ledger: Ledger, asked: LateQuestion, now: datetime) -> Copy | None:
    """The oldest message with the same client, envelope and content whose 250 was never written.

    A damaged one does not count: the client brings a good copy.
    """
    for message_id in ledger.unacknowledged(asked.sent, now - REPEATED_WITHIN):
        copy = None if message_id in asked.speaking else ledger.copy(message_id)
        if copy is not None and not copy.damaged:
            return copy
    return None


def _repeated(
    ledger: Ledger,
    arrival: Arrival,
    original: Copy,
    asked: LateQuestion,
    policy: Policy,
    arrived: Copy | None,
    now: datetime,
) -> Decision[Admitted]:
    """Nothing is made: every recipient has the message, will get it from here, or was taken out."""
    gone: tuple[Write, ...] = (DropCopy(arrived),) if arrived else ()
    told = Repeated(at=now, copy=original, recipients=original.recipients, session=arrival.session)
    way = None
    if original.exposed:
        way = replace(_way(ledger, original.unsettled, asked, policy), promoted=None)
    hops = _hops(original.unsettled)
    admitted = Admitted(Answer.ACCEPTED, original.id, way, repeats=original.id, known=True, hops=hops)
    return Decision(admitted, gone, (told,))


def _repeated_in_part(
    ledger: Ledger,
    arrival: Arrival,
    accepted: Callable[[Arrival], Decision[Answer]],
    original: Copy,
    again: Sequence[Recipient],
    asked: LateQuestion,
    policy: Policy,
    now: datetime,
) -> Decision[Admitted]:
    """Recipients that failed are tried again, as a message of their own. From here on what the client sent is
    known by that one: a further repeat finds the other recipients in no message, and skips them too.
    """
    came = arrival.recipients[0]  # a filter's order is about all of them
    hops = {one.address: one.next_hop for one in arrival.recipients}
    rest = tuple(
        replace(
            came,
            number=number,
            address=one.address,
            next_hop=hops.get(one.address, one.next_hop),
            notify=one.notify,
            orcpt=one.orcpt,
        )
        for number, one in enumerate(again, 1)
    )
    digests = Digests(arrival.digests.content, of_envelope(arrival.envelope, rest))
    made = accepted(replace(arrival, recipients=rest, digests=digests))
    writes = (*made.writes, Acknowledged(original.id), Unacknowledged(arrival.id, asked.sent, now))
    kept = tuple(one for one in original.recipients if one.status is not Status.FAILED)
    told = (Repeated(at=now, copy=original, recipients=kept, session=arrival.session),) if kept else ()
    way = replace(_way(ledger, rest, asked, policy), promoted=None)
    admitted = Admitted(Answer.ACCEPTED, arrival.id, way, repeats=original.id, known=True, hops=_hops(rest))
    return Decision(admitted, writes, (*told, *made.events))


def _way(ledger: Ledger, recipients: Sequence[Recipient], asked: LateQuestion, policy: Policy) -> Course:
    """Counting takes as long as the queue is: it is left out where the course is known without it."""
    if asked.crowded:
        return Course(Skip.CROWDED)
    hops = _hops(recipients)
    targets = [asked.queue(hop, None) for hop in hops]
    if all(one.ready for one in targets):
        targets = [asked.queue(hop, ledger.queued_for(hop, LONG + 1)) for hop in hops]
    # Another server need not know our lists.
    promotes = policy.shadow_redundancy_promotion_enabled and LISTS not in hops
    offered = [asked.queue(hop, None) for hop in asked.promotion(hops)] if promotes else []
    return course(targets, offered, policy, crowded=False)


def _hops(recipients: Sequence[Recipient]) -> tuple[NextHop, ...]:
    return tuple(dict.fromkeys(one.next_hop for one in recipients))


def _rewritten(arrival: Arrival, to: NextHop) -> Arrival:
    """The same message for another transport server: digests do not depend on next hops."""
    return replace(arrival, recipients=tuple(replace(one, next_hop=to) for one in arrival.recipients))


def answered(message_id: MessageId) -> Decision[None]:
    """The 250 of a message was written: what its client sends from now on is no repeat of it.

    This is recorded behind the 250, not before it. If the node dies between the two, a client that sends the
    very same octets to the same recipients within a day is taken at its word that they are a repeat: they
    have those octets already. The other order would lose the record of a client that got no 250: that client
    is sure to repeat, and every recipient would get a duplicate.
    """
    return Decision(None, (Acknowledged(message_id),))


class End(StrEnum):
    """How the wait of a 250 ended."""

    SETTLED = "settled"  # every next hop has the message, or a member holds a copy
    RETRY = "retry"  # a target queue went into retry, a next hop put the message off, or it is suspended
    TIMED_OUT = "timed_out"
    CUT_SHORT = "cut_short"  # the client has gone, or the node stops


def ended(copy: Copy, until: datetime) -> End | None:
    """Whether the 250 of this message need not wait any more, and why. ``until``: when it is sent anyway."""
    if not copy.exposed:
        members_wait = any(one.next_hop == LISTS and one.waits for one in copy.recipients)
        return None if members_wait else End.SETTLED
    waits = ((one.suspended, one.attempts and one.next_attempt) for one in copy.unsettled)
    return End.RETRY if any(at >= until for both in waits for at in both if at) else None
