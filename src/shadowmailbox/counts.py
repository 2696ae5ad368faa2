"""What a mailbox service has done since its start."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime


@dataclass(slots=True)
class MailboxCounts:
    """Recipients, each counted once for each message that came for it; and sweeps of the table.

    ``refused``: by the class of the reply, 4 or 5. ``unrecorded``: delivered, but the table could not be
    written, so that a duplicate would not be known.
    """

    delivered: int = 0
    duplicates: int = 0
    refused: Counter[int] = field(default_factory=Counter)
    unrecorded: int = 0
    forgotten: int = 0  # rows, for an operator
    swept: int = 0  # rows
    swept_at: datetime | None = None
    sweeps_failed: int = 0
