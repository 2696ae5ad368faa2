"""Converts rows of the transport database to and from the objects that decisions use."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import lru_cache

from shadowrelay.core import digests
from shadowrelay.core.decisions import (
    DamagedRow,
    DiscardEvent,
    Outcome,
    Tombstone,
    Verdict,
    VerdictKind,
)
from shadowrelay.core.identifiers import (
    DatabaseId,
    Digest,
    Incarnation,
    Mark,
    MessageId,
    NextHop,
    RequestId,
    ServerName,
)
from shadowrelay.core.messages import (
    FOREVER,
    Confirmation,
    Copy,
    Damage,
    Digests,
    Envelope,
    Holder,
    HolderState,
    Reason,
    Recipient,
    Role,
    Stage,
    Status,
    TlsWish,
    Unread,
)
from shadowrelay.core.values import replace
from shadowrelay.database.sums import IMPOSSIBLE, SqlRow, Unbelievable, believed, readable, row_sum, sound

UNREADABLE = "what is known of the damage is damaged too"

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def micros(moment: datetime) -> int:
    """An aware datetime as microseconds since 1970."""
    return (moment - _EPOCH) // _MICROSECOND


def moment(value: int) -> datetime:
    return _EPOCH + timedelta(microseconds=value)


def maybe_moment(value: int | None) -> datetime | None:
    return None if value is None else moment(value)


def possible_moment(value: int | None) -> datetime | None:
    """The moment in a column without a sum; None also if there can be none."""
    return readable(lambda row: maybe_moment(row[0]), (value,))


def copy_of(row: SqlRow, recipients: list[SqlRow], holders: list[SqlRow], *, old: bool = False) -> Copy:
    """The copy in a message row, its recipients and its holders, each row with its sum. Raises Unbelievable.

    ``old``: there may be rows from a version before sums and digests.
    """
    try:
        confirmation, confirm_since, check_at, found, asked = row[-5:]
        believed(_given(row[:-5], *_LATER_OF_MESSAGES), found, old=old)
        believed((_hex(row[0]), confirmation, confirm_since, check_at), asked, old=old)
        copy = _copy(
            row,
            tuple(_recipient_row(one, old=old) for one in recipients),
            tuple(_holder(believed(one[:-1], one[-1], old=old)) for one in holders),
        )
    except IMPOSSIBLE as error:
        raise Unbelievable(f"an impossible value: {error}") from error
    if copy.digests and copy.digests.envelope != digests.of_envelope(copy.envelope, copy.recipients):
        raise Unbelievable("the envelope differs from its digest")
    return copy


def _copy(row: SqlRow, recipients: tuple[Recipient, ...], holders: tuple[Holder, ...]) -> Copy:
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
            tls=None if row[29] is None else TlsWish(row[29]),
        ),
        ranks_given=row[16],
        former_owner=None if row[17] is None else ServerName(row[17]),
        received_at=moment(row[18]),
        settled_at=maybe_moment(row[19]),
        reports_on=None if row[20] is None else MessageId(row[20]),
        pending=None if row[21] is None else Reason(row[21]),
        digests=None if row[23] is None else Digests(_maybe_digest(row[22]), Digest(row[23]), bool(row[24])),
        damage=None if row[25] is None else Damage(row[25]),
        renewed_at=maybe_moment(row[26]),
        content_of=None if row[27] is None else MessageId(row[27]),
        request=None if row[28] is None else RequestId(row[28]),
        confirmation=Confirmation(row[30]),
        confirm_since=maybe_moment(row[31]),
        check_at=maybe_moment(row[32]),
        recipients=recipients,
        holders=holders,
    )


def _maybe_digest(value: str | None) -> Digest | None:
    return None if value is None else Digest(value)


def _recipient(row: SqlRow) -> Recipient:
    return Recipient(
        number=row[1],
        address=row[2],
        next_hop=NextHop(row[3]),
        notify=tuple(row[4].split(",")) if row[4] else (),
        orcpt=row[5],
        status=Status(row[6]),
        attempts=row[7],
        next_attempt=maybe_moment(row[8]),
        last_reply=row[9],
        delay_notified=bool(row[10]),
        report=None if row[11] is None else MessageId(row[11]),
        settled_at=maybe_moment(row[12]),
        journal=None if row[13] is None else MessageId(row[13]),
        suspended=maybe_moment(row[14]),
        ordered_at=maybe_moment(row[15]),
        unread=None if row[16] is None else _unread(row[16]),
    )


def _unread(text: str) -> Unread:
    tries, _, host = text.partition(" ")
    return Unread(int(tries), host)


def _recipient_row(row: SqlRow, *, old: bool) -> Recipient:
    believed(_given(row[:-1], *_LATER), row[-1], old=old)
    return _recipient(row)


def sound_recipients(rows: list[SqlRow]) -> tuple[Recipient, ...]:
    """The recipients whose own rows match their sums, of a message whose rows do not."""
    found = []
    for row in rows:
        try:
            found.append(_recipient_row(row, old=False))
        except (Unbelievable, *IMPOSSIBLE):
            continue
    return tuple(found)


def _holder(row: SqlRow) -> Holder:
    mark = None if row[3] is None else Mark(Incarnation(row[3]), row[4])
    return Holder(ServerName(row[2]), DatabaseId(row[1]), mark, row[5], HolderState(row[6]))


def message_row(copy: Copy) -> SqlRow:
    """The row of a copy, without its sums: see ``message_sums``."""
    # ``_value_`` is ``value`` without the lookup that an enumeration makes each time.
    envelope, found = copy.envelope, copy.digests
    return (
        copy.id,
        copy.epoch,
        copy.rank,
        copy.role._value_,
        copy.stage._value_,
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
        copy.former_owner,
        micros(copy.received_at),
        copy.settled_at and micros(copy.settled_at),
        copy.reports_on,
        None if copy.pending is None else copy.pending._value_,
        None if found is None else found.content,
        None if found is None else found.envelope,
        None if found is None else int(found.late),
        None if copy.damage is None else copy.damage._value_,
        copy.renewed_at and micros(copy.renewed_at),
        copy.content_of,
        copy.request,
        None if envelope.tls is None else envelope.tls._value_,
        copy.confirmation._value_,
        copy.confirm_since and micros(copy.confirm_since),
        copy.check_at and micros(copy.check_at),
        int(copy.exposed),
    )


_LATER_OF_MESSAGES = (27, 29)
"""The first of the columns of a message that came after the sums, and of those that came later."""

_ASKED = 30
"""The first column of those that one statement changes for many messages; the last column is derived."""

_LATER = (12, 14, 16)
"""The first of the columns of a recipient that came after the sums, of those that came later, and so on."""


def _given(columns: SqlRow, *later: int) -> SqlRow:
    """The columns of which a row's sum is made. Columns from one of ``later`` on count only if one has a
    value: they came after the sums, and a row without them must keep the sum of an older version.
    """
    for number in later:
        if {*columns[number:]} <= {None}:
            return columns[:number]
    return columns


def message_sums(row: SqlRow) -> SqlRow:
    """The two sums of a ``message_row``: over stable columns, and over those changed for many messages."""
    return row_sum(*_given(row[:_ASKED], *_LATER_OF_MESSAGES)), row_sum(_hex(row[0]), *row[_ASKED:-1])


def recipient_sum(row: SqlRow) -> int:
    """The sum of a ``recipient_row``, which leaves out the last column: that one is derived."""
    return row_sum(*_given(row[:-1], *_LATER))


@lru_cache(maxsize=2048)
def _hex(message_id: str) -> str:
    """Like SQLite's ``hex``: it also takes an id that is not valid text."""
    return message_id.encode().hex().upper()


def due_at(copy: Copy, recipient: Recipient) -> int | None:
    """When to send to a recipient; None unless this node owns the message and may send it."""
    if recipient.status is not Status.READY or copy.damaged or not copy.owned:
        return None
    if copy.confirmation is Confirmation.ASK or recipient.suspended == FOREVER:
        return None
    planned = recipient.next_attempt or copy.received_at
    return micros(max(planned, recipient.suspended) if recipient.suspended else planned)


def recipient_row(copy: Copy, recipient: Recipient) -> SqlRow:
    """The row of a recipient, without its sum: see ``recipient_sum``."""
    return (
        copy.id,
        recipient.number,
        recipient.address,
        recipient.next_hop,
        ",".join(recipient.notify) if recipient.notify else "",
        recipient.orcpt,
        recipient.status._value_,
        recipient.attempts,
        recipient.next_attempt and micros(recipient.next_attempt),
        recipient.last_reply,
        int(recipient.delay_notified),
        recipient.report,
        recipient.settled_at and micros(recipient.settled_at),
        recipient.journal,
        recipient.suspended and micros(recipient.suspended),
        recipient.ordered_at and micros(recipient.ordered_at),
        None if recipient.unread is None else f"{recipient.unread.tries} {recipient.unread.host}",
        due_at(copy, recipient),
    )


def holder_row(copy: Copy, holder: Holder) -> SqlRow:
    """The row of a holder, without its sum."""
    mark = holder.mark
    return (
        copy.id,
        holder.database_id,
        holder.name,
        mark.incarnation if mark else None,
        mark.sequence if mark else None,
        holder.rank,
        holder.state._value_,
    )


def damaged_of(row: SqlRow, believed_ones: tuple[Recipient, ...]) -> DamagedRow:
    """A row of damaged messages, with its sum. ``believed_ones``: recipients of that message whose own rows
    match their sums.
    """
    settled = {one.number: one.status for one in believed_ones if one.settled}
    # This row may be damaged too: then it says only that the message is damaged.
    known = sound(_damaged, row) or DamagedRow(MessageId(row[0]), _EPOCH, UNREADABLE)
    return replace(known, settled=tuple(sorted((settled | dict(known.settled)).items())))


def _damaged(row: SqlRow) -> DamagedRow:
    settled = tuple(map(_settled, filter(None, row[3].split(","))))
    return DamagedRow(MessageId(row[0]), moment(row[1]), row[2], settled, bool(row[4]))


def _settled(entry: str) -> tuple[int, Status]:
    number, _, status = entry.partition(":")
    return int(number), Status(status)


def damaged_row(found: DamagedRow) -> SqlRow:
    settled = ",".join(f"{number}:{status.value}" for number, status in found.settled)
    return (found.message_id, micros(found.found_at), found.what, settled, int(found.set_aside))


def numbers_text(numbers: tuple[int, ...]) -> str:
    return ",".join(map(str, numbers))


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(","))) if text else ()


def event_of(row: SqlRow) -> DiscardEvent:
    numbers, settled_at = _numbers(row[6]), maybe_moment(row[8])
    verdict = Verdict(MessageId(row[2]), row[3], VerdictKind(row[4]), row[5], numbers, settled_at)
    return DiscardEvent(DatabaseId(row[1]), verdict, moment(row[7]), row[0])


def event_row(event: DiscardEvent) -> SqlRow:
    told = event.verdict
    return (
        event.addressee,
        told.message_id,
        told.epoch,
        told.kind._value_,
        told.argument,
        numbers_text(told.recipients),
        micros(event.created_at),
        told.settled_at and micros(told.settled_at),
    )


def outcome_of(row: SqlRow) -> Outcome:
    return Outcome(MessageId(row[0]), row[1], _numbers(row[2]), moment(row[3]), bool(row[4]))


def tombstone_of(row: SqlRow) -> Tombstone:
    return Tombstone(MessageId(row[0]), ServerName(row[4]), row[1], row[2], moment(row[3]))
