"""Asks all members to act for an operator, at once, and says of each what it answered or why it did not."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from shadowrelay.core.identifiers import ServerName
from shadowrelay.core.operating import Act, ActAnswer, Told
from shadowrelay.core.safety_net.resubmission import Contacts
from shadowrelay.core.steps import Operate, Unanswered

AskMember: TypeAlias = Callable[[Operate, float], Awaitable[ActAnswer | Unanswered]]
"""Asks a member, for at most so many seconds."""


async def asked_all(
    contacts: Contacts,
    ask: AskMember,
    why_away: Callable[[ServerName], str],
    act: Act,
    patience: float,
) -> list[tuple[ServerName, Told | str]]:
    """The answer of each member, in the order of their names, or why there is none. A member that cannot be
    reached is not asked. ``patience``: seconds.
    """

    async def asked(name: ServerName) -> tuple[ServerName, Told | str]:
        if name not in contacts.reachable:
            return name, why_away(name)
        answer = await ask(Operate(name, act), patience)
        if isinstance(answer, Unanswered):
            return name, f"{answer.step}: {answer.error}"
        return name, (f"it refuses: {answer.refused}" if answer.refused else answer.told)

    return list(await asyncio.gather(*(asked(name) for name in sorted(contacts.members))))
