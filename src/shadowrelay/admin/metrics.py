"""Renders metrics in the Prometheus text format, read at each scrape. Shadow copies are never backlog."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from shadowrelay.admin.node import LateStatus, MemberState, MemberStatus, ScrubState
from shadowrelay.admin.queue_metrics import depths, durations
from shadowrelay.core.delivery.hop_watch import HopWatch
from shadowrelay.core.identifiers import ServerName
from shadowrelay.core.members.damage import Counted
from shadowrelay.core.members.pace import PER_MESSAGE
from shadowrelay.core.pressure import Pressure
from shadowrelay.core.requests import Skipped
from shadowrelay.core.tracking import OfRows
from shadowrelay.core.tracking_row import TrackingEvent
from shadowrelay.database.opening import Opening
from shadowrelay.database.queue_views import Depths
from shadowrelay.database.views import Snapshot
from shadowrelay.measures import Measures
from shadowrelay.operator.resubmit import Figures
from shadowrelay.reception.filter_watch import FilterWatch


@dataclass(frozen=True, slots=True, kw_only=True)
class Scrape:
    """Everything that one scrape shows."""

    seen: Snapshot
    peers: tuple[MemberStatus, ...]
    scrub: ScrubState
    opened: Opening
    logins: Mapping[str, int]
    held_back: Mapping[str, int]
    filters: Sequence[FilterWatch]
    back_offs: Mapping[str, int]
    tls: Mapping[tuple[str, str], int]  # by what asked for it, and by what was wrong
    tls_reports: Mapping[str, int]
    pressures: Sequence[Pressure]
    pressed: Mapping[str, int]  # refused since the start, by what it was; and ``delayed``
    extra_hops: Mapping[str, int]
    redundancy: bool
    clock_in_doubt: bool
    late: LateStatus
    commits: int
    resubmit: Figures
    at_risk: int
    free: int
    minimum_free: int
    ready: bool
    started_at: datetime
    now: datetime
    hops: Mapping[ServerName, HopWatch] = field(default_factory=dict)
    measures: Measures = field(default_factory=Measures)
    queues: Depths = field(default_factory=Depths)
    certificates: Mapping[str, datetime] = field(default_factory=dict)  # until when, by setting


class _Current(Collector):
    def __init__(self, version: str) -> None:
        self.version = version
        self.scrape: Scrape | None = None

    def collect(self) -> Iterator[Metric]:
        if self.scrape is not None:
            yield from _metrics(self.scrape, self.version)


class Metrics:
    """The metrics of one node, in its own registry: one process may run several nodes."""

    def __init__(self, version: str) -> None:
        self._current = _Current(version)
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self._current)

    def render(self, scrape: Scrape, accept: str) -> tuple[bytes, str]:
        """The page and its content type, in the format that the scraper accepts."""
        encode: Callable[[CollectorRegistry], bytes]
        encode, content_type = choose_encoder(accept)
        self._current.scrape = scrape
        return encode(self._registry), content_type


def _metrics(scrape: Scrape, version: str) -> Iterator[Metric]:
    counts = scrape.seen.counts
    gauges = [
        ("queued_messages", "Messages that this node has to deliver: the backlog.", counts.queued),
        ("exposed_messages", "Messages without a second copy.", counts.exposed),
        ("at_risk_messages", "Messages in transit of which one copy can be reached now.", scrape.at_risk),
        ("asking_messages", "Queued messages that members are asked about first.", counts.asking),
        ("in_doubt_messages", "Queued messages that go out though a member did not answer.", counts.in_doubt),
        (
            "unread_recipients",
            "Recipients that a next hop may have: it took the content, and its answer cannot be read.",
            counts.unread,
        ),
        ("set_aside_messages", "Messages that wait for the operator.", counts.set_aside),
        ("shadow_messages", "Copies held for other members. Not backlog.", counts.shadow_held),
        ("safety_net_messages", "Settled messages that are kept. Not backlog.", counts.safety_net),
        (
            "discard_events",
            "Discard events that members have not polled yet.",
            sum(scrape.seen.events.values()),
        ),
        ("oldest_queued_seconds", "Age of the oldest queued message, 0 without one.", _age(scrape)),
        ("free_disk_bytes", "Free space of the disk that holds the node's data.", scrape.free),
        ("minimum_free_disk_bytes", "With less free space mail is put off.", scrape.minimum_free),
        ("waiting_acknowledgements", "Sessions whose 250 waits for next hops.", scrape.late.waiting),
        ("ready", "1 while this node takes mail.", int(scrape.ready)),
        (
            "clock_in_doubt",
            "1 while the wall clock is in doubt, and nothing ends.",
            int(scrape.clock_in_doubt),
        ),
        ("redundancy_on", "1 while shadow redundancy is on.", int(scrape.redundancy)),
        ("start_time_seconds", "When the node started, seconds since 1970.", scrape.started_at.timestamp()),
    ]
    for name, text, value in gauges:
        yield GaugeMetricFamily(f"shadowrelay_{name}", text, value=value)
    info = GaugeMetricFamily("shadowrelay_build_info", "1, with the version as label.", labels=["version"])
    info.add_metric([version], 1)
    yield info
    yield from _peers(scrape)
    yield from _hops(scrape)
    yield from _damage(scrape)
    yield from _scrub(scrape.scrub)
    yield from _resubmit(scrape.resubmit)
    yield from durations(scrape.measures)
    yield from depths(scrape.queues, scrape.now)
    yield _labelled(
        "certificate_expiry_timestamp_seconds",
        "Until when a certificate in use is valid, seconds since 1970.",
        "setting",
        {setting: until.timestamp() for setting, until in scrape.certificates.items()},
    )
    tracked = CounterMetricFamily(
        "shadowrelay_tracking_events", "Tracking events since the start, by event-id.", labels=["event"]
    )
    for event in sorted(EVENT_IDS | set(scrape.seen.tracked)):
        tracked.add_metric([event], scrape.seen.tracked.get(event, 0))
    yield tracked
    hops = "Messages for this node's machine: taken by a member elsewhere, or delivered here alone."
    yield _labelled("extra_hops_total", hops, "result", scrape.extra_hops)
    yield _labelled(
        "delayed_acknowledgements_total",
        "Messages without a second copy since the start, by how their acknowledgement was delayed.",
        "outcome",
        scrape.late.counts,
    )
    yield _labelled("logins_total", "Logins (AUTH) since the start, by result.", "result", scrape.logins)
    put_off = "Connections, messages and recipients that were put off, by the limit of a minute."
    yield _labelled("held_back_total", put_off, "limit", scrape.held_back)
    yield from _filters(scrape.filters)
    asked = "Replies since the start by which a shaped next hop asked for less, by pattern."
    yield _labelled("back_offs_total", asked, "pattern", scrape.back_offs)
    yield _tls(scrape.tls)
    told = "Results of TLS for reports since the start, by what became of them."
    yield _labelled("tls_reports_total", told, "result", scrape.tls_reports)
    levels = {one.resource.value: int(one.level) for one in scrape.pressures}
    readings = {one.resource.value: one.reading for one in scrape.pressures}
    yield _labelled("pressure_level", "How scarce: 0 low, 1 medium, 2 high, 3 full.", "resource", levels)
    yield _labelled("pressure_reading", "Percent of a disk or of memory, or a count.", "resource", readings)
    refused = "MAIL that was refused or delayed since the start because resources were short."
    yield _labelled("pressure_refused_total", refused, "what", scrape.pressed)
    yield CounterMetricFamily(
        "shadowrelay_commits", "Commits of the transport database since the start.", value=scrape.commits
    )


def _tls(counts: Mapping[tuple[str, str], int]) -> Metric:
    """Every source is shown from the first scrape on, so that rates include the first of its results."""
    found = CounterMetricFamily(
        "shadowrelay_outbound_tls",
        "Sessions with hosts whose domain asks for TLS, since the start, by who asks and by result.",
        labels=["source", "result"],
    )
    for source, result in sorted({("dane", ""), ("mta-sts", ""), *counts}):
        found.add_metric([source, result or "as-wanted"], counts.get((source, result), 0))
    return found


def _filters(watches: Sequence[FilterWatch]) -> Iterator[Metric]:
    names = ["connector", "filter"]
    down = GaugeMetricFamily(
        "shadowrelay_filter_down",
        "1 while the message that asked a filter last is one that it failed.",
        labels=names,
    )
    failures = CounterMetricFamily(
        "shadowrelay_filter_failures", "Messages that a filter failed since the start.", labels=names
    )
    unfiltered = CounterMetricFamily(
        "shadowrelay_filter_unfiltered",
        "Messages that were taken without a filter that failed, since the start.",
        labels=names,
    )
    seconds = HistogramMetricFamily(
        "shadowrelay_filter_seconds", "What a filter took of one transaction.", labels=names
    )
    for one in watches:
        whose = [one.connector, one.name]
        down.add_metric(whose, one.down_since is not None)
        failures.add_metric(whose, one.failures)
        unfiltered.add_metric(whose, one.unfiltered)
        seconds.add_metric(whose, one.seconds.cumulative(), one.seconds.total)
    yield from (down, failures, unfiltered, seconds)


def _resubmit(found: Figures) -> Iterator[Metric]:
    gauges = {
        "requests_open": ("Resubmit requests for which messages may still be made.", found.open),
        "made_messages": ("Messages that this node made for the requests on record.", found.made),
        "left_messages": ("Messages of open requests that this node would still make.", found.left),
    }
    for name, (text, value) in gauges.items():
        if value is not None:
            yield GaugeMetricFamily(f"shadowrelay_resubmit_{name}", text, value=value)
    skipped = GaugeMetricFamily(
        "shadowrelay_resubmit_skipped_messages",
        "Messages that this node did not make for the requests on record, by cause.",
        labels=["cause"],
    )
    for cause in Skipped:
        skipped.add_metric([cause.value], found.skipped.get(cause, 0))
    yield skipped


def _peers(scrape: Scrape) -> Iterator[Metric]:
    seen = scrape.seen
    retired = {member.name for member in seen.members if member.retired}
    columns = {
        "peer_reachable": "1 unless the last attempt to reach this member failed.",
        "peer_failures": "Attempts to reach this member that failed since the last contact.",
        "peer_shadow_messages": "Copies held for this member. Not backlog.",
        "peer_holds_messages": "Queued messages of this node that this member holds a copy of.",
    }
    families = {
        name: GaugeMetricFamily(f"shadowrelay_{name}", text, labels=["peer"])
        for name, text in columns.items()
    }
    for peer in scrape.peers:
        if peer.name in retired:
            continue
        families["peer_reachable"].add_metric([peer.name], int(peer.state is not MemberState.UNREACHABLE))
        families["peer_failures"].add_metric([peer.name], peer.failures)
        families["peer_shadow_messages"].add_metric([peer.name], seen.held_for.get(peer.name, 0))
        families["peer_holds_messages"].add_metric([peer.name], seen.held_by.get(peer.name, 0))
    yield from families.values()


def _hops(scrape: Scrape) -> Iterator[Metric]:
    kept = {str(hop): float(count) for hop, count in scrape.seen.hops.items()}
    failures = {str(hop): float(watch.failures) for hop, watch in scrape.hops.items()}
    yield _labelled(
        "hop_shadow_messages", "Messages kept until this hop has delivered. Not backlog.", "hop", kept
    )
    yield _labelled(
        "hop_failures", "Heartbeats of this hop that failed since its last answer.", "hop", failures
    )


def _labelled(name: str, text: str, label: str, values: Mapping[str, float]) -> Metric:
    """A counter or gauge with one label."""
    made = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
    family = made(f"shadowrelay_{name.removesuffix('_total')}", text, labels=[label])
    for value, number in values.items():
        family.add_metric([value], number)
    return family


def _damage(scrape: Scrape) -> Iterator[Metric]:
    counts, damage, opened = scrape.seen.counts, scrape.seen.damage, scrape.opened
    found = (Counted.CONTENT, Counted.ROWS, Counted.DERIVED, Counted.INDEX)
    restored = (Counted.FETCHED, Counted.GIVEN)
    yield _labelled(
        "damaged_messages",
        "Messages that wait for a good copy, or of which no member has one.",
        "state",
        {"waiting": counts.damaged, "set_aside": counts.damaged_aside},
    )
    yield _labelled(
        "damage_found_total",
        "Damage found since the start, by kind.",
        "what",
        {what: damage.get(what, 0) for what in found},
    )
    yield _labelled(
        "good_copies_total",
        "Good copies since the start that took the place of damaged ones, here or elsewhere.",
        "way",
        {way: damage.get(way, 0) for way in restored},
    )
    yield _labelled(
        "corrupt_database",
        "1 if the transport database was corrupt at the start, by what the start did with it.",
        "outcome",
        {"salvaged": int(bool(opened.salvaged)), "set_aside": int(bool(opened.set_aside))},
    )


_ROWS = f"; the rows of a message count for {PER_MESSAGE}"


def _scrub(scrub: ScrubState) -> Iterator[Metric]:
    now = scrub.now
    gauges = [
        (
            "complete_timestamp_seconds",
            "When all that is kept was last read, seconds since 1970.",
            now.complete_at.timestamp() if now.complete_at else 0,
        ),
        (
            "interval_seconds",
            "Time in which a scrub reads all that is kept; 0: only on request.",
            scrub.interval.total_seconds(),
        ),
        ("round_read_octets", f"Octets that the present round has read{_ROWS}.", now.done.work),
        ("round_octets", f"Octets that the present round reads in all{_ROWS}.", now.of.work),
    ]
    for name, text, value in gauges:
        yield GaugeMetricFamily(f"shadowrelay_scrub_{name}", text, value=value)
    yield CounterMetricFamily(
        "shadowrelay_scrub_octets",
        "Octets of content read by scrubs since the start.",
        value=scrub.read.octets,
    )


def _age(scrape: Scrape) -> float:
    oldest = scrape.seen.counts.oldest_queued
    return max(0.0, (scrape.now - oldest).total_seconds()) if oldest else 0.0


def _event_ids(kind: type[TrackingEvent]) -> Iterator[str]:
    for child in kind.__subclasses__():
        yield child.event_id
        yield from _event_ids(child)


EVENT_IDS = frozenset(_event_ids(TrackingEvent)) | {told.value[0] for told in OfRows}
"""Shown from the first scrape on, so that rates include the first event of each kind."""
