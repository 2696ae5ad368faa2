"""Sums of events by day, as SQL over ``events``: what ``shadowaudit summary`` and dashboards need."""

from __future__ import annotations

from shadowaudit.spark.tables.schemas import DOMAINS, LATENCIES, PROMOTIONS, REASONS, SIZES, TRAFFIC
from shadowaudit.spark.views import VIEWS, summed, worded


def _of_days(name: str, by: str) -> str:
    """What the view of that name sums up, day by day. Rows without a time are in the view alone."""
    return "SELECT * FROM ({view}) WHERE day IS NOT NULL".replace("{view}", summed(name, by))


SUMS = {
    TRAFFIC: "SELECT *, to_date(hour) AS day FROM ({view})".replace("{view}", VIEWS["traffic"]),
    REASONS: _of_days("reasons", "day, node,"),
    DOMAINS: _of_days("domains", "day, node,"),
    SIZES: worded("""
        SELECT
            to_date(date_time) AS day,
            node,
            CAST(floor(log2(greatest(total_bytes, 1))) AS int) AS step,
            count(*) AS messages,
            sum(total_bytes) AS octets
        FROM events
        WHERE {received} AND total_bytes IS NOT NULL AND date_time IS NOT NULL
        GROUP BY ALL
    """),
    PROMOTIONS: _of_days("promotions", "day,"),
}
"""Each needs the events of its days alone."""

PASSED = {
    LATENCIES: """
        SELECT
            to_date(delivered_at) AS day,
            node,
            next_hop,
            CAST(floor(log10(greatest(round(seconds * 1000), 0) + 1) * 20) AS int) AS step,
            count(*) AS deliveries
        FROM deliveries
        WHERE seconds IS NOT NULL
        GROUP BY ALL
    """
}
"""Needs the acceptance of what was delivered, too, which may be of another day."""

DELIVERIES = VIEWS["deliveries"]
