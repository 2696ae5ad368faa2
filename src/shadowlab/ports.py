"""Finds loopback ports that are free now, and likely to stay free while a node is down."""

from __future__ import annotations

import random
import socket
from collections import deque
from contextlib import ExitStack
from pathlib import Path

from shadowlab.errors import LabError
from shadowlab.layout import LOOPBACK

_LOWEST = 12_000
_BLOCK = 16
_ATTEMPTS = 200
_MOST_RESERVED = 64  # blocks: each keeps a file descriptor
_RESERVED: deque[socket.socket] = deque()
_EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")


def free_ports(count: int) -> list[int]:
    """Find ``count`` ports to listen on. Raises LabError.

    They are a block below the ports that the system gives to outgoing connections: otherwise a connection
    could take the port of a node that is down. A block is taken as a whole, so another lab cannot take the
    ports of a node that is down while its lab is up. The last blocks that a living process found are not
    found again: a node listens only a while after its ports were found.
    """
    size = -(-count // _BLOCK) * _BLOCK
    starts = range(_LOWEST, _first_ephemeral() - size, _BLOCK)
    if not starts:
        return _taken([0] * count)
    for _ in range(_ATTEMPTS):
        start = random.SystemRandom().choice(starts)
        try:
            found = _taken(range(start, start + size))[:count]
            _reserve(range(start, start + size, _BLOCK))
            return found
        except OSError:
            continue
    raise LabError(f"no {count} free ports on {LOOPBACK} from {_LOWEST} up")


def _taken(ports: range | list[int]) -> list[int]:
    """Bind all ports at once (0: any port), and release them. Raises OSError if one is in use."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in ports]
        for one, port in zip(sockets, ports, strict=True):
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            one.bind((LOOPBACK, port))
            one.listen(1)  # with SO_REUSEADDR two sockets may bind one port; only one may listen
        return [int(one.getsockname()[1]) for one in sockets]


def _reserve(starts: range) -> None:
    """Keep those blocks for this process. Raises OSError if another search, here or elsewhere, has one.

    A name of the system that no file stands for goes with the process, however that ends.
    """
    with ExitStack() as stack:
        names = [stack.enter_context(socket.socket(socket.AF_UNIX)) for _ in starts]
        for one, start in zip(names, starts, strict=True):
            one.bind(f"\0shadowlab-ports-{start}")
        _RESERVED.extend(names)
        stack.pop_all()
    while len(_RESERVED) > _MOST_RESERVED:
        _RESERVED.popleft().close()


def _first_ephemeral() -> int:
    try:
        return int(_EPHEMERAL.read_text("ascii").split()[0])
    except (OSError, ValueError, IndexError):
        return 32_768
