"""Arrivals left over from an ended process: decides whether their senders got a 250.

This node does not know, but the holder does: a sender gets its 250 only after the holder has a copy. If a
member has that copy, or had it, the arrival becomes a message like any other, and verdicts about it are
applied as usual. It need not be a member that this database knows of: the database may be an older state that
was put back, from before the copy was offered to another member. If each member that was offered the copy
says that it has none, in the same opening of its database, and no member that can be reached has it, the
sender got no 250. If no member can say, the message counts as accepted.
"""

from __future__ import annotations

from datetime import datetime

from shadowrelay.core.decisions import Decision, DropCopy, Outcome, SaveCopy, Verdict, VerdictKind
from shadowrelay.core.events.discard import remembered_for
from shadowrelay.core.identifiers import MessageId
from shadowrelay.core.ledger import Ledger
from shadowrelay.core.machines import machines
from shadowrelay.core.messages import Confirmation, Copy, Holder, HolderState, Stage
from shadowrelay.core.policy import Policy
from shadowrelay.core.tracking import HaRedirect, HaRedirectFail, Receive
from shadowrelay.core.values import replace

UNKNOWN = "Unknown"
"""For RECEIVE: whether the message was redundant when its sender was answered."""


def in_question(ledger: Ledger, message_id: MessageId) -> Copy | None:
    """The message or arrival with this id: members may be asked about both."""
    return ledger.copy(message_id) or ledger.arrival(message_id)


def under_way(arrived: Copy) -> bool:
    """Is the message arriving now, in this very process?"""
    return arrived.confirmation is Confirmation.NONE


def concluded(arrived: Copy, policy: Policy, now: datetime) -> Decision[Copy | None]:
    """Each member in reach has answered, and none has a copy: the arrival goes, or is a message."""
    if arrived.holders and all(holder.state is HolderState.LOST for holder in arrived.holders):
        return forgotten(arrived, policy, now)
    return accepted(arrived, now)


def forgotten(arrived: Copy, policy: Policy, now: datetime) -> Decision[None]:
    """Drop an arrival that is not accepted. The outcome tells a member that has a copy to drop it."""
    return Decision(None, (DropCopy(arrived), refused(arrived.id, policy, now)))


def refused(message_id: MessageId, policy: Policy, now: datetime) -> Outcome:
    """The outcome of a message whose sender never got a 250: recorded before anything else is said.

    Only this outcome lets a holder drop its copy: ``unknown`` may come from a stale page.
    """
    return Outcome(message_id, 1, (), now + remembered_for(policy), refused=True)


def recorded(ledger: Ledger, arrived: Copy, holder: Holder, now: datetime) -> Decision[Copy]:
    """The holder has a copy, or had one: record the arrival as a message. The members are asked about it."""
    copy = replace(arrived, stage=Stage.QUEUED).with_holder(holder)
    told = "held a copy" if holder.state is HolderState.UNCERTAIN else "holds a copy"
    redirect = HaRedirect(
        at=now,
        copy=copy,
        holder=holder,
        machines=machines(ledger, holder.name),
        attempts=(f"{holder.name}={told}",),
    )
    return Decision(copy, (SaveCopy(arrived, copy),), (redirect, Receive(at=now, copy=copy)))


def accepted(arrived: Copy, now: datetime) -> Decision[Copy]:
    """Record the arrival as a message, because no member can say whether its sender got a 250."""
    copy = replace(arrived, stage=Stage.QUEUED)
    told = tuple(f"{holder.name}=not known after a restart" for holder in copy.holders)
    events = (HaRedirectFail(at=now, copy=copy, attempts=told), Receive(at=now, copy=copy, redundant=UNKNOWN))
    return Decision(copy, (SaveCopy(arrived, copy),), events)


def learnt(
    ledger: Ledger, arrived: Copy, verdict: Verdict, speaker: Holder, now: datetime
) -> Decision[Copy | None]:
    """Apply a member's verdict about an arrival: it becomes a message (the result), or stays.

    A message that is still arriving cannot answer questions yet: a verdict about it changes nothing.
    """
    offered_to = arrived.holder(speaker.database_id)
    if under_way(arrived):
        return Decision(None)
    match verdict.kind:
        case VerdictKind.YOURS:
            return recorded(ledger, arrived, speaker, now)
        case VerdictKind.UNKNOWN if offered_to and _same_opening(offered_to, speaker):
            none = arrived.with_holder(replace(offered_to, state=HolderState.LOST))
            return Decision(None, (SaveCopy(arrived, none),))
        case VerdictKind.TAKEN | VerdictKind.DELIVERED:
            # A copy became the message, perhaps another copy than the one that we know of.
            return recorded(ledger, arrived, offered_to, now) if offered_to else accepted(arrived, now)
        case VerdictKind.DAMAGED if offered_to:  # there was a copy: the sender may have a 250
            return recorded(ledger, arrived, offered_to, now)
        case _:
            return Decision(None)


def _same_opening(offered_to: Holder, speaker: Holder) -> bool:
    """Is the database still in the opening in which it was offered the copy?

    A database that was opened again may have been put back to a state before it had the copy.
    """
    then, now = offered_to.mark, speaker.mark
    return then is not None and now is not None and then.incarnation == now.incarnation
