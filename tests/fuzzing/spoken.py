"""Sessions without sockets: octets go in, octets come out, and nothing waits for a clock."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cache
from typing import Any, TypeVar

from shadowrelay.core.identifiers import Beginning, DatabaseId, Digest, Incarnation, Lineage, Mark, ServerName
from shadowrelay.core.members.conversation import Greeting, Query, QueryResponse
from shadowrelay.core.operating import Act, ActAnswer
from shadowrelay.core.reception.users import Verifier, verifier
from shadowrelay.smtp.members.client import MemberConnection
from shadowrelay.smtp.receiving.contract import Client, ConnectorOptions
from shadowrelay.smtp.receiving.limits import Register
from shadowrelay.smtp.receiving.session import ReceiveSession
from shadowrelay.wire.esmtp import MailFrom, RcptTo
from shadowrelay.wire.replies import Refused, Reply

T = TypeVar("T")

QUEUED = Reply(250, "2.6.0", "Queued for the fuzzer")
OPTIONS = ConnectorOptions(
    hostname="mx.example.net",
    tarpit_interval=timedelta(0),
    max_protocol_errors=40,
    max_recipients_per_message=5,
    max_message_size=20_000,
    max_header_size=4_000,
)
OWN = Mark(Incarnation("00000000000000aa"), 7)
DATABASE = DatabaseId("6f0d7a3e-0000-4000-8000-0000000000aa")


@cache
def _loop() -> asyncio.AbstractEventLoop:
    return asyncio.new_event_loop()


def performed(work: Coroutine[Any, Any, T]) -> T:
    """Run it to its end, on one loop for the whole process."""
    return _loop().run_until_complete(work)


class MemoryTransport(asyncio.Transport):
    """Keeps what is written."""

    def __init__(self, protocol: asyncio.Protocol, **facts: Any) -> None:
        super().__init__({"peername": ("192.0.2.1", 4711), "sockname": ("192.0.2.2", 25)} | facts)
        self.written = bytearray()
        self._protocol = protocol
        self._closed = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not self._closed:
            self.written += data

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            asyncio.get_running_loop().call_soon(self._protocol.connection_lost, None)

    abort = close

    def is_closing(self) -> bool:
        return self._closed

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        """Nobody reads."""

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None:
        """Everything is fed already."""

    def resume_reading(self) -> None:
        """Everything is fed already."""


@dataclass
class Recorder:
    """A Receiver, and a member's desk, that takes everything and remembers what it took."""

    kept: list[bytes] = field(default_factory=list)
    recipients: int = 0
    before_greeting: int = 0  # what was asked of the desk although nobody had introduced himself
    greeted: bool = False
    is_desk: bool = False
    open_sinks: int = 0
    peers: list[Client] = field(default_factory=list)  # of each MAIL

    def open(self) -> Recorder:
        return self

    async def mail(self, session: Client, mail: MailFrom) -> Reply | None:
        self._asked()
        self.peers.append(session)
        return None

    async def rcpt(
        self, session: Client, mail: MailFrom, rcpt: RcptTo, accepted: Sequence[RcptTo]
    ) -> Reply | None:
        self._asked()
        self.recipients = max(self.recipients, len(accepted) + 1)
        return None

    async def content(self, session: Client, mail: MailFrom, recipients: Sequence[RcptTo]) -> _Sink:
        self._asked()
        self.open_sinks += 1
        return _Sink(self)

    async def reset(self, session: Client) -> None:
        return None

    keeps = True

    def admits(self, client: Client) -> bool:
        return True

    def mark(self) -> Mark:
        return OWN

    async def greet(self, client: Client, theirs: Greeting) -> Greeting:
        if theirs.name != "mx1.example.org":
            raise Refused(550, "5.7.1", "Not a member")
        self.greeted = True
        lineage = Lineage(DATABASE, (Beginning(OWN.incarnation, 0),), OWN.sequence)
        return Greeting(ServerName("mx.example.net"), lineage, theirs.lineage.incarnation)

    async def ask(self, query: Query) -> QueryResponse:
        self._asked()
        return QueryResponse(())

    async def operate(self, act: Act) -> ActAnswer:
        del act
        self._asked()
        return ActAnswer({})

    def said(self, said: QueryResponse) -> None:
        return None

    def promised(self, digest: Digest) -> None:
        self._asked()

    def _asked(self) -> None:
        self.before_greeting += self.is_desk and not self.greeted


_ALICE, _NOBODY = verifier(b"Sesame", bytes(16), 4096), verifier(b"another", bytes(16), 4096)


class _Secured:
    """TLS, as far as a session asks about it."""

    def version(self) -> str:
        return "TLSv1.3"


class OneUser:
    """Logs in as alice with the password Sesame; remembers which names were right."""

    offered = scram = True

    def __init__(self) -> None:
        self.right: list[str] = []

    def verifier(self, name: str) -> Verifier:
        return _ALICE if name == "alice" else _NOBODY

    def proven(self, session: Client, name: str, *, right: bool) -> None:
        self.right += [name] * right

    async def check(self, session: Client, name: str, password: bytes) -> bool:
        right = (name, password) == ("alice", b"Sesame")
        self.right += [name] * right
        return right


class _Sink:
    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._content = bytearray()

    async def write(self, data: bytes) -> None:
        self._content += data

    async def finish(self) -> Sequence[Reply]:
        self._recorder.open_sinks -= 1
        self._recorder.kept.append(bytes(self._content))
        return [QUEUED]

    async def abort(self) -> None:
        self._recorder.open_sinks -= 1


def session(
    parts: Sequence[bytes],
    make: Callable[[Any, ConnectorOptions, Register], ReceiveSession],
    options: ConnectorOptions,
    *,
    desk: bool,
    tls: bool = False,
) -> tuple[bytes, Recorder]:
    """A client that sends these pieces and then closes its direction: all that it hears, and what was
    kept.
    """

    async def talk() -> tuple[bytes, Recorder]:
        recorder = Recorder(is_desk=desk)
        spoken = make(recorder, options, Register(None, None))
        transport = MemoryTransport(spoken, ssl_object=_Secured() if tls else None)
        spoken.connection_made(transport)
        for part in parts:
            spoken.data_received(part)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        spoken.eof_received()
        assert spoken._handler_coroutine is not None
        async with asyncio.timeout(30):
            await spoken._handler_coroutine
        return bytes(transport.written), recorder

    return performed(talk())


def called(parts: Sequence[bytes]) -> MemberConnection:
    """A session with a member that says this, whatever it is asked, and then closes."""
    connection = MemberConnection(5)
    connection.connection_made(MemoryTransport(connection))
    for part in parts:
        connection.data_received(part)
    connection.eof_received()
    return connection
