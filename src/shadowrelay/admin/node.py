"""Defines what the admin API reads of the node, and of members and next hops as this process sees them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Protocol

from shadowrelay.admin.rates import Rates
from shadowrelay.core.delivery.hop_watch import HopWatch
from shadowrelay.core.identifiers import MessageId, NextHop, ServerName
from shadowrelay.core.members.pace import Amount, Round
from shadowrelay.core.ownership.handover import Remains
from shadowrelay.core.ownership.heartbeat import Watch
from shadowrelay.core.policy import Policy
from shadowrelay.core.pressure import Pressure
from shadowrelay.core.reception.shadow_servers import MemberPlace
from shadowrelay.core.suspensions import Suspension
from shadowrelay.core.tracking_row import timestamp
from shadowrelay.database.room import Room
from shadowrelay.database.transport import TransportDatabase
from shadowrelay.delivery.recent import RecentAttempt
from shadowrelay.delivery.tls_reports import TlsReporting
from shadowrelay.delivery.tls_results import TlsResults
from shadowrelay.measures import Measures
from shadowrelay.node_clock import NodeClock
from shadowrelay.operator.announcing import Announces
from shadowrelay.operator.cluster_reload import ClusterReload
from shadowrelay.operator.cluster_settings import ClusterSettings
from shadowrelay.operator.drain import DrainOrder
from shadowrelay.operator.jobs import Jobs
from shadowrelay.operator.node_acts import NodeActs
from shadowrelay.operator.queue_names import QueueNames
from shadowrelay.operator.redirect import Redirecting
from shadowrelay.operator.redundancy import RedundancySwitch
from shadowrelay.operator.resubmit import Resubmission
from shadowrelay.operator.suspending import Suspending
from shadowrelay.operator.tracing import Event
from shadowrelay.operator.view import View
from shadowrelay.reception.filter_watch import FilterWatch
from shadowrelay.shown.records import RetiredAnswer
from shadowrelay.smtp.receiving.rates import HeldBack
from shadowrelay.tracking.events import TrackingEvents

_A_WHILE = timedelta(seconds=2)
_AWAITED = {
    "dns": "the DNS",
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
    """What this process knows of its contact with one member; what is durable is in the database.

    ``since``: of an unreachable member, when the first attempt failed. ``step`` and ``error``: what failed
    last. ``losing_in``: failures until its copies of our messages no longer count. ``promoting_in``: time
    until the copies held for it are promoted; zero if that is due. ``seen_by``: a member that has contact
    with it.
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
class HostStatus:
    """One host of a next hop. ``group``: 0 for the hosts of its own route, then those of its alternatives.

    ``sessions`` send mail of this next hop. After ``failures`` in a row, the last with ``error``, it is not
    tried before ``rests_until`` (None: it does not rest).
    """

    host: str
    route: NextHop
    group: int = 0
    preference: int = 0
    weight: int = 1
    sessions: int = 0
    failures: int = 0
    error: str = ""
    rests_until: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HopStatus:
    """What this process knows of a next hop, in memory.

    ``sessions`` send its mail; at most ``places`` may now, because of ``limit``. After ``failures`` in a row,
    the first at ``failing_since``, the last with ``error``, no session tries it before ``rests_until``, then
    one. ``awaits``: the step that a session has waited for longest, since ``awaits_since``. ``hosts``: those
    of the settings, or those that the DNS had at the last attempt. ``free_since``: when what kept its mail
    last had ended (the node was not running, the queue was suspended, the hop rested); None: nothing did.
    ``rate``: messages that it took in the last minute. ``last_reply``: of the last attempt at a message.
    ``held_back``: why shaping sends none of its mail, until then if that is known.
    """

    sessions: int
    places: int
    limit: str
    failures: int = 0
    error: str = ""
    failing_since: datetime | None = None
    rests_until: datetime | None = None
    held_back: str = ""
    held_back_until: datetime | None = None
    awaits: str = ""
    awaits_since: datetime | None = None
    hosts: tuple[HostStatus, ...] = ()
    suspension: Suspension | None = None  # if it is in force
    free_since: datetime | None = None
    rate: int = 0
    last_reply: str = ""
    last_reply_at: datetime | None = None

    def awaited(self, now: datetime) -> str:
        """What a session waits for, as a sentence, if it takes a while; else empty."""
        if self.awaits_since is None or now - self.awaits_since < _A_WHILE:
            return ""
        what = _AWAITED.get(self.awaits, f"its reply to {self.awaits.upper()}")
        return f"has waited for {what} since {timestamp(self.awaits_since)}"

    def resting(self, now: datetime) -> bool:
        return self.rests_until is not None and now < self.rests_until

    def tried_at(self, due: datetime | None, now: datetime) -> datetime | None:
        """When mail that is due then (None: now) will be tried; None: no time is known."""
        if self.suspension is not None:
            return self.suspension.until and max(self.suspension.until, due or now)
        kept = [self.rests_until if self.resting(now) else None, self.held_back_until]
        return max([due or now, *filter(None, kept)]) if any(kept) else due

    def keeps(self, now: datetime) -> str:
        """Why due mail has to wait; empty if it need not."""
        if self.suspension is not None:
            return f"{self.suspension.operator} suspended the queue: {self.suspension.reason}"
        failed = f"it failed {self.failures} time{'' if self.failures == 1 else 's'}, at last {self.error}"
        if self.rests_until is not None and self.resting(now):
            return f"the next hop rests until {timestamp(self.rests_until)}: {failed}"
        if self.held_back:
            until = f" until {timestamp(self.held_back_until)}" if self.held_back_until else ""
            return f"held back{until}: {self.held_back}"
        if self.sessions < self.places:
            return ""
        awaited = f"; one {self.awaited(now)}" if self.awaited(now) else ""
        if self.failures:
            return f"one session tries the next hop first: {failed}{awaited}"
        return f"no session is free: {self.sessions} of {self.places} in use ({self.limit}){awaited}"


@dataclass(frozen=True, slots=True)
class RefusalView:
    """A member's reply when it refused the copy of an exposed message, though it takes others."""

    member: ServerName
    reply: str
    at: datetime


@dataclass(frozen=True, slots=True)
class LateStatus:
    """Delayed acknowledgement: the longest wait of any connector (zero: no 250 waits), how many sessions wait
    now, and how the waits since the start ended, by outcome.
    """

    longest: timedelta
    waiting: int
    counts: Mapping[str, int]


class DrainState(Protocol):
    """Whether the node is being drained. ``ordered``: who had that begin, or end."""

    @property
    def active(self) -> bool: ...

    @property
    def ordered(self) -> DrainOrder: ...


class ScrubState(Protocol):
    """The scrub of the node. ``now``: the present round; ``last``: the last complete one since the start."""

    @property
    def now(self) -> Round: ...

    @property
    def last(self) -> Round | None: ...

    @property
    def read(self) -> Amount:
        """The amount read since the start."""
        ...

    @property
    def interval(self) -> timedelta:
        """The time in which a round reads everything; zero: rounds run only on request."""
        ...

    def begin_at_once(self, operator: str = "") -> int:
        """Begin a round without rests, if none is under way. Returns the number of the round."""
        ...

    def go_on_slowly(self) -> None:
        """Let the round go on at its usual pace."""
        ...


class RunningNode(Protocol):
    """The running node. Plain methods do not wait; reads of the database go through ``database``."""

    @property
    def name(self) -> ServerName: ...

    @property
    def site(self) -> str: ...

    @property
    def host(self) -> str: ...

    @property
    def policy(self) -> Policy: ...

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
    def resubmission(self) -> Resubmission: ...

    @property
    def redundancy(self) -> RedundancySwitch: ...

    @property
    def cluster_settings(self) -> ClusterSettings: ...

    @property
    def services(self) -> NodeServices: ...

    @property
    def clock(self) -> NodeClock: ...

    async def save_time(self) -> None:
        """Note durably that the node runs, and what time it is."""
        ...

    def sections(self) -> Mapping[str, str]:
        """A digest of each section of the settings that members should have alike."""
        ...

    def redundancy_on(self) -> bool:
        """Is shadow redundancy on, by the settings file or a later switch?"""
        ...

    @property
    def redirecting(self) -> Redirecting: ...

    @property
    def opening(self) -> bool:
        """Whether the node is opening its database: then nothing may be changed yet."""
        ...

    def member_statuses(self) -> Sequence[MemberStatus]:
        """The members in the settings, without this node."""
        ...

    def hop(self, name: NextHop) -> HopStatus:
        """The status of a next hop, even if nothing was sent to it yet."""
        ...

    def recent(self, name: NextHop) -> Sequence[RecentAttempt]:
        """The last attempts at a next hop since the start, the last one first."""
        ...

    def hop_watch(self, hop: ServerName) -> HopWatch:
        """What this process knows of reaching a hop that tracks messages."""
        ...

    def refusals(self, message_id: MessageId) -> Sequence[RefusalView]:
        """Each member's last refusal to hold a copy; for exposed messages only."""
        ...

    def refused_copies(self) -> int:
        """How many exposed messages have a copy that a member refused."""
        ...

    def login_counts(self) -> Mapping[str, int]:
        """Logins since the start, by result."""
        ...

    def filters(self) -> Sequence[FilterWatch]:
        """What is known of the filters of the settings."""
        ...

    def held_back(self) -> Sequence[HeldBack]:
        """Clients that had too much in a minute, those of last."""
        ...

    def held_back_counts(self) -> Mapping[str, int]:
        """What was put off since the start because a client had too much in a minute, by limit."""
        ...

    def back_offs(self) -> Mapping[str, int]:
        """How often a next hop asked for less since the start, by the name of the pattern."""
        ...

    @property
    def tls_reports(self) -> TlsReporting:
        """Who tells what became of TLS to a collector of reports."""
        ...

    @property
    def tls_results(self) -> TlsResults:
        """What became of TLS with the hosts of domains."""
        ...

    def pressures(self) -> Sequence[Pressure]:
        """How scarce each resource is; none while back pressure is off."""
        ...

    def extra_hops(self) -> Mapping[str, int]:
        """Messages for this node's machine since the start, by what became of them (``ExtraHop.counts``)."""
        ...

    def measures(self) -> Measures:
        """The histograms since the start."""
        ...

    def late(self) -> LateStatus:
        """How messages of which no member has a copy are acknowledged."""
        ...

    def waits_for(self, message_id: MessageId) -> Collection[ServerName]:
        """Members that have yet to answer whether they have a good copy of a damaged message."""
        ...

    async def damage_in_log(self, message_id: MessageId) -> tuple[str, str] | None:
        """When this node's tracking log last found a message damaged, and what was damaged."""
        ...

    async def trace(self, message_id: MessageId, older: str, most: int) -> tuple[list[Event], str]:
        """The events of a message in this node's tracking log, and where older files begin; '' if there are
        none. ``older``: go on there. No file is begun once ``most`` are found.
        """
        ...

    def ready(self) -> tuple[bool, str]:
        """Whether this node takes mail now; if not, a sentence says why."""
        ...

    def warning(self) -> str:
        """What an operator should mend although the node takes mail; '' if there is nothing."""
        ...

    def live(self) -> bool:
        """False if only a restart can help."""
        ...

    async def give_up(self, message_id: MessageId, operator: str) -> bool:
        """Fail a message that is set aside, and report it to its sender. False if it is not set aside, or its
        rows are damaged, so that the sender is unknown.
        """
        ...

    async def begin_drain(self, operator: str) -> Remains:
        """Stop taking mail and copies, and empty the queue in the background. Idempotent."""
        ...

    async def end_drain(self, operator: str) -> Remains:
        """Take mail and copies again."""
        ...

    async def remains(self) -> Remains:
        """What is left on this node, and what was handed over since the drain began."""
        ...

    async def retire(self, name: ServerName, operator: str) -> RetiredAnswer:
        """Retire a member, durably, here and on all members: nobody calls it any more."""
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
    """A member's status from its watch. ``clock`` is the present moment on the clock of the watch."""

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


class NodeServices(Protocol):
    """What an operator can see and do from any node."""

    @property
    def view(self) -> View: ...

    @property
    def events(self) -> TrackingEvents: ...

    @property
    def rates(self) -> Rates: ...

    @property
    def reloading(self) -> ClusterReload: ...

    @property
    def node_acts(self) -> NodeActs: ...

    @property
    def queue_names(self) -> QueueNames: ...

    @property
    def jobs(self) -> Jobs: ...

    @property
    def suspensions(self) -> Suspending: ...

    @property
    def announcing(self) -> Announces: ...

    def certificates(self) -> Mapping[str, datetime]:
        """Until when each certificate of this node that is in use is valid, by its setting."""
        ...
