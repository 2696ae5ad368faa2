"""The opening of a node's database: how long it may take, and what goes on meanwhile."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest
from stations import station

from shadowrelay.core.decisions import Chore, ChoreKind, Decision
from shadowrelay.errors import NodeFailed
from shadowrelay.members.chores import Chores
from shadowrelay.service.running import opened


async def test_an_opening_that_takes_too_long_ends_the_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def hang(_: Chores) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(Chores, "finish", hang)
    found = await station(tmp_path, "mx1", [], opening_timeout="1s")
    found.node.opening = True
    began = time.monotonic()
    try:
        with pytest.raises(NodeFailed, match=r"took longer than opening_timeout \(1 s\)"):
            await opened(found.node)
        assert time.monotonic() - began < 4.0
        assert found.node.opening
    finally:
        await found.stop()


async def test_an_opening_ends_with_everything_marked_and_nothing_left_behind(tmp_path: Path) -> None:
    found = await station(tmp_path, "mx1", [])
    stray = found.node.spool / "nobodys.eml"
    stray.write_bytes(b"x")
    left = Chore(ChoreKind.REOPENED, found.name, found.clock())
    await found.read(lambda ledger: ledger.apply(Decision(None, (left,))))
    found.node.opening = found.node.inquiry.opening = True
    try:
        await opened(found.node)
        assert not found.node.opening
        assert not found.node.inquiry.opening  # members are asked from now on
        assert not found.database.ledger.chores
        assert not stray.exists()
    finally:
        await found.stop()
