"""Mail to hosts with TLSA records, and an attacker between: it is deferred, never in clear (RFC 7672)."""

from __future__ import annotations

import asyncio
import hashlib
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from loopback_dns import SERVFAIL, SILENT, LoopbackDns
from one_domain import DOMAIN, TO, Sending
from policy_host import PolicyHost, answer, policy
from sending import MESSAGE, sent
from stations import eventually, station
from tls_hop import Stripper, TlsHop, certificate_for

from shadowlab.ports import free_ports
from shadowrelay.errors import NodeFailed
from shadowrelay.service.reloading import Reloading
from shadowrelay.service.validating import validated
from shadowrelay.settings import settings_from_tree
from tests.e2e.neighbourhood import PATIENCE, room
from tests.neighbours import postfix, signed_dns
from tests.neighbours.postfix import Postfix
from tests.neighbours.signed_dns import SignedDns

HOST, PROVEN = "mx.example.net", "proven.test"
WRONG = "3 1 1 " + "ab" * 32
UNUSABLE = ["1 1 1 " + "ab" * 32, "3 1 1 abcd"]


def record(certificate: Path, usage: int = 3, selector: int = 1) -> str:
    """A TLSA record of the first certificate of a file."""
    found = x509.load_pem_x509_certificate(certificate.read_bytes())
    key = found.public_key().public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    octets = key if selector else found.public_bytes(serialization.Encoding.DER)
    return f"{usage} {selector} 1 {hashlib.sha256(octets).hexdigest()}"


@dataclass(kw_only=True)
class World(Sending):
    """A node, and all that it meets on its way to the domain. ``right``: a record of the host's key."""

    dns: LoopbackDns
    hop: TlsHop
    right: str
    base: str  # of the host's TLSA records

    def told(self) -> list[tuple[str, str, str]]:
        """What is shown, the last one first."""
        return [(one.host, one.kind, one.result) for one in self.found.node.tls_results.seen()]


@asynccontextmanager
async def world(
    tmp_path: Path,
    tlsa: Any = "right",
    *,
    tls: bool = True,
    at: Any = None,
    signed: tuple[str, ...] = (DOMAIN, PROVEN),
    **route: Any,
) -> AsyncIterator[World]:
    """``tlsa``: the host's records, or what the name server does in place of an answer; "right": such that
    match. ``at``: makes who is between.
    """
    (tmp_path / "ca").mkdir()
    context = certificate_for(tmp_path / "ca", HOST)
    right = record(tmp_path / "ca" / f"{HOST}.pem")
    async with AsyncExitStack() as stack:
        hop = await stack.enter_async_context(TlsHop(context if tls else None))
        between = await stack.enter_async_context(at(hop)) if at else hop
        base = f"_{between.port}._tcp.{HOST}"
        zone: dict[tuple[str, str], Any] = {
            (DOMAIN, "MX"): [f"10 {HOST}."],
            (HOST, "A"): ["127.0.0.1"],
            (base, "TLSA"): [right] if tlsa == "right" else tlsa,
            (PROVEN, "SOA"): [f"ns.{PROVEN}. root.{PROVEN}. 1 60 60 60 60"],
        }
        dns = await stack.enter_async_context(LoopbackDns(zone, ttl=0))
        dns.signed = signed
        given = {"domains": ["*"], "mx": True, "dane": True, "port": between.port, **route}
        asks = {**dns.setting, "signed_zone": PROVEN}
        found = await station(tmp_path, "mx1", [], routes={"world": given}, dns=asks)
        found.run_queue()
        try:
            yield World(dns=dns, hop=hop, found=found, right=right, base=base)
        finally:
            await found.stop()


async def test_a_host_that_matches_its_records_gets_the_mail_in_one_session(tmp_path: Path) -> None:
    async with world(tmp_path) as found:
        await found.delivered()
        await found.delivered()
        assert found.hop.taken == [True, True]
        assert found.told() == [(HOST, "dane", "")]
        assert sum(found.found.node.tls_results.counts.values()) == 1


async def test_a_certificate_that_no_record_matches_gets_nothing(tmp_path: Path) -> None:
    async with world(tmp_path, [WRONG]) as found:
        await found.waits("4.7.5 tls: the certificate matches no TLSA record")
        assert found.told() == [(HOST, "dane", "certificate-not-trusted")]
        assert not found.hop.taken


@pytest.mark.parametrize("tlsa", ["right", UNUSABLE])
async def test_a_stripped_starttls_is_no_delivery_in_clear(tmp_path: Path, tlsa: Any) -> None:
    between: list[Stripper] = []

    def attacker(hop: TlsHop) -> Stripper:
        between.append(Stripper(hop))
        return between[0]

    async with world(tmp_path, tlsa, at=attacker) as found:
        await found.waits("4.7.5")
        kind = "dane" if tlsa == "right" else "encrypted"
        assert found.told() == [(HOST, kind, "starttls-not-supported")]
        assert not found.hop.taken
        assert b"MAIL" not in between[0].clear.upper()


@pytest.mark.parametrize("says", [SERVFAIL, SILENT])
async def test_who_holds_tlsa_back_gets_no_mail_and_no_session(tmp_path: Path, says: str) -> None:
    async with world(tmp_path, says, tls=False) as found:
        await found.waits("TLSA of")
        assert found.told() == [(HOST, "dane", "dnssec-invalid")]
        assert not found.hop.taken


async def test_who_holds_back_the_addresses_alone_does_not_get_past_tlsa(tmp_path: Path) -> None:
    async with world(tmp_path, tls=False) as found:
        found.dns.zone[HOST, "A"] = found.dns.zone[HOST, "AAAA"] = SERVFAIL
        await found.waits("no name server gave an answer")
        assert found.told() == [(HOST, "dane", "dnssec-invalid")]
        assert not found.hop.taken


async def test_records_that_are_all_unusable_take_any_certificate_and_never_clear_text(
    tmp_path: Path,
) -> None:
    async with world(tmp_path, UNUSABLE) as found:
        await found.delivered()
        assert found.hop.taken == [True]
        assert found.told() == [(HOST, "encrypted", "tlsa-invalid")]


@pytest.mark.parametrize(("tlsa", "signed"), [([], (DOMAIN,)), ([WRONG], ())])
async def test_without_records_that_are_authentic_mail_goes_as_ever(
    tmp_path: Path, tlsa: Any, signed: tuple[str, ...]
) -> None:
    async with world(tmp_path, tlsa, tls=False, signed=(*signed, PROVEN)) as found:
        await found.delivered()
        assert found.hop.taken == [False]
        assert found.told() == [(HOST, "opportunistic", "")]


async def test_a_host_that_proves_nothing_leaves_mail_to_the_next_one(tmp_path: Path) -> None:
    async with world(tmp_path) as found:
        found.dns.zone[DOMAIN, "MX"] = [f"10 first.{DOMAIN}.", f"20 {HOST}."]
        found.dns.zone[f"first.{DOMAIN}", "A"] = ["127.0.0.1"]
        found.dns.zone[found.base.replace(HOST, f"first.{DOMAIN}"), "TLSA"] = SERVFAIL
        await found.delivered()
        assert found.told()[0] == (HOST, "dane", "")
        assert "DEFER" not in await found.found.events()


async def test_a_host_that_shows_too_little_for_one_domain_takes_the_mail_of_another(
    tmp_path: Path,
) -> None:
    async with world(tmp_path, [WRONG]) as found:
        found.dns.zone["other.test", "MX"] = [f"10 {HOST}."]  # nobody proves that it is a host of that one
        await found.waits("matches no TLSA record")
        assert (await sent(found.found, MESSAGE, "bert@other.test")).startswith("250 ")
        await eventually(lambda: found.hop.taken == [True])
        rows = await found.found.tracked()
    deferred = [row["recipient-address"] for row in rows if row["event-id"] == "DEFER"]
    assert deferred == [TO]


async def test_a_session_of_before_is_not_used_for_other_records(tmp_path: Path) -> None:
    async with world(tmp_path) as found:
        await found.delivered()
        found.dns.zone[found.base, "TLSA"] = [WRONG]
        await found.waits("matches no TLSA record")
        assert found.hop.taken == [True]


async def test_dane_counts_before_a_policy_of_mta_sts(tmp_path: Path) -> None:
    async with world(tmp_path, mta_sts=True) as found:
        host = PolicyHost(tmp_path / "policies", f"mta-sts.{DOMAIN}")
        async with host:
            host.says = answer(policy("elsewhere.example.net"))
            found.dns.zone[f"_mta-sts.{DOMAIN}", "TXT"] = ['"v=STSv1; id=1;"']
            await found.delivered()
        assert found.told()[0] == (HOST, "dane", "")


async def test_mail_waits_while_the_resolver_does_not_validate(tmp_path: Path) -> None:
    async with world(tmp_path, signed=()) as found:
        await found.waits("4.7.5 tls: the name servers do not validate")
        assert found.told() == [(HOST, "dane", "dnssec-invalid")]
        assert not found.hop.taken


async def test_a_node_does_not_begin_with_dane_and_a_resolver_that_does_not_validate(
    tmp_path: Path,
) -> None:
    async with world(tmp_path) as found:
        settings = found.found.node.settings
        await validated(settings)
        found.dns.signed = ()
        with pytest.raises(NodeFailed, match=r"routes\.world\.dane: the name servers do not validate"):
            await validated(settings)
        found.dns.zone[PROVEN, "SOA"] = SILENT  # it may come back: the node runs, and mail waits
        await validated(settings)


async def test_settings_with_dane_are_taken_only_with_a_resolver_that_validates(tmp_path: Path) -> None:
    async with world(tmp_path, dane=False) as found:
        node = found.found.node
        file = settings_from_tree(
            node.settings.model_dump(exclude_none=True)
            | {"routes": {"world": {"domains": ["*"], "mx": True, "dane": True, "port": found.hop.port}}}
        )
        writer = SimpleNamespace(limit=lambda _: None)  # of a tracking log that nobody writes
        reloading = Reloading(node, lambda: file, {}, writer, asyncio.Event())  # type: ignore[arg-type]
        signed, found.dns.signed = found.dns.signed, ()
        shown = await reloading.reload()
        assert not shown.taken
        assert "do not validate" in shown.wrong[0]
        found.dns.signed = signed
        assert (await reloading.reload()).taken
        await found.delivered()
        assert found.told() == [(HOST, "dane", "")]


async def test_a_process_that_cannot_have_dane_ends_and_says_so(tmp_path: Path) -> None:
    async with world(tmp_path, signed=()) as found:
        file = tmp_path / "node.toml"
        lines = [
            'name = "mx9.example.org"',
            f'data_dir = "{tmp_path}/data"',
            '[receive.default]\nlisten = "127.0.0.1:0"',
            '[admin]\nlisten = "127.0.0.1:0"',
            '[routes.world]\ndomains = ["*"]\nmx = true\ndane = true',
            f'[dns]\nservers = ["127.0.0.1:{found.dns.port}"]\nsigned_zone = "{PROVEN}"',
        ]
        file.write_text("\n".join(lines), "utf-8")
        command = [sys.executable, "-m", "shadowrelay", "run", str(file)]
        process = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.PIPE)
        try:
            _, said = await asyncio.wait_for(process.communicate(), PATIENCE)
        finally:
            if process.returncode is None:
                process.kill()
    assert process.returncode == 1
    assert "routes.world.dane: the name servers do not validate" in said.decode()
    assert not (tmp_path / "data").exists()


# With a signed zone of Knot DNS, unbound, and Postfix.


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[SignedDns, Postfix, int]]:
    """Each domain X.signed.test has the host mx.X.signed.test, and all hosts are one Postfix."""
    (port,) = free_ports(1)
    ca = tmp_path_factory.mktemp("ca")
    certificate_for(ca, "shown.signed.test", "mx.authority.signed.test", "mx.alias-authority.signed.test")
    own, issuer = ca / "shown.signed.test.pem", ca / "ca.pem"
    names = {
        "right": [record(own)],
        "whole": [record(own, selector=0)],
        "authority": [record(issuer, 2, 0)],
        "authority-of-others": [record(issuer, 2)],
        "wrong": [WRONG],
        "many": [*UNUSABLE, WRONG, record(own, selector=0), record(issuer, 2)],
        "unusable": UNUSABLE,
        "expired": [record(own)],
        "tampered": [record(own)],
    }
    signed = ["missing MX 10 mx.missing", "mx.missing A 127.0.0.1"]
    for name, records in names.items():
        signed += [f"{name} MX 10 mx.{name}", f"mx.{name} A 127.0.0.1"]
        signed += [f"_{port}._tcp.mx.{name} TLSA {one}" for one in records]
    signed += ["alias MX 10 mx.alias", "mx.alias CNAME mx.right"]
    signed += ["alias-wrong MX 10 mx.alias-wrong", "mx.alias-wrong CNAME mx.missing"]
    signed += [f"_{port}._tcp.mx.alias-wrong TLSA {WRONG}"]
    signed += ["away MX 10 mx.away", "mx.away CNAME mx.open.test.", f"_{port}._tcp.mx.away TLSA {WRONG}"]
    signed += ["open MX 10 mx.open.test."]
    unsigned = ["mx A 127.0.0.1", f"_{port}._tcp.mx TLSA {WRONG}", "to-signed MX 10 mx.wrong.signed.test."]
    settings = {
        "default_transport": "discard:",
        "smtpd_client_event_limit_exceptions": "static:all",
        "smtpd_tls_security_level": "may",
        "smtpd_tls_loglevel": 1,
    }
    with room() as directory:
        shown = directory / "shown.pem"
        key = (ca / "shown.signed.test.key").read_bytes()
        shown.write_bytes(key + own.read_bytes() + issuer.read_bytes())
        settings["smtpd_tls_chain_files"] = str(shown)
        at = f"_{port}._tcp.mx"
        with (
            postfix.running(directory / "postfix", port, settings) as neighbour,
            signed_dns.running(
                directory / "dns",
                signed,
                unsigned,
                expired=[f"{at}.expired.signed.test."],
                tampered={f"{at}.tampered.signed.test.": WRONG},
            ) as dns,
        ):
            yield dns, neighbour, port


def needs_neighbours(test: Callable[..., Any]) -> Any:
    why = postfix.missing() or signed_dns.missing()
    for mark in (pytest.mark.slow, pytest.mark.skipif(why is not None, reason=str(why))):
        test = mark(test)
    return test


GO = ("right", "whole", "authority", "many", "unusable", "missing", "alias", "open")
WAIT = {
    "authority-of-others": "the certificate is not for mx.authority-of-others.signed.test",
    "wrong": "matches no TLSA record",
    "expired": "TLSA of",
    "tampered": "TLSA of",
    "alias-wrong": "matches no TLSA record",
    "away": "matches no TLSA record",
}


@needs_neighbours
async def test_postfix_gets_what_a_signed_zone_lets_it_have(
    there: tuple[SignedDns, Postfix, int], tmp_path: Path
) -> None:
    dns, neighbour, port = there
    route = {"domains": ["*"], "mx": True, "dane": True, "port": port}
    found = await station(tmp_path, "mx1", [], routes={"world": route}, dns=dns.setting)
    await validated(found.node.settings)
    for name in (*GO, *WAIT):
        assert (await sent(found, MESSAGE, f"anna@{name}.signed.test")).startswith("250 ")
    await sent(found, MESSAGE, "anna@to-signed.open.test")
    found.run_queue()

    async def tried() -> bool:
        left = [one for copy in await found.copies() for one in copy.recipients if not one.settled]
        return len(left) == len(WAIT) and all(one.last_reply for one in left)

    try:
        await eventually(tried, within=PATIENCE)
        left = {one.address: one.last_reply for copy in await found.copies() for one in copy.recipients}
        results = {one.domain: (one.kind, one.result) for one in found.node.tls_results.seen()}
        rows = await found.tracked()
    finally:
        await found.stop()
    gone = [row["recipient-address"] for row in rows if row["event-id"] == "SENDEXTERNAL"]
    assert sorted(gone) == sorted([*(f"anna@{name}.signed.test" for name in GO), "anna@to-signed.open.test"])
    for name, why in WAIT.items():
        assert why in left[f"anna@{name}.signed.test"], name
    assert results["right.signed.test"] == results["alias.signed.test"] == ("dane", "")
    assert results["unusable.signed.test"] == ("encrypted", "tlsa-invalid")
    assert results["authority-of-others.signed.test"] == ("dane", "certificate-host-mismatch")
    assert results["expired.signed.test"] == ("dane", "dnssec-invalid")
    assert results["missing.signed.test"] == results["open.signed.test"] == ("opportunistic", "")
    assert neighbour.said().count("TLS connection established") >= len(GO)


@needs_neighbours
async def test_unbound_without_its_validator_is_no_resolver_for_dane(
    there: tuple[SignedDns, Postfix, int], tmp_path: Path
) -> None:
    dns, _, port = there
    route = {"domains": ["*"], "mx": True, "dane": True, "port": port}
    asks = dns.setting | {"servers": [f"127.0.0.1:{dns.careless}"]}
    found = await station(tmp_path, "mx1", [], routes={"world": route}, dns=asks)
    try:
        with pytest.raises(NodeFailed, match="do not validate"):
            await validated(found.node.settings)
    finally:
        await found.stop()
