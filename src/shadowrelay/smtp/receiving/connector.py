"""A Receive connector: where it listens, how connections are accepted, and its sessions."""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from typing import TypeAlias

import structlog

from shadowrelay.shared_counts import SessionCounts
from shadowrelay.smtp.receiving.contract import ConnectorOptions, RateLimits, Receiver
from shadowrelay.smtp.receiving.limits import Register
from shadowrelay.smtp.receiving.rates import MinuteRates
from shadowrelay.smtp.receiving.session import ReceiveSession
from shadowrelay.wire.networks import source_of

log = structlog.get_logger(__name__)

HANDSHAKE = 30.0
"""Seconds that a handshake may take."""

_BATCH = 64  # connections accepted before others have their turn
_PAUSE = 1.0  # seconds without accepting, when the machine has nothing left to accept with
_EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


class SecureListener:
    """Accepts connections that begin with TLS. Each gets a protocol of ``factory`` after its handshake.

    An event loop's own server reports a connection only after its handshake, so silent strangers could hold
    any number of connections. Here at most ``most`` handshakes are under way. One more ends the oldest
    handshake of the source that has the most: a crowd pays for itself, and a member needs only milliseconds.
    """

    def __init__(
        self, factory: Callable[[], asyncio.Protocol], context: ssl.SSLContext, most: int | None
    ) -> None:
        self._factory, self._context, self._most = factory, context, most
        self._listening: list[socket.socket] = []
        self._sources: dict[str, dict[asyncio.Task[None], None]] = {}  # oldest first
        self._count = 0
        self._crowded = False

    def take(self, context: ssl.SSLContext, most: int | None) -> None:
        """Handshakes that begin from now on are made with that context."""
        self._context, self._most = context, most

    @property
    def handshakes(self) -> int:
        """How many are under way."""
        return self._count

    def start(self, listening: Sequence[socket.socket]) -> None:
        """Accept from these sockets; they are closed by ``leave`` and ``stop``."""
        self._listening = list(listening)
        for one in self._listening:
            one.listen(BACKLOG)
            self._watch(one)

    @property
    def listens(self) -> bool:
        return bool(self._listening)

    def leave(self, *, shared: bool = False) -> None:
        """Stop listening. ``shared``: who waits at the address is served first: other workers serve there."""
        loop = asyncio.get_running_loop()
        listening, self._listening = self._listening, []
        for one in listening:
            loop.remove_reader(one)
            for connection in _accepted([one]) if shared else ():
                with suppress(OSError):  # it has gone
                    self._begin(connection, source_of(str(connection.getpeername()[0])))
            one.close()

    async def stop(self) -> None:
        """Stop listening, and end every handshake under way. Idempotent."""
        self.leave()
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
        """Log it once for each flood."""
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
    """Wait until the client says something: a silent client costs no TLS state. Raises OSError."""
    loop = asyncio.get_running_loop()
    heard = asyncio.Event()
    loop.add_reader(connection, heard.set)
    try:
        await heard.wait()
    finally:
        loop.remove_reader(connection)
    if not connection.recv(1, socket.MSG_PEEK):
        raise ConnectionResetError("closed without a word")


SessionFactory: TypeAlias = Callable[[Receiver, ConnectorOptions, Register], ReceiveSession]

BACKLOG = 512
"""Connections that the system may accept before they are served."""


async def listening(host: str, port: int) -> list[socket.socket]:
    """A listening socket for each address of ``host`` ('': every one of this machine). Raises OSError."""
    made = await bound(host, port)
    with ExitStack() as undo:
        for sock in made:
            undo.push(sock)
        for sock in made:
            sock.listen(BACKLOG)
        undo.pop_all()
    return made


async def bound(host: str, port: int, *, shared: bool = False) -> list[socket.socket]:
    """A bound socket for each address of ``host``, which does not listen yet. ``shared``: other processes of
    the node may listen there too. Raises OSError.
    """
    found = await asyncio.get_running_loop().getaddrinfo(
        host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    made: list[socket.socket] = []
    with ExitStack() as undo:
        for family, kind, protocol, _, address in dict.fromkeys(found):
            try:
                sock = undo.enter_context(socket.socket(family, kind, protocol))
            except OSError as error:
                if error.errno != errno.EAFNOSUPPORT:
                    raise
                continue  # a kernel without IPv6
            sock.setblocking(False)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:  # 0.0.0.0 is an address of its own
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            if shared:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            sock.bind(address)
            made.append(sock)
        undo.pop_all()
    if not made:
        raise OSError(errno.EADDRNOTAVAIL, f"{host} is no address of this machine")
    return made


async def held(host: str, port: int) -> list[socket.socket]:
    """Sockets that keep an address for the workers of a node, and get no connection: while they are open, no
    process listens there but connectors of this user that share it. Raises OSError if one does already.
    """
    made = await bound(host, port)
    for sock in made:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)
    return made


_TURNS = 5  # turns of the event loop until an accepted connection is a session


async def _turns(of: Sequence[object]) -> None:
    for _ in range(_TURNS if of else 0):
        await asyncio.sleep(0)


def _accepted(sockets: Sequence[socket.socket]) -> list[socket.socket]:
    """The connections that wait at these sockets. None is left."""
    found = []
    for one in sockets:
        with suppress(OSError):  # nobody waits, or this machine has nothing left to accept with
            while True:
                connection, _ = one.accept()
                connection.setblocking(False)
                found.append(connection)
    return found


class Connector:
    """Serves between ``start`` and ``stop``. ``session`` makes the protocol of each connection.

    ``shared``: other workers of the node serve the same address, and this counts the sessions of all. Then
    the connector listens only while it serves: what it does not accept, the others do.
    """

    def __init__(
        self,
        options: ConnectorOptions,
        receiver: Receiver,
        *,
        session: SessionFactory = ReceiveSession,
        shared: SessionCounts | None = None,
    ) -> None:
        self.options = options
        self._receiver = receiver
        self._make_session = session
        rates = MinuteRates(options.name, options.rates, shared) if options.rates else None
        self._register = Register(
            options.max_inbound_connections, options.max_inbound_connections_per_source, shared, rates
        )
        self._counts, self._shared = shared, shared is not None
        self._waiting: list[socket.socket] = []
        self._sockets: list[socket.socket] = []  # those of the servers
        self._servers: list[asyncio.Server] = []
        self._secure: SecureListener | None = None

    def become(self, other: Connector) -> None:
        """Serve new sessions as the other connector would, which was never started, at the address of this
        one. Sessions under way go on as they began.
        """
        self.options, self._receiver = other.options, other._receiver
        self._make_session = other._make_session
        options = self.options
        self._register.limit(options.max_inbound_connections, options.max_inbound_connections_per_source)
        if self._register.rates:
            self._register.rates.limits = options.rates or RateLimits()
        elif options.rates:
            self._register.rates = MinuteRates(options.name, options.rates, self._counts)
        if self._secure is not None and options.tls is not None:
            self._secure.take(options.tls, options.max_inbound_connections)

    async def listen(self) -> tuple[str, int]:
        """Bind the address; returns its host and port. Clients may connect, and wait, unless the address is
        shared: then others serve them. Raises OSError.
        """
        host, port = self.options.host, self.options.port
        self._waiting = await (bound(host, port, shared=True) if self._shared else listening(host, port))
        host, port = self._waiting[0].getsockname()[:2]
        return host, port

    async def start(self) -> tuple[str, int]:
        """Serve, after ``listen`` if that was not done; returns the host and the port. Raises OSError."""
        options = self.options
        host, port = self._waiting[0].getsockname()[:2] if self._waiting else await self.listen()
        waiting, self._waiting = self._waiting, []
        if options.implicit_tls and options.tls is not None:
            if self._secure is None:
                self._secure = SecureListener(self._session, options.tls, options.max_inbound_connections)
            self._secure.start(waiting)
        else:
            serve = asyncio.get_running_loop().create_server
            self._servers = [await serve(self._session, sock=one, backlog=BACKLOG) for one in waiting]
            self._sockets = waiting
        log.info("connector_listening", connector=options.name, host=host, port=port)
        return host, port

    @property
    def rates(self) -> MinuteRates | None:
        """Who had too much in a minute; None without limits."""
        return self._register.rates

    @property
    def sessions(self) -> int:
        """How many connections are open."""
        return len(self._register)

    @property
    def handshakes(self) -> int:
        """How many TLS handshakes are under way on a connector with implicit TLS."""
        return self._secure.handshakes if self._secure else 0

    async def refuse(self, drain: float) -> None:
        """Answer 421 to new connections; sessions may finish their transactions for ``drain`` seconds.

        A shared address is left to the other workers: new connections are theirs.
        """
        if self._shared:
            await self._leave()
        await self._register.close(drain)

    async def admit(self) -> None:
        """Take connections again, after ``refuse``. Raises OSError."""
        self._register.reopen()
        if self._shared and not self._servers and not (self._secure and self._secure.listens):
            await self.start()

    async def stop(self, drain: float) -> None:
        """Stop listening; sessions may finish their transactions for ``drain`` seconds.

        A message whose content is complete is always finished, and its reply sent. Idempotent.
        """
        for unserved in self._waiting:
            unserved.close()
        self._waiting = []
        await self._leave()
        if self._secure is not None:
            await self._secure.stop()
        await self._register.close(drain)
        if self._register.rates:
            self._register.rates.stop()
        log.info("connector_stopped", connector=self.options.name)

    async def _leave(self) -> None:
        """Listen no more. Connections that were just accepted become sessions first, which are told and
        closed as the others are: asyncio would drop them silently if their server were closed.

        Who waits at a shared address becomes a session too: other workers serve there, so nobody may learn
        from a broken connection that this one goes.
        """
        loop = asyncio.get_running_loop()
        if self._secure is not None and self._shared:
            self._secure.leave(shared=True)
        servers, self._servers = self._servers, []
        for server in servers:
            for sock in server.sockets:
                loop.remove_reader(sock.fileno())  # without effect on uvloop
        try:
            await _turns(servers)
        finally:
            waiting = _accepted(self._sockets) if self._shared else []
            for server in servers:
                server.close()
            self._sockets = []
            begun = [loop.create_task(self._begin(connection)) for connection in waiting]
        if begun:
            await asyncio.wait(begun)
        await _turns(begun)

    async def _begin(self, connection: socket.socket) -> None:
        try:
            await asyncio.get_running_loop().connect_accepted_socket(self._session, connection)
        except OSError:
            connection.close()

    def _session(self) -> ReceiveSession:
        return self._make_session(self._receiver, self.options, self._register)
