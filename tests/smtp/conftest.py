"""Each event loop that a node may run with, and certificates."""

from __future__ import annotations

import asyncio
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from receiving import Loops

from shadowrelay.authority import authority_pair, init, issue


@pytest.fixture(params=["asyncio", "uvloop"])
def loops(request: pytest.FixtureRequest) -> Loops:
    if request.param == "asyncio":
        return asyncio.new_event_loop
    found: Loops = pytest.importorskip("uvloop").new_event_loop
    return found


@pytest.fixture(scope="module")
def contexts(tmp_path_factory: pytest.TempPathFactory) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """For the server, which asks for a certificate, and for a client that has one."""
    folder: Path = tmp_path_factory.mktemp("ca")
    now = datetime.now(UTC)
    init(folder, name="test", now=now)
    authority = str(authority_pair(folder).certificate)
    made = []
    for purpose, name in (
        (ssl.Purpose.CLIENT_AUTH, "mx.example.net"),
        (ssl.Purpose.SERVER_AUTH, "mx2.example.net"),
    ):
        pair = issue(folder, name, now=now)
        context = ssl.create_default_context(purpose, cafile=authority)
        context.load_cert_chain(pair.certificate, pair.key)
        made.append(context)
    made[0].verify_mode = ssl.CERT_OPTIONAL
    return made[0], made[1]


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Self-signed, for ``localhost``; key and certificate in one file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path = tmp_path_factory.mktemp("tls") / "hop.pem"
    path.write_bytes(private + made.public_bytes(serialization.Encoding.PEM))
    return path


@pytest.fixture
def tls(certificate: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    return context
