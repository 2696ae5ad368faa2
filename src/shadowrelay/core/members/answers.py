"""What a member answers to a CHECK, and what follows from having been asked; see ``questions``."""

from __future__ import annotations

from datetime import datetime

from shadowrelay.core.decisions import Decision, SaveCopy, Verdict, VerdictKind
from shadowrelay.core.events.announcements import delivered
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
    """Say what we know. ``rank`` is given by an asker that owns the message, as the rank it owns it by.

    An owner that is asked by a holder records it as one, unless the copy there is ``damaged``; a copy of ours
    that turns out to be of an older ownership follows the asker. What is settled is said of a damaged copy
    too, and nothing else but that it is damaged.
    """
    copy = ledger.copy(message_id)
    if copy is None:
        if arrived := ledger.arrival(message_id):
            return _answer_of_arrival(ledger, arrived, asker, epoch, rank, now)
        return Decision(without_copy(ledger, message_id, epoch))
    known = delivered(copy, copy.recipients)
    if copy.stage is Stage.SAFETY_NET:
        # Its reports may not be safe yet: until they are, the asker is to keep its copy.
        return Decision(known or (Verdict(message_id, copy.epoch, VerdictKind.PENDING),))
    if copy.role is Role.PRIMARY:
        said = _answer_as_owner(ledger, copy, known, asker, epoch, rank, now, damaged=damaged)
    else:
        said = _answer_as_holder(ledger, copy, known, asker, epoch, rank, now)
    if copy.damaged or (copy.damage and asker.name == copy.owner):
        return replace(said, then=(*known, Verdict(copy.id, copy.epoch, VerdictKind.DAMAGED)))
    return said


def without_copy(ledger: Ledger, message_id: MessageId, epoch: int) -> tuple[Verdict, ...]:
    """What is known of a message of which there is no copy here, or none that can be believed."""
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
    """As a member understands it that knows of no damage, and takes ``unknown`` for *refused* (``rank``: as
    the asker gave it).
    """
    match verdict.kind:
        case VerdictKind.DAMAGED:  # in answer to a claim: one that nobody has to wait for
            return replace(verdict, kind=VerdictKind.PENDING, argument=verdict.argument and str(_LAST_RANK))
        case VerdictKind.REJECTED:
            return replace(verdict, kind=VerdictKind.UNKNOWN)
        case VerdictKind.UNKNOWN if rank is None:
            # It would drop the copy: let it ask again, in another version.
            return replace(verdict, kind=VerdictKind.PENDING)
        case _:
            return verdict


def _answer_of_arrival(
    ledger: Ledger, arrived: Copy, asker: Speaker, epoch: int, rank: int | None, now: datetime
) -> Decision[tuple[Verdict, ...]]:
    """Its holder asks, or an owner, which has it from a holder: it is a message. Others are to ask again."""
    offered_to = arrived.holder(asker.database_id)
    if arrivals.under_way(arrived) or (rank is None and not offered_to):
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
        swapped = yields(ledger, copy, asker.name, asker.database_id, epoch, now)
        return Decision((*known, Verdict(copy.id, epoch, VerdictKind.YOURS)), swapped.writes, swapped.events)
    if epoch > copy.epoch:  # somebody took it over, and the asker holds it for them: find out who
        stale = ask_about(copy, now)
        return Decision(known, stale.writes)
    if rank is not None or epoch != copy.epoch:
        return Decision((*known, Verdict(copy.id, copy.epoch, VerdictKind.TAKEN, ledger.name)))
    holder = copy.holder(asker.database_id)
    if damaged:
        return _answer_to_damaged(copy, known, holder, asker)
    superseded = holder is not None and holder.state is HolderState.SUPERSEDED
    if holder and superseded and not copy.exposed:
        return Decision((*known, Verdict(copy.id, copy.epoch, VerdictKind.SUPERSEDED, str(holder.rank))))
    # Told to discard its copy, and needed again: its new rank outlives the word on its way to it.
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
    """The holder's copy counts as none. It is kept until another one is made, there or elsewhere."""
    rank = holder.rank if holder else copy.ranks_given + 1
    uncertain = Holder(asker.name, asker.database_id, None, rank, HolderState.UNCERTAIN)
    if holder and holder.state is HolderState.SUPERSEDED:
        uncertain = holder
    after = copy.with_holder(uncertain)
    told = Verdict(copy.id, copy.epoch, VerdictKind.PENDING)
    if not after.exposed:
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
        back = withdraw(copy, now)  # it was only silent
        return Decision((*known, Verdict(copy.id, copy.epoch, VerdictKind.YOURS)), back.writes)
    if rank is not None and epoch > copy.epoch:
        swapped = yields(ledger, copy, asker.name, asker.database_id, epoch, now)
        return Decision((*known, Verdict(copy.id, epoch, VerdictKind.YOURS)), swapped.writes, swapped.events)
    if epoch <= copy.epoch:
        return Decision((*known, Verdict(copy.id, copy.epoch, VerdictKind.TAKEN, copy.owner)))
    # Somebody else owns it by now, or we do and do not know: its word is on its way, or was lost. Ask for it.
    asking = replace(copy, check_at=now) if copy.pending is None else copy
    return Decision((*known, Verdict(copy.id, copy.epoch, VerdictKind.PENDING)), saved(copy, asking).writes)
