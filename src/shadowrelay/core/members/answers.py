"""Answers to CHECK: what this node says about a message, and what being asked changes. See ``questions``."""

from __future__ import annotations

from datetime import datetime

from shadowrelay.core.decisions import Decision, SaveCopy, Verdict, VerdictKind
from shadowrelay.core.events.discard_notices import known as all_known
from shadowrelay.core.events.side_effects import waited_in_vain
from shadowrelay.core.identifiers import MessageId
from shadowrelay.core.ledger import Ledger
from shadowrelay.core.machines import machines
from shadowrelay.core.members.questions import Speaker, as_holder
from shadowrelay.core.messages import Copy, Holder, HolderState, Reason, Role, Stage
from shadowrelay.core.ownership.transfer import (
    ask_about,
    outranks,
    saved,
    with_better_holder,
    withdraw,
    yields,
)
from shadowrelay.core.reception import arrivals
from shadowrelay.core.tracking import HaRedirect
from shadowrelay.core.values import replace

_LAST_RANK = 1_000_000


def answer(
    ledger: Ledger,
    asker: Speaker,
    message_id: MessageId,
    epoch: int,
    rank: int | None,
    now: datetime,
    *,
    damaged: bool = False,
) -> Decision[tuple[Verdict, ...]]:
    """Say what this node knows about a message. ``rank``: the asker owns the message, with that rank.

    If this node owns the message and a holder asks, this node records the holder, unless the holder's copy is
    ``damaged``. If our copy belongs to an older ownership, it follows the asker. About a damaged copy of ours
    the answer says only what is settled, and that the copy is damaged.
    """
    copy = ledger.copy(message_id)
    if copy is None:
        if arrived := ledger.arrival(message_id):
            return _answer_of_arrival(ledger, arrived, asker, epoch, rank, now)
        return Decision(without_copy(ledger, message_id, epoch))
    ended = waited_in_vain(ledger, copy, now)
    said = _answer(ledger, ended.then, asker, epoch, rank, now, damaged=damaged)
    return said.after(ended)


def _answer(
    ledger: Ledger, copy: Copy, asker: Speaker, epoch: int, rank: int | None, now: datetime, *, damaged: bool
) -> Decision[tuple[Verdict, ...]]:
    known = all_known(copy)
    if copy.stage is Stage.SAFETY_NET:
        # If its reports are not safe yet, the asker has to keep its copy until they are.
        return Decision(known or (Verdict(copy.id, copy.epoch, VerdictKind.PENDING),))
    if copy.role is Role.PRIMARY:
        said = _answer_as_owner(ledger, copy, known, asker, epoch, rank, now, damaged=damaged)
    else:
        said = _answer_as_holder(ledger, copy, known, asker, epoch, rank, now)
    if copy.damaged or (copy.damage and asker.name == copy.owner):
        return replace(said, then=(*known, Verdict(copy.id, copy.epoch, VerdictKind.DAMAGED)))
    return said


def without_copy(ledger: Ledger, message_id: MessageId, epoch: int) -> tuple[Verdict, ...]:
    """What is known about a message of which this node has no copy, or no rows that can be believed."""
    if rows := ledger.damaged(message_id):
        settled = tuple(number for number, _ in rows.settled)
        known = (Verdict(message_id, epoch, VerdictKind.DELIVERED, recipients=settled),) if settled else ()
        return (*known, Verdict(message_id, epoch, VerdictKind.DAMAGED))
    outcome = ledger.outcome(message_id)
    if outcome is None:
        return (Verdict(message_id, epoch, VerdictKind.UNKNOWN),)
    if outcome.refused:
        return (Verdict(message_id, epoch, VerdictKind.REJECTED),)
    return (Verdict(message_id, outcome.epoch, VerdictKind.DELIVERED, recipients=outcome.delivered),)


def for_version_1(verdict: Verdict, rank: int | None) -> Verdict:
    """The verdict in the words of protocol version 1, which has no ``damaged``, and whose *unknown* means
    *refused*. ``rank``: as the asker gave it.
    """
    match verdict.kind:
        case VerdictKind.DAMAGED:  # in answer to a claim: with the last rank, so that nobody waits for it
            return replace(verdict, kind=VerdictKind.PENDING, argument=verdict.argument and str(_LAST_RANK))
        case VerdictKind.REJECTED:
            return replace(verdict, kind=VerdictKind.UNKNOWN)
        case VerdictKind.UNKNOWN if rank is None:
            # The asker would drop its copy: let it ask again, perhaps in a later version.
            return replace(verdict, kind=VerdictKind.PENDING)
        case _:
            return verdict


def _answer_of_arrival(
    ledger: Ledger, arrived: Copy, asker: Speaker, epoch: int, rank: int | None, now: datetime
) -> Decision[tuple[Verdict, ...]]:
    """If a holder asks, or an owner, the arrival is a message: record it and answer. Others ask again."""
    offered_to = arrived.holder(asker.database_id)
    for_another = rank is None and not offered_to and epoch != arrived.epoch
    if arrivals.under_way(arrived) or for_another:
        return Decision((Verdict(arrived.id, arrived.epoch, VerdictKind.PENDING),))
    holder = as_holder(ledger, asker, 1) if rank is None else offered_to
    first = arrivals.recorded(ledger, arrived, holder, now) if holder else arrivals.accepted(arrived, now)
    return _answer_as_owner(ledger, first.then, (), asker, epoch, rank, now).after(first)


def _answer_as_owner(
    ledger: Ledger,
    copy: Copy,
    known: tuple[Verdict, ...],
    asker: Speaker,
    epoch: int,
    rank: int | None,
    now: datetime,
    *,
    damaged: bool = False,
) -> Decision[tuple[Verdict, ...]]:
    if rank is not None and outranks(epoch, rank, asker.name, (copy.epoch, copy.rank, ledger.name)):
        if any(one.journal for one in copy.recipients):  # what is delivered here cannot be told yet
            return Decision((*known, Verdict(copy.id, copy.epoch, VerdictKind.PENDING)))
        swapped = yields(ledger, copy, asker.name, asker.database_id, epoch, now)
        return Decision((*known, Verdict(copy.id, epoch, VerdictKind.YOURS)), swapped.writes, swapped.events)
    if epoch > copy.epoch:  # a member took it over, and the asker holds its copy: find out which member
        stale = ask_about(copy, now)
        return Decision(known, stale.writes)
    if rank is not None or epoch != copy.epoch:
        return Decision((*known, Verdict(copy.id, copy.epoch, VerdictKind.TAKEN, ledger.name)))
    holder = copy.holder(asker.database_id)
    if damaged:
        return _answer_to_damaged(copy, known, holder, asker)
    superseded = holder is not None and holder.state is HolderState.SUPERSEDED
    if holder and superseded and copy.redundant:
        return Decision((*known, Verdict(copy.id, copy.epoch, VerdictKind.SUPERSEDED, str(holder.rank))))
    # A superseded holder that is needed again gets a new rank, so SUPERSEDED with the old rank is void.
    given = holder.rank if holder and not superseded else copy.ranks_given + 1
    now_holding = as_holder(ledger, asker, given)
    held = (*known, Verdict(copy.id, copy.epoch, VerdictKind.RECORDED, str(given)))
    if holder and holder.state is now_holding.state:
        return Decision(held)
    recorded, told = with_better_holder(copy, now_holding, {HolderState.BESIDE}, now)
    event = HaRedirect(
        at=now,
        copy=recorded,
        recipients=recorded.unsettled,
        holder=now_holding,
        machines=machines(ledger, asker.name),
        attempts=(f"{asker.name}=holds a copy",),
    )
    return Decision(held, (SaveCopy(copy, recorded), *told), (event,))


def _answer_to_damaged(
    copy: Copy, known: tuple[Verdict, ...], holder: Holder | None, asker: Speaker
) -> Decision[tuple[Verdict, ...]]:
    """The holder's damaged copy does not count. It is kept until another copy is made, there or elsewhere."""
    rank = holder.rank if holder else copy.ranks_given + 1
    uncertain = Holder(asker.name, asker.database_id, None, rank, HolderState.UNCERTAIN)
    if holder and holder.state is HolderState.SUPERSEDED:
        uncertain = holder
    after = copy.with_holder(uncertain)
    told = Verdict(copy.id, copy.epoch, VerdictKind.PENDING)
    if after.redundant:
        told = replace(told, kind=VerdictKind.SUPERSEDED, argument=str(rank))
    return Decision((*known, told), saved(copy, after).writes)


def _answer_as_holder(
    ledger: Ledger,
    copy: Copy,
    known: tuple[Verdict, ...],
    asker: Speaker,
    epoch: int,
    rank: int | None,
    now: datetime,
) -> Decision[tuple[Verdict, ...]]:
    if copy.owner == asker.name and epoch <= copy.epoch:
        if copy.pending and copy.pending is not Reason.HEARTBEAT_LOST:
            return Decision((*known, Verdict(copy.id, copy.epoch, VerdictKind.PENDING)))
        back = withdraw(copy, now)  # the owner was only silent
        return Decision((*known, Verdict(copy.id, copy.epoch, VerdictKind.YOURS)), back.writes)
    if rank is not None and epoch > copy.epoch:
        swapped = yields(ledger, copy, asker.name, asker.database_id, epoch, now)
        return Decision((*known, Verdict(copy.id, epoch, VerdictKind.YOURS)), swapped.writes, swapped.events)
    if epoch <= copy.epoch:
        return Decision((*known, Verdict(copy.id, copy.epoch, VerdictKind.TAKEN, copy.owner)))
    # The copy has a later owner, perhaps this node: TAKEN is on its way, or was lost. Ask our owner.
    asking = replace(copy, check_at=now) if copy.pending is None else copy
    return Decision((*known, Verdict(copy.id, copy.epoch, VerdictKind.PENDING)), saved(copy, asking).writes)
