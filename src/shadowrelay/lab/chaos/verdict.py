"""Jepsen's arithmetic of queues (total-queue): what was acknowledged, what may have been, what arrived."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

Delivery = tuple[str, str]
"""Message-ID and recipient: what is owed, and what arrives, once for each recipient."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Everything is counted once for each recipient, and as often as it happened."""

    acknowledged: int
    attempted: int
    delivered: int
    lost: Counter[Delivery]  # acknowledged and not arrived
    unexpected: Counter[Delivery]  # arrived, though never sent whole, or refused, or not as it was sent
    duplicated: Counter[Delivery]  # arrived more often than sent
    recovered: Counter[Delivery]  # arrived, though the sender never got an answer

    @property
    def held(self) -> bool:
        return not self.lost and not self.unexpected


def weigh(
    acknowledged: Counter[Delivery], attempted: Counter[Delivery], arrived: Counter[Delivery]
) -> Verdict:
    """``attempted`` counts every attempt that was not refused, those that were acknowledged among them."""
    unexpected = Counter({one: times for one, times in arrived.items() if one not in attempted})
    return Verdict(
        acknowledged=acknowledged.total(),
        attempted=attempted.total(),
        delivered=len(arrived.keys() & attempted.keys()),
        lost=acknowledged - arrived,
        unexpected=unexpected,
        duplicated=arrived - attempted - unexpected,
        recovered=(arrived & attempted) - acknowledged,
    )
