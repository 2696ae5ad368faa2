"""Rows of the transport database, to and from the objects that decisions use."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from shadowrelay.core.decisions import (
    Chore,
    DiscardEvent,
    Kind,
    Member,
    Outcome,
    Tombstone,
    Verdict,
    Work,
)
from shadowrelay.core.identifiers import (
    Beginning,
    DatabaseId,
    Incarnation,
    Lineage,
    Mark,
    MessageId,
    NextHop,
    ServerName,
)
from shadowrelay.core.messages import (
    Confirmation,
    Copy,
    Envelope,
    Holder,
    HolderState,
    Reason,
    Recipient,
    Role,
    Stage,
    Status,
)

Row = tuple[Any, ...]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def micros(moment: datetime) -> int:
    """An aware datetime as microseconds since 1970."""
    return (moment - _EPOCH) // _MICROSECOND


def maybe_micros(moment: datetime | None) -> int | None:
    return None if moment is None else micros(moment)


def moment(value: int) -> datetime:
    return _EPOCH + timedelta(microseconds=value)


def maybe_moment(value: int | None) -> datetime | None:
    return None if value is None else moment(value)


def copy_of(row: Row, recipients: list[Row], holders: list[Row]) -> Copy:
    """A message row with its recipients and holders."""
    return Copy(
        id=MessageId(row[0]),
        epoch=row[1],
        rank=row[2],
        role=Role(row[3]),
        stage=Stage(row[4]),
        owner=ServerName(row[5]),
        owner_database=DatabaseId(row[6]),
        offered_in=Incarnation(row[7]),
        envelope=Envelope(
            sender=row[8],
            size=row[9],
            body=row[10],
            smtputf8=bool(row[11]),
            ret=row[12],
            envid=row[13],
            message_id=row[14],
            subject=row[15],
        ),
        ranks_given=row[16],
        confirmation=Confirmation(row[17]),
        confirm_since=maybe_moment(row[18]),
        former_owner=None if row[19] is None else ServerName(row[19]),
        check_at=maybe_moment(row[20]),
        received_at=moment(row[21]),
        settled_at=maybe_moment(row[22]),
        reports_on=None if row[23] is None else MessageId(row[23]),
        pending=None if row[24] is None else Reason(row[24]),
        recipients=tuple(_recipient(item) for item in recipients),
        holders=tuple(_holder(item) for item in holders),
    )


def _recipient(row: Row) -> Recipient:
    return Recipient(
        number=row[0],
        address=row[1],
        next_hop=NextHop(row[2]),
        notify=tuple(row[3].split(",")) if row[3] else (),
        orcpt=row[4],
        status=Status(row[5]),
        attempts=row[6],
        next_attempt=maybe_moment(row[7]),
        last_reply=row[8],
        delay_notified=bool(row[9]),
        report=None if row[10] is None else MessageId(row[10]),
    )


def _holder(row: Row) -> Holder:
    mark = None if row[2] is None else Mark(Incarnation(row[2]), row[3])
    return Holder(ServerName(row[0]), DatabaseId(row[1]), mark, row[4], HolderState(row[5]))


def message_row(copy: Copy) -> Row:
    envelope = copy.envelope
    return (
        copy.id,
        copy.epoch,
        copy.rank,
        copy.role.value,
        copy.stage.value,
        copy.owner,
        copy.owner_database,
        copy.offered_in,
        envelope.sender,
        envelope.size,
        envelope.body,
        int(envelope.smtputf8),
        envelope.ret,
        envelope.envid,
        envelope.message_id,
        envelope.subject,
        copy.ranks_given,
        copy.confirmation.value,
        maybe_micros(copy.confirm_since),
        copy.former_owner,
        maybe_micros(copy.check_at),
        micros(copy.received_at),
        maybe_micros(copy.settled_at),
        copy.reports_on,
        None if copy.pending is None else copy.pending.value,
        int(copy.exposed),
    )


def recipient_row(copy: Copy, recipient: Recipient) -> Row:
    sendable = copy.owned and copy.confirmation is not Confirmation.ASK and not recipient.settled
    due = recipient.next_attempt or copy.received_at
    return (
        copy.id,
        recipient.number,
        recipient.address,
        recipient.next_hop,
        ",".join(recipient.notify),
        recipient.orcpt,
        recipient.status.value,
        recipient.attempts,
        maybe_micros(recipient.next_attempt),
        recipient.last_reply,
        int(recipient.delay_notified),
        recipient.report,
        micros(due) if sendable else None,
    )


def holder_row(copy: Copy, holder: Holder) -> Row:
    mark = holder.mark
    return (
        copy.id,
        holder.database_id,
        holder.name,
        mark.incarnation if mark else None,
        mark.sequence if mark else None,
        holder.rank,
        holder.state.value,
    )


def numbers_text(numbers: tuple[int, ...]) -> str:
    return ",".join(map(str, numbers))


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(","))) if text else ()


def event_of(row: Row) -> DiscardEvent:
    verdict = Verdict(MessageId(row[2]), row[3], Kind(row[4]), row[5], _numbers(row[6]))
    return DiscardEvent(DatabaseId(row[1]), verdict, moment(row[7]), row[0])


def event_row(event: DiscardEvent) -> Row:
    told = event.verdict
    return (
        event.addressee,
        told.message_id,
        told.epoch,
        told.kind.value,
        told.argument,
        numbers_text(told.recipients),
        micros(event.created_at),
    )


def outcome_of(row: Row) -> Outcome:
    return Outcome(MessageId(row[0]), row[1], _numbers(row[2]), moment(row[3]))


def tombstone_of(row: Row) -> Tombstone:
    return Tombstone(MessageId(row[0]), ServerName(row[1]), row[2], row[3], moment(row[4]))


def member_of(row: Row) -> Member:
    lineage = None
    if row[1] is not None:
        beginnings = []
        for entry in row[2].split(","):
            token, _, sequence = entry.partition("@")
            beginnings.append(Beginning(Incarnation(token), int(sequence)))
        lineage = Lineage(DatabaseId(row[1]), tuple(beginnings), row[3])
    return Member(
        name=ServerName(row[0]),
        lineage=lineage,
        knows_ours=None if row[4] is None else Incarnation(row[4]),
        applied=None if row[5] is None else Mark(Incarnation(row[5]), row[6]),
        retired=bool(row[7]),
        replaced=None if row[8] is None else Incarnation(row[8]),
    )


def chore_of(row: Row) -> Chore:
    return Chore(Work(row[0]), ServerName(row[1]), moment(row[2]), row[3], MessageId(row[4]))


def chore_row(chore: Chore) -> Row:
    return chore.work.value, chore.member, micros(chore.at), chore.step, chore.after


def member_row(member: Member) -> Row:
    lineage, applied = member.lineage, member.applied
    beginnings = lineage and ",".join(f"{entry.incarnation}@{entry.sequence}" for entry in lineage.beginnings)
    return (
        member.name,
        lineage.database_id if lineage else None,
        beginnings,
        lineage.sequence if lineage else None,
        member.knows_ours,
        applied.incarnation if applied else None,
        applied.sequence if applied else None,
        int(member.retired),
        member.replaced,
    )
