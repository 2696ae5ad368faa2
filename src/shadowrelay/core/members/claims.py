"""Questions before a promotion: SEEN about a silent owner, and CLAIM about each copy.

If only silence speaks against the owner, the members are first asked about it: *did you have contact with
it?* (Sighting). Then they are asked about each copy: *its owner is gone, and I am about to promote this copy;
what do you hold and know of it?* (Claim). A member that holds a copy for the same owner adopts the claim, and
the holder with the lowest rank promotes. If the owner itself handed the message over, the holder that it
named promotes, whatever the ranks.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

from shadowrelay.core.decisions import Decision, Part, Verdict, VerdictKind
from shadowrelay.core.events.discard_notices import known
from shadowrelay.core.identifiers import Continuity, DatabaseId, Mark, MessageId, ServerName
from shadowrelay.core.ledger import Ledger
from shadowrelay.core.members.answers import answer
from shadowrelay.core.members.questions import Speaker, as_holder
from shadowrelay.core.messages import Copy, HolderState, Reason
from shadowrelay.core.ownership.transfer import intended, saved
from shadowrelay.core.values import dataclass, replace


@dataclass(frozen=True, slots=True)
class Sighting:
    """*Did you have contact with that owner, in the lineage that was at this mark?*"""

    owner: ServerName
    database_id: DatabaseId
    mark: Mark


@dataclass(frozen=True, slots=True)
class Claim:
    """*That owner is gone, with the database that offered these copies.* ``reason`` says how we know."""

    owner: ServerName
    database_id: DatabaseId
    reason: Reason


def sighting_of(ledger: Ledger, owner: ServerName) -> Sighting | None:
    """The question before copies held for that owner are promoted by time; None if there are none.

    If what this node knew of the owner was lost, the copies say in which database and incarnation it was.
    """
    if not ledger.any_unclaimed(owner):
        return None
    if known := sighting_of_member(ledger, owner):
        return known
    held = ledger.copies_held_for(owner, Part(most=_FEW), unclaimed=True).copies
    marks = (Sighting(owner, one.owner_database, Mark(one.offered_in, 0)) for one in held if one.offered_in)
    return next(marks, None)


_FEW = 50
"""Copies that are looked at for a mark of their owner: those that this node has of a takeover have none."""


def sighting_of_member(ledger: Ledger, name: ServerName) -> Sighting | None:
    """The question about a member that is silent; None if this node has never met it."""
    member = ledger.member(name)
    if member is None or member.lineage is None:
        return None
    return Sighting(name, member.lineage.database_id, member.lineage.mark)


def vouches(ledger: Ledger, sighted: Collection[ServerName], sighting: Sighting) -> bool:
    """Did we have contact with the owner lately, and is its database still the one that the asker knows?"""
    member = ledger.member(sighting.owner)
    if sighting.owner not in sighted or member is None or member.lineage is None:
        return False
    return member.lineage.continuity(sighting.database_id, sighting.mark) is not Continuity.BROKEN


def claim_of(copy: Copy) -> Claim | None:
    """The claim for a copy whose promotion is pending; None if it is not."""
    return Claim(copy.owner, copy.owner_database, copy.pending) if copy.held and copy.pending else None


def judge(
    ledger: Ledger,
    asker: Speaker,
    claim: Claim,
    message_id: MessageId,
    epoch: int,
    rank: int,
    sighted: Collection[ServerName],
    now: datetime,
    *,
    damaged: bool = False,
) -> Decision[tuple[Verdict, ...]]:
    """Answer a claim. ``damaged``: the asker's copy is damaged.

    A holder for the same owner adopts the claim, remembers the asker as another holder, and answers its own
    rank. It does not adopt a handover, which is to the asker alone. If its own copy is damaged it says so,
    and nobody waits for it. If the claim gives mere silence as its reason, but this node had contact with the
    owner, the answer is empty and the asker asks again.
    """
    copy = ledger.copy(message_id)
    same = copy and copy.held and copy.epoch == epoch and copy.owner == claim.owner
    if copy is None or not same or copy.owner_database != claim.database_id:
        return answer(ledger, asker, message_id, epoch, None, now, damaged=damaged)
    if claim.reason is Reason.HEARTBEAT_LOST and claim.owner in sighted:
        return Decision(())
    fellow = as_holder(ledger, asker, rank)
    if damaged:
        fellow = replace(fellow, mark=None, state=HolderState.UNCERTAIN)
    adopted = copy if claim.reason is Reason.HANDED_OVER else intended(copy, claim.reason, now)
    if adopted.pending:
        adopted = adopted.with_holder(fellow)
    kind = VerdictKind.DAMAGED if copy.damaged else VerdictKind.PENDING
    said = (*known(copy), Verdict(copy.id, copy.epoch, kind, str(_order(copy))))
    return Decision(said, saved(copy, adopted).writes)


def yields_to(ledger: Ledger, copy: Copy, verdict: Verdict, speaker: Speaker) -> bool:
    """Must the speaker of this PENDING be asked again? It has not decided yet, or its rank is below ours."""
    if not verdict.argument or not copy.held:
        return True
    return (int(verdict.argument), speaker.name) < (_order(copy), ledger.name)


def _order(copy: Copy) -> int:
    """The rank by which holders decide who promotes: the one that the owner named comes first."""
    return 0 if copy.pending is Reason.HANDED_OVER else copy.rank
