"""What the admin API needs to know of the node, and of members and next hops as this process sees them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Protocol

from shadowrelay.core.identifiers import MessageId, NextHop, ServerName
from shadowrelay.core.members.pace import Amount, Round
from shadowrelay.core.ownership.handover import Remains
from shadowrelay.core.ownership.heartbeat import Watch
from shadowrelay.core.policy import Policy
from shadowrelay.core.reception.shadow_servers import MemberPlace
from shadowrelay.core.tracking_row import timestamp
from shadowrelay.database.room import Room
from shadowrelay.database.transport import TransportDatabase

_A_WHILE = timedelta(seconds=2)
_AWAITED = {
    "connect": "the connection",
    "greeting": "the greeting of the next hop",
    "tls": "the TLS handshake",
    "content": "the next hop to read the content",
    "final dot": "the reply to the content",
}


class MemberState(StrEnum):
    """Whether a member can be reached. NOT_CONFIGURED: the database knows it, the settings do not."""

    REACHABLE = "reachable"
    UNREACHABLE = "unreachable"
    UNTRIED = "untried"
    NOT_CONFIGURED = "not_configured"


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberStatus:
    """What this process knows of reaching one member. What is durable of it, the database tells.

    ``since``: of an unreachable member, when our first attempt of this failure was; of a reachable one, the
    first contact if the node keeps it. ``step`` and ``error`` say what failed last. ``losing_in``: failures
    after which its copies of our messages no longer count. ``promoting_in``: time after which what is held
    for it is promoted, zero when it is due. ``seen_by``: a member that said it has contact with it.
    """

    name: ServerName
    site: str
    host: str
    address: str
    state: MemberState
    since: datetime | None = None
    last_contact: datetime | None = None
    step: str = ""
    error: str = ""
    failures: int = 0
    losing_in: int = 0
    promoting_in: timedelta | None = None
    seen_by: ServerName | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HopStatus:
    """What this process knows of a next hop, in memory. ``awaits`` is the step that a session waits for
    longest, since ``awaits_since``.

    ``sessions`` send its mail, of at most ``places`` at this moment, which ``limit`` is the reason for.
    ``failures`` in a row, and the last ``error``: nobody tries it before ``rests_until``, then one session.
    """

    sessions: int
    places: int
    limit: str
    failures: int = 0
    error: str = ""
    rests_until: datetime | None = None
    awaits: str = ""
    awaits_since: datetime | None = None

    def awaited(self, now: datetime) -> str:
        """What is awaited, as a sentence, once that takes a while; else empty."""
        if self.awaits_since is None or now - self.awaits_since < _A_WHILE:
            return ""
        what = _AWAITED.get(self.awaits, f"its reply to {self.awaits.upper()}")
        return f"waits for {what} since {timestamp(self.awaits_since)}"

    def resting(self, now: datetime) -> bool:
        return self.rests_until is not None and now < self.rests_until

    def tried_at(self, due: datetime | None, now: datetime) -> datetime | None:
        """When mail is tried that is due then, or at once."""
        return max(self.rests_until, due or now) if self.rests_until and self.resting(now) else due

    def keeps(self, now: datetime) -> str:
        """Why mail that is due has to wait; empty if nothing keeps it."""
        failed = f"it failed {self.failures} time{'' if self.failures == 1 else 's'}, at last {self.error}"
        if self.rests_until is not None and self.resting(now):
            return f"the next hop rests until {timestamp(self.rests_until)}: {failed}"
        if self.sessions < self.places:
            return ""
        awaited = f"; one {self.awaited(now)}" if self.awaited(now) else ""
        if self.failures:
            return f"one session tries the next hop first: {failed}{awaited}"
        return f"no session is free: {self.sessions} of {self.places} in use ({self.limit}){awaited}"


@dataclass(frozen=True, slots=True)
class RefusalView:
    """What a member said of the copy of an exposed message that it refused, though it takes others."""

    member: ServerName
    reply: str
    at: datetime


class DrainState(Protocol):
    """Is the node being drained?"""

    @property
    def active(self) -> bool: ...


class ScrubState(Protocol):
    """The scrub of the node. ``now`` is the present round, ``last`` the last whole one since the start."""

    @property
    def now(self) -> Round: ...

    @property
    def last(self) -> Round | None: ...

    @property
    def read(self) -> Amount:
        """All that was read since the start."""
        ...

    @property
    def interval(self) -> timedelta:
        """Within it a round goes through everything; nothing: only when it is asked for."""
        ...

    def begin_at_once(self) -> int:
        """Begin a round that does not rest, if none is under way. Returns its number."""
        ...

    def go_on_slowly(self) -> None:
        """The round goes on at its usual pace."""
        ...


class RunningNode(Protocol):
    """The running node. Nothing here waits; what needs the database goes through ``database``."""

    @property
    def name(self) -> ServerName: ...

    @property
    def site(self) -> str: ...

    @property
    def host(self) -> str: ...

    @property
    def database(self) -> TransportDatabase: ...

    @property
    def room(self) -> Room: ...

    @property
    def started_at(self) -> datetime: ...

    @property
    def draining(self) -> DrainState: ...

    @property
    def scrub(self) -> ScrubState: ...

    @property
    def opening(self) -> bool:
        """Is its database being opened? Then nothing may be changed yet."""
        ...

    def member_statuses(self) -> Sequence[MemberStatus]:
        """Every member of the settings but this node."""
        ...

    def hop(self, name: NextHop) -> HopStatus:
        """A next hop, whether anything was sent to it so far or not."""
        ...

    def refusals(self, message_id: MessageId) -> Sequence[RefusalView]:
        """The last refusal of its copy by each member; of exposed messages only."""
        ...

    def refused_copies(self) -> int:
        """How many exposed messages members refused copies of."""
        ...

    def login_counts(self) -> Mapping[str, int]:
        """Logins since the start, by what became of them."""
        ...

    def waits_for(self, message_id: MessageId) -> Collection[ServerName]:
        """Members that have not answered yet whether they have a good copy of a damaged message."""
        ...

    async def damage_in_log(self, message_id: MessageId) -> tuple[str, str] | None:
        """When a message was found damaged at last, and what was, by the tracking log of this node."""
        ...

    def ready(self) -> tuple[bool, str]:
        """Does this node take mail now? If not, a sentence says why."""
        ...

    def live(self) -> bool:
        """False when only a restart can help."""
        ...

    async def give_up(self, message_id: MessageId) -> bool:
        """Fail a message that is set aside, and tell its sender. False if it is not, or nobody knows whom to
        tell: its rows cannot be believed.
        """
        ...

    async def begin_drain(self) -> Remains:
        """Take no mail and no copies any more, and empty the queue in the background. Idempotent."""
        ...

    async def end_drain(self) -> Remains:
        """Take mail and copies again."""
        ...

    async def remains(self) -> Remains:
        """What is left on this node, and what was handed over since the drain began."""
        ...

    def retired(self, name: ServerName) -> None:
        """That member was retired, durably: stop calling it, and look at the queue and at exposure again."""
        ...


def member_status(
    place: MemberPlace,
    address: str,
    watch: Watch,
    policy: Policy,
    *,
    clock: float,
    now: datetime,
    step: str = "",
    seen_by: ServerName | None = None,
) -> MemberStatus:
    """A member's status out of its watch. ``clock`` is the present moment on the clock of the watch."""

    def at(moment: float | None) -> datetime | None:
        return None if moment is None else now - timedelta(seconds=max(0.0, clock - moment))

    if watch.reachable:
        state = MemberState.UNTRIED if watch.contact_at is None else MemberState.REACHABLE
        promoting_in = None
    else:
        state = MemberState.UNREACHABLE
        silence = timedelta(seconds=clock - (watch.failing_since or clock))
        promoting_in = max(timedelta(0), policy.shadow_resubmit_time_span - silence)
    return MemberStatus(
        name=place.name,
        site=place.site,
        host=place.host,
        address=address,
        state=state,
        since=at(watch.failing_since),
        last_contact=at(watch.contact_at),
        step=step if watch.failures else "",
        error=watch.error,
        failures=watch.failures,
        losing_in=max(0, policy.holder_loss_heartbeats - watch.failures),
        promoting_in=promoting_in,
        seen_by=seen_by,
    )
