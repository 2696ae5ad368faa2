"""Counts and distributions over all messages: one row a message in, little tables out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

STEPS_PER_DECADE = 20
"""Latencies are counted in steps of a twentieth of a power of ten: 12 % wide."""

CURVE_POINTS = 240

COUNTS = (
    "messages",
    "received",
    "made_here",
    "recipients",
    "ended",
    "delivered",
    "bounced",
    "rows",
    "suspects",
    "deferred",
)


def totals(frame: Any) -> dict[str, int]:
    """Sums over ``merge.merged``."""
    from pyspark.sql import functions as f

    row = frame.agg(
        f.count("*").alias("messages"),
        f.sum("received").alias("received"),
        f.sum(f.col("origins") - f.col("received")).alias("made_here"),
        f.sum("recipients").alias("recipients"),
        f.sum("ended").alias("ended"),
        f.sum("settled").alias("delivered"),
        f.sum("bounced").alias("bounced"),
        f.sum("rows").alias("rows"),
        f.sum(f.col("suspect").cast("long")).alias("suspects"),
        f.sum((f.col("defers") > 0).cast("long")).alias("deferred"),
        f.min(f.least("accepted_at", "held_at", "final_at", "discard_at")).alias("first_at"),
        f.max(f.greatest("accepted_at", "held_at", "final_at", "discard_at")).alias("last_at"),
    ).collect()[0]
    return {name: int(value or 0) for name, value in row.asDict().items()}


def latencies(frame: Any, names: Mapping[int, str]) -> list[dict[str, Any]]:
    """Counts by measure, node, next hop and step, of times on one node's clock (``discard``: on two)."""
    from pyspark.sql import functions as f

    accepted = f.shiftrightunsigned("high", 16)  # a UUIDv7 begins with the moment at which it was given
    measures = {
        "accept": (f.col("accepted_at") - accepted, f.col("received") == 1),
        "deliver": (f.col("final_at") - f.col("accepted_at"), f.col("settled") > 0),
        "discard": (f.col("discard_at") - f.col("final_at"), f.col("holds") > 0),
    }
    parts = []
    for name, (value, where) in measures.items():
        milliseconds = f.greatest(value, f.lit(0)) + f.lit(1)
        step = f.floor(f.log10(milliseconds.cast("double")) * STEPS_PER_DECADE).cast("int")
        chosen = frame.where(where & value.isNotNull())
        if name == "accept":
            chosen = chosen.where((f.col("exchange") == 0) & value.between(-60_000, 3_600_000))
        parts.append(
            chosen.select(
                f.lit(name).alias("measure"), f.col("origin_node").alias("node"), "hop", step.alias("step")
            )
        )
    union = parts[0].unionByName(parts[1]).unionByName(parts[2])
    rows = union.groupBy("measure", "node", "hop", "step").count().collect()
    return [
        {
            "measure": row["measure"],
            "node": names.get(row["node"] or 0, ""),
            "hop": names.get(row["hop"] or 0, ""),
            "step": row["step"],
            "count": row["count"],
        }
        for row in rows
    ]


def curve(frame: Any, first: int, last: int) -> list[dict[str, int]]:
    """Messages in transit and copies held at even points of time, from first and last moments."""
    from pyspark.sql import functions as f

    width = max(1000, (last - first) // CURVE_POINTS + 1)
    # Accepted messages that never ended stay in transit; copies that were never discarded stay held.
    deltas = {
        "accepted_at": ("messages", 1),
        "final_at": ("messages", -1),
        "held_at": ("copies", 1),
        "discard_at": ("copies", -1),
    }
    union = None
    for column, (what, sign) in deltas.items():
        part = frame.where(f.col(column).isNotNull()).select(
            f.floor((f.col(column) - f.lit(first)) / f.lit(width)).cast("long").alias("point"),
            f.lit(what).alias("what"),
            f.lit(sign).cast("long").alias("change"),
        )
        union = part if union is None else union.unionByName(part)
    assert union is not None
    rows = union.groupBy("point", "what").agg(f.sum("change").alias("change")).collect()
    changes: dict[tuple[int, str], int] = {(row["point"], row["what"]): row["change"] for row in rows}
    points: list[dict[str, int]] = []
    now = {"messages": 0, "copies": 0}
    for point in range(min((p for p, _ in changes), default=0), max((p for p, _ in changes), default=-1) + 1):
        for what in now:
            now[what] += changes.get((point, what), 0)
        points.append({"at": first + point * width, **now})
    return points
