"""Shaping over sockets: a next hop that wants little at a time gets little, and all of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from loopback_dns import LoopbackDns
from providers import Provider
from sending import MESSAGE, sent
from stations import Station, eventually
from test_queue import settled
from test_several_hosts import host, relay, way

from shadowlab.ports import free_ports
from shadowrelay import shared_counts
from shadowrelay.core.delivery import operated
from shadowrelay.core.delivery.hosts import Host
from shadowrelay.core.delivery.shaping import LaneLimits, Pattern
from shadowrelay.core.identifiers import NextHop, RequestId
from shadowrelay.core.operating import By
from shadowrelay.delivery import queue
from shadowrelay.delivery.attempt import Outbound
from shadowrelay.delivery.shaping import Shaping
from shadowrelay.shared_counts import SIZE, SharedCounts
from shadowrelay.smtp.sending.hop import ConnectionFailed, Timeouts

OUT = NextHop("out")
NOW = datetime(2026, 11, 30, tzinfo=UTC)
BY = By("someone", "it is checked first", RequestId("01900000-0000-7000-9000-000000000001"))
PATTERNS = """
[patterns.rate]
code = 421
enhanced = "4.7.28"
pause = "{pause}"

[patterns.crowded]
code = 421
text = ["too many connections"]
pause = "{pause}"

[patterns.yahoo]
match = ["*.yahoodns.test", "out"]
code = 421
text = ['[TSS04]']
pause = "{pause}"
"""


def shaped(
    tmp_path: Path, *, pause: str = "1s", match: tuple[str, ...] = ("*",), **limits: Any
) -> dict[str, Any]:
    """Settings with one shape, and patterns that pause so long."""
    file = tmp_path / "patterns.toml"
    file.write_text(PATTERNS.format(pause=pause), "utf-8")
    return {"shaping": {"a": {"match": [*match], **limits}}, "shaping_patterns": str(file)}


async def queued(found: Station, count: int, domain: str = "example.net") -> None:
    """So many messages wait; the queue does not run yet."""
    for number in range(count):
        await sent(found, MESSAGE, f"u{number}@{domain}")


async def attempts(found: Station) -> int:
    """The highest number of attempts of a recipient that waits."""
    return max((one.attempts for copy in await found.copies() for one in copy.unsettled), default=0)


async def test_a_shaped_next_hop_hears_no_refusal_and_gets_everything(tmp_path: Path) -> None:
    async with (
        Provider(connections=3) as hop,
        relay(tmp_path, {"out": way(host(hop))}, run=False, **shaped(tmp_path, connections=3)) as found,
    ):
        await queued(found, 40)
        found.run_queue()
        await eventually(lambda: settled(found))
        assert len(set(hop.taken)) == len(hop.taken) == 40
        assert (hop.refused, hop.most_open) == ([], 3)


async def test_without_shaping_the_same_next_hop_refuses_many(tmp_path: Path) -> None:
    async with Provider(connections=3) as hop, relay(tmp_path, {"out": way(host(hop))}, run=False) as found:
        hop.hold = asyncio.Event()
        await queued(found, 20)
        found.run_queue()
        await eventually(lambda: len(hop.refused) >= 5)
        hop.hold.set()
        await eventually(lambda: settled(found))


async def test_it_begins_with_few_connections_and_grows_by_what_is_taken(tmp_path: Path) -> None:
    limits = shaped(tmp_path, connections=10, first_connections=1, growth=5)
    async with Provider() as hop, relay(tmp_path, {"out": way(host(hop))}, run=False, **limits) as found:
        hop.hold = asyncio.Event()
        await queued(found, 30)
        found.run_queue()
        await eventually(lambda: hop.open == 1)
        hop.hold.set()
        await eventually(lambda: settled(found))
        assert 1 < hop.most_open <= 6, "30 messages, one connection more after each five"


@pytest.mark.parametrize(
    "rate",
    [
        "421 4.7.28 Gmail has detected an unusual rate of mail",
        "421 4.7.0 [TSS04] Messages from 192.0.2.1 temporarily deferred",
    ],
)
async def test_a_reply_that_a_pattern_names_pauses_the_next_hop_and_costs_few_attempts(
    tmp_path: Path, rate: str
) -> None:
    limits = shaped(tmp_path, pause="2s", connections=4, first_connections=4)
    async with (
        Provider(messages=10, window=1.5, rate=rate) as hop,
        relay(tmp_path, {"out": way(host(hop))}, run=False, **limits) as found,
    ):
        await queued(found, 30)
        found.run_queue()
        await eventually(lambda: bool(found.node.hop(OUT).held_back))
        told = found.node.hop(OUT)
        assert rate in told.held_back
        assert told.held_back_until is not None
        assert told.tried_at(None, told.held_back_until - timedelta(seconds=1)) == told.held_back_until
        assert told.keeps(told.held_back_until).startswith("held back until 20")
        await eventually(lambda: settled(found))
        assert len(set(hop.taken)) == len(hop.taken) == 30
        assert len(hop.refused) <= 4 * 4, "at most one for each connection and pause"
        assert len([row for row in await found.events() if row == "DEFER"]) <= len(hop.refused)


async def test_what_is_held_back_keeps_its_place_and_no_attempt_is_counted(tmp_path: Path) -> None:
    limits = shaped(tmp_path, pause="1h", connections=4, first_connections=1)
    async with (
        Provider(messages=0) as hop,
        relay(tmp_path, {"out": way(host(hop))}, run=False, **limits) as found,
    ):
        await queued(found, 5)
        found.run_queue()
        await eventually(lambda: bool(found.node.hop(OUT).held_back))
        for _ in range(3):
            found.node.queue.wake.set()
            await asyncio.sleep(0.3)
        assert len(hop.refused) == 1
        tries = sorted([one.attempts for copy in await found.copies() for one in copy.unsettled])
        assert tries == [0, 0, 0, 0, 1]
        assert (await found.events()).count("DEFER") == 1
        hop.messages = 100
        found.node.queue.try_now(OUT)
        await eventually(lambda: settled(found))
        assert len(hop.taken) == 5


async def test_a_refusal_in_place_of_a_greeting_pauses_and_the_host_does_not_rest(tmp_path: Path) -> None:
    limits = shaped(tmp_path, pause="1s", connections=8, first_connections=8)
    async with (
        Provider(connections=2) as hop,
        relay(tmp_path, {"out": way(host(hop))}, run=False, **limits) as found,
    ):
        hop.hold = asyncio.Event()
        await queued(found, 20)
        found.run_queue()
        await eventually(lambda: bool(found.node.hop(OUT).held_back))
        hop.hold.set()
        await eventually(lambda: settled(found))
        assert "DEFER" not in await found.events()
        assert not found.node.queue.hops[OUT].failures


async def test_a_session_ends_after_its_messages(tmp_path: Path) -> None:
    limits = shaped(tmp_path, connections=1, messages_per_session=4)
    async with (
        Provider(per_session=4) as hop,
        relay(tmp_path, {"out": way(host(hop))}, run=False, **limits) as found,
    ):
        await queued(found, 12)
        found.run_queue()
        await eventually(lambda: settled(found))
        await eventually(lambda: len(hop.sizes) == 3)
        assert (hop.sizes, hop.refused) == ([4, 4, 4], [])


async def test_a_message_that_is_suspended_under_way_gives_its_place_back(tmp_path: Path) -> None:
    limits = shaped(tmp_path, connections=1, first_connections=1)
    async with Provider() as hop, relay(tmp_path, {"out": way(host(hop))}, run=False, **limits) as found:
        hop.hold_rcpt = asyncio.Event()
        await queued(found, 1)
        (copy,) = await found.copies()
        found.run_queue()
        await hop.asked.wait()
        now = found.node.clock()
        await found.read(lambda ledger: ledger.apply(operated.suspend(ledger, copy.id, None, BY, now)))
        hop.hold_rcpt.set()
        await eventually(lambda: hop.open == 0)
        assert hop.taken == []
        await queued(found, 1, "example.com")
        found.node.queue.wake.set()
        await eventually(lambda: hop.taken == ["u0@example.com"])


async def test_sessions_from_before_a_reload_are_not_used_beside_its_limits(tmp_path: Path) -> None:
    limits = shaped(tmp_path, connections=1, messages_per_session=1)
    async with Provider() as hop, relay(tmp_path, {"out": way(host(hop))}, run=False, **limits) as found:
        shaping = found.node.queue.shaping
        shapes, patterns = shaping.shapes, shaping.patterns
        shaping.take((), ())
        await queued(found, 3)
        found.run_queue()
        await eventually(lambda: settled(found))
        before = hop.sessions
        shaping.take(shapes, patterns)
        await queued(found, 3, "example.com")
        found.node.queue.wake.set()
        await eventually(lambda: settled(found))
        assert hop.sessions == before + 3


async def test_whoever_fills_the_counts_of_strangers_pauses_no_next_hop() -> None:
    counts = SharedCounts(memoryview(bytearray(SIZE)), 1)
    for number in range(16_000):
        counts.take(f"source {number}", None)
    shaping = Shaping(lambda: NOW, lambda: None)
    shaping.share(counts)
    every = LaneLimits(name="a", match=("*",), connections=1, first_connections=1, growth=1)
    shaping.take([every], ())
    lanes = [shaping.lane(NextHop(f"mx/{number}.example"), "") for number in range(100)]
    assert not any(lane and shaping.held_back(lane) for lane in lanes)
    assert not any(lane and shaping.yields(lane.key) for lane in lanes)


async def test_a_pause_ends_though_the_machine_slept_for_hours() -> None:
    now = NOW
    shaping = Shaping(lambda: now, lambda: None)
    every = LaneLimits(name="a", match=("*",), connections=1, first_connections=1, growth=1)
    less = Pattern(
        name="less", match=("*",), code=421, enhanced="", text=("less",), pause=timedelta(minutes=5)
    )
    shaping.take([every], [less])
    lane = shaping.lane(OUT, "mx.example")
    assert lane
    assert shaping.heard(lane, "421 4.7.0 Less, please")
    assert shaping.paused(lane)
    now += timedelta(hours=2)
    shaping.prune()
    await eventually(lambda: not shaping.paused(lane))


async def test_what_was_not_sent_takes_no_count_of_another_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_counts, "MINUTE", 0.2)
    shaping = Shaping(lambda: NOW, lambda: None)
    some = {"connections": 1, "first_connections": 1, "growth": 1, "messages_per_minute": 1}
    shaping.take([LaneLimits(name="a", match=("*",), **some)], ())
    lane = shaping.lane(OUT, "mx.example")
    assert lane
    first = shaping.message(lane)
    await eventually(lambda: not shaping.held_back(lane))
    monkeypatch.setattr(shared_counts, "MINUTE", 3600.0)
    second = shaping.message(lane)
    shaping.unsent(lane, first)
    assert shaping.held_back(lane)
    shaping.unsent(lane, second)
    assert not shaping.held_back(lane)
    shaping.stop()


async def test_no_more_than_so_many_messages_go_in_a_minute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_counts, "MINUTE", 2.0)
    limits = shaped(tmp_path, connections=5, first_connections=5, messages_per_minute=8)
    async with (
        Provider(messages=8, window=1.9) as hop,
        relay(tmp_path, {"out": way(host(hop))}, run=False, **limits) as found,
    ):
        await queued(found, 20)
        found.run_queue()
        await eventually(lambda: "8 messages a minute" in found.node.hop(OUT).held_back)
        await eventually(lambda: settled(found))
        assert (len(hop.taken), hop.refused) == (20, [])


async def test_a_pattern_of_one_next_hop_never_holds_another(tmp_path: Path) -> None:
    limits = shaped(tmp_path, pause="1h")
    async with (
        Provider(messages=0) as bad,
        Provider() as good,
        relay(
            tmp_path,
            {"out": way(host(bad)), "other": way(host(good), domains=["other.test"])},
            run=False,
            **limits,
        ) as found,
    ):
        await queued(found, 3)
        found.run_queue()
        await eventually(lambda: bool(found.node.hop(OUT).held_back))
        await queued(found, 5, "other.test")
        await eventually(lambda: len(good.taken) == 5)
        assert not found.node.hop(NextHop("other")).held_back


async def test_domains_that_one_host_of_mx_serves_share_its_connections(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    limits = shaped(tmp_path, match=("*.big.test",), connections=2)
    zone: dict[tuple[str, str], Any] = {(f"d{one}.test", "MX"): ["10 mx.big.test."] for one in range(6)}
    zone["mx.big.test", "A"] = ["127.0.0.1"]
    async with LoopbackDns(zone) as dns, Provider(connections=2, port=port) as hop:
        routes = {"world": {"domains": ["*"], "mx": True, "port": port, "tls": "none"}}
        async with relay(tmp_path, routes, run=False, dns=dns.setting, **limits) as found:
            for number in range(6):
                await queued(found, 4, f"d{number}.test")
            found.run_queue()
            await eventually(lambda: settled(found))
            assert (len(hop.taken), hop.refused, hop.most_open) == (24, [], 2)


async def test_older_mail_of_another_domain_gets_the_connection_of_a_lane_that_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue, "TURN", 0.0)
    (port,) = free_ports(1)
    limits = shaped(tmp_path, match=("*.big.test",), connections=1)
    zone: dict[tuple[str, str], Any] = {(f"{one}.test", "MX"): ["10 mx.big.test."] for one in "ab"}
    zone["mx.big.test", "A"] = ["127.0.0.1"]
    routes = {"world": {"domains": ["*"], "mx": True, "port": port, "tls": "none"}}
    async with LoopbackDns(zone) as dns, Provider(connections=1, port=port) as hop:
        hop.hold = asyncio.Event()
        async with relay(tmp_path, routes, dns=dns.setting, **limits) as found:
            await queued(found, 1, "a.test")
            await eventually(lambda: hop.open == 1)
            await queued(found, 1, "b.test")
            await queued(found, 40, "a.test")
            hop.hold.set()
            await eventually(lambda: settled(found))
            assert [to.partition("@")[2] for to in hop.taken].index("b.test") < 10


async def test_a_worker_leaves_a_place_to_another_that_has_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue, "TURN", 0.2)
    async with (
        Provider(connections=1) as hop,
        two_workers(tmp_path, hop, connections=1) as (first, second),
    ):
        hop.takes = 0.2
        await queued(first, 60)
        await queued(second, 1, "second.test")
        first.run_queue()
        await eventually(lambda: len(hop.taken) > 1)
        second.run_queue()
        await eventually(lambda: settled(second))
        assert len(hop.taken) < 55, "the first one has not come to its end"


@asynccontextmanager
async def two_workers(
    tmp_path: Path, hop: Provider, *, routes: Any = None, dns: Any = None, **limits: Any
) -> AsyncIterator[list[Station]]:
    """Two workers of one node, as far as counts go. ``routes``: if not all mail goes to that hop."""
    more: dict[str, Any] = {"dns": dns} if dns else {}
    memory = memoryview(bytearray(SIZE))
    async with AsyncExitStack() as stack:
        found = []
        for number in (1, 2):
            directory = tmp_path / str(number)
            directory.mkdir()
            settings = shaped(tmp_path, **limits)
            one = relay(directory, routes or {"out": way(host(hop))}, run=False, **settings, **more)
            found.append(await stack.enter_async_context(one))
            found[-1].node.queue.shaping.share(SharedCounts(memory, number))
        yield found


async def test_the_limits_count_over_the_workers_of_a_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_counts, "MINUTE", 2.0)
    limits = {"connections": 3, "first_connections": 3, "messages_per_minute": 12}
    async with (
        Provider(connections=3, messages=12, window=1.9) as hop,
        two_workers(tmp_path, hop, **limits) as workers,
    ):
        for one in workers:
            await queued(one, 12)
        for one in workers:
            one.run_queue()
        for one in workers:
            await eventually(lambda one=one: settled(one))  # type: ignore[misc]
        assert (len(hop.taken), hop.refused) == (24, [])


async def test_a_pause_counts_for_all_workers_of_the_node(tmp_path: Path) -> None:
    async with (
        Provider(messages=0) as hop,
        two_workers(tmp_path, hop, pause="1h", first_connections=1) as (first, second),
    ):
        await queued(first, 1)
        first.run_queue()
        await eventually(lambda: bool(first.node.hop(OUT).held_back))
        await queued(second, 3)
        second.run_queue()
        await eventually(lambda: "another worker" in second.node.hop(OUT).held_back)
        for _ in range(3):
            second.node.queue.wake.set()
            await asyncio.sleep(0.3)
        assert len(hop.refused) == 1
        hop.messages = 100
        first.node.queue.try_now(OUT)
        await eventually(lambda: settled(second))


async def test_an_operator_ends_the_pause_at_the_worker_that_has_no_mail_for_that_next_hop(
    tmp_path: Path,
) -> None:
    (port,) = free_ports(1)
    zone: dict[tuple[str, str], Any] = {(f"{one}.test", "MX"): ["10 mx.big.test."] for one in "ab"}
    zone["mx.big.test", "A"] = ["127.0.0.1"]
    routes = {"world": {"domains": ["*"], "mx": True, "port": port, "tls": "none"}}
    limits = {"pause": "1h", "match": ("*.big.test",), "first_connections": 1}
    async with (
        LoopbackDns(zone) as dns,
        Provider(messages=0, port=port) as hop,
        two_workers(tmp_path, hop, routes=routes, dns=dns.setting, **limits) as (first, second),
    ):
        a, b = NextHop("world/a.test"), NextHop("world/b.test")
        await queued(first, 1, "a.test")
        first.run_queue()
        await eventually(lambda: bool(first.node.hop(a).held_back))
        await queued(second, 3, "b.test")
        second.run_queue()
        await eventually(lambda: "another worker" in second.node.hop(b).held_back)
        hop.messages = 100
        for worker in (first, second):  # the settings were read again, and all hear of the job
            shaping = worker.node.queue.shaping
            shaping.take(shaping.shapes, shaping.patterns)
            worker.node.queue.try_now(b)
        await eventually(lambda: settled(second))
        # What was ended before it began ends no other pause.
        hop.messages = 0
        await queued(second, 1, "b.test")
        second.node.queue.wake.set()
        await eventually(lambda: hop.rate in second.node.hop(b).held_back)
        refused = len(hop.refused)
        await asyncio.sleep(2.5)
        assert "since mx.big.test said" in second.node.hop(b).held_back
        assert len(hop.refused) == refused


async def test_a_host_that_ignores_quit_keeps_no_worker_from_other_mail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Timeouts, "within", lambda _: Timeouts(quit=3600.0))
    limits = shaped(tmp_path, connections=1, messages_per_session=1)
    async with Provider() as hop, Provider() as good:
        hop.hold_quit = asyncio.Event()
        routes = {"out": way(host(hop)), "other": way(host(good), domains=["other.test"])}
        async with relay(tmp_path, routes, max_outbound_connections=1, run=False, **limits) as found:
            await queued(found, 1)
            found.run_queue()
            try:
                await eventually(lambda: settled(found))
                await queued(found, 1, "other.test")
                found.node.queue.wake.set()
                await eventually(lambda: good.taken == ["u0@other.test"])
                await queued(found, 1)
                found.node.queue.wake.set()
                assert hop.sessions == 1, "its session is not over, and has the only place"
            finally:
                hop.hold_quit.set()
            await eventually(lambda: len(hop.taken) == 2)


async def test_an_idle_session_that_makes_room_and_ignores_quit_keeps_no_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Timeouts, "within", lambda _: Timeouts(quit=3600.0))
    limits = shaped(tmp_path, match=("127.0.0.1",), connections=1)
    async with Provider() as hop, Provider() as second, Provider() as good:
        hop.hold_quit = asyncio.Event()
        routes = {
            "out": way(host(hop), host(second, preference=10)),
            "other": way(host(good), domains=["other.test"]),
        }
        limits["shaping"]["b"] = {"match": ["other"]}
        async with relay(tmp_path, routes, max_outbound_connections=1, run=False, **limits) as found:
            await queued(found, 1)
            found.run_queue()
            try:
                await eventually(lambda: settled(found))
                assert len(hop.taken) == 1
                rests = Host(OUT, "127.0.0.1", hop.port)
                found.node.hosts.failed(rests, ConnectionFailed("connect", "gone"), several=True)
                await queued(found, 1)
                found.node.queue.wake.set()
                await eventually(lambda: not found.node.queue.hops[OUT].idle)
                await queued(found, 1, "other.test")
                found.node.queue.wake.set()
                await eventually(lambda: good.taken == ["u0@other.test"])
                assert second.sessions == 0
            finally:
                hop.hold_quit.set()
            await eventually(lambda: settled(found))


async def test_a_connection_that_fails_costs_no_message_of_the_minute(tmp_path: Path) -> None:
    (gone,) = free_ports(1)
    limits = shaped(tmp_path, match=("out",), connections=1, messages_per_minute=3)
    async with (
        Provider() as hop,
        relay(tmp_path, {"out": way(host(gone), host(hop, preference=10))}, run=False, **limits) as found,
    ):
        await queued(found, 3)
        found.run_queue()
        await eventually(lambda: settled(found))
        assert len(hop.taken) == 3
        await queued(found, 1)
        found.node.queue.wake.set()
        await eventually(lambda: "3 messages a minute" in found.node.hop(OUT).held_back)


async def test_a_session_that_the_host_had_ended_costs_no_message_of_the_minute(tmp_path: Path) -> None:
    limits = shaped(tmp_path, connections=1, messages_per_minute=4)
    async with (
        Provider(per_session=2) as hop,
        relay(tmp_path, {"out": way(host(hop))}, run=False, **limits) as found,
    ):
        await queued(found, 4)
        found.run_queue()
        await eventually(lambda: settled(found))
        assert (len(hop.taken), hop.refused) == (4, [hop.spent])


class Asked(shared_counts.OwnCounts):
    """Counts how often it is asked whether a lane pauses."""

    def __init__(self) -> None:
        super().__init__()
        self.pauses = 0

    def of(self, key: str) -> int:
        self.pauses += key.startswith("shaping pause")
        return super().of(key)


async def test_a_message_asks_once_whether_its_lane_pauses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked = 0
    places = queue.LaneShares.places

    def counted(shares: queue.LaneShares, name: NextHop, outbound: Outbound) -> int:
        nonlocal looked
        looked += 1
        return places(shares, name, outbound)

    monkeypatch.setattr(queue.LaneShares, "places", counted)
    limits = shaped(tmp_path, connections=5, first_connections=5, messages_per_minute=1000)
    async with Provider() as hop, relay(tmp_path, {"out": way(host(hop))}, run=False, **limits) as found:
        asked = Asked()
        found.node.queue.shaping.share(asked)
        await queued(found, 60)
        found.run_queue()
        await eventually(lambda: settled(found))
        assert asked.pauses - looked <= 60 + hop.sessions


async def test_mail_that_is_held_back_expires_all_the_same(tmp_path: Path) -> None:
    limits = shaped(tmp_path, pause="1h", first_connections=1)
    async with Provider(messages=0) as hop, relay(tmp_path, {"out": way(host(hop))}, **limits) as found:
        await queued(found, 2)
        await eventually(lambda: bool(found.node.hop(OUT).held_back))
        found.clock.ahead = timedelta(hours=5)
        found.node.queue.shaping.heard(found.node.queue.shaping.lane(OUT, "127.0.0.1"), hop.rate)  # type: ignore[arg-type]

        async def told() -> bool:
            return (await found.events()).count("DSN") == 2

        await eventually(told)
        found.clock.ahead = timedelta(days=3)

        async def failed() -> bool:
            return (await found.events()).count("FAIL") == 2

        await eventually(failed)
        assert len(hop.refused) <= 2


async def test_another_host_takes_what_a_paused_one_does_not(tmp_path: Path) -> None:
    limits = shaped(tmp_path, pause="1h", match=("localhost",))
    async with Provider(messages=0) as bad, Provider() as other:
        first = {"address": f"localhost:{bad.port}"}
        async with relay(
            tmp_path, {"out": way(first, host(other, preference=10))}, run=False, **limits
        ) as found:
            await queued(found, 10)
            found.run_queue()
            await eventually(lambda: settled(found))
            assert (len(bad.taken), len(other.taken)) == (0, 10)
            assert bad.sessions <= 2
            assert "DEFER" not in await found.events()
