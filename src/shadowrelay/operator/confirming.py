"""What a node knows of the time, and an operator's word that its wall clock is right."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta

import structlog

from shadowrelay.core.identifiers import ServerName
from shadowrelay.core.reckoning import Doubt
from shadowrelay.node_clock import NodeClock
from shadowrelay.shown.rendering import rendered
from shadowrelay.shown.status import TimeEntry

log = structlog.get_logger(__name__)


def time_shown(name: ServerName, clock: NodeClock) -> TimeEntry:
    found, reading = clock.look(), clock.read()
    pending = found.reckoning.pending
    return rendered(
        TimeEntry,
        reading,
        name=name,
        reckoned=found.reckoning.at(reading.boot),
        ahead=found.reckoning.ahead_now(reading),
        stepped=found.step,
        doubts=sorted(found.doubts),
        uncertain=pending[1] - pending[0] if pending else timedelta(0),
        members=[
            {"name": member, "ahead": round(by.total_seconds(), 3)}
            for member, by in sorted(clock.differences(reading).items())
        ],
    )


async def confirm_time(
    name: ServerName, clock: NodeClock, save: Callable[[], Awaitable[None]], operator: str, reason: str
) -> TimeEntry:
    """The wall clock is right now, whatever the members say. Durable when this returns. Again: no change."""
    clock.confirm()
    await save()
    shown = time_shown(name, clock)
    log.warning("time_confirmed", operator=operator, reason=reason, ahead=shown["ahead"])
    return shown


def doubt_told(clock: NodeClock) -> str:
    """Why nothing ends now, as a sentence for an operator; '' if the wall clock is trusted."""
    found = clock.look()
    why = {
        Doubt.STEPPED: f"it has stepped by {found.step.total_seconds():+.0f} s",
        Doubt.DIFFERS: "the other members have another time",
    }
    told = " and ".join(why[one] for one in sorted(found.doubts))
    return (
        f"the wall clock is in doubt: {told}. Nothing expires until it is right, or confirmed" if told else ""
    )
