"""Shaping as this process knows it: the lanes, what they have now, and what holds their mail back.

Connections, the messages of a minute, and pauses are counted in all workers of the node. What a lane grew to
is known to each worker alone: it opens no connection when all workers together have as many as it may have.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from datetime import datetime, timedelta
from functools import partial

import structlog

from shadowrelay.core.delivery.hosts import Host
from shadowrelay.core.delivery.shaping import (
    Lane,
    LaneLimits,
    LanePace,
    Pattern,
    after_message,
    after_refusal,
    at_first,
    lane_of,
    named_by,
)
from shadowrelay.core.filtering import in_queue
from shadowrelay.core.identifiers import NextHop
from shadowrelay.core.values import dataclass, replace
from shadowrelay.shared_counts import FLAG, MinuteCounts, OwnCounts, SessionCounts
from shadowrelay.smtp.sending.session import DeliverySession

log = structlog.get_logger(__name__)

_KEPT = 10_000
"""Of so many hosts of next hops it is remembered which lane they have."""

TURN = 5.0
"""Seconds for which a session goes on with its next hop while another has none in a lane that is full."""

YIELDED = 2.0
"""Seconds for which a worker leaves the place that it gave up to the others, who look each second."""

TICK = 1.0
"""Seconds after which a worker that was told to pause looks whether an operator has ended that at another."""

FORGET = timedelta(minutes=10)
"""So long after its pause a lane without connections begins as at first."""


@dataclass(frozen=True, slots=True)
class LaneRoom:
    """What a next hop may have now: ``places`` more messages at a time, and ``connections`` in all, because
    of ``limit``. ``held_back``: why none of its mail is sent, if it is not for want of connections; ``until``
    then, if that is known.
    """

    places: int
    connections: int
    limit: str
    held_back: str = ""
    until: datetime | None = None


@dataclass(frozen=True, slots=True)
class _Pause:
    """The next look at it, and how often operators had ended pauses of that lane in the last minute."""

    timer: asyncio.TimerHandle
    ended: int


class NoRoom(Exception):
    """The lane takes no message, or no connection, now. Nothing was said about the message."""


class Shaping:
    """The lanes of this process. ``freed`` is called when one may take more. It is off without shapes."""

    def __init__(self, clock: Callable[[], datetime], freed: Callable[[], None]) -> None:
        self.shapes: tuple[LaneLimits, ...] = ()
        self.backed_off: Counter[str] = Counter()  # by the name of the pattern
        self._freed = freed
        self.patterns: tuple[Pattern, ...] = ()
        self._clock = clock
        self._counts: SessionCounts = OwnCounts()
        self._minutes = MinuteCounts(self._counts)
        self._paces: dict[str, LanePace] = {}
        self._lanes: dict[tuple[NextHop, str], Lane | None] = {}
        self._pauses: dict[str, _Pause] = {}  # of lanes that this worker was told to leave alone
        self.own: Counter[str] = Counter()  # sessions here, by lane
        self._wanted: set[str] = set()  # lanes that are full, and of which a next hop here has no session
        self._yielded: dict[str, float] = {}  # lanes of which a place was left to another worker, and when

    def share(self, counts: SessionCounts) -> None:
        """Count in these, with the other workers. To be called before anything is sent."""
        self._counts, self._minutes = counts, MinuteCounts(counts)

    def take(self, shapes: Sequence[LaneLimits], patterns: Sequence[Pattern]) -> None:
        """The settings changed. What is known of lanes stays; connections that are too many end by use."""
        self.shapes, self.patterns = tuple(shapes), tuple(patterns)
        self._lanes = {key: lane_of(*key, self.shapes) for key in self._lanes}

    def lane(self, next_hop: NextHop, host: str) -> Lane | None:
        """The lane of a host of a next hop ('': it is unknown); None: no shape is for it."""
        key = (next_hop, host)
        if key not in self._lanes:
            if len(self._lanes) >= _KEPT:
                self._lanes.clear()
            self._lanes[key] = lane_of(next_hop, host, self.shapes)
        return self._lanes[key]

    def room(
        self, next_hop: NextHop, hosts: Collection[Host], idle: Collection[DeliverySession]
    ) -> LaneRoom | None:
        """What there is room for at these hosts together; None: one of them has no limit. ``idle``: its
        sessions that wait for mail.
        """
        names = {host.name for host in hosts} or {""}
        found = [self.lane(next_hop, name) for name in names]
        lanes = {lane.key: lane for lane in found if lane}
        if None in found:
            return None
        rooms = [self._room(lane, sum(one.lane == key for one in idle)) for key, lane in lanes.items()]
        free = [one for one in rooms if not one.held_back]
        if not free:
            return min(rooms, key=lambda one: (one.until is None, one.until))
        return replace(
            free[0],
            places=sum(one.places for one in free),
            connections=sum(one.connections for one in free),
        )

    def paused(self, lane: Lane) -> bool:
        """Was any worker of the node told to send nothing for a while?"""
        return self._counts.of(_pause(lane.key)) >= FLAG

    def held_back(self, lane: Lane) -> bool:
        """Does it take no message now, in whatever connection?"""
        most = lane.shape.messages_per_minute
        return self.paused(lane) or (most is not None and self._counts.of(_minute(lane.key)) >= most)

    def _room(self, lane: Lane, idle: int) -> LaneRoom:
        shape, allowed = lane.shape, self._allowed(lane)
        held = LaneRoom(0, allowed, f"connections of shaping.{shape.name}")
        if self.paused(lane):
            if lane.key not in self._pauses:
                return replace(held, held_back=f"shaping.{shape.name} pauses: another worker was told to")
            pace = self._pace(lane)
            why = f"shaping.{shape.name} pauses since {pace.reply}"
            return replace(held, held_back=why, until=pace.paused_until)
        places = max(0, allowed - self._counts.of(_open(lane.key)) + idle)
        if (most := shape.messages_per_minute) is None:
            return replace(held, places=places)
        left = most - self._counts.of(_minute(lane.key))
        if left <= 0:
            return replace(held, held_back=f"shaping.{shape.name} sends {most} messages a minute")
        return replace(held, places=min(places, left))

    def _allowed(self, lane: Lane) -> int:
        return min(self._pace(lane).connections, lane.shape.connections)

    def _pace(self, lane: Lane) -> LanePace:
        return self._paces.get(lane.key) or at_first(lane.shape)

    def connect(self, lane: Lane, session: DeliverySession) -> bool:
        """Count a session that is about to be opened, until it ends; False: there is no place for it."""
        if not self._counts.take(_open(lane.key), self._allowed(lane)):
            return False
        self.own[lane.key] += 1
        session.since = asyncio.get_running_loop().time()
        session.lane, session.most = lane.key, lane.shape.messages_per_session or session.most
        session.ended = partial(self._ended, lane.key)
        return True

    def _ended(self, lane: str) -> None:
        self._counts.give(_open(lane))
        self.own[lane] -= 1
        if not self.own[lane]:
            del self.own[lane]
        self._freed()

    def want(self, lanes: set[str]) -> None:
        """Let the other workers know of which lanes a next hop has no session for want of a place."""
        for lane in lanes - self._wanted:
            self._counts.take(_want(lane), None, FLAG)
        for lane in self._wanted - lanes:
            self._counts.give(_want(lane), FLAG)
        self._wanted = lanes

    def yields(self, lane: str) -> bool:
        """Does another worker want a place of ours, or was it left one a moment ago?"""
        now = asyncio.get_running_loop().time()
        if lane in self._yielded and self._yielded[lane] > now:
            return True
        return bool(self.own[lane]) and self._counts.of(_want(lane)) // FLAG > (lane in self._wanted)

    def yielded(self, lane: str) -> None:
        self._yielded[lane] = asyncio.get_running_loop().time() + YIELDED

    def message(self, lane: Lane) -> float:
        """Count a message that is about to be sent. Returns until when it counts; 0.0: it has to wait."""
        if self.paused(lane):
            return 0.0
        most = lane.shape.messages_per_minute
        return math.inf if most is None else self._minutes.take(_minute(lane.key), most)

    def unsent(self, lane: Lane, until: float) -> None:
        """The message that counts until then was not sent after all."""
        self._minutes.give(_minute(lane.key), until)

    def taken(self, lane: Lane) -> None:
        """The server took a message."""
        before = self._pace(lane)
        after = after_message(before, lane.shape, self._clock())
        if after is not before:
            self._paces[lane.key] = after

    def heard(self, lane: Lane, reply: str) -> bool:
        """The server took something not. Returns whether a pattern names its reply: what follows from that
        is in force on return.
        """
        pattern = named_by(reply, lane.names, self.patterns)
        if pattern is None:
            return False
        now, before = self._clock(), self._pace(lane)
        # The host alone: it may have said it about a domain that is no business of another one's senders.
        said = f"{lane.names[-1]} said {reply}"
        after = after_refusal(before, pattern, said, self._counts.of(_open(lane.key)), now)
        if after is not before:
            self._paces[lane.key] = after
            self._pause(lane.key)
            self.backed_off[pattern.name] += 1
            log.warning(
                "shaping_backed_off",
                shaping=lane.shape.name,
                names=list(lane.names),
                pattern=pattern.name,
                reply=reply,
                connections=after.connections,
                pause=pattern.pause.total_seconds(),
            )
        return True

    def _pause(self, lane: str) -> None:
        """Let the other workers know of the pause as long as it lasts."""
        if before := self._pauses.get(lane):
            before.timer.cancel()
        else:
            self._counts.take(_pause(lane), None, FLAG)
        self._wait(lane, self._counts.of(_end(lane)) // FLAG)

    def _wait(self, lane: str, ended: int) -> None:
        """Look at the pause again when it is over, and before that for an operator who ends it."""
        pace, now = self._paces.get(lane), self._clock()  # a pause that is long over is forgotten
        left = (pace.paused_until - now).total_seconds() if pace and pace.paused_until else 0.0
        if left <= 0:
            self._goes_on(lane)
            return
        timer = asyncio.get_running_loop().call_later(min(left, TICK), self._look, lane)
        self._pauses[lane] = _Pause(timer, ended)

    def _look(self, lane: str) -> None:
        ended, before = self._counts.of(_end(lane)) // FLAG, self._pauses[lane].ended
        if ended > before:
            self._end(lane)
        else:
            self._wait(lane, ended)

    def _end(self, lane: str) -> None:
        """An operator wants the pause ended."""
        if pace := self._paces.get(lane):
            self._paces[lane] = replace(pace, paused_until=None)
        if lane in self._pauses:
            self._goes_on(lane)

    def _goes_on(self, lane: str) -> None:
        if pause := self._pauses.pop(lane, None):
            pause.timer.cancel()
        self._counts.give(_pause(lane), FLAG)
        self._freed()

    def clear_backoff(self, wanted: NextHop) -> None:
        """An operator wants mail for that next hop, or for all of that route, tried now: no worker pauses.

        A worker may have been told to pause by mail for another next hop of the lane, and know nothing of
        this one. The workers that do tell it.
        """
        for lane in {lane for (name, _), lane in self._lanes.items() if lane and in_queue(wanted, name)}:
            self._end(lane.key)
            if self.paused(lane):
                self._minutes.take(_end(lane.key), None, FLAG)

    def prune(self) -> None:
        """Forget how far lanes without connections grew; those that paused lately stay as they are."""
        self._yielded.clear()
        old = self._clock() - FORGET
        for key, pace in [*self._paces.items()]:
            paused = pace.paused_until is not None and pace.paused_until > old
            if not (paused or self._counts.of(_open(key))):
                del self._paces[key]

    def stop(self) -> None:
        """End the timers."""
        self._minutes.stop()
        for pause in self._pauses.values():
            pause.timer.cancel()


def _open(lane: str) -> str:
    return f"shaping open\0{lane}"


def _want(lane: str) -> str:
    return f"shaping wanted\0{lane}"


def _minute(lane: str) -> str:
    return f"shaping minute\0{lane}"


def _pause(lane: str) -> str:
    return f"shaping pause\0{lane}"


def _end(lane: str) -> str:
    return f"shaping end\0{lane}"
