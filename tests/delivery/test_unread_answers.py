"""A hop that takes the content and answers what cannot be read gets the message again after growing pauses,
and only a few times.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from email import message_from_bytes
from pathlib import Path
from typing import Any

import pytest
from odd_answers import SILENT, UNREADABLE, Odd, OddHop, answers, read_by_rfc
from scripted_hop import ScriptedHop
from sending import MESSAGE, sender, sent
from stations import Station, eventually, station
from structlog.testing import capture_logs

from shadowrelay.admin import render
from shadowrelay.core.delivery import operated
from shadowrelay.core.identifiers import NextHop, RequestId
from shadowrelay.core.messages import Copy, Recipient, Stage, Status, Unread
from shadowrelay.core.operating import By
from shadowrelay.core.policy import Policy
from shadowrelay.database.queue_views import Queues, QueueView
from shadowrelay.database.views import message, snapshot

PLAIN = Policy().queue_glitch_retry_interval
PAUSES = [timedelta(minutes=15), timedelta(hours=1), timedelta(hours=4)]
"""Before the second, the third and the fourth try; then an operator decides."""

BY = By("someone", "it was lost there", RequestId("01900000-0000-7000-9000-000000000001"))
TWO_DAYS = timedelta(days=2)

ODD = {
    "cut": Odd(b"250 o"),
    "cut by a reset": Odd(b"250-ok\r\n250", ends="reset"),
    "a letter": Odd(b"25x ok\r\n", ends="stay"),
    "999": Odd(b"999 ok\r\n", ends="stay"),
    "354": Odd(b"354 go on\r\n", ends="stay"),
    "mixed codes": Odd(b"250-ok\r\n251 ok\r\n", ends="stay"),
    "accepted and refused": Odd(b"250-ok\r\n550 no\r\n", ends="stay"),
    "an empty line": Odd(b"\r\n250 ok\r\n", ends="stay"),
}
READABLE = {
    "whole, then a reset": Odd(b"250 ok\r\n", ends="reset"),
    "LF alone": Odd(b"250 ok\n", ends="stay"),
    "a NUL": Odd(b"250 o\0k\r\n", ends="stay"),
    "ten megabytes": Odd(b"250 " + b"x" * (10 << 20) + b"\r\n", ends="stay"),
    "one too many": Odd(b"250 ok\r\n250 ok\r\n", ends="stay"),
}


@asynccontextmanager
async def relay(
    tmp_path: Path, *ports: int, protocol: str = "smtp", **changes: Any
) -> AsyncIterator[Station]:
    hosts = [{"address": f"127.0.0.1:{port}", "preference": at} for at, port in enumerate(ports)]
    way = {"domains": ["*"], "hosts": hosts, "tls": "none", "protocol": protocol}
    waits = {
        "queue_glitch_retry_interval": "1m",
        "transient_failure_retry_interval": "5m",
        "outbound_connection_failure_retry_interval": "10m",
        "message_expiration_timeout": "2d",
        "delay_notification_timeout": "4h",
    }
    found = await station(tmp_path, "mx1", [], routes={"out": way}, **waits | changes)
    found.run_queue()
    try:
        yield found
    finally:
        await found.stop()


def at(found: Station, ahead: timedelta) -> None:
    """That much time has passed since the beginning."""
    found.clock.ahead = ahead
    found.node.queue.wake.set()


async def post(found: Station, *recipients: str) -> None:
    """Send a message from the null sender: nobody gets a report about it."""
    async with sender(found) as client:
        to = (f"RCPT TO:<{one}>" for one in recipients or ("b@example.net",))
        assert (await client.say("EHLO client.example", "MAIL FROM:<>", *to)).startswith("250 ")
        assert (await client.content(MESSAGE)).startswith("250 ")


async def only(found: Station) -> Copy:
    return (await found.copies())[0]


async def one(found: Station) -> Recipient:
    return (await only(found)).recipients[0]


def attempted(found: Station, count: int) -> Any:
    async def condition() -> bool:
        return all(one.attempts >= count or one.settled for one in (await only(found)).recipients)

    return condition


async def quiet(found: Station) -> None:
    """Let the queue look twice; nothing that is due then is left out."""
    for _ in range(2):
        found.node.queue.wake.set()
        await asyncio.sleep(0.1)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", ODD)
async def test_in_any_number_of_plain_intervals_it_is_delivered_once(tmp_path: Path, name: str) -> None:
    async with OddHop(ODD[name]) as hop, relay(tmp_path, hop.port) as found:
        await sent(found, MESSAGE)
        await eventually(attempted(found, 1))
        for step in range(1, 14):
            at(found, step * PLAIN)
            await quiet(found)
        assert hop.taken == 1
        recipient = await one(found)
        assert recipient.unread == Unread(1, f"127.0.0.1:{hop.port}")
        assert recipient.last_reply.startswith("451 4.5.0 It took the content, its answer cannot be read: ")
        assert (await found.tracked())[-1]["event-id"] == "DEFER"
        assert "S:InDoubt=true" in (await found.tracked())[-1]["custom-data"]


@pytest.mark.parametrize("name", READABLE)
async def test_an_odd_answer_that_can_be_read_settles_the_message(tmp_path: Path, name: str) -> None:
    async with OddHop(READABLE[name]) as hop, relay(tmp_path, hop.port) as found:
        for count in (1, 2):
            await sent(found, MESSAGE)

            async def settled(count: int = count) -> bool:
                copies = await found.copies()
                return len(copies) == count and all(copy.stage is Stage.SAFETY_NET for copy in copies)

            await eventually(settled)
        assert hop.taken == 2
        assert "DEFER" not in await found.events()


async def test_the_pauses_grow_and_then_an_operator_decides(tmp_path: Path) -> None:
    async with OddHop(Odd(b"25x what\r\n")) as hop, relay(tmp_path, hop.port) as found:
        await post(found)
        await eventually(attempted(found, 1))
        passed = timedelta(0)
        for tries, pause in enumerate(PAUSES, 1):
            at(found, passed + pause - timedelta(seconds=60))
            await quiet(found)
            assert hop.taken == tries
            passed += pause + timedelta(seconds=60)
            at(found, passed)
            await eventually(attempted(found, tries + 1))
            assert hop.taken == tries + 1
        with capture_logs() as logs:
            for hours in (6, 12, 24, 36, 47):
                at(found, timedelta(hours=hours))
                await quiet(found)
        assert hop.taken == 1 + len(PAUSES)
        assert not [line for line in logs if line["event"] == "answer_unreadable"]
        copy = await only(found)

        # The operator lets it go on, and the count begins anew.
        await found.read(
            lambda ledger: ledger.apply(operated.retry(ledger, copy.id, None, BY, found.clock()))
        )
        found.node.queue.wake.set()
        await eventually(lambda: asyncio.ensure_future(_taken(hop, 2 + len(PAUSES))))
        assert (await one(found)).unread == Unread(1, f"127.0.0.1:{hop.port}")


async def _taken(hop: OddHop, count: int) -> bool:
    return hop.taken == count


async def test_queue_and_message_and_metric_say_what_happened_until_an_operator_lets_it_go(
    tmp_path: Path,
) -> None:
    async with OddHop(Odd(b"25x what\r\n")) as hop, relay(tmp_path, hop.port) as found:
        await post(found)
        await eventually(attempted(found, 1))
        now = found.clock()

        async def view() -> QueueView:
            queues = Queues(now)
            assert await found.read(queues.read)
            return queues.result()[0]

        seen = await view()
        assert seen.unread == 1
        shown = render.queue("mx1", seen, found.node.hop(NextHop("out")), now)
        assert shown["unread"] == 1
        assert shown["why"] == "it took the content, its answer cannot be read, for 1 recipients"
        assert (await found.read(snapshot)).counts.unread == 1
        copy = await only(found)
        known = await found.read(lambda ledger: message(ledger, copy.id))
        assert known is not None
        (said,) = render.message(known, found.node.hop, (), now)["recipients"]
        assert said["why"] == f"127.0.0.1:{hop.port} took the content once, its answer cannot be read"
        await found.read(lambda ledger: ledger.apply(operated.suspend(ledger, copy.id, None, BY, now)))
        await found.read(lambda ledger: ledger.apply(operated.retry(ledger, copy.id, None, BY, now)))
        assert (await one(found)).unread == Unread(1, f"127.0.0.1:{hop.port}"), "it stays suspended"
        await found.read(lambda ledger: ledger.apply(operated.resume(ledger, copy.id, None, BY, now)))
        assert (await one(found)).unread in (Unread(0), Unread(1, f"127.0.0.1:{hop.port}"))


async def test_it_expires_as_ever_and_the_report_says_that_it_may_have_been_delivered(tmp_path: Path) -> None:
    async with (
        OddHop(Odd(b"25x what\r\n")) as hop,
        relay(tmp_path, hop.port, unreadable_answer_retry_count=0) as found,
    ):
        await sent(found, MESSAGE)
        await eventually(attempted(found, 1))
        at(found, TWO_DAYS - timedelta(minutes=5))
        await quiet(found)
        assert not (await one(found)).settled
        assert (await one(found)).delay_notified, "the sender was told that it waits"
        at(found, TWO_DAYS + timedelta(minutes=5))

        async def failed() -> bool:
            return (await one(found)).status is Status.FAILED

        await eventually(failed)
        told = "451 4.5.0 Message expired in the queue, and may have been delivered; last error: 451 4.5.0 It"
        assert (await one(found)).last_reply.startswith(told)
        reports = [copy for copy in await found.copies() if copy.envelope.sender == ""]
        texts = [message_from_bytes(await found.octets(copy.id)) for copy in reports]
        parts = [text.get_payload(0).get_payload() for text in texts]  # type: ignore[union-attr]
        assert all("It may have been delivered all the same" in text for text in parts), parts
        assert len(parts) == 2
        await eventually(lambda: asyncio.ensure_future(_taken(hop, 1 + len(reports))))  # each once


async def test_no_other_host_gets_what_a_host_may_have(tmp_path: Path) -> None:
    async with (
        OddHop(Odd(b"25x what\r\n")) as odd,
        ScriptedHop() as other,
        relay(tmp_path, odd.port, other.port) as found,
    ):
        await sent(found, MESSAGE)
        await eventually(attempted(found, 1))
        port = odd.port
        odd._server.close()  # it is gone: connections are refused
        await odd._server.wait_closed()
        at(found, timedelta(minutes=16))
        await eventually(attempted(found, 2))
        assert other.contents == []
        assert (await one(found)).unread == Unread(1, f"127.0.0.1:{port}")
        await sent(found, MESSAGE)  # other mail goes by the other host

        async def left() -> bool:
            return len(other.contents) == 1

        await eventually(left)
        async with OddHop(Odd(b"250 ok\r\n", ends="stay"), at=("127.0.0.1", port)) as back:
            at(found, timedelta(hours=1))

            async def settled() -> bool:
                return all(copy.stage is Stage.SAFETY_NET for copy in await found.copies())

            await eventually(settled)
            assert back.taken == 1
            assert len(other.contents) == 1


async def test_recipients_of_one_message_are_counted_apart(tmp_path: Path) -> None:
    """LMTP: what was answered before the odd reply stands, and is not sent again."""
    odd = Odd(b"250 one\r\nrubbish\r\n250 whose\r\n")
    async with (
        OddHop(odd, Odd(b"250 a\r\n250 b\r\n", ends="stay")) as hop,
        relay(tmp_path, hop.port, protocol="lmtp") as found,
    ):
        await sent(found, MESSAGE, "a@example.net", "b@example.net", "c@example.net")
        await eventually(attempted(found, 1))
        copy = await only(found)
        assert [one.settled for one in copy.recipients] == [True, False, False]
        assert [one.unread and one.unread.tries for one in copy.recipients] == [None, 1, 1]
        at(found, timedelta(minutes=16))
        await eventually(attempted(found, 2))
        assert all(one.settled for one in (await only(found)).recipients)
        assert hop.recipients == 5


@pytest.mark.parametrize("protocol", ["smtp", "lmtp"])
@pytest.mark.slow
async def test_generated_answers_deliver_once_unless_they_cannot_be_read(
    tmp_path: Path, protocol: str
) -> None:
    """Of each message the hop gets as many copies as it gave answers that settle nothing, and one more.

    Behind one that cannot be read the next comes after the pause; behind a 4yz after the plain interval.
    """
    unread = 0
    async with (
        OddHop(Odd(b"250 ok\r\n", ends="stay")) as hop,
        relay(tmp_path, hop.port, protocol=protocol) as found,
    ):
        ahead = timedelta(0)
        for seed in range(60):
            said = answers(seed, 1)
            (code,) = read_by_rfc(said, 1)
            odd = code in (UNREADABLE, "354")
            if code == SILENT:
                continue
            hop.odd = [Odd(said), Odd(b"250 ok\r\n", ends="stay")]
            before = hop.taken
            await post(found)

            async def newest() -> Recipient:
                return (await found.copies())[-1].recipients[0]

            async def tried(times: int) -> None:
                async def condition() -> bool:
                    return (await newest()).attempts >= times

                await eventually(condition)

            await tried(1)
            if odd:
                unread += 1
                at(found, ahead := ahead + 10 * PLAIN)
                await quiet(found)
                assert hop.taken == before + 1, (seed, said[:100])
                at(found, ahead := ahead + PAUSES[0])
                await tried(2)
            elif code[0] == "4":
                at(found, ahead := ahead + PLAIN + timedelta(seconds=5))
                await tried(2)
            assert (await newest()).settled, (seed, said[:100])
            assert hop.taken == before + (2 if odd or code[0] == "4" else 1), (seed, said[:100])
    assert unread > 10
