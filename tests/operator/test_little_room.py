"""A disk with little room is told of while the node still takes mail; the limit is that of the settings."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import httpx
import pytest
from stations import boundary
from test_jobs import running
from test_verbs_by_command import admin, command
from test_who_acts import console

# Of what is free: so much room is plenty, little, or too little, though others write to the disk meanwhile.
PLENTY, LITTLE, SHORT = 0.25, 0.7, 1.5


@pytest.mark.parametrize("part", [PLENTY, LITTLE, SHORT])
async def test_a_disk_with_little_room_is_a_warning_wherever_a_node_is_shown(
    tmp_path: Path, part: float
) -> None:
    minimum = int(shutil.disk_usage(tmp_path).free * part)
    async with (
        boundary(tmp_path, "mx1", minimum_free_disk=minimum) as (one,),
        admin(one) as url,
        console(one) as page,
        httpx.AsyncClient(base_url=url) as client,
    ):
        await running(one)
        takes_mail = one.node.room.admits()
        limit = f"mail is put off below {minimum / 2**20:,.0f} MiB (minimum_free_disk)"
        tree = json.loads((await command(url, "status", "--json")).stdout)
        told = {
            "command": (await command(url, "status")).stdout,
            "answer": tree["warning"],
            "Overview": await page("/"),
            "node": await page("/node"),
            "readiness": (await client.get("/healthz/ready")).json().get("warning", ""),
        }
        metrics = dict(
            line.split(" ") for line in (await client.get("/metrics")).text.splitlines() if line[0] != "#"
        )
        assert float(metrics["shadowrelay_minimum_free_disk_bytes"]) == minimum
        low = float(metrics["shadowrelay_free_disk_bytes"]) < 2 * minimum
    assert (takes_mail, low) == (part < 1, part >= LITTLE)
    warned = {where: "little room: " in text and limit in text for where, text in told.items()}
    assert set(warned.values()) == {part == LITTLE}, (warned, told)
