"""A connection that is reset before and after each octet of the replies that come back on it."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from receiving import RawClient
from scripted_hop import DEFAULTS, ScriptedHop
from sending import MESSAGE, sender, sent
from stations import Station, boundary, eventually, station
from ways import way

from shadowrelay.core.identifiers import MessageId
from shadowrelay.core.messages import Stage


async def ids(of: Station) -> set[MessageId]:
    return {copy.id for copy in await of.copies()}


async def sent_anew(owner: Station, holder: Station) -> str:
    """A message for which the holder has to be connected to."""
    await owner.node.members.close()
    await eventually(lambda: holder.name in owner.node.boundary.reachable())
    return await sent(owner, MESSAGE)


@pytest.mark.parametrize("attempts", [1, pytest.param(2, marks=pytest.mark.slow)])
async def test_between_owner_and_holder_a_250_is_two_copies_and_a_451_is_none(
    tmp_path: Path, attempts: int
) -> None:
    strict = {"reject_message_on_shadow_failure": True, "max_retries_for_local_site_shadow": attempts}
    strict["shadow_retry_interval"] = "10ms"
    async with boundary(tmp_path, "mx1", "mx2", **strict) as (owner, holder), way(holder.peer_port) as there:
        owner.knows(replace(holder, peer_port=there.port))
        told: list[str] = []
        assert (await sent_anew(owner, holder)).startswith("250 ")
        octets = there.came_back
        assert octets > 300
        for limit in range(octets + 1):
            ours, theirs = await ids(owner), await ids(holder)
            there.limits = [limit]
            reply = await sent_anew(owner, holder)
            told.append(reply[:3])
            accepted, copied = await ids(owner) - ours, await ids(holder) - theirs
            match reply[:3]:
                case "250":
                    assert len(accepted) == 1
                    assert accepted <= copied, limit
                case "451":
                    assert not accepted
                    assert not copied, limit
                case _:
                    assert reply == ""
                    assert not accepted, limit
        assert ("451" in told) is (attempts == 1)
        assert attempts == 1 or set(told) == {"250"}


async def test_at_the_next_hop_everything_arrives_and_twice_only_what_it_had_taken(tmp_path: Path) -> None:
    async with ScriptedHop() as hop, way(hop.port) as there:
        route = {"domains": ["*"], "host": "127.0.0.1", "port": there.port, "tls": "none"}
        found = await station(tmp_path, "mx1", [], routes={"out": route})
        try:
            await sent(found, MESSAGE)
            found.run_queue()
            await eventually(lambda: settled(found))
            octets = there.came_back
            there.limits = list(range(octets))
            for _ in range(octets):
                await sent(found, MESSAGE)
            await eventually(lambda: settled(found), within=120)
            assert not there.limits
            assert len(await found.copies()) == octets + 1
            # Twice: those that were reset after an octet of the reply to their content, but not its last one.
            assert len(hop.contents) == octets + 1 + len(DEFAULTS["DOT"]) - 1
        finally:
            await found.stop()


async def by_data(client: RawClient) -> str:
    """The reply to the content; '' if the connection ended before it was there."""
    if not (await client.begin()).startswith("250 ") or not (await client.say("DATA")).startswith("354 "):
        return ""
    client.writer.write(MESSAGE + b".\r\n")
    return await client.reply()


async def test_to_the_sender_what_was_answered_is_delivered_once_and_before_the_dot_nothing_is_kept(
    tmp_path: Path,
) -> None:
    async with ScriptedHop() as hop:
        route = {"domains": ["*"], "host": "127.0.0.1", "port": hop.port, "tls": "none"}
        async with (
            boundary(tmp_path, "mx1", "mx2", routes={"out": route}) as (owner, holder),
            way(owner.port) as there,
        ):
            through = replace(owner, port=there.port)
            async with sender(through) as client:
                last = await by_data(client)
            before_the_dot = there.came_back - len(f"{last}\r\n")
            octets = there.came_back
            assert last.startswith("250 ")
            assert before_the_dot > 200
            for limit in range(octets):
                ours = await ids(owner)
                there.limits = [limit]
                with suppress(ConnectionError):
                    async with sender(through) as client:
                        assert await by_data(client) == ""
                accepted = await ids(owner) - ours
                assert len(accepted) == (limit > before_the_dot), limit
                assert await ids(owner) == await ids(holder)
            owner.run_queue()
            await eventually(lambda: settled(owner), within=60)
            assert len(hop.contents) == 1 + octets - before_the_dot - 1


@pytest.mark.slow
async def test_on_the_way_back_from_a_poll_each_event_arrives_and_is_applied_once(tmp_path: Path) -> None:
    async with ScriptedHop() as hop:
        route = {"domains": ["*"], "host": "127.0.0.1", "port": hop.port, "tls": "none"}
        never = {"orphan_check_interval": "1h"}  # what is asked about would hide what was not told
        async with (
            boundary(tmp_path, "mx1", "mx2", routes={"out": route}, **never) as (owner, holder),
            way(owner.peer_port) as there,
        ):
            holder.knows(replace(owner, peer_port=there.port))
            owner.run_queue()
            await polled(owner, holder)
            octets = there.came_back
            assert octets > 300
            for limit in range(octets):
                there.limits = [limit]
                await polled(owner, holder)
            assert (await holder.events()).count("HADISCARD") == octets + 1
            assert len(hop.contents) == octets + 1


async def polled(owner: Station, holder: Station) -> None:
    """A message is delivered, and its holder hears of it on new sessions, and says that it did."""
    (link,) = holder.node.links.values()
    await sent(owner, MESSAGE)
    await eventually(lambda: done(owner))
    talk = asyncio.ensure_future(link.run())

    async def heard() -> bool:
        link.wake.set()  # a member that was not reached is let rest for a heartbeat
        untold = await owner.read(lambda ledger: ledger.events_for(holder.database.lineage.database_id, 1))
        return not untold and await done(holder)

    await eventually(heard)
    talk.cancel()
    await asyncio.gather(talk, return_exceptions=True)


async def settled(found: Station) -> bool:
    """Asked again and again: meanwhile time flies, so that the hop is not let rest for long."""
    found.clock.ahead += timedelta(seconds=2)
    found.node.queue.wake.set()
    return await done(found)


async def done(found: Station) -> bool:
    """Nothing waits. Asked hundreds of times, so copies are not read for it."""
    waiting = "SELECT count(*) FROM message WHERE stage != ?"
    return await found.read(
        lambda ledger: ledger.connection.execute(waiting, (Stage.SAFETY_NET,)).fetchone() == (0,)
    )
