"""Metrics in the Prometheus text format, each read at the scrape. Shadow copies are never backlog."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from shadowrelay.admin.node import PeerState, PeerStatus
from shadowrelay.core.tracking_row import TrackingEvent
from shadowrelay.database.views import Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class Scrape:
    """Everything that one scrape shows."""

    seen: Snapshot
    peers: tuple[PeerStatus, ...]
    commits: int
    free: int
    minimum_free: int
    ready: bool
    started_at: datetime
    now: datetime


class _Current(Collector):
    def __init__(self, version: str) -> None:
        self.version = version
        self.scrape: Scrape | None = None

    def collect(self) -> Iterator[Metric]:
        if self.scrape is not None:
            yield from _metrics(self.scrape, self.version)


class Metrics:
    """The metrics of one node, in a registry of its own: several nodes may live in one process."""

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
        ("exposed_messages", "Queued messages without a second copy.", counts.exposed),
        ("asking_messages", "Queued messages that members are asked about first.", counts.asking),
        ("in_doubt_messages", "Queued messages that go out though a member did not answer.", counts.in_doubt),
        ("set_aside_messages", "Messages that wait for the operator.", counts.set_aside),
        ("shadow_messages", "Copies held for other members. Not backlog.", counts.shadow_held),
        ("safety_net_messages", "Settled messages that are kept. Not backlog.", counts.safety_net),
        (
            "discard_events",
            "Discard events that members have not asked for.",
            sum(scrape.seen.events.values()),
        ),
        ("oldest_queued_seconds", "Age of the oldest queued message, 0 without one.", _age(scrape)),
        ("free_disk_bytes", "Free space of the disk that holds the node's data.", scrape.free),
        ("minimum_free_disk_bytes", "With less free space mail is put off.", scrape.minimum_free),
        ("ready", "1 while this node takes mail.", int(scrape.ready)),
        ("start_time_seconds", "When the node started, seconds since 1970.", scrape.started_at.timestamp()),
    ]
    for name, text, value in gauges:
        yield GaugeMetricFamily(f"shadowrelay_{name}", text, value=value)
    info = GaugeMetricFamily("shadowrelay_build_info", "1, with the version as label.", labels=["version"])
    info.add_metric([version], 1)
    yield info
    yield from _peers(scrape)
    tracked = CounterMetricFamily(
        "shadowrelay_tracking_events", "Tracking events since the start, by event-id.", labels=["event"]
    )
    for event in sorted(EVENT_IDS | set(scrape.seen.tracked)):
        tracked.add_metric([event], scrape.seen.tracked.get(event, 0))
    yield tracked
    yield CounterMetricFamily(
        "shadowrelay_commits", "Commits of the transport database since the start.", value=scrape.commits
    )


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
        families["peer_reachable"].add_metric([peer.name], int(peer.state is not PeerState.UNREACHABLE))
        families["peer_failures"].add_metric([peer.name], peer.failures)
        families["peer_shadow_messages"].add_metric([peer.name], seen.held_for.get(peer.name, 0))
        families["peer_holds_messages"].add_metric([peer.name], seen.held_by.get(peer.name, 0))
    yield from families.values()


def _age(scrape: Scrape) -> float:
    oldest = scrape.seen.counts.oldest_queued
    return max(0.0, (scrape.now - oldest).total_seconds()) if oldest else 0.0


def _event_ids(kind: type[TrackingEvent]) -> Iterator[str]:
    for child in kind.__subclasses__():
        yield child.event_id
        yield from _event_ids(child)


EVENT_IDS = frozenset(_event_ids(TrackingEvent))
"""Shown from the first scrape on, so that a rate over the first event of a kind is not missed."""
