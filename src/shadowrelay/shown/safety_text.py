"""What mail of which one copy can be reached is called, alike in the console and in commands. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from shadowrelay.core.members.at_risk import RiskCause
from shadowrelay.shown.fold import Fields
from shadowrelay.shown.reading import is_told

ONE_COPY = "one copy that can be reached"


def messages_have(count: int) -> str:
    return "1 message has" if count == 1 else f"{count:,} messages have"


def why_at_risk(risk: Fields, name: Callable[[str], str] = str, at: Callable[[str], str] = str) -> str:
    """The reason in one sentence, without its full stop. ``name``: how a member is called; ``at``: a time."""
    count, member = risk["messages"], name(risk["member"])
    away = f"{member} is away" + (f" since {at(risk['since'])}" if risk["since"] else "")
    match risk["cause"]:
        case RiskCause.OWNER_AWAY:
            return f"{away}: {messages_have(count)} {ONE_COPY}, the one kept for it"
        case RiskCause.HOLDER_AWAY:
            return f"{away}: {messages_have(count)} the second copy there"
        case RiskCause.PROMOTING:
            return f"{messages_have(count)} {ONE_COPY}: {member} lost its own"
    return f"{messages_have(count)} no second copy on another machine"


def copies_reached(status: Any) -> tuple[int, int]:
    """Messages of which one copy, and of which none can be reached, as far as those who answer know."""
    return at_risk_of(status, 0), status.get("damaged_aside", 0)


def at_risk_of(status: Any, nothing: Any) -> Any:
    """Messages of which one copy can be reached: a node of an older version counts what is exposed alone.
    ``nothing``: if it counts neither.
    """
    found = status.get("at_risk")
    return found if found is not None and is_told(found) else status.get("exposed", nothing)


def is_away(peer: Fields) -> bool:
    """Can a member not be reached, that is not retired?"""
    return peer["state"] == "unreachable" and not peer["retired"]


def unreached(nodes: Iterable[Fields]) -> list[str]:
    """The nodes that do not answer, and that nobody who answers can reach.

    If they are two, nobody can count the mail of which both copies are there.
    """
    every = list(nodes)
    told = [one for one in every if one["answers"] and "status" in one]
    peers = [peer for one in told for peer in one["status"]["peers"]]
    reached = {one["node"] for one in told} | {peer["name"] for peer in peers if not is_away(peer)}
    return sorted(({one["node"] for one in every} | {peer["name"] for peer in peers}) - reached)
