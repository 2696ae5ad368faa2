"""What filters may make of a message, and how one that breaks off is told from one that answers."""

from __future__ import annotations

import asyncio
import socket
import struct
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest

from shadowrelay.database.content import Spool
from shadowrelay.reception.changes import ContentLimits, FilteredMessage, NotPossible
from shadowrelay.smtp.filters import codec
from shadowrelay.smtp.filters.codec import (
    BodyPart,
    Edit,
    FieldEdit,
    RecipientAdded,
    RecipientRemoved,
    Said,
    SenderChanged,
)
from shadowrelay.smtp.filters.session import Budget, FilterFailed, FilterOptions, FilterSession
from shadowrelay.wire.esmtp import parse_rcpt

LIMITS = ContentLimits(most=1 << 20, header=1000, line=1000, pairs=True, recipients=200)


def message(folder: Path, *, header: int = 100, any_dots: bool = False) -> FilteredMessage:
    """With a header of so many octets of the client, and our own field."""
    numbers = count()
    trace = b"Received: from client.example\r\n\tby mx.example.net\r\n"
    field = b"X-Long: " + b"a" * (header - 10) + b"\r\n"

    def another() -> Spool:
        return Spool(folder, f"message.{next(numbers)}")

    spool = another()
    spool.write(trace + field + b"\r\nbody\r\n")
    return FilteredMessage(
        trace=trace,
        fields=(field,),
        spool=spool,
        body_at=len(trace + field) + 2,
        sender="a@example.org",
        recipients=(parse_rcpt("TO:<user..x@example.net>", smtputf8=False, any_dots=True),),
        smtputf8=False,
        limits=replace(LIMITS, any_dots=any_dots),
        another=another,
    )


async def body_of(changed: FilteredMessage) -> bytes:
    return b"".join([block async for block in changed.body()])


def test_a_header_as_long_as_a_client_may_send_it_stays_and_may_not_grow(tmp_path: Path) -> None:
    whole = message(tmp_path, header=990)
    assert whole.changed((), whole.replacement()) == whole
    edit = FieldEdit(b"X-Spam", b" no")
    with pytest.raises(NotPossible, match="too big"):
        whole.changed((edit,), whole.replacement())


async def test_another_body_ends_once_whatever_was_changed_between_its_parts(tmp_path: Path) -> None:
    whole = message(tmp_path)
    replaced = whole.replacement()
    replaced.write(b"no end")
    replaced.write(b" of line")
    changed = whole.changed((BodyPart(b""), FieldEdit(b"A", b" b"), BodyPart(b"")), replaced)
    assert await body_of(changed) == b"no end of line\r\n"


@pytest.mark.parametrize(
    "edit",
    [
        RecipientAdded("<more..dots@example.net>"),
        RecipientRemoved("<user..x@example.net>"),
        SenderChanged("<a..b@example.org>"),
    ],
)
def test_dots_are_for_filters_what_they_are_for_clients(tmp_path: Path, edit: Edit) -> None:
    strict, lenient = message(tmp_path), message(tmp_path, any_dots=True)
    with pytest.raises(NotPossible):
        strict.changed((edit,), strict.replacement())
    assert lenient.changed((edit,), lenient.replacement()) != lenient


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_a_connection_that_is_reset_between_two_steps_is_a_filter_that_is_down(loop: str) -> None:
    """On a closing transport uvloop raises an error of its own."""
    factory = asyncio.new_event_loop if loop == "asyncio" else pytest.importorskip("uvloop").new_event_loop

    async def until_mail(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        letter = b""
        while letter != b"M":
            (length,) = codec.HEAD.unpack(await reader.readexactly(codec.HEAD.size))
            letter = (await reader.readexactly(length))[:1]
            options = struct.pack("!III", codec.VERSION, 0, 0)
            writer.write(codec.packet(b"O", options) if letter == b"O" else codec.packet(b"c"))
        await writer.drain()
        found = writer.get_extra_info("socket")
        found.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()

    async def talk() -> None:
        server = await asyncio.start_server(until_mail, "127.0.0.1", 0)
        session = FilterSession(
            FilterOptions(name="f", host="127.0.0.1", port=server.sockets[0].getsockname()[1]), Budget(30.0)
        )
        await session.open()
        assert (await session.mail(["<a@example.org>"], {})).said is Said.CONTINUE
        async with asyncio.timeout(30):
            while not session._writer.is_closing():  # type: ignore[union-attr]  # noqa: ASYNC110 - nothing tells
                await asyncio.sleep(0.005)
        with pytest.raises(FilterFailed):
            await session.rcpt(["<b@example.net>"], {})
        session.close()
        server.close()

    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(talk())
