"""What is authentic of what the DNS says, and which names are asked for TLSA records (RFC 7672 2)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from loopback_dns import SERVFAIL, SILENT, LoopbackDns
from test_resolver import asking

from shadowrelay.core.delivery.mx import DnsTrouble, MxHost
from shadowrelay.core.delivery.tls_policy import DaneAnswer, Tlsa
from shadowrelay.resolver import NameServer, Resolver

DIGEST = "5" * 64
RECORD, PARSED = f"3 1 1 {DIGEST}", Tlsa(3, 1, 1, bytes.fromhex(DIGEST))
ZONE: dict[tuple[str, str], Any] = {
    ("a.signed.test", "MX"): ["10 mx.signed.test."],
    ("mx.signed.test", "A"): ["127.0.0.1"],
    ("_25._tcp.mx.signed.test", "TLSA"): [RECORD],
    ("_2525._tcp.mx.signed.test", "TLSA"): ["2 0 1 " + DIGEST, RECORD],
    ("plain.signed.test", "MX"): ["10 bare.signed.test."],
    ("bare.signed.test", "A"): ["127.0.0.1"],
    ("itself.signed.test", "A"): ["127.0.0.1"],
    ("out.signed.test", "MX"): ["10 mx.open.test."],
    ("mx.open.test", "A"): ["127.0.0.1"],
    ("_25._tcp.mx.open.test", "TLSA"): [RECORD],
    ("in.open.test", "MX"): ["10 mx.signed.test."],
    ("alias.signed.test", "MX"): ["10 other.signed.test."],
    ("other.signed.test", "CNAME"): ["mx.signed.test."],
    ("away.signed.test", "MX"): ["10 away-mx.signed.test."],
    ("away-mx.signed.test", "CNAME"): ["mx.open.test."],
    ("broken.signed.test", "MX"): ["10 broken-mx.signed.test."],
    ("broken-mx.signed.test", "A"): SERVFAIL,
    ("broken-mx.signed.test", "AAAA"): SERVFAIL,
    ("broken.open.test", "MX"): ["10 broken-mx.signed.test."],
    ("_25._tcp.bogus.signed.test", "TLSA"): SERVFAIL,
    ("_25._tcp.silent.signed.test", "TLSA"): SILENT,
    ("signed.test", "SOA"): ["ns.signed.test. root.signed.test. 1 60 60 60 60"],
    ("open.test", "SOA"): ["ns.open.test. root.open.test. 1 60 60 60 60"],
    ("bogus.test", "SOA"): SERVFAIL,
}


@asynccontextmanager
async def validating(*, authentic: bool = True) -> AsyncIterator[tuple[Resolver, LoopbackDns]]:
    async with LoopbackDns(dict(ZONE)) as found:
        found.signed = ("signed.test",)
        resolver = Resolver([NameServer("127.0.0.1", found.port)], 1.0, authentic=authentic)
        try:
            yield resolver, found
        finally:
            resolver.close()


@pytest.mark.parametrize(
    ("domain", "bases"),
    [
        ("a.signed.test", ("mx.signed.test",)),
        ("plain.signed.test", ("bare.signed.test",)),
        ("itself.signed.test", ("itself.signed.test",)),  # no MX, which is authentic too
        ("out.signed.test", ()),  # its addresses are not authentic
        ("in.open.test", ()),  # its MX record is not
        ("alias.signed.test", ("mx.signed.test", "other.signed.test")),
        ("away.signed.test", ("away-mx.signed.test",)),  # the CNAME is, where it leads is not
        ("[127.0.0.1]", ()),
    ],
)
async def test_names_are_asked_for_tlsa_where_all_that_led_there_is_authentic(
    domain: str, bases: tuple[str, ...]
) -> None:
    async with validating() as (resolver, _):
        (host,) = await resolver.hosts_of(domain)
    assert host.bases == bases
    assert host.addresses == ("127.0.0.1",)


async def test_nothing_is_authentic_unless_it_is_asked_for() -> None:
    async with validating(authentic=False) as (resolver, _):
        (host,) = await resolver.hosts_of("a.signed.test")
    assert host == MxHost(10, "mx.signed.test", ("127.0.0.1",))


async def test_a_host_of_which_only_the_proof_is_missing_is_no_host_without_tlsa() -> None:
    async with validating() as (resolver, _):
        (host,) = await resolver.hosts_of("broken.signed.test")
        assert (host.bases, host.addresses) == ((), ())
        assert "no name server gave an answer" in host.trouble
        (host,) = await resolver.hosts_of("broken.open.test")  # nobody proves that it is a host at all
        assert host.trouble == ""


async def test_tlsa_is_asked_by_port_and_the_first_name_that_has_records_counts() -> None:
    async with validating() as (resolver, found):
        names = ("bare.signed.test", "mx.signed.test")
        assert await resolver.tlsa(names, 25) == DaneAnswer("mx.signed.test", (PARSED,))
        answer = await resolver.tlsa(("mx.signed.test", "bare.signed.test"), 2525)
        assert answer is not None
        assert len(answer.records) == 2
        assert found.count("_2525._tcp.bare.signed.test", "TLSA") == 0
        assert await resolver.tlsa(("bare.signed.test",), 25) is None
        assert await resolver.tlsa((), 25) is None
        assert await resolver.tlsa(("mx.open.test",), 25) is None  # not authentic


@pytest.mark.parametrize("name", ["bogus.signed.test", "silent.signed.test"])
async def test_an_answer_that_is_held_back_is_trouble_and_no_other_name_is_asked(name: str) -> None:
    async with validating() as (resolver, found):
        answer = await resolver.tlsa((name, "mx.signed.test"), 25)
        assert answer is not None
        assert answer.trouble
        assert found.count("_25._tcp.mx.signed.test", "TLSA") == 0


async def test_whether_the_name_servers_validate_is_seen_at_a_signed_zone() -> None:
    async with validating() as (resolver, found):
        assert await resolver.not_validating("signed.test") == ""
        assert "do not validate" in await resolver.not_validating("open.test")
        assert "know no zone" in await resolver.not_validating("nowhere.test")
        with pytest.raises(DnsTrouble):
            await resolver.not_validating("bogus.test")
        found.signed = ()
        assert "do not validate" in await resolver.not_validating("signed.test"), "asked anew"


async def test_name_servers_elsewhere_are_believed_only_if_they_are_trusted() -> None:
    async with LoopbackDns(dict(ZONE)) as found:
        found.signed = ("signed.test",)
        servers = [NameServer("127.0.0.1", found.port), NameServer("192.0.2.53", 53)]
        for trusted in (True, False):
            resolver = Resolver(servers, 10.0, authentic=True, trusted=trusted)
            assert bool(await resolver.not_validating("signed.test")) is not trusted
            resolver.close()


async def test_without_dane_questions_are_as_before() -> None:
    async with asking() as (resolver, _):
        made = resolver._resolver()
        assert (made.ednsflags, made.flags) == (0, None)


async def test_each_name_server_has_to_validate() -> None:
    # What the first one calls bogus (SERVFAIL), the second one is asked.
    async with LoopbackDns(dict(ZONE)) as first, LoopbackDns(dict(ZONE)) as second:
        first.signed = ("signed.test",)
        servers = [NameServer("127.0.0.1", first.port), NameServer("127.0.0.1", second.port)]
        resolver = Resolver(servers, 5.0, authentic=True)
        try:
            assert "do not validate" in await resolver.not_validating("signed.test")
            second.signed = ("signed.test",)
            assert await resolver.not_validating("signed.test") == ""
            first.zone["signed.test", "SOA"] = SERVFAIL  # one that gives no answer misleads nobody
            assert await resolver.not_validating("signed.test") == ""
        finally:
            resolver.close()
