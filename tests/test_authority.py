from __future__ import annotations

import asyncio
import ssl
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID

from shadowrelay.authority import AuthorityError, Pair, init, issue, sign, signed

NOW = datetime.now(UTC)


def loaded(pair: Pair) -> x509.Certificate:
    return x509.load_pem_x509_certificate(pair.certificate.read_bytes())


def alternative_names(pair: Pair) -> list[str]:
    names = loaded(pair).extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return [str(name.value) for name in names]


def test_an_authority_is_a_p256_key_valid_ten_years_for_end_certificates_only(tmp_path: Path) -> None:
    certificate = loaded(init(tmp_path / "ca", name="lab", now=NOW))
    key = certificate.public_key()
    assert isinstance(key, ec.EllipticCurvePublicKey)
    assert key.curve.name == "secp256r1"
    assert certificate.not_valid_after_utc - NOW > timedelta(days=3651)
    constraints = certificate.extensions.get_extension_for_class(x509.BasicConstraints)
    assert (constraints.value.ca, constraints.value.path_length, constraints.critical) == (True, 0, True)


def test_keys_are_readable_by_their_owner_only(tmp_path: Path) -> None:
    authority = init(tmp_path / "ca", name="lab", now=NOW)
    member = issue(tmp_path / "ca", "mx1.example.net", now=NOW)
    assert [stat.S_IMODE(pair.key.stat().st_mode) for pair in (authority, member)] == [0o600, 0o600]
    assert stat.S_IMODE((tmp_path / "ca").stat().st_mode) == 0o700


def test_a_member_is_server_and_client_under_its_name(tmp_path: Path) -> None:
    init(tmp_path, name="lab", now=NOW)
    pair = issue(tmp_path, "MX1.example.net", now=NOW, out=tmp_path / "mx1", sans=["mx1", "127.0.0.1", "::1"])
    assert pair == Pair(tmp_path / "mx1" / "mx1.example.net.pem", tmp_path / "mx1" / "mx1.example.net.key")
    assert alternative_names(pair) == ["mx1.example.net", "mx1", "127.0.0.1", "::1"]
    usages = loaded(pair).extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert set(usages) == {ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH}
    assert loaded(pair).not_valid_before_utc < NOW < loaded(pair).not_valid_after_utc


def test_a_name_longer_than_a_common_name_may_be_is_an_alternative_name_alone(tmp_path: Path) -> None:
    init(tmp_path, name="lab", now=NOW)
    name = "mx1." + "a" * 60 + ".example.net"
    pair = issue(tmp_path, name, now=NOW)
    assert list(loaded(pair).subject) == []
    assert alternative_names(pair) == [name]
    assert loaded(pair).extensions.get_extension_for_class(x509.SubjectAlternativeName).critical


def test_nothing_is_overwritten_unless_forced(tmp_path: Path) -> None:
    authority = init(tmp_path, name="lab", now=NOW)
    member = issue(tmp_path, "mx1.example.net", now=NOW)
    before = [
        path.read_bytes() for path in (authority.key, authority.certificate, member.key, member.certificate)
    ]
    with pytest.raises(AuthorityError, match="exists already"):
        init(tmp_path, name="lab", now=NOW)
    with pytest.raises(AuthorityError, match="exists already"):
        issue(tmp_path, "mx1.example.net", now=NOW)
    after = [
        path.read_bytes() for path in (authority.key, authority.certificate, member.key, member.certificate)
    ]
    assert after == before
    issue(tmp_path, "mx1.example.net", now=NOW, force=True)
    assert member.key.read_bytes() != before[2]
    loaded(member).verify_directly_issued_by(loaded(authority))


@pytest.mark.parametrize(
    "name", ["", "../mx1", "mx1/x", "-mx1", "mx 1", "mx1\n", "mx1..net", "*.example.net", "ca"]
)
def test_a_text_that_is_no_server_name_is_refused(tmp_path: Path, name: str) -> None:
    init(tmp_path, name="lab", now=NOW)
    with pytest.raises(AuthorityError, match="not a server name"):
        issue(tmp_path, name, now=NOW)


def test_issuing_without_an_authority_is_refused(tmp_path: Path) -> None:
    with pytest.raises(AuthorityError, match="no authority"):
        issue(tmp_path, "mx1.example.net", now=NOW)


def test_a_key_that_belongs_to_another_authority_is_refused(tmp_path: Path) -> None:
    ours = init(tmp_path / "a", name="lab", now=NOW)
    ours.key.write_bytes(init(tmp_path / "b", name="lab", now=NOW).key.read_bytes())
    with pytest.raises(AuthorityError, match="do not belong together"):
        issue(tmp_path / "a", "mx1.example.net", now=NOW)


def test_a_certificate_does_not_outlive_its_authority(tmp_path: Path) -> None:
    init(tmp_path, name="lab", now=NOW)
    with pytest.raises(AuthorityError, match="the authority itself expires"):
        issue(tmp_path, "mx1.example.net", now=NOW, lifetime=timedelta(days=4000))


def context(purpose: ssl.Purpose, pair: Pair, authority: Pair) -> ssl.SSLContext:
    made = ssl.create_default_context(purpose, cafile=str(authority.certificate))
    made.verify_mode = ssl.CERT_REQUIRED
    made.load_cert_chain(pair.certificate, pair.key)
    return made


async def handshake(server: ssl.SSLContext, client: ssl.SSLContext, name: str) -> object:
    """The name that the server saw in the client's certificate."""
    seen: asyncio.Future[object] = asyncio.get_running_loop().create_future()

    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.set_result(writer.get_extra_info("peercert")["subjectAltName"])
        writer.write(b"hello\n")
        writer.close()

    listener = await asyncio.start_server(greet, "127.0.0.1", 0, ssl=server)
    async with listener, asyncio.timeout(30):
        port = listener.sockets[0].getsockname()[1]
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=client, server_hostname=name)
        try:
            if await reader.readline() != b"hello\n":
                raise ConnectionError("refused")
            return await seen
        finally:
            writer.close()


async def test_two_members_know_each_other_by_their_certificates(tmp_path: Path) -> None:
    authority = init(tmp_path, name="lab", now=NOW)
    mx1, mx2 = (issue(tmp_path, f"mx{number}.example.net", now=NOW) for number in (1, 2))
    server = context(ssl.Purpose.CLIENT_AUTH, mx1, authority)
    client = context(ssl.Purpose.SERVER_AUTH, mx2, authority)
    assert await handshake(server, client, "mx1.example.net") == (("DNS", "mx2.example.net"),)
    with pytest.raises(ssl.SSLCertVerificationError):
        await handshake(server, client, "mx3.example.net")


async def test_a_member_of_another_authority_is_refused(tmp_path: Path) -> None:
    ours, theirs = (init(tmp_path / name, name="lab", now=NOW) for name in ("a", "b"))
    mx1 = issue(tmp_path / "a", "mx1.example.net", now=NOW)
    stranger = issue(tmp_path / "b", "mx2.example.net", now=NOW)
    server = context(ssl.Purpose.CLIENT_AUTH, mx1, ours)
    client = ssl.create_default_context(cafile=str(ours.certificate))
    client.load_cert_chain(stranger.certificate, stranger.key)
    with pytest.raises((ssl.SSLError, ConnectionError)):
        await handshake(server, client, "mx1.example.net")
    assert theirs.certificate.exists()


def test_only_an_authority_that_is_trusted_and_valid_signs_and_no_octet_may_change(tmp_path: Path) -> None:
    ours, theirs = init(tmp_path / "ca", name="lab", now=NOW), init(tmp_path / "other", name="lab", now=NOW)
    member = issue(tmp_path / "ca", "mx1.example.net", now=NOW)
    signature = sign(tmp_path / "ca", b"mx4 joins")
    assert signed(b"mx4 joins", signature, trusted=ours.certificate, now=NOW)
    assert not signed(b"mx5 joins", signature, trusted=ours.certificate, now=NOW)
    assert not signed(b"mx4 joins", signature, trusted=theirs.certificate, now=NOW)
    assert not signed(b"mx4 joins", signature, trusted=ours.certificate, now=NOW + timedelta(days=4000))
    key = serialization.load_pem_private_key(member.key.read_bytes(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    by_member = key.sign(b"mx4 joins", ec.ECDSA(hashes.SHA256()))
    assert not signed(b"mx4 joins", by_member, trusted=member.certificate, now=NOW), "it is no authority"
    both = tmp_path / "both.pem"
    both.write_bytes(theirs.certificate.read_bytes() + ours.certificate.read_bytes())
    assert signed(b"mx4 joins", signature, trusted=both, now=NOW)


def test_a_worker_has_the_certificate_of_its_node(tmp_path: Path) -> None:
    init(tmp_path, name="lab", now=NOW)
    with pytest.raises(AuthorityError, match=r"the certificate of mx1\.example\.net is for all its workers"):
        issue(tmp_path, "w2.mx1.example.net", now=NOW)
