"""What was arriving when a process ended: its sender may have a 250, or was refused, and nobody here knows.

Its holder knows: whoever had a 250 left a copy there. Where somebody has that copy, or had it, this becomes a
message like any other, and what is said of it is taken as ever. A holder that says it has none, in the very
opening of its database in which it was offered the copy, proves that nobody had a 250. If nobody can say, the
message counts as accepted.
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
    """What members may be asked about: a message, or what is arriving."""
    return ledger.copy(message_id) or ledger.arrival(message_id)


def under_way(arrived: Copy) -> bool:
    """Is it arriving now, in this very process?"""
    return arrived.confirmation is Confirmation.NONE


def forgotten(arrived: Copy, policy: Policy, now: datetime) -> Decision[None]:
    """It is not accepted: nobody may find it any more, and whoever has its copy is told so."""
    return Decision(None, (DropCopy(arrived), refused(arrived.id, policy, now)))


def refused(message_id: MessageId, policy: Policy, now: datetime) -> Outcome:
    """Its sender never had a 250: on record before anything else is said, for as long as outcomes are.

    Nothing else lets a holder drop its copy: ``unknown`` may come from a stale page.
    """
    return Outcome(message_id, 1, (), now + remembered_for(policy), refused=True)


def recorded(ledger: Ledger, arrived: Copy, holder: Holder, now: datetime) -> Decision[Copy]:
    """That member has its copy, or had it: it is a message. Everybody is asked about it, as about others."""
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
    """Nobody can say any more whether its sender had a 250."""
    copy = replace(arrived, stage=Stage.QUEUED)
    told = tuple(f"{holder.name}=not known after a restart" for holder in copy.holders)
    events = (HaRedirectFail(at=now, copy=copy, attempts=told), Receive(at=now, copy=copy, redundant=UNKNOWN))
    return Decision(copy, (SaveCopy(arrived, copy),), events)


def learnt(
    ledger: Ledger, arrived: Copy, verdict: Verdict, speaker: Holder, policy: Policy, now: datetime
) -> Decision[Copy | None]:
    """What a member says shows that it is a message (the result), that it is none, or neither.

    Of what is under way nothing can be learnt.
    """
    offered_to = arrived.holder(speaker.database_id)
    if under_way(arrived):
        return Decision(None)
    match verdict.kind:
        case VerdictKind.YOURS if offered_to:
            return recorded(ledger, arrived, speaker, now)
        case VerdictKind.UNKNOWN if offered_to and _same_opening(offered_to, speaker):
            return forgotten(arrived, policy, now)
        case VerdictKind.TAKEN | VerdictKind.DELIVERED:
            # A copy became the message, perhaps not the one that we know of.
            return recorded(ledger, arrived, offered_to, now) if offered_to else accepted(arrived, now)
        case VerdictKind.DAMAGED if offered_to:  # there was a copy: the sender may have a 250
            return recorded(ledger, arrived, offered_to, now)
        case _:
            return Decision(None)


def _same_opening(offered_to: Holder, speaker: Holder) -> bool:
    """A database that was opened again may have been put back to before it had the copy."""
    then, now = offered_to.mark, speaker.mark
    return then is not None and now is not None and then.incarnation == now.incarnation
