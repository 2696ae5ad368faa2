"""The shadow server's side of a copy: taking it, revoking it, letting it go."""

from __future__ import annotations

from datetime import datetime
from enum import Enum

from shadowrelay.core.announcements import addressed, delivered
from shadowrelay.core.decisions import Content, Decision, DropCopy, Kind, Ledger, SaveCopy, Tombstone, Verdict
from shadowrelay.core.discard import remembered_for
from shadowrelay.core.heartbeat import heard
from shadowrelay.core.identifiers import DatabaseId, Mark, MessageId, ServerName
from shadowrelay.core.messages import Copy, Envelope, Reason, Recipient, Role, Stage
from shadowrelay.core.ownership import ask_about, unclaimed
from shadowrelay.core.policy import Policy
from shadowrelay.core.side_effects import report_is_safe
from shadowrelay.core.tracking import HaDiscard, HaReceive
from shadowrelay.core.values import dataclass, replace


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """A copy that an owner asks us to hold, as its shadow session carried it."""

    message_id: MessageId
    epoch: int
    rank: int
    owner: ServerName
    owner_database: DatabaseId
    mark: Mark  # the owner's, when it offered the copy
    received_at: datetime
    envelope: Envelope
    recipients: tuple[Recipient, ...]


class Held(Enum):
    """The answer to an offer: a copy is durably here, or it was refused (and why)."""

    QUEUED = "queued for redundancy"
    REVOKED = "revoked"
    NOT_YOURS = "owned elsewhere"


def hold(ledger: Ledger, offer: Offer, content: Content, policy: Policy, now: datetime) -> Decision[Held]:
    """Take a copy. Idempotent by id, epoch and rank: an owner that got no answer may offer it again.

    A copy that was revoked, that this node owns or settled, or holds for a later owner, is refused: the
    owner learns the reason from its next question.
    """
    new = not ledger.knows(offer.message_id)  # as nearly always: then there is no more to look up
    grave = None if new else ledger.tombstone(offer.message_id)
    if grave and grave.owner == offer.owner and (offer.epoch, offer.rank) <= (grave.epoch, grave.rank):
        return Decision(Held.REVOKED)
    known_of_owner = heard(ledger, offer.owner, offer.mark).writes
    known = None if new else ledger.copy(offer.message_id)
    if known is None:
        # What arrived here of it becomes ours, or theirs, by a question.
        if not new and (ledger.outcome(offer.message_id) or ledger.arrival(offer.message_id)):
            return Decision(Held.NOT_YOURS)
        copy = Copy(
            id=offer.message_id,
            epoch=offer.epoch,
            rank=offer.rank,
            role=Role.SHADOW,
            owner=offer.owner,
            owner_database=offer.owner_database,
            offered_in=offer.mark.incarnation,
            envelope=offer.envelope,
            recipients=offer.recipients,
            # The owner's clock may be ahead: a copy is due by it when it is ours.
            received_at=min(offer.received_at, now),
            check_at=now + policy.orphan_check_interval,
        )
        event = HaReceive(at=now, copy=copy, primary=offer.owner, mark=offer.mark)
        return Decision(Held.QUEUED, (SaveCopy(None, copy, content), *known_of_owner), (event,))
    if known.owned:  # two owners: both ask, and epoch, rank and name decide
        return Decision(Held.NOT_YOURS, ask_about(known, now).writes)
    if not known.held or known.epoch > offer.epoch:
        return Decision(Held.NOT_YOURS)
    if known.epoch == offer.epoch and known.owner != offer.owner:
        return Decision(Held.NOT_YOURS)
    copy = replace(
        _answered_for(known, offer),
        epoch=offer.epoch,
        rank=max(offer.rank, known.rank) if known.epoch == offer.epoch else offer.rank,
        owner=offer.owner,
        owner_database=offer.owner_database,
        offered_in=offer.mark.incarnation,
        check_at=now + policy.orphan_check_interval,
    )
    event = HaReceive(
        at=now, copy=copy, recipients=copy.unsettled, primary=offer.owner, mark=offer.mark, reason="again"
    )
    return Decision(Held.QUEUED, (SaveCopy(known, copy), *known_of_owner), (event,))


def _answered_for(known: Copy, offer: Offer) -> Copy:
    """A promotion is off when the owner offers, which was only silent, or when a later owner does."""
    if known.epoch == offer.epoch and known.pending is not Reason.HEARTBEAT_LOST:
        return known
    return unclaimed(known)


def release(copy: Copy, reason: str, now: datetime) -> Decision[None]:
    """Let a copy go that nobody will ever need: rejected, orphaned, superseded or revoked."""
    if copy.role is not Role.SHADOW:
        return Decision(None)
    event = HaDiscard(at=now, copy=copy, recipients=copy.unsettled, reason=reason)
    return Decision(None, (DropCopy(copy),), (event,))


def revoke(
    ledger: Ledger,
    asker: ServerName,
    message_id: MessageId,
    epoch: int,
    rank: int,
    policy: Policy,
    now: datetime,
) -> Decision[Verdict]:
    """Drop that copy and refuse it for ever, even if it was never here: a body may still be on its way.

    A promoted or delivered copy cannot be taken back: the answer says so, and the owner must not say 451.
    Neither can one that is held for somebody else than who asks, and offers of others are not refused.
    """
    copy = ledger.copy(message_id)
    outcome = ledger.outcome(message_id)
    if copy is None and outcome:
        return Decision(Verdict(message_id, outcome.epoch, Kind.DELIVERED, recipients=outcome.delivered))
    if copy is not None and copy.stage is Stage.SAFETY_NET:
        return Decision(Verdict(message_id, copy.epoch, Kind.DELIVERED))
    if copy is not None and (copy.role is Role.PRIMARY or copy.epoch > epoch or copy.owner != asker):
        return Decision(Verdict(message_id, copy.epoch, Kind.TAKEN, copy.owner))
    keep = now + remembered_for(policy)
    grave = Tombstone(message_id, asker, epoch, rank, keep)
    confirmed = Verdict(message_id, epoch, Kind.REJECTED)
    if copy is None:
        return Decision(confirmed, (grave,))
    if copy.rank > rank:  # a later offer of the same message: that one stands
        return Decision(Verdict(message_id, copy.epoch, Kind.TAKEN, copy.owner), (grave,))
    released = release(copy, "Revoked", now)
    return Decision(confirmed, (grave, *released.writes), released.events)


def settle_held(
    ledger: Ledger, copy: Copy, settled: tuple[Recipient, ...], told_by: DatabaseId, now: datetime
) -> Decision[None]:
    """Recipients of a copy are settled elsewhere; the last one moves it to Safety Net.

    ``delivered`` settles recipients at any epoch and in any role. Members that hold a copy for us, and an
    owner other than the one that told us, are told in turn.
    """
    settled = tuple(recipient for recipient in settled if recipient.settled)
    if not settled or copy.stage is Stage.SAFETY_NET:
        return Decision(None)
    after = copy.with_recipients(settled)
    if not after.unsettled:
        after = replace(after, stage=Stage.SAFETY_NET, settled_at=now, check_at=None)
    listeners = [holder.database_id for holder in copy.holders]
    owner = ledger.member(copy.owner)
    if copy.held and owner and owner.lineage and owner.lineage.database_id != told_by:
        listeners.append(owner.lineage.database_id)
    reason = "ExplicitlyDiscarded" if copy.role is Role.SHADOW else "DeliveredElsewhere"
    onward = addressed(
        (listener for listener in listeners if listener != told_by), delivered(after, settled), now
    )
    event = HaDiscard(at=now, copy=after, recipients=settled, reason=reason)
    safe = report_is_safe(ledger, copy, now) if not after.unsettled else Decision(None)
    return Decision(None, (SaveCopy(copy, after), *onward, *safe.writes), (event,))
