"""Which TLSA records match which certificates (RFC 6698 2.1, 5), and the little of DER that this takes."""

from __future__ import annotations

import hashlib
from functools import lru_cache

from shadowrelay.core.delivery.tls_policy import Tlsa

_SEQUENCE, _VERSION = 0x30, 0xA0
_BEFORE_THE_KEY = 5  # serialNumber, signature, issuer, validity, subject (RFC 5280 4.1)


class NoCertificate(ValueError):
    """The octets are no certificate in DER."""


def matches(record: Tlsa, certificate: bytes) -> bool:
    """Does the record name that certificate (DER), or its public key?"""
    return _chosen(certificate, record.selector, record.matching) == record.data


@lru_cache(maxsize=16)  # a host may have thousands of records
def _chosen(certificate: bytes, selector: int, matching: int) -> bytes | None:
    """What records with that selector and matching type say of the certificate; None: nothing."""
    try:
        chosen = certificate if selector == 0 else public_key(certificate)
    except NoCertificate:
        return None
    return (hashlib.sha256 if matching == 1 else hashlib.sha512)(chosen).digest() if matching else chosen


def public_key(certificate: bytes) -> bytes:
    """The SubjectPublicKeyInfo of a certificate, octet for octet. Raises NoCertificate."""
    start, _ = _inside(certificate, 0, _SEQUENCE)  # Certificate
    at, _ = _inside(certificate, start, _SEQUENCE)  # TBSCertificate
    if certificate[at : at + 1] == bytes([_VERSION]):
        at = _inside(certificate, at, _VERSION)[1]
    for _ in range(_BEFORE_THE_KEY):
        at = _inside(certificate, at)[1]
    return certificate[at : _inside(certificate, at, _SEQUENCE)[1]]


def _inside(der: bytes, at: int, tag: int | None = None) -> tuple[int, int]:
    """Where the value of the element at ``at`` begins and ends."""
    if at + 2 > len(der) or (tag is not None and der[at] != tag):
        raise NoCertificate
    length, begin = der[at + 1], at + 2
    if length & 0x80:
        octets = length & 0x7F
        length, begin = int.from_bytes(der[begin : begin + octets], "big"), begin + octets
    if begin + length > len(der):
        raise NoCertificate
    return begin, begin + length
