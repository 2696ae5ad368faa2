"""The owner's side of a second copy: when a sender may get 250 or 451, and repair of exposed messages."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from enum import Enum

from shadowrelay.core.decisions import (
    Content,
    Decision,
    DiscardEvent,
    DropCopy,
    Member,
    SaveCopy,
    Verdict,
    VerdictKind,
    Write,
)
from shadowrelay.core.digests import of_envelope
from shadowrelay.core.events.discard_notices import addressed, delivered, orders, to_giver
from shadowrelay.core.events.side_effects import report_is_safe
from shadowrelay.core.hops import Handed
from shadowrelay.core.identifiers import DatabaseId, Mark, MessageId, ServerName
from shadowrelay.core.ledger import Ledger
from shadowrelay.core.machines import holding, machines
from shadowrelay.core.messages import (
    Confirmation,
    Copy,
    Digests,
    Envelope,
    Holder,
    HolderState,
    Recipient,
    Stage,
)
from shadowrelay.core.ownership.heartbeat import heard
from shadowrelay.core.ownership.transfer import ask_about, made_here, vouches, with_better_holder
from shadowrelay.core.policy import Policy
from shadowrelay.core.reception.arrivals import refused
from shadowrelay.core.recipients import Rewriting
from shadowrelay.core.tracking import HaRedirect, HaRedirectFail, Receive, Resolve
from shadowrelay.core.tracking_row import TrackingEvent
from shadowrelay.core.values import dataclass, replace


class Leg(Enum):
    """How one offer of a copy ended. LOST: the member may hold the copy, but its answer did not reach us."""

    ACKNOWLEDGED = "acknowledged"
    REFUSED = "refused"
    LOST = "lost"


class Concern(Enum):
    """What the failure of an offer is about; this decides which member is asked next.

    MEMBER: the member cannot be reached, or takes no copies for now. COPY: the member refused this copy, and
    takes others. SESSION: a connection opened before the offer ended; the member itself may be well.
    """

    MEMBER = "member"
    COPY = "copy"
    SESSION = "session"


@dataclass(frozen=True, slots=True)
class OfferAttempt:
    """One offer of a copy to a member. ``database_id`` and ``mark`` come from its answer, if there is one.

    ``concern`` has a meaning only if the copy was not acknowledged.
    """

    name: ServerName
    leg: Leg
    rank: int
    reply: str
    database_id: DatabaseId | None = None
    mark: Mark | None = None
    concern: Concern = Concern.MEMBER

    @property
    def told(self) -> str:
        """The attempt as HAREDIRECT writes it in source-context."""
        return f"{self.name}={self.reply}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """A message on its way in, whose sender has no answer yet."""

    id: MessageId
    envelope: Envelope
    recipients: tuple[Recipient, ...]
    digests: Digests
    received_at: datetime
    client_ip: str = ""
    client_hostname: str = ""
    connector: str = ""
    session: str = ""
    login: str = ""  # the user who logged in
    rewritten: tuple[Rewriting, ...] = ()
    handed: Handed | None = None  # a peer beyond the boundary that knows XSHADOW handed it over
    unfiltered: str = ""  # the filters that were down, and without which it was taken, joined with ``+``
    quarantined: str = ""  # why a filter wants it to wait
    removed: tuple[str, ...] = ()  # addresses that filters took out


class Answer(Enum):
    """What the sender is told. HANG_UP: close the connection without a reply; the sender will retry.

    REPEATED: all of it was taken before (a reply was lost). The sender gets a 250, and nothing is kept.
    """

    ACCEPTED = "accepted"
    REPEATED = "repeated"
    NOT_REDUNDANT = "not redundant"
    HANG_UP = "hang up"


def accept(
    ledger: Ledger,
    arrival: Arrival,
    content: Content,
    attempts: Sequence[OfferAttempt],
    policy: Policy,
    now: datetime,
    *,
    last_resort: bool,
    late: bool = False,
    arrived: Copy | None = None,
    answered: bool = False,
) -> Decision[Answer]:
    """Accept the message if it is redundant; otherwise keep nothing of it here.

    ``last_resort``: no candidate is left, so policy may accept the message exposed. ``arrived``: what
    ``arrive`` stored of the message. ``answered``: both copies were durable and the sender may have its 250,
    so the message is accepted whatever became of the other copy. ``late``: the first offer was so long ago
    that its holder may have promoted the copy, so every member is asked before delivery.

    An acknowledgement counts only if the ledger, at this moment, knows the holder's lineage as unbroken. The
    holder has committed by then, so the row HAREDIRECT means that a copy exists elsewhere.
    """
    again: tuple[Write, ...] = ()
    if arrival.handed is not None:
        arrival, again = _not_taken(ledger, arrival, arrival.handed, now)
        if not arrival.recipients:
            return Decision(Answer.REPEATED, again)
    found = [holder for attempt in attempts if (holder := _holder(ledger, attempt))]
    holders = tuple({holder.database_id: holder for holder in found}.values())  # the last offer counts
    redundant = [holder for holder in holders if holder.state is HolderState.HOLDING]
    may_be_exposed = answered or (last_resort and not policy.reject_message_on_shadow_failure)
    if not redundant and policy.shadow_redundancy_enabled and not may_be_exposed:
        gone: list[Write] = [DropCopy(arrived)] if arrived and last_resort else []
        if last_resort and uncertain(attempts):
            gone.append(refused(arrival.id, policy, now))
        return Decision(Answer.NOT_REDUNDANT, tuple(gone))
    copy = replace(
        arrived or _received(ledger, arrival, now),
        stage=Stage.QUEUED,
        recipients=arrival.recipients,
        digests=arrival.digests,
        holders=holders,
        ranks_given=max([attempt.rank for attempt in attempts], default=0),
        confirmation=Confirmation.ASK if late else Confirmation.NONE,
        confirm_since=now if late else None,
    )
    told = tuple([attempt.told for attempt in attempts])
    events: list[TrackingEvent] = []
    if redundant:
        last = redundant[-1]
        at = machines(ledger, last.name)
        events = [HaRedirect(at=now, copy=copy, holder=last, machines=at, attempts=told)]
    elif policy.shadow_redundancy_enabled:
        events = [HaRedirectFail(at=now, copy=copy, attempts=told)]
    events.append(
        Receive(
            at=now,
            copy=copy,
            client_ip=arrival.client_ip,
            client_hostname=arrival.client_hostname,
            connector=arrival.connector,
            session=arrival.session,
            login=arrival.login,
            handed_by=arrival.handed.peer if arrival.handed else "",
            handed_as=arrival.handed.their_id if arrival.handed else "",
            redundant="" if redundant else "Failed",
            unfiltered=arrival.unfiltered,
            quarantined=arrival.quarantined,
        )
    )
    for one in arrival.rewritten:
        about = tuple(recipient for recipient in copy.recipients if recipient.number == one.number)
        events.append(Resolve(at=now, copy=copy, recipients=about, original=one.original))
    heard_of = [write for attempt in attempts for write in _heard(ledger, attempt)]
    writes: list[Write] = [SaveCopy(arrived, copy, None if arrived else content), *heard_of, *again]
    writes += [arrival.handed] if arrival.handed else []
    return Decision(Answer.ACCEPTED, tuple(writes), tuple(events))


def _not_taken(
    ledger: Ledger, arrival: Arrival, handed: Handed, now: datetime
) -> tuple[Arrival, tuple[DiscardEvent, ...]]:
    """The arrival without the recipients that the same database handed over before, under the same id.

    With the events about those that are settled by now: a peer that was put back to an older state may have
    forgotten them.
    """
    before = ledger.handed_as(handed.database_id, handed.their_id)
    if not before:
        return arrival, ()
    taken = {number for one in before for number in one.numbers}
    kept = [pair for pair in zip(arrival.recipients, handed.numbers, strict=True) if pair[1] not in taken]
    recipients = tuple(replace(one, number=number) for number, (one, _) in enumerate(kept, 1))
    became = {one.number: number for number, (one, _) in enumerate(kept, 1)}
    told = [
        event
        for one in before
        if (copy := ledger.copy(one.message_id))
        for event in to_giver(
            ledger, copy.id, [r for r in copy.recipients if one.theirs(r.number) in handed.numbers], now
        )
    ]
    rest = replace(
        arrival,
        recipients=recipients,
        rewritten=tuple(
            replace(one, number=became[one.number]) for one in arrival.rewritten if one.number in became
        ),
        digests=replace(arrival.digests, envelope=of_envelope(arrival.envelope, recipients)),
        handed=replace(handed, numbers=tuple(number for _, number in kept)),
    )
    return rest, tuple(told)


def arrive(
    ledger: Ledger, arrival: Arrival, content: Content, to: ServerName, now: datetime
) -> Decision[Copy | None]:
    """Store the arrival here while that member stores its copy. None and no write if its database is unknown.

    An arrival is not yet a message: it is not delivered, offered, asked about or counted until its sender may
    be answered.
    """
    member = ledger.member(to)
    if member is None or member.lineage is None:
        return Decision(None)
    # The mark tells in which opening of its database the member is offered the copy: see ``arrivals``.
    holder = Holder(to, member.lineage.database_id, member.lineage.mark, 1, HolderState.UNCERTAIN)
    copy = replace(_received(ledger, arrival, now), stage=Stage.ARRIVING, holders=(holder,), ranks_given=1)
    return Decision(copy, (SaveCopy(None, copy, content),))


def _received(ledger: Ledger, arrival: Arrival, now: datetime) -> Copy:
    # The clock may have been set back since the message arrived.
    at = min(arrival.received_at, now)
    return made_here(ledger, arrival.id, arrival.envelope, arrival.recipients, arrival.digests, at)


def counts(member: Member | None, attempt: OfferAttempt) -> bool:
    """Does this acknowledgement still count: has its holder shown no broken lineage since?"""
    if attempt.leg is not Leg.ACKNOWLEDGED or attempt.database_id is None or attempt.mark is None:
        return False
    return vouches(member, attempt.database_id, attempt.mark)


def _heard(ledger: Ledger, attempt: OfferAttempt) -> tuple[Write, ...]:
    """Remember the mark of an acknowledgement, if it is the highest one seen of that member."""
    return heard(ledger, attempt.name, attempt.mark).writes if attempt.mark else ()


def _holder(ledger: Ledger, attempt: OfferAttempt) -> Holder | None:
    """The holder that an attempt left; None if the member refused the copy, or has another database since."""
    if attempt.leg is Leg.REFUSED or attempt.database_id is None:
        return None
    member = ledger.member(attempt.name)
    if counts(member, attempt):
        return Holder(attempt.name, attempt.database_id, attempt.mark, attempt.rank, HolderState.HOLDING)
    if member and member.lineage and member.lineage.database_id != attempt.database_id:
        return None
    return Holder(attempt.name, attempt.database_id, None, attempt.rank, HolderState.UNCERTAIN)


def uncertain(attempts: Sequence[OfferAttempt]) -> tuple[OfferAttempt, ...]:
    """The attempts that may have left a copy; each must be revoked before a 451.

    An acknowledged attempt that no longer counts is included, because its database may come back. The result
    has the last attempt of each member: revoking the highest rank covers its earlier offers.
    """
    return tuple({attempt.name: attempt for attempt in attempts if attempt.leg is not Leg.REFUSED}.values())


def reserve_rank(
    ledger: Ledger, message_id: MessageId, to: ServerName, *, another: bool = False
) -> Decision[Copy | None]:
    """Before a copy is offered again: give the offer its rank, and record the member as a possible holder.

    The result is the message to offer, or None if it is gone. Nothing changes unless the message is exposed
    (``another``: or has a holder, and is to have one more) and its copy here is good.
    """
    copy = ledger.copy(message_id)
    if copy is None or not (copy.owned if another else copy.exposed) or copy.damaged:
        return Decision(copy)
    rank = copy.ranks_given + 1
    after = replace(copy, ranks_given=rank)
    member = ledger.member(to)
    if member and member.lineage:
        known = copy.holder(member.lineage.database_id)
        state = known.state if known and known.state is HolderState.LOST else HolderState.UNCERTAIN
        after = after.with_holder(Holder(to, member.lineage.database_id, None, rank, state))
    return Decision(after, (SaveCopy(copy, after),))


def repaired(ledger: Ledger, message_id: MessageId, attempt: OfferAttempt, now: datetime) -> Decision[bool]:
    """Record how an offer of an exposed message ended. The result: does the new copy count?

    A copy that counts replaces former holders that do not count; they are told to discard theirs. If the
    message was settled or taken over meanwhile, an event tells the new holder, so that no copy is left
    behind. A member that refuses this copy for now (4yz) may own the message, or know its fate: every member
    is asked before the message is sent.
    """
    copy = ledger.copy(message_id)
    if attempt.leg is Leg.REFUSED or attempt.database_id is None:
        elsewhere = attempt.concern is Concern.COPY and attempt.reply.startswith("4")
        return ask_about(copy, now).but(False) if copy and elsewhere else Decision(False)
    if copy is None:
        outcome = ledger.outcome(message_id)
        if outcome is None:
            return Decision(False)
        kind = VerdictKind.REJECTED if outcome.refused else VerdictKind.DELIVERED
        gone = (Verdict(message_id, outcome.epoch, kind, recipients=outcome.delivered),)
        return Decision(False, addressed([attempt.database_id], gone, now))
    if not copy.queued and not copy.unfinished:
        return Decision(False, addressed([attempt.database_id], delivered(copy, copy.recipients), now))
    if not copy.unfinished:
        taken = (Verdict(copy.id, copy.epoch, VerdictKind.TAKEN, copy.owner),)
        return Decision(False, addressed([attempt.database_id], taken, now))
    holder = _holder(ledger, attempt)
    if holder is None:
        return Decision(False)
    if holder.state is HolderState.HOLDING:  # a redirect may make a copy on our own machine
        holder = replace(holder, state=holding(ledger, holder.name))
    if holder.state is HolderState.UNCERTAIN:
        after = replace(copy.with_holder(holder), ranks_given=max(copy.ranks_given, attempt.rank))
        return Decision(False, (SaveCopy(copy, after),))
    return _recorded(ledger, copy, holder, attempt, now)


def _recorded(
    ledger: Ledger, copy: Copy, holder: Holder, attempt: OfferAttempt, now: datetime
) -> Decision[bool]:
    replaced = {HolderState.LOST, HolderState.UNCERTAIN, HolderState.BESIDE}
    after, told = with_better_holder(copy, holder, replaced, now)
    writes: list[Write] = list(told)
    settled = [recipient for recipient in copy.recipients if recipient.settled]
    # An order that came while the offer was under way is not in it, and the holder did not know the message.
    told_now = delivered(after, settled) + orders(after, after.unsettled)
    writes += addressed([holder.database_id], told_now, now)
    counts = holder.state is HolderState.HOLDING
    if counts:
        writes += report_is_safe(ledger, after, now).writes
    event = HaRedirect(
        at=now,
        copy=after,
        recipients=after.unsettled,
        holder=holder,
        machines=machines(ledger, holder.name),
        attempts=(attempt.told,),
    )
    return Decision(counts, (SaveCopy(copy, after), *writes, *_heard(ledger, attempt)), (event,))
