"""Mail that a hop tracks: our copy stays until it has delivered, and goes another way if it fails."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from receiving import MemoryReceiver, listening
from scripted_hop import ScriptedHop
from sending import MESSAGE, sent
from stations import Station, boundary, eventually, full
from test_queue import later
from tracked_hops import HOP, accepting, certificates, hop, leads, sending, telling

from shadowrelay.core.identifiers import NextHop
from shadowrelay.core.messages import Status
from shadowrelay.core.reckoning import Endings
from shadowrelay.safety_net.expiry import Expiry

TO = ("b@example.net", "c@example.net")


async def shadows(node: Station) -> int:
    return await node.rows("hop_shadow")


async def relayed(node: Station) -> bool:
    copies = await node.copies()
    return bool(copies) and all(one.settled for copy in copies for one in copy.recipients)


def port_of(connector: Any) -> int:
    port: int = connector.address[1]
    return port


async def hand_over(node: Station, edge: Station) -> None:
    """The sender hands a message to the hop, which keeps it: its queue does not run."""
    leads(node, edge.port)
    await sent(node, MESSAGE, *TO)
    node.run_queue()

    async def handed_over() -> bool:
        return bool(await edge.copies()) and await relayed(node)

    await eventually(handed_over)
    assert await shadows(node) == 1


async def asked(node: Station) -> bool:
    """Ask the hop, in a session of its own: does it track nothing of ours any more?"""
    await node.node.hop_shadows.heartbeat(HOP)
    return await shadows(node) == 0


async def fail(node: Station, times: int) -> None:
    for _ in range(times):
        await node.node.hop_shadows.heartbeat(HOP)


async def test_our_copy_is_the_shadow_of_the_hop_until_the_hop_has_delivered(tmp_path: Path) -> None:
    receiver = MemoryReceiver()
    async with listening(receiver) as end, sending(tmp_path) as node, hop(tmp_path, port_of(end)) as edge:
        await hand_over(node, edge)
        (copy,) = await node.copies()
        assert [one.status for one in copy.recipients] == [Status.RELAYED] * 2
        assert all(one.last_reply.endswith("Queued mail for delivery") for one in copy.recipients)
        assert not await asked(node)
        assert await node.node.hop_shadows.send_again(HOP) == 0
        edge.run_queue()
        await eventually(lambda: asked(node))
        assert (await node.events())[-1] == "HADISCARD"
        assert [len(kept.recipients) for kept in receiver.kept] == [2]


@pytest.mark.parametrize("named", ["mx2", "mx3"])
async def test_a_hop_in_a_secured_network_tracks_without_certificates(tmp_path: Path, named: str) -> None:
    """If the hop gives another name than the route has for it, its mail waits."""
    known = {"externally_secured": ["127.0.0.0/8"]}
    routes = {
        "edge": {
            "domains": ["*"],
            "host": "127.0.0.1",
            "port": 9,
            "tls": "none",
            "send_xshadow": [{"name": full(named)} | known],
        }
    }
    receive = {"accept_xshadow": [{"name": full("mx1")} | known]}
    receiver = MemoryReceiver()
    async with (
        listening(receiver) as end,
        sending(tmp_path, routes=routes) as node,
        hop(tmp_path, port_of(end), receive=receive) as edge,
    ):
        if named == "mx3":
            leads(node, edge.port)
            await sent(node, MESSAGE, *TO)
            node.run_queue()
            await eventually(lambda: put_off(node))
            assert not await edge.copies()
            return
        await hand_over(node, edge)
        edge.run_queue()
        await eventually(lambda: asked(node))
        assert [len(kept.recipients) for kept in receiver.kept] == [2]


async def test_an_idle_session_asks_what_the_hop_has_delivered(tmp_path: Path) -> None:
    receiver = MemoryReceiver()
    async with listening(receiver) as end, sending(tmp_path) as node, hop(tmp_path, port_of(end)) as edge:
        edge.run_queue()
        await hand_over(node, edge)

        async def discarded() -> bool:
            return await shadows(node) == 0

        async def talked() -> bool:
            return node.node.hop_conversations.watch(HOP).talked_at is not None

        await eventually(discarded)
        await eventually(talked)


async def test_a_session_asks_before_it_says_quit(tmp_path: Path) -> None:
    receiver = MemoryReceiver()
    async with listening(receiver) as end, sending(tmp_path) as node, hop(tmp_path, port_of(end)) as edge:
        await hand_over(node, edge)
        edge.run_queue()
        await eventually(lambda: relayed(edge))
        await node.node.queue.stop()
        assert await shadows(node) == 0


async def test_through_several_hops_each_copy_goes_when_the_next_hop_has_delivered(tmp_path: Path) -> None:
    made, receiver = certificates(tmp_path), MemoryReceiver()
    async with AsyncExitStack() as stack:
        end = await stack.enter_async_context(listening(receiver))
        last = await stack.enter_async_context(
            hop(tmp_path, port_of(end), name="mx3", receive=accepting(made, "mx2", own="mx3"))
        )
        between = await stack.enter_async_context(
            hop(tmp_path, routes={"edge": telling(made, last.port, "mx3", own="mx2")})
        )
        node = await stack.enter_async_context(sending(tmp_path))
        await hand_over(node, between)
        between.run_queue()
        await eventually(lambda: relayed(between))
        await eventually(lambda: asked(node))  # the next hop has it, and the last has not delivered
        assert not receiver.kept
        assert await shadows(between) == 1
        last.run_queue()

        async def delivered() -> bool:
            await between.node.hop_shadows.heartbeat(full("mx3"))
            return await shadows(between) == 0

        await eventually(delivered)
        assert len(receiver.kept) == 1


# The hop fails


async def test_a_hop_that_comes_back_with_another_database_gets_its_mail_again(tmp_path: Path) -> None:
    receiver = MemoryReceiver()
    async with listening(receiver) as end, sending(tmp_path) as node:
        async with hop(tmp_path) as edge:
            await hand_over(node, edge)
            await node.node.queue.stop()
            await node.quiet()
        (tmp_path / "mx2").rename(tmp_path / "lost")
        async with hop(tmp_path, port_of(end), disk=1) as again:
            leads(node, again.port)
            await node.node.hop_shadows.heartbeat(HOP)
            assert await node.node.hop_shadows.send_again(HOP) == 1
            assert await shadows(node) == 0
            first, new = await node.copies()
            assert (new.owned, new.content_of) == (True, first.id)
            assert (await node.tracked())[-1]["source-context"] == "database-replaced"
            assert await node.octets(new.id) == await node.octets(first.id)


async def test_a_silent_hop_is_waited_for_if_there_is_no_other_way(tmp_path: Path) -> None:
    async with sending(tmp_path, shadow_heartbeat_retry_count=2) as node:
        async with hop(tmp_path) as edge:
            await hand_over(node, edge)
            await node.node.queue.stop()
        await fail(node, 5)
        assert await node.node.hop_shadows.send_again(HOP) == 0
        assert await shadows(node) == 1


@pytest.mark.parametrize("answers", [True, False])
async def test_a_heartbeat_that_fails_names_the_address_of_the_hop_and_no_other(
    tmp_path: Path, *, answers: bool
) -> None:
    async with ScriptedHop() as other, sending(tmp_path) as node:
        async with hop(tmp_path) as edge:
            await hand_over(node, edge)
            await node.node.queue.stop()
        elsewhere = other.port if answers else 9  # shows no certificate, or refuses the connection
        leads(node, elsewhere, edge.port)
        await fail(node, 1)
        error = node.node.hop_conversations.watch(HOP).error
        assert error.startswith(f"127.0.0.1:{edge.port}: connect: ")
        assert f":{elsewhere}:" not in error


async def test_a_hop_that_is_given_up_is_passed_by_on_another_host(tmp_path: Path) -> None:
    """The new message does not go to the host where the hop was, though that one takes other mail."""
    async with (
        ScriptedHop() as other,
        ScriptedHop() as there,
        sending(tmp_path, shadow_heartbeat_retry_count=3) as node,
    ):
        async with hop(tmp_path) as edge:
            await hand_over(node, edge)
            for outbound in node.node.queue.hops.values():
                outbound.idle.clear()
        leads(node, there.port, other.port)
        node.node.hop_conversations.met_at[HOP] = {("127.0.0.1", there.port)}
        stage = node.node.hop_shadows
        await fail(node, 2)
        assert await stage.send_again(HOP) == 0
        await fail(node, 1)
        assert await stage.send_again(HOP) == 1
        assert await shadows(node) == 0
        assert (await node.tracked())[-1]["source-context"] == "heartbeat-lost"
        await eventually(lambda: relayed(node))
        assert (len(there.contents), len(other.contents)) == (0, 1)
        await sent(node, MESSAGE, *TO)
        await eventually(lambda: relayed(node))
        assert (len(there.contents), len(other.contents)) == (1, 1)


async def test_the_other_host_tracks_and_the_shadow_queue_has_its_name_from_then_on(tmp_path: Path) -> None:
    made = certificates(tmp_path)
    routes = {"edge": telling(made, 9, "mx2", "mx3")}
    async with sending(tmp_path, routes=routes, shadow_heartbeat_retry_count=1) as node:
        async with hop(tmp_path) as edge:
            await hand_over(node, edge)
            for outbound in node.node.queue.hops.values():
                outbound.idle.clear()
            gone = edge.port
        async with hop(tmp_path, name="mx3", receive=accepting(made, "mx1", own="mx3")) as other:
            leads(node, gone, other.port)
            node.node.hop_conversations.met_at[HOP] = {("127.0.0.1", gone)}
            await fail(node, 1)
            assert await node.node.hop_shadows.send_again(HOP) == 1

            async def there() -> bool:
                return len(await other.copies()) == 1 and await relayed(node)

            await eventually(there)
            names = "SELECT hop FROM hop_shadow"
            assert await node.read(lambda ledger: ledger.connection.execute(names).fetchall()) == [
                (full("mx3"),)
            ]


async def given_up(node: Station, tmp_path: Path, port: int) -> None:
    """The hop was given up at that port. A second host was well then, and is gone by now."""
    async with hop(tmp_path) as edge:
        await hand_over(node, edge)
        for outbound in node.node.queue.hops.values():
            outbound.idle.clear()
    async with ScriptedHop() as other:
        leads(node, port, other.port)
        node.node.hop_conversations.met_at[HOP] = {("127.0.0.1", port)}
        await fail(node, 1)


async def put_off(node: Station) -> bool:
    return "DEFER" in await node.events()


async def test_a_message_without_another_host_waits_alone_until_the_avoided_one_takes_mail(
    tmp_path: Path,
) -> None:
    async with ScriptedHop() as there, sending(tmp_path, shadow_heartbeat_retry_count=1) as node:
        await given_up(node, tmp_path, there.port)
        assert await node.node.hop_shadows.send_again(HOP) == 1
        await eventually(lambda: put_off(node))
        outbound = node.node.queue.hops[NextHop("edge")]
        assert (outbound.failures, outbound.retry_at, there.contents) == (0, None, [])
        await sent(node, MESSAGE, *TO)
        await eventually(lambda: len(there.contents) == 1)
        later(node, timedelta(hours=1))
        await eventually(lambda: relayed(node))
        assert len(there.contents) == 2


async def test_a_message_goes_past_no_host_where_there_is_no_other(tmp_path: Path) -> None:
    async with ScriptedHop() as there, sending(tmp_path, shadow_heartbeat_retry_count=1) as node:
        await given_up(node, tmp_path, there.port)
        assert await node.node.hop_shadows.send_again(HOP) == 1
        await eventually(lambda: put_off(node))
        leads(node, there.port)
        later(node, timedelta(hours=1))
        await eventually(lambda: relayed(node))
        assert len(there.contents) == 1


async def test_a_hop_is_found_and_passed_by_though_its_route_was_renamed(tmp_path: Path) -> None:
    made = certificates(tmp_path)
    async with ScriptedHop() as other, AsyncExitStack() as stack, AsyncExitStack() as until:
        edge = await until.enter_async_context(hop(tmp_path))
        async with sending(tmp_path, edge.port) as node:
            await hand_over(node, edge)
        renamed = telling(made, edge.port, "mx2")
        renamed["hosts"] = [f"127.0.0.1:{renamed.pop('port')}", f"{renamed.pop('host')}:{other.port}"]
        changes: dict[str, Any] = {"routes": {"renamed": renamed}, "shadow_heartbeat_retry_count": 1}
        node = await stack.enter_async_context(sending(tmp_path, disk=1, **changes))
        await fail(node, 1)
        assert not node.node.hop_conversations.watch(HOP).failures
        node.run_queue()
        node.run_reconcile()  # what is sent again is asked about: the process before may have sent it
        await until.aclose()
        await fail(node, 1)
        assert await node.node.hop_shadows.send_again(HOP) == 1
        await eventually(lambda: relayed(node))
        assert len(other.contents) == 1


async def test_a_hop_that_was_given_up_and_is_back_keeps_what_it_takes(tmp_path: Path) -> None:
    async with ScriptedHop() as other, sending(tmp_path, shadow_heartbeat_retry_count=1) as node:
        async with hop(tmp_path) as edge:
            await hand_over(node, edge)
            for outbound in node.node.queue.hops.values():
                outbound.idle.clear()
        leads(node, edge.port, other.port)
        await fail(node, 1)
        assert await node.node.hop_shadows.send_again(HOP) == 1
        await eventually(lambda: relayed(node))
        async with hop(tmp_path, disk=1) as back:
            leads(node, back.port, other.port)
            await sent(node, MESSAGE, *TO)
            await eventually(lambda: relayed(node))
            assert await shadows(node) == 1
            assert await node.node.hop_shadows.send_again(HOP) == 0
            assert len(other.contents) == 1


async def test_the_stage_asks_by_itself_and_passes_a_silent_hop_by(tmp_path: Path) -> None:
    quick = {"shadow_heartbeat_timeout_interval": "1s", "shadow_heartbeat_retry_count": 1}
    async with ScriptedHop() as other, sending(tmp_path, **quick) as node:
        async with hop(tmp_path) as edge:
            await hand_over(node, edge)
            node.run(node.node.hop_shadows.run())

            async def answered() -> bool:
                return node.node.hop_conversations.watch(HOP).talked_at is not None

            await eventually(answered)
            leads(node, edge.port, other.port)
        await eventually(lambda: len(other.contents) == 1)
        assert await shadows(node) == 0


async def test_a_content_that_was_damaged_meanwhile_is_not_sent_again(tmp_path: Path) -> None:
    async with ScriptedHop() as other, sending(tmp_path, shadow_heartbeat_retry_count=1) as node:
        async with hop(tmp_path) as edge:
            await hand_over(node, edge)
            await node.node.queue.stop()
            leads(node, edge.port, other.port)
        await fail(node, 1)
        await node.read(
            lambda ledger: ledger.connection.execute("UPDATE content SET data = data || x'00'").rowcount
        )
        assert await node.node.hop_shadows.send_again(HOP) == 0
        assert await shadows(node) == 1


async def test_a_node_killed_after_the_hops_250_makes_no_duplicate(tmp_path: Path) -> None:
    """The mail goes again under the same id and numbers, and the hop has it already."""
    receiver = MemoryReceiver()
    async with listening(receiver) as end, hop(tmp_path, port_of(end)) as edge:
        async with sending(tmp_path) as node:
            leads(node, edge.port)
            await sent(node, MESSAGE, *TO)

            async def never(*_: Any) -> None:
                await asyncio.Event().wait()

            queue: Any = node.node.queue
            queue._settle = never
            node.run_queue()
            await eventually(edge.copies)
        async with sending(tmp_path, disk=1) as node:
            leads(node, edge.port)
            node.run_reconcile()
            node.run_queue()
            await eventually(lambda: relayed(node))
            assert await shadows(node) == 1
            assert len(await edge.copies()) == 1
            edge.run_queue()
            await eventually(lambda: asked(node))
            assert len(receiver.kept) == 1


# Age


async def test_safety_net_keeps_what_the_hop_has_not_delivered_until_age_decides(
    tmp_path: Path,
) -> None:
    async with sending(tmp_path) as node, hop(tmp_path) as edge:
        await hand_over(node, edge)
        policy = node.node.policy
        expiry = Expiry(node.database, policy, lambda: Endings(node.wall()), lambda: ())
        node.wall.ahead = policy.safety_net_hold_time + timedelta(hours=1)
        await node.read(expiry._sweep)
        assert await shadows(node) == len(await node.copies()) == 1
        node.wall.ahead += policy.message_expiration_timeout
        await node.read(expiry._sweep)
        assert (await node.tracked())[-1]["source-context"].startswith("Expired;")
        await node.read(expiry._sweep)
        assert await shadows(node) == len(await node.copies()) == 0


# Who is told to track


async def test_a_hop_that_does_not_show_the_pinned_certificate_gets_nothing(tmp_path: Path) -> None:
    made = certificates(tmp_path)
    wrong = accepting(made, "mx1", own="other")
    async with sending(tmp_path) as node, hop(tmp_path, receive=wrong) as edge:
        leads(node, edge.port)
        await sent(node, MESSAGE, *TO)
        node.run_queue()

        async def tried() -> bool:
            return (await node.copies())[0].recipients[0].attempts > 0

        await eventually(tried)
        reply = (await node.copies())[0].recipients[0].last_reply
        assert reply == f"451 4.7.0 tls: the certificate is not the pinned one of {HOP}"
        assert not await edge.copies()
        assert await shadows(node) == 0


async def test_a_hop_with_the_name_of_another_one_gets_nothing(tmp_path: Path) -> None:
    made = certificates(tmp_path)
    route = telling(made, 9, "mx2")
    route["send_xshadow"] = [{"name": full("mx3"), "certificate": str(made / f"{HOP}.pem")}]
    async with sending(tmp_path, routes={"edge": route}) as node, hop(tmp_path) as edge:
        leads(node, edge.port)
        await sent(node, MESSAGE, *TO)
        node.run_queue()

        async def refused() -> bool:
            return "it has the certificate of" in (await node.copies())[0].recipients[0].last_reply

        await eventually(refused)
        assert not await edge.copies()


@pytest.mark.parametrize("knows", [False, True], ids=["knows nothing of it", "knows another sender"])
async def test_a_hop_that_does_not_offer_it_gets_ordinary_mail(tmp_path: Path, *, knows: bool) -> None:
    made = certificates(tmp_path)
    plain = accepting(made, "mx3") if knows else {**accepting(made), "accept_xshadow": []}
    async with sending(tmp_path) as node, hop(tmp_path, receive=plain) as edge:
        leads(node, edge.port)
        await sent(node, MESSAGE, *TO)
        node.run_queue()
        await eventually(lambda: relayed(node))
        assert len(await edge.copies()) == 1
        assert await shadows(node) == await node.rows("hop_peer") == 0


async def test_a_hop_in_clear_text_gets_ordinary_mail(tmp_path: Path) -> None:
    async with ScriptedHop() as scripted, sending(tmp_path, scripted.port) as node:
        await sent(node, MESSAGE, *TO)
        node.run_queue()
        await eventually(lambda: relayed(node))
        assert not any("XSHADOW" in command or "XFORK" in command for command in scripted.commands)
        assert await shadows(node) == 0


async def test_without_shadow_redundancy_nobody_is_told_to_track(tmp_path: Path) -> None:
    async with sending(tmp_path, shadow_redundancy_enabled=False) as node, hop(tmp_path) as edge:
        leads(node, edge.port)
        await sent(node, MESSAGE, *TO)
        node.run_queue()
        await eventually(lambda: relayed(node))
        assert await shadows(node) == 0


async def test_a_hop_that_tracks_no_more_tells_what_it_delivered_and_gets_ordinary_mail(
    tmp_path: Path,
) -> None:
    receiver = MemoryReceiver()
    off: Any = {"shadow_redundancy_enabled": False}
    async with listening(receiver) as end, sending(tmp_path) as node:
        async with hop(tmp_path) as edge:
            await hand_over(node, edge)
            await node.node.queue.stop()
        async with hop(tmp_path, port_of(end), disk=1, **off) as edge:
            leads(node, edge.port)
            edge.run_reconcile()
            edge.run_queue()
            await eventually(lambda: asked(node))
            assert len(receiver.kept) == 1
    async with sending(tmp_path, disk=1) as node, hop(tmp_path, disk=2, **off) as edge:
        leads(node, edge.port)
        await sent(node, MESSAGE, *TO)
        node.run_queue()
        await eventually(lambda: relayed(node))
        assert await shadows(node) == 0


# Boundaries of several members


async def test_a_boundary_of_several_members_has_its_own_second_copy_and_is_not_told(tmp_path: Path) -> None:
    made = certificates(tmp_path)
    async with sending(tmp_path) as node:
        several: Any = {"mx2": {"receive": accepting(made, "mx1")}}
        async with boundary(tmp_path, "mx2", "mx3", own=several) as (edge, holder):
            leads(node, edge.port)
            await sent(node, MESSAGE, *TO)
            node.run_queue()
            await eventually(lambda: relayed(node))
            assert await shadows(node) == 0
            assert len(await edge.copies()) == len(await holder.copies()) == 1


async def test_a_boundary_of_several_members_tells_a_hop_to_track(tmp_path: Path) -> None:
    made = certificates(tmp_path)
    several: Any = {"routes": {"edge": telling(made, 9, "mx2")}}
    async with hop(tmp_path) as edge, boundary(tmp_path, "mx1", "mx3", **several) as (node, holder):
        await hand_over(node, edge)
        holder.run_links()

        async def told() -> bool:
            return all(not copy.unsettled for copy in await holder.copies())

        await eventually(told)  # for the holder it is relayed: one copy is enough beside the hop's
        assert await shadows(holder) == 0
