"""A filter of our own on a real socket. Its side of the protocol is kilter-protocol: what the node says is
read by others than those who wrote it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

NEEDED = pytest.mark.skipif(find_spec("kilter") is None, reason="kilter-protocol is not installed")

if find_spec("kilter") is not None:
    from kilter.protocol import messages as said
    from kilter.protocol.buffer import SimpleBuffer
    from kilter.protocol.core import FilterProtocol

Saying = Callable[[Any], "Sequence[Any] | None"]


@dataclass
class OwnFilter:
    """``answers``: to an event, by its name in kilter (``EndOfMessage``), what it says; else Continue.

    ``heard``: the events, each as kilter read it, without macros. ``macros``: all that it was told.
    ``wants``, ``version``: the protocol flags and the version that it answers the offer with.
    """

    answers: dict[str, Saying] = field(default_factory=dict)
    wants: int = 0
    version: int = 6
    heard: list[Any] = field(default_factory=list)
    macros: dict[str, str] = field(default_factory=dict)
    connections: int = 0
    chunks: list[int] = field(default_factory=list)
    address: str = ""

    def names(self) -> list[str]:
        return [type(one).__name__ for one in self.heard]

    def all(self, name: str) -> list[Any]:
        return [one for one in self.heard if type(one).__name__ == name]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        protocol, buffer = FilterProtocol(), SimpleBuffer(1 << 20)
        with suppress(ConnectionError):
            while data := await reader.read(1 << 16):
                buffer[:] = data
                for event in protocol.read_from(buffer):
                    for answer in self._answers(protocol, event):
                        out = SimpleBuffer(1 << 20)
                        protocol.write_to(out, answer)
                        writer.write(out[:].tobytes())
                    await writer.drain()
                    if isinstance(event, said.Close):
                        return writer.close()
        writer.close()
        return None

    def _answers(self, protocol: Any, event: Any) -> Iterable[Any]:
        event.freeze()
        if isinstance(event, said.Negotiate):
            flags = said.ProtocolFlags(self.wants) & event.protocol_flags
            return [
                said.Negotiate(self.version, event.action_flags & ~said.ActionFlags.SETSYMLIST, flags, {})
            ]
        if isinstance(event, said.Macro):
            for name, value in event.macros.items():
                self.macros[_text(name)] = _text(value)
            return []
        if isinstance(event, said.Body):
            self.chunks.append(len(event.content))
        self.heard.append(event)
        if not protocol.needs_response(event):
            return []
        saying = self.answers.get(type(event).__name__)
        given = saying(event) if saying else None
        return [said.Continue()] if given is None else given


def _text(value: Any) -> str:
    return value if isinstance(value, str) else bytes(value).decode()


@asynccontextmanager
async def filtering(own: OwnFilter, path: Path | None = None) -> AsyncIterator[OwnFilter]:
    """Serve it on a free port, or at the path of a Unix socket."""
    async with serving(own.serve, path) as own.address:
        yield own


@asynccontextmanager
async def serving(serve: Callable[..., Any], path: Path | None = None) -> AsyncIterator[str]:
    """Serve connections, at the address that this gives."""
    if path is not None:
        server = await asyncio.start_unix_server(serve, path)
        address = f"unix:{path}"
    else:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        address = f"inet:127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield address
    finally:
        server.close()
