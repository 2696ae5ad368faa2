"""Networks whose clients are believed, or turned away."""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import IPv4Network, IPv6Network, ip_address
from typing import TypeAlias

Networks: TypeAlias = tuple[IPv4Network | IPv6Network, ...]


def within(address: str, networks: Iterable[IPv4Network | IPv6Network]) -> bool:
    """Whether the client is in one of the networks. An unknown address is in none."""
    try:
        client = ip_address(address.partition("%")[0])
    except ValueError:
        return False
    return any(client in network for network in networks)
