"""Loopback ports that are free now, and are likely to stay so while a node is down."""

from __future__ import annotations

import random
import socket
from contextlib import ExitStack
from pathlib import Path

from shadowlab.errors import LabError
from shadowlab.layout import LOOPBACK

_LOWEST = 12_000
_BLOCK = 16
_ATTEMPTS = 200
_EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")


def free_ports(count: int) -> list[int]:
    """That many ports to listen on.

    They lie together, below those that the system gives to outgoing connections: otherwise any connection
    could sit on the port of a node that is down. And a lab that is up, with one of its nodes down, keeps
    another lab from this node's ports, for a block is taken as a whole. Raises LabError.
    """
    size = -(-count // _BLOCK) * _BLOCK
    starts = range(_LOWEST, _first_ephemeral() - size, _BLOCK)
    if not starts:
        return _taken([0] * count)
    for _ in range(_ATTEMPTS):
        start = random.SystemRandom().choice(starts)
        try:
            return _taken(range(start, start + size))[:count]
        except OSError:
            continue
    raise LabError(f"no {count} free ports on {LOOPBACK} from {_LOWEST} up")


def _taken(ports: range | list[int]) -> list[int]:
    """Bind all of them at once, 0 for any, and let go. Raises OSError when one is in use."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in ports]
        for one, port in zip(sockets, ports, strict=True):
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            one.bind((LOOPBACK, port))
            one.listen(1)  # with SO_REUSEADDR two sockets may bind one port; only one may listen
        return [int(one.getsockname()[1]) for one in sockets]


def _first_ephemeral() -> int:
    try:
        return int(_EPHEMERAL.read_text("ascii").split()[0])
    except (OSError, ValueError, IndexError):
        return 32_768
