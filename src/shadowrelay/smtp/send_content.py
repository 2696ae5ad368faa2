"""Content on its way into DATA: large blocks, dots stuffed, nothing else touched (RFC 5321 4.5.2).

No line is ever looked at on its own, and no line ending is rewritten: octets leave as they were accepted.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator
from typing import TypeAlias

from shadowrelay.core.messages import Envelope
from shadowrelay.smtp.send_commands import ContentNeeds, Extensions
from shadowrelay.wire.line_ends import all_paired, has_dot_line

BLOCK = 256 * 1024
"""Octets handed to the transport at once: a delivery takes a few times this, whatever the message's size."""

ContentSource: TypeAlias = bytes | AsyncIterable[bytes]
"""A message at rest, or one that is read as it is sent; an iterator serves one attempt."""


class BareLineEnding(Exception):
    """A CR or LF that is not part of a CRLF: some receivers would end the message there (SMTP smuggling)."""


class DotStuffer:
    """Doubles each dot that begins a line, whatever the blocks' boundaries."""

    def __init__(self) -> None:
        self._tail = b"\r\n"  # the DATA command ended one

    def feed(self, block: bytes) -> bytes:
        """The block, stuffed. Raises BareLineEnding, also for one that the former block ended with."""
        if not block:
            return block
        tail = self._tail
        split = tail.endswith(b"\r")
        if split != block.startswith(b"\n"):
            raise BareLineEnding
        if not all_paired(block[split : len(block) - block.endswith(b"\r")]):
            raise BareLineEnding
        self._tail = (tail + block[-2:])[-2:]
        stuffed = block.replace(b"\r\n.", b"\r\n..") if has_dot_line(block) else block
        if split and block.startswith(b"\n."):
            return b"\n.." + stuffed[2:]
        if tail == b"\r\n" and block.startswith(b"."):
            return b"." + stuffed
        return stuffed

    def end(self) -> bytes:
        """What ends the data; with a CRLF before it when the content had none at its end."""
        if self._tail.endswith(b"\r"):
            raise BareLineEnding
        return b".\r\n" if self._tail == b"\r\n" else b"\r\n.\r\n"


async def blocks(content: ContentSource) -> AsyncGenerator[bytes, None]:
    """The content in pieces of at most BLOCK octets."""
    if isinstance(content, bytes):
        for start in range(0, len(content), BLOCK):
            yield content[start : start + BLOCK]
        return
    async for piece in content:
        for start in range(0, len(piece), BLOCK):
            yield piece[start : start + BLOCK]


async def examine(
    envelope: Envelope, content: ContentSource, extensions: Extensions, *, eight_bit: bool | None
) -> tuple[ContentNeeds, ContentSource]:
    """What the content asks of a next hop, and the content to send in place of the one given.

    A message at rest is looked at. Of one that is streamed, the size and BODY that the envelope declares are
    believed (``eight_bit`` overrules BODY when the caller knows better), and the first piece is read for the
    header when that decides whether the hop can take it.
    """
    utf8_matters = envelope.smtputf8 and "SMTPUTF8" not in extensions
    if isinstance(content, bytes):
        high = not content.isascii()
        utf8_header = high and utf8_matters and not _header_of(content).isascii()
        return ContentNeeds(size=len(content), eight_bit=high, utf8_header=utf8_header), content
    declared = envelope.body == "8BITMIME" if eight_bit is None else eight_bit
    if not utf8_matters:
        return ContentNeeds(size=envelope.size, eight_bit=declared, utf8_header=False), content
    pieces = aiter(content)
    first = await anext(pieces, b"")
    utf8_header = not _header_of(first).isascii()
    need = ContentNeeds(size=envelope.size, eight_bit=declared or utf8_header, utf8_header=utf8_header)
    return need, _again(first, pieces)


async def _again(first: bytes, others: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield first
    async for piece in others:
        yield piece


def _header_of(content: bytes) -> bytes:
    """Up to the first empty line (all of it when there is none)."""
    return b"" if content.startswith(b"\r\n") else content.partition(b"\r\n\r\n")[0]
