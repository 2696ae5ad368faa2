"""What a session with one host of MX has to show before it gets mail: DANE (RFC 7672), MTA-STS (RFC 8461), or
nothing (RFC 7435). What cannot be had is a delay, never a fall back to clear text.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Literal, Protocol, TypeAlias

from shadowrelay.core.values import dataclass, replace

WantedKind: TypeAlias = Literal["opportunistic", "encrypted", "pkix", "dane"]
Source: TypeAlias = Literal["none", "dane", "mta-sts", "requiretls", "settings"]
FailedTls: TypeAlias = Literal[
    "starttls-not-supported",
    "certificate-host-mismatch",
    "certificate-expired",
    "certificate-not-trusted",
    "validation-failure",
    "tlsa-invalid",
    "dnssec-invalid",
    "dane-required",
    "sts-policy-fetch-error",
    "sts-policy-invalid",
    "sts-webpki-invalid",
]
"""The result types of RFC 8460 4.3."""

TRUST_ANCHOR, END_ENTITY = 2, 3
"""The certificate usages that count for SMTP; 0 and 1 are unusable (RFC 7672 3.1.3)."""

_DIGESTS = {1: 32, 2: 64}
"""Octets of SHA-256 and SHA-512, by matching type."""


@dataclass(frozen=True, slots=True)
class Tlsa:
    """One TLSA record (RFC 6698 2.1): what of which certificate is that, or has that digest."""

    usage: int
    selector: int
    matching: int
    data: bytes

    @property
    def usable(self) -> bool:
        """Whether it says anything about a server of mail that we can check."""
        return (
            self.usage in (TRUST_ANCHOR, END_ENTITY)
            and self.selector in (0, 1)
            and (bool(self.data) if self.matching == 0 else len(self.data) == _DIGESTS.get(self.matching))
        )


def usable(records: Iterable[Tlsa], *, chains: bool = True) -> tuple[Tlsa, ...]:
    """The records that count. Of a usage and selector with both digests SHA-512 alone counts (RFC 7671 9).

    Without ``chains`` this interpreter sees the server's own certificate alone: usage 2 is then one that it
    does not support, and so is unusable (RFC 6698 4.1).
    """
    known = [one for one in records if one.usable and (chains or one.usage == END_ENTITY)]
    known.sort(key=lambda one: (-one.usage, one.selector, one.matching, one.data))  # the DNS has no order
    strong = {(one.usage, one.selector) for one in known if one.matching == 2}
    return tuple(one for one in known if one.matching != 1 or (one.usage, one.selector) not in strong)


@dataclass(frozen=True, slots=True)
class DaneAnswer:
    """What a validating resolver says of a host whose MX record and addresses are authentic.

    ``base``: the name that was asked about, the host's own or where its CNAME leads. No ``records``: it has
    none. ``trouble``: why there is no answer that counts (bogus, silence, SERVFAIL); '' if there is one.
    """

    base: str
    records: tuple[Tlsa, ...] = ()
    trouble: str = ""


class StsRules(Protocol):
    """The policy of a domain, as far as it counts here."""

    @property
    def mode(self) -> str: ...

    def matches(self, host: str) -> bool: ...


@dataclass(frozen=True, slots=True)
class WantedTls:
    """What a session with one host has to show.

    - ``opportunistic``: nothing; it is encrypted if that can be had.
    - ``encrypted``: TLS with whoever answers, never clear text.
    - ``pkix``: a certificate of a known authority for one of ``names``, never clear text.
    - ``dane``: a chain that one of ``tlsa`` matches, never clear text. ``names``: those of usage 2; the first
      is the TLSA base domain, which the server is told as the name that is wanted (SNI).

    ``testing``: a failure is told, and mail goes all the same. ``told``: what failed already, before the
    session; it is this session's result.
    """

    kind: WantedKind = "opportunistic"
    source: Source = "none"
    tlsa: tuple[Tlsa, ...] = ()
    names: tuple[str, ...] = ()
    testing: bool = False
    told: FailedTls | Literal[""] = ""

    @property
    def never_clear(self) -> bool:
        """Whether no mail may go in clear text."""
        return self.kind != "opportunistic" and not self.testing


ANYTHING = WantedTls()
"""Opportunistic TLS, which nobody asked for."""


def stricter(what: WantedTls) -> WantedTls | None:
    """The same for a message with REQUIRETLS (RFC 8689 4.2.1): nothing is only tested, and who answers is
    known. None: nothing vouches for the name of that host, which may be that of an attacker.
    """
    if what.kind in ("dane", "pkix"):
        return replace(what, testing=False) if what.testing else what
    if what.kind == "encrypted":  # the records are of no use, but the name is authentic
        return replace(what, kind="pkix", source="requiretls", told="")
    return None


@dataclass(frozen=True, slots=True)
class HostRefused:
    """The host is not tried now: its mail waits. ``why`` is bland: senders are told."""

    source: Source
    result: FailedTls
    why: str


def wanted(
    host: str, domain: str, *, dane: DaneAnswer | None, sts: StsRules | None, chains: bool = True
) -> WantedTls | HostRefused:
    """What a session with a host of a domain has to show. ``dane``: None if it is off, or if the MX record or
    the addresses are not authentic.

    An answer of DANE counts before MTA-STS (RFC 8461 2). No answer is none that one may go by: then an
    attacker may hold back what it would be (RFC 7672 2.1.1). Records that are all unusable still say that the
    host has TLS (2.2).
    """
    if dane is not None and dane.trouble:
        return HostRefused("dane", "dnssec-invalid", dane.trouble)
    if dane is not None and dane.records:
        if not (known := usable(dane.records, chains=chains)):
            return WantedTls("encrypted", "dane", names=(dane.base,), told="tlsa-invalid")
        names = tuple(dict.fromkeys((dane.base, host, domain)))
        return WantedTls("dane", "dane", tlsa=known, names=names)
    if sts is None or sts.mode == "none":
        return ANYTHING
    testing = sts.mode == "testing"
    if sts.matches(host):
        return WantedTls("pkix", "mta-sts", names=(host,), testing=testing)
    if testing:
        return WantedTls(source="mta-sts", testing=True, told="validation-failure")
    return HostRefused(
        "mta-sts", "validation-failure", f"the policy of {domain} names no such host as {host}"
    )


@dataclass(frozen=True, slots=True)
class TlsResult:
    """What became of the last session with a host of a domain, or of the try to have one. ``result`` is '' if
    it showed what was wanted. ``testing``: what was wrong kept no mail back.
    """

    domain: str
    host: str
    kind: WantedKind
    source: Source
    result: FailedTls | Literal[""]
    when: datetime
    testing: bool = False
