"""Who owns a message: promotion raises the epoch, a returning owner yields to a higher one.

Of two owners the higher epoch owns; of equal epochs the lower rank, then name order.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from enum import StrEnum

from shadowrelay.core.announcements import addressed, delivered
from shadowrelay.core.decisions import Decision, Kind, Ledger, SaveCopy, Verdict, Write
from shadowrelay.core.identifiers import DatabaseId, Incarnation, ServerName
from shadowrelay.core.messages import Confirmation, Copy, Role, Stage
from shadowrelay.core.side_effects import report_is_safe
from shadowrelay.core.tracking import HaReceive, Resubmit, Transfer
from shadowrelay.core.tracking_row import TrackingEvent

NO_INCARNATION = Incarnation("")
"""The owner never offered this copy: its ``unknown`` cannot mean that the sender saw no 250."""


class Reason(StrEnum):
    """Why a shadow copy was promoted."""

    DATABASE_REPLACED = "database-replaced"
    DATABASE_ROLLED_BACK = "database-rolled-back"
    HEARTBEAT_LOST = "heartbeat-lost"
    OWNER_FORGOT = "owner-forgot"


def promote(ledger: Ledger, copy: Copy, reason: Reason, now: datetime) -> Decision[None]:
    """Make a held copy the primary one, with its unsettled recipients.

    The former owner is told ``taken``, unless its database is gone. Nothing is delivered before every
    reachable member was asked: another holder, or the former owner itself, may know better.
    """
    if not copy.held:
        return Decision(None)
    own = ledger.lineage
    owned = replace(
        copy,
        epoch=copy.epoch + 1,
        role=Role.PRIMARY,
        owner=ledger.name,
        owner_database=own.database_id,
        offered_in=own.incarnation,
        holders=(),
        ranks_given=0,
        confirmation=Confirmation.ASK,
        confirm_since=now,
        former_owner=copy.owner,
        check_at=None,
    )
    told = [copy.owner_database] if reason is not Reason.DATABASE_REPLACED and copy.owner_database else []
    taken = (Verdict(copy.id, owned.epoch, Kind.TAKEN, ledger.name),)
    event = Resubmit(
        at=now,
        copy=owned,
        recipients=owned.unsettled,
        former_owner=copy.owner,
        former_database=copy.owner_database,
        reason=reason,
    )
    return Decision(None, (SaveCopy(copy, owned), *addressed(told, taken, now)), (event,))


def yields(
    ledger: Ledger, copy: Copy, owner: ServerName, owner_database: DatabaseId, epoch: int, now: datetime
) -> Decision[None]:
    """Become a holder of the new owner: roles swap, and nothing has to be sent over the wire.

    What is settled here is told to the new owner at once; members that hold a copy for us are told who
    owns it now. The next CHECK makes the new owner record us.
    """
    safe = report_is_safe(ledger, copy, now)
    if copy.stage is Stage.SAFETY_NET:  # settled: the owner only has to hear so
        return Decision(None, addressed([owner_database], delivered(copy, copy.recipients), now))
    held = replace(
        copy,
        epoch=epoch,
        role=Role.SHADOW,
        stage=Stage.QUEUED,
        owner=owner,
        owner_database=owner_database,
        offered_in=NO_INCARNATION,
        holders=(),
        ranks_given=0,
        confirmation=Confirmation.NONE,
        confirm_since=None,
        former_owner=None,
        check_at=now,
    )
    settled = [recipient for recipient in copy.recipients if recipient.settled]
    forward = (Verdict(copy.id, epoch, Kind.TAKEN, owner),)
    others = [holder.database_id for holder in copy.holders if holder.name != owner]
    writes: tuple[Write, ...] = (
        SaveCopy(copy, held),
        *addressed([owner_database], delivered(held, settled), now),
        *addressed(others, forward, now),
        *safe.writes,
    )
    events: list[TrackingEvent] = []
    if copy.role is Role.PRIMARY:
        events.append(Transfer(at=now, copy=held, recipients=held.unsettled, new_owner=owner))
    events.append(HaReceive(at=now, copy=held, recipients=held.unsettled, primary=owner, reason="taken"))
    return Decision(None, writes, tuple(events))


def outranks(epoch: int, rank: int, name: ServerName, other: tuple[int, int, ServerName]) -> bool:
    """Does an owner of that epoch, rank and name own the message rather than the other?"""
    other_epoch, other_rank, other_name = other
    return (-epoch, rank, name) < (-other_epoch, other_rank, other_name)


def ask_about(copy: Copy, now: datetime) -> Decision[None]:
    """Deliver this message only after every reachable member was asked about it (again)."""
    if not copy.owned or copy.confirmation is Confirmation.ASK:
        return Decision(None)
    return Decision(None, (SaveCopy(copy, replace(copy, confirmation=Confirmation.ASK, confirm_since=now)),))
