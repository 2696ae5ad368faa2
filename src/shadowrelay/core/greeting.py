"""The script of an introduction: what a greeting tells is stored before anything else is said."""

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
    """Introduce this node to a member, and store the member's answer.

    ``after_silence`` is called when the answer has come: was the member out of reach until now?
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
    """The member's lineage as this node knows it at this moment."""
    known = ledger.member(member)
    return known.lineage if known else None
