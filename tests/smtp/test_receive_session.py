"""What a session does beyond its dialogue: batches, odd endings, errors, time."""

from __future__ import annotations

import asyncio
import socket
from datetime import timedelta

import pytest
from receiving import QUEUED, MemoryReceiver, connected, conversation, eventually, listening

from shadowrelay.smtp.receiving.contract import Client, Hangup
from shadowrelay.smtp.receiving.session import ReceiveSession
from shadowrelay.wire.esmtp import MailFrom
from shadowrelay.wire.replies import Refused, Reply

MESSAGE = b"Subject: x\r\n\r\nbody\r\n"
BATCH = b"HELO c\r\nMAIL FROM:<a@b>\r\nRCPT TO:<c@d>\r\nDATA\r\n"


async def test_the_replies_to_a_batch_leave_in_one_write() -> None:
    writes: list[bytes] = []

    class Counting(ReceiveSession):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            write = transport.write  # type: ignore[attr-defined]
            transport.write = lambda data: (writes.append(data), write(data))  # type: ignore[attr-defined]
            super().connection_made(transport)

    async with listening(MemoryReceiver(), session=Counting) as connector, connected(connector) as client:
        await client.line()
        await client.say("HELO c")
        client.send(BATCH[8:] + MESSAGE + b".\r\n" + BATCH[8:])
        for _ in range(7):
            await client.line()
    # The reply to the content waits for no other: what is behind it may take long.
    assert [write.count(b"\r\n") for write in writes] == [1, 1, 3, 1, 3]


@pytest.mark.parametrize("content", [b"DATA\r\n%s.\r\n", b"BDAT %d LAST\r\n%s"], ids=["DATA", "BDAT"])
async def test_the_reply_to_a_content_does_not_wait_for_a_slow_mail_behind_it(content: bytes) -> None:
    go_on = asyncio.Event()

    class Slow(MemoryReceiver):
        async def mail(self, session: Client, mail: MailFrom) -> Reply | None:
            if self.kept:
                await go_on.wait()
            return await super().mail(session, mail)

    receiver = Slow()
    async with listening(receiver) as connector, connected(connector) as client:
        await client.line()
        await client.say("EHLO c")
        whole = content % ((len(MESSAGE), MESSAGE) if b"%d" in content else MESSAGE)
        client.send(b"MAIL FROM:<a@b>\r\nRCPT TO:<c@d>\r\n" + whole + b"MAIL FROM:<a@b>\r\n")
        try:
            async with asyncio.timeout(30):
                replies = [await client.line() for _ in range(4 if b"DATA" in content else 3)]
        finally:
            go_on.set()
        assert replies[-1] == str(QUEUED)
        assert (await client.line()).startswith("250 2.1.0")


async def test_the_connection_may_be_half_closed_after_the_final_dot() -> None:
    receiver = MemoryReceiver(before_finish=lambda: asyncio.sleep(0.05))
    async with conversation(receiver) as client:
        client.send(BATCH + MESSAGE + b".\r\n")
        client.writer.write_eof()
        replies = [await client.line() for _ in range(5)]
        assert replies[-1] == str(QUEUED)
        assert await client.closed()
    assert [kept.content for kept in receiver.kept] == [MESSAGE]


async def test_a_message_is_finished_though_its_client_vanished() -> None:
    finishing, vanished = asyncio.Event(), asyncio.Event()

    async def before_finish() -> None:
        finishing.set()
        await vanished.wait()
        await asyncio.sleep(0.05)

    receiver = MemoryReceiver(before_finish=before_finish)
    async with listening(receiver) as connector, connected(connector) as client:
        client.send(BATCH + MESSAGE + b".\r\n")
        await finishing.wait()
        client.writer.transport.abort()
        vanished.set()
        await eventually(lambda: len(receiver.kept) == 1)
        await eventually(lambda: connector.sessions == 0)
    assert receiver.aborted == 0


@pytest.mark.parametrize("sent", [BATCH + b"half a mess", BATCH[:-6] + b"BDAT 10\r\nhalf"])
async def test_a_connection_lost_before_the_end_keeps_nothing(sent: bytes) -> None:
    receiver = MemoryReceiver()
    async with listening(receiver) as connector:
        async with connected(connector) as client:
            client.send(sent)
            await eventually(lambda: "content" in receiver.calls)
        await eventually(lambda: connector.sessions == 0)
    assert (receiver.kept, receiver.aborted, receiver.resets) == ([], 1, 1)


async def test_a_lost_transaction_is_forgotten() -> None:
    receiver = MemoryReceiver()
    async with conversation(receiver) as client:
        await client.begin()
    await eventually(lambda: receiver.resets == 1)


async def test_rset_and_ehlo_forget_a_transaction_once() -> None:
    receiver = MemoryReceiver()
    async with conversation(receiver) as client:
        await client.begin()
        await client.say("RSET", "RSET")
        await client.begin()
        await client.say("EHLO client.example", "EHLO client.example")
        assert receiver.resets == 2


async def test_hangup_closes_without_a_reply() -> None:
    async with conversation(MemoryReceiver(outcome=Hangup())) as client:
        client.send(BATCH + MESSAGE + b".\r\n")
        assert [(await client.line())[:3] for _ in range(4)] == ["250", "250", "250", "354"]
        assert await client.closed()


async def test_an_outcome_that_nobody_knows_gets_no_reply() -> None:
    async def fails() -> None:
        raise OSError("disk I/O error")

    receiver = MemoryReceiver(before_finish=fails)
    async with conversation(receiver) as client:
        client.send(BATCH + MESSAGE + b".\r\n")
        assert [(await client.line())[:3] for _ in range(4)] == ["250", "250", "250", "354"]
        assert await client.closed()


async def test_an_internal_error_is_transient_and_tells_nothing() -> None:
    class Broken(MemoryReceiver):
        async def mail(self, session: object, mail: object) -> Reply | None:
            raise RuntimeError("database is locked at /var/lib/secret")

    async with conversation(Broken()) as client:
        assert await client.say("HELO c", "MAIL FROM:<a@b>") == (
            "451 4.3.0 Local error in processing, try again later"
        )
        assert (await client.say("NOOP")).startswith("250")


async def test_a_sink_may_refuse_while_the_content_arrives() -> None:
    async def full(data: bytes) -> None:
        raise Refused(452, "4.3.1", "Insufficient system storage")

    receiver = MemoryReceiver(on_write=full)
    async with conversation(receiver) as client:
        client.send(BATCH + MESSAGE * 20_000 + b".\r\nNOOP\r\n")
        replies = [await client.line() for _ in range(6)]
    assert replies[-2:] == ["452 4.3.1 Insufficient system storage", "250 2.0.0 OK"]
    assert (receiver.kept, receiver.aborted) == ([], 1)


async def test_content_may_be_refused_before_it_is_sent() -> None:
    receiver = MemoryReceiver(content_reply=Reply(452, "4.3.1", "Insufficient system resources"))
    async with conversation(receiver) as client:
        await client.begin()
        assert await client.say("DATA") == "452 4.3.1 Insufficient system resources"
        await client.begin()
        client.send(b"BDAT 4\r\none\nBDAT 0 LAST\r\nNOOP\r\n")
        assert [(await client.line())[:3] for _ in range(3)] == ["452", "452", "250"]
    assert receiver.resets == 2


async def test_a_large_message_passes_in_blocks_and_waits_for_a_slow_sink() -> None:
    async def slow(data: bytes) -> None:
        await asyncio.sleep(0)

    receiver = MemoryReceiver(on_write=slow)
    content = b"0123456789" * 7 + b"\r\n.\r\n..two\r\n"
    content = b"\r\n" + content * 40_000
    async with conversation(receiver) as client:
        client.send(BATCH + content.replace(b"\r\n.", b"\r\n..") + b".\r\n")
        for _ in range(4):
            await client.line()
        assert await client.line() == str(QUEUED)
        await client.begin()
        client.send(b"BDAT %d LAST\r\n" % len(content) + content)
        assert await client.line() == str(QUEUED)
    assert [kept.content == content for kept in receiver.kept] == [True, True]
    assert receiver.largest_write <= 65_536 + 8


async def test_what_the_receiver_is_told_of_the_session() -> None:
    receiver = MemoryReceiver()
    async with conversation(receiver, name="frontend") as client:
        await client.begin("ü@example.net", parameters=" SMTPUTF8")
        client.send(b"DATA\r\n.\r\n")
        await client.reply()
        await client.reply()
        await client.say("HELO again.example")
        client.send(BATCH[8:] + b".\r\n")
        for _ in range(4):
            await client.reply()
    first, second = (kept.client for kept in receiver.kept)
    protocols = [kept.client.protocol(smtputf8=kept.mail.smtputf8) for kept in receiver.kept]
    assert (first.address, first.connector, first.helo) == ("127.0.0.1", "frontend", "client.example")
    assert (protocols, first.tls) == (["UTF8SMTP", "SMTP"], False)
    assert (second.helo, second.id) == ("again.example", first.id)
    assert second.port == socket.ntohs(socket.htons(first.port))


async def test_a_connector_may_have_verbs_parameters_and_replies_of_its_own() -> None:
    class Member(ReceiveSession):
        extra_mail_parameters = frozenset({"XSHADOW"})
        extra_rcpt_parameters = frozenset({"XFORK"})

        def keywords(self) -> list[str]:
            return [*super().keywords(), "XSHADOW 1"]

        def decorate(self, reply: Reply) -> Reply:
            return Reply(reply.code, reply.enhanced, (*reply.lines[:-1], f"{reply.lines[-1]} mark"))

        async def smtp_XSHADOW(self, argument: str | None) -> None:
            await self.answer(Reply(250, "2.0.0", f"hello {argument}"))

    receiver = MemoryReceiver()
    async with (
        listening(receiver, session=Member, max_command_line=4096) as connector,
        connected(connector) as client,
    ):
        assert await client.line() == "220 mx.example.net ESMTP"
        assert (await client.say("EHLO mx2")).endswith("|250 XSHADOW 1")
        assert await client.say("xshadow " + "x" * 3000) == f"250 2.0.0 hello {'x' * 3000} mark"
        assert (await client.say("MAIL FROM:<a@b> XSHADOW=Id;1")).endswith("mark")
        assert (await client.say("RCPT TO:<a@b> XFORK=1;x")).endswith("mark")
        client.send(b"BDAT 0 LAST\r\n")
        assert await client.line() == "250 2.0.0 Queued mark"
    assert receiver.kept[0].mail.extra == {"XSHADOW": "Id;1"}
    assert receiver.kept[0].recipients[0].extra == {"XFORK": "1;x"}


QUICK = timedelta(milliseconds=60)


@pytest.mark.parametrize("sent", [b"", b"NOO", BATCH + b"sub", BATCH[:-6] + b"BDAT 9\r\nsub"])
async def test_a_silent_client_is_told_of_the_timeout(sent: bytes) -> None:
    receiver = MemoryReceiver()
    async with conversation(receiver, inactivity_timeout=QUICK) as client:
        client.send(sent)
        last = ""
        while not last.startswith("421"):
            last = await client.line()
        assert last == "421 4.4.2 Timeout, closing connection"
        assert await client.closed()
    assert receiver.kept == []


async def drip(client: object, octet: bytes) -> None:
    while True:
        client.send(octet)  # type: ignore[attr-defined]
        await asyncio.sleep(0.01)


@pytest.mark.parametrize(
    ("begin", "changes"),
    [
        (b"NOOP ", {"inactivity_timeout": QUICK}),
        (BATCH, {"data_timeout": QUICK}),
        (BATCH, {"connection_timeout": QUICK, "inactivity_timeout": QUICK / 2}),
    ],
)
async def test_a_client_that_drips_is_cut_off_all_the_same(
    begin: bytes, changes: dict[str, timedelta]
) -> None:
    async with conversation(MemoryReceiver(), **changes) as client:
        client.send(begin)
        dripping = asyncio.create_task(drip(client, b"x"))
        last = ""
        while not last.startswith("421"):
            last = await client.line()
        dripping.cancel()
        assert last == "421 4.4.2 Timeout, closing connection"


async def test_a_client_that_reads_nothing_is_cut_off() -> None:
    receiver = MemoryReceiver()
    unlimited = {"inactivity_timeout": QUICK, "max_junk_commands": None}
    async with listening(receiver, **unlimited) as connector, connected(connector) as client:
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]
        client.send(b"EHLO c\r\n" * 60_000)
        await eventually(lambda: connector.sessions == 0)


async def test_strangers_wait_for_their_refusals() -> None:
    loop = asyncio.get_running_loop()
    async with conversation(MemoryReceiver(), tarpit_interval=QUICK) as client:
        begun = loop.time()
        client.send(b"NOOP\r\nFOO\r\n")
        await client.line()
        assert loop.time() - begun < 0.05
        await client.line()
        assert loop.time() - begun >= 0.05


async def test_a_client_that_leaves_the_tarpit_frees_its_place() -> None:
    async with listening(MemoryReceiver(), tarpit_interval=timedelta(minutes=1)) as connector:
        async with connected(connector) as client:
            client.send(b"FOO\r\n")
            await eventually(lambda: connector.sessions == 1)
            client.writer.transport.abort()
        await eventually(lambda: connector.sessions == 0)


async def test_whoever_brings_mail_may_say_what_he_likes_between() -> None:
    receiver = MemoryReceiver()
    async with conversation(receiver, max_junk_commands=10) as client:
        for content, answer in 3 * [(b"\r\nkept\r\n", "250"), (b"\r\nlone\n", "550")]:
            await client.say("NOOP", "VRFY b", "RSET")
            await client.begin("b@example.net", "c@example.net")
            client.send(b"BDAT %d LAST\r\n" % len(content) + content)
            assert (await client.reply()).startswith(answer)
        assert (await client.say("NOOP")).startswith("250 ")
    assert len(receiver.kept) == 3
