"""What the DNS says about a domain: its hosts, a definite no, or nothing that counts.

RFC 5321 section 5.1 (preference, implicit MX, ourselves among the hosts), RFC 7505 (null MX). Only a definite
no fails a recipient; everything else that goes wrong is a delay.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta

from shadowrelay.core.delivery.hosts import Host, MxGroup
from shadowrelay.core.values import dataclass

TROUBLE_COUNTS = timedelta(seconds=30)
"""How long a failed lookup is not repeated (RFC 2308 section 7.1 allows five minutes)."""

MOST_ADDRESSES = 5
"""Addresses of one host that are tried for one connection."""

NO_DOMAIN = "550 5.1.2 {domain} does not exist in the DNS"
NO_HOST = "550 5.1.2 {domain} has neither MX records nor an address"
NULL_MX = "556 5.1.10 {domain} takes no mail (null MX)"
LOOP = "554 5.4.6 The mail for {domain} would come back to this server"


class DomainRefused(Exception):
    """A definite no of the DNS: the recipient fails, with the reply that is the text."""


class DnsTrouble(Exception):
    """The DNS gave no answer that counts. The text says why."""


@dataclass(frozen=True, slots=True)
class MxRecord:
    """One MX record. ``exchange`` is in lower case, without a root dot; '' is the root."""

    preference: int
    exchange: str


@dataclass(frozen=True, slots=True)
class MxHost:
    """A host of a domain, and its addresses as far as they are known now. ``bases``: the names to ask for
    TLSA records, in order (RFC 7672 2.2.3); none where what led there is not authentic. ``trouble``: why
    that, and its addresses, cannot be known, though the DNS proves that it is a host of the domain.
    """

    preference: int
    name: str
    addresses: tuple[str, ...] = ()
    bases: tuple[str, ...] = ()
    trouble: str = ""


def exchanges(domain: str, records: Sequence[MxRecord]) -> tuple[MxRecord, ...]:
    """The hosts by preference; the domain itself if there is no record (implicit MX).

    Raises DomainRefused for a null MX. Of a host that is there twice the better preference counts. The root
    beside other records is no host (RFC 7505 section 3), and is left out.
    """
    if not records:
        return (MxRecord(0, domain),)
    if all(not record.exchange for record in records):
        raise DomainRefused(NULL_MX.format(domain=domain))
    found: dict[str, MxRecord] = {}
    for record in sorted(records, key=lambda one: (one.preference, one.exchange)):
        if record.exchange:
            found.setdefault(record.exchange, record)
    return tuple(found.values())


def without_us(domain: str, hosts: Sequence[MxHost], is_us: Callable[[MxHost], bool]) -> tuple[MxHost, ...]:
    """The hosts more preferred than this server, if this server is one of them; else all.

    Mail must not go to a host that would hand it back (RFC 5321 section 5.1). Raises DomainRefused if none is
    left.
    """
    ours = min((host.preference for host in hosts if is_us(host)), default=None)
    left = tuple(hosts) if ours is None else tuple(host for host in hosts if host.preference < ours)
    if not left:
        raise DomainRefused(LOOP.format(domain=domain))
    return left


def as_hosts(group: MxGroup, hosts: Iterable[MxHost]) -> tuple[Host, ...]:
    """The hosts of the DNS, equal ones with the same weight."""
    return tuple(Host(group.route, host.name, group.port, host.preference) for host in hosts)


def literal(domain: str) -> str | None:
    """The address in ``[192.0.2.1]`` or ``[IPv6:2001:db8::1]`` (RFC 5321 section 4.1.3); None: no literal."""
    if not (domain.startswith("[") and domain.endswith("]")):
        return None
    inner = domain[1:-1]
    return inner[5:] if inner[:5].lower() == "ipv6:" else inner


def some(addresses: Sequence[str]) -> tuple[str, ...]:
    """The addresses that are tried: both families by turns, IPv6 first, so that no family is left out."""
    six = [one for one in addresses if ":" in one]
    four = [one for one in addresses if ":" not in one]
    mixed: list[str] = []
    for index in range(max(len(six), len(four), 0)):
        mixed += six[index : index + 1] + four[index : index + 1]
    return tuple(mixed[:MOST_ADDRESSES])
