"""The next hop: takes mail, or puts it off, and counts what it took. Its memory is never broken."""

from __future__ import annotations

import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from aiosmtpd.controller import Controller

from shadowlab.chaos.letters import intact, known_as
from shadowlab.mail import token_of
from shadowlab.ports import free_ports


class Hop:
    """``port`` on loopback; ``arrived`` is how often each token (local part of the Message-ID) was taken.

    What is not as it was sent is another message, one that nobody sent.
    """

    def __init__(self) -> None:
        self.port = 0
        self.closed = False
        self._arrived: defaultdict[str, list[float]] = defaultdict(list)
        self._lock = threading.Lock()

    def arrived(self) -> Counter[str]:
        with self._lock:
            return Counter({token: len(times) for token, times in self._arrived.items()})

    def when(self) -> Mapping[str, Sequence[float]]:
        """Each time that it was taken, on the monotonic clock."""
        with self._lock:
            return {token: tuple(times) for token, times in self._arrived.items()}

    def times(self, token: str) -> int:
        with self._lock:
            return len(self._arrived.get(token, ()))

    async def handle_MAIL(self, server: Any, session: Any, envelope: Any, address: str, options: Any) -> str:
        if self.closed:
            return "451 4.3.2 Closed for now"
        envelope.mail_from = address
        return "250 2.1.0 OK"

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:
        message_id, unchanged = intact(envelope.content)
        token = token_of(message_id)
        times = [time.monotonic()] * len(envelope.rcpt_tos)
        with self._lock:
            self._arrived[known_as(token, unchanged=unchanged)] += times
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
