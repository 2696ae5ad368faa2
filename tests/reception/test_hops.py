"""A Receive connector with accept_xshadow: who may use the verbs, and what becomes of what is handed over."""

from __future__ import annotations

import asyncio
import shutil
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hopping import DATABASE, GREETING, ID, OTHER, PEER, call, certificates, hand_over, hop, receive
from receiving import MemoryReceiver, RawClient, listening
from stations import Station, eventually, station

from shadowrelay.core.decisions import Decision
from shadowrelay.core.hops import HopPeer
from shadowrelay.core.identifiers import Beginning, DatabaseId, Incarnation, Lineage
from shadowrelay.core.safety_net import expiry as safety_net
from shadowrelay.database.ledger import SqlLedger
from shadowrelay.database.queue import settled_before
from shadowrelay.reception.hops import HopIntake, HopIntakes, HopTls

ELSE = "6f0d7a3e-0000-4000-8000-000000000009"
TO = "b@inside.test"


async def said(client: RawClient) -> str:
    return await client.say("XQDISCARD 200")


async def ordinary(client: RawClient) -> str:
    """The reply to an ordinary message."""
    await client.begin(TO)
    return await client.content(b"Subject: x\r\n\r\nbody\r\n")


def routed(port: int) -> dict[str, Any]:
    return {"routes": {"inside": {"domains": ["*"], "host": "127.0.0.1", "port": port, "tls": "none"}}}


# Who may


async def test_a_client_without_a_certificate_sees_nothing_of_it_and_sends_mail(tmp_path: Path) -> None:
    async with hop(tmp_path) as node, call(node, tmp_path, shown=None) as client:
        offered = await client.say("EHLO hub.example.net")
        assert "XSHADOW" not in offered
        assert "XQDISCARD" not in offered
        for verb in (GREETING, "XQDISCARD 200"):
            assert (await client.say(verb)) == "500 5.5.2 Command not recognised"
        assert (await client.say(f"MAIL FROM:<a@example.net> XSHADOW={ID}")).startswith("555 ")
        await client.say("MAIL FROM:<a@example.net>")
        assert (await client.say(f"RCPT TO:<{TO}> XFORK=1")).startswith("555 ")
        await client.say("RSET")
        assert (await ordinary(client)).startswith("250 2.6.0 ")
        assert await node.rows("hop_peer") == await node.rows("handed") == 0


async def test_in_clear_text_nobody_sees_anything_of_it(tmp_path: Path) -> None:
    async with hop(tmp_path) as node:
        client = RawClient(*await asyncio.open_connection("127.0.0.1", node.port))
        await client.line()
        assert "XSHADOW" not in await client.say("EHLO hub.example.net")
        assert (await client.say(GREETING)).startswith("500 ")
        assert (await ordinary(client)).startswith("250 2.6.0 ")
        await client.close()


async def test_a_peer_in_a_secured_network_needs_no_certificate(tmp_path: Path) -> None:
    secured = {"accept_xshadow": [{"name": PEER, "externally_secured": ["127.0.0.0/8"]}]}
    node = await station(tmp_path, "mx2", (), receive=secured)
    try:
        client = RawClient(*await asyncio.open_connection("127.0.0.1", node.port))
        await client.line()
        assert "XSHADOW 1" in await client.say("EHLO hub.example.net")
        assert (await client.say(GREETING.replace(PEER, OTHER))).startswith("550 5.7.1 ")
        assert (await client.say(GREETING)).startswith("250 2.0.0 ")
        await hand_over(client, 1, TO)
        assert await node.rows("handed") == 1
        await client.close()
    finally:
        await node.stop()


async def test_outside_the_secured_networks_nobody_sees_anything_of_it(tmp_path: Path) -> None:
    elsewhere = {"accept_xshadow": [{"name": PEER, "externally_secured": ["192.0.2.0/24"]}]}
    node = await station(tmp_path, "mx2", (), receive=elsewhere)
    try:
        client = RawClient(*await asyncio.open_connection("127.0.0.1", node.port))
        await client.line()
        assert "XSHADOW" not in await client.say("EHLO hub.example.net")
        assert (await client.say(GREETING)).startswith("500 ")
        await client.close()
    finally:
        await node.stop()


async def test_another_certificate_fails_once_and_then_its_client_sends_ordinary_mail(tmp_path: Path) -> None:
    """The handshake cannot tell a wrong certificate from none: the client is asked for none for a while."""
    async with hop(tmp_path) as node:
        with suppress(OSError, EOFError):
            async with call(node, tmp_path, shown="stranger.example.net") as client:
                assert await client.line() == ""
        intakes = node.connectors[1]._receiver
        assert isinstance(intakes, HopIntakes)
        await eventually(lambda: intakes.shy)
        async with call(node, tmp_path, shown="stranger.example.net") as client:
            assert (await client.say(GREETING)).startswith("500 ")
            assert (await ordinary(client)).startswith("250 2.6.0 ")


def test_addresses_of_clients_that_showed_another_certificate_do_not_pile_up() -> None:
    intakes = HopIntakes(None, HopTls(None, None, {}))  # type: ignore[arg-type]
    session = HopIntake.__new__(HopIntake)
    session._intakes, session._intake = intakes, _Named()  # type: ignore[assignment]
    for number in range(5000):
        session.showed_another(f"192.0.2.{number}")
    assert len(intakes.shy) == 4096


class _Named:
    class options:
        connector = "default"


async def test_a_certificate_that_a_pinned_one_vouches_for_is_not_that_one(tmp_path: Path) -> None:
    made = certificates(tmp_path / "ca")
    (made / "authority.pem").write_text((made / "ca.pem").read_text())
    found = receive(made)
    found["accept_xshadow"] = [{"name": PEER, "certificate": str(made / "authority.pem")}]
    node = await station(tmp_path, "mx2", (), receive=found)
    try:
        async with call(node, tmp_path, shown=PEER) as client:
            assert "XSHADOW" not in await client.say("EHLO hub.example.net")
            assert (await client.say(GREETING)).startswith("500 ")
    finally:
        await node.stop()


async def test_a_peer_is_who_its_certificate_says(tmp_path: Path) -> None:
    async with hop(tmp_path, PEER, OTHER) as node, call(node, tmp_path, shown=OTHER) as client:
        assert (await client.say(GREETING)) == "550 5.7.1 Not the peer of that certificate"
        assert await node.rows("hop_peer") == 0


async def test_the_workers_of_a_peer_hand_over_with_its_certificate_each_by_its_own_name(
    tmp_path: Path,
) -> None:
    second = GREETING.replace(PEER, f"w2.{PEER}").replace(DATABASE, ELSE)
    async with hop(tmp_path, PEER, OTHER) as node:
        for number, greeting in enumerate((GREETING, second), 1):
            async with call(node, tmp_path) as client:
                assert (await client.say(greeting)).startswith("250 ")
                await hand_over(client, number, TO)
                assert (await said(client)).startswith("25")
        assert await node.rows("hop_peer") == await node.rows("handed") == 2
        async with call(node, tmp_path, shown=OTHER) as client:
            assert (await client.say(second)) == "550 5.7.1 Not the peer of that certificate"


async def test_a_peer_whose_own_name_looks_like_a_workers_is_who_its_certificate_says(tmp_path: Path) -> None:
    """Beyond the boundary a name may be anything: only one that is pinned for another is refused."""
    like = f"w2.{PEER}"
    certificates(tmp_path / "ca")
    shutil.copy(tmp_path / "ca" / f"{OTHER}.pem", tmp_path / "ca" / f"{like}.pem")  # somebody else issued it
    async with hop(tmp_path, PEER, like) as node:
        async with call(node, tmp_path, shown=OTHER) as client:
            assert (await client.say(GREETING.replace(PEER, like))).startswith("250 ")
        async with call(node, tmp_path) as client:
            greeting = GREETING.replace(PEER, like).replace(DATABASE, ELSE)
            assert (await client.say(greeting)) == "550 5.7.1 Not the peer of that certificate"


async def test_a_peer_cannot_pass_for_the_database_of_another_and_hear_its_events(tmp_path: Path) -> None:
    async with hop(tmp_path, PEER, OTHER) as node:
        async with call(node, tmp_path) as client:
            assert (await client.say(GREETING)).startswith("250 ")
            await hand_over(client, 1, TO)
        async with call(node, tmp_path, shown=OTHER) as client:
            stolen = GREETING.replace(PEER, OTHER)
            assert (await client.say(stolen)) == "550 5.7.1 That database is another one's"
            ours = str(node.database.lineage.database_id)
            assert (await client.say(stolen.replace(DATABASE, ours))).startswith("550 ")
            assert (await client.say(stolen.replace(DATABASE, ELSE))).startswith("250 ")
            assert (await said(client)).startswith("251 ")


async def test_a_peer_cannot_pass_for_the_database_of_a_peer_of_another_connector(tmp_path: Path) -> None:
    async with hop(tmp_path) as node:
        runs = (Beginning(Incarnation("0000000000000002"), 0),)
        elsewhere = HopPeer(OTHER, Lineage(DatabaseId(ELSE), runs, 3))  # this connector pins PEER alone
        await node.read(lambda ledger: ledger.apply(Decision(None, (elsewhere,))))
        async with call(node, tmp_path) as client:
            assert (await client.say(GREETING.replace(DATABASE, ELSE))).startswith("550 ")
            assert (await client.say(GREETING)).startswith("250 ")
            assert (await client.say(GREETING)).startswith("250 ")  # its own row is no other's


async def test_nothing_is_offered_where_there_are_members(tmp_path: Path) -> None:
    async with hop(tmp_path, others=("mx1",)) as node, call(node, tmp_path) as client:
        assert "XSHADOW" not in await client.say("EHLO hub.example.net")
        assert (await client.say(GREETING)).startswith("500 ")


async def test_nothing_is_offered_without_shadow_redundancy(tmp_path: Path) -> None:
    disabled: Any = {"shadow_redundancy_enabled": False}
    async with hop(tmp_path, **disabled) as node, call(node, tmp_path) as client:
        assert "XSHADOW" not in await client.say("EHLO hub.example.net")


async def test_a_peer_is_offered_both_and_may_say_long_lines(tmp_path: Path) -> None:
    async with hop(tmp_path) as node, call(node, tmp_path) as client:
        offered = await client.say("EHLO hub.example.net")
        assert "250-XSHADOW 1|" in offered
        assert "XQDISCARD" in offered
        beginnings = ",".join(f"{number:016x}@{number}" for number in range(1, 65))
        long = f"XSHADOW {PEER} {DATABASE} {64:016x}:70 {beginnings}"
        assert (await client.say(long)).startswith("250 2.0.0 ")


# What is handed over


async def test_a_peer_hears_when_the_next_hop_has_its_message_and_only_the_peer_does(tmp_path: Path) -> None:
    receiver = MemoryReceiver()
    async with listening(receiver) as next_hop:
        port = next_hop.address[1]  # type: ignore[attr-defined]
        async with hop(tmp_path, PEER, OTHER, **routed(port)) as node:
            async with call(node, tmp_path) as client:
                await client.say(GREETING)
                assert "Queued mail for delivery" in await hand_over(client, 4, TO, "c@inside.test")
                assert (await said(client)).startswith("251 2.0.0 No discard events 0000000000000002:")
                node.run_queue()
                await eventually(lambda: receiver.kept)

                async def told() -> bool:
                    return f" {ID} 1 delivered=relayed 4-5 " in await said(client)

                await eventually(told)
            async with call(node, tmp_path, shown=OTHER) as client:
                await client.say(GREETING.replace(PEER, OTHER).replace(DATABASE, ELSE))
                assert (await said(client)).startswith("251 ")
    assert [len(kept.recipients) for kept in receiver.kept] == [2]


async def test_what_is_handed_over_again_is_answered_250_and_not_taken_again(tmp_path: Path) -> None:
    async with hop(tmp_path) as node:
        async with call(node, tmp_path) as client:
            await client.say(GREETING)
            await hand_over(client, 1, TO)
        assert len(await node.copies()) == 1
        async with call(node, tmp_path) as client:
            await client.say(GREETING)
            assert (await hand_over(client, 1, TO)).startswith(f"250 2.6.0 {ID} Taken before ")
            assert "Queued" in await hand_over(client, 1, TO, "c@inside.test")
        first, second = await node.copies()
        assert [one.address for one in second.recipients] == ["c@inside.test"]
        assert await node.octets(second.id) != await node.octets(first.id)  # its own trace field
        assert node.files() == []


async def test_two_sessions_that_hand_the_same_message_over_at_once_make_one(tmp_path: Path) -> None:
    async with hop(tmp_path) as node:
        async with call(node, tmp_path) as one, call(node, tmp_path) as other:
            for client in (one, other):
                await client.say(GREETING)
            replies = await asyncio.gather(*(hand_over(client, 1, TO) for client in (one, other)))
        assert sorted("Taken before" in reply for reply in replies) == [False, True]
        assert len(await node.copies()) == 1


async def test_what_was_handed_over_is_known_after_a_restart(tmp_path: Path) -> None:
    async with hop(tmp_path) as node, call(node, tmp_path) as client:
        await client.say(GREETING)
        await hand_over(client, 1, TO)
    async with hop(tmp_path, disk=1) as node, call(node, tmp_path) as client:
        await client.say(GREETING)
        assert "Taken before" in await hand_over(client, 1, TO)


@pytest.mark.parametrize("without", ["redundancy", "being alone"])
async def test_what_was_handed_over_is_told_where_nothing_is_tracked_any_more(
    tmp_path: Path, without: str
) -> None:
    async with hop(tmp_path) as node, call(node, tmp_path) as client:
        await client.say(GREETING)
        await hand_over(client, 1, TO)
    changes: Any = {"shadow_redundancy_enabled": False} if without == "redundancy" else {"others": ("mx1",)}
    async with hop(tmp_path, disk=1, **changes) as node, call(node, tmp_path) as client:
        offered = await client.say("EHLO hub.example.net")
        assert "250-XSHADOW|" in offered
        assert "XQDISCARD" in offered
        assert (await client.say(GREETING)).startswith("250 ")
        assert (await client.say(f"MAIL FROM:<a@example.net> XSHADOW={ELSE}")).startswith("451 4.3.0 ")
        assert (await client.say("MAIL FROM:<a@example.net>")).startswith("250 ")  # as ordinary mail
        await client.say("RSET")
        assert (await said(client)).startswith("251 ")  # nothing is delivered yet


async def test_a_peer_that_tracks_its_message_keeps_its_copy_and_waits_for_no_next_hop(
    tmp_path: Path,
) -> None:
    async with hop(tmp_path, delay="60s") as node, call(node, tmp_path) as client:
        await client.say(GREETING)
        async with asyncio.timeout(30):
            assert (await hand_over(client, 1, TO)).startswith("250 ")
        assert await node.rows("unacknowledged") == 0


async def test_ordinary_mail_of_a_peer_is_ordinary_mail(tmp_path: Path) -> None:
    async with hop(tmp_path) as node, call(node, tmp_path) as client:
        await client.say(GREETING)
        await client.say("MAIL FROM:<a@example.net>")
        assert (await client.say(f"RCPT TO:<{TO}> XFORK=1")).startswith("501 ")
        assert (await client.say(f"RCPT TO:<{TO}>")).startswith("250 ")
        assert (await client.content(b"Subject: x\r\n\r\nbody\r\n")).startswith("250 2.6.0 ")
        assert await node.rows("handed") == 0


async def test_a_peer_is_refused_what_anybody_is_refused(tmp_path: Path) -> None:
    """XSHADOW is a right to be told, not to relay."""
    ours: Any = {"relay_networks": [], "accepted_domains": ["inside.test"]}
    async with hop(tmp_path, **ours) as node, call(node, tmp_path) as client:
        await client.say(GREETING, f"MAIL FROM:<a@example.net> XSHADOW={ID}")
        assert (await client.say("RCPT TO:<b@elsewhere.test> XFORK=1")).startswith("550 5.7.1 Relaying")
        assert (await client.say(f"RCPT TO:<{TO}> XFORK=1")).startswith("250 ")


async def test_a_peer_that_polls_without_end_is_told_to_leave(tmp_path: Path) -> None:
    async with hop(tmp_path) as node, call(node, tmp_path) as client:
        await client.say(GREETING)
        polls = 0
        while (reply := await said(client)).startswith("251 "):
            polls += 1
        assert reply.startswith("421 4.7.0 Too many commands")
        assert 50 < polls < 100


async def test_who_handed_a_message_over_is_forgotten_when_safety_net_forgets_it(tmp_path: Path) -> None:
    receiver = MemoryReceiver()
    async with listening(receiver) as next_hop:
        port = next_hop.address[1]  # type: ignore[attr-defined]
        async with hop(tmp_path, **routed(port)) as node:
            async with call(node, tmp_path) as client:
                await client.say(GREETING)
                await hand_over(client, 1, TO)
            node.run_queue()
            await eventually(lambda: receiver.kept)

            async def settled() -> bool:
                return not (await node.copies())[0].unsettled

            await eventually(settled)
            assert await node.rows("handed") == 1
            await expire(node)
            assert await node.copies() == []
            assert await node.rows("handed") == 0


async def expire(node: Station) -> None:
    """What Safety Net forgets when its time is over."""
    policy = node.node.policy
    later = node.node.clock() + policy.safety_net_hold_time + timedelta(hours=1)

    def sweep(ledger: SqlLedger) -> None:
        for copy in settled_before(ledger, later, 100, None):
            ledger.apply(safety_net.expire(ledger, copy, policy, later, ()))

    await node.read(sweep)
