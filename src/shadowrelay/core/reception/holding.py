"""The shadow server's side of a copy: take it, restore it, revoke it, settle it, discard it."""

from __future__ import annotations

from datetime import datetime
from enum import Enum

from shadowrelay.core.decisions import (
    Content,
    Decision,
    DropCopy,
    DropDamaged,
    SaveCopy,
    Tombstone,
    Verdict,
    VerdictKind,
    Write,
)
from shadowrelay.core.events.discard import remembered_for
from shadowrelay.core.events.discard_notices import (
    STATUS,
    addressed,
    delivered,
    ended,
    orders,
    to_giver,
    unread,
    unread_said,
)
from shadowrelay.core.events.side_effects import report_is_safe
from shadowrelay.core.identifiers import DatabaseId, Mark, MessageId, RequestId, ServerName
from shadowrelay.core.ledger import Ledger
from shadowrelay.core.machines import holding, machines
from shadowrelay.core.messages import Copy, Digests, Envelope, Holder, Reason, Recipient, Role, Stage, Status
from shadowrelay.core.ownership.heartbeat import heard
from shadowrelay.core.ownership.transfer import (
    ask_about,
    asked_about,
    made_here,
    saved,
    settled_now,
    unclaimed,
    yields,
)
from shadowrelay.core.policy import Policy
from shadowrelay.core.reception.by_reference import may_refer
from shadowrelay.core.tracking import HaDiscard, HaReceive, HaRestore
from shadowrelay.core.unread import told_of
from shadowrelay.core.values import dataclass, replace


@dataclass(frozen=True, slots=True, kw_only=True)
class ShadowCopyOffer:
    """A copy that an owner asks this node to hold; both digests were compared with what came.

    ``received_at``: by our own clock, computed from the age in the offer. ``given_for``: a holder, not an
    owner, offers its copy to replace our damaged one; this is the owner for which it holds the copy.
    ``content_of``, ``request``: as in ``Copy``.
    """

    message_id: MessageId
    epoch: int
    rank: int
    owner: ServerName
    owner_database: DatabaseId
    mark: Mark  # the owner's, when it offered the copy
    received_at: datetime
    envelope: Envelope
    recipients: tuple[Recipient, ...]
    digests: Digests
    given_for: ServerName | None = None
    content_of: MessageId | None = None
    request: RequestId | None = None


ALL_EVENTS = 1 << 30


class OfferAnswer(Enum):
    """The answer to an offer: the copy is durably here, or why it was refused."""

    QUEUED = "queued for redundancy"
    REVOKED = "revoked"
    NOT_YOURS = "owned elsewhere"
    SEND = "send the content"


def hold(
    ledger: Ledger, offer: ShadowCopyOffer, content: Content, policy: Policy, now: datetime
) -> Decision[OfferAnswer]:
    """Take a copy. Idempotent by id, epoch and rank: an owner that got no answer may offer it again.

    This node refuses a copy that was revoked, and a copy of a message that it owns, has settled, or holds for
    a later owner; the owner learns the reason from its next question. A good copy replaces a damaged one.
    A content that only refers to that of another message (``Content.of``) was compared just now. Unless the
    owner may refer to it, SEND asks for the octets.
    """
    if content.of is not None and not may_refer(
        ledger, offer.owner, content.of, offer.envelope.size, offer.digests.content
    ):
        return Decision(OfferAnswer.SEND)
    if [one for one in offer.recipients if one.unread]:
        offer = replace(offer, recipients=tuple(_paused(one, offer, policy, now) for one in offer.recipients))
    if offer.given_for:
        return restore(ledger, offer, content, now)
    new = not ledger.knows(offer.message_id)  # nearly always; then nothing else is looked up
    tombstone = None if new else ledger.tombstone(offer.message_id)
    if tombstone and tombstone.refuses(offer.owner, offer.epoch, offer.rank):
        return Decision(OfferAnswer.REVOKED)
    known_of_owner = heard(ledger, offer.owner, offer.mark).writes
    known = None if new else ledger.copy(offer.message_id)
    if known is None:
        # If the message arrived here, questions between the members decide who owns it.
        if not new and (_settled_here(ledger, offer) or ledger.arrival(offer.message_id)):
            return Decision(OfferAnswer.NOT_YOURS)
        again = not new and ledger.damaged(offer.message_id) is not None
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
            digests=offer.digests,
            content_of=offer.content_of,
            request=offer.request,
            received_at=min(offer.received_at, now),  # a promoted copy is due by this time
            check_at=now + policy.orphan_check_interval,
        )
        gone = (
            () if new else (DropDamaged(copy.id, instead=copy),)
        )  # rows that cannot be believed may be left
        event = _received(ledger, copy, offer, "again" if again else "", now)
        return Decision(OfferAnswer.QUEUED, (*gone, SaveCopy(None, copy, content), *known_of_owner), (event,))
    if known.owned:  # two owners: both ask, and epoch, rank and name decide
        return Decision(OfferAnswer.NOT_YOURS, ask_about(known, now).writes)
    if not known.held or known.epoch > offer.epoch:
        return Decision(OfferAnswer.NOT_YOURS)
    if known.epoch == offer.epoch and known.owner != offer.owner:
        return Decision(OfferAnswer.NOT_YOURS)
    # Two members may have made one report, each with its own time in it. A copy is as its owner has it.
    better = known.damage is not None or _another(known, offer.digests)
    copy = replace(
        _ordered_for(_answered_for(known, offer), offer),
        epoch=offer.epoch,
        rank=max(offer.rank, known.rank) if known.epoch == offer.epoch else offer.rank,
        owner=offer.owner,
        owner_database=offer.owner_database,
        offered_in=offer.mark.incarnation,
        check_at=now + policy.orphan_check_interval,
        content_of=offer.content_of or known.content_of,
        request=offer.request or known.request,
    )
    if better:
        copy = replace(copy, damage=None, digests=offer.digests, envelope=offer.envelope)
    event = _received(ledger, copy, offer, "again", now)
    saved = SaveCopy(known, copy, content if better else None)
    return Decision(OfferAnswer.QUEUED, (saved, *known_of_owner), (event,))


def _another(known: Copy, offered: Digests) -> bool:
    """Is that another content, or another envelope, than this node has?"""
    has = known.digests
    return has is not None and (has.content, has.envelope) != (offered.content, offered.envelope)


def _received(ledger: Ledger, copy: Copy, offer: ShadowCopyOffer, reason: str, now: datetime) -> HaReceive:
    return HaReceive(
        at=now,
        copy=copy,
        recipients=() if copy.unsettled == copy.recipients and not reason else copy.unsettled,
        primary=offer.owner,
        machines=machines(ledger, offer.owner),
        mark=offer.mark,
        reason=reason,
    )


def _settled_here(ledger: Ledger, offer: ShadowCopyOffer) -> bool:
    """Is the message on record here as settled? A refused one is not, if a member promoted its copy since."""
    outcome = ledger.outcome(offer.message_id)
    return outcome is not None and not (outcome.refused and offer.epoch > 1)


def restore(ledger: Ledger, offer: ShadowCopyOffer, content: Content, now: datetime) -> Decision[OfferAnswer]:
    """Replace the damaged copy of this node, the owner, by the good copy that a holder gives.

    Only content and envelope are replaced, which never change. A recipient is settled if either side has
    settled it, so nothing is sent twice. If our rows cannot be believed, the message gets the giver's epoch,
    and every member is asked before it is delivered.
    """
    if offer.given_for != ledger.name:
        return Decision(OfferAnswer.NOT_YOURS)
    giver = Holder(offer.owner, offer.owner_database, offer.mark, offer.rank, holding(ledger, offer.owner))
    if rows := ledger.damaged(offer.message_id):
        plain = made_here(
            ledger, offer.message_id, offer.envelope, offer.recipients, offer.digests, offer.received_at
        )
        plain = replace(plain, epoch=offer.epoch, content_of=offer.content_of, request=offer.request)
        copy = asked_about(plain.with_holder(giver), now)
        here = copy.with_recipients(
            replace(one, status=status)
            for one in copy.recipients
            for number, status in rows.settled
            if one.number == number and not one.settled
        )
        if not here.unsettled:
            here = settled_now(here, now)
        sent_here = {number for number, _ in rows.settled}
        elsewhere = tuple(one for one in copy.recipients if one.settled and one.number not in sent_here)
        done = [one for one in here.recipients if one not in copy.recipients]
        writes: tuple[Write, ...] = (
            DropDamaged(here.id, instead=here),
            SaveCopy(None, here, content),
            *addressed([offer.owner_database], delivered(here, done), now),
            *to_giver(ledger, here.id, here.recipients, now),  # it may not know yet
        )
        then = _given_away(ledger, here, offer.owner_database, now)
        if elsewhere:
            event = HaDiscard(
                at=now,
                copy=here,
                recipients=elsewhere,
                reason="DeliveredElsewhere",
                told_by=offer.owner_database,
                mark=offer.mark,
            )
            then = then.after(Decision(None, (), (event,)))
    else:
        known = ledger.copy(offer.message_id)
        if known is None or not known.damaged or not known.queued or known.digests is None:
            return Decision(OfferAnswer.NOT_YOURS)
        if _another(known, offer.digests):
            return Decision(OfferAnswer.NOT_YOURS)
        here = _ordered_for(replace(known, damage=None), offer)
        writes = (SaveCopy(known, here, content),)
        there = tuple(one for one in offer.recipients if one.settled)
        mine = {one.number: one for one in here.unsettled}
        told = tuple(replace(mine[o.number], status=o.status) for o in there if o.number in mine)
        then = settle_held(ledger, here, told, offer.owner_database, offer.mark, now)
    restored = HaRestore(at=now, copy=here, recipients=here.unsettled, giver=offer.owner, taker=ledger.name)
    first = Decision(None, (*writes, *heard(ledger, offer.owner, offer.mark).writes), (restored,))
    return then.after(first).but(OfferAnswer.QUEUED)


def _given_away(ledger: Ledger, copy: Copy, giver: DatabaseId, now: datetime) -> Decision[None]:
    """If this node had handed the message over, make the restored message a copy for its new owner.

    The waiting event TAKEN for the giver shows the handover: the giver has not read it yet.
    """
    for event in ledger.events_for(giver, ALL_EVENTS):
        told = event.verdict
        if (told.message_id, told.kind) == (copy.id, VerdictKind.TAKEN) and copy.owned:
            return yields(ledger, copy, ServerName(told.argument), giver, told.epoch, now, handed_over=True)
    return Decision(None)


def _answered_for(known: Copy, offer: ShadowCopyOffer) -> Copy:
    """The copy without its pending promotion, if the owner was only silent, or if a later owner offers."""
    if known.epoch == offer.epoch and known.pending is not Reason.HEARTBEAT_LOST:
        return known
    return unclaimed(known)


def _paused(one: Recipient, offer: ShadowCopyOffer, policy: Policy, now: datetime) -> Recipient:
    """The recipient of an offer, due after the pause that its unread answers ask for."""
    if one.unread is None:
        return one
    return told_of(replace(one, unread=None), one.unread, offer.received_at, now, policy)


def _ordered_for(copy: Copy, offer: ShadowCopyOffer) -> Copy:
    """The copy with what operators ordered of its recipients, and with unread answers about them, as far as
    the offer knows more of it.
    """
    told = {one.number: one for one in offer.recipients if one.ordered_at or one.unread}
    changed = [_told_in(one, new) for one in copy.unsettled if (new := told.get(one.number))]
    return copy.with_recipients(changed) if changed else copy


def _told_in(one: Recipient, new: Recipient) -> Recipient:
    if new.ordered_at:
        one = one.ordered(new.suspended, new.ordered_at)
    if new.unread and (one.unread is None or one.unread.tries < new.unread.tries):
        one = replace(one, unread=new.unread, next_attempt=new.next_attempt)
    return one


def discard_copy(ledger: Ledger, copy: Copy, reason: str, now: datetime) -> Decision[None]:
    """Discard a shadow copy that nobody will need: rejected, orphaned, superseded or revoked.

    A former owner may have recipients in the shadow queue of a hop: then its copy is the only one with which
    they can be sent again. It stays as it is, because the other recipients are not settled here. Its owner
    still tells it of them, and is asked again when no hop has anything of the message.
    """
    if copy.role is not Role.SHADOW:
        return Decision(None)
    if ledger.hop_shadows_of(copy.id):
        return saved(copy, replace(copy, check_at=None))
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
    """Drop that copy and refuse it from now on, even if it was never here: its body may be on its way.

    A promoted or delivered copy cannot be revoked: the answer says so, and the owner must not say 451. A copy
    held for another owner than the asker cannot be revoked either. Offers of other owners are not refused.
    """
    copy = ledger.copy(message_id)
    outcome = ledger.outcome(message_id)
    if copy is None and outcome and not outcome.refused:
        return Decision(
            Verdict(message_id, outcome.epoch, VerdictKind.DELIVERED, recipients=outcome.delivered)
        )
    if copy is not None and copy.stage is Stage.SAFETY_NET:
        return Decision(Verdict(message_id, copy.epoch, VerdictKind.DELIVERED))
    if copy is not None and (copy.role is Role.PRIMARY or copy.epoch > epoch or copy.owner != asker):
        return Decision(Verdict(message_id, copy.epoch, VerdictKind.TAKEN, copy.owner))
    keep = now + remembered_for(policy)
    tombstone = Tombstone(message_id, asker, epoch, rank, keep)
    confirmed = Verdict(message_id, epoch, VerdictKind.REJECTED)
    if copy is None:
        if ledger.damaged(message_id):  # it may be that copy, or the message itself
            confirmed = Verdict(message_id, epoch, VerdictKind.DAMAGED)
        return Decision(confirmed, (tombstone,))
    if copy.rank > rank:  # it came with a later offer, which is not revoked
        return Decision(Verdict(message_id, copy.epoch, VerdictKind.TAKEN, copy.owner), (tombstone,))
    released = discard_copy(ledger, copy, "Revoked", now)
    return Decision(confirmed, (tombstone, *released.writes), released.events)


def too_early(ledger: Ledger, verdict: Verdict) -> bool:
    """Does this tell of a removal or a suspension while an attempt is under way here that it cannot stop?

    Who acknowledges an order says that nothing will be delivered against it. So the order waits until the
    attempt is written down: what it delivered stays delivered.
    """
    removal = verdict.kind is VerdictKind.DELIVERED and STATUS.get(verdict.argument) is Status.REMOVED
    if not removal and verdict.kind is not VerdictKind.SUSPENDED:
        return False
    hops = ledger.sent_to(verdict.message_id)
    copy = ledger.copy(verdict.message_id) if hops else None
    if copy is None:
        return bool(hops)
    named = verdict.recipients
    return any(one.next_hop in hops for one in copy.recipients if not named or one.number in named)


def order_held(
    ledger: Ledger, copy: Copy, verdict: Verdict, told_by: DatabaseId, now: datetime
) -> Decision[None]:
    """An operator ordered at another member that recipients be suspended, or resumed.

    It counts at any epoch and in any role, as a settlement does: this node may have taken the message over
    meanwhile. The last order that was given counts. It is passed on as a settlement is.
    """
    if verdict.settled_at is None:
        return Decision(None)
    until, named = ended(verdict), set(verdict.recipients)
    meant = [one for one in copy.unsettled if not named or one.number in named]
    changed = [one for old in meant if (one := old.ordered(until, verdict.settled_at)) is not old]
    if not changed:
        return Decision(None)
    after = copy.with_recipients(changed)
    if until is None:  # the age begins anew
        due = [replace(one, next_attempt=None) for one in changed]
        after = replace(copy.with_recipients(due), received_at=max(copy.received_at, now))
    onward = addressed(_others(ledger, copy, told_by), orders(after, changed), now)
    return Decision(None, (SaveCopy(copy, after), *onward))


def unread_held(
    ledger: Ledger, copy: Copy, verdict: Verdict, told_by: DatabaseId, policy: Policy, now: datetime
) -> Decision[None]:
    """Another member sent the message, and the answer could not be read.

    It counts at any epoch and in any role, as a settlement does, and is passed on as that is: who takes the
    message over goes on with the count, and with the pause, which begins when the member hears of it.
    """
    found, named = unread_said(verdict), set(verdict.recipients)
    meant = [one for one in copy.unsettled if not named or one.number in named]
    changed = [one for old in meant if (one := told_of(old, found, copy.received_at, now, policy)) is not old]
    if not changed:
        return Decision(None)
    after = copy.with_recipients(changed)
    onward = addressed(_others(ledger, copy, told_by), unread(after, changed), now)
    return Decision(None, (SaveCopy(copy, after), *onward))


def _others(ledger: Ledger, copy: Copy, told_by: DatabaseId) -> list[DatabaseId]:
    """The databases that may hold a copy for this node, and that of the owner; not the one that told it."""
    listeners = [holder.database_id for holder in copy.holders]
    owner = ledger.member(copy.owner)
    if copy.held and owner and owner.lineage:
        listeners.append(owner.lineage.database_id)
    return [listener for listener in listeners if listener != told_by]


def settle_held(
    ledger: Ledger,
    copy: Copy,
    settled: tuple[Recipient, ...],
    told_by: DatabaseId,
    mark: Mark,
    now: datetime,
) -> Decision[None]:
    """Settle recipients that another member settled; the last one moves the copy to Safety Net.

    ``mark``: of the member that told it, when it did.

    DELIVERED settles recipients at any epoch and in any role. This node passes it on to the members that hold
    a copy for it, and to the owner, but not to the database that told it.
    """
    settled = tuple(recipient for recipient in settled if recipient.settled)
    if not settled or copy.stage is Stage.SAFETY_NET:
        return Decision(None)
    after = copy.with_recipients(settled)
    if not after.unsettled:
        after = settled_now(after, now)
    reason = "ExplicitlyDiscarded" if copy.role is Role.SHADOW else "DeliveredElsewhere"
    onward = addressed(_others(ledger, copy, told_by), delivered(after, settled), now)
    onward += to_giver(ledger, after.id, settled, now)
    event = HaDiscard(at=now, copy=after, recipients=settled, reason=reason, told_by=told_by, mark=mark)
    safe = report_is_safe(ledger, copy, now) if not after.unsettled else Decision(None)
    return Decision(None, (SaveCopy(copy, after), *onward, *safe.writes), (event,))
