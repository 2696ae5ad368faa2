"""What others publish of their relays, beside what a 250 means there: as published, not as measured here."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Published:
    """One figure of somebody else, word for word where that is short, and where it stands."""

    who: str
    measure: str
    unit: str
    figure: str  # "none found" where no figure was found
    means: str  # what a 250 means there
    source: str  # of the figure, or of what a 250 means

    def cells(self) -> tuple[str, ...]:
        """Measure, unit, figure with its source, what a 250 means."""
        return f"{self.who}: {self.measure}", self.unit, f"[{self.figure}]({self.source})", self.means


_NITRO = "https://github.com/nitrosend/nitromta/releases/tag/v0.1.3"
_ONE_DISK = "on one disk (each message is committed to disk before it is accepted)"

PUBLISHED = (
    Published("NitroMTA 0.1.3", "AWS c7gd.metal", "messages/s", "3,313", _ONE_DISK, _NITRO),
    Published("KumoMTA, by NitroMTA's authors", "AWS c7gd.metal", "messages/s", "1,048", _ONE_DISK, _NITRO),
    Published("Postfix, by NitroMTA's authors", "AWS c7gd.metal", "messages/s", "806", _ONE_DISK, _NITRO),
    Published(
        "KumoMTA 2025.05.06",
        "AWS c5n.2xlarge, 8 cores, 100 KB",
        "messages/hour",
        "nearly 3.3 million delivered",
        "in the spool of one machine, RocksDB with a write-ahead log; synced with each write only where "
        "[`flush`](https://docs.kumomta.com/reference/kumo/define_spool/) is on, which it is not as it ships",
        "https://kumomta.com/blog/kumomta-performance-update",
    ),
    Published(
        "Stalwart",
        "any",
        "–",
        "none found",
        "in its data store: of one machine (RocksDB, SQLite), or one that is shared (FoundationDB, "
        "PostgreSQL, MySQL). How it is synced was not found either",
        "https://stalw.art/docs/storage/data/",
    ),
)
"""Looked for in November 2026."""
