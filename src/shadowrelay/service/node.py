"""Builds one running node from its parts, as the admin API sees it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from shadowrelay.admin.node import HopStatus, LateStatus, MemberStatus, RefusalView, member_status
from shadowrelay.core.delivery.hop_watch import HopWatch
from shadowrelay.core.delivery.hosts import Host
from shadowrelay.core.identifiers import MessageId, NextHop, RequestId, ServerName
from shadowrelay.core.jobs import Job
from shadowrelay.core.messages import Status
from shadowrelay.core.operating import Act, Scope, Told
from shadowrelay.core.ownership.handover import Remains
from shadowrelay.core.reception.shadow_servers import MemberPlace
from shadowrelay.core.safety_net.resubmission import Contacts
from shadowrelay.core.workers import node_of
from shadowrelay.database.examining import Examiner
from shadowrelay.database.opening import CONTENT
from shadowrelay.database.room import Room
from shadowrelay.database.transport import TransportDatabase
from shadowrelay.delivery.detour import Detour
from shadowrelay.delivery.hop_shadows import HopShadows
from shadowrelay.delivery.hop_talk import HopConversations
from shadowrelay.delivery.queue import Queue
from shadowrelay.delivery.recent import RecentAttempt
from shadowrelay.delivery.reports import Reporter
from shadowrelay.ids import mint
from shadowrelay.measures import Measures
from shadowrelay.members.boundary import Boundary
from shadowrelay.members.giving import TAKES, Giving, takes, unwilling
from shadowrelay.members.in_force import InForce
from shadowrelay.members.indexes import Indexes
from shadowrelay.members.inquiry import Inquiry
from shadowrelay.members.link import Link
from shadowrelay.members.mend import Giver, Mend
from shadowrelay.members.pool import Members, seconds
from shadowrelay.members.reconcile import Reconcile
from shadowrelay.members.repair import Repair
from shadowrelay.members.replication import Replication
from shadowrelay.members.scrub import Scrub
from shadowrelay.node_clock import NodeClock
from shadowrelay.operator.acts import Action, Acts
from shadowrelay.operator.bounce import give_up
from shadowrelay.operator.confirming import doubt_told
from shadowrelay.operator.counting import Counting, RouteServer
from shadowrelay.operator.drain import Drain, Draining
from shadowrelay.operator.redirect import Redirecting
from shadowrelay.operator.redundancy import RedundancySwitch
from shadowrelay.operator.resubmit import Resubmission
from shadowrelay.operator.retire import Retirement
from shadowrelay.operator.tracing import Event
from shadowrelay.reception.acknowledgements import Acknowledgements
from shadowrelay.reception.logins import NONE, UserLogins
from shadowrelay.safety_net.resubmitting import Resubmitting
from shadowrelay.service import resubmit, retiring
from shadowrelay.service.adapters import addresses, hosts, resolver
from shadowrelay.service.current import Current, recipients_of
from shadowrelay.service.hand import Hand
from shadowrelay.service.hops import hop_status
from shadowrelay.service.logged import TrackingLookup
from shadowrelay.service.membership import Membership, place_of
from shadowrelay.service.records import SharedRecords
from shadowrelay.settings import Settings
from shadowrelay.settings.routing import standing
from shadowrelay.smtp.receiving.connector import Connector
from shadowrelay.smtp.sending.remembers import remembers_since

if TYPE_CHECKING:
    from shadowrelay.service.reload import Reloading
    from shadowrelay.smtp.receiving.shared_counts import SessionCounts


def _clock_of(database: TransportDatabase, given: Callable[[], datetime] | None) -> NodeClock:
    if isinstance(given, NodeClock):
        return given
    return NodeClock.following(given) if given else NodeClock(database.opened.reckoning)


class Node:
    """One running node, as the admin API sees it."""

    opening = False
    stopping = False
    reloading: Reloading | None = None  # once the node serves
    counts: SessionCounts | None = None  # of the sessions of all workers, if it is one of several

    def __init__(
        self, settings: Settings, database: TransportDatabase, clock: Callable[[], datetime] | None = None
    ) -> None:
        self.settings, self.database = settings, database
        self.clock = clock = _clock_of(database, clock)
        database.ledger.ahead = clock.ahead
        self.started_at = clock()
        self.name, self.site, self.host = ServerName(settings.name), settings.site, settings.host
        self.current = Current(settings, recipients_of(settings))
        self.policy = self.current.policy
        self.in_force = InForce(settings.policy())
        places = tuple(map(place_of, settings.members))
        self.boundary = Boundary(MemberPlace(self.name, self.site, self.host), places, self.policy)
        boundary, policy = self.boundary, self.policy
        self.members = Members(database, boundary, addresses(settings), policy, clock)
        # Where nobody else may have its messages, nobody can have delivered them.
        kept = self.policy.shadow_message_auto_discard_interval
        returned = places and clock.away_longer(kept) is not False
        long = lambda: clock.away_longer(kept)  # noqa: E731
        self.inquiry = Inquiry(database.opened.at, long) if returned else Inquiry()
        self.examiner = Examiner(database, clock)
        self._log = TrackingLookup(database, settings.tracking.directory)
        self.giver = Giver(self.members, database, self.examiner, clock)
        self.mend = Mend(
            self.members, database, boundary, self.examiner, self.inquiry, self.settled_in_log, policy, clock
        )
        self.indexes = Indexes(database)
        self.scrub = Scrub(
            self.examiner, self.inquiry, boundary.reachable, settings.scrub_interval, clock, self.indexes
        )
        self.routes, self.ways, self.book = self.current.routes, self.current.ways, self.current.book
        self.reporter = Reporter(
            node_of(self.name),
            self.routes,
            policy,
            clock,
            self.current.journals,
            self.current.book,
            lambda hop, at: self.queue.suspended.not_aged(hop, at),  # noqa: PLW0108 – made below
            clock.wall,
        )
        self.resolver = resolver(settings)
        self.hosts = hosts(settings, self.resolver, clock)
        self.hop_conversations = self.hosts.talk = HopConversations(
            database, clock, enabled=lambda: self.in_force.redundancy
        )
        self.queue = Queue(
            database,
            boundary,
            self.hosts,
            self.routes,
            self.reporter,
            policy,
            clock,
            self.book,
            self.ways,
            clock.endings,
        )
        self.hop_shadows = HopShadows(
            database,
            self.hop_conversations,
            self.hosts,
            self.examiner,
            self.routes,
            self.has_room,
            lambda: self.queue.wake.set(),  # noqa: PLW0108 – tests give a node another queue
            policy,
            clock,
        )
        self.hosts.avoided, self.hosts.took = self.hop_shadows.avoided, self.hop_shadows.took
        self.repair = Repair(
            self.members, database, boundary, self.examiner, self.in_force, clock, self._speak_to_all
        )
        self.links = {place.name: self.new_link(place.name) for place in places}
        self.draining = Draining(
            Drain(database, boundary, self.in_force, clock, self._speak_to_all),
            settings.drain_timeout.total_seconds(),
        )
        giving = Giving(
            members=self.members,
            database=database,
            examiner=self.examiner,
            unwilling=self._unwilling,
            enabled=lambda: self.in_force.redundancy,
            changed=self._speak_to_all,
            clock=clock,
        )
        self.redirecting = Redirecting(giving, boundary, draining=lambda: self.draining.active)
        self.detour = self.queue.detour = Detour(standing(settings), giving, boundary)
        self.in_flight: set[MessageId] = set()
        self.acknowledgements = Acknowledgements(
            database, policy, clock, self.hop_failed, self.suspended, self.current.promotion
        )
        self.queue.failed = self.acknowledgements.release
        self.room = Room(settings.data_dir, settings.minimum_free_disk)
        self.connectors: list[Connector] = []
        self.replication = Replication(
            self.members,
            database,
            self.contacts,
            self.in_force,
            clock.endings,
            self.repair.wake.set,
            partial(retiring.follow, self),
        )
        self.resubmitting = Resubmitting(
            self.members,
            database,
            self.replication,
            self.contacts,
            boundary.others,
            self.examiner,
            self.has_room,
            self.in_force,
            clock.endings,
            self.indexes,
        )
        self.records = SharedRecords(self.replication, self.contacts, clock, self._record_taken)
        self.redundancy = RedundancySwitch(
            name=self.name,
            database=database,
            in_force=self.in_force,
            having=self.records.having,
            share=self.replication.share,
            mint=mint,
            clock=clock,
        )
        self.counting = counting = Counting(
            database=database,
            policy=policy,
            clock=clock,
            endings=clock.endings,
            mint=mint,
            servers=resubmit.listed(self.routes, self.hosts),
            contacts=self.contacts,
            away=lambda: resubmit.away(self.member_statuses()),
            ask=self.members.operate,
            remembers=self._remembers,
        )
        self.resubmission = Resubmission(
            counting=counting, having=self.records.having, wake=self.replication.wake.set
        )
        self.membership = Membership(self)
        self.hand = Hand(self)
        self.acts = Acts(
            settings.peer.peer_operate if settings.peer else Scope.NONE,
            {
                **self.records.actions(),
                TAKES: Action(Scope.READ, self._say_whether_it_takes, quiet=True),
                **counting.actions(),
                **self.hand.actions(),
            },
            seconds,
        )

    async def save_time(self) -> None:
        """Note durably that the node runs, and what time it is."""
        await self.database.touch(self.clock(), self.clock.to_save())

    def new_link(self, name: ServerName) -> Link:
        return Link(
            name=name,
            members=self.members,
            database=self.database,
            boundary=self.boundary,
            inquiry=self.inquiry,
            policy=self.policy,
            clock=self.clock,
            changed=self.queue.wake.set,
        )

    def hop_failed(self, name: NextHop) -> bool:
        """Has that next hop failed, and taken no mail since?"""
        hop = self.queue.hops.get(name)
        return hop is not None and hop.failures > 0

    def suspended(self, name: NextHop) -> bool:
        """Has an operator suspended the queue of that next hop?"""
        return self.queue.suspended(name)

    def contacts(self) -> Contacts:
        """The other members, as far as it matters for whom this node answers."""
        return self.boundary.contacts(seconds())

    async def _remembers(self, server: RouteServer, timeout: float) -> datetime | None:
        host = Host(server.route, server.host, server.port)
        return await remembers_since(self.hosts.server(host), timeout, self.resolver.addresses)

    def has_room(self) -> bool:
        """May this node make messages of its own accord now?"""
        return not (self.opening or self.stopping or self.draining.active) and self.room.admits()

    async def _unwilling(self, member: ServerName, patience: float) -> str:
        return await unwilling(self.members.operate, member, RequestId(mint(self.clock())), patience)

    async def _say_whether_it_takes(self, member: ServerName, act: Act) -> Told:
        del member, act
        return takes(self.ready())

    def member_statuses(self) -> Sequence[MemberStatus]:
        now, clock = self.clock(), seconds()
        return [
            member_status(
                place,
                self.membership.called_at(place.name),
                self.boundary.watches[place.name],
                self.policy,
                clock=clock,
                now=now,
                step=self.links[place.name].step,
                seen_by=self.links[place.name].opinion.seen_by,
            )
            for place in self.boundary.places
        ]

    def hop(self, name: NextHop) -> HopStatus:
        at = asyncio.get_running_loop().time()
        return hop_status(
            self.queue.hops,
            name,
            self.policy,
            at,
            self.clock(),
            self.hosts,
            started_at=self.started_at,
            suspended=self.queue.suspended,
        )

    def recent(self, name: NextHop) -> Sequence[RecentAttempt]:
        return self.queue.recent.of(name)

    def hop_watch(self, hop: ServerName) -> HopWatch:
        return self.hop_conversations.watch(hop)

    def refusals(self, message_id: MessageId) -> Sequence[RefusalView]:
        return [
            RefusalView(one.attempt.name, one.attempt.reply, one.at)
            for one in self.repair.refusals.of(message_id)
        ]

    def waits_for(self, message_id: MessageId) -> Collection[ServerName]:
        return self.mend.waits_for(message_id)

    def login_counts(self) -> Mapping[str, int]:
        counts = Counter(NONE)
        for one in self.connectors:
            counts.update(one.options.logins.counts if isinstance(one.options.logins, UserLogins) else {})
        return counts

    def redundancy_on(self) -> bool:
        return self.in_force.redundancy

    def extra_hops(self) -> Mapping[str, int]:
        return self.detour.counts

    def measures(self) -> Measures:
        return Measures(
            acknowledgement=self.acknowledgements.at_once,
            shadow_commit=self.members.copied,
            delivery=self.queue.attempts,
            scrub=self.scrub.looks,
            resubmit=self.resubmitting.batches,
            spans=self.hand.traces.counts if self.hand.traces else {},
        )

    def late(self) -> LateStatus:
        delays = [one.max_acknowledgement_delay for one in self.settings.receive.values()]
        longest = max(delays) if self.in_force.redundancy else timedelta(0)
        return LateStatus(longest, self.acknowledgements.waiting, self.acknowledgements.counts)

    def refused_copies(self) -> int:
        return self.repair.refusals.messages

    def ready(self) -> tuple[bool, str]:
        if self.database.failed.is_set():
            return False, self.database.failure
        if self.stopping:
            return False, "the node is stopping"
        if self.draining.active:
            return False, "the node is being drained"
        if self.opening:
            return False, "the node is opening its database"
        if not self.connectors:
            return False, "the node is starting"
        if not self.room.admits():
            return False, self.room.shortage
        return True, "the node takes mail"

    def warning(self) -> str:
        recipients = self.current.recipients
        wrong = recipients.wrong if recipients else ""
        told = f"recipients_file is not read again, the one from before stands: {wrong}" if wrong else ""
        doubt, reloading = doubt_told(self.clock), self.reloading.warning if self.reloading else ""
        return "; ".join(filter(None, [doubt, told, reloading]))

    def live(self) -> bool:
        return not self.database.failed.is_set()

    async def give_up(self, message_id: MessageId) -> bool:
        return await give_up(self.database, self.reporter, message_id, self.clock) is not None

    @property
    def spool(self) -> Path:
        """Where the contents of messages are that are too large for the database."""
        return self.settings.data_dir / CONTENT

    def _record_taken(self, kind: str) -> None:
        if kind == Job.kind:
            self.hand.carrying.wake.set()

    async def retire(self, name: ServerName, operator: str) -> Retirement:
        return await retiring.ask(self, name, operator)

    def retired(self, name: ServerName) -> None:
        self.membership.retired(name)

    def nudge(self, name: ServerName) -> None:
        """Wake the link to a member: there is something to say to it."""
        if link := self.links.get(name):
            link.nudge()

    def reconcile(self) -> Reconcile:
        """The stage that decides messages once their members have answered."""
        return Reconcile(
            self.database,
            self.boundary,
            self.inquiry,
            self.examiner,
            self.queue.wake.set,
            self.nudge,
            self.policy,
            self.clock,
        )

    def start_links(self, group: asyncio.TaskGroup) -> list[asyncio.Task[None]]:
        """Start a link to every member that was not retired."""
        return self.membership.start(group)

    async def settled_in_log(self, message_id: MessageId) -> Mapping[int, Status]:
        return await self._log.settled(message_id)

    async def damage_in_log(self, message_id: MessageId) -> tuple[str, str] | None:
        return await self._log.damage(message_id)

    async def trace(self, message_id: MessageId, older: str, most: int) -> tuple[list[Event], str]:
        return await self._log.trace(message_id, older, most)

    async def begin_drain(self) -> Remains:
        return await self.draining.begin(self.connectors)

    async def end_drain(self) -> Remains:
        return await self.draining.end(self.connectors)

    async def remains(self) -> Remains:
        return await self.draining.remains()

    def _speak_to_all(self) -> None:
        for link in self.links.values():
            link.nudge()

    def met(self, name: ServerName) -> None:
        """A member called us: talk to it now, and look at the queue."""
        self.queue.wake.set()
        if name in self.links:
            self.links[name].wake.set()
