"""A session with another member, as its client: what it makes of each way in which the other end fails."""

from __future__ import annotations

import asyncio
import resource
import socket
import struct
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from stations import (
    Station,
    authority,
    boundary,
    database_id,
    eventually,
    full,
    incarnation,
    offer,
    pieces,
    station,
)

from shadowrelay.core.decisions import VerdictKind
from shadowrelay.core.digests import ContentDigest
from shadowrelay.core.identifiers import Beginning, Lineage, Mark, NextHop
from shadowrelay.core.members.conversation import Greeting, Query, Revocation
from shadowrelay.core.messages import Envelope, Recipient
from shadowrelay.core.reception.redundancy import Concern, Leg, OfferAttempt
from shadowrelay.core.steps import Ask, OfferCopy, Pause, Unanswered
from shadowrelay.members.pool import seconds
from shadowrelay.smtp.members.client import MemberAddress, MemberConnection, MemberFailed
from shadowrelay.smtp.members.offer import OutgoingOffer

US = Greeting(full("mx1"), Lineage(database_id(1), (Beginning(incarnation(1), 0),), 0))
THEM = f"{full('mx2')} {database_id(2)} {incarnation(2)}:5 {incarnation(2)}@0"
MARK = f"{incarnation(2)}:5"
OURS = Mark(incarnation(1), 0)
HELLO = b"\r\nhello\r\n"

Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Any]


async def offered(session: MemberConnection, step: OfferCopy, content: AsyncIterator[bytes]) -> OfferAttempt:
    """One copy, whatever its digest: these members compare nothing."""
    digest = step.digests.content if step.digests else None
    return await OutgoingOffer(session, step, OURS, datetime.now(UTC)).send(content, digest)


@asynccontextmanager
async def member(answer: Answer) -> AsyncIterator[MemberConnection]:
    """A greeted session with a member that says what it should up to XSHADOW, and then what a test wants."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            writer.write(b"220 mx2.example.org ESMTP\r\n")
            await reader.readline()
            writer.write(b"250-mx2.example.org\r\n250-XSHADOW 1\r\n250 XQDISCARD\r\n")
            await reader.readline()
            writer.write(f"250 2.0.0 {THEM} {MARK}\r\n".encode())
            await answer(reader, writer)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    try:
        session = await MemberConnection.dial(
            MemberAddress(full("mx2"), "127.0.0.1", port, None), full("mx1"), 1.0
        )
        await session.greet(US)
        yield session
        session.abort()
    finally:
        server.close()


def says(*lines: str) -> Answer:
    """Waits for the next command, and says that, whatever it was."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write("".join(f"{line}\r\n" for line in lines).encode())
        await reader.read(-1)

    return answer


async def the_offer(reader: asyncio.StreamReader) -> bytes:
    """Read MAIL, RCPT, and the chunks."""
    read = b""
    while b" LAST\r\n" not in read:
        read += (line := await reader.readline())
        if not line:
            raise asyncio.IncompleteReadError(read, None)
    return read


OK = f"250 2.0.0 OK {MARK}\r\n".encode()


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_a_session_that_was_reset_while_it_was_idle_fails_like_any_other(loop: str) -> None:
    """On the event loops that a node may run with: what else is raised would end the node."""
    reset = asyncio.Event()

    async def resets(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        del reader
        lingering = struct.pack("ii", 1, 0)
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, lingering)
        writer.transport.abort()
        reset.set()

    async def talk() -> None:
        async with member(resets) as session:
            await reset.wait()
            await eventually(lambda: session.lost)
            for _ in range(2):
                with pytest.raises(MemberFailed, match="xqdiscard"):
                    await session.ask(Query(0))
            with pytest.raises(MemberFailed, match="xshadow"):
                await session.greet(US)
            step = offer(full("mx2"))
            assert (await offered(session, step, pieces(b"x" * 100_000))).leg is Leg.REFUSED

    factory = None if loop == "asyncio" else pytest.importorskip(loop).new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(talk())


# Dialling


@pytest.mark.parametrize(
    ("offered", "error"),
    [
        ("250 mx2.example.org", "the other end does not talk to us as to a member"),
        ("250-mx2.example.org\r\n250 XSHADOW 1", "the other end does not talk to us as to a member"),
        (
            "250-mx2.example.org\r\n250-XSHADOW 7\r\n250 XQDISCARD",
            "the other end does not talk to us as to a member",
        ),
        ("421 4.3.2 Too many connections", "421 4.3.2 Too many connections"),
    ],
)
async def test_who_does_not_offer_the_verbs_in_this_version_is_no_member(offered: str, error: str) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 mx2.example.org ESMTP\r\n")
        await reader.readline()
        writer.write(offered.encode() + b"\r\n")
        await reader.read(-1)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    address = MemberAddress(full("mx2"), "127.0.0.1", server.sockets[0].getsockname()[1], None)
    with pytest.raises(MemberFailed) as failed:
        await MemberConnection.dial(address, full("mx1"), 1.0)
    assert (failed.value.step, failed.value.error) == ("ehlo", error)
    server.close()


async def test_each_step_of_dialling_has_its_time() -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(-1)
        writer.close()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    address = MemberAddress(full("mx2"), "127.0.0.1", server.sockets[0].getsockname()[1], None)
    with pytest.raises(MemberFailed, match="greeting: no answer in time"):
        await MemberConnection.dial(address, full("mx1"), 0.1)
    server.close()
    await server.wait_closed()
    with pytest.raises(MemberFailed, match="connect: "):
        await MemberConnection.dial(address, full("mx1"), 0.5)


async def test_a_server_that_is_not_the_member_we_mean_is_not_spoken_to(tmp_path: Path) -> None:
    ours = authority(tmp_path / "ca", "mx1", "mx2", "mx3")
    async with boundary(tmp_path, "mx1", "mx2", "mx3", tls=ours) as (caller, _, third):
        address = caller.node.members.addresses[full("mx2")]
        wrong = MemberAddress(address.name, "127.0.0.1", third.peer_port, address.tls)
        with pytest.raises(MemberFailed, match=r"connect: .*not valid for 'mx2.example.org'"):
            await MemberConnection.dial(wrong, caller.name, 2.0)


async def test_a_member_that_speaks_in_the_clear_is_told_nothing(tmp_path: Path) -> None:
    heard = bytearray()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 mx2.example.org ESMTP\r\n")
        with suppress(ConnectionError):
            heard.extend(await reader.read(-1))
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with boundary(tmp_path, "mx1", "mx2", tls=authority(tmp_path / "ca", "mx1", "mx2")) as (caller, _):
        tls = caller.node.members.addresses[full("mx2")].tls
        address = MemberAddress(full("mx2"), "127.0.0.1", server.sockets[0].getsockname()[1], tls)
        with pytest.raises(MemberFailed, match="connect: "):
            await MemberConnection.dial(address, caller.name, 2.0)
    server.close()
    await eventually(lambda: bool(heard))
    assert b"EHLO" not in heard


async def test_without_certificates_the_name_it_answers_by_counts(tmp_path: Path) -> None:
    async with boundary(tmp_path, "mx1", "mx2", "mx3") as (caller, second, third):
        second.peer_port = third.peer_port
        caller.knows(second)
        with pytest.raises(MemberFailed, match="it answers as mx3"):
            await caller.node.members.acquire(full("mx2"))


@pytest.mark.parametrize(
    "greeting",
    ["hello", THEM, f"{THEM} x", f"{THEM.replace('@0', '@9')} {MARK}", f"{THEM.upper()} {MARK}"],
    ids=["nonsense", "no mark", "bad mark", "bad lineage", "upper case"],
)
async def test_a_greeting_that_cannot_be_read_is_a_failure(greeting: str) -> None:
    async with member(says(f"250 2.0.0 {greeting}")) as session:
        with pytest.raises(MemberFailed, match="xshadow: "):
            await session.greet(US)
        assert not session.usable


# Offers


async def test_a_copy_is_acknowledged_with_the_mark_of_its_commit() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        sent = await the_offer(reader)
        assert sent.startswith(b"MAIL FROM:<a@example.org> XSHADOW=01900000-0000-7000-8000-000000000001;1;1;")
        assert sent.count(b"RCPT TO:<b@example.net> XFORK=1;inside\r\n") == 1
        writer.write(OK * 3 + f"250 2.6.0 kept {incarnation(2)}:9\r\n".encode())
        await reader.read(-1)

    async with member(answer) as session:
        attempt = await offered(session, offer(full("mx2")), pieces(b"one", b"two"))
        assert (attempt.leg, attempt.database_id) == (Leg.ACKNOWLEDGED, database_id(2))
        assert (attempt.mark, attempt.reply) == (Mark(incarnation(2), 9), "250 2.6.0 kept")
        assert session.usable


NO = f"451 4.3.0 Not now {MARK}\r\n".encode()


@pytest.mark.parametrize("refused", range(4))
async def test_any_refusal_means_that_nothing_is_kept(refused: int) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await the_offer(reader)
        writer.write(b"".join(NO if number == refused else OK for number in range(4)))
        await reader.read(-1)

    async with member(answer) as session:
        attempt = await offered(session, offer(full("mx2")), pieces(b"one", b"two"))
        assert (attempt.leg, attempt.reply) == (Leg.REFUSED, f"451 4.3.0 Not now {MARK}")
        assert session.usable == (refused == 3)  # the replies to what was still on its way are not waited for


async def test_a_session_closed_right_after_a_refusal_is_still_a_refusal() -> None:
    """A member with a full disk answers each of many recipients 503, and at last hangs up."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(f"452 4.3.1 Insufficient system resources {MARK}\r\n".encode())
        writer.write(f"421 4.7.0 Too many errors {MARK}\r\n".encode())
        await writer.drain()

    async with member(answer) as session:
        attempt = await offered(session, offer(full("mx2")), pieces(b"one"))
        assert attempt.leg is Leg.REFUSED


async def test_a_connection_lost_before_the_end_leaves_no_copy_and_after_it_perhaps_one() -> None:
    async def at_once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.transport.abort()

    async def at_the_end(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await the_offer(reader)
        writer.write(OK * 2)
        await writer.drain()

    async def slowly() -> AsyncIterator[bytes]:
        yield b"one"
        yield b"two"  # one of them is held back
        await eventually(lambda: not session.usable)
        yield b"three"

    async with member(at_once) as session:
        assert (await offered(session, offer(full("mx2")), slowly())).leg is Leg.REFUSED
    async with member(at_the_end) as session:
        attempt = await offered(session, offer(full("mx2")), pieces(b"one"))
        assert (attempt.leg, attempt.database_id, attempt.mark) == (Leg.LOST, database_id(2), None)
        assert not session.usable


async def test_once_the_end_was_begun_to_be_sent_there_may_be_a_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    """What failed while the last chunk was being sent may be there all the same."""

    async def stuck(self: MemberConnection, step: str) -> None:
        self.abort()
        raise MemberFailed(step, "no answer in time")

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(-1)

    async with member(answer) as session:
        monkeypatch.setattr(MemberConnection, "drain", stuck)
        attempt = await offered(session, offer(full("mx2")), pieces(b"one"))
        assert attempt.leg is Leg.LOST


async def test_a_holder_that_never_answers_may_have_a_copy() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(-1)

    async with member(answer) as session:
        attempt = await offered(session, offer(full("mx2")), pieces(b"one"))
        assert (attempt.leg, attempt.reply) == (Leg.LOST, "offer: no answer in time")


async def test_an_acknowledgement_without_a_mark_counts_for_nothing() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await the_offer(reader)
        writer.write(OK * 2 + b"250 2.6.0 kept\r\n")
        await reader.read(-1)

    async with member(answer) as session:
        attempt = await offered(session, offer(full("mx2")), pieces(b"one"))
        assert attempt.leg is Leg.LOST


async def test_a_content_that_cannot_be_read_ends_the_offer_without_a_copy(tmp_path: Path) -> None:
    async def broken() -> AsyncIterator[bytes]:
        yield bytes(100_000)
        raise OSError(5, "Input/output error")

    async with boundary(tmp_path, "mx1", "mx2") as (owner, holder):
        with pytest.raises(OSError, match="Input/output"):
            await owner.node.members.offer(offer(holder.name), broken())
        await eventually(lambda: holder.connectors[0].sessions == 0)
        assert await holder.copies() == []
        assert holder.files() == []


async def test_a_copy_travels_whole(tmp_path: Path) -> None:
    content = b"Subject: all octets\r\n\r\n" + bytes(range(256)).replace(b"\r", b"").replace(b"\n", b"") * 50
    envelope = Envelope(
        sender="a@example.org", size=0, body="8BITMIME", smtputf8=True, ret="HDRS", envid="id+2B1"
    )
    to = (
        Recipient(1, "b@example.net", NextHop("inside"), ("SUCCESS", "DELAY"), "rfc822;b+3Dc@example.net"),
        Recipient(4, "ü@bücher.example", NextHop("über all")),
    )
    async with boundary(tmp_path, "mx1", "mx2") as (owner, holder):
        step = offer(holder.name, content=content, envelope=envelope, recipients=to, epoch=3, rank=2)
        attempt = await owner.node.members.offer(step, pieces(content[:1000], content[1000:]))
        assert attempt.leg is Leg.ACKNOWLEDGED
        (held,) = await holder.copies()
        assert await holder.octets(held.id) == content
    assert (held.epoch, held.rank, held.owner, held.offered_in) == (3, 2, owner.name, incarnation(1))
    assert (held.recipients, held.digests) == (to, step.digests)
    assert abs(held.received_at - step.received_at) < timedelta(seconds=1)
    kept = held.envelope
    assert (kept.sender, kept.body, kept.smtputf8, kept.ret, kept.envid) == (
        "a@example.org",
        "8BITMIME",
        True,
        "HDRS",
        "id+2B1",
    )
    assert (kept.size, kept.subject) == (len(content), "all octets")


def peak() -> int:
    """Octets of memory that this process ever had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


async def test_a_large_copy_needs_little_memory_at_either_end(tmp_path: Path) -> None:
    large = (b"x" * 78 + b"\r\n") * (262_144 // 80)

    async def content() -> AsyncIterator[bytes]:
        yield b"\r\n"
        for _ in range(30_000_000 // len(large)):
            yield large

    async with boundary(tmp_path, "mx1", "mx2") as (owner, holder):
        before = peak()
        digest = ContentDigest()
        async for block in content():
            digest.update(block)
        step = offer(holder.name)
        assert step.digests
        step = replace(step, digests=replace(step.digests, content=digest.value))
        attempt = await owner.node.members.offer(step, content())
        grown = peak() - before
        assert attempt.leg is Leg.ACKNOWLEDGED
        (held,) = await holder.copies()
    assert held.envelope.size == 2 + 30_000_000 // len(large) * len(large)
    assert grown < 12_000_000


async def test_very_many_chunks_do_not_block_each_other() -> None:
    """Neither end may wait for the other to read: replies are heard while chunks leave."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(OK * 2)
        await reader.readline()
        await reader.readline()
        for _ in range(6000):
            await reader.readline()
            await reader.readexactly(8000)
            writer.write(b"250 2.0.0 " + b"x" * 8000 + f" {MARK}\r\n".encode())
            await writer.drain()
        await reader.readline()
        writer.write(OK)
        await reader.read(-1)

    async with member(answer) as session:
        attempt = await offered(session, offer(full("mx2")), pieces(*[bytes(8000)] * 6000))
        assert attempt.leg is Leg.ACKNOWLEDGED, attempt


async def test_an_acknowledgement_lost_on_the_way_is_told_as_such_and_can_be_asked_about(
    tmp_path: Path,
) -> None:
    async with boundary(tmp_path, "mx1", "mx2") as (owner, holder):
        async with cutting(holder) as cut:
            owner.knows(cut)
            attempt = await owner.node.members.offer(offer(holder.name, content=HELLO), pieces(HELLO))
            assert (attempt.leg, attempt.database_id) == (Leg.LOST, database_id(2))
        assert len(await holder.copies()) == 1
        owner.knows(holder)
        revoke = Query(0, revoke=Revocation(offer(holder.name).message_id, 1, 1))
        answered = await owner.node.members.ask(Ask(holder.name, revoke))
        assert not isinstance(answered, Unanswered)
        assert [line.verdict.kind for line in answered.lines] == [VerdictKind.REJECTED]
        assert await holder.copies() == []


@asynccontextmanager
async def cutting(host: Station) -> AsyncIterator[Any]:
    """A way to that member on which the connection breaks when it acknowledges a copy."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", host.peer_port)

        async def forward() -> None:
            while data := await reader.read(65_536):
                back.write(data)

        forwarding = asyncio.ensure_future(forward())
        with suppress(ConnectionError):
            while data := await there.read(65_536):
                if b" 2.6.0 " in data or b"250 2.6.0" in data:
                    break
                writer.write(data)
        forwarding.cancel()
        writer.transport.abort()
        back.transport.abort()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    made = Station(host.name, host.node, host.directory)
    made.peer_port = server.sockets[0].getsockname()[1]
    yield made
    server.close()


# Questions


async def test_a_line_that_cannot_be_read_is_skipped_and_no_other() -> None:
    good = "01900000-0000-7000-8000-000000000001"
    lines = (
        f"250-2.0.0 1 {good} 1 delivered *",
        "250-2.0.0 nonsense",
        f"250-2.0.0 2 {good} 1 superseded=soon *",
        f"250 2.0.0 3 {good} 1 delivered 2 {MARK}",
    )
    async with member(says(*lines)) as session:
        answered, bad = await session.ask(Query(200))
        assert [line.event for line in answered.lines] == [1, 3]
        assert bad == ("nonsense", f"2 {good} 1 superseded=soon *")
        assert answered.mark == Mark(incarnation(2), 5)


@pytest.mark.parametrize(
    "answer",
    [
        "250 2.0.0 no mark at all",
        "451 4.3.0 Local error",
        "550 5.7.1 Not a member",
        "not a reply",
        "250-2.0.0 begun\r\n251 2.0.0 and changed",
    ],
)
async def test_an_answer_that_is_none_is_a_failure(answer: str) -> None:
    async with member(says(answer)) as session:
        with pytest.raises(MemberFailed, match="xqdiscard: "):
            await session.ask(Query(200))
        assert not session.usable


async def test_a_reply_that_never_ends_is_cut_off() -> None:
    async def endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        while True:
            writer.write(b"250-2.0.0 and so on\r\n" * 1000)
            await writer.drain()

    async with member(endless) as session:
        with pytest.raises(MemberFailed, match="too long"):
            await session.ask(Query(200))


# The pool


async def test_sessions_are_used_again(tmp_path: Path) -> None:
    async with boundary(tmp_path, "mx1", "mx2") as (owner, holder):
        for number in range(1, 4):
            attempt = await owner.node.members.offer(offer(holder.name, number, HELLO), pieces(HELLO))
            assert attempt.leg is Leg.ACKNOWLEDGED
        assert holder.connectors[0].sessions == 1
        assert len(await holder.copies()) == 3


async def test_a_session_that_the_member_gave_up_waiting_for_is_not_used(tmp_path: Path) -> None:
    """It said 421 and closed: that is no refusal of the next copy."""
    short = {"peer": {"connection_inactivity_timeout": "1s"}}
    async with boundary(tmp_path, "mx1", "mx2", own={"mx2": short}) as (owner, holder):
        await owner.node.members.offer(offer(holder.name, 1, HELLO), pieces(HELLO))
        await eventually(lambda: holder.connectors[0].sessions == 0)
        attempt = await owner.node.members.offer(offer(holder.name, 2, HELLO), pieces(HELLO))
        assert attempt.leg is Leg.ACKNOWLEDGED, attempt


async def test_a_caller_that_gives_up_while_it_introduces_itself_leaves_no_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with boundary(tmp_path, "mx1", "mx2") as (owner, holder):
        waiting = asyncio.Event()

        async def stuck(*_: object) -> None:
            waiting.set()
            await Pause(timedelta(hours=1))

        monkeypatch.setattr("shadowrelay.members.pool.greet", stuck)
        calling = asyncio.ensure_future(owner.node.members.acquire(holder.name))
        await waiting.wait()
        calling.cancel()
        await eventually(lambda: holder.connectors[0].sessions == 0)


async def test_sessions_with_a_member_that_is_frozen_do_not_hold_up_a_stop(tmp_path: Path) -> None:
    async def frozen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        del writer
        await reader.read(-1)

    patient = {"shadow_attempt_timeout": "1m"}
    async with boundary(tmp_path, "mx1", "mx2", **patient) as (owner, holder), AsyncExitStack() as stack:
        for _ in range(5):
            session = await stack.enter_async_context(member(frozen))
            owner.node.members.release(holder.name, session)
        async with asyncio.timeout(30):
            await owner.node.members.close()
        assert session.lost


async def test_a_member_that_cannot_be_reached_is_skipped_for_a_while(tmp_path: Path) -> None:
    found = await station(tmp_path, "mx1", ["mx2"])
    attempt = await found.node.members.offer(offer(full("mx2")), pieces(b""))
    assert attempt.leg is Leg.REFUSED
    assert attempt.reply.startswith("connect: ")
    assert found.node.boundary.skipped(0.0) == {full("mx2")}
    await found.stop()


@pytest.mark.parametrize(
    ("reply", "concern"),
    [
        ("452 4.3.1 Insufficient system resources", Concern.MEMBER),
        ("451 4.3.2 Being drained, ask another member", Concern.MEMBER),
        ("450 without an enhanced code", Concern.MEMBER),
        ("451 4.4.0 01900000-0000-7000-8000-000000000001 owned elsewhere", Concern.COPY),
        ("550 5.7.1 Routing by the sender is refused", Concern.COPY),
        ("552 5.3.4 Message too big for system", Concern.COPY),
        ("421 4.3.2 Closing connection", Concern.SESSION),
    ],
)
async def test_a_refusal_says_whether_it_speaks_of_the_member_or_of_the_copy(
    reply: str, concern: Concern
) -> None:
    async def refuses(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await the_offer(reader)
        writer.write(f"{reply} {MARK}\r\n".encode())
        await reader.read(-1)

    async with member(refuses) as session:
        attempt = await offered(session, offer(full("mx2")), pieces(b"x"))
        assert (attempt.leg, attempt.concern) == (Leg.REFUSED, concern)


async def test_a_session_that_ends_says_nothing_of_the_member_and_one_that_is_silent_does() -> None:
    async def leaves(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await the_offer(reader)
        writer.close()

    async def waits(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        del writer
        await reader.read(-1)

    for answer, concern in ((leaves, Concern.SESSION), (waits, Concern.MEMBER)):
        async with member(answer) as session:
            attempt = await offered(session, offer(full("mx2")), pieces(b"x"))
            assert (attempt.leg, attempt.concern) == (Leg.LOST, concern)


async def test_when_a_session_ends_the_others_with_that_member_are_not_trusted(tmp_path: Path) -> None:
    """Behind a failure that nobody has noticed yet they are no better; a new one tells."""

    async def leaves(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await the_offer(reader)
        writer.close()

    async with boundary(tmp_path, "mx1", "mx2") as (owner, holder), AsyncExitStack() as stack:
        members = owner.node.members
        for _ in range(3):
            session = await stack.enter_async_context(member(leaves))
            session.address = members.addresses[holder.name]  # as if it led there
            members.release(holder.name, session)
        attempt = await members.offer(offer(holder.name, content=b"x"), pieces(b"x"))
        assert (attempt.leg, attempt.concern) == (Leg.LOST, Concern.SESSION)
        assert members.pooled(holder.name) is None
        assert not owner.node.boundary.skipped(seconds())
        attempt = await members.offer(offer(holder.name, rank=2, content=b"x"), pieces(b"x"))
        assert attempt.leg is Leg.ACKNOWLEDGED


async def test_a_question_on_a_session_that_ends_is_asked_again_on_a_new_one(tmp_path: Path) -> None:
    """A revoke, above all: before it is confirmed its sender has no answer."""

    async def leaves(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.close()

    async with boundary(tmp_path, "mx1", "mx2") as (owner, holder), AsyncExitStack() as stack:
        members = owner.node.members
        step = offer(holder.name, content=b"x")
        assert (await members.offer(step, pieces(b"x"))).leg is Leg.ACKNOWLEDGED
        await members.close()
        for _ in range(2):
            members.release(holder.name, await stack.enter_async_context(member(leaves)))
        revoke = Query(0, revoke=Revocation(step.message_id, 1, 1))
        answered = await members.ask(Ask(holder.name, revoke))
        assert not isinstance(answered, Unanswered)
        assert [line.verdict.kind for line in answered.lines] == [VerdictKind.REJECTED]


async def test_a_session_that_breaks_right_after_it_was_opened_speaks_of_the_member(tmp_path: Path) -> None:
    async with boundary(tmp_path, "mx1", "mx2") as (owner, holder):
        holder.connectors[0].options = replace(holder.connectors[0].options, max_protocol_errors=0)
        members = owner.node.members
        attempt = await members.offer(offer(holder.name, epoch=10**19), pieces(b"x"))  # 501 of the parser
        assert attempt.concern is Concern.MEMBER
        assert owner.node.boundary.skipped(seconds()) == {holder.name}


async def test_a_member_that_failed_lately_has_a_second_to_be_greeted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shadowrelay.members.boundary.SECOND_CHANCE", 0.1)

    kept: list[asyncio.StreamWriter] = []

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        kept.append(writer)  # Python 3.13 closes what nobody keeps
        await reader.read(-1)

    found = await station(tmp_path, "mx1", ["mx2"], shadow_attempt_timeout="500ms")
    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    addresses: Any = found.node.members.addresses
    addresses[full("mx2")] = replace(addresses[full("mx2")], port=server.sockets[0].getsockname()[1])
    took, attempts = [], []
    for _ in range(2):
        began = time.monotonic()
        attempts.append(await found.node.members.offer(offer(full("mx2")), pieces(b"")))
        took.append(time.monotonic() - began)
    for writer in kept:
        writer.close()
    server.close()
    await found.stop()
    assert [(one.leg, one.concern) for one in attempts] == [(Leg.REFUSED, Concern.MEMBER)] * 2
    assert took[0] >= 0.5
    assert took[1] < 0.4
