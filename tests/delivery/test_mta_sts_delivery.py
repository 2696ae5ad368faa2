"""Mail to a domain with a policy of MTA-STS and an attacker between: deferred or told, never in clear."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from loopback_dns import SERVFAIL, SILENT, LoopbackDns
from one_domain import DOMAIN, Sending
from policy_host import PolicyHost, answer, policy
from stations import eventually, opened, station
from stations import settings as node_settings
from test_queue import settled
from tls_hop import Stripper, TlsHop, certificate_for

from shadowrelay.service.adapters import resolver

HOST = "mail.example.net"
RECORD = ("_mta-sts.example.net", "TXT")


@dataclass(kw_only=True)
class World(Sending):
    """A node, and all that it meets on its way to the domain."""

    directory: Path
    stack: AsyncExitStack
    dns: LoopbackDns
    policies: PolicyHost
    hop: TlsHop

    def told(self) -> list[tuple[str, str, str, bool]]:
        """What is shown, the last one first."""
        return [(one.host, one.kind, one.result, one.testing) for one in self.found.node.tls_results.seen()]

    async def restart(self, **route: Any) -> None:
        """Another process with the same database."""
        await self.found.stop()
        given = settings(self.directory, self.dns, self.policies, self.hop.port, **route)
        self.found = await opened(node_settings(self.directory, "mx1", [], **given), 1, start=1)
        await self.found.listen()
        self.found.run_queue()


def settings(
    directory: Path, dns: LoopbackDns, policies: PolicyHost, port: int, **changes: Any
) -> dict[str, Any]:
    route = {"domains": ["*"], "mx": True, "mta_sts": True, "port": port, **changes}
    return {
        "routes": {"world": {**route, "ca": str(directory / "ca" / "ca.pem")}},
        "dns": {**dns.setting, "timeout": "5s"},
        "mta_sts": {"port": policies.port, "ca": str(policies.authority)},
    }


@asynccontextmanager
async def world(
    tmp_path: Path,
    said: str,
    *,
    shows: str = HOST,
    tls: bool = True,
    at: Any = None,
    requiretls: bool = False,
    **node: Any,
) -> AsyncIterator[World]:
    """``said``: the policy. ``shows``: the name in the host's certificate. ``at``: makes who is between.
    ``requiretls``: the host offers it. ``node``: more settings.
    """
    (tmp_path / "ca").mkdir()
    zone: dict[tuple[str, str], Any] = {
        (DOMAIN, "MX"): [f"10 {HOST}."],
        (HOST, "A"): ["127.0.0.1"],
        (f"mta-sts.{DOMAIN}", "A"): ["127.0.0.1"],
        RECORD: ['"v=STSv1; id=1;"'],
    }
    context = certificate_for(tmp_path / "ca", shows)
    async with AsyncExitStack() as stack:
        dns = await stack.enter_async_context(LoopbackDns(zone, ttl=0))
        says = answer(said)
        host = PolicyHost(tmp_path / "policies", f"mta-sts.{DOMAIN}", says=says)
        policies = await stack.enter_async_context(host)
        hop = await stack.enter_async_context(TlsHop(context if tls else None, requiretls=requiretls))
        between = await stack.enter_async_context(at(hop)) if at else hop
        given = settings(tmp_path, dns, policies, between.port) | node
        found = await station(tmp_path, "mx1", [], **given)
        found.run_queue()
        made = World(directory=tmp_path, stack=stack, dns=dns, policies=policies, hop=hop, found=found)
        try:
            yield made
        finally:
            await made.found.stop()


async def test_a_domain_is_asked_once_for_all_its_hosts(tmp_path: Path) -> None:
    async with world(tmp_path, policy("*.example.net")) as found:
        found.dns.zone[DOMAIN, "MX"] += [f"20 mx{number}.example.net." for number in range(3)]
        policies = found.found.node.tls_policies.sts
        asked, of = [], policies.of

        async def counted(domain: str) -> Any:
            asked.append(domain)
            return await of(domain)

        policies.of = counted  # type: ignore[method-assign]
        await found.delivered()
        assert asked == [DOMAIN]


async def test_a_host_of_the_policy_with_its_certificate_gets_the_mail(tmp_path: Path) -> None:
    async with world(tmp_path, policy("*.example.net")) as found:
        await found.delivered()
        await found.delivered()
        assert found.hop.taken == [True, True]
        assert found.told() == [(HOST, "pkix", "", False)]
        assert len(found.policies.asked) == 1


async def test_a_stripped_starttls_is_no_delivery_in_clear(tmp_path: Path) -> None:
    between: list[Stripper] = []

    def attacker(hop: TlsHop) -> Stripper:
        between.append(Stripper(hop))
        return between[0]

    async with world(tmp_path, policy(HOST), at=attacker) as found:
        await found.waits("4.7.5")
        assert found.told() == [(HOST, "pkix", "starttls-not-supported", False)]
        assert not found.hop.taken
        assert b"MAIL" not in between[0].clear.upper()


@pytest.mark.parametrize("shows", ["mail.example.org", "example.net"])
async def test_a_certificate_for_another_name_gets_nothing(tmp_path: Path, shows: str) -> None:
    async with world(tmp_path, policy(HOST), shows=shows) as found:
        await found.waits("4.7.5")
        assert found.told() == [(HOST, "pkix", "certificate-host-mismatch", False)]
        assert not found.hop.taken


async def test_a_certificate_of_an_unknown_authority_gets_nothing(tmp_path: Path) -> None:
    (tmp_path / "attacker").mkdir()
    async with world(tmp_path, policy(HOST)) as found:
        found.hop.tls = certificate_for(tmp_path / "attacker", HOST)
        await found.waits("4.7.5")
        assert found.told() == [(HOST, "pkix", "certificate-not-trusted", False)]
        assert not found.hop.taken


async def test_a_host_that_the_policy_does_not_name_is_not_tried(tmp_path: Path) -> None:
    """The attacker's MX record: his host has a good certificate for its name."""
    async with world(tmp_path, policy("mail.example.com *.mail.example.net")) as found:
        await found.waits("4.7.5")
        assert found.told() == [(HOST, "pkix", "validation-failure", False)]
        assert not found.hop.taken


@pytest.mark.parametrize("blocked", ["dns", "https", "both", "another certificate"])
async def test_who_blocks_dns_or_https_meets_the_policy_that_is_kept_after_a_restart_too(
    tmp_path: Path, blocked: str
) -> None:
    async with world(tmp_path, policy(HOST)) as found:
        await found.delivered()
        if blocked in ("dns", "both"):
            found.dns.zone[RECORD] = SERVFAIL
        else:
            found.dns.zone[RECORD] = ['"v=STSv1; id=2;"']
        if blocked in ("https", "both"):
            await found.policies.stop()
        if blocked == "another certificate":
            found.policies.shows("mta-sts.example.org")
            await found.policies.again()
        port = found.hop.port
        await found.hop.__aexit__()
        stripped = await found.stack.enter_async_context(TlsHop(None, port))
        await found.restart()
        await found.waits("4.7.5")
        assert (HOST, "pkix", "starttls-not-supported", False) in found.told()
        assert not stripped.taken


@pytest.mark.parametrize(
    ("more", "result"),
    [
        ({"tls": False}, "starttls-not-supported"),
        ({"shows": "mail.example.org"}, "certificate-host-mismatch"),
    ],
)
async def test_in_testing_a_failure_is_told_and_mail_goes_on(
    tmp_path: Path, more: dict[str, Any], result: str
) -> None:
    async with world(tmp_path, policy(HOST, mode="testing"), **more) as found:
        await found.delivered()
        assert found.told() == [(HOST, "pkix", result, True)]
        assert found.hop.taken == ["shows" in more]


async def test_in_testing_a_host_that_the_policy_does_not_name_is_told_and_tried(tmp_path: Path) -> None:
    async with world(tmp_path, policy("mail.example.com", mode="testing")) as found:
        await found.delivered()
        assert found.told() == [(HOST, "opportunistic", "validation-failure", True)]
        assert found.hop.taken == [True]


async def test_none_asks_for_nothing(tmp_path: Path) -> None:
    async with world(tmp_path, "version: STSv1\nmode: none\nmax_age: 86400\n", tls=False) as found:
        await found.delivered()
        assert found.hop.taken == [False]
        assert [one[1:] for one in found.told()] == [("opportunistic", "", False)]


async def test_a_policy_that_cannot_be_fetched_is_told_and_mail_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is known of the domain yet: RFC 8461 5.1."""
    async with world(tmp_path, "no policy") as found:
        await found.delivered()
        assert found.hop.taken == [True]
        assert (f"mta-sts.{DOMAIN}", "opportunistic", "sts-policy-invalid", True) in found.told()
        monkeypatch.setattr(found.found.node.tls_policies.sts, "_not_before", {})
        found.policies.says = answer(policy(HOST))
        await found.delivered()
        assert found.told() == [(HOST, "pkix", "", False)]


async def test_a_route_without_mta_sts_asks_nobody(tmp_path: Path) -> None:
    async with world(tmp_path, policy("mail.example.com")) as found:
        await found.restart(mta_sts=False)
        await found.delivered()
        assert found.hop.taken == [True]
        assert found.told() == []
        assert not found.dns.count(*RECORD)


async def test_mail_whose_question_is_open_when_name_servers_change_is_tried_again(tmp_path: Path) -> None:
    async with world(tmp_path, policy(HOST)) as at:
        records, at.dns.zone[DOMAIN, "MX"] = at.dns.zone[DOMAIN, "MX"], SILENT
        await at.send()
        await eventually(lambda: asyncio.sleep(0, bool(at.dns.count(DOMAIN, "MX"))))
        at.dns.zone[DOMAIN, "MX"] = records
        node = at.found.node
        former, node.resolver = node.resolver, resolver(node.settings)  # as a reload does
        node.hosts.resolver = node.resolver
        former.close()
        await eventually(lambda: settled(at.found))
