"""Chores: work on very many messages, begun in the transaction that causes it and carried on in parts.

1. The cause (an opening, a greeting) does the first part in its own transaction, and stores there what is
   left (``begin``). If nothing is left, there is no chore to store.
2. The rest is done part by part, each in its own transaction (``carry_on``). The rest is durable: if the
   process ends in the middle, the next start finds it. Doing a part twice changes nothing.
3. While a chore is open that decides what this node may say about messages, the node answers *pending* about
   every message (``closed``). While a chore is open that decides what the node may send, it sends nothing new
   (``held_back``).
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
"""A function that does one part of a step of a chore. It returns the next part, None at the end."""


_URGENCY = {work: number for number, work in enumerate(ChoreKind)}


def closed(ledger: Ledger) -> bool:
    """Is a chore open that decides what this node may say about its messages?"""
    return bool(ledger.chores) and any(
        chore.work in {ChoreKind.OPENED, ChoreKind.REPLACED, ChoreKind.ROLLED_BACK} for chore in ledger.chores
    )


def takes_no_copies(ledger: Ledger) -> bool:
    """Must this node refuse all copies, because an open chore could not tell a new copy from an old one?"""
    return bool(ledger.chores) and any(
        chore.work in {ChoreKind.OPENED, ChoreKind.ROLLED_BACK} for chore in ledger.chores
    )


def refuses(ledger: Ledger, message_id: MessageId) -> bool:
    """Must this node refuse a copy of that message for now?"""
    return takes_no_copies(ledger) or (closed(ledger) and ledger.knows(message_id))


def held_back(ledger: Ledger) -> bool:
    """May a message be due that has yet to be marked, so that the members are asked about it first?"""
    return any(chore.work not in {ChoreKind.REOPENED, ChoreKind.COUNTED} for chore in ledger.chores)


def begin(ledger: Transaction, chore: Chore) -> None:
    """Do the first part of a chore and store the rest; it replaces the stored rest of the same chore."""
    if left := _part_of(ledger, chore):
        ledger.apply(Decision(None, (left,)))
    elif any((known.work, known.member) == (chore.work, chore.member) for known in ledger.chores):
        ledger.apply(Decision(None, (ChoreDone(chore),)))


def carry_on(ledger: Transaction) -> bool:
    """Do the next part of the most urgent chore. Is there more to do?"""
    if not ledger.chores:
        return False
    chore = min(ledger.chores, key=lambda chore: (_URGENCY[chore.work], chore.at))
    left = _part_of(ledger, chore)
    ledger.apply(Decision(None, (left or ChoreDone(chore),)))
    return bool(ledger.chores)


def _part_of(ledger: Transaction, chore: Chore) -> Chore | None:
    """Do as much of a chore as one transaction may. Returns the rest, None if nothing is left."""
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
    """The database was opened again: ask the members about every message in transit before it is sent."""
    ids, rest = ledger.in_transit(part)
    ledger.apply(Decision(None, (AskAbout(tuple(ids), chore.at),)))
    return rest


def _holder_is_back(ledger: Transaction, chore: Chore, part: Part) -> Part | None:
    """The member was only out of reach: the copies that it holds count again."""
    found = ledger.copies_held_by(chore.member, part, counted=False)
    for copy in found.copies:
        counted = in_state(copy, chore.member, HolderState.LOST, HolderState.HOLDING)
        ledger.apply(saved(copy, counted))
    return found.rest


def _in_doubt(ledger: Transaction, chore: Chore, part: Part) -> Part | None:
    """The holder can be asked again about the messages that were to go out in doubt."""
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
    """The owner opened its database again, perhaps an older state than its marks show: check the copies."""
    ledger.apply(Decision(None, (CheckCopies(chore.member, chore.at, part.most),)))
    return part if ledger.unchecked(chore.member, chore.at) else None


def _holder_is_gone(ledger: Transaction, chore: Chore, part: Part) -> Part | None:
    """A holder lost its copies: drop it if its database is a new one; if it is an older state, UNCERTAIN."""
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
    """Promote the copies held for the owner's database that no longer exists."""
    member = ledger.member(chore.member)
    running = member.lineage if member else None
    reason = Reason.DATABASE_REPLACED if chore.work is ChoreKind.REPLACED else Reason.DATABASE_ROLLED_BACK
    found = ledger.copies_held_for(chore.member, part)
    for copy in found.copies:
        if chore.work is ChoreKind.REPLACED and running and copy.owner_database == running.database_id:
            continue  # this copy is held for the owner's new database
        ledger.apply(intend(copy, reason, chore.at))
    return found.rest


def in_state(copy: Copy, name: ServerName, old: HolderState | None, new: HolderState) -> Copy:
    """The copy with that member's holder entries in state ``new``: those in state ``old``, None: all."""
    holders = tuple(
        replace(holder, state=new) if holder.name == name and old in (None, holder.state) else holder
        for holder in copy.holders
    )
    return replace(copy, holders=holders)
