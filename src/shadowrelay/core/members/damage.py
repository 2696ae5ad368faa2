"""Damaged copies: found, shown, replaced by a good copy of another member, or set aside when there is none.

A copy is damaged when its content is not the one of its digest. A message is, when its rows cannot be
believed: then there is no copy that a decision could read, and its id is all that is known (``DamagedRow``).
Damage never deletes a row, and a damaged copy counts as none.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from shadowrelay.core.decisions import (
    DamagedRow,
    Decision,
    DropDamaged,
    SaveCopy,
    SaveDamaged,
    Verdict,
    VerdictKind,
)
from shadowrelay.core.digests import of_envelope
from shadowrelay.core.identifiers import Digest, MessageId, ServerName
from shadowrelay.core.ledger import Ledger
from shadowrelay.core.members import answers
from shadowrelay.core.members.questions import Speaker
from shadowrelay.core.messages import Copy, Damage, Digests
from shadowrelay.core.ownership.set_aside import set_aside
from shadowrelay.core.tracking import HaDamage, HaRestore, RowsDamaged, SnapshotEnd, Told
from shadowrelay.core.tracking_row import TrackingEvent
from shadowrelay.core.values import dataclass, replace

NO_GOOD_COPY = "damaged, and no member has a good copy"
DROPPED = "given up by an operator: whom to tell is not known"

FINAL = frozenset({VerdictKind.UNKNOWN, VerdictKind.DAMAGED})
"""Answers after which a member need not be asked again: it has no good copy."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """*My copy is damaged; if you hold a good one for me, give it to me.* The epoch and the digest are those
    of the asker's row; a row that cannot be believed names the message alone.
    """

    message_id: MessageId
    epoch: int = 0
    content: Digest | None = None


def found(ledger: Ledger, message_id: MessageId, now: datetime, what: str = "content") -> Decision[bool]:
    """The content of a message was read, and is not what it has to be. True if that is news.

    It waits, unexpired. A holder tells its owner with its next question; an owner looks for a good copy.
    """
    copy = ledger.copy(message_id)
    if copy is None or copy.damaged:
        return Decision(False)
    after = replace(copy, damage=Damage.CONTENT, check_at=now if copy.held else copy.check_at)
    event = HaDamage(at=now, copy=after, recipients=after.unsettled, reason=what)
    return Decision(True, (SaveCopy(copy, after),), (event,))


def found_rows(rows: DamagedRow) -> Decision[None]:
    """Rows were read that cannot be believed: from now on nobody finds them but who looks for damage."""
    event = RowsDamaged(at=rows.found_at, message_id=rows.message_id, reason=rows.what)
    return Decision(None, (SaveDamaged(rows),), (event,))


def wanted(ledger: Ledger, message_id: MessageId) -> Wanted | None:
    """What to ask the members for, None if nothing: a good copy is here, or it is the owner's to make one.

    A holder keeps its damaged copy until the owner has made another one, and needs it only to promote it.
    """
    if rows := ledger.damaged(message_id):
        return None if rows.set_aside else Wanted(message_id)
    copy = ledger.copy(message_id)
    if copy is None or not needed(copy) or copy.digests is None:
        return None
    return Wanted(message_id, copy.epoch, copy.digests.content)


def needed(copy: Copy) -> bool:
    """Is a good copy to be asked for? Of a copy that is merely held its owner makes another one."""
    return copy.damaged and copy.queued and (copy.owned or copy.pending is not None)


def answer(
    ledger: Ledger, asker: Speaker, asked: Wanted, now: datetime
) -> Decision[tuple[tuple[Verdict, ...], MessageId | None]]:
    """Somebody's copy is damaged. A good copy that is held here for that very member is to be given to it;
    what else is known is said as to any question of a holder whose copy is damaged.
    """
    copy = ledger.copy(asked.message_id)
    epoch = asked.epoch or (copy.epoch if copy else 1)
    said = answers.answer(ledger, asker, asked.message_id, epoch, None, now, damaged=True)
    verdicts, give = said.then, None
    if copy is not None and any(verdict.kind is VerdictKind.YOURS for verdict in verdicts):
        # What a row of a version before digests has is compared when it is read to be given, and then known.
        mine = copy.digests.content if copy.digests else asked.content
        if asked.content in {None, mine}:
            give = copy.id
        else:  # it is another content than the one that is looked for
            other = Verdict(copy.id, copy.epoch, VerdictKind.DAMAGED)
            verdicts = tuple(other if one.kind is VerdictKind.YOURS else one for one in verdicts)
    if copy is not None and not copy.unsettled and not any(one.report for one in copy.recipients):
        verdicts = (Verdict(copy.id, copy.epoch, VerdictKind.DELIVERED),)
    return said.but((verdicts, give))


def given(ledger: Ledger, message_id: MessageId, to: ServerName, now: datetime) -> Decision[None]:
    """The owner of a copy that we hold has taken the same from us, in place of its own."""
    copy = ledger.copy(message_id)
    if copy is None:
        return Decision(None)
    event = HaRestore(at=now, copy=copy, recipients=copy.unsettled, giver=ledger.name, taker=to)
    return Decision(None, (), (event,))


def sound_again(ledger: Ledger, message_id: MessageId, content: Digest, now: datetime) -> Decision[bool]:
    """A content that was damaged is what it has to be after all: its disk was repaired, or somebody has put
    it back. A holder tells its owner. True if that is news.
    """
    copy = ledger.copy(message_id)
    if copy is None or not copy.damaged or copy.digests is None or copy.digests.content != content:
        return Decision(False)
    told = copy.held and copy.pending is None
    after = replace(copy, damage=None, check_at=now if told else copy.check_at)
    event = HaRestore(at=now, copy=after, recipients=after.unsettled, giver=ledger.name, taker=ledger.name)
    return Decision(True, (SaveCopy(copy, after),), (event,))


def digested(ledger: Ledger, message_id: MessageId, content: Digest) -> Decision[Copy | None]:
    """A row of a version before digests gets them, of what is stored now. The result is the copy."""
    copy = ledger.copy(message_id)
    if copy is None or copy.digests is not None:
        return Decision(copy)
    digests = Digests(content, of_envelope(copy.envelope, copy.recipients), late=True)
    after = replace(copy, digests=digests)
    return Decision(after, (SaveCopy(copy, after),))


def given_up(ledger: Ledger, message_id: MessageId, now: datetime) -> Decision[bool]:
    """Every member that may have a good copy was asked, and none has one: an operator has to see it.

    It is never delivered, and never bounced. True if it was set aside by this.
    """
    if rows := ledger.damaged(message_id):
        if rows.set_aside:
            return Decision(False)
        event = RowsDamaged(at=now, message_id=message_id, reason=NO_GOOD_COPY, told=Told.SET_ASIDE)
        return Decision(True, (SaveDamaged(replace(rows, set_aside=True)),), (event,))
    copy = ledger.copy(message_id)
    if copy is None or not needed(copy):
        return Decision(False)
    return set_aside(copy, now, NO_GOOD_COPY).but(True)


def dropped(ledger: Ledger, message_id: MessageId, now: datetime) -> Decision[bool]:
    """An operator gives up a message whose rows cannot be believed, and of which nobody has a good copy. Its
    sender cannot be told: who that is stands in those rows. False if it is none of these.

    No outcome is remembered: if a good copy turns up after all, its holder promotes it.
    """
    rows = ledger.damaged(message_id)
    if rows is None or not rows.set_aside:
        return Decision(False)
    event = RowsDamaged(at=now, message_id=message_id, reason=DROPPED, told=Told.DROPPED)
    return Decision(True, (DropDamaged(message_id),), (event,))


class Counted(StrEnum):
    """What metrics count of damage. DERIVED: a column that follows from others was wrong, and was put right;
    FETCHED and GIVEN: good copies that took the place of damaged ones, here and elsewhere.
    """

    CONTENT = "content"
    ROWS = "rows"
    DERIVED = "derived"
    FETCHED = "fetched"
    GIVEN = "given"


def counted(event: TrackingEvent | SnapshotEnd | RowsDamaged, name: ServerName) -> Counted | None:
    """What an event of the node of that name is counted as."""
    match event:
        case HaDamage():
            return Counted.CONTENT
        case RowsDamaged(told=Told.DAMAGED):
            return Counted.ROWS
        case HaRestore(taker=taker):
            return Counted.FETCHED if taker == name else Counted.GIVEN
        case _:
            return None
