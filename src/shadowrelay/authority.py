"""Makes the cluster's own certificate authority, by whose certificates members know one another."""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from shadowrelay.core.identifiers import ServerName
from shadowrelay.core.workers import node_of

AUTHORITY_LIFETIME = timedelta(days=3653)
SERVER_LIFETIME = timedelta(days=397)

CLOCK_SKEW = timedelta(hours=1)
"""How long before its making a certificate becomes valid: members' clocks differ."""

_DNS_NAME = re.compile(
    r"(?=.{1,253}\Z)[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)*", re.ASCII
)
_LONGEST_COMMON_NAME = 64  # RFC 5280, ub-common-name

_AUTHORITY_USAGE = x509.KeyUsage(
    digital_signature=False,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    key_cert_sign=True,
    crl_sign=True,
    encipher_only=False,
    decipher_only=False,
)
_SERVER_USAGE = x509.KeyUsage(
    digital_signature=True,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    key_cert_sign=False,
    crl_sign=False,
    encipher_only=False,
    decipher_only=False,
)


class AuthorityError(Exception):
    """The request cannot be met; the text says why, for an operator."""


@dataclass(frozen=True, slots=True)
class Pair:
    """Paths of a certificate (PEM) and of its private key (PKCS #8 PEM, mode 0600)."""

    certificate: Path
    key: Path


def authority_pair(directory: Path) -> Pair:
    """The paths of the authority in ``directory``, whether it exists or not."""
    return Pair(directory / "ca.pem", directory / "ca.key")


def init(directory: Path, *, name: str, now: datetime, force: bool = False) -> Pair:
    """Make an authority: EC P-256, valid ten years, for end certificates only.

    ``force`` replaces an existing authority, and so invalidates every certificate it issued. Raises
    AuthorityError, OSError.
    """
    if not 1 <= len(name) <= _LONGEST_COMMON_NAME:
        raise AuthorityError(f"the authority's name must have 1 to {_LONGEST_COMMON_NAME} characters")
    pair = authority_pair(directory)
    _refuse_existing(pair, force=force)
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    certificate = (
        _builder(subject, key.public_key(), issuer=subject, now=now, lifetime=AUTHORITY_LIFETIME)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_AUTHORITY_USAGE, critical=True)
        .add_extension(identifier, critical=False)
        .sign(key, hashes.SHA256())
    )
    _write_pair(pair, certificate, key)
    return pair


def issue(
    directory: Path,
    server_name: str,
    *,
    now: datetime,
    out: Path | None = None,
    sans: Iterable[str] = (),
    lifetime: timedelta = SERVER_LIFETIME,
    force: bool = False,
) -> Pair:
    """Issue a certificate for a member, as server and client, in ``out`` (default ``directory``).

    The server name is its first subject alternative name; ``sans`` adds DNS names and IP addresses. A member
    may act under each of these DNS names: never add another member's name. ``force`` replaces an existing
    pair. Raises AuthorityError, OSError.
    """
    server_name = _dns_name(server_name)
    if (node := node_of(ServerName(server_name))) != server_name:
        raise AuthorityError(
            f"{server_name} is a worker of {node}: the certificate of {node} is for all its workers"
        )
    names = [x509.DNSName(server_name), *(_alternative(san) for san in sans)]
    out = out or directory
    pair = Pair(out / f"{server_name}.pem", out / f"{server_name}.key")
    authority, authority_key = _load(authority_pair(directory))
    if now + lifetime > authority.not_valid_after_utc:
        raise AuthorityError(f"the authority itself expires on {authority.not_valid_after_utc:%Y-%m-%d}")
    _refuse_existing(pair, force=force)
    key = ec.generate_private_key(ec.SECP256R1())
    # A name too long for the subject is only an alternative name, then critical (RFC 5280, 4.2.1.6).
    fits = len(server_name) <= _LONGEST_COMMON_NAME
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, server_name)] if fits else [])
    issuer_identifier = x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(
        authority.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    )
    certificate = (
        _builder(subject, key.public_key(), issuer=authority.subject, now=now, lifetime=lifetime)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_SERVER_USAGE, critical=True)
        .add_extension(
            x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]),
            critical=False,
        )
        .add_extension(x509.SubjectAlternativeName(list(dict.fromkeys(names))), critical=not fits)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(issuer_identifier, critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    _write_pair(pair, certificate, key)
    return pair


def _builder(
    subject: x509.Name,
    key: ec.EllipticCurvePublicKey,
    *,
    issuer: x509.Name,
    now: datetime,
    lifetime: timedelta,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_SKEW)
        .not_valid_after(now + lifetime)
    )


def _dns_name(text: str) -> str:
    name = text.lower()
    if not _DNS_NAME.fullmatch(name) or name == "ca":
        raise AuthorityError(f"not a server name: {text!r}")
    return name


def _alternative(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        return x509.DNSName(_dns_name(text))


def _load(pair: Pair) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    try:
        certificate = x509.load_pem_x509_certificate(pair.certificate.read_bytes())
        key = serialization.load_pem_private_key(pair.key.read_bytes(), password=None)
    except FileNotFoundError as problem:
        raise AuthorityError(f"no authority in {pair.certificate.parent}: make one first") from problem
    except (ValueError, TypeError) as problem:
        raise AuthorityError(f"the authority in {pair.certificate.parent} cannot be read") from problem
    if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != certificate.public_key():
        raise AuthorityError(f"certificate and key in {pair.certificate.parent} do not belong together")
    return certificate, key


def _refuse_existing(pair: Pair, *, force: bool) -> None:
    for path in (pair.certificate, pair.key):
        if not force and os.path.lexists(path):
            raise AuthorityError(f"{path} exists already")


def _write_pair(pair: Pair, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> None:
    pair.key.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    encoded = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    _write(pair.key, encoded, mode=0o600)
    _write(pair.certificate, certificate.public_bytes(serialization.Encoding.PEM), mode=0o644)


def _write(path: Path, content: bytes, *, mode: int) -> None:
    """Replace a file as a whole, durably: readers see the old file or the new one."""
    fresh = path.with_name(f".{path.name}.new")
    fresh.unlink(missing_ok=True)
    handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
    with os.fdopen(handle, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.rename(fresh, path)


def sign(directory: Path, octets: bytes) -> bytes:
    """The authority's signature of octets, by ECDSA with SHA-256. Raises AuthorityError, OSError."""
    _, key = _load(authority_pair(directory))
    return key.sign(octets, ec.ECDSA(hashes.SHA256()))


def signed(octets: bytes, signature: bytes, *, trusted: Path, now: datetime) -> bool:
    """Did an authority of the file ``trusted`` (PEM) sign these octets? Its certificate must be valid now.

    Raises AuthorityError if the file cannot be read.
    """
    try:
        certificates = x509.load_pem_x509_certificates(trusted.read_bytes())
    except (OSError, ValueError) as problem:
        raise AuthorityError(f"{trusted} cannot be read: {problem}") from problem
    return any(_signed_by(one, octets, signature, now) for one in certificates)


def _signed_by(certificate: x509.Certificate, octets: bytes, signature: bytes, now: datetime) -> bool:
    key = certificate.public_key()
    try:
        authority = certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except x509.ExtensionNotFound:
        return False
    valid = certificate.not_valid_before_utc <= now <= certificate.not_valid_after_utc
    if not (authority and valid and isinstance(key, ec.EllipticCurvePublicKey)):
        return False
    try:
        key.verify(signature, octets, ec.ECDSA(hashes.SHA256()))
    except InvalidSignature:
        return False
    return True
