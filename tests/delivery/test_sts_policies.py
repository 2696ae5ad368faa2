"""Policies of MTA-STS: fetched from a real HTTPS server, kept in a real database, announced by a real DNS."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from loopback_dns import SERVFAIL, SILENT, LoopbackDns
from policy_host import SILENT as NO_ANSWER
from policy_host import PolicyHost, answer, policy
from stations import database_id, eventually, full, incarnation

from shadowrelay.core.delivery.mta_sts import StsMode, StsPolicy
from shadowrelay.core.reckoning import Endings
from shadowrelay.database import sts_policies as kept_policies
from shadowrelay.database.transport import TransportDatabase
from shadowrelay.delivery import sts_policies
from shadowrelay.delivery.sts_fetching import FetchFailed, PolicyFetcher
from shadowrelay.delivery.sts_policies import AT_ONCE, StsPolicies
from shadowrelay.resolver import NameServer, Resolver

NOW = datetime(2026, 11, 30, 10, 0, tzinfo=UTC)
_numbers = count(1)

DOMAIN = "example.net"
HOST = f"mta-sts.{DOMAIN}"
RECORD = f"_mta-sts.{DOMAIN}"
WEEK = timedelta(days=7)


@dataclass
class World:
    """A node's policies, and all that they depend on."""

    directory: Path
    dns: LoopbackDns
    host: PolicyHost
    policies: StsPolicies
    resolver: Resolver
    database: Any
    passed: timedelta = timedelta()
    patience: float = 30.0  # seconds for an answer of the DNS
    failed: list[tuple[str, str]] = field(default_factory=list)

    def announce(self, identifier: str) -> None:
        self.dns.zone[RECORD, "TXT"] = [f'"v=STSv1; id={identifier};"']

    async def restart(self, *, limit: float = 30.0) -> None:
        """A new process on the same database. It has forgotten what was in memory, answers of the DNS too."""
        if self.database is not None:
            self.resolver.close()
            await self.database.close(NOW)
        self.database = await TransportDatabase.open(
            self.directory, full("mx1"), incarnation(next(_numbers)), database_id(1), NOW
        )
        self.resolver = Resolver([NameServer("127.0.0.1", self.dns.port)], self.patience)

        async def addresses(host: str) -> tuple[str, ...]:
            return await self.resolver.addresses(host, mx_port=self.host.port)

        self.policies = StsPolicies(
            self.database,
            lambda: self.resolver,
            PolicyFetcher(addresses, self.host.port, self.host.authority, limit),
            lambda: Endings(NOW + self.passed),
            lambda domain, result: self.failed.extend([(domain, result)] if result else []),
        )

    async def rows(self) -> int:
        """How many policies are kept."""
        counting = "SELECT count(*) FROM sts_policy"
        count: int = await self.database.transact(
            lambda ledger: ledger.connection.execute(counting).fetchone()[0]
        )
        return count

    async def of(self) -> StsPolicy | None:
        return await self.policies.of(DOMAIN)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with made(tmp_path) as found:
        yield found


@asynccontextmanager
async def made(directory: Path) -> AsyncIterator[World]:
    says = answer(policy())
    zone: dict[tuple[str, str], Any] = {
        (HOST, "A"): ["127.0.0.1"],
        (RECORD, "TXT"): ['"v=STSv1; " "id=1;"'],  # two strings are one text
    }
    async with LoopbackDns(zone, ttl=0) as dns, PolicyHost(directory / "ca", HOST, says=says) as host:
        found = World(directory / "data", dns, host, None, None, None)  # type: ignore[arg-type]
        await found.restart()
        yield found
        found.resolver.close()
        await found.database.close(NOW)


async def test_a_policy_is_fetched_once_and_kept(world: World) -> None:
    found = await world.of()
    assert found == StsPolicy(StsMode.ENFORCE, ("mail.example.net",), WEEK, "1", NOW)
    assert await world.of() == found
    assert len(world.host.asked) == 1
    head = world.host.asked[0].lower()
    assert head.startswith("get /.well-known/mta-sts.txt http/1.1\r\n")
    assert f"\r\nhost: {HOST}:{world.host.port}\r\n" in head


async def test_a_domain_that_announces_nothing_is_not_asked(world: World) -> None:
    del world.dns.zone[RECORD, "TXT"]
    assert await world.of() is None
    assert await world.policies.of("[127.0.0.1]") is None
    assert not world.host.asked


@pytest.mark.parametrize("dns", [[], SERVFAIL, SILENT, ['"v=STSv1"'], ['"v=STSv1; id=1"', '"v=STSv1; id=1"']])
async def test_what_is_kept_counts_when_the_dns_says_nothing_and_after_a_restart(
    world: World, dns: Any
) -> None:
    found = await world.of()
    world.dns.zone[RECORD, "TXT"] = dns
    world.patience = 0.5 if dns == SILENT else world.patience
    for _ in range(2):
        await world.restart()
        assert await world.of() == found
    assert len(world.host.asked) == 1


REFUSALS: list[tuple[bytes, str]] = [
    (
        answer("", status="302 Found", more="Location: https://mta-sts.example.org/\r\n"),
        "sts-policy-fetch-error",
    ),
    (answer(policy(), status="404 Not Found"), "sts-policy-fetch-error"),
    (answer(policy(), status="206 Partial Content"), "sts-policy-fetch-error"),
    (answer(policy(), kind="text/html"), "sts-policy-fetch-error"),
    (answer(policy(), more="Content-Encoding: gzip\r\n"), "sts-policy-fetch-error"),
    (answer(policy() + "x: y\r\n" * 20_000), "sts-policy-fetch-error"),
    (answer(policy()).replace(b"Content-Length: ", b"Content-Length: 9"), "sts-policy-fetch-error"),
    (b"220 mail.example.net ESMTP\r\n", "sts-policy-fetch-error"),
    (answer("version: STSv1\r\n"), "sts-policy-invalid"),
    (NO_ANSWER, "sts-policy-fetch-error"),
]


@pytest.mark.parametrize(("says", "result"), REFUSALS, ids=range(len(REFUSALS)))
async def test_what_is_kept_counts_when_the_host_gives_no_other_policy(
    world: World, says: bytes, result: str
) -> None:
    found = await world.of()
    world.announce("2")
    world.host.says = says
    await world.restart(limit=1.0 if result == "sts-policy-fetch-error" else 30.0)
    assert await world.of() == found
    await eventually(lambda: world.failed == [(DOMAIN, result)])
    assert await world.of() == found
    assert len(world.host.asked) <= 2, "a fetch that failed was repeated at once"


async def test_a_host_that_shows_another_name_or_another_authority_is_asked_nothing(world: World) -> None:
    world.host.shows("mta-sts.example.org")
    await world.host.again()
    assert await world.of() is None
    await world.restart()
    strangers = PolicyHost(world.directory / "other", HOST, says=world.host.says)
    await world.host.stop()
    await strangers.__aenter__()
    world.policies.fetcher = PolicyFetcher(
        world.policies.fetcher.addresses, strangers.port, world.host.authority
    )
    assert await world.of() is None
    await strangers.stop()
    assert world.failed == [(DOMAIN, "sts-webpki-invalid")] * 2
    assert not world.host.asked
    assert not strangers.asked


async def test_nobody_at_one_address_is_no_answer_of_the_other(world: World) -> None:
    world.dns.zone[HOST, "A"] = ["127.0.0.1"]
    world.dns.zone[HOST, "AAAA"] = ["::1"]  # is tried first, and nobody listens there
    assert await world.of() is not None


async def test_another_id_brings_another_policy(world: World) -> None:
    await world.of()
    world.announce("2")
    world.host.says = answer(policy("*.example.com", mode="testing"))
    found = await world.of()
    assert found is not None
    assert (found.mode, found.mx, found.identifier) == (StsMode.TESTING, ("*.example.com",), "2")
    world.announce("3")
    world.host.says = answer("version: STSv1\nmode: none\nmax_age: 86400\n")
    assert await world.of() is None
    await world.restart()
    assert await world.of() is None
    assert len(world.host.asked) == 3


async def test_a_policy_ends_and_is_forgotten(world: World) -> None:
    assert await world.of()
    await world.host.stop()
    world.passed = WEEK - timedelta(seconds=1)
    assert await world.of()
    world.passed = WEEK
    assert await world.of() is None
    await world.policies.refresh()
    assert await world.database.transact(lambda ledger: kept_policies.kept(ledger, DOMAIN)) is None


async def test_it_is_fetched_again_before_it_ends_though_its_id_is_the_same(world: World) -> None:
    await world.of()
    await world.policies.refresh()
    assert len(world.host.asked) == 1
    world.passed = timedelta(days=1)
    await world.policies.refresh()
    assert len(world.host.asked) == 2
    del world.dns.zone[HOST, "A"]  # nothing can be fetched from now on
    world.passed = timedelta(days=8) - timedelta(seconds=1)
    assert await world.of(), "it did not count from the second fetch on"


async def test_what_no_mail_asks_for_is_not_fetched_again(world: World) -> None:
    world.host.says = answer(policy(max_age=31557600))
    await world.of()
    for days in (10, 20, 29):
        world.passed = timedelta(days=days)
        await world.policies.refresh()
    assert len(world.host.asked) == 4
    world.passed = timedelta(days=40)
    await world.policies.refresh()
    assert len(world.host.asked) == 4
    await world.of()
    await world.policies.refresh()
    assert len(world.host.asked) == 5


async def test_many_that_wait_are_one_fetch_and_domains_do_not_wait_for_one_another(world: World) -> None:
    world.host.released.clear()
    waiting = [asyncio.create_task(world.of()) for _ in range(50)]
    other = "mta-sts.example.com"
    world.dns.zone[other, "A"] = ["127.0.0.1"]
    world.dns.zone["_mta-sts.example.com", "TXT"] = ['"v=STSv1; id=1;"']
    waiting.append(asyncio.create_task(world.policies.of("example.com")))
    await eventually(
        lambda: len(world.host.asked) == 1 and world.failed == [("example.com", "sts-webpki-invalid")]
    )
    world.host.released.set()
    found = await asyncio.gather(*waiting)
    assert found[0] is not None
    assert found[:-1] == [found[0]] * 50
    assert len(world.host.asked) == 1


async def hindered_by_slow_hosts(world: World) -> list[asyncio.Task[StsPolicy | None]]:
    """As many fetches as there are places, none of which gets an answer before ``released``."""
    slow = [f"slow{number}.example.net" for number in range(AT_ONCE)]
    for name in slow:
        world.dns.zone[f"_mta-sts.{name}", "TXT"] = ['"v=STSv1; id=1;"']
        world.dns.zone[f"mta-sts.{name}", "A"] = ["127.0.0.1"]
    world.host.shows(HOST, *(f"mta-sts.{name}" for name in slow))
    await world.host.again()
    world.host.released.clear()
    hindered = [asyncio.create_task(world.policies.of(name)) for name in slow]
    await eventually(lambda: len(world.host.asked) == AT_ONCE)
    return hindered


async def test_whoever_waits_for_room_does_not_go_without_a_policy(world: World) -> None:
    hindered = await hindered_by_slow_hosts(world)
    mine = asyncio.create_task(world.of())
    await eventually(lambda: world.dns.count(RECORD, "TXT") == 1)
    world.host.released.set()
    assert await mine is not None
    assert all(await asyncio.gather(*hindered))


async def test_slow_hosts_leave_room_for_others(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sts_policies, "SLOW", 0.1)
    hindered = await hindered_by_slow_hosts(world)
    mine = asyncio.create_task(world.of())
    await eventually(lambda: len(world.host.asked) == AT_ONCE + 1)
    assert not any(one.done() for one in hindered)
    world.host.released.set()
    assert all(await asyncio.gather(mine, *hindered))


async def test_mail_does_not_wait_for_a_slow_host_if_a_policy_is_kept(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = await world.of()
    monkeypatch.setattr(sts_policies, "SLOW", 0.1)
    world.host.released.clear()
    world.announce("2")
    assert await world.of() == found
    assert not world.failed, "mail waited until the fetch had failed"
    world.host.released.set()

    async def another() -> bool:
        counts = await world.of()
        return counts is not None and counts.identifier == "2"

    await eventually(another)


async def test_a_slow_host_does_not_hold_up_what_else_is_fetched_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.of()
    monkeypatch.setattr(sts_policies, "SLOW", 0.1)
    world.host.released.clear()
    world.passed = timedelta(days=1)
    await world.policies.refresh()
    assert not world.failed
    world.host.released.set()

    async def again() -> bool:
        kept = await world.policies.kept(DOMAIN)
        return kept is not None and kept.fetched_at == NOW + world.passed

    await eventually(again)


async def test_authorities_are_read_once_until_their_file_changes(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[Any] = []
    make = ssl.create_default_context

    def noted(*purpose: Any, cafile: Path | None = None) -> ssl.SSLContext:
        read.extend([cafile] if cafile else [])
        return make(*purpose, cafile=cafile)

    monkeypatch.setattr(ssl, "create_default_context", noted)
    fetcher = world.policies.fetcher
    await asyncio.gather(*(fetcher.text(DOMAIN) for _ in range(5)))
    assert len(read) == 1
    strangers = PolicyHost(world.directory / "other", HOST, says=world.host.says)
    await world.host.stop()
    async with strangers:
        fetcher.port = strangers.port
        with pytest.raises(FetchFailed, match="CERTIFICATE_VERIFY_FAILED"):
            await fetcher.text(DOMAIN)
        fresh = world.directory / "fresh.pem"
        fresh.write_bytes(strangers.authority.read_bytes())
        fresh.replace(world.host.authority)
        assert await fetcher.text(DOMAIN)
    assert len(read) == 2


async def test_many_other_domains_take_no_policy_away(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stranger makes the node send to more domains than there are places, then blocks the DNS."""
    monkeypatch.setattr(kept_policies, "MOST", 3)
    world.host.says = answer(policy(max_age=31557600))
    found = await world.of()
    crowd = [f"crowd{number}.example.net" for number in range(5)]
    for name in crowd:
        world.dns.zone[f"_mta-sts.{name}", "TXT"] = ['"v=STSv1; id=1;"']
        world.dns.zone[f"mta-sts.{name}", "A"] = ["127.0.0.1"]
    world.host.shows(HOST, *(f"mta-sts.{name}" for name in crowd))
    await world.host.again()
    world.passed = timedelta(days=29)
    for name in crowd:
        assert await world.policies.of(name), "it did not count for the mail that it was fetched for"
    assert await world.rows() == 3
    world.dns.zone[RECORD, "TXT"] = SERVFAIL
    await world.restart()
    assert await world.of() == found


async def test_what_holds_back_no_mail_makes_room_and_then_what_no_mail_asked_for_in_a_month(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_policies, "MOST", 3)

    def keep(name: str, days: int, mode: StsMode = StsMode.ENFORCE) -> Any:
        at = NOW + timedelta(days=days)
        one = StsPolicy(mode, ("a.test",), timedelta(days=365), "1", at)
        return lambda ledger: kept_policies.keep(ledger, name, one, at, Endings(at))

    async def kept_of(names: str) -> str:
        read = [await world.policies.kept(name) for name in names]
        return "".join(name for name, one in zip(names, read, strict=True) if one)

    does = world.database.transact
    for one in keep("a", 0), keep("b", 1), keep("t", 2, StsMode.TESTING):
        assert await does(one)
    assert await does(keep("c", 3))
    assert await kept_of("abtc") == "abc"
    assert not await does(keep("n", 4, StsMode.NONE))
    assert not await does(keep("d", 29))
    assert await kept_of("abcnd") == "abc"
    assert await does(keep("b", 29)), "it is kept in its own place"
    assert await does(keep("d", 30))
    assert await kept_of("abcnd") == "bcd"


async def test_a_domain_that_fails_is_asked_again_after_five_minutes(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.host.says = answer("", status="500 No")
    assert await world.of() is None
    world.host.says = answer(policy())
    assert await world.of() is None
    monkeypatch.setattr(sts_policies, "NOT_AGAIN", timedelta())
    await world.restart()
    world.host.says = answer("", status="500 No")
    assert await world.of() is None
    world.host.says = answer(policy())
    assert await world.of() is not None
