"""The message at hand: nothing of it on A, and a copy on B."""

from __future__ import annotations

import pytest
from ledger_at_hand import A, B, LedgerAtHand, ledger_of, message

from shadowrelay.core.messages import Role


@pytest.fixture
def on_a() -> LedgerAtHand:
    return ledger_of(A)


@pytest.fixture
def on_b() -> LedgerAtHand:
    return ledger_of(B, message(Role.SHADOW))
