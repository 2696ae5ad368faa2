"""Builds one running node from its parts, as the admin API sees it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any, Literal

from shadowrelay.admin.access import Access
from shadowrelay.admin.node import HopStatus, HostStatus, LateStatus, MemberStatus, RefusalView, member_status
from shadowrelay.admin.node_view import NodeView
from shadowrelay.admin.rates import Rates
from shadowrelay.core.delivery.hop_watch import HopWatch
from shadowrelay.core.delivery.hosts import Host, HostGroup
from shadowrelay.core.delivery.mta_sts import host_of
from shadowrelay.core.delivery.tls_policy import TlsResult
from shadowrelay.core.identifiers import Incarnation, MessageId, NextHop, RequestId, ServerName
from shadowrelay.core.jobs import Job
from shadowrelay.core.messages import Status
from shadowrelay.core.operating import Act, Scope, Told
from shadowrelay.core.ownership.handover import Remains
from shadowrelay.core.policy import Policy
from shadowrelay.core.pressure import Pressure
from shadowrelay.core.reception.shadow_servers import MemberPlace
from shadowrelay.core.safety_net.resubmission import Contacts
from shadowrelay.core.suspensions import Suspension
from shadowrelay.core.values import dataclass
from shadowrelay.core.workers import node_of
from shadowrelay.database.examining import Examiner
from shadowrelay.database.opening import CONTENT
from shadowrelay.database.outbox import rows_about, unwritten
from shadowrelay.database.room import Room
from shadowrelay.database.transport import TransportDatabase
from shadowrelay.delivery.attempt import Outbound, room_of
from shadowrelay.delivery.extra_hop import ExtraHop
from shadowrelay.delivery.hop_shadows import HopShadows
from shadowrelay.delivery.hop_talk import HopConversations
from shadowrelay.delivery.hosts import Hosts
from shadowrelay.delivery.queue import Queue
from shadowrelay.delivery.recent import RecentAttempt
from shadowrelay.delivery.reports import Reporter
from shadowrelay.delivery.shaping import Shaping
from shadowrelay.delivery.sts_fetching import FetchResult
from shadowrelay.delivery.sts_policies import StsPolicies
from shadowrelay.delivery.tls_policies import TlsPolicies
from shadowrelay.delivery.tls_reports import TlsReporting
from shadowrelay.delivery.tls_results import TlsResults
from shadowrelay.ids import mint
from shadowrelay.measures import Measures
from shadowrelay.members.boundary import Boundary
from shadowrelay.members.effective_policy import EffectivePolicy
from shadowrelay.members.giving import TAKES, Giving, takes, unwilling
from shadowrelay.members.indexes import Indexes
from shadowrelay.members.inquiry import Inquiry
from shadowrelay.members.link import Link
from shadowrelay.members.mend import Giver, Mend
from shadowrelay.members.pool import Members, seconds
from shadowrelay.members.reconcile import Reconcile
from shadowrelay.members.record_replication import RecordReplication
from shadowrelay.members.repair import Repair
from shadowrelay.members.scrub import Scrub
from shadowrelay.members.suspended import Suspended
from shadowrelay.node_clock import NodeClock
from shadowrelay.operator.acts import Action, Acts
from shadowrelay.operator.bounce import give_up
from shadowrelay.operator.cluster_reload import ClusterReload
from shadowrelay.operator.cluster_settings import ClusterSettings
from shadowrelay.operator.confirming import doubt_told
from shadowrelay.operator.drain import Drain, Draining
from shadowrelay.operator.job_runner import JobRunner
from shadowrelay.operator.jobs import Jobs
from shadowrelay.operator.node_acts import NodeActs
from shadowrelay.operator.queue_names import QueueNames, hops_of
from shadowrelay.operator.redirect import Redirecting
from shadowrelay.operator.redundancy import RedundancySwitch
from shadowrelay.operator.resubmit import Resubmission
from shadowrelay.operator.resubmit_estimate import ResubmitEstimate, RouteServer
from shadowrelay.operator.suspending import Suspending
from shadowrelay.operator.tracing import Event, event
from shadowrelay.operator.verbs import ReportWriter
from shadowrelay.operator.view import QUEUES, View
from shadowrelay.reception.back_pressure import BackPressure
from shadowrelay.reception.delayed_acknowledgements import DelayedAcknowledgements
from shadowrelay.reception.filter_watch import FilterWatch
from shadowrelay.reception.logins import NONE, UserLogins
from shadowrelay.safety_net.resubmitting import ResubmitStage
from shadowrelay.service.adapters import (
    addresses,
    hosts,
    pressure_limits,
    resolver,
    shaped,
    sts_fetcher,
    tls_routes,
)
from shadowrelay.service.announcing import Announcing
from shadowrelay.service.live_settings import LiveSettings, recipients_of
from shadowrelay.service.membership import Membership, place_of
from shadowrelay.service.operating import OperatorServices, Rereads, SharedRecords, away, listed
from shadowrelay.settings import Settings, switched
from shadowrelay.settings.alike import Sections
from shadowrelay.settings.certificates import ending
from shadowrelay.settings.outputs import tokens_of
from shadowrelay.settings.routing import standing
from shadowrelay.settings.workers import workers_in
from shadowrelay.shared_counts import SessionCounts
from shadowrelay.shown.records import RetiredAnswer
from shadowrelay.smtp.receiving.connector import Connector
from shadowrelay.smtp.receiving.rates import NOBODY, REMEMBERED, HeldBack
from shadowrelay.smtp.sending.session import remembers_since
from shadowrelay.tracking import lookup
from shadowrelay.tracking.events import TrackingEvents
from shadowrelay.tracking.format import custom_entries, row_identity
from shadowrelay.tracking.tail import LogDirectory
from shadowrelay.workers.counts import ClusterWorkers
from shadowrelay.workers.leaving import Leaving
from shadowrelay.workers.worker import RELOADED


def _clock_of(database: TransportDatabase, given: Callable[[], datetime] | None) -> NodeClock:
    if isinstance(given, NodeClock):
        return given
    return NodeClock.following(given) if given else NodeClock(database.opened.reckoning)


class Node:
    """One running node, as the admin API sees it."""

    opening = False
    stopping = False
    reloading: Rereads | None = None  # once the node serves
    tell_supervisor: Callable[[bytes], None] = staticmethod(lambda _: None)  # of a worker: on its lifeline
    counts: SessionCounts | None = None  # of the sessions of all workers, if it is one of several

    def __init__(
        self, settings: Settings, database: TransportDatabase, clock: Callable[[], datetime] | None = None
    ) -> None:
        self.database = database
        self.clock = _clock_of(database, clock)
        database.ledger.ahead = self.clock.ahead
        self.started_at = self.clock()
        self._sections = Sections(monotonic)
        self.name, self.site, self.host = ServerName(settings.name), settings.site, settings.host
        self.current = LiveSettings(settings, recipients_of(settings))
        self.in_force = EffectivePolicy(settings.policy())
        self.policy = self.in_force.live
        self.routes, self.ways, self.book = self.current.routes, self.current.ways, self.current.book
        self.room = Room(settings.data_dir, settings.minimum_free_disk)
        self.back_pressure = BackPressure(
            self.room,
            database,
            settings.tracking.directory,
            pressure_limits(settings),
            self.clock,
            monotonic,
        )
        self.connectors: list[Connector] = []
        self._filters: dict[tuple[str, str], FilterWatch] = {}
        self.in_flight: set[MessageId] = set()
        self._log = TrackingLookup(database, settings.tracking.directory)
        self._make_members(settings)
        self._make_delivery(settings)
        self._make_care(settings)
        self._make_handover(settings)
        self._make_records()
        self._make_operator(settings)

    def _make_members(self, settings: Settings) -> None:
        """The other members: who they are, how they are asked, and what they were asked at the start."""
        places = tuple(map(place_of, settings.members))
        self.boundary = Boundary(
            MemberPlace(self.name, self.site, self.host), places, self.policy, self.in_force.live_relied
        )
        self.members = Members(self.database, self.boundary, addresses(settings), self.policy, self.clock)
        # Where nobody else may have its messages, nobody can have delivered them.
        kept = self.policy.shadow_message_auto_discard_interval
        returned = places and self.clock.away_longer(kept) is not False
        long = lambda: self.clock.away_longer(kept)  # noqa: E731
        self.inquiry = Inquiry(self.database.opened.at, long) if returned else Inquiry()
        self.membership = Membership(
            name=self.name,
            current=self.current,
            clock=self.clock,
            database=self.database,
            boundary=self.boundary,
            members=self.members,
            new_link=self._new_link,
            changed=self._queue_changed,
        )

    def _make_delivery(self, settings: Settings) -> None:
        """The queue, what it sends to, and what it reports."""
        database, clock = self.database, self.clock
        self.examiner = Examiner(database, clock)
        self.reporter = Reporter(
            node_of(self.name),
            self.routes,
            self.policy,
            clock,
            self.current.journals,
            self.book,
            lambda hop, at: self.queue.suspended.not_aged(hop, at),  # noqa: PLW0108 – made below
            clock.wall,
        )
        self.resolver = resolver(settings)
        self.tls_results = TlsResults()
        self.hosts = hosts(settings, self.resolver, self.policy, clock)
        self.tls_policies = self.hosts.policies = TlsPolicies(
            self.resolver, tls_routes(settings), self._sts_policies(settings), clock
        )
        self.tls_policies.note = self.tls_results.note
        self.tls_reports = TlsReporting(
            lambda: self.settings.tls_reports.socket,
            lambda name: self.hosts.resolver.texts(name),  # noqa: PLW0108 – a reload gives another
            self.tls_policies.sts.kept,
        )
        self.tls_results.heard.append(self.tls_reports.heard)
        self.hop_conversations = self.hosts.talk = HopConversations(
            database, clock, enabled=self.redundancy_on
        )
        self.queue = Queue(
            database,
            self.boundary,
            self.hosts,
            self.routes,
            self.reporter,
            self.policy,
            clock,
            self.book,
            self.ways,
            clock.endings,
        )
        self.queue.shaping.take(*shaped(settings))
        self.hop_shadows = HopShadows(
            database,
            self.hop_conversations,
            self.hosts,
            self.examiner,
            self.routes,
            self.has_room,
            self._queue_changed,
            self.policy,
            clock,
        )
        self.hosts.avoided, self.hosts.took = self.hop_shadows.avoided, self.hop_shadows.took
        self.acknowledgements = DelayedAcknowledgements(
            database, self.policy, clock, self.hop_failed, self.suspended, self.current.promotion
        )
        self.queue.failed = self.acknowledgements.release

    def _sts_policies(self, settings: Settings) -> StsPolicies:
        """What domains ask for by MTA-STS. A fetch that fails is a result as those of sessions are."""

        def told(domain: str, result: FetchResult | Literal[""]) -> None:
            host = host_of(domain)
            if not result:
                self.tls_results.forget(domain, host)
                return
            self.tls_results.note(
                TlsResult(domain, host, "opportunistic", "mta-sts", result, self.clock(), testing=True)
            )

        return StsPolicies(
            self.database,
            lambda: self.hosts.resolver,
            sts_fetcher(settings, lambda: self.hosts.resolver),
            self.clock.endings,
            told,
            lambda: any(route.mta_sts for route in self.settings.routes.values()),
        )

    def _make_care(self, settings: Settings) -> None:
        """What looks after messages that are here: their copies, and their soundness."""
        database, boundary, clock = self.database, self.boundary, self.clock
        self.giver = Giver(self.members, database, self.examiner, clock)
        self.mend = Mend(
            self.members,
            database,
            boundary,
            self.examiner,
            self.inquiry,
            self.settled_in_log,
            self.policy,
            clock,
        )
        self.indexes = Indexes(database)
        self.scrub = Scrub(
            self.examiner, self.inquiry, boundary.reachable, settings.scrub_interval, clock, self.indexes
        )
        self.repair = Repair(
            self.members, database, boundary, self.examiner, self.in_force, clock, self._speak_to_all
        )

    def _make_handover(self, settings: Settings) -> None:
        """What gives messages to other members: a drain, a redirect, an extra hop."""
        database, boundary, clock = self.database, self.boundary, self.clock
        self.draining = Draining(
            Drain(database, boundary, self.in_force, clock, self._speak_to_all),
            settings.drain_timeout.total_seconds(),
        )
        giving = Giving(
            members=self.members,
            database=database,
            examiner=self.examiner,
            unwilling=self._unwilling,
            enabled=self.redundancy_on,
            changed=self._speak_to_all,
            clock=clock,
        )
        self.redirecting = Redirecting(giving, boundary, draining=lambda: self.draining.active)
        self.extra_hop = self.queue.extra_hop = ExtraHop(standing(settings), giving, boundary)

    def _make_records(self) -> None:
        """The records that every member has, and what they ask of this node."""
        database, clock = self.database, self.clock
        self.replication = RecordReplication(
            self.members,
            database,
            self.contacts,
            self.in_force,
            clock.endings,
            self.repair.wake.set,
            self.membership.follow,
        )
        self.replication.suspensions_read = self._suspensions_read
        self.records = SharedRecords(self.replication, self.contacts, clock, self._record_taken)
        self.resubmitting = ResubmitStage(
            self.members,
            database,
            self.replication,
            self.contacts,
            self.boundary.others,
            self.examiner,
            self.may_resubmit,
            self.in_force,
            clock.endings,
            self.indexes,
        )
        switching: dict[str, Any] = {
            "name": self.name,
            "database": database,
            "in_force": self.in_force,
            "having": self.records.having,
            "share": self.replication.share,
            "mint": mint,
            "clock": clock,
        }
        self.redundancy = RedundancySwitch(**switching)
        self.cluster_settings = ClusterSettings(
            **switching, notation=switched, wrong=lambda policy: switched.wrong(self.settings, policy)
        )
        self.queue_names = QueueNames(
            routes=self.routes,
            sites=self.ways,
            nodes=lambda: (self.name, *self.contacts().members),
            seen=self._queues_seen,
        )
        self.counting = ResubmitEstimate(
            database=database,
            policy=self.policy,
            clock=clock,
            endings=clock.endings,
            mint=mint,
            servers=listed(self.routes, self.hosts),
            contacts=self.contacts,
            away=lambda: away(self.member_statuses()),
            ask=self.members.operate,
            remembers=self._remembers,
        )
        self.resubmission = Resubmission(
            counting=self.counting,
            having=self.records.having,
            wake=self.replication.wake.set,
            names=self.queue_names,
        )

    def _make_operator(self, settings: Settings) -> None:
        """What an operator sees and does, and what members may ask for one."""
        name, database, boundary, clock, ask = (
            self.name,
            self.database,
            self.boundary,
            self.clock,
            self.members.operate,
        )
        self.services = OperatorServices(
            access=Access(tuple(tokens_of(settings.admin))),
            events=TrackingEvents(LogDirectory(settings.tracking.directory, name, lambda: database.lineage)),
            view=View(
                name=name,
                looks=NodeView(self, clock, seconds).looks(),
                members=lambda: self.contacts().members,
                reachable=boundary.reachable,
                ask=ask,
                mint=mint,
                clock=clock,
                seconds=seconds,
            ),
            rates=Rates(lambda: database.ledger.tracked),
            node_acts=NodeActs(
                members=lambda: self.contacts().members,
                drain=self.begin_drain,
                undrain=self.end_drain,
                ask=ask,
                mint=mint,
                clock=clock,
            ),
            reloading=ClusterReload(
                name=name,
                here=lambda: self.reloading,
                members=lambda: self.contacts().members,
                ask=ask,
                mint=mint,
                clock=clock,
                told=lambda: self.tell_supervisor(RELOADED),
            ),
            queue_names=self.queue_names,
            jobs=self._jobs(),
            suspensions=Suspending(
                database=database,
                contacts=self.contacts,
                clock=clock,
                mint=mint,
                ask=ask,
                why_away=self._why_away,
                share=self.replication.share,
                in_force=self.replication.look,
                names=self.queue_names,
            ),
            job_runner=JobRunner(
                database=database,
                writer=ReportWriter(self.reporter),
                contacts=self.contacts,
                clock=clock,
                try_now=lambda hop: self.queue.try_now(hop),  # noqa: PLW0108 – tests give a node another queue
                changed=self._queue_changed,
                tell=self.replication.wake.set,
            ),
            announcing=Announcing(
                current=self.current,
                clock=clock,
                database=database,
                boundary=boundary,
                membership=self.membership,
                ask=ask,
            ),
            leaving=self._leaving(),
            workers=ClusterWorkers(
                name=name,
                clock=clock,
                database=database,
                boundary=boundary,
                membership=self.membership,
                ask=ask,
                count=lambda: workers_in(self.settings),
            ),
            here=lambda: self.reloading,
        )
        self.acts = Acts(
            settings.peer.peer_operate if settings.peer else Scope.NONE,
            {
                **self.records.actions(),
                TAKES: Action(Scope.READ, self._say_whether_it_takes, quiet=True),
                **self.counting.actions(),
                **self.services.actions(),
            },
            seconds,
        )

    def _jobs(self) -> Jobs:
        return Jobs(
            database=self.database,
            contacts=self.contacts,
            clock=self.clock,
            mint=mint,
            ask=self.members.operate,
            why_away=self._why_away,
            wake=self._job_changed,
            refusal=self._refusal,
            names=self.queue_names,
        )

    def _leaving(self) -> Leaving:
        return Leaving(
            name=self.name,
            clock=self.clock,
            database=self.database,
            boundary=self.boundary,
            ask=self.members.operate,
            redirecting=self.redirecting,
            drain=lambda: self.draining.begin(self.connectors),
            remains=self.remains,
            sessions=lambda: sum(one.sessions for one in self.connectors),
            repair=self.repair.wake.set,
        )

    @property
    def settings(self) -> Settings:
        return self.current.settings

    @property
    def links(self) -> dict[ServerName, Link]:
        return self.membership.links

    def _queue_changed(self) -> None:
        self.queue.wake.set()

    def _job_changed(self) -> None:
        self.replication.wake.set()
        self.services.job_runner.wake.set()

    async def _queues_seen(self) -> frozenset[str]:
        """The next hops that have mail on a node that answers, or a record that suspends or resumed them."""
        nodes = await self.services.view.everybody(QUEUES, {})
        records = await self.database.transact(lambda ledger: tuple(ledger.suspensions()))
        return hops_of(nodes).union(one.next_hop for one in records)

    def _why_away(self, name: ServerName) -> str:
        found = away(self.member_statuses()).get(name)
        return found.why if found else "it is not in the settings"

    def _refusal(self, job: RequestId, name: ServerName) -> str:
        known = self.replication.given.get(name)
        return known.refused.get(job, "") if known else ""

    def _suspensions_read(self, records: Sequence[Suspension]) -> None:
        """What is on record is in force from now on."""
        if self.queue.suspended.take(records):
            self.acknowledgements.queues_suspended()
            self.queue.wake.set()

    async def save_time(self) -> None:
        """Note durably that the node runs, and what time it is."""
        await self.database.touch(self.clock(), self.clock.to_save())

    def _new_link(self, name: ServerName) -> Link:
        return Link(
            name=name,
            members=self.members,
            database=self.database,
            boundary=self.boundary,
            inquiry=self.inquiry,
            policy=self.policy,
            clock=self.clock,
            changed=self._queue_changed,
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

    def may_resubmit(self) -> bool:
        """May it make messages that nobody waits for?"""
        return self.has_room() and not self.room.stance.pauses

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
        found = hop_status(
            self.queue.hops,
            name,
            self.policy,
            at,
            self.clock(),
            self.hosts,
            started_at=self.started_at,
            suspended=self.queue.suspended,
            shaping=self.queue.shaping,
        )
        if last := self.queue.recent.last(name):
            rate = self.queue.recent.rate(name, self.clock())
            return replace(found, rate=rate, last_reply=last.reply, last_reply_at=last.at)
        return found

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

    def filter_watch(self, connector: str, name: str) -> FilterWatch:
        """What is known of a filter; it goes on over reloads."""
        new = FilterWatch(connector, name, self.clock)
        return self._filters.setdefault((connector, name), new)

    def filters(self) -> Sequence[FilterWatch]:
        receive = self.settings.receive.items()
        return [self.filter_watch(name, one) for name, connector in receive for one in connector.filters]

    def held_back(self) -> Sequence[HeldBack]:
        found = (held for one in self.connectors if one.rates for held in one.rates.held_back)
        return sorted(found, key=lambda held: held.last, reverse=True)[:REMEMBERED]

    def held_back_counts(self) -> Mapping[str, int]:
        counts = Counter(NOBODY)
        for one in self.connectors:
            counts.update(one.rates.refused if one.rates else {})
        return counts

    def back_offs(self) -> Mapping[str, int]:
        return self.queue.shaping.backed_off

    def pressures(self) -> Sequence[Pressure]:
        return self.back_pressure.pressures()

    def redundancy_on(self) -> bool:
        return self.in_force.redundancy

    def extra_hops(self) -> Mapping[str, int]:
        return self.extra_hop.counts

    def measures(self) -> Measures:
        return Measures(
            acknowledgement=self.acknowledgements.at_once,
            shadow_commit=self.members.copied,
            delivery=self.queue.attempts,
            scrub=self.scrub.looks,
            resubmit=self.resubmitting.batches,
            spans=self.services.traces.counts if self.services.traces else {},
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

    def sections(self) -> Mapping[str, str]:
        return self._sections.of(self.settings, self.policy.now)

    def warning(self) -> str:
        recipients = self.current.recipients
        wrong = recipients.wrong if recipients else ""
        told = f"recipients_file is not read again, the one from before stands: {wrong}" if wrong else ""
        doubt, reloading = doubt_told(self.clock), self.reloading.warning if self.reloading else ""
        differing = switched.told(self.settings, self.in_force.switches)
        ends = ending(self.services.certificates(), self.clock())
        down = [one.told for one in self.filters()]
        return "; ".join(filter(None, [doubt, told, self.room.warning, reloading, *down, *ends, *differing]))

    def live(self) -> bool:
        return not self.database.failed.is_set()

    async def give_up(self, message_id: MessageId, operator: str) -> bool:
        return await give_up(self.database, self.reporter, message_id, self.clock, operator) is not None

    @property
    def spool(self) -> Path:
        """Where the contents of messages are that are too large for the database."""
        return self.settings.data_dir / CONTENT

    def _record_taken(self, kind: str) -> None:
        if kind == Job.kind:
            self.services.job_runner.wake.set()

    async def retire(self, name: ServerName, operator: str) -> RetiredAnswer:
        done = await self.membership.retire(name, operator)
        self.replication.wake.set()
        return done

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

    async def settled_in_log(self, message_id: MessageId) -> Mapping[int, Status]:
        return await self._log.settled(message_id)

    async def damage_in_log(self, message_id: MessageId) -> tuple[str, str] | None:
        return await self._log.damage(message_id)

    async def trace(self, message_id: MessageId, older: str, most: int) -> tuple[list[Event], str]:
        return await self._log.trace(message_id, older, most)

    async def begin_drain(self, operator: str) -> Remains:
        return await self.draining.begin(self.connectors, operator)

    async def end_drain(self, operator: str) -> Remains:
        return await self.draining.end(self.connectors, operator)

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


@dataclass(frozen=True, slots=True)
class TrackingLookup:
    """One node's. The rows of the outbox are read too."""

    _database: TransportDatabase
    _directory: Path

    async def settled(self, message_id: MessageId) -> Mapping[int, Status]:
        """What became of the recipients of a message with damaged rows."""
        return lookup.settled(await self._about(message_id))

    async def damage(self, message_id: MessageId) -> tuple[str, str] | None:
        """When the message was last found damaged, and what was damaged."""
        return lookup.damage(await self._about(message_id))

    async def trace(self, message_id: MessageId, older: str, most: int) -> tuple[list[Event], str]:
        """The events of a message, also those not written yet; and where older files begin, or ''."""
        waiting = [] if older else await self._database.transact(lambda ledger: unwritten(ledger, message_id))
        look = partial(lookup.trace, self._directory, message_id, older, most, seconds)
        traced = await asyncio.to_thread(look)
        found = {}
        for one in waiting:  # read first: meanwhile a row may come into a file, and is the same
            own = {"Db": one.database_id, **custom_entries(one.columns.get("custom-data", ""))}
            found[one.incarnation, one.sequence] = event(one.columns, one.sequence, one.incarnation, own)
        for row in traced.rows:
            sequence, incarnation = row_identity(row)
            custom = custom_entries(row["custom-data"])
            found[Incarnation(incarnation), sequence] = event(row, sequence, incarnation, custom)
        return list(found.values()), traced.older

    async def _about(self, message_id: MessageId) -> lookup.LogRows:
        unwritten = await self._database.transact(lambda ledger: rows_about(ledger, message_id))
        return await lookup.about(self._directory, message_id, unwritten)


_PER_HOP, _IN_ALL = "max_per_domain_outbound_connections", "max_outbound_connections"


def hop_status(
    hops: Mapping[NextHop, Outbound],
    name: NextHop,
    policy: Policy,
    clock: float,
    now: datetime,
    hosts: Hosts | None = None,
    *,
    started_at: datetime | None = None,
    suspended: Suspended | None = None,
    shaping: Shaping | None = None,
) -> HopStatus:
    """The status of one next hop. ``clock`` is the present moment on the loop's clock. ``started_at``: when
    this process began to send.
    """
    hop = hops.get(name) or Outbound(None)
    places, limit = (
        hop.places(clock, policy),
        "the next hop takes no more" if clock < hop.fewer_until else _PER_HOP,
    )
    room = room_of(name, hop, hosts, shaping) if hosts and shaping and shaping.shapes else None
    if room and room.connections < places:
        places, limit = room.connections, room.limit
    in_all = policy.max_outbound_connections - sum(one.workers for one in hops.values()) + hop.workers
    if in_all < places:
        places, limit = in_all, _IN_ALL
    # One session probes the hop; sessions begun before it failed may still wait.
    if hop.probed and (alone := hop.workers - len(hop.probes) + 1) < places:
        places, limit = alone, "one session logs in first"
    waiting = [session.awaits for session in hop.busy if session.awaits.what]
    longest = min(waiting, key=lambda awaited: awaited.since, default=None)
    held = room if room and room.held_back else None
    ended = [started_at, hop.retry_at, suspended.resumed_at(name) if suspended else None]
    return HopStatus(
        sessions=hop.workers,
        places=places,
        limit=limit,
        failures=hop.failures,
        failing_since=hop.failing_since,
        error=hop.last_error,
        rests_until=hop.retry_at,
        held_back=held.held_back if held else "",
        held_back_until=held.until if held else None,
        awaits=longest.what if longest else "",
        awaits_since=now - timedelta(seconds=clock - longest.since) if longest else None,
        hosts=()
        if hosts is None
        else tuple(
            _host(hosts, hop, host, index, now)
            for index, group in enumerate(hosts.ways(name))
            for host in (group.hosts if isinstance(group, HostGroup) else hop.known.get(group, ()))
        ),
        suspension=suspended.by(name) if suspended else None,
        free_since=max(filter(None, ended), default=None),
    )


def _host(hosts: Hosts, hop: Outbound, host: Host, group: int, now: datetime) -> HostStatus:
    standing = hosts.standing(host)
    return HostStatus(
        host=str(host),
        route=host.route,
        group=group,
        preference=host.preference,
        weight=host.weight,
        sessions=hop.on.get(host, 0),
        failures=standing.failures,
        error=f"{standing.step}: {standing.error}" if standing.failures else "",
        rests_until=standing.rests_until if standing.resting(now) else None,
    )
