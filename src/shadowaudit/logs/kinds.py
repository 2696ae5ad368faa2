"""Kinds of events as bits, row by row."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from shadowaudit.core.events import AGENT, PAST_A_HOP, ROUTING, SAFETY_NET, Kind
from shadowaudit.logs.cells import Long
from shadowaudit.logs.grid import Grid

KINDS = {kind: 1 << number for number, kind in enumerate(Kind)}
"""A bit for each kind: so a row is asked for several at once."""


def by_source(table: Grid, kind: Long) -> Long:
    """The kinds, once it is seen which RESUBMIT and RECEIVE begin a message of our own (``kind_by``)."""
    received = is_any(kind, Kind.RECEIVE) & (table["reference"].lengths > 0)
    rows = np.flatnonzero(is_any(kind, Kind.RESUBMIT) | received)
    if len(rows):
        sources, of = table["source"].at(rows).numbered()
        source = np.array(sources.texts())[of]
        kind[rows[(source == AGENT) & received[rows]]] = KINDS[Kind.JOURNAL]
        kind[rows[(source == ROUTING) & received[rows]]] = KINDS[Kind.MEMBERS]
        kind[rows[(source == SAFETY_NET) & ~received[rows]]] = KINDS[Kind.RESUBMITTED]
        references, of = table["reference"].at(rows).numbered()
        past = np.array([PAST_A_HOP in text for text in references.texts()])[of]
        kind[rows[past & (source != SAFETY_NET) & ~received[rows]]] = KINDS[Kind.SENT_AGAIN]
    return kind


def is_any(kind: Long, *kinds: Kind) -> NDArray[np.bool_]:
    """Where the row is of one of these kinds."""
    found: NDArray[np.bool_] = (kind & sum(KINDS[one] for one in kinds)) != 0
    return found
