"""Connections that begin with TLS, counted from the accept on.

An event loop's own server tells nobody of a connection until its handshake has ended: strangers who never
speak could hold any number. So these are accepted here.
"""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from collections.abc import Callable, Sequence
from functools import partial

import structlog

from shadowrelay.smtp.receive_limits import source_of

log = structlog.get_logger(__name__)

HANDSHAKE = 30.0
"""Seconds that a handshake may take."""

_BATCH = 64  # connections accepted before others have their turn
_PAUSE = 1.0  # seconds without accepting, when the machine has nothing left to accept with
_EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


class SecureListener:
    """Accepts connections, and hands those whose handshake has ended to a protocol of ``factory``.

    At most ``most`` handshakes are under way. For one more, the oldest makes room of the source that has the
    most of them: a member is through within milliseconds, wherever it calls from, and a crowd costs its own.
    """

    def __init__(
        self, factory: Callable[[], asyncio.Protocol], context: ssl.SSLContext, most: int | None
    ) -> None:
        self._factory, self._context, self._most = factory, context, most
        self._listening: list[socket.socket] = []
        self._sources: dict[str, dict[asyncio.Task[None], None]] = {}  # oldest first
        self._count = 0
        self._crowded = False

    @property
    def handshakes(self) -> int:
        """How many are under way."""
        return self._count

    def start(self, listening: Sequence[socket.socket]) -> None:
        """Accept from these sockets, which listen; they are closed by ``stop``."""
        self._listening = list(listening)
        for one in self._listening:
            self._watch(one)

    async def stop(self) -> None:
        """Listen no more, and let go of every handshake under way. Idempotent."""
        loop = asyncio.get_running_loop()
        listening, self._listening = self._listening, []
        for one in listening:
            loop.remove_reader(one)
            one.close()
        if tasks := [task for tasks in self._sources.values() for task in tasks]:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    def _watch(self, listening: socket.socket) -> None:
        if listening in self._listening:  # and not stopped meanwhile
            asyncio.get_running_loop().add_reader(listening, self._accept, listening)

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(_BATCH):
            try:
                connection, address = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in _EXHAUSTED:
                    raise
                log.error("connections_not_accepted", error=str(error), pause=_PAUSE)
                loop = asyncio.get_running_loop()
                loop.remove_reader(listening)
                loop.call_later(_PAUSE, self._watch, listening)
                return
            connection.setblocking(False)
            self._begin(connection, source_of(str(address[0])))

    def _begin(self, connection: socket.socket, source: str) -> None:
        if self._most is not None and self._count >= self._most:
            crowd: dict[asyncio.Task[None], None] = max(self._sources.values(), key=len)
            oldest = next(iter(crowd))
            self._told_of_the_crowd(oldest.get_name())
            self._forget(oldest)
            oldest.cancel()
        task = asyncio.get_running_loop().create_task(self._secure(connection), name=source)
        self._sources.setdefault(source, {})[task] = None
        self._count += 1
        task.add_done_callback(partial(self._ended, connection))

    def _told_of_the_crowd(self, source: str) -> None:
        """Once for each flood."""
        if not self._crowded:
            self._crowded = True
            log.warning("too_many_handshakes", most=self._most, largest_source=source)

    async def _secure(self, connection: socket.socket) -> None:
        async with asyncio.timeout(HANDSHAKE):
            await _spoken(connection)
            await asyncio.get_running_loop().connect_accepted_socket(
                self._factory, connection, ssl=self._context
            )

    def _ended(self, connection: socket.socket, task: asyncio.Task[None]) -> None:
        self._forget(task)
        if task.cancelled():
            connection.close()
        elif error := task.exception():
            connection.close()
            if not isinstance(error, OSError):
                log.error("handshake_broke", source=task.get_name(), exc_info=error)
            else:
                log.debug("handshake_failed", source=task.get_name(), error=str(error))

    def _forget(self, task: asyncio.Task[None]) -> None:
        tasks = self._sources.get(task.get_name(), {})
        if task in tasks:
            del tasks[task]
            self._count -= 1
            self._crowded = self._crowded and 2 * self._count > (self._most or 0)
            if not tasks:
                del self._sources[task.get_name()]


async def _spoken(connection: socket.socket) -> None:
    """Until the client says something: what TLS needs is not made for the silent. Raises OSError."""
    loop = asyncio.get_running_loop()
    heard = asyncio.Event()
    loop.add_reader(connection, heard.set)
    try:
        await heard.wait()
    finally:
        loop.remove_reader(connection)
    if not connection.recv(1, socket.MSG_PEEK):
        raise ConnectionResetError("closed without a word")
