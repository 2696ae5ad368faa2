"""What a domain's hosts are, asked of a real name server on loopback."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from loopback_dns import REFUSED, SERVFAIL, SILENT, LoopbackDns
from stations import eventually

from shadowrelay.core.delivery.mx import DnsTrouble, DomainRefused, MxHost
from shadowrelay.resolver import NameServer, Resolver, is_own

ZONE: dict[tuple[str, str], Any] = {
    ("example.net", "MX"): ["20 b.example.net.", "10 A.example.net.", "30 gone.example.net."],
    ("a.example.net", "A"): ["127.0.0.2"],
    ("a.example.net", "AAAA"): ["::1"],
    ("b.example.net", "A"): ["127.0.0.3", "127.0.0.4"],
    ("null.example.net", "MX"): ["0 ."],
    ("implicit.example.net", "A"): ["127.0.0.5"],
    ("six.example.net", "AAAA"): ["::1"],
    ("text.example.net", "TXT"): ['"no host"'],
    ("alias.example.net", "CNAME"): ["implicit.example.net."],
    ("aliased.example.net", "MX"): ["10 alias.example.net."],
    ("elsewhere.example.net", "CNAME"): ["example.net."],
    ("broken.example.net", "MX"): SERVFAIL,
    ("refused.example.net", "MX"): REFUSED,
    ("silent.example.net", "MX"): SILENT,
    ("half.example.net", "A"): ["127.0.0.6"],
    ("half.example.net", "AAAA"): SERVFAIL,
    ("nothing.example.net", "A"): SERVFAIL,
    ("nothing.example.net", "AAAA"): ["::1"],
    ("loop.example.net", "MX"): ["10 other.example.net.", "20 mx1.example.net.", "30 last.example.net."],
    ("other.example.net", "A"): ["127.0.0.7"],
    ("mx1.example.net", "A"): ["127.0.0.8"],
    ("address.example.net", "MX"): ["10 127.0.0.8.", "20 last.example.net."],
    ("behind.example.net", "MX"): ["5 other.example.net.", "10 127.0.0.8.", "20 last.example.net."],
    ("elsewhere-by-address.example.net", "MX"): ["10 192.0.2.7."],
    ("ours.example.net", "MX"): ["10 mx1.example.net.", "10 other.example.net."],
}


def is_us(host: MxHost, port: int) -> bool:
    return "127.0.0.8" in host.addresses and port == 25


@asynccontextmanager
async def asking(
    *servers: NameServer, timeout: float = 30.0, ttl: int = 300
) -> AsyncIterator[tuple[Resolver, LoopbackDns]]:
    async with LoopbackDns(dict(ZONE), ttl=ttl) as found:
        resolver = Resolver([NameServer("127.0.0.1", found.port)], timeout, is_us)
        try:
            yield resolver, found
        finally:
            resolver.close()


@pytest.mark.parametrize(
    ("domain", "hosts"),
    [
        (
            "example.net",
            [
                (10, "a.example.net", "::1", "127.0.0.2"),
                (20, "b.example.net", "127.0.0.4", "127.0.0.3"),
                (30, "gone.example.net"),
            ],
        ),
        ("implicit.example.net", [(0, "implicit.example.net", "127.0.0.5")]),
        ("six.example.net", [(0, "six.example.net", "::1")]),
        ("aliased.example.net", [(10, "alias.example.net", "127.0.0.5")]),
        ("alias.example.net", [(0, "alias.example.net", "127.0.0.5")]),
        ("half.example.net", [(0, "half.example.net", "127.0.0.6")]),
        ("nothing.example.net", [(0, "nothing.example.net", "::1")]),
        ("loop.example.net", [(10, "other.example.net", "127.0.0.7")]),
        ("behind.example.net", [(5, "other.example.net", "127.0.0.7")]),
        ("elsewhere-by-address.example.net", [(10, "192.0.2.7", "192.0.2.7")]),
        ("[192.0.2.1]", [(0, "192.0.2.1", "192.0.2.1")]),
        ("[IPv6:2001:db8::1]", [(0, "2001:db8::1", "2001:db8::1")]),
    ],
)
async def test_a_domain_has_hosts(domain: str, hosts: list[Any]) -> None:
    async with asking() as (resolver, _):
        found = await resolver.hosts_of(domain)
    assert [(one.preference, one.name, *sorted(one.addresses, reverse=True)) for one in found] == hosts


async def test_what_is_behind_an_alias_counts_for_the_alias() -> None:
    async with asking() as (resolver, _):
        assert [one.name for one in await resolver.hosts_of("elsewhere.example.net")] == [
            "a.example.net",
            "b.example.net",
            "gone.example.net",
        ]


@pytest.mark.parametrize(
    ("domain", "reply"),
    [
        ("null.example.net", "556 5.1.10 null.example.net takes no mail (null MX)"),
        ("missing.example.net", "550 5.1.2 missing.example.net does not exist in the DNS"),
        ("text.example.net", "550 5.1.2 text.example.net has neither MX records nor an address"),
        ("ours.example.net", "554 5.4.6 The mail for ours.example.net would come back to this server"),
        (
            "address.example.net",
            "554 5.4.6 The mail for address.example.net would come back to this server",
        ),
        ("[127.0.0.8]", "554 5.4.6 The mail for [127.0.0.8] would come back to this server"),
    ],
)
async def test_a_definite_no_fails_the_recipient(domain: str, reply: str) -> None:
    async with asking() as (resolver, _):
        with pytest.raises(DomainRefused) as refused:
            await resolver.hosts_of(domain)
    assert str(refused.value) == reply


@pytest.mark.parametrize(
    ("domain", "why"),
    [
        ("broken.example.net", "MX of broken.example.net: no name server gave an answer"),
        ("refused.example.net", "MX of refused.example.net: no name server gave an answer"),
        ("silent.example.net", "MX of silent.example.net: no answer in time"),
        ("x" * 64 + ".example.net", "LabelTooLong"),
    ],
)
async def test_trouble_is_no_answer_and_is_not_asked_about_again_at_once(domain: str, why: str) -> None:
    async with asking(timeout=0.4 if "silent" in domain else 30.0) as (resolver, server):
        for _ in range(3):
            with pytest.raises(DnsTrouble) as trouble:
                await resolver.hosts_of(domain)
            assert why in str(trouble.value)
        asked = server.count(domain, "MX")
        with pytest.raises(DnsTrouble):
            await resolver.hosts_of(domain)
        assert server.count(domain, "MX") == asked


async def test_without_any_name_server_there_is_trouble() -> None:
    async with LoopbackDns({}) as gone:
        port = gone.port
    resolver = Resolver([NameServer("127.0.0.1", port)], 0.4)
    with pytest.raises(DnsTrouble):
        await resolver.hosts_of("example.net")


async def test_a_second_name_server_answers_when_the_first_is_gone() -> None:
    async with LoopbackDns({}) as gone:
        port = gone.port
    async with LoopbackDns(dict(ZONE)) as server:
        both = [NameServer("127.0.0.1", port), NameServer("127.0.0.1", server.port)]
        assert await Resolver(both, 10.0).hosts_of("implicit.example.net")


async def test_an_answer_that_does_not_fit_is_asked_for_over_tcp() -> None:
    async with asking() as (resolver, server):
        server.truncated.add("example.net")
        assert len(await resolver.hosts_of("example.net")) == 3
        assert server.asked["udp", "example.net", "MX"] > 0 < server.asked["tcp", "example.net", "MX"]


async def test_an_answer_is_kept_as_long_as_it_says_and_no_longer() -> None:
    async with asking(ttl=1) as (resolver, server):
        await asyncio.gather(*(resolver.hosts_of("implicit.example.net") for _ in range(5)))
        await resolver.hosts_of("implicit.example.net")
        assert server.count("implicit.example.net", "MX") == 1
        server.zone["implicit.example.net", "A"] = ["127.0.0.9"]

        async def changed() -> bool:
            return (await resolver.hosts_of("implicit.example.net"))[0].addresses == ("127.0.0.9",)

        await eventually(changed)


async def test_a_host_without_an_address_is_trouble_and_no_answer_about_the_domain() -> None:
    async with asking() as (resolver, _):
        for host in ("gone.example.net", "text.example.net"):
            with pytest.raises(DnsTrouble, match=host):
                await resolver.addresses(host, mx_port=25)


async def test_both_families_are_tried_by_turns_and_not_more_than_five_addresses() -> None:
    async with asking() as (resolver, server):
        server.zone["many.example.net", "A"] = [f"127.0.0.{last}" for last in range(20, 28)]
        server.zone["many.example.net", "AAAA"] = ["2001:db8::1", "2001:db8::2"]
        found = await resolver.addresses("many.example.net", mx_port=25)
        assert [":" in one for one in found] == [True, False, True, False, False]


async def test_a_host_of_the_settings_is_looked_up_where_the_settings_say() -> None:
    async with asking() as (resolver, _):
        assert await resolver.addresses("a.example.net") == ("::1", "127.0.0.2")
        assert {"127.0.0.1", "::1"} & set(await resolver.addresses("localhost"))
    system = Resolver()
    assert {"127.0.0.1", "::1"} & set(await system.addresses("localhost"))
    with pytest.raises(DnsTrouble):
        await system.addresses("no-such-host.invalid")
    system.close()


@pytest.mark.parametrize("address", ["127.0.0.1", "::1", "/run/lmtp.sock"])
async def test_an_address_is_its_own_address(address: str) -> None:
    assert await Resolver([NameServer("127.0.0.1", 9)], 0.1).addresses(address) == (address,)


@pytest.mark.parametrize(
    ("address", "port", "own"),
    [
        ("127.0.0.1", 25, True),
        ("127.0.0.2", 25, True),
        ("::1", 25, True),
        ("0.0.0.0", 25, True),
        ("::", 25, True),
        ("::ffff:127.0.0.1", 25, True),
        ("127.0.0.1", 26, False),
        ("127.0.0.2", 26, False),
        ("192.0.2.1", 25, False),
        ("192.0.2.9", 27, True),
        ("::ffff:192.0.2.9", 27, True),
        ("::ffff:192.0.2.8", 27, False),
        ("192.0.2.8", 27, False),
        ("127.0.0.1", 27, False),
        ("127.0.0.2", 28, True),
        ("0.0.0.0", 28, True),
        ("192.0.2.8", 28, False),
    ],
)
def test_an_address_is_ours_if_a_connector_is_behind_it(address: str, port: int, *, own: bool) -> None:
    assert is_own(address, port, [("0.0.0.0", 25), ("192.0.2.9", 27), ("127.0.0.1", 28)]) == own


OURS = [
    *("127.0.0.1", "127.0.0.2", "127.255.255.254", "0.0.0.0", "::", "::1"),
    *("::ffff:127.0.0.1", "::ffff:0.0.0.0", "0:0:0:0:0:ffff:7f00:2", "[127.0.0.1]", "[IPv6:::1]"),
    *("[IPv6:::ffff:127.0.0.1]", "[0.0.0.0]"),
]


@pytest.mark.parametrize("listening", ["127.0.0.1", "127.0.0.9", "0.0.0.0", "::", "::1", "localhost", ""])
async def test_whatever_the_dns_says_for_this_machine_is_this_server_if_it_listens_there(
    listening: str,
) -> None:
    def is_us(host: MxHost, port: int) -> bool:
        return any(is_own(address, port, [(listening, 2525)]) for address in host.addresses)

    async with LoopbackDns({}) as server:
        resolver = Resolver([NameServer("127.0.0.1", server.port)], 30.0, is_us)
        for number, address in enumerate(OURS):
            if address.startswith("["):
                domain = address
            else:
                domain = f"d{number}.example.net"
                kind = "AAAA" if ":" in address else "A"
                server.zone[f"host.{domain}", kind] = [address]
                named = (
                    [f"10 {address}."] if "." in address and ":" not in address else [f"10 host.{domain}."]
                )
                server.zone[domain, "MX"] = [*named, "20 192.0.2.1."]
                assert (await resolver.hosts_of(domain, 2526))[0].addresses  # another server of the machine
            with pytest.raises(DomainRefused, match=r"^554 5\.4\.6 "):
                await resolver.hosts_of(domain, 2525)
            if not address.startswith("["):
                with pytest.raises(DnsTrouble, match="leads to this server"):
                    await resolver.addresses(address, mx_port=2525)
        resolver.close()


@pytest.mark.parametrize("rcode", ["FORMERR", "NOTIMP"])
@pytest.mark.parametrize("question", [True, False])
async def test_a_name_server_that_does_not_know_edns_is_asked_again_without(
    rcode: str, *, question: bool
) -> None:
    async with asking(timeout=30.0) as (resolver, server):
        server.without_edns = (rcode, question)
        assert [one.name for one in await resolver.hosts_of("example.net")] == [
            "a.example.net",
            "b.example.net",
            "gone.example.net",
        ]
        server.truncated.add("implicit.example.net")
        assert await resolver.hosts_of("implicit.example.net")
        assert server.asked["udp", "example.net", "MX"] == 2
        assert server.asked["tcp", "implicit.example.net", "MX"] == 2
        with pytest.raises(DomainRefused):
            await resolver.hosts_of("missing.example.net")
        with pytest.raises(DnsTrouble):
            await resolver.hosts_of("refused.example.net")


@pytest.mark.parametrize("everywhere", ["", "0.0.0.0", "::"])
@pytest.mark.parametrize("address", ["127.0.0.1", "127.0.0.2", "::1", "::", "::ffff:127.0.0.1"])
def test_what_listens_everywhere_is_behind_each_loopback_address(everywhere: str, address: str) -> None:
    assert is_own(address, 25, [(everywhere, 25)])
    assert not is_own(address, 2525, [(everywhere, 25)])


async def test_a_host_of_the_dns_that_came_to_lead_to_ourselves_is_not_connected_to() -> None:
    async with asking() as (resolver, _):
        assert await resolver.addresses("mx1.example.net", mx_port=2525) == ("127.0.0.8",)
        with pytest.raises(DnsTrouble, match=r"mx1.example.net leads to this server"):
            await resolver.addresses("mx1.example.net", mx_port=25)
        assert await resolver.addresses("mx1.example.net") == ("127.0.0.8",)  # a host of the settings


async def test_whoever_waits_for_an_answer_when_the_settings_change_goes_on() -> None:
    async with asking(timeout=30.0) as (resolver, server):
        waiting = asyncio.create_task(resolver.hosts_of("silent.example.net"))
        await eventually(lambda: bool(server.count("silent.example.net", "MX")))
        resolver.close()
        with pytest.raises(DnsTrouble):
            await waiting
