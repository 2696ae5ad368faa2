"""An operator looks at the time of a node, and confirms it: by the API and by the command."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
from stations import MachineClocks, Station, station

from shadowrelay.admin.api import build_app

YEAR, MINUTE = timedelta(days=365), timedelta(minutes=1)


async def called(node: Station, method: str, path: str, body: dict[str, Any] | None = None) -> httpx.Response:
    app = build_app(node.node, token="secret", clock=node.node.clock)
    transport = httpx.ASGITransport(app=app)
    headers = {"authorization": "Bearer secret"}
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1", headers=headers) as client:
        return await client.request(method, f"/api/v1/{path}", json=body)


async def test_a_node_says_that_it_doubts_its_clock_until_an_operator_confirms_the_time(
    tmp_path: Path,
) -> None:
    clocks = MachineClocks()
    node = await station(tmp_path, "mx1", [], clocks=clocks)
    try:
        node.node.clock.confirm()  # it is known from before
        found = (await called(node, "GET", "time")).json()
        assert (found["doubts"], found["members"]) == ([], [])
        clocks.ahead = YEAR
        found = (await called(node, "GET", "time")).json()
        assert found["doubts"] == ["stepped"]
        assert round(found["stepped"]) == round(found["ahead"]) == YEAR.total_seconds()
        warning = (await called(node, "GET", "status")).json()["warning"]
        assert "the wall clock is in doubt: it has stepped by +31536000 s" in warning
        metrics = (await called(node, "GET", "../../metrics")).text
        assert "shadowrelay_clock_in_doubt 1.0" in metrics
        assert (await called(node, "POST", "time/confirm", {"operator": "ann"})).status_code == 400
        given = {"operator": "ann", "reason": "NTP was away"}
        found = (await called(node, "POST", "time/confirm", given)).json()
        assert found["doubts"] == []
        assert not (await called(node, "GET", "status")).json()["warning"]
        kept = await node.read(
            lambda ledger: ledger.connection.execute(
                "SELECT value FROM meta WHERE key = 'reckoning'"
            ).fetchone()[0]
        )
        assert round(json.loads(kept)["ahead"] / 1e6) == YEAR.total_seconds()
    finally:
        await node.stop()
