"""Journal copies on real nodes: made once, with the content that is there already, also if a disk is lost."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from scripted_hop import ScriptedHop, original
from sending import MESSAGE, sent
from stations import Station, boundary, eventually, station

from shadowrelay.core.events.reports import derived_id
from shadowrelay.core.messages import Copy, Role, Stage, Status
from shadowrelay.smtp.members.offer import OutgoingOffer

JOURNAL = "journal@archive.example"
LARGE = b"Subject: large\r\n\r\n" + (b"y" * 78 + b"\r\n") * 1000
LATER, OK = [b"451 4.3.2 later\r\n"], [b"250 2.1.0 ok\r\n"]


def routes(hop: ScriptedHop, archive: ScriptedHop, **changes: Any) -> dict[str, Any]:
    to = {"host": "127.0.0.1", "tls": "none"}
    return {
        "out": {"domains": ["*"], "port": hop.port, **to, **changes},
        "archive": {"domains": ["archive.example"], "port": archive.port, "inside": True, **to},
    }


def sent_to(hop: ScriptedHop, address: str) -> int:
    return sum(f"RCPT TO:<{address}>" in command for command in hop.commands)


async def settled(*stations: Station) -> bool:
    copies = [copy for one in stations for copy in await one.copies()]
    return all(copy.stage is Stage.SAFETY_NET for copy in copies)


def having(one: Station, count: int) -> Callable[[], Any]:
    async def condition() -> bool:
        return len(await one.copies()) == count

    return condition


async def by_id(one: Station) -> tuple[Copy, Copy]:
    """The message, and its journal copy."""
    first, second = sorted(await one.copies(), key=lambda copy: copy.content_of is not None)
    assert second.id == derived_id("journal", first.id, JOURNAL)
    return first, second


@pytest.mark.parametrize("octets", [MESSAGE, LARGE], ids=["small", "large"])
async def test_a_message_and_its_journal_copy_arrive_with_the_same_octets(
    tmp_path: Path, octets: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocks: list[int] = []
    write = OutgoingOffer.write

    async def written(offer: OutgoingOffer, data: bytes) -> None:
        blocks.append(len(data))
        await write(offer, data)

    async with (
        ScriptedHop() as hop,
        ScriptedHop(offers=("8BITMIME",), MAIL=LATER) as archive,
        boundary(tmp_path, "mx1", "mx2", routes=routes(hop, archive), journal=JOURNAL) as (owner, holder),
    ):
        assert (await sent(owner, octets, "b@example.net", "c@example.net")).startswith("250 ")
        monkeypatch.setattr(OutgoingOffer, "write", written)
        owner.run_queue()
        holder.run_links()
        await eventually(having(owner, 2))
        message, journal = await by_id(owner)
        assert message.stage is Stage.SAFETY_NET
        assert {one.journal for one in message.recipients} == {journal.id}
        assert await owner.rows("discard_event") == 0  # the holder is not told yet
        owner.run_repair()
        await eventually(having(holder, 2))
        held, copied = await by_id(holder)
        await eventually(lambda: message_is_settled(holder))
        assert not any(one.waits for one in (await by_id(owner))[0].recipients)
        assert (copied.held, copied.content_of, blocks) == (True, held.id, [])
        assert (await holder.rows("content"), await holder.rows("shared_content")) == (1, 1)
        archive.script["MAIL"] = OK
        await eventually(lambda: settled(owner, holder))
        (kept,) = archive.contents
        assert original(kept) == original(hop.contents[0]) == await owner.octets(message.id)
        assert sent_to(archive, JOURNAL) == 1
        assert [one.status for one in (await by_id(owner))[1].recipients] == [Status.DELIVERED]
        rows = [row for row in await owner.tracked() if row["source"] == "AGENT"]
        assert [(row["event-id"], row["reference"], row["recipient-address"]) for row in rows] == [
            ("RECEIVE", message.id, JOURNAL)
        ]
        assert "MAIL FROM:<>" in " ".join(archive.commands)


async def message_is_settled(holder: Station) -> bool:
    return (await by_id(holder))[0].stage is Stage.SAFETY_NET


async def test_a_route_can_have_another_journal_or_none(tmp_path: Path) -> None:
    async with ScriptedHop() as hop, ScriptedHop() as archive:
        ways = routes(hop, archive, journal="out@archive.example")
        ways["plain"] = {**ways["out"], "domains": ["plain.example"], "journal": ""}
        async with boundary(tmp_path, "mx1", "mx2", routes=ways, journal=JOURNAL) as (owner, _):
            await sent(owner, MESSAGE, "b@plain.example")
            await sent(owner, MESSAGE, "b@example.net")
            await sent(owner, MESSAGE, "b@archive.example")
            owner.run_queue()
            await eventually(having(owner, 5))
            await eventually(lambda: settled(owner))
            assert [sent_to(archive, a) for a in (JOURNAL, "out@archive.example", "b@archive.example")] == [
                1,
                1,
                1,
            ]


async def test_a_bounced_message_is_journaled_and_its_report_is_not(tmp_path: Path) -> None:
    async with (
        ScriptedHop(RCPT=[b"550 5.1.1 nobody\r\n", *OK]) as hop,
        ScriptedHop() as archive,
        boundary(tmp_path, "mx1", "mx2", routes=routes(hop, archive), journal=JOURNAL) as (owner, _),
    ):
        await sent(owner, MESSAGE)
        owner.run_queue()
        await eventually(having(owner, 3))
        await eventually(lambda: settled(owner))
        assert sent_to(archive, JOURNAL) == len(archive.contents) == 1
        assert sorted(await owner.events())[:2] == ["DSN", "FAIL"]


@asynccontextmanager
async def a_disk_to_be_lost(
    tmp_path: Path,
) -> AsyncIterator[tuple[ScriptedHop, ScriptedHop, Station, Station, Callable[[], Awaitable[None]]]]:
    """A next hop, a journal that takes nothing yet, owner and holder, and what loses the owner's disk."""
    async with AsyncExitStack() as stack:
        hop = await stack.enter_async_context(ScriptedHop())
        archive = await stack.enter_async_context(ScriptedHop(offers=("8BITMIME",), MAIL=LATER))
        changes = {"routes": routes(hop, archive), "journal": JOURNAL}
        owner, holder = await stack.enter_async_context(boundary(tmp_path, "mx1", "mx2", **changes))

        async def lost() -> None:
            """It comes back with an empty one."""
            await owner.quiet()
            for connector in owner.connectors:
                await connector.stop(0)
            back = await station(tmp_path / "new", "mx1", ["mx2"], disk=1, **changes)
            stack.push_async_callback(back.stop)
            back.knows(holder)
            holder.knows(back)
            back.run_links()

        yield hop, archive, owner, holder, lost


async def test_the_disk_of_the_owner_is_lost_before_the_journal_copy_is_safe(tmp_path: Path) -> None:
    """Nothing is lost, and the journal has one copy, whichever node made it."""
    async with a_disk_to_be_lost(tmp_path) as (hop, archive, owner, holder, lost):
        await sent(owner, MESSAGE)
        owner.run_queue()
        holder.run_links()
        await eventually(having(owner, 2))
        await eventually(lambda: sent_to(hop, "b@example.net") == 1)
        _, made = await by_id(owner)
        assert [one.held for one in await holder.copies()] == [True]
        await lost()
        holder.run_reconcile()
        holder.run_queue()
        holder.run_repair()
        await eventually(having(holder, 2))
        archive.script["MAIL"] = OK
        await eventually(lambda: settled(holder))
        message, journal = await by_id(holder)
        assert (message.role, message.epoch) == (Role.PRIMARY, 2)
        assert journal.id == made.id
        assert sent_to(hop, "b@example.net") == 2  # nobody knew of the first delivery
        assert len(archive.contents) == sent_to(archive, JOURNAL) == 1
        assert original(archive.contents[0]) == await holder.octets(message.id)
        rows = [row["event-id"] for row in await holder.tracked() if row["source"] == "AGENT"]
        assert rows == ["RECEIVE"]


async def test_the_owner_is_lost_after_the_journal_copy_is_safe(tmp_path: Path) -> None:
    """The holder has both: what is delivered is not sent again, and it sends the journal copy."""
    async with a_disk_to_be_lost(tmp_path) as (hop, archive, owner, holder, lost):
        await sent(owner, MESSAGE)
        owner.run_queue()
        owner.run_repair()
        holder.run_links()
        await eventually(having(holder, 2))
        await eventually(lambda: message_is_settled(holder))
        await lost()
        archive.script["MAIL"] = OK
        holder.run_reconcile()
        holder.run_queue()
        holder.run_repair()
        await eventually(lambda: settled(holder))
        message, journal = await by_id(holder)
        assert (journal.role, journal.content_of) == (Role.PRIMARY, message.id)
        assert (sent_to(hop, "b@example.net"), len(archive.contents)) == (1, 1)
        assert original(archive.contents[0]) == await holder.octets(message.id)
