"""The shadow session while the sender is still talking."""

from __future__ import annotations

from pathlib import Path

from sending import sender
from stations import boundary, eventually


async def test_the_shadow_session_is_opened_at_mail(tmp_path: Path) -> None:
    async with boundary(tmp_path, "mx1", "mx2") as (owner, holder):
        members = holder.connectors[0]
        async with sender(owner) as client:
            await client.say("EHLO client.example")
            assert members.sessions == 0
            assert (await client.say("MAIL FROM:<a@example.org>")).startswith("250 ")
            await eventually(lambda: members.sessions == 1)
            await eventually(lambda: owner.name in holder.node.boundary.reachable())
