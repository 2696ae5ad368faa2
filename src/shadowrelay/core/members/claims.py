"""The second opinion: before a copy is promoted, the members that can be reached are asked.

First about the owner, when silence alone speaks against it: *did you have contact with it?* (Sighting). Then
about each copy: *its owner is gone, and I am about to promote this copy; what do you hold and know of it?*
(Claim). Whoever holds one for the same owner adopts the claim, and the lowest rank promotes.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

from shadowrelay.core.decisions import Decision, Verdict, VerdictKind
from shadowrelay.core.events.announcements import delivered
from shadowrelay.core.identifiers import Continuity, DatabaseId, Mark, MessageId, ServerName
from shadowrelay.core.ledger import Ledger
from shadowrelay.core.members.answers import answer
from shadowrelay.core.members.questions import Speaker, as_holder
from shadowrelay.core.messages import Copy, HolderState, Reason
from shadowrelay.core.ownership.transfer import intended, saved
from shadowrelay.core.values import dataclass, replace


@dataclass(frozen=True, slots=True)
class Sighting:
    """*Did you have contact with that member, on the lineage that was at this mark?*"""

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
    """What to ask before copies held for that owner are promoted by time; None if there are none."""
    member = ledger.member(owner)
    if member is None or member.lineage is None:
        return None
    if not ledger.any_unclaimed(owner):
        return None
    return Sighting(owner, member.lineage.database_id, member.lineage.mark)


def vouches(ledger: Ledger, sighted: Collection[ServerName], sighting: Sighting) -> bool:
    """Can we say that the member is alive, and is still the database that the asker knows?"""
    member = ledger.member(sighting.owner)
    if sighting.owner not in sighted or member is None or member.lineage is None:
        return False
    return member.lineage.continuity(sighting.database_id, sighting.mark) is not Continuity.BROKEN


def claim_of(copy: Copy) -> Claim | None:
    """What is claimed by a copy whose promotion is pending."""
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
    """Answer a claim. A holder for the same owner adopts it, remembers the asker as another holder, and says
    its own rank; or that its copy is damaged, so that nobody waits for it. So is the asker's, if it is
    ``damaged``.

    No answer at all (ask again) while mere silence is claimed of an owner that we had contact with.
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
    adopted = intended(copy, claim.reason, now).with_holder(fellow)
    kind = VerdictKind.DAMAGED if copy.damaged else VerdictKind.PENDING
    said = (*delivered(copy, copy.recipients), Verdict(copy.id, copy.epoch, kind, str(copy.rank)))
    return Decision(said, saved(copy, adopted).writes)


def yields_to(ledger: Ledger, copy: Copy, verdict: Verdict, speaker: Speaker) -> bool:
    """Is the speaker the one to promote, or has it not decided yet? Then it is asked again."""
    if not verdict.argument or not copy.held:
        return True
    return (int(verdict.argument), speaker.name) < (copy.rank, ledger.name)
