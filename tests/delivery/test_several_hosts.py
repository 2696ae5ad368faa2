"""A next hop with several hosts: the next one is tried in the same attempt; no host holds up the others."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from loopback_dns import SERVFAIL, LoopbackDns
from scripted_hop import HANG, ScriptedHop
from sending import MESSAGE, sent
from stations import Station, eventually, station
from test_queue import Crowded, later, only, settled

from shadowlab.ports import free_ports
from shadowrelay.core.identifiers import NextHop
from shadowrelay.core.messages import Status
from shadowrelay.delivery.hosts import PACE_KEPT
from shadowrelay.delivery.queue import PRUNE

OUT = NextHop("out")


def host(hop: ScriptedHop | int, **changes: Any) -> dict[str, Any]:
    return {"address": f"127.0.0.1:{hop if isinstance(hop, int) else hop.port}", **changes}


def way(*hosts: Any, **changes: Any) -> dict[str, Any]:
    return {"domains": ["*"], "hosts": [*hosts], "tls": "none", **changes}


@asynccontextmanager
async def relay(
    tmp_path: Path, routes: dict[str, Any], *, run: bool = True, **changes: Any
) -> AsyncIterator[Station]:
    found = await station(tmp_path, "mx1", [], routes=routes, **changes)
    if run:
        found.run_queue()
    try:
        yield found
    finally:
        await found.stop()


def status(found: Station, name: str = "out") -> dict[str, tuple[int, str]]:
    """Failures and last error of each host, as the admin API has them."""
    return {one.host: (one.failures, one.error) for one in found.node.hop(NextHop(name)).hosts}


async def test_a_host_that_is_gone_rests_and_the_next_takes_the_message_at_once(tmp_path: Path) -> None:
    gone = free_ports(1)[0]
    async with (
        ScriptedHop() as hop,
        relay(tmp_path, {"out": way(host(gone), host(hop, preference=10))}) as found,
    ):
        for _ in range(3):
            await sent(found, MESSAGE)
            await eventually(lambda: settled(found))
        assert "DEFER" not in await found.events()
        assert len(hop.contents) == 3
        failures, error = status(found)[f"127.0.0.1:{gone}"]
        assert failures == 1
        assert error.startswith("connect: ")
        assert not found.node.queue.hops[OUT].failures
        rows = [row for row in await found.tracked() if row["event-id"] == "SENDEXTERNAL"]
        assert {row["server-hostname"] or row["server-ip"] for row in rows} == {f"127.0.0.1:{hop.port}"}


@pytest.mark.parametrize(
    "script",
    [
        {"GREETING": b"421 4.3.2 going down\r\n"},
        {"GREETING": b"554 5.3.2 no\r\n"},
        {"EHLO": b"421 4.3.2 going down\r\n"},
        {"MAIL": b"421 4.3.2 going down\r\n"},
        {"DATA": b"421 4.3.2 going down\r\n"},
    ],
)
async def test_a_host_that_ends_the_session_leaves_the_message_to_the_next(
    tmp_path: Path, script: dict[str, bytes]
) -> None:
    async with (
        ScriptedHop(**script) as bad,
        ScriptedHop() as hop,
        relay(tmp_path, {"out": way(host(bad), host(hop, preference=10))}) as found,
    ):
        await sent(found, MESSAGE)
        await eventually(lambda: settled(found))
        assert (bad.connections, len(hop.contents)) == (1, 1)
        assert "DEFER" not in await found.events()
        rests = bool(status(found)[f"127.0.0.1:{bad.port}"][0])
        assert rests == bool({"GREETING", "EHLO"} & script.keys()), "later it may be the message"


async def test_what_a_host_says_about_a_message_is_its_answer(tmp_path: Path) -> None:
    async with (
        ScriptedHop(RCPT=b"450 4.2.1 later\r\n") as hop,
        ScriptedHop() as other,
        relay(tmp_path, {"out": way(host(hop), host(other, preference=10))}) as found,
    ):
        await sent(found, MESSAGE)

        async def deferred() -> bool:
            return (await only(found)).recipients[0].last_reply == "450 4.2.1 later"

        await eventually(deferred)
        assert not other.connections


async def test_the_next_hop_rests_when_no_host_is_left_and_until_the_first_may_be_tried(
    tmp_path: Path,
) -> None:
    first, second = free_ports(2)
    async with relay(
        tmp_path, {"out": way(host(first), host(second))}, queue_glitch_retry_interval="12h"
    ) as found:
        await sent(found, MESSAGE)
        outbound = found.node.queue.hops[OUT]
        await eventually(lambda: outbound.failures == 1 and not outbound.workers)
        assert {failures for failures, _ in status(found).values()} == {1}
        hop = found.node.hop(OUT)
        assert hop.rests_until
        assert hop.rests_until == min(one.rests_until for one in hop.hosts if one.rests_until)
        (recipient,) = (await only(found)).recipients
        assert recipient.last_reply.startswith("451 4.4.1 connect: ")
        async with ScriptedHop(at=("127.0.0.1", second)) as back:
            later(found, timedelta(hours=13))
            await eventually(lambda: settled(found))
            assert len(back.contents) == 1
        assert status(found)[f"127.0.0.1:{second}"] == (0, "")


async def test_a_host_rests_for_every_next_hop_that_uses_it(tmp_path: Path) -> None:
    async with ScriptedHop(GREETING=b"554 5.3.2 no\r\n") as bad, ScriptedHop() as hop:
        routes = {
            "one": way(host(bad), host(hop, preference=9), domains=["one.test"]),
            "two": way(host(bad), host(hop, preference=9), domains=["two.test"]),
        }
        async with relay(tmp_path, routes) as found:
            for address in ("a@one.test", "a@two.test"):
                await sent(found, MESSAGE, address)
                await eventually(lambda: settled(found))
            assert (bad.connections, len(hop.contents)) == (1, 2)


async def test_alternatives_come_after_the_own_hosts(tmp_path: Path) -> None:
    gone = free_ports(1)[0]
    async with ScriptedHop() as own, ScriptedHop() as spare:
        routes = {
            "out": way(host(gone), host(own, preference=10), alternatives=["spare"]),
            "spare": way(host(spare), domains=["spare.test"]),
        }
        async with relay(tmp_path, routes) as found:
            await sent(found, MESSAGE)
            await eventually(lambda: settled(found))
            assert (len(own.contents), len(spare.contents)) == (1, 0)
            own.script["GREETING"] = [b"421 4.3.2 going down\r\n"]
            for session, _ in found.node.queue.hops[OUT].idle:
                session.abort()
            await sent(found, MESSAGE)
            await eventually(lambda: settled(found))
            assert (len(own.contents), len(spare.contents)) == (1, 1)
            assert "DEFER" not in await found.events()


async def test_mail_for_the_other_hosts_never_waits_for_a_slow_one(tmp_path: Path) -> None:
    """Six sessions, three hosts, one of which never answers: it gets two at most, and the others the mail."""
    async with ScriptedHop(DOT=HANG) as slow, ScriptedHop() as one, ScriptedHop() as two:
        routes = {"out": way(host(slow), host(one), host(two))}
        async with relay(tmp_path, routes, run=False, max_per_domain_outbound_connections=6) as found:
            for _ in range(40):
                await sent(found, MESSAGE)
            found.run_queue()
            await eventually(lambda: len(one.contents) + len(two.contents) >= 38)
            assert len(slow.contents) <= 2
            assert min(len(one.contents), len(two.contents)) > 5


async def test_sessions_are_used_again_for_the_host_that_they_are_with(tmp_path: Path) -> None:
    async with (
        ScriptedHop() as one,
        ScriptedHop() as two,
        relay(tmp_path, {"out": way(host(one), host(two))}, max_per_domain_outbound_connections=2) as found,
    ):
        for _ in range(20):
            await sent(found, MESSAGE)
        await eventually(lambda: settled(found))
        assert one.contents
        assert two.contents
        assert one.connections + two.connections <= 4


async def test_a_crowded_host_leaves_the_rest_to_the_others_and_does_not_rest(tmp_path: Path) -> None:
    async with (
        Crowded(1) as small,
        ScriptedHop() as large,
        relay(tmp_path, {"out": way(host(small), host(large))}, run=False) as found,
    ):
        for _ in range(40):
            await sent(found, MESSAGE)
        found.run_queue()
        await eventually(lambda: settled(found))
        assert "DEFER" not in await found.events()
        assert len(small.contents) + len(large.contents) == 40
        assert small.contents
        assert status(found)[f"127.0.0.1:{small.port}"] == (0, "")


# With MX


@asynccontextmanager
async def world(
    tmp_path: Path, zone: dict[tuple[str, str], Any], *, hops: int = 2, **changes: Any
) -> AsyncIterator[tuple[Station, list[ScriptedHop], LoopbackDns]]:
    """A node that asks a name server; hops at 127.0.0.2, 127.0.0.3 and so on, at one port."""
    async with AsyncExitStack() as stack:
        port = free_ports(1)[0]
        found = [
            await stack.enter_async_context(ScriptedHop(at=(f"127.0.0.{last}", port)))
            for last in range(2, 2 + hops)
        ]
        server = await stack.enter_async_context(LoopbackDns(zone))
        routes = {"world": {"domains": ["*"], "mx": True, "port": port, "tls": "none"}}
        routes |= changes.pop("routes", {})
        node = await stack.enter_async_context(relay(tmp_path, routes, dns=server.setting, **changes))
        yield node, found, server


ZONE: dict[tuple[str, str], Any] = {
    ("example.net", "MX"): ["10 a.example.net.", "20 b.example.net."],
    ("a.example.net", "A"): ["127.0.0.2"],
    ("b.example.net", "A"): ["127.0.0.3"],
}


async def test_mail_goes_to_the_hosts_that_the_dns_has_for_its_domain(tmp_path: Path) -> None:
    async with world(tmp_path, dict(ZONE)) as (found, (first, second), server):
        await sent(found, MESSAGE)
        await eventually(lambda: settled(found))
        assert (len(first.contents), len(second.contents)) == (1, 0)
        first.script["GREETING"] = [b"421 4.3.2 going down\r\n"]
        for session, _ in found.node.queue.hops[NextHop("world/example.net")].idle:
            session.abort()
        await sent(found, MESSAGE)
        await eventually(lambda: settled(found))
        assert (len(first.contents), len(second.contents)) == (1, 1)
        assert "DEFER" not in await found.events()
        assert server.count("example.net", "MX") == 1, "kept as long as its TTL"
        assert [*status(found, "world/example.net")] == [
            f"a.example.net:{first.port}",
            f"b.example.net:{first.port}",
        ]


async def test_all_addresses_of_a_host_are_tried(tmp_path: Path) -> None:
    zone = ZONE | {("a.example.net", "A"): ["127.0.0.9", "127.0.0.2"]}
    async with world(tmp_path, zone) as (found, (first, _), _):
        await sent(found, MESSAGE)
        await eventually(lambda: settled(found))
        assert len(first.contents) == 1
        assert not status(found, "world/example.net")[f"a.example.net:{first.port}"][0]


async def test_a_host_of_a_route_is_looked_up_anew_for_each_connection(tmp_path: Path) -> None:
    port = free_ports(1)[0]
    async with (
        ScriptedHop(at=("127.0.0.2", port)) as first,
        ScriptedHop(at=("127.0.0.3", port)) as second,
        LoopbackDns({("smart.test", "A"): ["127.0.0.2"]}, ttl=0) as server,
    ):
        routes = {"out": {"domains": ["*"], "host": "smart.test", "port": port, "tls": "none"}}
        async with relay(tmp_path, routes, dns=server.setting) as found:
            await sent(found, MESSAGE)
            await eventually(lambda: settled(found))
            server.zone["smart.test", "A"] = ["127.0.0.3"]
            for session, _ in found.node.queue.hops[OUT].idle:
                session.abort()
            await sent(found, MESSAGE)
            await eventually(lambda: settled(found))
            assert (len(first.contents), len(second.contents)) == (1, 1)


@pytest.mark.parametrize(
    ("domain", "reply"),
    [
        ("null.test", "556 5.1.10 null.test takes no mail (null MX)"),
        ("missing.test", "550 5.1.2 missing.test does not exist in the DNS"),
        ("loop.test", "554 5.4.6 The mail for loop.test would come back to this server"),
    ],
)
async def test_a_definite_no_of_the_dns_fails_the_recipient_and_no_other(
    tmp_path: Path, domain: str, reply: str
) -> None:
    zone = ZONE | {
        ("example.org", "MX"): ["10 a.example.net."],
        ("null.test", "MX"): ["0 ."],
        ("loop.test", "MX"): ["10 mx1.example.org."],
        ("mx1.example.org", "A"): ["127.0.0.8"],
    }
    async with world(tmp_path, zone) as (found, (first, _), _):
        await sent(found, MESSAGE, f"a@{domain}", "b@example.net")
        await eventually(lambda: settled(found))
        by_address = {one.address: one for one in (await only(found)).recipients}
        assert by_address[f"a@{domain}"].status is Status.FAILED
        assert by_address["b@example.net"].status is Status.RELAYED
        assert len(first.contents) == 2, "the message, and the report"
        (failed,) = [row for row in await found.tracked() if row["event-id"] == "FAIL"]
        assert reply in failed["recipient-status"]
        assert not found.node.queue.hops[NextHop(f"world/{domain}")].failures


async def test_trouble_with_the_dns_is_a_delay_with_its_reason_and_no_bounce(tmp_path: Path) -> None:
    zone = ZONE | {("broken.test", "MX"): SERVFAIL}
    async with world(tmp_path, zone, queue_glitch_retry_interval="12h") as (found, (first, _), server):
        await sent(found, MESSAGE, "a@broken.test", "b@example.net")
        outbound = found.node.queue.hops
        await eventually(lambda: len(first.contents) == 1)
        await eventually(lambda: outbound[NextHop("world/broken.test")].failures == 1)
        told = "MX of broken.test: no name server gave an answer"
        assert found.node.hop(NextHop("world/broken.test")).error == f"dns: {told}"
        (recipient, _) = (await only(found)).recipients
        assert recipient.status is Status.READY
        assert recipient.last_reply == f"451 4.4.3 dns: {told}"
        server.zone["broken.test", "MX"] = ["10 b.example.net."]
        found.node.resolver._troubles.clear()
        later(found, timedelta(hours=13))
        await eventually(lambda: settled(found))
        assert "FAIL" not in await found.events()


async def test_in_trouble_with_the_dns_an_alternative_takes_the_mail(tmp_path: Path) -> None:
    async with ScriptedHop() as smart:
        routes = {"smart": way(host(smart), domains=["smart.test"])}
        port = free_ports(1)[0]
        routes["world"] = {"domains": ["*"], "mx": True, "port": port, "alternatives": ["smart"]}
        async with world(tmp_path, {("example.net", "MX"): SERVFAIL}, routes=routes) as (found, _, _):
            await sent(found, MESSAGE)
            await eventually(lambda: settled(found))
            assert len(smart.contents) == 1
            assert "DEFER" not in await found.events()


async def test_next_hops_of_domains_are_forgotten_when_they_have_nothing_left(tmp_path: Path) -> None:
    zone = dict(ZONE) | {(f"d{number}.test", "MX"): ["10 a.example.net."] for number in range(20)}
    async with world(tmp_path, zone) as (found, _, _):
        queue = found.node.queue
        for number in range(20):
            await sent(found, MESSAGE, f"a@d{number}.test")
        await eventually(lambda: settled(found))
        await eventually(lambda: all(not hop.workers for hop in queue.hops.values()))
        assert len(queue.hops) == 20
        for hop in queue.hops.values():
            hop.idle = [(session, since - 3600) for session, since in hop.idle]
        for known in found.node.hosts._known.values():
            known.answered_at -= PACE_KEPT
        queue._prune_at -= PRUNE
        queue.wake.set()
        await eventually(lambda: not queue.hops)
        assert not found.node.hosts._known
