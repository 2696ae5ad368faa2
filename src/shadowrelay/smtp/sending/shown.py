"""What a server shows in its handshake, and whether that is what was wanted: DANE (RFC 7672 3)."""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from shadowrelay.core.delivery.tls_policy import END_ENTITY, FailedTls, WantedTls
from shadowrelay.wire.tlsa import matches

_DER = 2  # of the interpreter's own certificates

_FAILED: dict[int, FailedTls] = {  # verify codes of OpenSSL
    10: "certificate-expired",
    9: "certificate-expired",  # not valid yet
    62: "certificate-host-mismatch",
    64: "certificate-host-mismatch",  # an address
}


class NotShown(Exception):
    """The server did not show what was wanted. The text says what is wrong."""

    def __init__(self, result: FailedTls, why: str) -> None:
        super().__init__(why)
        self.result = result


def sees_chains() -> bool:
    """Whether this interpreter shows the whole chain that a server sent, not its own certificate alone."""
    return hasattr(_inner(ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), ssl.MemoryBIO())), _CHAIN)


_CHAIN = "get_unverified_chain"


def check_dane(shown: ssl.SSLObject, wanted: WantedTls) -> None:
    """Raises NotShown if no record matches what the server shows.

    Usage 3 names the server's own certificate, or its key: neither name nor dates are looked at (RFC 7671
    5.1). Usage 2 names an authority, from which a chain has to lead to a certificate for one of the names.
    """
    chain = chain_of(shown)
    if not chain:
        raise NotShown("certificate-not-trusted", "it shows no certificate")
    if any(record.usage == END_ENTITY and matches(record, chain[0]) for record in wanted.tlsa):
        return
    anchors = [record for record in wanted.tlsa if record.usage != END_ENTITY]
    trusted = [one for one in dict.fromkeys(chain[1:]) if any(matches(record, one) for record in anchors)]
    # A whole certificate need not be sent (RFC 7671 5.2.1).
    trusted += [one.data for one in anchors if (one.selector, one.matching) == (0, 0)]
    if not trusted:
        raise NotShown("certificate-not-trusted", "the certificate matches no TLSA record")
    _verify(chain, trusted, wanted.names)


def chain_of(shown: ssl.SSLObject) -> list[bytes]:
    """The certificates (DER) that the server sent, its own first; that one alone if no more can be seen."""
    chain = getattr(_inner(shown), _CHAIN, None)
    if chain is not None:
        return [one if isinstance(one, bytes) else one.public_bytes(_DER) for one in chain() or ()]
    own = shown.getpeercert(binary_form=True)
    return [own] if own else []


def _inner(shown: Any) -> Any:
    """What tells the chain: public since Python 3.13, and in the interpreter's own object before."""
    return shown if hasattr(shown, _CHAIN) else getattr(shown, "_sslobj", None)


def _verify(chain: Sequence[bytes], trusted: Sequence[bytes], names: Sequence[str]) -> None:
    from cryptography import x509  # here, because the import is slow
    from cryptography.x509.verification import (
        Criticality,
        ExtensionPolicy,
        PolicyBuilder,
        Store,
        VerificationError,
    )

    now, maybe = datetime.now(UTC), Criticality.AGNOSTIC
    # An authority of one's own seldom says what its key is for: what it says counts.
    issuers = ExtensionPolicy.webpki_defaults_ca().may_be_present(x509.KeyUsage, maybe, _may_sign)
    issuers = issuers.may_be_present(x509.AuthorityKeyIdentifier, maybe, None)
    servers = ExtensionPolicy.webpki_defaults_ee().may_be_present(x509.AuthorityKeyIdentifier, maybe, None)
    try:
        own, *others = [x509.load_der_x509_certificate(one) for one in chain]
        policy = PolicyBuilder().store(Store([x509.load_der_x509_certificate(one) for one in trusted]))
        policy = policy.time(now.replace(tzinfo=None))
        policy = policy.extension_policies(ca_policy=issuers, ee_policy=servers)
        alternatives = own.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        theirs = alternatives.get_values_for_type(x509.DNSName)
    except Exception as error:  # not all that the library raises for odd certificates is a ValueError
        raise NotShown("certificate-not-trusted", f"the certificate cannot be used: {error}") from error
    why = ""

    def leads_to(name: str) -> bool:
        nonlocal why
        try:
            policy.build_server_verifier(x509.DNSName(name)).verify(own, others)
        except (ValueError, VerificationError) as error:  # a name with a star is none
            why = str(error)
            return False
        return True

    if any(map(leads_to, names)):
        return
    if not own.not_valid_before_utc <= now <= own.not_valid_after_utc:
        raise NotShown("certificate-expired", "the certificate is not valid now")
    # One name shows that: a certificate may have thousands, and the search for a chain takes long for each.
    if any(leads_to(name.replace("*", "a", 1)) for name in theirs[:1]):
        raise NotShown("certificate-host-mismatch", f"the certificate is not for {names[0]}")
    raise NotShown("certificate-not-trusted", f"no chain leads to an authority of the TLSA records: {why}")


def _may_sign(_policy: object, _certificate: object, usage: Any) -> None:
    if usage is not None and not usage.key_cert_sign:
        raise ValueError("an issuer's key is not for certificates")


def result_of(error: BaseException | None) -> FailedTls:
    """The result of a handshake that failed (RFC 8460 4.3.1)."""
    while error is not None:
        if isinstance(error, ssl.SSLCertVerificationError):
            return _FAILED.get(error.verify_code, "certificate-not-trusted")
        error = error.__cause__ or error.__context__
    return "validation-failure"
