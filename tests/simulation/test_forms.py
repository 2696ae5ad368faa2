"""Each row that a node writes has the form that the audit asks of its event."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest

from shadowaudit.core.events import entries_of
from shadowaudit.core.forms import CELLS, DIGESTS, FORMS, marks, named, unfit
from shadowrelay.core.decisions import Decision
from shadowrelay.tracking.format import SCHEMA_VERSION

from .memory_ledger import MemoryLedger
from .seeds import run_seed


def of(row: Mapping[str, str]) -> str:
    """What keeps it from being one."""
    own = entries_of(row.get("custom-data", ""))
    event, source = row["event-id"], row["source"]
    has = {name for name in CELLS if row.get(name)} | named(own) | marks(event, row.get("source-context", ""))
    has |= {DIGESTS} if "Content" in own else set()
    return unfit(event, source, SCHEMA_VERSION, has)


def test_each_row_of_the_relay_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    told: Counter[tuple[str, str]] = Counter()
    odd: list[tuple[str, Any]] = []
    apply = MemoryLedger.apply

    def applied(self: MemoryLedger, decision: Decision[Any]) -> Any:
        for event in decision.events:
            row = event.columns()
            told[row["event-id"], row["source"]] += 1
            if problem := of(row):
                odd.append((problem, row))
        return apply(self, decision)

    monkeypatch.setattr(MemoryLedger, "apply", applied)
    for seed in range(40):
        run_seed(seed)
    assert odd == []
    assert len(told) >= 15
    assert set(told) <= {(form.event.value, form.source) for form in FORMS}
