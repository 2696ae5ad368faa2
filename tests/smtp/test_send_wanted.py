"""What a session shows before it gets mail: DANE, a verified name, TLS alone. Then nothing goes in clear."""

from __future__ import annotations

import asyncio
import hashlib
import ssl
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from scripted_hop import ScriptedHop, envelope, recipients

from shadowrelay.authority import Pair, authority_pair, init, issue
from shadowrelay.core.delivery.settling import Ending
from shadowrelay.core.delivery.tls_policy import Tlsa, WantedTls
from shadowrelay.core.values import replace
from shadowrelay.smtp.sending.session import ConnectionFailed, DeliveryResult, DeliverySession
from shadowrelay.smtp.sending.shown import sees_chains

OFFERS = ("PIPELINING", "STARTTLS")
HOST = "mx.example.net"


class Shop:
    """An authority, and what it issues; ``context`` serves one certificate with the authority behind it."""

    def __init__(self, folder: Path, made: datetime | None = None) -> None:
        self.folder = folder
        self.now = made or datetime.now(UTC)
        init(folder, name=folder.name, now=self.now)
        self.authority = authority_pair(folder)

    def issued(self, name: str, days: int = 30) -> Pair:
        return issue(self.folder, name, now=self.now, lifetime=timedelta(days=days), force=True)

    def context(self, pair: Pair, *, chain: bool = True) -> ssl.SSLContext:
        shown = pair.certificate.read_bytes()
        if chain:
            shown += self.authority.certificate.read_bytes()
        both = self.folder / "shown.pem"
        both.write_bytes(shown)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(both, pair.key)
        return context


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Shop:
    return Shop(tmp_path_factory.mktemp("ours"))


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Shop:
    return Shop(tmp_path_factory.mktemp("other"))


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Shop:
    return Shop(tmp_path_factory.mktemp("old"), datetime.now(UTC) - timedelta(days=300))


def tlsa(certificate: Path, usage: int, selector: int = 1, matching: int = 1) -> Tlsa:
    """The record of that certificate, computed by others than those that check it."""
    found = x509.load_pem_x509_certificate(certificate.read_bytes())
    chosen = (
        found.public_key().public_bytes(
            serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        if selector
        else found.public_bytes(serialization.Encoding.DER)
    )
    made: dict[int, Callable[[bytes], bytes]] = {
        0: bytes,
        1: lambda octets: hashlib.sha256(octets).digest(),
        2: lambda octets: hashlib.sha512(octets).digest(),
    }
    return Tlsa(usage, selector, matching, made[matching](chosen))


def dane(*records: Tlsa, names: tuple[str, ...] = (HOST,)) -> WantedTls:
    return WantedTls("dane", "dane", tlsa=records, names=names)


async def send(hop: ScriptedHop, wanted: WantedTls, **server: object) -> tuple[DeliveryResult, str]:
    """The result, and what was told of TLS."""
    told: list[str] = []
    settings = {"tls": "opportunistic", "wanted": wanted} | server
    session = DeliverySession(hop.server(**settings), told=lambda _, result: told.append(result))
    await session.connect()
    try:
        content = b"Subject: x\r\n\r\nText\r\n"
        return await session.deliver(envelope(), recipients("a@example.net"), content), told[-1]
    finally:
        await session.close()


async def refused(hop: ScriptedHop, wanted: WantedTls, **server: object) -> str:
    """That nothing is sent, in whatever way; and the result of that."""
    with pytest.raises(ConnectionFailed) as failure:
        await send(hop, wanted, **server)
    assert hop.connections == 1
    assert set(hop.verbs()) <= {"EHLO", "HELO", "STARTTLS"}
    assert failure.value.step == "tls"
    return failure.value.result


@pytest.mark.parametrize("matching", [0, 1, 2])
@pytest.mark.parametrize("selector", [0, 1])
@pytest.mark.parametrize("usage", [2, 3])
async def test_a_chain_that_a_record_matches_gets_mail(
    shop: Shop, usage: int, selector: int, matching: int
) -> None:
    pair = shop.issued(HOST)
    named = pair.certificate if usage == 3 else shop.authority.certificate
    async with ScriptedHop(offers=OFFERS, tls=shop.context(pair)) as hop:
        result, told = await send(hop, dane(tlsa(named, usage, selector, matching)))
    assert result.encrypted
    assert result.results[0].ending is Ending.ACCEPTED
    assert told == ""


async def test_one_record_of_many_that_matches_is_enough(shop: Shop, other: Shop) -> None:
    pair = shop.issued(HOST)
    next_one = other.issued(HOST).certificate
    records = (
        tlsa(other.authority.certificate, 2),
        tlsa(next_one, 3, 0),
        tlsa(next_one, 3),
        tlsa(pair.certificate, 3),
    )
    async with ScriptedHop(offers=OFFERS, tls=shop.context(pair)) as hop:
        result, _ = await send(hop, dane(*records))
    assert result.results[0].ending is Ending.ACCEPTED


async def test_usage_3_looks_at_neither_name_nor_dates(old: Shop) -> None:
    pair = old.issued("quite-another.example")
    async with ScriptedHop(offers=OFFERS, tls=old.context(pair)) as hop:
        result, _ = await send(hop, dane(tlsa(pair.certificate, 3)))
    assert result.results[0].ending is Ending.ACCEPTED


@pytest.mark.parametrize("selector", [0, 1])
async def test_a_certificate_that_no_record_matches_gets_nothing(
    shop: Shop, other: Shop, selector: int
) -> None:
    named = shop.issued(HOST).certificate
    async with ScriptedHop(offers=OFFERS, tls=other.context(other.issued(HOST))) as hop:
        result = await refused(hop, dane(tlsa(named, 3, selector)))
    assert result == "certificate-not-trusted"


async def test_usage_2_wants_a_chain_that_leads_to_the_authority(shop: Shop, other: Shop) -> None:
    # The attacker sends our authority's certificate behind his own, which that authority never signed.
    stolen = other.folder / "with-ours.pem"
    pair = other.issued(HOST)
    stolen.write_bytes(pair.certificate.read_bytes() + shop.authority.certificate.read_bytes())
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(stolen, pair.key)
    async with ScriptedHop(offers=OFFERS, tls=context) as hop:
        result = await refused(hop, dane(tlsa(shop.authority.certificate, 2)))
    assert result == "certificate-not-trusted"


def own_make(
    folder: Path, *, issuer: tuple[x509.Certificate, ec.EllipticCurvePrivateKey] | None = None, ca: bool
) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    """A certificate as people make them: it says nothing of what its key is for."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, folder.name if ca else HOST)])
    now = datetime.now(UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(issuer[0].subject if issuer else name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
    )
    if ca:
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    else:
        builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName(HOST)]), critical=False)
    return builder.sign(issuer[1] if issuer else key, hashes.SHA256()), key


def serving(folder: Path, key: ec.EllipticCurvePrivateKey, *chain: x509.Certificate) -> ssl.SSLContext:
    """A server that shows that chain. The last one of it is in ``folder`` as ``last.pem``."""
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (folder / "all.pem").write_bytes(private + b"".join(one.public_bytes(pem) for one in chain))
    (folder / "last.pem").write_bytes(chain[-1].public_bytes(pem))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "all.pem")
    return context


async def test_an_authority_of_ones_own_need_not_say_what_its_key_is_for(tmp_path: Path) -> None:
    authority = own_make(tmp_path, ca=True)
    server = own_make(tmp_path, issuer=authority, ca=False)
    context = serving(tmp_path, server[1], server[0], authority[0])
    async with ScriptedHop(offers=OFFERS, tls=context) as hop:
        _, told = await send(hop, dane(tlsa(tmp_path / "last.pem", 2)))
    assert told == ""


async def test_who_has_a_certificate_of_the_authority_cannot_make_others(tmp_path: Path) -> None:
    authority = own_make(tmp_path, ca=True)
    neighbour = own_make(tmp_path, issuer=authority, ca=False)
    forged = own_make(tmp_path, issuer=neighbour, ca=False)
    context = serving(tmp_path, forged[1], forged[0], neighbour[0], authority[0])
    async with ScriptedHop(offers=OFFERS, tls=context) as hop:
        result = await refused(hop, dane(tlsa(tmp_path / "last.pem", 2)))
    assert result == "certificate-not-trusted"


async def test_usage_2_wants_one_of_the_names(shop: Shop) -> None:
    pair = shop.issued("neighbour.example.net")
    record = tlsa(shop.authority.certificate, 2)
    async with ScriptedHop(offers=OFFERS, tls=shop.context(pair)) as hop:
        assert await refused(hop, dane(record)) == "certificate-host-mismatch"
        _, told = await send(hop, dane(record, names=(HOST, "neighbour.example.net")))
    assert told == ""


async def test_usage_2_wants_a_certificate_that_is_valid_now(old: Shop) -> None:
    pair = old.issued(HOST)
    async with ScriptedHop(offers=OFFERS, tls=old.context(pair)) as hop:
        assert await refused(hop, dane(tlsa(old.authority.certificate, 2))) == "certificate-expired"


async def test_usage_2_does_not_name_the_certificate_of_the_server_itself(shop: Shop) -> None:
    pair = shop.issued(HOST)
    async with ScriptedHop(offers=OFFERS, tls=shop.context(pair)) as hop:
        assert await refused(hop, dane(tlsa(pair.certificate, 2))) == "certificate-not-trusted"


async def test_a_whole_authority_in_the_record_need_not_be_sent(shop: Shop) -> None:
    pair = shop.issued(HOST)
    async with ScriptedHop(offers=OFFERS, tls=shop.context(pair, chain=False)) as hop:
        _, told = await send(hop, dane(tlsa(shop.authority.certificate, 2, 0, 0)))
        assert told == ""
        result = "certificate-not-trusted"
        with pytest.raises(ConnectionFailed) as failure:
            await send(hop, dane(tlsa(shop.authority.certificate, 2, 0, 1)))
    assert failure.value.result == result


def test_this_interpreter_shows_chains() -> None:
    assert sees_chains()


async def test_the_server_hears_the_tlsa_base_domain(shop: Shop) -> None:
    asked: list[str | None] = []
    pair = shop.issued(HOST)
    context = shop.context(pair)
    context.sni_callback = lambda _, name, __: asked.append(name)  # type: ignore[assignment]
    async with ScriptedHop(offers=OFFERS, tls=context) as hop:
        await send(hop, dane(tlsa(pair.certificate, 3)))
    assert asked == [HOST]


@pytest.mark.parametrize("shows", ["its name", "another name", "another authority", "old"])
async def test_a_verified_name_is_the_hosts_of_an_authority_that_is_trusted(
    shop: Shop, other: Shop, old: Shop, shows: str
) -> None:
    issuer = {"another authority": other, "old": old}.get(shows, shop)
    pair = issuer.issued("other.example.net" if shows == "another name" else HOST)
    trusted = str((old if shows == "old" else shop).authority.certificate)
    wanted = WantedTls("pkix", "mta-sts", names=(HOST,))
    async with ScriptedHop(offers=OFFERS, tls=issuer.context(pair)) as hop:
        if shows == "its name":
            _, told = await send(hop, wanted, ca_file=trusted)
            assert told == ""
            return
        result = await refused(hop, wanted, ca_file=trusted)
    assert (
        result
        == {
            "another name": "certificate-host-mismatch",
            "another authority": "certificate-not-trusted",
            "old": "certificate-expired",
        }[shows]
    )


async def test_tls_without_a_known_peer_takes_any_certificate(other: Shop) -> None:
    wanted = WantedTls("encrypted", "dane", names=(HOST,), told="tlsa-invalid")
    async with ScriptedHop(offers=OFFERS, tls=other.context(other.issued("x.example"))) as hop:
        result, told = await send(hop, wanted)
    assert (bool(result.encrypted), told) == (True, "tlsa-invalid")


STRIPPED = [
    ({"offers": ("PIPELINING",)}, "starttls-not-supported"),
    ({"EHLO": b"502 5.5.1 no\r\n"}, "starttls-not-supported"),
    ({"offers": OFFERS, "STARTTLS": b"454 4.7.0 not now\r\n"}, "starttls-not-supported"),
    ({"offers": OFFERS, "STARTTLS": b"220 go\r\nthis is no handshake\r\n"}, "validation-failure"),
]


@pytest.mark.parametrize(("script", "result"), STRIPPED)
@pytest.mark.parametrize("tls", ["opportunistic", "none"])
@pytest.mark.parametrize("kind", ["encrypted", "pkix", "dane"])
async def test_nothing_goes_in_clear_text_whatever_is_stripped(
    shop: Shop, kind: str, tls: str, script: dict[str, object], result: str
) -> None:
    records = (tlsa(shop.authority.certificate, 2),)
    wanted = WantedTls(kind, "dane", tlsa=records, names=(HOST,))  # type: ignore[arg-type]
    async with ScriptedHop(**script) as hop:
        assert await refused(hop, wanted, tls=tls) == result


@pytest.mark.parametrize(("script", "result"), STRIPPED)
async def test_what_is_tested_is_told_and_mail_goes_in_clear_text_all_the_same(
    script: dict[str, object], result: str
) -> None:
    wanted = WantedTls("pkix", "mta-sts", names=(HOST,), testing=True)
    async with ScriptedHop(**script) as hop:
        sent, told = await send(hop, wanted)
    assert (sent.encrypted, sent.results[0].ending, told) == ("", Ending.ACCEPTED, result)


async def test_what_is_tested_and_fails_is_still_encrypted_where_that_can_be_had(other: Shop) -> None:
    wanted = WantedTls("pkix", "mta-sts", names=(HOST,), testing=True)
    async with ScriptedHop(offers=OFFERS, tls=other.context(other.issued(HOST))) as hop:
        sent, told = await send(hop, wanted)
    assert (bool(sent.encrypted), told) == (True, "certificate-not-trusted")


class Forger:
    """Makes certificates that no authority would issue, and shows them behind TLSA records of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.own, self.issuer, self.anchor = (ec.generate_private_key(ec.SECP256R1()) for _ in range(3))

    def made(self, subject: str, of: ec.EllipticCurvePrivateKey, *, ca: bool, names: int = 1) -> Any:
        name = lambda one: x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, one)])  # noqa: E731
        by = self.anchor if of is self.anchor else self.issuer
        now = datetime.now(UTC)
        made = x509.CertificateBuilder(
            name("anchor" if by is self.anchor else "issuer"),
            name(subject),
            of.public_key(),
            x509.random_serial_number(),
            now - timedelta(days=1),
            now + timedelta(days=9),
        )
        made = made.add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
        made = made.add_extension(x509.SubjectKeyIdentifier.from_public_key(of.public_key()), critical=False)
        if not ca:
            others = [x509.DNSName(f"{number:x}.b") for number in range(names)]
            made = made.add_extension(x509.SubjectAlternativeName(others), critical=False)
        return made.sign(by, hashes.SHA256())

    def context(self, *chain: Any) -> ssl.SSLContext:
        shown = self.folder / "shown.pem"
        shown.write_bytes(b"".join(one.public_bytes(serialization.Encoding.PEM) for one in chain))
        key = self.folder / "key.pem"
        key.write_bytes(
            self.own.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(shown, key)
        return context


async def test_a_certificate_of_thousands_of_names_costs_no_more_than_one_of_a_few(tmp_path: Path) -> None:
    # Issuers that issued one another, and lead to no authority: the search goes on as long as it may.
    forger = Forger(tmp_path)
    own = forger.made("own", forger.own, ca=False, names=4000)
    circle = [forger.made("issuer", forger.issuer, ca=True) for _ in range(4)]
    anchor = forger.made("anchor", forger.anchor, ca=True)
    whole = Tlsa(2, 0, 0, anchor.public_bytes(serialization.Encoding.DER))
    async with asyncio.timeout(30), ScriptedHop(offers=OFFERS, tls=forger.context(own, *circle)) as hop:
        assert await refused(hop, dane(whole)) == "certificate-not-trusted"


async def test_a_certificate_that_is_none_is_not_trusted_and_no_fault_of_ours(tmp_path: Path) -> None:
    forger = Forger(tmp_path)
    good = forger.made("own", forger.own, ca=False)
    whole = Tlsa(
        2, 0, 0, forger.made("anchor", forger.anchor, ca=True).public_bytes(serialization.Encoding.DER)
    )
    third = good.public_bytes(serialization.Encoding.DER).replace(
        b"\xa0\x03\x02\x01\x02", b"\xa0\x03\x02\x01\x09", 1
    )
    context = forger.context(good)
    shown = tmp_path / "shown.pem"
    shown.write_text(ssl.DER_cert_to_PEM_cert(third))
    context.load_cert_chain(shown, tmp_path / "key.pem")  # version 10 of X.509
    async with ScriptedHop(offers=OFFERS, tls=context) as hop:
        assert await refused(hop, dane(whole)) == "certificate-not-trusted"


async def test_a_host_whose_name_fits_into_no_handshake_gets_nothing(shop: Shop) -> None:
    name = "\\000" * 60 + ".example.net"  # as the DNS may have it, in text

    async def found(_: str) -> tuple[str, ...]:
        return ("127.0.0.1",)

    async with ScriptedHop(offers=OFFERS, tls=shop.context(shop.issued(HOST))) as hop:
        server = hop.server(wanted=WantedTls("pkix", "mta-sts", names=(name,)))
        with pytest.raises(ConnectionFailed) as failure:
            await DeliverySession(replace(server, host=name), found).connect()
    assert (failure.value.step, failure.value.result) == ("tls", "validation-failure")
