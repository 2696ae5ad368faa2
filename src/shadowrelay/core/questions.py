"""CHECK: *I have this message at this epoch; what do you know of it?* – and what the answers mean.

Asked by holders of an owner that said nothing for a while, and by everybody of everybody at a return, a
promotion, and a new contact after a long silence.
"""

from __future__ import annotations

from datetime import datetime

from shadowrelay.core import arrivals
from shadowrelay.core.announcements import STATUS, delivered
from shadowrelay.core.decisions import (
    DamagedRow,
    Decision,
    DropDamaged,
    Kind,
    Ledger,
    Outcome,
    SaveCopy,
    Verdict,
)
from shadowrelay.core.discard import remembered_for
from shadowrelay.core.handover import awaits_its_owner
from shadowrelay.core.holding import release, settle_held
from shadowrelay.core.identifiers import DatabaseId, Mark, MessageId, ServerName
from shadowrelay.core.machines import holding, machines
from shadowrelay.core.messages import Copy, Holder, HolderState, Reason, Recipient, Role, Stage, Status
from shadowrelay.core.ownership import (
    ask_about,
    intend,
    outranks,
    saved,
    with_better_holder,
    withdraw,
    yields,
)
from shadowrelay.core.policy import Policy
from shadowrelay.core.set_aside import set_aside
from shadowrelay.core.side_effects import report_is_safe
from shadowrelay.core.tracking import HaRedirect
from shadowrelay.core.values import dataclass, replace

_LAST_RANK = 1_000_000

_COPIES = frozenset({HolderState.HOLDING, HolderState.LOST, HolderState.BESIDE})
"""States of a holder that may have what it acknowledged."""


@dataclass(frozen=True, slots=True)
class Speaker:
    """A member as we know it at this moment: the answers and questions of a session carry its mark."""

    name: ServerName
    database_id: DatabaseId
    mark: Mark
    version: int = 2  # of the protocol, as its session speaks it


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
        return Decision(known or (Verdict(message_id, copy.epoch, Kind.PENDING),))
    if copy.role is Role.PRIMARY:
        said = _answer_as_owner(ledger, copy, known, asker, epoch, rank, now, damaged=damaged)
    else:
        said = _answer_as_holder(ledger, copy, known, asker, epoch, rank, now)
    if copy.damaged or (copy.damage and asker.name == copy.owner):
        return replace(said, then=(*known, Verdict(copy.id, copy.epoch, Kind.DAMAGED)))
    return said


def without_copy(ledger: Ledger, message_id: MessageId, epoch: int) -> tuple[Verdict, ...]:
    """What is known of a message of which there is no copy here, or none that can be believed."""
    if rows := ledger.damaged(message_id):
        settled = tuple(number for number, _ in rows.settled)
        known = (Verdict(message_id, epoch, Kind.DELIVERED, recipients=settled),) if settled else ()
        return (*known, Verdict(message_id, epoch, Kind.DAMAGED))
    outcome = ledger.outcome(message_id)
    if outcome is None:
        return (Verdict(message_id, epoch, Kind.UNKNOWN),)
    if outcome.refused:
        return (Verdict(message_id, epoch, Kind.REJECTED),)
    return (Verdict(message_id, outcome.epoch, Kind.DELIVERED, recipients=outcome.delivered),)


def for_version_1(verdict: Verdict, rank: int | None) -> Verdict:
    """As a member understands it that knows of no damage, and takes ``unknown`` for *refused* (``rank``: as
    the asker gave it).
    """
    match verdict.kind:
        case Kind.DAMAGED:  # in answer to a claim: one that nobody has to wait for
            return replace(verdict, kind=Kind.PENDING, argument=verdict.argument and str(_LAST_RANK))
        case Kind.REJECTED:
            return replace(verdict, kind=Kind.UNKNOWN)
        case Kind.UNKNOWN if rank is None:  # it would drop the copy: let it ask again, in another version
            return replace(verdict, kind=Kind.PENDING)
        case _:
            return verdict


def _answer_of_arrival(
    ledger: Ledger, arrived: Copy, asker: Speaker, epoch: int, rank: int | None, now: datetime
) -> Decision[tuple[Verdict, ...]]:
    """Its holder asks, or an owner, which has it from a holder: it is a message. Others are to ask again."""
    offered_to = arrived.holder(asker.database_id)
    if arrivals.under_way(arrived) or (rank is None and not offered_to):
        return Decision((Verdict(arrived.id, arrived.epoch, Kind.PENDING),))
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
        return Decision((*known, Verdict(copy.id, epoch, Kind.YOURS)), swapped.writes, swapped.events)
    if epoch > copy.epoch:  # somebody took it over, and the asker holds it for them: find out who
        stale = ask_about(copy, now)
        return Decision(known, stale.writes)
    if rank is not None or epoch != copy.epoch:
        return Decision((*known, Verdict(copy.id, copy.epoch, Kind.TAKEN, ledger.name)))
    holder = copy.holder(asker.database_id)
    if damaged:
        return _answer_to_damaged(copy, known, holder, asker)
    superseded = holder is not None and holder.state is HolderState.SUPERSEDED
    if holder and superseded and not copy.exposed:
        return Decision((*known, Verdict(copy.id, copy.epoch, Kind.SUPERSEDED, str(holder.rank))))
    # One that was told to let go, and is needed again: its new rank outlives the word on its way to it.
    given = holder.rank if holder and not superseded else copy.ranks_given + 1
    now_holding = as_holder(ledger, asker, given)
    held = (*known, Verdict(copy.id, copy.epoch, Kind.HELD, str(given)))
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
    told = Verdict(copy.id, copy.epoch, Kind.PENDING)
    if not after.exposed:
        told = replace(told, kind=Kind.SUPERSEDED, argument=str(rank))
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
            return Decision((*known, Verdict(copy.id, copy.epoch, Kind.PENDING)))
        back = withdraw(copy, now)  # it was only silent
        return Decision((*known, Verdict(copy.id, copy.epoch, Kind.YOURS)), back.writes)
    if rank is not None and epoch > copy.epoch:
        swapped = yields(ledger, copy, asker.name, asker.database_id, epoch, now)
        return Decision((*known, Verdict(copy.id, epoch, Kind.YOURS)), swapped.writes, swapped.events)
    if epoch <= copy.epoch:
        return Decision((*known, Verdict(copy.id, copy.epoch, Kind.TAKEN, copy.owner)))
    # Somebody else owns it by now, or we do and do not know: its word is on its way, or was lost. Ask for it.
    asking = replace(copy, check_at=now) if copy.pending is None else copy
    return Decision((*known, Verdict(copy.id, copy.epoch, Kind.PENDING)), saved(copy, asking).writes)


def learn(
    ledger: Ledger,
    verdict: Verdict,
    speaker: Speaker,
    owner_database: DatabaseId | None,
    policy: Policy,
    now: datetime,
    *,
    long_away: datetime | None = None,
) -> Decision[None]:
    """Apply a verdict, told as a discard event or as an answer. Idempotent; an unknown id creates nothing.

    ``owner_database`` is the database of the member that TAKEN names, when we know it. ``long_away``: see
    ``Inquiry``.
    """
    if copy := ledger.copy(verdict.message_id):
        return _learn(ledger, copy, verdict, speaker, owner_database, now, long_away)
    if rows := ledger.damaged(verdict.message_id):
        return learn_of_rows(rows, verdict, policy, now)
    arrived = ledger.arrival(verdict.message_id)
    if arrived is None:
        return Decision(None)
    first = arrivals.learnt(ledger, arrived, verdict, as_holder(ledger, speaker, 1), policy, now)
    if first.then is None:
        return Decision(None, first.writes)
    return _learn(ledger, first.then, verdict, speaker, owner_database, now, long_away).after(first)


def learn_of_rows(rows: DamagedRow, verdict: Verdict, policy: Policy, now: datetime) -> Decision[None]:
    """What is said of a message whose rows cannot be believed: that nobody needs them, or nothing."""
    gone = (DropDamaged(rows.message_id),)
    match verdict.kind:
        case Kind.DELIVERED if not verdict.recipients:
            keep = now + remembered_for(policy)
            return Decision(None, (*gone, Outcome(rows.message_id, verdict.epoch, (), keep)))
        case Kind.REJECTED | Kind.SUPERSEDED:
            return Decision(None, gone)
        case _:
            return Decision(None)


def _learn(
    ledger: Ledger,
    copy: Copy,
    verdict: Verdict,
    speaker: Speaker,
    owner_database: DatabaseId | None,
    now: datetime,
    long_away: datetime | None,
) -> Decision[None]:
    match verdict.kind:
        case Kind.DELIVERED:
            return settle_held(ledger, copy, _settled(copy, verdict), speaker.database_id, now)
        case Kind.TAKEN:
            return _taken(ledger, copy, verdict, speaker, owner_database, now)
        case Kind.REJECTED | Kind.SUPERSEDED:
            if not copy.held or copy.owner != speaker.name or verdict.epoch < copy.epoch:
                return Decision(None)
            if verdict.kind is Kind.SUPERSEDED and int(verdict.argument or 0) < copy.rank:
                return Decision(None)
            released = release(copy, verdict.kind.capitalize(), now)
            if verdict.kind is Kind.REJECTED:
                return released
            return released.after(report_is_safe(ledger, copy, now))  # its owner has a copy elsewhere
        case Kind.HELD:
            return _held(copy, verdict, now)
        case Kind.YOURS:
            return _yours(ledger, copy, verdict, speaker, now)
        case Kind.UNKNOWN:
            return _unknown(copy, speaker, now, long_away)
        case Kind.PENDING:
            return _pending(ledger, copy, verdict, speaker)
        case Kind.DAMAGED:
            return _damaged(copy, verdict, speaker)


def _settled(copy: Copy, verdict: Verdict) -> tuple[Recipient, ...]:
    status = STATUS.get(verdict.argument, Status.DELIVERED)
    named = set(verdict.recipients)
    return tuple(
        replace(recipient, status=status)
        for recipient in copy.unsettled
        if not named or recipient.number in named
    )


def _taken(
    ledger: Ledger,
    copy: Copy,
    verdict: Verdict,
    speaker: Speaker,
    owner_database: DatabaseId | None,
    now: datetime,
) -> Decision[None]:
    """Somebody owns the message. Of equal epochs only the rival itself is believed, which knows our rank,
    and by a holder only its owner; anything else is hearsay, and two owners that follow it could yield to
    each other.
    """
    owner = ServerName(verdict.argument)
    if owner == ledger.name:
        return _handed_over(copy, verdict, speaker, now)
    if verdict.epoch < copy.epoch or not owner_database:
        return Decision(None)
    if copy.held and (verdict.epoch, owner) == (copy.epoch, copy.owner):
        # We know. After a handover this is the new owner's word that it took the message: have it record us.
        return saved(copy, replace(copy, check_at=now)) if awaits_its_owner(copy) else Decision(None)
    believed = verdict.epoch > copy.epoch or speaker.name == (owner if copy.owned else copy.owner)
    if not believed:
        return ask_about(copy, now)
    return yields(ledger, copy, owner, owner_database, verdict.epoch, now)


def _handed_over(copy: Copy, verdict: Verdict, speaker: Speaker, now: datetime) -> Decision[None]:
    """Its owner made us the owner: our copy is to be promoted, after the others were asked as ever."""
    if not copy.held or speaker.name != copy.owner or verdict.epoch != copy.epoch + 1:
        return Decision(None)
    return intend(copy, Reason.HANDED_OVER, now)


def as_holder(ledger: Ledger, speaker: Speaker, rank: int) -> Holder:
    """The speaker as a holder: it said durably that it has a copy."""
    return Holder(speaker.name, speaker.database_id, speaker.mark, rank, holding(ledger, speaker.name))


def _pending(ledger: Ledger, copy: Copy, verdict: Verdict, speaker: Speaker) -> Decision[None]:
    """Not decided yet. Said to our claim, with a rank: another holder, to be told what becomes of it."""
    if not copy.held or copy.pending is None or not verdict.argument or verdict.epoch != copy.epoch:
        return Decision(None)
    return saved(copy, copy.with_holder(as_holder(ledger, speaker, int(verdict.argument))))


def _damaged(copy: Copy, verdict: Verdict, speaker: Speaker) -> Decision[None]:
    """What the speaker has counts as no copy, but it is told what becomes of the message.

    Said to our claim, with its rank: it waits for nobody, and nobody for it.
    """
    holder = copy.holder(speaker.database_id)
    if copy.owned and holder and holder.state in _COPIES:
        return saved(copy, copy.with_holder(replace(holder, state=HolderState.UNCERTAIN)))
    if copy.held and copy.pending and verdict.argument and verdict.epoch == copy.epoch:
        rank = int(verdict.argument)
        fellow = Holder(speaker.name, speaker.database_id, None, rank, HolderState.UNCERTAIN)
        return saved(copy, copy.with_holder(fellow))
    return Decision(None)


def _held(copy: Copy, verdict: Verdict, now: datetime) -> Decision[None]:
    """The owner knows of our copy: nothing more to ask, for as long as copies are kept."""
    if not copy.held or verdict.epoch != copy.epoch:
        return Decision(None)
    after = replace(copy, rank=int(verdict.argument or copy.rank), check_at=None, renewed_at=now)
    return saved(copy, after)


def _yours(ledger: Ledger, copy: Copy, verdict: Verdict, speaker: Speaker, now: datetime) -> Decision[None]:
    """The speaker holds a copy for us, at this moment and durably.

    If we hold ours for the speaker, nobody owns the message: then we do. Of the next epoch: it was given us.
    """
    if copy.held and copy.owner == speaker.name and verdict.epoch == copy.epoch:
        return intend(copy, Reason.OWNER_FORGOT, now)
    if copy.held and copy.owner == speaker.name and verdict.epoch == copy.epoch + 1:
        return intend(copy, Reason.HANDED_OVER, now)
    holder = copy.holder(speaker.database_id)
    if not copy.owned or verdict.epoch != copy.epoch:
        return Decision(None)
    if holder is None or holder.state is HolderState.SUPERSEDED:
        return Decision(None)  # it asks by itself, and is recorded or released then
    return saved(copy, copy.with_holder(as_holder(ledger, speaker, holder.rank)))


def _unknown(copy: Copy, speaker: Speaker, now: datetime, long_away: datetime | None) -> Decision[None]:
    """The speaker has never heard of it, or a stale page made it forget.

    From the owner: the copy is to be promoted. An owner that refused a message says so; only of version 1 is
    it ``unknown`` in the incarnation that offered the copy which says it. To a holder that was away for so
    long that its owner may have settled and forgotten the message, it says nothing at all: the message is set
    aside. From a holder of ours: that the message is exposed.
    """
    if copy.held and speaker.name == copy.owner and copy.pending is None:
        same = (speaker.database_id, speaker.mark.incarnation) == (copy.owner_database, copy.offered_in)
        if speaker.version == 1 and same:
            return release(copy, "Orphaned", now)
        if long_away is not None and copy.confirm_since == long_away:
            return set_aside(copy, now)
        return intend(copy, Reason.OWNER_FORGOT, now)
    holder = copy.holder(speaker.database_id)
    if copy.owned and holder and holder.state in _COPIES:
        after = copy.with_holder(replace(holder, state=HolderState.UNCERTAIN))
        return Decision(None, (SaveCopy(copy, after),))
    return Decision(None)


def shared_with(copy: Copy, member: ServerName) -> bool:
    """Does that member have a copy of this message too, as far as we know: as its owner, or as a holder?"""
    if copy.held:
        return copy.owner == member and copy.pending is None
    return copy.owned and any(one.name == member and one.state in _COPIES for one in copy.holders)


def check_later(copy: Copy, at: datetime) -> Decision[None]:
    """The owner left this copy out of its answer: ask again then."""
    return Decision(None, (SaveCopy(copy, replace(copy, check_at=at)),))
