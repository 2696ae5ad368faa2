"""The shadow session while the sender is still talking."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from sending import MESSAGE, sender
from stations import boundary, eventually

from shadowrelay.core.identifiers import ServerName
from shadowrelay.primary import shadowing
from shadowrelay.smtp.peer_client import PeerConnection

LARGE = b"Subject: large\r\n\r\n" + (b"x" * 70 + b"\r\n") * 5000


async def test_the_shadow_session_is_opened_at_mail(tmp_path: Path) -> None:
    async with boundary(tmp_path, "mx1", "mx2") as (owner, holder):
        members = holder.connectors[0]
        async with sender(owner) as client:
            await client.say("EHLO client.example")
            assert members.sessions == 0
            assert (await client.say("MAIL FROM:<a@example.org>")).startswith("250 ")
            await eventually(lambda: members.sessions == 1)
            await eventually(lambda: owner.name in holder.node.boundary.reachable())


@pytest.mark.parametrize("content", [MESSAGE, LARGE])
async def test_who_begins_messages_and_never_ends_them_takes_few_sessions_with_the_shadow_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes
) -> None:
    monkeypatch.setattr(shadowing, "EARLY_SESSIONS", 2)
    peer = {"peer": {"max_inbound_connection": 4}}
    async with boundary(tmp_path, "mx1", "mx2", own={"mx2": peer}) as (owner, holder):
        members = holder.connectors[0]
        async with AsyncExitStack() as stack:
            for _ in range(8):
                waiting = await stack.enter_async_context(sender(owner))
                await waiting.say("EHLO client.example")
                assert (await waiting.say("MAIL FROM:<a@example.org>")).startswith("250 ")
            await eventually(lambda: members.sessions == 2)
            async with sender(owner) as client:
                assert (await client.begin()).startswith("250 ")
                assert (await client.content(content)).startswith("250 ")
            assert len(await holder.copies()) == 1
        await eventually(lambda: not +owner.node.members.early)
        async with sender(owner) as client:
            assert (await client.begin()).startswith("250 ")
            assert +owner.node.members.early
            assert (await client.content(content)).startswith("250 ")
            assert not +owner.node.members.early
        assert len(await holder.copies()) == 2


async def test_who_takes_messages_back_has_few_sessions_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shadowing, "EARLY_SESSIONS", 2)
    async with boundary(tmp_path, "mx1", "mx2") as (owner, holder), sender(owner) as client:
        members, dialled = owner.node.members, []
        dial = members.dial

        async def counted(name: ServerName, timeout: float) -> PeerConnection:
            dialled.append(name)
            return await dial(name, timeout)

        monkeypatch.setattr(members, "dial", counted)
        await client.say("EHLO client.example")
        for _ in range(20):
            assert (await client.say("MAIL FROM:<a@example.org>")).startswith("250 ")
            assert (await client.say("RSET")).startswith("250 ")
        await eventually(lambda: not +members.early)
        assert 1 <= len(dialled) <= 2
        assert (await client.begin()).startswith("250 ")
        assert (await client.content(MESSAGE)).startswith("250 ")
        assert len(dialled) <= 2
        assert len(await holder.copies()) == 1
