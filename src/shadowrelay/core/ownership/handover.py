"""Handover: an owner gives the ownership of a message to a member that holds a copy of it.

No content is sent: the holder becomes the owner, and this node its holder. Until the new owner hears of the
handover nobody delivers the message, and both members have it: if one is lost, the other promotes its copy.
A drain gives each message to any of its holders; a redirect, to the member that the operator names.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import field
from datetime import datetime
from enum import StrEnum

from shadowrelay.core.decisions import Decision, Verdict, VerdictKind
from shadowrelay.core.events.discard_notices import addressed
from shadowrelay.core.identifiers import Continuity, ServerName
from shadowrelay.core.ledger import Ledger
from shadowrelay.core.messages import Confirmation, Copy, Holder, HolderState
from shadowrelay.core.ownership.transfer import NO_INCARNATION, yields
from shadowrelay.core.values import dataclass


class Hindrance(StrEnum):
    """Why a message in the queue cannot be handed over now.

    ASKED: the members are asked first, because the message may not be ours. JOURNAL: its journal copy is not
    safe yet, so the holder does not know what is delivered. DAMAGED: our copy of it is.
    """

    ASKED = "asked"
    JOURNAL = "journal"
    DAMAGED = "damaged"


def hindrance(copy: Copy) -> Hindrance | None:
    """Why this message of ours has to stay, whoever else has a copy; None if it need not."""
    if copy.confirmation is Confirmation.ASK:
        return Hindrance.ASKED
    if any(one.journal for one in copy.recipients):
        return Hindrance.JOURNAL
    return Hindrance.DAMAGED if copy.damaged else None


def hand_over(
    ledger: Ledger, copy: Copy, reachable: Collection[ServerName], now: datetime, *, beside: bool = False
) -> Decision[ServerName | None]:
    """Give a message to the holder with the lowest rank that can be reached. The result: the new owner.

    None, and nothing changes, if there is no such holder, or if the members must be asked first (the message
    may not be ours). ``beside``: a holder on our own machine will do. Every member that may hold a copy, the
    new owner too, is told TAKEN with the new owner's name. Do not call this during a delivery of the message:
    the outcome would come too late.
    """
    if not copy.owned or hindrance(copy) in {Hindrance.ASKED, Hindrance.JOURNAL}:
        return Decision(None)
    states = {HolderState.HOLDING, HolderState.BESIDE} if beside else {HolderState.HOLDING}
    holders = [
        holder
        for holder in copy.holders
        if holder.name in reachable and holder.state in states and _counts(ledger, holder)
    ]
    if not holders:
        return Decision(None)
    to = min(holders, key=lambda holder: (holder.rank, holder.name))
    epoch = copy.epoch + 1
    given = yields(ledger, copy, to.name, to.database_id, epoch, now, handed_over=True)
    yours = (Verdict(copy.id, epoch, VerdictKind.TAKEN, to.name),)
    return Decision(to.name, (*given.writes, *addressed([to.database_id], yours, now)), given.events)


def awaits_its_owner(copy: Copy) -> bool:
    """Do we hold this copy for an owner that never offered it, and that has not yet recorded us as holder?"""
    return copy.held and copy.offered_in == NO_INCARNATION and copy.check_at is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Remains:
    """What a node that is being drained still has, and what it gave away.

    ``queued``: messages in its queue; ``exposed``: those without a counted copy elsewhere; ``held_by``:
    copies of the others, by holder. ``held_for``: copies held here, by owner, those of handed-over messages
    included. ``handed_over``: messages given away since the drain began, by new owner; ``awaited``: those
    that the new owner has not yet taken (it takes them at the next contact). ``reachable``: members that can
    be reached. ``arriving``: sessions with a message on its way in that this node may still accept. ``hops``:
    messages that hops beyond the boundary took and have not delivered, by hop.
    """

    queued: int
    exposed: int
    set_aside: int
    held_for: Mapping[ServerName, int]
    held_by: Mapping[ServerName, int]
    handed_over: Mapping[ServerName, int]
    awaited: Mapping[ServerName, int]
    reachable: frozenset[ServerName]
    arriving: int = 0
    hops: Mapping[ServerName, int] = field(default_factory=dict)

    @property
    def done(self) -> bool:
        """Is nothing left to deliver or to accept, and does every new owner know that it is the owner?

        A copy ``held_for`` an owner stays its second copy until the owner has made another one.
        """
        return not (self.queued or self.awaited or self.arriving)

    @property
    def waits(self) -> bool:
        """Is there more to deliver, or a new owner that can be reached and has not taken its messages?"""
        return bool(self.queued or self.awaited.keys() & self.reachable)


def _counts(ledger: Ledger, holder: Holder) -> bool:
    """Does the holder, as far as we know, still have its copy?

    As with exposure, only a broken lineage says no: the lineage of a member that restarted may no longer
    reach back to the opening in which it took the copy.
    """
    member = ledger.member(holder.name)
    if holder.mark is None:
        return False
    if member is None or member.lineage is None or member.retired:
        return False
    known = member.lineage.at_least(holder.mark)
    return known.continuity(holder.database_id, holder.mark) is not Continuity.BROKEN
