"""Changes of ownership: promotion of a shadow copy, and an owner that yields to another owner.

Of two owners the one with the higher epoch owns the message; of equal epochs, the one with the lower rank; of
equal ranks, the first by name. A promotion raises the epoch.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

from shadowrelay.core.decisions import Decision, Member, SaveCopy, Verdict, VerdictKind, Write
from shadowrelay.core.events.discard_notices import addressed, delivered, orders
from shadowrelay.core.events.reports import is_derived
from shadowrelay.core.events.side_effects import report_is_safe
from shadowrelay.core.identifiers import Continuity, DatabaseId, Incarnation, Mark, MessageId, ServerName
from shadowrelay.core.ledger import Ledger
from shadowrelay.core.machines import holding, machines
from shadowrelay.core.messages import (
    Confirmation,
    Copy,
    Damage,
    Digests,
    Envelope,
    Holder,
    HolderState,
    Reason,
    Recipient,
    Role,
    Stage,
)
from shadowrelay.core.tracking import HaReceive, HaRedirect, Promote, Transfer
from shadowrelay.core.tracking_row import TrackingEvent
from shadowrelay.core.values import replace

NO_INCARNATION = Incarnation("")
"""Marks a copy that its owner never offered: its ``unknown`` cannot mean that the sender got no 250."""


def made_here(
    ledger: Ledger,
    message_id: MessageId,
    envelope: Envelope,
    recipients: tuple[Recipient, ...],
    digests: Digests | None,
    received_at: datetime,
) -> Copy:
    """A new message that this node owns: epoch 1, and no holder yet."""
    own = ledger.lineage
    return Copy(
        id=message_id,
        epoch=1,
        rank=0,
        role=Role.PRIMARY,
        owner=ledger.name,
        owner_database=own.database_id,
        offered_in=own.incarnation,
        envelope=envelope,
        recipients=recipients,
        digests=digests,
        received_at=received_at,
    )


def saved(before: Copy, after: Copy) -> Decision[None]:
    """Store the change, if there is one."""
    return Decision(None, (SaveCopy(before, after),)) if after != before else Decision(None)


def settled_now(copy: Copy, now: datetime) -> Copy:
    """The copy in Safety Net: its last recipient is settled now."""
    return replace(copy, stage=Stage.SAFETY_NET, settled_at=now, check_at=None)


def intend(copy: Copy, reason: Reason, now: datetime) -> Decision[None]:
    """Make the copy's promotion pending, durably: the members that can be reached are asked first.

    Another holder with a lower rank may promote instead, or a member may know that the message is delivered.
    """
    return saved(copy, intended(copy, reason, now))


def intended(copy: Copy, reason: Reason, now: datetime) -> Copy:
    """The copy with its promotion pending. Repeating this changes nothing, except that evidence replaces
    HEARTBEAT_LOST, which is mere silence. An open question keeps its time: after a long absence the owner
    has to answer it (``concluding``).
    """
    if not copy.held or copy.pending not in {None, Reason.HEARTBEAT_LOST} or copy.pending is reason:
        return copy
    since = now if copy.confirmation is Confirmation.NONE else copy.confirm_since
    return replace(copy, pending=reason, confirmation=Confirmation.ASK, confirm_since=since, check_at=None)


def withdraw(copy: Copy, now: datetime, *, still_asked: bool = False) -> Decision[None]:
    """The owner was only silent, and is back: cancel the promotion, and ask the owner about the copy.

    ``still_asked``: the owner has to answer a question that was open before.
    """
    if not copy.held or copy.pending is not Reason.HEARTBEAT_LOST:
        return Decision(None)
    after = replace(copy, pending=None, holders=()) if still_asked else unclaimed(copy)
    return saved(copy, replace(after, check_at=now))


def unclaimed(copy: Copy) -> Copy:
    """The copy without a pending promotion."""
    return replace(copy, pending=None, confirmation=Confirmation.NONE, confirm_since=None, holders=())


def promote(ledger: Ledger, copy: Copy, now: datetime) -> Decision[None]:
    """Make a copy whose promotion is pending the primary message, with its unsettled recipients.

    The owner's other holders become ours and are told TAKEN; so is the former owner, unless it is gone for
    good. Before delivery the former owner is asked too, if it can be reached: it may know more.
    """
    reason = copy.pending
    if not copy.held or reason is None or copy.damaged:
        return Decision(None)
    own = ledger.lineage
    fellows = tuple(_fellow(ledger, holder) for holder in copy.holders)
    owned = replace(
        copy,
        epoch=copy.epoch + 1,
        role=Role.PRIMARY,
        owner=ledger.name,
        owner_database=own.database_id,
        offered_in=own.incarnation,
        holders=fellows,
        ranks_given=max((holder.rank for holder in fellows), default=0),
        confirmation=Confirmation.ASK,
        pending=None,
        former_owner=copy.owner,
        check_at=None,
        damage=None,  # the other maker's report is gone with its owner, so ours is good (OTHER_MAKER)
    )
    told = [holder.database_id for holder in fellows]
    if reason not in {Reason.DATABASE_REPLACED, Reason.OWNER_RETIRED} and copy.owner_database:
        told.append(copy.owner_database)
    taken = (Verdict(copy.id, owned.epoch, VerdictKind.TAKEN, ledger.name),)
    promotion = Promote(
        at=now,
        copy=owned,
        recipients=owned.unsettled,
        former_owner=copy.owner,
        former_database=copy.owner_database,
        reason=reason,
    )
    redirects = tuple(
        HaRedirect(
            at=now,
            copy=owned,
            recipients=owned.unsettled,
            holder=fellow,
            machines=machines(ledger, fellow.name),
            attempts=(f"{fellow.name}=holds a copy",),
        )
        for fellow in fellows
        if fellow.state in {HolderState.HOLDING, HolderState.BESIDE}
    )
    return Decision(None, (SaveCopy(copy, owned), *addressed(told, taken, now)), (promotion, *redirects))


def _fellow(ledger: Ledger, holder: Holder) -> Holder:
    """Another holder of the former owner becomes ours: UNCERTAIN if its lineage broke since it answered."""
    if holder.mark and stands(ledger, holder.name, holder.database_id, holder.mark):
        return replace(holder, state=holding(ledger, holder.name))
    return replace(holder, state=HolderState.UNCERTAIN)


def with_better_holder(
    copy: Copy, holder: Holder, instead_of: Collection[HolderState], now: datetime
) -> tuple[Copy, tuple[Write, ...]]:
    """The copy with that holder. If it counts, holders in a state ``instead_of`` are superseded and told."""
    if holder.state is not HolderState.HOLDING:
        return copy.with_holder(holder), ()
    told: list[Write] = []
    others = []
    copy = _waits_no_longer(copy)
    for other in copy.holders:
        if other.database_id != holder.database_id and other.state in instead_of:
            gone = (Verdict(copy.id, copy.epoch, VerdictKind.SUPERSEDED, str(other.rank)),)
            told += addressed([other.database_id], gone, now)
            other = replace(other, state=HolderState.SUPERSEDED)  # noqa: PLW2901
        others.append(other)
    return replace(copy, holders=tuple(others)).with_holder(holder), tuple(told)


def _waits_no_longer(copy: Copy) -> Copy:
    """A resubmitted message waits for its second copy before it is tried; now it has one."""
    if copy.request is None:
        return copy
    return copy.with_recipients(replace(one, next_attempt=None) for one in copy.unsettled if not one.attempts)


def yields(
    ledger: Ledger,
    copy: Copy,
    owner: ServerName,
    owner_database: DatabaseId,
    epoch: int,
    now: datetime,
    *,
    handed_over: bool = False,
) -> Decision[None]:
    """Become a holder of the new owner: the roles swap, and no content is sent.

    The new owner is told at once what is settled here. Members that hold a copy for us are told who owns the
    message now. With the next CHECK the new owner records us as a holder. Only a report that two nodes made
    may differ from the new owner's content, if this node, or the owner for which it holds the report, made
    one of them. Then our copy does not count until we are given the new owner's. (A message that has the
    content of another has the same octets wherever it is made.)
    """
    # Two copies of a report on one machine do not make it safe: then it is safe once it is settled.
    elsewhere = holding(ledger, owner) is HolderState.HOLDING
    safe = report_is_safe(ledger, copy, now) if elsewhere else Decision(None)
    if copy.stage is Stage.SAFETY_NET:  # settled: the new owner only has to be told
        return Decision(None, addressed([owner_database], delivered(copy, copy.recipients), now))
    from_a_maker = copy.role is Role.SHADOW or copy.former_owner is None
    in_own_words = is_derived(copy.id) and copy.content_of is None
    made_by_two = copy.damage is None and from_a_maker and not handed_over and in_own_words
    held = replace(
        copy,
        epoch=epoch,
        rank=0 if copy.held else copy.rank,  # until the new owner gives us a rank
        role=Role.SHADOW,
        stage=Stage.QUEUED,
        owner=owner,
        owner_database=owner_database,
        offered_in=NO_INCARNATION,
        holders=(),
        ranks_given=0,
        confirmation=Confirmation.NONE,
        confirm_since=None,
        pending=None,
        former_owner=None,
        check_at=now,
        renewed_at=None,
        damage=Damage.OTHER_MAKER if made_by_two else copy.damage,
    )
    settled = [recipient for recipient in copy.recipients if recipient.settled]
    forward = (Verdict(copy.id, epoch, VerdictKind.TAKEN, owner),)
    others = [holder.database_id for holder in copy.holders if holder.name != owner]
    writes: tuple[Write, ...] = (
        SaveCopy(copy, held),
        *addressed([owner_database], delivered(held, settled) + orders(held, held.unsettled), now),
        *addressed(others, forward, now),
        *safe.writes,
    )
    events: list[TrackingEvent] = []
    if copy.role is Role.PRIMARY:
        events.append(Transfer(at=now, copy=held, recipients=held.unsettled, new_owner=owner))
    events.append(
        HaReceive(
            at=now,
            copy=held,
            recipients=held.unsettled,
            primary=owner,
            machines=machines(ledger, owner),
            reason="taken",
        )
    )
    return Decision(None, writes, tuple(events))


def stands(ledger: Ledger, name: ServerName, database_id: DatabaseId, mark: Mark) -> bool:
    """Does a copy that the member said it holds, at that mark, still count? Not after its lineage broke."""
    return vouches(ledger.member(name), database_id, mark)


def vouches(member: Member | None, database_id: DatabaseId, mark: Mark) -> bool:
    """The same as ``stands``, for a member already looked up."""
    if member is None or member.lineage is None or member.retired:
        return False
    if mark.incarnation == member.lineage.incarnation:  # the running one: by now it is at that mark
        return database_id == member.lineage.database_id
    return member.lineage.continuity(database_id, mark) is Continuity.UNBROKEN


def outranks(epoch: int, rank: int, name: ServerName, other: tuple[int, int, ServerName]) -> bool:
    """Of two owners, does the one with this epoch, rank and name own the message?"""
    other_epoch, other_rank, other_name = other
    return (-epoch, rank, name) < (-other_epoch, other_rank, other_name)


def ask_about(copy: Copy, now: datetime) -> Decision[None]:
    """Deliver this message only after every reachable member has been asked about it (again)."""
    return saved(copy, asked_about(copy, now))


def asked_about(copy: Copy, now: datetime) -> Copy:
    """The copy with confirmation ASK, if it is owned: to be delivered only after the members are asked."""
    if not copy.owned or copy.confirmation is Confirmation.ASK:
        return copy
    return replace(copy, confirmation=Confirmation.ASK, confirm_since=now)
