"""Each event loop that a node may run with."""

from __future__ import annotations

import asyncio

import pytest
from receiving import Loops


@pytest.fixture(params=["asyncio", "uvloop"])
def loops(request: pytest.FixtureRequest) -> Loops:
    if request.param == "asyncio":
        return asyncio.new_event_loop
    found: Loops = pytest.importorskip("uvloop").new_event_loop
    return found
