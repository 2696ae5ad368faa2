"""Questions about messages (CHECK): what the answers of a member mean for our copy. See ``answers``.

CHECK says: *I have this message at this epoch; what do you know of it?* A holder asks an owner that said
nothing for a while. At a return, a promotion, and a new contact after a long silence, a node asks every
member.
"""

from __future__ import annotations

from datetime import datetime

from shadowrelay.core.decisions import (
    DamagedRow,
    Decision,
    DropDamaged,
    Outcome,
    SaveCopy,
    Verdict,
    VerdictKind,
)
from shadowrelay.core.events.discard import remembered_for
from shadowrelay.core.events.discard_notices import STATUS
from shadowrelay.core.events.side_effects import report_is_safe
from shadowrelay.core.identifiers import DatabaseId, Mark, ServerName
from shadowrelay.core.ledger import Ledger
from shadowrelay.core.machines import holding
from shadowrelay.core.messages import Copy, Holder, HolderState, Reason, Recipient, Status
from shadowrelay.core.ownership.handover import awaits_its_owner
from shadowrelay.core.ownership.transfer import (
    ask_about,
    intend,
    saved,
    yields,
)
from shadowrelay.core.policy import Policy
from shadowrelay.core.reception import arrivals
from shadowrelay.core.reception.holding import discard_copy, order_held, settle_held, unread_held
from shadowrelay.core.values import dataclass, replace

_COPIES = frozenset({HolderState.HOLDING, HolderState.LOST, HolderState.BESIDE})
"""States of a holder that acknowledged a copy and may still have it."""


@dataclass(frozen=True, slots=True)
class Speaker:
    """The member that asks or answers, with the mark that its words carry."""

    name: ServerName
    database_id: DatabaseId
    mark: Mark
    version: int = 4  # of the protocol, as its session speaks it


def as_holder(ledger: Ledger, speaker: Speaker, rank: int) -> Holder:
    """The speaker as a holder of a copy that it durably has."""
    return Holder(speaker.name, speaker.database_id, speaker.mark, rank, holding(ledger, speaker.name))


def learn(
    ledger: Ledger,
    verdict: Verdict,
    speaker: Speaker,
    owner_database: DatabaseId | None,
    policy: Policy,
    now: datetime,
) -> Decision[None]:
    """Apply a verdict from a discard event or an answer. Idempotent; an unknown id creates nothing.

    ``owner_database``: the database of the member that TAKEN names, if we know it.
    """
    if copy := ledger.copy(verdict.message_id):
        return _learn(ledger, copy, verdict, speaker, owner_database, policy, now)
    if rows := ledger.damaged(verdict.message_id):
        return learn_of_rows(rows, verdict, policy, now)
    arrived = ledger.arrival(verdict.message_id)
    if arrived is None:
        return Decision(None)
    first = arrivals.learnt(ledger, arrived, verdict, as_holder(ledger, speaker, 1), now)
    if first.then is None:
        return Decision(None, first.writes)
    return _learn(ledger, first.then, verdict, speaker, owner_database, policy, now).after(first)


def learn_of_rows(rows: DamagedRow, verdict: Verdict, policy: Policy, now: datetime) -> Decision[None]:
    """Apply a verdict about a message whose rows cannot be believed: delete the rows if nobody needs them."""
    gone = (DropDamaged(rows.message_id),)
    match verdict.kind:
        case VerdictKind.DELIVERED if not verdict.recipients:
            keep = now + remembered_for(policy)
            return Decision(None, (*gone, Outcome(rows.message_id, verdict.epoch, (), keep)))
        case VerdictKind.REJECTED | VerdictKind.SUPERSEDED:
            return Decision(None, gone)
        case _:
            return Decision(None)


def _learn(
    ledger: Ledger,
    copy: Copy,
    verdict: Verdict,
    speaker: Speaker,
    owner_database: DatabaseId | None,
    policy: Policy,
    now: datetime,
) -> Decision[None]:
    match verdict.kind:
        case VerdictKind.DELIVERED:
            known = _dated(copy, verdict, now)
            settled = _settled(known, verdict, now)
            then = settle_held(ledger, known, settled, speaker.database_id, speaker.mark, now)
            return then.after(saved(copy, known))
        case VerdictKind.SUSPENDED | VerdictKind.RESUMED:
            return order_held(ledger, copy, verdict, speaker.database_id, now)
        case VerdictKind.UNREAD:
            return unread_held(ledger, copy, verdict, speaker.database_id, policy, now)
        case VerdictKind.TAKEN:
            return _taken(ledger, copy, verdict, speaker, owner_database, now)
        case VerdictKind.REJECTED | VerdictKind.SUPERSEDED:
            if not copy.held or copy.owner != speaker.name or verdict.epoch < copy.epoch:
                return Decision(None)
            if verdict.kind is VerdictKind.SUPERSEDED and int(verdict.argument or 0) < copy.rank:
                return Decision(None)
            released = discard_copy(ledger, copy, verdict.kind.capitalize(), now)
            if verdict.kind is VerdictKind.REJECTED:
                return released
            return released.after(report_is_safe(ledger, copy, now))  # its owner has a copy elsewhere
        case VerdictKind.RECORDED:
            return _held(copy, verdict, now)
        case VerdictKind.YOURS:
            return _yours(ledger, copy, verdict, speaker, now)
        case VerdictKind.UNKNOWN:
            return _unknown(ledger, copy, speaker, now)
        case VerdictKind.PENDING:
            return _pending(ledger, copy, verdict, speaker)
        case VerdictKind.DAMAGED:
            return _damaged(copy, verdict, speaker)


def _settled(copy: Copy, verdict: Verdict, now: datetime) -> tuple[Recipient, ...]:
    status, at = STATUS.get(verdict.argument, Status.DELIVERED), _settled_at(verdict, now)
    named = set(verdict.recipients)
    return tuple(
        replace(recipient, status=status, settled_at=at)
        for recipient in copy.unsettled
        if not named or recipient.number in named
    )


def _dated(copy: Copy, verdict: Verdict, now: datetime) -> Copy:
    """The copy with the time of settlement of recipients of which only the outcome was known."""
    status, at = STATUS.get(verdict.argument, Status.DELIVERED), _settled_at(verdict, now)
    named = set(verdict.recipients)
    undated = [
        replace(recipient, settled_at=at)
        for recipient in copy.recipients
        if recipient.status is status
        and recipient.settled_at is None
        and (not named or recipient.number in named)
    ]
    return copy.with_recipients(undated) if at and undated else copy


def _settled_at(verdict: Verdict, now: datetime) -> datetime | None:
    """The clock of the other node may be ahead."""
    return min(verdict.settled_at, now) if verdict.settled_at else None


def _taken(
    ledger: Ledger,
    copy: Copy,
    verdict: Verdict,
    speaker: Speaker,
    owner_database: DatabaseId | None,
    now: datetime,
) -> Decision[None]:
    """Another member owns the message: yield to it, if the verdict can be believed.

    At a higher epoch everybody is believed. At an equal epoch an owner believes only the rival itself, which
    knows our rank, and a holder believes only its owner. Anything else is hearsay: two owners that follow it
    could yield to each other.
    """
    owner = ServerName(verdict.argument)
    if owner == ledger.name:
        return _handed_over(copy, verdict, speaker, now)
    if verdict.epoch < copy.epoch or not owner_database:
        return Decision(None)
    if copy.held and (verdict.epoch, owner) == (copy.epoch, copy.owner):
        # Already known. After a handover it says that the new owner took the message: have it record us.
        return saved(copy, replace(copy, check_at=now)) if awaits_its_owner(copy) else Decision(None)
    believed = verdict.epoch > copy.epoch or speaker.name == (owner if copy.owned else copy.owner)
    if not believed:
        return ask_about(copy, now)
    return yields(ledger, copy, owner, owner_database, verdict.epoch, now)


def _handed_over(copy: Copy, verdict: Verdict, speaker: Speaker, now: datetime) -> Decision[None]:
    """The owner handed the message over to us: make our copy's promotion pending; others are asked first."""
    if not copy.held or speaker.name != copy.owner or verdict.epoch != copy.epoch + 1:
        return Decision(None)
    return intend(copy, Reason.HANDED_OVER, now)


def _pending(ledger: Ledger, copy: Copy, verdict: Verdict, speaker: Speaker) -> Decision[None]:
    """The speaker has not decided yet. If it answers our claim with a rank, record it as another holder."""
    if not copy.held or copy.pending is None or not verdict.argument or verdict.epoch != copy.epoch:
        return Decision(None)
    return saved(copy, copy.with_holder(as_holder(ledger, speaker, int(verdict.argument))))


def _damaged(copy: Copy, verdict: Verdict, speaker: Speaker) -> Decision[None]:
    """The speaker's copy is damaged: it does not count, but the speaker is told the outcome of the message.

    If the speaker answers our claim with a rank, it is another holder: record it as uncertain.
    """
    holder = copy.holder(speaker.database_id)
    if copy.unfinished and holder and holder.state in _COPIES:
        return saved(copy, copy.with_holder(replace(holder, state=HolderState.UNCERTAIN)))
    if copy.held and copy.pending and verdict.argument and verdict.epoch == copy.epoch:
        rank = int(verdict.argument)
        fellow = Holder(speaker.name, speaker.database_id, None, rank, HolderState.UNCERTAIN)
        return saved(copy, copy.with_holder(fellow))
    return Decision(None)


def _held(copy: Copy, verdict: Verdict, now: datetime) -> Decision[None]:
    """The owner has our copy on record: there is nothing more to ask about it."""
    if not copy.held or verdict.epoch != copy.epoch:
        return Decision(None)
    after = replace(copy, rank=int(verdict.argument or copy.rank), check_at=None, renewed_at=now)
    return saved(copy, after)


def _yours(ledger: Ledger, copy: Copy, verdict: Verdict, speaker: Speaker, now: datetime) -> Decision[None]:
    """The speaker, at this moment, durably holds a copy for us.

    If we hold our copy for the speaker, nobody owns the message: then we promote ours. At the next epoch, the
    speaker has handed the message over to us.
    """
    if copy.held and copy.owner == speaker.name and verdict.epoch == copy.epoch:
        return intend(copy, Reason.OWNER_FORGOT, now)
    if copy.held and copy.owner == speaker.name and verdict.epoch == copy.epoch + 1:
        return intend(copy, Reason.HANDED_OVER, now)
    holder = copy.holder(speaker.database_id)
    if not copy.unfinished or verdict.epoch != copy.epoch:
        return Decision(None)
    if holder is None or holder.state is HolderState.SUPERSEDED:
        return Decision(None)  # it will ask by itself, and is recorded or superseded then
    return saved(copy, copy.with_holder(as_holder(ledger, speaker, holder.rank)))


def _unknown(ledger: Ledger, copy: Copy, speaker: Speaker, now: datetime) -> Decision[None]:
    """The speaker has never heard of the message, or a stale page made it forget.

    If the speaker is the owner, promote our copy: an owner that refused a message says *rejected*. Only in
    version 1 does *unknown*, in the incarnation that offered the copy, mean *refused*. If the speaker is a
    holder of ours, its copy no longer counts.
    """
    if copy.held and speaker.name == copy.owner and copy.pending is None:
        same = (speaker.database_id, speaker.mark.incarnation) == (copy.owner_database, copy.offered_in)
        if speaker.version == 1 and same:
            return discard_copy(ledger, copy, "Orphaned", now)
        return intend(copy, Reason.OWNER_FORGOT, now)
    holder = copy.holder(speaker.database_id)
    if copy.unfinished and holder and holder.state in _COPIES:
        after = copy.with_holder(replace(holder, state=HolderState.UNCERTAIN))
        return Decision(None, (SaveCopy(copy, after),))
    return Decision(None)


def shared_with(copy: Copy, member: ServerName) -> bool:
    """Does that member, as far as we know, have a copy of this message too, as its owner or as a holder?"""
    if copy.held:
        return copy.owner == member and copy.pending is None
    return copy.unfinished and any(one.name == member and one.state in _COPIES for one in copy.holders)


def check_later(copy: Copy, at: datetime) -> Decision[None]:
    """The owner left this copy out of its answer: ask again at that time."""
    return Decision(None, (SaveCopy(copy, replace(copy, check_at=at)),))
