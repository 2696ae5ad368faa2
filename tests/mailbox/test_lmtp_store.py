"""The mailbox service before a store that says and does what a test tells it to."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from mailboxes import MESSAGE, Lab, serving
from receiving import RawClient
from scripted_hop import CLOSE, HANG, ScriptedHop, original

from shadowmailbox.delivered_to import DeliveredTo, Deliveries, TableError
from shadowmailbox.lmtp_store import LmtpOptions, LmtpStore, answer
from shadowmailbox.store import Store
from shadowrelay.wire.delivered_to import delivered_to_since

ANNA, BERTA = "anna@inside.test", "berta@inside.test"
DROPPED = "250 2.0.0 Duplicate dropped, delivered before"
STORED = "250 2.0.0 queued"
TAKES_UTF8 = ("PIPELINING", "8BITMIME", "ENHANCEDSTATUSCODES", "SMTPUTF8")


@asynccontextmanager
async def before(hop: ScriptedHop | str, tmp_path: Path, **changes: Any) -> AsyncIterator[Lab]:
    """A service that delivers to that store; ``timeout`` is of each answer, in seconds."""
    timeout = timedelta(seconds=changes.pop("timeout", 5))
    most = changes.pop("most", 20)
    host, port = (hop, 0) if isinstance(hop, str) else ("127.0.0.1", hop.port)

    async def open_store() -> Store:
        return LmtpStore(
            LmtpOptions(host=host, port=port, hostname="mailbox.test", timeout=timeout, max_sessions=most)
        )

    given = {"open_store": open_store, "outside": None, "patience": timeout, **changes}
    async with serving(tmp_path, **given) as lab:
        yield lab


async def sent(lab: Lab, *recipients: str, message: bytes = MESSAGE) -> list[str]:
    """The reply for each recipient, after the content."""
    to = recipients or (ANNA,)
    return (await lab.send(message, *to, port="inside"))[-len(to) :]


async def rows(lab: Lab) -> int:
    assert lab.server.table is not None
    return await lab.server.table.rows()


async def test_what_the_store_took_is_remembered_and_dropped_when_it_comes_again(tmp_path: Path) -> None:
    async with ScriptedHop(offers=TAKES_UTF8) as hop:
        async with before(hop, tmp_path) as lab:
            assert await sent(lab) == [STORED]
            assert await sent(lab) == [DROPPED]
        async with before(hop, tmp_path) as lab:  # after a restart too
            assert await sent(lab) == [DROPPED]
            assert await sent(lab, ANNA, BERTA) == [DROPPED, STORED]
            counts = lab.server.counts
            assert (counts.delivered, counts.duplicates) == (1, 2)
    assert len(hop.contents) == 2
    content = original(hop.contents[0])
    assert content.endswith(MESSAGE)
    trace = content.removesuffix(MESSAGE).decode()
    assert trace.startswith(
        "Received: from relay.example.net ([127.0.0.1])\r\n\tby mailbox.test with UTF8LMTP id"
    )


async def test_each_refusal_of_the_store_is_passed_on_with_its_codes_and_text(tmp_path: Path) -> None:
    replies = b"250 2.0.0 ok\r\n452 4.2.2 <b> mailbox full\r\n552 5.2.2 <c> mailbox full\r\n"
    rcpts = [b"250 2.1.5 ok\r\n", b"250 2.1.5 ok\r\n", b"250 2.1.5 ok\r\n", b"550 5.1.1 <d> no such user\r\n"]
    async with (
        ScriptedHop(offers=TAKES_UTF8, RCPT=rcpts, DOT=[replies, b"250 2.0.0 ok\r\n"]) as hop,
        before(hop, tmp_path) as lab,
    ):
        assert await sent(lab, "a@x.test", "b@x.test", "c@x.test", "d@x.test") == [
            "250 2.0.0 ok",
            "452 4.2.2 <b> mailbox full",
            "552 5.2.2 <c> mailbox full",
            "550 5.1.1 <d> no such user",
        ]
        assert lab.server.counts.refused == {4: 1, 5: 2}
        hop.script["RCPT"] = [b"250 2.1.5 ok\r\n"]
        assert await sent(lab, "a@x.test", "b@x.test") == [DROPPED, "250 2.0.0 ok"]


@pytest.mark.parametrize(
    ("verb", "reply", "told"),
    [
        ("MAIL", b"452 4.3.1 no space\r\n", "452 4.3.1 no space"),
        ("MAIL", b"554 5.7.1 not you\r\n", "554 5.7.1 not you"),
        ("DOT", b"451 4.3.0 internal error\r\n", "451 4.3.0 internal error"),
        ("DOT", b"554-5.6.0 two\r\n554 5.6.0 lines\r\n", "554 5.6.0 two lines"),
        ("DOT", b"450 no enhanced code\r\n", "450 4.0.0 no enhanced code"),
        ("MAIL", b"530 5.7.0 log in\r\n", "451 4.3.0 The mailbox store said 530 5.7.0 log in"),
        ("DOT", b"421 4.3.2 going away\r\n", "451 4.3.0 The mailbox store said 421 4.3.2 going away"),
        ("DOT", b"354 what?\r\n", "451 4.5.0 It took the content, its answer cannot be read: 354 what?"),
        (
            "GREETING",
            b"421 4.3.2 full\r\n",
            "451 4.4.2 The mailbox store takes no mail now (greeting: 421 4.3.2 full)",
        ),
    ],
)
async def test_nothing_that_the_store_did_not_take_is_remembered(
    tmp_path: Path, verb: str, reply: bytes, told: str
) -> None:
    async with ScriptedHop(offers=TAKES_UTF8, **{verb: reply}) as hop, before(hop, tmp_path) as lab:
        assert await sent(lab) == [told]
        assert await rows(lab) == 0


async def test_an_answer_that_is_lost_after_the_final_dot_is_not_taken_for_a_delivery(tmp_path: Path) -> None:
    async with (
        ScriptedHop(offers=TAKES_UTF8, DOT=[CLOSE, b"250 2.0.0 ok\r\n"]) as hop,
        before(hop, tmp_path) as lab,
    ):
        assert await sent(lab) == ["451 4.4.2 Session lost after the final dot"]
        assert await rows(lab) == 0
        assert isinstance(lab.server.store, LmtpStore)
        assert lab.server.store.failures == 1
        assert await sent(lab) == ["250 2.0.0 ok"]


async def test_an_answer_that_does_not_come_in_time_is_no_delivery_for_that_recipient_alone(
    tmp_path: Path,
) -> None:
    async with (
        ScriptedHop(offers=TAKES_UTF8, DOT=b"250 2.0.0 ok\r\n") as hop,
        before(hop, tmp_path, timeout=0.3) as lab,
    ):
        assert await sent(lab, ANNA, BERTA) == [
            "250 2.0.0 ok",
            "451 4.4.2 Session lost after the final dot",
        ]
        assert await sent(lab, ANNA, BERTA) == [DROPPED, "250 2.0.0 ok"]


async def test_while_the_store_is_down_everybody_is_answered_451(tmp_path: Path) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        hop = ScriptedHop()
        hop.port = nobody.getsockname()[1]
        async with before(hop, tmp_path) as lab:
            down = "451 4.4.1 The mailbox store takes no mail now (connect)"
            assert await sent(lab, ANNA, BERTA) == [down, down]
            assert await rows(lab) == 0
            assert isinstance(lab.server.store, LmtpStore)
            assert not lab.server.store.reachable


async def test_two_relays_that_send_the_same_message_at_once_deliver_it_once(tmp_path: Path) -> None:
    arrived = asyncio.Event()
    both = asyncio.Event()

    async def wait() -> None:
        arrived.set()
        await both.wait()

    async with ScriptedHop(offers=TAKES_UTF8, pause=wait) as hop, before(hop, tmp_path) as lab:
        first = asyncio.create_task(sent(lab))
        await arrived.wait()
        second = asyncio.create_task(sent(lab))
        others = await asyncio.wait({second}, timeout=0.3)
        assert not others[0], "the second waits for the first"
        both.set()
        assert (await first, await second) == ([STORED], [DROPPED])
    assert len(hop.contents) == 1


async def test_a_relay_that_waits_too_long_for_another_is_answered_451(tmp_path: Path) -> None:
    async with (
        ScriptedHop(offers=TAKES_UTF8, DOT=HANG) as hop,
        before(hop, tmp_path, timeout=1, patience=timedelta(seconds=0.2)) as lab,
    ):
        first = asyncio.create_task(sent(lab))
        async with asyncio.timeout(30):
            while not hop.contents:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        [reply] = await sent(lab)
        assert reply.startswith("451 4.3.2 The same message is being delivered")
        await first
    assert len(hop.contents) == 1


async def test_a_row_is_written_before_the_relay_hears_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record, told, may = DeliveredTo.record, asyncio.Event(), asyncio.Event()

    async def slow(self: DeliveredTo, *arguments: Any) -> None:
        told.set()
        await may.wait()
        await record(self, *arguments)

    async with ScriptedHop(offers=TAKES_UTF8) as hop, before(hop, tmp_path) as lab:
        monkeypatch.setattr(DeliveredTo, "record", slow)
        sending = asyncio.create_task(sent(lab))
        await told.wait()
        assert len(hop.contents) == 1, "the store has it"
        assert not (await asyncio.wait({sending}, timeout=0.2))[0]
        may.set()
        assert await sending == [STORED]


async def test_the_row_is_not_there_before_the_store_has_answered(tmp_path: Path) -> None:
    running: list[Lab] = []
    seen = []

    async def look() -> None:
        seen.append(await rows(running[0]))

    async with ScriptedHop(offers=TAKES_UTF8, pause=look) as hop, before(hop, tmp_path) as lab:
        running.append(lab)
        assert await sent(lab) == [STORED]
        assert (seen, await rows(lab)) == ([0], 1)


async def test_each_recipient_is_remembered_as_soon_as_the_store_answers_for_it(tmp_path: Path) -> None:
    async with (
        ScriptedHop(offers=TAKES_UTF8, DOT=b"250 2.0.0 ok\r\n") as hop,
        before(hop, tmp_path, timeout=2) as lab,
    ):
        sending = asyncio.create_task(sent(lab, ANNA, BERTA))
        async with asyncio.timeout(1.5):  # before the store's silence about the other one ends
            while not await rows(lab):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert not sending.done()
        await sending


async def test_a_stored_message_is_acknowledged_though_it_could_not_be_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def record(*arguments: object) -> None:
        raise TableError("disk I/O error")

    async with ScriptedHop(offers=TAKES_UTF8) as hop, before(hop, tmp_path) as lab:
        monkeypatch.setattr(DeliveredTo, "record", record)
        assert await sent(lab) == [STORED]
        assert lab.server.counts.unrecorded == 1


async def test_a_session_with_the_store_serves_one_message_after_another(tmp_path: Path) -> None:
    async with ScriptedHop(offers=TAKES_UTF8) as hop, before(hop, tmp_path) as lab:
        for number in range(3):
            assert await sent(lab, message=b"Message-ID: <%d@x>\r\n\r\n" % number) == [STORED]
        assert hop.connections == 1


async def test_a_session_that_the_store_has_left_is_replaced_at_once(tmp_path: Path) -> None:
    async with ScriptedHop(
        offers=TAKES_UTF8, MAIL=[b"250 ok\r\n", b"421 4.4.2 idle\r\n", b"250 ok\r\n"]
    ) as hop:
        async with before(hop, tmp_path) as lab:
            for number in range(2):
                assert await sent(lab, message=b"Message-ID: <%d@x>\r\n\r\n" % number) == [STORED]
        assert hop.connections == 2


async def test_no_more_sessions_than_allowed_are_open_and_who_waits_too_long_hears_451(
    tmp_path: Path,
) -> None:
    async with (
        ScriptedHop(offers=TAKES_UTF8, DOT=HANG) as hop,
        before(hop, tmp_path, timeout=0.5, most=1) as lab,
    ):
        replies = await asyncio.gather(
            *(sent(lab, message=b"Message-ID: <%d@x>\r\n\r\n" % number) for number in range(2))
        )
        assert hop.connections == 1
    assert sorted(reply for [reply] in replies) == [
        "451 4.3.2 All sessions with the mailbox store are busy, try again later",
        "451 4.4.2 Session lost after the final dot",
    ]


async def test_recipients_past_the_stores_limit_are_sent_in_another_transaction(tmp_path: Path) -> None:
    rcpts = [b"250 2.1.5 ok\r\n", b"452 4.5.3 too many\r\n", b"250 2.1.5 ok\r\n"]
    async with ScriptedHop(offers=TAKES_UTF8, RCPT=rcpts) as hop, before(hop, tmp_path) as lab:
        assert await sent(lab, ANNA, BERTA) == [STORED, STORED]
        assert [len(hop.contents), await rows(lab)] == [2, 2]


async def test_what_the_store_cannot_take_is_refused_for_it(tmp_path: Path) -> None:
    async with (
        ScriptedHop(offers=("PIPELINING", "8BITMIME", "SIZE 1000")) as hop,
        before(hop, tmp_path) as lab,
    ):
        [reply] = await sent(lab, message=MESSAGE + b"x\r\n" * 1000)
        assert reply.startswith("552 5.3.4 Message size")
        assert (await sent(lab, message="Message-ID: <ü@x>\r\n\r\n".encode()))[0].startswith("554 5.6.9 ")


async def test_a_large_message_reaches_the_store_byte_for_byte(tmp_path: Path) -> None:
    large = MESSAGE + b"".join(b".%d\r\n" % number for number in range(200_000)) + b"y" * 5000 + b"\r\n"
    async with ScriptedHop(offers=TAKES_UTF8) as hop, before(hop, tmp_path) as lab:
        assert await sent(lab, message=large) == [STORED]
        assert original(hop.contents[0]).endswith(large)


async def test_a_text_without_header_is_none_in_the_store_either(tmp_path: Path) -> None:
    async with ScriptedHop(offers=TAKES_UTF8) as hop, before(hop, tmp_path) as lab:
        assert await sent(lab, message=b"hello\r\nworld\r\n") == [STORED]
        assert original(hop.contents[0]).endswith(b"\r\n\r\nhello\r\nworld\r\n")


async def test_a_store_may_be_at_a_unix_socket(tmp_path: Path) -> None:
    async with ScriptedHop(offers=TAKES_UTF8) as hop:
        path = tmp_path / "lmtp"
        server = await asyncio.start_unix_server(hop._accept, path)
        async with before(str(path), tmp_path / "service") as lab:
            assert await sent(lab) == [STORED]
        server.close()


async def test_the_answer_to_lhlo_says_from_when_on_duplicates_are_dropped(tmp_path: Path) -> None:
    async def since(lab: Lab) -> Any:
        client = RawClient(*await asyncio.open_connection(*lab.bound["inside"]))
        await client.reply()
        lines = (await client.say("LHLO relay.example.net")).split("|")
        await client.close()
        words = [line[4:].partition(" ") for line in lines]
        offered = {keyword: rest for keyword, _, rest in words}
        assert "XDELIVEREDTO" in offered
        return delivered_to_since(offered)

    async with ScriptedHop(offers=TAKES_UTF8) as hop:
        async with before(hop, tmp_path) as lab:
            assert await since(lab) is None
            await sent(lab)
            await sent(lab, message=b"Message-ID: <later@x>\r\n\r\n")
            table = lab.server.table
            assert table is not None
            assert await since(lab) == (await table.remembered()).oldest
            await table.forget(Deliveries())
            assert await since(lab) is None
            await sent(lab)
        async with before(hop, tmp_path, track_duplicates=timedelta(0)) as lab:
            assert await since(lab) is None, "the row is there, and is not heeded"


def test_a_duplicate_that_the_store_dropped_itself_stays_one() -> None:
    from shadowrelay.core.delivery.settling import Ending
    from shadowrelay.smtp.sending.hop import RecipientResult

    assert str(answer(RecipientResult(1, Ending.DUPLICATE, DROPPED))) == DROPPED
