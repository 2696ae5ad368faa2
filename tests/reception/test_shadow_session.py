"""The shadow session while the sender is still talking."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from receiving import RawClient
from sending import MESSAGE, sender
from stations import Station, boundary, eventually

from shadowrelay.core.identifiers import ServerName
from shadowrelay.members.answering import AnsweringSession
from shadowrelay.reception import shadow_session
from shadowrelay.smtp.members.client import MemberConnection
from shadowrelay.smtp.receiving.connector import Connector
from shadowrelay.smtp.receiving.contract import Client
from shadowrelay.wire.esmtp import MailFrom, RcptTo

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
    monkeypatch.setattr(shadow_session, "EARLY_SESSIONS", 2)
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
    monkeypatch.setattr(shadow_session, "EARLY_SESSIONS", 2)
    async with boundary(tmp_path, "mx1", "mx2") as (owner, holder), sender(owner) as client:
        members, dialled = owner.node.members, []
        dial = members.dial

        async def counted(name: ServerName, timeout: float) -> MemberConnection:
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


# The envelope goes ahead of the content


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What happened, in its order: the recipients that a holder was told of; tests note theirs in it."""
    found: list[str] = []
    rcpt = AnsweringSession.rcpt

    async def noted(
        self: AnsweringSession, session: Client, mail: MailFrom, told: RcptTo, accepted: Sequence[RcptTo]
    ) -> object:
        found.append(told.address)
        return await rcpt(self, session, mail, told, accepted)

    monkeypatch.setattr(AnsweringSession, "rcpt", noted)
    return found


async def met(owner: Station) -> None:
    """One message goes through, so that a session with the holder is there."""
    async with sender(owner) as client:
        assert (await client.begin("first@example.net")).startswith("250 ")
        assert (await client.content(MESSAGE)).startswith("250 ")


DOTTED = MESSAGE + b".\r\n"


class Announced(NamedTuple):
    owner: Station
    holder: Station
    client: RawClient

    async def content(self) -> str:
        self.client.writer.write(DOTTED)
        return await self.client.reply()


@asynccontextmanager
async def announced(directory: Path, told: list[str], *recipients: str) -> AsyncIterator[Announced]:
    """A sender has said DATA, and the holder knows the recipients."""
    async with boundary(directory, "mx1", "mx2") as (owner, holder):
        await met(owner)
        async with sender(owner) as client:
            assert (await client.begin(*recipients)).startswith("250 ")
            assert (await client.say("DATA")).startswith("354 ")
            await eventually(lambda: len(told) == 1 + max(1, len(recipients)))
            yield Announced(owner, holder, client)


async def test_a_holder_knows_the_envelope_while_the_content_is_still_awaited(
    tmp_path: Path, told: list[str]
) -> None:
    async with announced(tmp_path, told, "b@example.net", "c@example.net") as found:
        assert told == ["first@example.net", "b@example.net", "c@example.net"]
        assert len(await found.holder.copies()) == 1
        assert (await found.content()).startswith("250 ")
        assert len(await found.holder.copies()) == 2
        assert len(told) == 3
        assert found.holder.connectors[0].sessions == 1


async def test_where_many_wait_for_contents_the_envelope_leaves_with_its_own(
    tmp_path: Path, told: list[str]
) -> None:
    async with boundary(tmp_path, "mx1", "mx2") as (owner, holder):
        await met(owner)
        async with sender(owner) as one, sender(owner) as two:
            assert (await two.begin("c@example.net")).startswith("250 ")
            assert (await one.begin("b@example.net")).startswith("250 ")
            assert (await one.say("DATA")).startswith("354 ")
            await holder.copies()
            told.append("content")
            one.writer.write(DOTTED)
            assert (await one.reply()).startswith("250 ")
            assert told == ["first@example.net", "content", "b@example.net"]
        assert len(await holder.copies()) == 2


async def replaced(members: Connector) -> None:
    """All sessions of that connector end, and it takes others."""
    await members.refuse(0)
    await eventually(lambda: members.sessions == 0)
    await members.admit()


@pytest.mark.parametrize("content", [MESSAGE, LARGE], ids=["small", "streams"])
async def test_a_session_that_ends_while_the_sender_talks_is_replaced(tmp_path: Path, content: bytes) -> None:
    async with boundary(tmp_path, "mx1", "mx2") as (owner, holder):
        await met(owner)
        async with sender(owner) as client:
            assert (await client.begin("b@example.net")).startswith("250 ")
            await replaced(holder.connectors[0])
            assert (await client.content(content)).startswith("250 ")
        assert len(await holder.copies()) == 2
        assert "HAREDIRECTFAIL" not in await owner.events()


async def test_a_session_that_ends_once_the_envelope_was_told_is_replaced(
    tmp_path: Path, told: list[str]
) -> None:
    async with announced(tmp_path, told) as found:
        await replaced(found.holder.connectors[0])
        assert (await found.content()).startswith("250 ")
        assert len(await found.holder.copies()) == 2
        assert "HAREDIRECTFAIL" not in await found.owner.events()


async def test_nothing_is_kept_of_an_envelope_whose_content_never_came(
    tmp_path: Path, told: list[str]
) -> None:
    async with announced(tmp_path, told) as found:
        found.client.writer.transport.abort()
        await eventually(lambda: found.holder.connectors[0].sessions == 0)
        await met(found.owner)
        assert len(await found.holder.copies()) == 2


async def test_a_member_that_is_drained_refuses_a_copy_that_was_announced_before(
    tmp_path: Path, told: list[str]
) -> None:
    async with announced(tmp_path, told) as found:
        found.holder.node.draining.active = True
        assert (await found.content()).startswith("250 ")
        assert len(await found.holder.copies()) == 1
        assert "HAREDIRECTFAIL" in await found.owner.events()
