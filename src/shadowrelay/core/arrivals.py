"""What was arriving when a process ended: its sender may have a 250, or was refused, and nobody here knows.

Its holder knows: whoever had a 250 left a copy there, so a holder that says it has none proves that nobody
had one. If it cannot be asked, or has another database by now, the message counts as accepted.
"""

from __future__ import annotations

from datetime import datetime

from shadowrelay.core.decisions import Decision, DropCopy, Kind, SaveCopy, Verdict
from shadowrelay.core.messages import Confirmation, Copy, Holder, Stage
from shadowrelay.core.tracking import HaRedirect, HaRedirectFail, Receive
from shadowrelay.core.values import replace

UNKNOWN = "Unknown"
"""For RECEIVE: whether the message was redundant when its sender was answered."""


def under_way(arrived: Copy) -> bool:
    """Is it arriving now, in this very process?"""
    return arrived.confirmation is Confirmation.NONE


def forgotten(arrived: Copy) -> Decision[None]:
    """It is not accepted: nobody may find it any more."""
    return Decision(None, (DropCopy(arrived),))


def held(arrived: Copy, holder: Holder, now: datetime) -> Decision[None]:
    """Its holder has the copy: it is a message. Everybody is asked about it, as about all that was here."""
    copy = replace(arrived, stage=Stage.QUEUED).with_holder(holder)
    told = (f"{holder.name}=holds a copy",)
    events = (
        HaRedirect(at=now, copy=copy, holder=holder, attempts=told),
        Receive(at=now, copy=copy),
    )
    return Decision(None, (SaveCopy(arrived, copy),), events)


def accepted(arrived: Copy, now: datetime, *, in_doubt: bool) -> Decision[None]:
    """Nobody can say any more whether its sender had a 250. ``in_doubt``: its holder was out of reach."""
    copy = replace(
        arrived,
        stage=Stage.QUEUED,
        confirmation=Confirmation.IN_DOUBT if in_doubt else Confirmation.NONE,
        confirm_since=arrived.confirm_since if in_doubt else None,
    )
    told = tuple(f"{holder.name}=not known after a restart" for holder in copy.holders)
    events = (HaRedirectFail(at=now, copy=copy, attempts=told), Receive(at=now, copy=copy, redundant=UNKNOWN))
    return Decision(None, (SaveCopy(arrived, copy),), events)


def answered(arrived: Copy, asker: Holder, rank: int | None, now: datetime) -> Decision[tuple[Verdict, ...]]:
    """A member asks about it: as its holder, or (with a rank) as its owner, which then has it."""
    if rank is not None and not under_way(arrived):
        return Decision((Verdict(arrived.id, arrived.epoch, Kind.UNKNOWN),), forgotten(arrived).writes)
    if under_way(arrived) or arrived.holder(asker.database_id) is None:
        return Decision((Verdict(arrived.id, arrived.epoch, Kind.PENDING),))
    known = held(arrived, asker, now)
    verdict = Verdict(arrived.id, arrived.epoch, Kind.HELD, str(asker.rank))
    return Decision((verdict,), known.writes, known.events)


def learnt(arrived: Copy, verdict: Verdict, speaker: Holder, now: datetime) -> Decision[None]:
    """A member says what it knows of it; of what is under way nothing can be learnt."""
    if under_way(arrived):
        return Decision(None)
    its_holder = arrived.holder(speaker.database_id) is not None
    match verdict.kind:
        case Kind.YOURS if its_holder:
            return held(arrived, speaker, now)
        case Kind.UNKNOWN if its_holder:
            return forgotten(arrived)
        case Kind.TAKEN:  # a copy of it became the message
            return forgotten(arrived)
        case Kind.DELIVERED if not verdict.recipients or len(verdict.recipients) == len(arrived.recipients):
            return forgotten(arrived)
        case _:
            return Decision(None)
