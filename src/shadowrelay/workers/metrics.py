"""The metrics of a node, made of those of its workers: one page for the node, or one with a label ``worker``.

Counters and histograms add, and never fall: what a process counted before its end stays in the sum, as far as
a scrape saw it. What gauges do is in ``GAUGES``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from shadowrelay.shown.fold import LEAST, MOST, SUM, Rule
from shadowrelay.workers.worker import WorkerState

PLAIN = "text/plain; version=0.0.4"
"""The format in which workers are asked for their metrics."""


_SUMS = (
    "asking_messages damaged_messages discard_events exposed_messages hop_shadow_messages in_doubt_messages "
    "peer_holds_messages peer_shadow_messages queue_messages queued_messages resubmit_left_messages "
    "resubmit_made_messages resubmit_skipped_messages safety_net_messages set_aside_messages shadow_messages "
    "unread_recipients waiting_acknowledgements"
)
_MOST = (
    "build_info clock_in_doubt corrupt_database hop_failures minimum_free_disk_bytes oldest_queued_seconds "
    "peer_failures queue_oldest_seconds ready resubmit_requests_open scrub_interval_seconds "
    "start_time_seconds"
)
_LEAST = (
    "certificate_expiry_timestamp_seconds free_disk_bytes peer_reachable redundancy_on "
    "scrub_complete_timestamp_seconds scrub_progress_ratio"
)
GAUGES: Mapping[str, Rule] = {
    f"shadowrelay_{name}": rule
    for rule, names in ((SUM, _SUMS), (MOST, _MOST), (LEAST, _LEAST))
    for name in names.split()
}
"""What every gauge of a node is, of those of its workers. One that is not here is added; a test compares."""

_Key = tuple[str, str, tuple[tuple[str, str], ...]]  # family, sample, labels
_COUNTED = frozenset({"counter", "histogram"})


@dataclass(frozen=True, slots=True)
class Scraped:
    """What one worker answered. ``page``: its metrics; None if it gave none."""

    worker: WorkerState
    page: str | None


class NodeMetrics:
    """The metrics of one node. Remembers what processes counted that have ended."""

    def __init__(self) -> None:
        self._last: dict[int, tuple[int | None, dict[_Key, float]]] = {}  # by worker: its process, its counts
        self._ended: dict[_Key, float] = {}
        self._families: dict[str, Metric] = {}

    def render(self, scraped: Sequence[Scraped], accept: str, *, by_worker: bool) -> tuple[bytes, str]:
        """The page and its content type, in the format that the scraper accepts."""
        encode: Callable[[CollectorRegistry], bytes]
        encode, content_type = choose_encoder(accept)
        read = [(one.worker, _read(one.page)) for one in scraped]
        families = [*_own([one.worker for one in scraped], read, by_worker=by_worker)]
        families += _labelled(read) if by_worker else self._summed(read)
        registry = CollectorRegistry(auto_describe=False)
        registry.register(_Families(families))
        return encode(registry), content_type

    def _summed(self, read: Sequence[tuple[WorkerState, list[Metric]]]) -> Iterator[Metric]:
        gauges: dict[_Key, list[float]] = {}
        for worker, families in read:
            counts: dict[_Key, float] = {}
            for family in families:
                self._families.setdefault(family.name, _without_samples(family))
                for key, value in _values(family):
                    if family.type in _COUNTED:
                        counts[key] = value
                    else:
                        gauges.setdefault(key, []).append(value)
            if families:
                self._count(worker, counts)
        total = dict(self._ended)
        for _, counts in self._last.values():
            for key, value in counts.items():
                total[key] = total.get(key, 0.0) + value
        one = {key: GAUGES.get(key[0], SUM).over(values) for key, values in gauges.items()}
        yield from _families(self._families, {**one, **total})

    def _count(self, worker: WorkerState, counts: dict[_Key, float]) -> None:
        process, before = self._last.get(worker.number, (worker.pid, {}))
        if process != worker.pid:
            for key, value in before.items():
                self._ended[key] = self._ended.get(key, 0.0) + value
        self._last[worker.number] = (worker.pid, counts)


class _Families(Collector):
    def __init__(self, families: Sequence[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


def _own(
    workers: Sequence[WorkerState], read: Sequence[tuple[WorkerState, list[Metric]]], *, by_worker: bool
) -> Iterator[Metric]:
    """What the front itself knows; it shows ``ready`` for a worker that does not answer."""
    serving = GaugeMetricFamily(
        "shadowrelay_worker_serving",
        "1 while this worker of the node serves; there is none of a worker that leaves or has left.",
        labels=["worker"],
    )
    restarts = CounterMetricFamily(
        "shadowrelay_worker_restarts",
        "Ends of this worker's process that nobody asked for, since the node's start.",
        labels=["worker"],
    )
    for worker in workers:
        if worker.state not in ("leaving", "ended"):
            serving.add_metric([str(worker.number)], int(worker.state == "serving"))
        restarts.add_metric([str(worker.number)], worker.restarts)
    yield serving
    yield restarts
    if not by_worker and not any(families for _, families in read):
        yield GaugeMetricFamily("shadowrelay_ready", "1 while this node takes mail.", value=0)


def _labelled(read: Sequence[tuple[WorkerState, list[Metric]]]) -> Iterator[Metric]:
    made: dict[str, Metric] = {}
    for worker, families in read:
        for family in families:
            into = made.setdefault(family.name, _without_samples(family))
            for sample in family.samples:
                labels = {"worker": str(worker.number), **sample.labels}
                into.samples.append(Sample(sample.name, labels, sample.value))
    yield from made.values()


def _read(page: str | None) -> list[Metric]:
    return list(text_string_to_metric_families(page)) if page else []


def _values(family: Metric) -> Iterator[tuple[_Key, float]]:
    for sample in family.samples:
        yield (family.name, sample.name, tuple(sample.labels.items())), sample.value


def _without_samples(family: Metric) -> Metric:
    return Metric(family.name, family.documentation, family.type)


def _families(known: Mapping[str, Metric], values: Mapping[_Key, float]) -> Iterator[Metric]:
    """The families with these samples; those of a histogram stay in their order."""
    made: dict[str, Any] = {}
    for (family, name, labels), value in values.items():
        into = made.setdefault(family, _without_samples(known[family]))
        into.samples.append(Sample(name, dict(labels), value))
    yield from made.values()
