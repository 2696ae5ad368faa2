"""Checks what several workers of a node need: names that they alone may have, and a port for each.

These are checks of a settings file. The settings of one worker have members with such names.
"""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import ip_address

from shadowrelay.core.identifiers import ServerName
from shadowrelay.core.workers import node_of, worker_name
from shadowrelay.settings.errors import SettingError
from shadowrelay.settings.route_checks import Refuse
from shadowrelay.settings.schema import MemberConnector, Settings
from shadowrelay.settings.values import HostPort
from shadowrelay.settings.workers import called_at

_LONGEST_NAME = 253
_LAST_PORT = 65535


def worker_checks(settings: Settings, broken: frozenset[str], refuse: Refuse) -> Iterator[SettingError]:
    """``broken``: top-level keys with errors of their own."""
    if "name" not in broken:
        yield from _name("name", settings.name, settings.workers, refuse)
    for index, member in enumerate(settings.members):
        if member.name != settings.name:
            yield from _name(f"members[{index}].name", member.name, member.workers, refuse)
    yield from _members_ports(settings, refuse)
    if settings.workers > 1 and not broken & {"peer", "receive", "admin"}:
        yield from _own_ports(settings, refuse)


def _name(key: str, name: str, workers: int, refuse: Refuse) -> Iterator[SettingError]:
    node = node_of(ServerName(name))
    if node != name:
        yield refuse(key, f"is the name of a worker of {node}", value=name, allowed="no name wK.…")
    elif len(worker_name(node, workers)) > _LONGEST_NAME:
        yield refuse(key, f"is too long: a worker has the name {worker_name(node, workers)}", value=name)


def _members_ports(settings: Settings, refuse: Refuse) -> Iterator[SettingError]:
    """Each worker of a member has a port of its own."""
    taken: dict[HostPort, int] = {}
    for index, member in enumerate(settings.members):
        key, last = f"members[{index}].address", member.address.port + member.workers - 1
        if last > _LAST_PORT:
            yield refuse(key, f"its {member.workers} workers have no ports above it", value=member.address)
            continue
        for number in range(1, member.workers + 1):
            at = HostPort(member.address.host, member.address.port + number - 1)
            other = taken.setdefault(at, index)
            first = settings.members[other].address
            if other != index and first != member.address:  # the same address is an error already
                yield refuse(
                    key,
                    f"a worker of {settings.members[other].name} has the port {at.port}",
                    value=member.address,
                )
                break


def _own_ports(settings: Settings, refuse: Refuse) -> Iterator[SettingError]:
    peer = settings.peer
    if peer is None:
        allowed = 'a table [peer] with listen, such as "127.0.0.1:2526": workers are members of each other'
        yield refuse("peer", "has to be set", allowed=allowed)
        return
    listeners = {f"receive.{name}.listen": one.listen for name, one in settings.receive.items()}
    listeners["admin.listen"] = settings.admin.listen
    for key, listen in {"peer.listen": peer.listen, **listeners}.items():
        if not listen.port:
            yield refuse(key, "with workers the port has to be known", value=listen, allowed="a port from 1")
    first, last = peer.listen.port, peer.listen.port + settings.workers - 1
    if last > _LAST_PORT:
        yield refuse(
            "peer.listen", f"its {settings.workers} workers have no ports above it", value=peer.listen
        )
    for key, listen in listeners.items():
        if first and first < listen.port <= last:
            told = f"the workers of this node listen for members on the ports {first} to {last}"
            yield refuse(key, told, value=listen)
    yield from _secured(peer, refuse)


def _secured(peer: MemberConnector, refuse: Refuse) -> Iterator[SettingError]:
    """Without TLS the workers have to believe each other by their address."""
    called = called_at(peer.listen).host
    try:
        address = ip_address(called)
    except ValueError:
        return
    networks = peer.externally_secured
    if not peer.tls and networks and not any(address in network for network in networks):
        yield refuse(
            "peer.externally_secured",
            f"does not contain {called}, where the workers of this node call each other",
        )
