"""Renders durations, and queues by next hop, for ``metrics.py``. Labels are bounded (``measures.py``)."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from shadowrelay.database.queue_views import Depths
from shadowrelay.measures import OTHER, Measures


def durations(measures: Measures) -> Iterator[Metric]:
    """The histograms since the start."""
    plain = {
        "acknowledgement": ("From the end of the content to the 250.", measures.acknowledgement),
        "shadow_commit": (
            "From the offer of a copy of new mail to the holder's acknowledgement.",
            measures.shadow_commit,
        ),
        "scrub_look": ("To read and compare one message in a scrub.", measures.scrub),
        "resubmit_batch": ("To make one batch of messages for a resubmit request.", measures.resubmit),
    }
    for name, (text, found) in plain.items():
        yield HistogramMetricFamily(
            f"shadowrelay_{name}_seconds", text, buckets=found.cumulative(), sum_value=found.total
        )
    attempts = HistogramMetricFamily(
        "shadowrelay_delivery_seconds", "Delivery attempts, by next hop.", labels=["next_hop"]
    )
    for hop, found in sorted(measures.delivery.each.items()):
        attempts.add_metric([hop], found.cumulative(), found.total)
    yield attempts
    spans = CounterMetricFamily(
        "shadowrelay_trace_spans",
        "Spans of traces since the start, by what came of them.",
        labels=["result"],
    )
    for result in ("exported", "dropped"):
        spans.add_metric([result], measures.spans.get(result, 0))
    yield spans


def depths(found: Depths, now: datetime) -> Iterator[Metric]:
    """How much waits for each next hop, and since when."""
    messages = GaugeMetricFamily(
        "shadowrelay_queue_messages", "Messages that wait for this next hop.", labels=["next_hop"]
    )
    oldest = GaugeMetricFamily(
        "shadowrelay_queue_oldest_seconds",
        "Age of the oldest message for this next hop, 0 without one.",
        labels=["next_hop"],
    )
    for hop, number in found.messages.items():
        if hop != OTHER:
            messages.add_metric([hop], number)
        at = found.oldest.get(hop, now)
        oldest.add_metric([hop], max(0.0, (now - at).total_seconds()))
    messages.add_metric([OTHER], found.others + found.messages.get(OTHER, 0))
    yield messages
    yield oldest
