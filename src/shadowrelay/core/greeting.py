"""The script of an introduction: what both sides learn by it is written down before anything else is said."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from shadowrelay.core.identifiers import Lineage, ServerName
from shadowrelay.core.ledger import Transaction
from shadowrelay.core.members.conversation import Greeting, introduce, met
from shadowrelay.core.steps import Greet, Transact, Unanswered


async def greet(
    member: ServerName, clock: Callable[[], datetime], after_silence: Callable[[], bool]
) -> Greeting | Unanswered:
    """Introduce ourselves and remember the answer. ``after_silence`` is asked when it is there: was the
    member out of reach until now?
    """
    mine, asked_at = await Transact(lambda ledger: (introduce(ledger, member), lineage_of(ledger, member)))
    theirs = await Greet(member, mine)
    if isinstance(theirs, Unanswered):
        return theirs
    if theirs.name != member:
        return Unanswered("xshadow", f"it answers as {theirs.name}")
    greeting, silent = theirs, after_silence()
    await Transact(lambda ledger: met(ledger, greeting, clock(), after_silence=silent, asked_at=asked_at))
    return greeting


def lineage_of(ledger: Transaction, member: ServerName) -> Lineage | None:
    """What we know of that member's lineage at this moment."""
    known = ledger.member(member)
    return known.lineage if known else None
