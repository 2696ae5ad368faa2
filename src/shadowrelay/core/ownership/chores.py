"""What has to be done to very many messages at once: begun with what calls for it, carried on behind that.

1. Whatever calls for it (an opening, a greeting) does the first part in its own transaction, and writes
   down there what is left (``begin``). If that was all, there is no chore: nobody has to know of it.
2. What is left is done part by part, each in a transaction of its own (``carry_on``). It is durable: a
   process that ends in the middle finds it at its next start. Doing a part twice changes nothing.
3. While one is open that decides what this node may say of a message, it says *pending* of every one
   (``closed``). While one is open that decides what it may send, it begins nothing (``held_back``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias, assert_never

from shadowrelay.core.decisions import AskAbout, CheckCopies, Chore, ChoreDone, ChoreKind, Decision, Part
from shadowrelay.core.identifiers import Lineage, MessageId, ServerName
from shadowrelay.core.ledger import Ledger, Transaction
from shadowrelay.core.messages import Copy, Holder, HolderState, Reason
from shadowrelay.core.ownership.transfer import ask_about, intend, saved
from shadowrelay.core.values import replace

ChoreStep: TypeAlias = Callable[[Transaction, Chore, Part], Part | None]
"""Does one part of a chore. Returns the next part, None at the end."""


_URGENCY = {work: number for number, work in enumerate(ChoreKind)}


def closed(ledger: Ledger) -> bool:
    """Is it not known yet what this node may say of its messages?"""
    return any(
        chore.work in {ChoreKind.OPENED, ChoreKind.REPLACED, ChoreKind.ROLLED_BACK} for chore in ledger.chores
    )


def takes_no_copies(ledger: Ledger) -> bool:
    """Could what is offered now be taken for what is still to be marked?"""
    return any(chore.work in {ChoreKind.OPENED, ChoreKind.ROLLED_BACK} for chore in ledger.chores)


def refuses(ledger: Ledger, message_id: MessageId) -> bool:
    """Is a copy of that message not to be taken now?"""
    return takes_no_copies(ledger) or (closed(ledger) and ledger.knows(message_id))


def held_back(ledger: Ledger) -> bool:
    """May something be due that is first to be asked about?"""
    return any(chore.work not in {ChoreKind.REOPENED, ChoreKind.COUNTED} for chore in ledger.chores)


def begin(ledger: Transaction, chore: Chore) -> None:
    """Do the first part; what is left is written down, in place of what was left of the same before."""
    if left := _part_of(ledger, chore):
        ledger.apply(Decision(None, (left,)))
    elif any((known.work, known.member) == (chore.work, chore.member) for known in ledger.chores):
        ledger.apply(Decision(None, (ChoreDone(chore),)))


def carry_on(ledger: Transaction) -> bool:
    """Do the next part of what is left. Is there more?"""
    if not ledger.chores:
        return False
    chore = min(ledger.chores, key=lambda chore: (_URGENCY[chore.work], chore.at))
    left = _part_of(ledger, chore)
    ledger.apply(Decision(None, (left or ChoreDone(chore),)))
    return bool(ledger.chores)


def _part_of(ledger: Transaction, chore: Chore) -> Chore | None:
    """Do as much as a transaction may. Returns what is left."""
    part = Part(chore.after, ledger.at_once)
    for number, step in enumerate(_steps(chore.work)):
        if number < chore.step:
            continue
        if rest := step(ledger, chore, part):
            return replace(chore, step=number, after=rest.after)
        part = Part(most=ledger.at_once)
    return None


def _steps(work: ChoreKind) -> tuple[ChoreStep, ...]:
    match work:
        case ChoreKind.OPENED:
            return (_ask_about_all,)
        case ChoreKind.RETURNED:
            return (_in_doubt, _former_owner_is_back)
        case ChoreKind.COUNTED:
            return (_holder_is_back,)
        case ChoreKind.REOPENED:
            return (_check_copies,)
        case ChoreKind.REPLACED | ChoreKind.ROLLED_BACK:
            return (_holder_is_gone, _owner_is_gone)
        case _:
            assert_never(work)


def _ask_about_all(ledger: Transaction, chore: Chore, part: Part) -> Part | None:
    """The database was opened again: whatever is in transit is asked about before it is sent."""
    ids, rest = ledger.in_transit(part)
    ledger.apply(Decision(None, (AskAbout(tuple(ids), chore.at),)))
    return rest


def _holder_is_back(ledger: Transaction, chore: Chore, part: Part) -> Part | None:
    """It was only out of reach: what it holds counts again."""
    found = ledger.copies_held_by(chore.member, part, counted=False)
    for copy in found.copies:
        counted = in_state(copy, chore.member, HolderState.LOST, HolderState.HOLDING)
        ledger.apply(saved(copy, counted))
    return found.rest


def _in_doubt(ledger: Transaction, chore: Chore, part: Part) -> Part | None:
    """What was to be sent in doubt can be known now."""
    found = ledger.copies_in_doubt(chore.member, part)
    for copy in found.copies:
        ledger.apply(ask_about(copy, chore.at))
    return found.rest


def _former_owner_is_back(ledger: Transaction, chore: Chore, part: Part) -> Part | None:
    found = ledger.copies_taken_from(chore.member, part)
    for copy in found.copies:
        ledger.apply(ask_about(copy, chore.at))
    return found.rest


def _check_copies(ledger: Transaction, chore: Chore, part: Part) -> Part | None:
    """Their owner opened its database again, perhaps an older one than its marks can show."""
    ledger.apply(Decision(None, (CheckCopies(chore.member, chore.at, part.most),)))
    return part if ledger.unchecked(chore.member, chore.at) else None


def _holder_is_gone(ledger: Transaction, chore: Chore, part: Part) -> Part | None:
    """What it held is lost to it: forgotten if its database is another one, uncertain if it is an old one."""
    member = ledger.member(chore.member)
    running = member.lineage if member else None
    found = ledger.copies_held_by(chore.member, part)
    for copy in found.copies:
        holders = (_without_its_copy(holder, chore, running) for holder in copy.holders)
        ledger.apply(saved(copy, replace(copy, holders=tuple(one for one in holders if one))))
    return found.rest


def _without_its_copy(holder: Holder, chore: Chore, running: Lineage | None) -> Holder | None:
    if holder.name != chore.member:
        return holder
    if chore.work is ChoreKind.ROLLED_BACK:
        return replace(holder, state=HolderState.UNCERTAIN)
    return holder if running and holder.database_id == running.database_id else None


def _owner_is_gone(ledger: Transaction, chore: Chore, part: Part) -> Part | None:
    """What is held for the database that is no more is to be promoted."""
    member = ledger.member(chore.member)
    running = member.lineage if member else None
    reason = Reason.DATABASE_REPLACED if chore.work is ChoreKind.REPLACED else Reason.DATABASE_ROLLED_BACK
    found = ledger.copies_held_for(chore.member, part)
    for copy in found.copies:
        if chore.work is ChoreKind.REPLACED and running and copy.owner_database == running.database_id:
            continue  # it is held for the one that took its place
        ledger.apply(intend(copy, reason, chore.at))
    return found.rest


def in_state(copy: Copy, name: ServerName, old: HolderState | None, new: HolderState) -> Copy:
    """The copy with that member's entries in the new state: those in the ``old`` one, or all."""
    holders = tuple(
        replace(holder, state=new) if holder.name == name and old in (None, holder.state) else holder
        for holder in copy.holders
    )
    return replace(copy, holders=holders)
