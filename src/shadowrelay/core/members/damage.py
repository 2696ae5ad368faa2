"""Damaged copies: found, replaced by a good copy from another member, or set aside if there is none.

A copy is damaged if its content differs from its digest. A whole message is damaged if its rows cannot be
believed: then no decision can read a copy, and only its id is known (``DamagedRow``). Finding damage deletes
no row, and a damaged copy does not count as a copy.
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
from shadowrelay.core.tracking import HaDamage, HaRestore, OfRows, RowsDamaged, Tracked
from shadowrelay.core.values import dataclass, replace

NO_GOOD_COPY = "damaged, and no member has a good copy"
DROPPED = "given up by an operator: whom to tell is not known"

FINAL = frozenset({VerdictKind.UNKNOWN, VerdictKind.DAMAGED})
"""Answers that mean that the member has no good copy, so that it need not be asked again."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """*My copy is damaged; if you hold a good one for me, give it to me.*

    Epoch and digest come from the asker's row. If its rows cannot be believed, only the message is named.
    """

    message_id: MessageId
    epoch: int = 0
    content: Digest | None = None


def found(ledger: Ledger, message_id: MessageId, now: datetime, what: str = "content") -> Decision[bool]:
    """Record that the content of a copy differs from its digest. True if that was not known yet.

    The copy waits and does not expire. A holder tells the owner with its next question; an owner looks for a
    good copy.
    """
    copy = ledger.copy(message_id)
    if copy is None or copy.damaged:
        return Decision(False)
    after = replace(copy, damage=Damage.CONTENT, check_at=now if copy.held else copy.check_at)
    event = HaDamage(at=now, copy=after, recipients=after.unsettled, reason=what)
    return Decision(True, (SaveCopy(copy, after),), (event,))


def found_rows(rows: DamagedRow) -> Decision[None]:
    """Record that rows cannot be believed: from now on, only a look for damage finds them."""
    event = RowsDamaged(at=rows.found_at, message_id=rows.message_id, reason=rows.what)
    return Decision(None, (SaveDamaged(rows),), (event,))


def wanted(ledger: Ledger, message_id: MessageId) -> Wanted | None:
    """The request for a good copy of a damaged message; None if none is needed, or its owner will make one.

    A holder keeps its damaged copy until the owner has made another one. It needs a good copy only to
    promote.
    """
    if rows := ledger.damaged(message_id):
        return None if rows.set_aside else Wanted(message_id)
    copy = ledger.copy(message_id)
    if copy is None or not needed(copy) or copy.digests is None:
        return None
    return Wanted(message_id, copy.epoch, copy.digests.content)


def needed(copy: Copy) -> bool:
    """Must this node ask for a good copy? A mere holder need not: the owner makes another copy."""
    return copy.damaged and copy.queued and (copy.owned or copy.pending is not None)


def answer(
    ledger: Ledger, asker: Speaker, asked: Wanted, now: datetime
) -> Decision[tuple[tuple[Verdict, ...], MessageId | None]]:
    """Answer a member whose copy is damaged: the verdicts, and the message to give, if we have a good copy.

    Only a good copy that this node holds for that member is given. The rest of the answer is the same as for
    any question of a holder whose copy is damaged.
    """
    copy = ledger.copy(asked.message_id)
    epoch = asked.epoch or (copy.epoch if copy else 1)
    said = answers.answer(ledger, asker, asked.message_id, epoch, None, now, damaged=True)
    verdicts, give = said.then, None
    if copy is not None and any(verdict.kind is VerdictKind.YOURS for verdict in verdicts):
        # A row of a version before digests gets its digest when the content is read, before it is given.
        mine = copy.digests.content if copy.digests else asked.content
        if asked.content in {None, mine}:
            give = copy.id
        else:  # our content is another one than the asker's was
            other = Verdict(copy.id, copy.epoch, VerdictKind.DAMAGED)
            verdicts = tuple(other if one.kind is VerdictKind.YOURS else one for one in verdicts)
    if copy is not None and not copy.unsettled and not any(one.waits for one in copy.recipients):
        verdicts = (Verdict(copy.id, copy.epoch, VerdictKind.DELIVERED),)
    return said.but((verdicts, give))


def given(ledger: Ledger, message_id: MessageId, to: ServerName, now: datetime) -> Decision[None]:
    """The owner took our copy in place of its own damaged one: log that."""
    copy = ledger.copy(message_id)
    if copy is None:
        return Decision(None)
    event = HaRestore(at=now, copy=copy, recipients=copy.unsettled, giver=ledger.name, taker=to)
    return Decision(None, (), (event,))


def sound_again(ledger: Ledger, message_id: MessageId, content: Digest, now: datetime) -> Decision[bool]:
    """A damaged content matches its digest again: its disk was repaired, or somebody put it back.

    A holder tells the owner with its next question. True if the copy counted as damaged until now.
    """
    copy = ledger.copy(message_id)
    if copy is None or not copy.damaged or copy.digests is None or copy.digests.content != content:
        return Decision(False)
    told = copy.held and copy.pending is None
    after = replace(copy, damage=None, check_at=now if told else copy.check_at)
    event = HaRestore(at=now, copy=after, recipients=after.unsettled, giver=ledger.name, taker=ledger.name)
    return Decision(True, (SaveCopy(copy, after),), (event,))


def digested(ledger: Ledger, message_id: MessageId, content: Digest) -> Decision[Copy | None]:
    """Make digests for a row of a version before digests, from what is stored now. The result: the copy."""
    copy = ledger.copy(message_id)
    if copy is None or copy.digests is not None:
        return Decision(copy)
    digests = Digests(content, of_envelope(copy.envelope, copy.recipients), late=True)
    after = replace(copy, digests=digests)
    return Decision(after, (SaveCopy(copy, after),))


def given_up(ledger: Ledger, message_id: MessageId, now: datetime) -> Decision[bool]:
    """Set a damaged message aside for the operator: every member was asked, and none has a good copy.

    It is neither delivered nor bounced. True if this call set it aside.
    """
    if rows := ledger.damaged(message_id):
        if rows.set_aside:
            return Decision(False)
        event = RowsDamaged(at=now, message_id=message_id, reason=NO_GOOD_COPY, told=OfRows.SET_ASIDE)
        return Decision(True, (SaveDamaged(replace(rows, set_aside=True)),), (event,))
    copy = ledger.copy(message_id)
    if copy is None or not needed(copy):
        return Decision(False)
    return set_aside(copy, now, NO_GOOD_COPY).but(True)


def dropped(ledger: Ledger, message_id: MessageId, now: datetime, operator: str = "") -> Decision[bool]:
    """An operator gives up a message that was set aside because its rows cannot be believed. False if not so.

    The sender cannot be told, because its address is in those rows. No outcome is remembered: if a good copy
    turns up after all, its holder promotes it.
    """
    rows = ledger.damaged(message_id)
    if rows is None or not rows.set_aside:
        return Decision(False)
    event = RowsDamaged(at=now, message_id=message_id, reason=DROPPED, told=OfRows.DROPPED, operator=operator)
    return Decision(True, (DropDamaged(message_id),), (event,))


class Counted(StrEnum):
    """What the metrics count. DERIVED: a derived column was wrong and was corrected. INDEX: an index differed
    from its rows and was built again. FETCHED, GIVEN: good copies that replaced damaged ones, on this node
    and on other nodes.
    """

    CONTENT = "content"
    ROWS = "rows"
    DERIVED = "derived"
    INDEX = "index"
    FETCHED = "fetched"
    GIVEN = "given"


def counted(event: Tracked, name: ServerName) -> Counted | None:
    """What an event of the node called ``name`` counts as; None if it is not about damage."""
    match event:
        case HaDamage():
            return Counted.CONTENT
        case RowsDamaged(told=OfRows.DAMAGED):
            return Counted.ROWS
        case HaRestore(taker=taker):
            return Counted.FETCHED if taker == name else Counted.GIVEN
        case _:
            return None
