"""A session with one filter about one message: from MAIL to what becomes of the message."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TypeVar

from shadowrelay.core.values import dataclass, replace
from shadowrelay.smtp.filters import codec
from shadowrelay.smtp.filters.codec import Agreed, BodyPart, Edit, FieldEdit, FilterAnswer, Not, Ruling, Said

T = TypeVar("T")
Macros = Mapping[str, str]

CONTINUE = Ruling(Said.CONTINUE)
_MOST_EDITS = 1 << 20  # octets of changes that are kept until the end, the body's aside
_GOODBYE = 1.0  # seconds in which a filter that does not read may hold its last packet


class FilterFailed(Exception):
    """The filter cannot be asked, does not answer in time, or answers nonsense."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterOptions:
    """One filter: ``path`` of a Unix socket, or ``host`` and ``port``; times in seconds.
    ``accepts_when_down``: if it fails, mail is taken without it.
    """

    name: str
    host: str = ""
    port: int = 0
    path: str = ""
    connect: float = 5.0
    command: float = 30.0
    content: float = 30.0
    accepts_when_down: bool = False


class Budget:
    """The time that all filters of one message may take together, in seconds. It counts while they are waited
    for.
    """

    def __init__(self, seconds: float) -> None:
        self.left = seconds

    async def within(self, most: float, what: Awaitable[T]) -> T:
        """The result, if it comes within ``most`` seconds and the time that is left. Raises FilterFailed."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            async with asyncio.timeout(max(0.0, min(most, self.left))):
                return await what
        except TimeoutError:
            raise FilterFailed("no answer in time") from None
        except (OSError, asyncio.IncompleteReadError) as error:
            raise FilterFailed(f"connection lost: {error}") from error
        except codec.Nonsense as error:
            raise FilterFailed(f"nonsense: {error}") from error
        finally:
            self.left -= loop.time() - began


@dataclass(frozen=True, slots=True)
class Peer:
    """The client, as the first step tells of it. ``port``: 0 if it is not known."""

    address: str
    port: int


class FilterSession:
    """Asks one filter. Any method may raise FilterFailed; then only ``close`` may follow.

    Steps that the filter does not want to hear of are CONTINUE at once.
    """

    def __init__(self, options: FilterOptions, budget: Budget) -> None:
        self.options = options
        self._budget = budget
        self._agreed = Agreed(codec.ALL_MAY, Not(0))
        self._reader: asyncio.StreamReader
        self._writer: asyncio.StreamWriter | None = None
        self.over = False  # it has said all that it wants to say of this message

    async def open(self) -> None:
        """Connect, and agree on what it may do."""
        options = self.options
        to = (
            asyncio.open_unix_connection(options.path)
            if options.path
            else asyncio.open_connection(options.host, options.port)
        )
        self._reader, self._writer = await self._budget.within(options.connect, to)
        self._send(codec.offer())
        agreed = await self._answer(options.command)
        if not isinstance(agreed, Agreed):
            raise FilterFailed("nonsense: it agrees to nothing")
        self._agreed = agreed

    async def client(self, peer: Peer, known: Macros) -> Ruling:
        if not peer.address:
            data = codec.strings(b"unknown") + b"U"
        else:
            family = b"6" if ":" in peer.address else b"4"
            port = peer.port.to_bytes(2, "big")
            data = codec.strings(b"unknown") + family + port + codec.strings(peer.address.encode())
        return await self._step(b"C", data, Not.CONNECT, Not.ANSWER_CONNECT, known)

    async def helo(self, name: str, known: Macros) -> Ruling:
        return await self._step(b"H", codec.strings(name.encode()), Not.HELO, Not.ANSWER_HELO, known)

    async def mail(self, words: Sequence[str], known: Macros) -> Ruling:
        """``words``: the path in brackets, then the parameters."""
        data = codec.strings(*(word.encode() for word in words))
        return await self._step(b"M", data, Not.MAIL, Not.ANSWER_MAIL, known)

    async def rcpt(self, words: Sequence[str], known: Macros) -> Ruling:
        data = codec.strings(*(word.encode() for word in words))
        return await self._step(b"R", data, Not.RCPT, Not.ANSWER_RCPT, known)

    async def content(
        self,
        fields: Iterable[tuple[bytes, bytes]],
        body: AsyncIterator[bytes],
        known: Macros,
        replaces: Callable[[bytes], None],
    ) -> tuple[Ruling, tuple[Edit, ...]]:
        """Show the whole message, and hear what becomes of it. ``fields``: name, and all that is behind the
        colon. ``replaces`` takes the octets of another body. The edits are those to be made, in this order.
        """
        said = await self._step(b"T", b"", Not.DATA, Not.ANSWER_DATA, known)
        if said.said is Said.CONTINUE and not self._agreed.is_not & Not.FIELDS:
            said = await self._show_fields(fields)
        if said.said is Said.CONTINUE:
            said = await self._step(b"N", b"", Not.END_OF_FIELDS, Not.ANSWER_END_OF_FIELDS, known)
        if said.said is Said.CONTINUE and not self._agreed.is_not & Not.BODY:
            said = await self._show_body(body)
        if said.said is not Said.CONTINUE:
            return said, ()
        self._send(codec.macros(b"E", known) + codec.packet(b"E"))
        return await self._heard_out(replaces)

    def close(self) -> None:
        """Forget the message, and say goodbye. Nothing is waited for."""
        writer, self._writer = self._writer, None
        self.over = True
        if writer is not None:
            with suppress(OSError, RuntimeError):
                writer.write(codec.packet(b"Q"))
                writer.close()
                asyncio.get_running_loop().call_later(_GOODBYE, writer.transport.abort)

    async def _show_fields(self, fields: Iterable[tuple[bytes, bytes]]) -> Ruling:
        for name, value in fields:
            shown = value if self._agreed.is_not & Not.LEADING_SPACE else value.lstrip(b" \t")
            data = codec.strings(name, shown.replace(b"\r\n", b"\n"))
            said = await self._step(b"L", data, Not.FIELDS, Not.ANSWER_FIELDS, {})
            if said.said is not Said.CONTINUE:
                return said
        return CONTINUE

    async def _show_body(self, body: AsyncIterator[bytes]) -> Ruling:
        async for block in body:
            for at in range(0, len(block), codec.PART):
                part = block[at : at + codec.PART]
                said = await self._step(b"B", part, Not.BODY, Not.ANSWER_BODY, {})
                if said.said is Said.REST_SKIPPED:
                    return CONTINUE
                if said.said is not Said.CONTINUE:
                    return said
        return CONTINUE

    async def _heard_out(self, replaces: Callable[[bytes], None]) -> tuple[Ruling, tuple[Edit, ...]]:
        edits: list[Edit] = []
        octets = 0
        while True:
            said = await self._answer(self.options.content)
            match said:
                case Ruling(Said.PROGRESS):
                    pass
                case Ruling():
                    return self._allowed(said), tuple(edits)
                case Agreed():
                    raise FilterFailed("nonsense: it agrees once more")
                case BodyPart(data):
                    replaces(data)
                    if not (edits and isinstance(edits[-1], BodyPart)):
                        edits.append(BodyPart(b""))
                case edit:
                    octets += _size(edit)
                    if octets > _MOST_EDITS:
                        raise FilterFailed("nonsense: more changes than a message has room for")
                    edits.append(self._spaced(edit))

    def _spaced(self, edit: Edit) -> Edit:
        """The value of a field with its space behind the colon."""
        if isinstance(edit, FieldEdit) and edit.value and not self._agreed.is_not & Not.LEADING_SPACE:
            return replace(edit, value=b" " + edit.value)
        return edit

    async def _step(self, letter: bytes, data: bytes, unheard: Not, unanswered: Not, known: Macros) -> Ruling:
        agreed = self._agreed.is_not
        if agreed & unheard:
            return CONTINUE
        self._send(codec.macros(letter, known) + codec.packet(letter, data))
        if agreed & unanswered:
            await self._drain()
            return CONTINUE
        while True:
            said = await self._answer(self.options.command)
            if not isinstance(said, Ruling):
                raise FilterFailed("nonsense: a change before the end of the message")
            if said.said is not Said.PROGRESS:
                return self._allowed(said, skips=letter == b"B" and Not.REST_OF_BODY in agreed)

    def _allowed(self, said: Ruling, *, skips: bool = False) -> Ruling:
        if said.said is Said.REST_SKIPPED and not skips:
            raise FilterFailed("nonsense: it skips what has no rest")
        self.over = said.said is Said.ACCEPT
        return said

    def _send(self, data: bytes) -> None:
        # On a closing transport uvloop raises RuntimeError; asyncio's own loop drops the octets.
        if self._writer is None or self._writer.is_closing():
            raise FilterFailed("connection lost")
        self._writer.write(data)

    async def _drain(self) -> None:
        if self._writer is not None:
            await self._budget.within(self.options.command, self._writer.drain())

    async def _answer(self, most: float) -> FilterAnswer:
        return await self._budget.within(most, self._read())

    async def _read(self) -> FilterAnswer:
        if self._writer is not None:
            await self._writer.drain()
        (length,) = codec.HEAD.unpack(await self._reader.readexactly(codec.HEAD.size))
        if not 0 < length <= codec.LONGEST:
            raise codec.Nonsense(f"a packet of {length} octets")
        return codec.answer(await self._reader.readexactly(length))


def _size(edit: Edit) -> int:
    match edit:
        case codec.FieldEdit(name, value):
            return len(name) + len(value) + 64
        case codec.Quarantined(reason):
            return len(reason) + 64
        case codec.RecipientAdded(path) | codec.RecipientRemoved(path) | codec.SenderChanged(path):
            return len(path) + 64
        case _:
            return 0
