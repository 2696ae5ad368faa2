"""The next hop: takes mail, or puts it off, and counts what it took. Its memory is never broken."""

from __future__ import annotations

import re
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from aiosmtpd.controller import Controller

from shadowrelay.lab.ports import free_ports

_TOKEN = re.compile(rb"^Message-ID: <([^@>]+)@", re.MULTILINE | re.IGNORECASE)


class Hop:
    """``port`` on loopback; ``arrived`` is how often each token (local part of the Message-ID) was taken."""

    def __init__(self) -> None:
        self.port = 0
        self.closed = False
        self._arrived: Counter[str] = Counter()
        self._lock = threading.Lock()

    def arrived(self) -> Counter[str]:
        with self._lock:
            return self._arrived.copy()

    def times(self, token: str) -> int:
        with self._lock:
            return self._arrived[token]

    async def handle_MAIL(self, server: Any, session: Any, envelope: Any, address: str, options: Any) -> str:
        if self.closed:
            return "451 4.3.2 Closed for now"
        envelope.mail_from = address
        return "250 2.1.0 OK"

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:
        if (found := _TOKEN.search(envelope.content)) is None:
            return "554 5.6.0 Not one of ours"
        with self._lock:
            self._arrived[found[1].decode()] += len(envelope.rcpt_tos)
        return "250 2.0.0 OK"


@contextmanager
def next_hop() -> Iterator[Hop]:
    """A next hop in a thread of its own, until exit."""
    hop = Hop()
    (hop.port,) = free_ports(1)
    controller = Controller(hop, hostname="127.0.0.1", port=hop.port, ready_timeout=30)
    controller.start()
    try:
        yield hop
    finally:
        controller.stop()
