"""Handing ownership over on purpose: a node that is to be stopped gives its queue to the holders of it.

Nothing is sent over the wire: the holder becomes the owner, and this node its holder. Until the new owner has
heard of it nobody delivers, and both still have the message: if either is lost now, the other promotes it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime

from shadowrelay.core.decisions import Decision, Verdict, VerdictKind
from shadowrelay.core.events.announcements import addressed
from shadowrelay.core.identifiers import Continuity, ServerName
from shadowrelay.core.ledger import Ledger
from shadowrelay.core.messages import Confirmation, Copy, Holder, HolderState
from shadowrelay.core.ownership.transfer import NO_INCARNATION, yields
from shadowrelay.core.values import dataclass


def hand_over(
    ledger: Ledger, copy: Copy, reachable: Collection[ServerName], now: datetime
) -> Decision[ServerName | None]:
    """Give a message to the first of its holders that can be reached; None if there is none.

    Nothing changes then, nor for a message about which the others are to be asked first: it may not be ours.
    Everybody that may hold a copy is told ``taken`` with the new owner's name, itself included. Not to be
    called while a delivery of the message is under way: its outcome would come too late.
    """
    if not copy.owned or copy.confirmation is Confirmation.ASK:
        return Decision(None)
    holders = [holder for holder in copy.holders if holder.name in reachable and _counts(ledger, holder)]
    if not holders:
        return Decision(None)
    to = min(holders, key=lambda holder: (holder.rank, holder.name))
    epoch = copy.epoch + 1
    given = yields(ledger, copy, to.name, to.database_id, epoch, now, handed_over=True)
    yours = (Verdict(copy.id, epoch, VerdictKind.TAKEN, to.name),)
    return Decision(to.name, (*given.writes, *addressed([to.database_id], yours, now)), given.events)


def awaits_its_owner(copy: Copy) -> bool:
    """Do we hold this copy for an owner that never offered it, and has not said that it knows of us?"""
    return copy.held and copy.offered_in == NO_INCARNATION and copy.check_at is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Remains:
    """What a node that is being drained still has, and what it gave away.

    ``queued`` messages are here, ``exposed`` of them here alone; ``held_by`` says who has copies of others.
    ``held_for``: copies held here, by the owner of the message; those that were handed over are among them.
    ``handed_over``: messages since the drain began, by their new owner; ``awaited``: those of them that it
    has not yet taken, which it does at the next contact. ``reachable``: members that can be spoken to.
    ``arriving``: sessions in which a message is under way that this node may still take.
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

    @property
    def done(self) -> bool:
        """Nothing is left to deliver or to take, and every new owner knows that it is one.

        What is ``held_for`` others is their second copy still, until they have made another one.
        """
        return not (self.queued or self.awaited or self.arriving)

    @property
    def waits(self) -> bool:
        """There is more to deliver, or a new owner that can be reached has not heard of it yet."""
        return bool(self.queued or self.awaited.keys() & self.reachable)


def _counts(ledger: Ledger, holder: Holder) -> bool:
    """Does it still have its copy, for all we know? As with exposure, only a broken lineage says that it has
    not: a member that was restarted since may tell no more of the opening in which it took the copy.
    """
    member = ledger.member(holder.name)
    if holder.state is not HolderState.HOLDING or holder.mark is None:
        return False
    if member is None or member.lineage is None or member.retired:
        return False
    known = member.lineage.at_least(holder.mark)
    return known.continuity(holder.database_id, holder.mark) is not Continuity.BROKEN
