"""What a node knows of the time, and an operator's word that its wall clock is right."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime, timedelta

import structlog

from shadowrelay.core.identifiers import ServerName
from shadowrelay.core.reckoning import Doubt
from shadowrelay.core.values import dataclass
from shadowrelay.node_clock import NodeClock

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class TimeShown:
    """``ahead``: how far the wall clock is ahead of reckoned time; ``stepped``: how far ahead of what is
    agreed. ``uncertain``: the length of an absence that nothing has confirmed. ``members``: how far the wall
    clocks of those that told theirs are ahead of this one.
    """

    reckoned: datetime
    wall: datetime
    ahead: timedelta
    stepped: timedelta
    doubts: tuple[Doubt, ...]
    uncertain: timedelta
    members: Mapping[ServerName, timedelta]


def time_shown(clock: NodeClock) -> TimeShown:
    found, reading = clock.look(), clock.read()
    pending = found.reckoning.pending
    return TimeShown(
        reckoned=found.reckoning.at(reading.boot),
        wall=reading.wall,
        ahead=found.reckoning.ahead_now(reading),
        stepped=found.step,
        doubts=tuple(sorted(found.doubts)),
        uncertain=pending[1] - pending[0] if pending else timedelta(0),
        members=clock.differences(reading),
    )


async def confirm_time(
    clock: NodeClock, save: Callable[[], Awaitable[None]], operator: str, reason: str
) -> TimeShown:
    """The wall clock is right now, whatever the members say. Durable when this returns. Again: no change."""
    clock.confirm()
    await save()
    shown = time_shown(clock)
    log.warning("time_confirmed", operator=operator, reason=reason, ahead=shown.ahead.total_seconds())
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
