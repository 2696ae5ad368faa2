"""Find rows whose reply does not fit their event. The exact pass judges them (``core.replies``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shadowaudit.core.events import listed
from shadowaudit.core.replies import accepted, refused
from shadowaudit.logs.cells import Cells

Truth = NDArray[np.bool_]


def unfitting(context: Cells, status: Cells, *, sent: Truth, failed: Truth, deferred: Truth) -> Truth:
    """Which deliveries, bounces and attempts have a reply or a recipient's status of another event?"""
    odd: Truth = sent | failed | deferred
    rows = np.flatnonzero(odd)
    odd[rows] = context.at(rows).begins(b"2") != sent[rows]
    rows = np.flatnonzero(sent)
    texts, of = status.at(rows).numbered()
    odd[rows] |= np.array([not accepted(listed(text)) for text in texts.texts()], dtype=np.bool_)[of]
    for row in np.flatnonzero(failed).tolist():
        odd[row] |= not refused(listed(status.text(row)))
    return odd


def elsewhere(
    context: Cells, copied: Truth, entries: Sequence[Mapping[str, str]], which: NDArray[Any]
) -> Truth:
    """Which rows HAREDIRECT do not begin with the good reply of the shadow server that they name?

    ``entries[which[row]]`` are a row's. A row that tells of attempts before the last one is among them.
    """
    odd = copied.copy()
    shadows = {one.get("Shadow", ""): number for number, one in enumerate(entries)}
    number = np.array([shadows[one.get("Shadow", "")] for one in entries])[which]
    for name, its in shadows.items():
        rows = np.flatnonzero(copied & (number == its))
        odd[rows] = ~context.at(rows).begins(f"{name}=2".encode())
    return odd
