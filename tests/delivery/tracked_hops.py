"""Two boundaries of one node each: mx1 hands its mail to mx2, which tracks it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from stations import Station, authority, full, station

from shadowrelay.core.delivery.hosts import Host, HostGroup
from shadowrelay.core.identifiers import NextHop

SENDER, HOP = full("mx1"), full("mx2")


def certificates(directory: Path) -> Path:
    """A certificate for each, and one of a stranger."""
    made = directory / "ca"
    return made if made.exists() else authority(made, "mx1", "mx2", "mx3", "other")


def accepting(made: Path, *peers: str, own: str = "mx2") -> dict[str, Any]:
    """The Receive connector of a hop that these peers may tell to track."""
    return {
        "tls_certificate": str(made / f"{full(own)}.pem"),
        "tls_key": str(made / f"{full(own)}.key"),
        "accept_xshadow": [*pins(made, *peers)],
    }


def pins(made: Path, *names: str) -> list[dict[str, str]]:
    """Each with the certificate that it shows."""
    return [{"name": full(name), "certificate": str(made / f"{full(name)}.pem")} for name in names]


def telling(made: Path, port: int, *hops: str, own: str = "mx1", **changes: Any) -> dict[str, Any]:
    """The route of a sender that tells these hops to track."""
    return {
        "domains": ["*"],
        "host": "127.0.0.1",
        "port": port,
        "tls": "opportunistic",
        "send_xshadow": pins(made, *hops),
        "xshadow_certificate": str(made / f"{full(own)}.pem"),
        "xshadow_key": str(made / f"{full(own)}.key"),
        **changes,
    }


def onward(port: int) -> dict[str, Any]:
    """The route of the hop."""
    return {"world": {"domains": ["*"], "host": "127.0.0.1", "port": port, "tls": "none"}}


@asynccontextmanager
async def hop(
    directory: Path, port: int = 9, *, name: str = "mx2", disk: int = 0, **changes: Any
) -> AsyncIterator[Station]:
    """The hop; what it delivers goes to that port."""
    made = certificates(directory)
    given: dict[str, Any] = {"receive": accepting(made, "mx1"), "routes": onward(port), **changes}
    node = await station(directory, name, (), disk=disk, **given)
    try:
        yield node
    finally:
        await node.stop()


@asynccontextmanager
async def sending(directory: Path, port: int = 9, *, disk: int = 0, **changes: Any) -> AsyncIterator[Station]:
    """The sender; its route leads to that port, or where ``leads`` says."""
    made = certificates(directory)
    given: dict[str, Any] = {"routes": {"edge": telling(made, port, "mx2")}, **changes}
    node = await station(directory, "mx1", (), disk=disk, **given)
    try:
        yield node
    finally:
        await node.stop()


def leads(node: Station, *ports: int) -> None:
    """From now on the hosts of its route are at these ports; the first is preferred."""
    hosts: Any = node.node.hosts
    found = tuple(Host(NextHop("edge"), "127.0.0.1", port, at) for at, port in enumerate(ports))
    hosts.ways = lambda next_hop: (HostGroup(found),) if next_hop == "edge" else ()
