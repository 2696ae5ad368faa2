"""Networks whose clients are believed, or turned away."""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import TypeAlias

Networks: TypeAlias = tuple[IPv4Network | IPv6Network, ...]


def within(address: str, networks: Iterable[IPv4Network | IPv6Network]) -> bool:
    """Whether the client is in one of the networks. An unknown address is in none."""
    try:
        client = ip_address(address.partition("%")[0])
    except ValueError:
        return False
    return any(client in network for network in networks)


def source_of(address: str, ipv4: int = 32, ipv6: int = 64) -> str:
    """What counts as one source: the network of so many bits. An IPv4 address is one by itself; of an IPv6
    address it is the /64, which is what one customer gets. Text that is no address is one too.
    """
    try:
        parsed = ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(parsed, IPv6Address):
        parsed = parsed.ipv4_mapped or parsed
    bits = ipv6 if isinstance(parsed, IPv6Address) else ipv4
    return str(parsed if bits == parsed.max_prefixlen else ip_network((parsed, bits), strict=False))
