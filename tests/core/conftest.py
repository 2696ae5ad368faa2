"""The message at hand: nothing of it on A, and a copy on B."""

from __future__ import annotations

import pytest
from ledger_at_hand import A, B, Books, books, message

from shadowrelay.core.messages import Role


@pytest.fixture
def on_a() -> Books:
    return books(A)


@pytest.fixture
def on_b() -> Books:
    return books(B, message(Role.SHADOW))
