"""Judges a run as Jepsen judges queues (total-queue): what was acknowledged, attempted, and arrived."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass

Delivery = tuple[str, str]
"""Message-ID and recipient: each recipient of a message is one delivery."""


@dataclass(frozen=True, slots=True)
class ChaosVerdict:
    """Counts of deliveries, each as often as it happened."""

    acknowledged: int
    attempted: int
    delivered: int
    lost: Counter[Delivery]  # acknowledged and not arrived
    unexpected: Counter[Delivery]  # arrived, though never sent whole, or refused
    damaged: Counter[Delivery]  # arrived, and not as it was sent
    wrong_mailbox: Counter[Delivery]  # arrived at a recipient that its sender did not name
    duplicated: Counter[Delivery]  # arrived more often than sent
    recovered: Counter[Delivery]  # arrived, though the sender never got an answer

    @property
    def held(self) -> bool:
        return not (self.lost or self.unexpected or self.damaged or self.wrong_mailbox)


def weigh(
    acknowledged: Counter[Delivery],
    attempted: Counter[Delivery],
    arrived: Counter[Delivery],
    damaged: Counter[Delivery],
    addressed: Mapping[str, Collection[str]],
) -> ChaosVerdict:
    """Judge a run. ``attempted`` counts every attempt that was not refused, also those acknowledged.

    ``arrived`` is what came as it was sent, ``damaged`` the rest; ``addressed``: each message's recipients.
    """
    strange = Counter({one: times for one, times in arrived.items() if one not in attempted})
    wrong_mailbox = Counter(
        {one: times for one, times in strange.items() if one[1] not in addressed.get(one[0], (one[1],))}
    )
    return ChaosVerdict(
        acknowledged=acknowledged.total(),
        attempted=attempted.total(),
        delivered=len(arrived.keys() & attempted.keys()),
        lost=acknowledged - arrived,
        unexpected=strange - wrong_mailbox,
        damaged=damaged,
        wrong_mailbox=wrong_mailbox,
        duplicated=arrived - attempted - strange,
        recovered=(arrived & attempted) - acknowledged,
    )
