"""Delayed acknowledgement: a node alone says 250 when the next hop has the message, or time is up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from scripted_hop import HANG, ScriptedHop
from sending import MESSAGE, sender, sent
from stations import Station, at_last, boundary, eventually, station

from shadowlab.ports import free_ports
from shadowrelay.core.delivery import operated
from shadowrelay.core.identifiers import NextHop, RequestId
from shadowrelay.core.messages import Status
from shadowrelay.core.operating import By
from shadowrelay.core.reception import delays_and_repeats
from shadowrelay.reception import delayed_acknowledgements

DELAY: dict[str, Any] = {"receive": {"max_acknowledgement_delay": "20s"}}
BRIEF: dict[str, Any] = {"receive": {"max_acknowledgement_delay": "200ms"}}
OTHER = b"Subject: other\r\n\r\nother\r\n"


@asynccontextmanager
async def alone(
    tmp_path: Path, hop: ScriptedHop | int, *, run: bool = True, disk: int = 0, **changes: Any
) -> AsyncIterator[Station]:
    """A node alone whose 250s wait, and whose mail leaves for that hop."""
    port = hop if isinstance(hop, int) else hop.port
    out = {"domains": ["*"], "host": "127.0.0.1", "port": port, "tls": "none"}
    found = await station(tmp_path, "mx1", [], disk=disk, **{"routes": {"out": out}} | DELAY | changes)
    if run:
        found.run_queue()
    try:
        yield found
    finally:
        await found.stop()


def waits(found: Station, count: int = 1) -> Any:
    """Whether that many sessions wait for their 250."""
    return lambda: found.node.acknowledgements.waiting == count


def counted(found: Station) -> dict[str, int]:
    return {outcome: count for outcome, count in found.node.acknowledgements.counts.items() if count}


def held(event: asyncio.Event) -> Any:
    """A hop that reads no content before the event."""
    return ScriptedHop(pause=event.wait)


async def test_the_250_waits_until_the_next_hop_has_the_message(tmp_path: Path) -> None:
    may = asyncio.Event()
    async with held(may) as hop, alone(tmp_path, hop) as found, at_last(may):
        sending = asyncio.ensure_future(sent(found, MESSAGE))
        await eventually(waits(found))
        (copy,) = await found.copies()
        assert copy.unsettled
        assert await found.rows("unacknowledged") == 1
        assert not sending.done()
        may.set()
        assert await sending == f"250 2.6.0 {copy.id} Queued mail for delivery"
        assert [one.status for one in (await found.copies())[0].recipients] == [Status.RELAYED]
        assert await found.rows("unacknowledged") == 0
        assert counted(found) == {"settled": 1}


async def test_without_the_next_hop_the_250_comes_when_time_is_up(tmp_path: Path) -> None:
    may = asyncio.Event()
    async with held(may) as hop, alone(tmp_path, hop, **BRIEF) as found, at_last(may):
        assert (await sent(found, MESSAGE)).startswith("250 ")
        assert (await found.copies())[0].unsettled
        assert await found.rows("unacknowledged") == 0
        assert counted(found) == {"timed_out": 1}


async def test_a_session_does_not_outlive_its_time_for_a_250(tmp_path: Path) -> None:
    may = asyncio.Event()
    async with held(may) as hop, alone(tmp_path, hop) as found, at_last(may):
        connector = found.connectors[1]
        connector.options = replace(
            connector.options,
            inactivity_timeout=timedelta(milliseconds=200),
            connection_timeout=timedelta(milliseconds=400),
        )
        async with sender(found) as client:
            await client.begin()
            assert (await client.content(MESSAGE)).startswith("250 ")
            assert (await client.reply()).startswith("421 ")
        assert counted(found) == {"timed_out": 1}


async def test_when_the_queue_goes_into_retry_waiting_and_later_messages_are_answered_at_once(
    tmp_path: Path,
) -> None:
    async with alone(tmp_path, free_ports(1)[0]) as found:
        assert (await sent(found, MESSAGE)).startswith("250 ")
        assert counted(found) == {"retry": 1}
        assert (await sent(found, OTHER)).startswith("250 ")
        assert counted(found) == {"retry": 1, "skipped_retry": 1}
        assert await found.rows("unacknowledged") == 0


async def test_the_failure_of_one_message_answers_all_that_wait_for_that_hop(tmp_path: Path) -> None:
    may = asyncio.Event()
    async with alone(tmp_path, free_ports(1)[0], run=False) as found, at_last(may):
        sending = [asyncio.ensure_future(sent(found, octets)) for octets in (MESSAGE, OTHER)]
        await eventually(waits(found, 2))
        found.node.queue.failed(NextHop("elsewhere"))
        assert found.node.acknowledgements.waiting == 2
        found.node.queue.failed(NextHop("out"))
        assert all(reply.startswith("250 ") for reply in await asyncio.gather(*sending))
        assert counted(found) == {"retry": 2}


async def test_a_failed_attempt_answers_all_that_wait_for_that_hop(tmp_path: Path) -> None:
    """The first message is tried alone, for the hop wants a login; the second one waits behind it."""
    may = asyncio.Event()
    password = tmp_path / "password"
    password.write_text("mellon")
    password.chmod(0o600)
    async with ScriptedHop(GREETING=HANG) as hop, at_last(may):
        out = {"domains": ["*"], "host": "127.0.0.1", "port": hop.port, "tls": "none"}
        login = {"username": "relay", "password_file": str(password), "login_without_tls": True}
        async with alone(tmp_path, hop, routes={"out": out | login}) as found:
            sending = [asyncio.ensure_future(sent(found, MESSAGE))]
            await eventually(lambda: hop.connections == 1)
            sending.append(asyncio.ensure_future(sent(found, OTHER)))
            await eventually(waits(found, 2))
            for writer in hop._writers:
                writer.transport.abort()
            assert all(reply.startswith("250 ") for reply in await asyncio.gather(*sending))
            assert counted(found) == {"retry": 2}


async def test_a_next_hop_that_puts_the_message_off_is_not_waited_for(tmp_path: Path) -> None:
    slow = {"queue_glitch_retry_interval": "1m"}
    async with ScriptedHop(RCPT=b"451 4.7.1 greylisted\r\n") as hop, alone(tmp_path, hop, **slow) as found:
        assert (await sent(found, MESSAGE)).startswith("250 ")
        assert counted(found) == {"retry": 1}


async def test_a_queue_that_took_mail_again_is_waited_for_again(tmp_path: Path) -> None:
    greetings = [b"421 4.3.2 down\r\n", b"220 hop ESMTP\r\n"]
    async with ScriptedHop(GREETING=greetings) as hop, alone(tmp_path, hop) as found:
        await sent(found, MESSAGE)
        await eventually(lambda: not found.node.hop_failed(NextHop("out")))
        assert (await sent(found, OTHER)).startswith("250 ")
        assert counted(found) == {"retry": 1, "settled": 1}


async def test_a_suspended_queue_is_not_waited_for(tmp_path: Path) -> None:
    async with alone(tmp_path, 9, run=False) as found:
        late = found.node.acknowledgements
        sending = asyncio.ensure_future(sent(found, MESSAGE))
        await eventually(waits(found))
        late.suspended = lambda hop: hop == "out"
        late.release(NextHop("out"))
        assert (await sending).startswith("250 ")
        assert (await sent(found, OTHER)).startswith("250 ")
        assert counted(found) == {"retry": 1, "skipped_suspended": 1}


async def test_when_a_message_is_suspended_the_following_ones_are_waited_for_as_always(
    tmp_path: Path,
) -> None:
    may = asyncio.Event()
    async with held(may) as hop, alone(tmp_path, hop, run=False) as found, at_last(may):
        sending = asyncio.ensure_future(sent(found, MESSAGE))
        await eventually(waits(found))
        (copy,) = await found.copies()
        by = By("ann", "", RequestId("01900000-0000-7000-9000-000000000001"))
        await found.read(
            lambda ledger: ledger.apply(operated.suspend(ledger, copy.id, None, by, found.wall()))
        )
        assert (await sending).startswith("250 ")  # nobody can say when it is resumed
        found.run_queue()
        following = asyncio.ensure_future(sent(found, OTHER))
        await eventually(waits(found))
        may.set()
        assert (await following).startswith("250 ")
        assert counted(found) == {"retry": 1, "settled": 1}
        assert len(hop.contents) == 1


async def test_a_long_queue_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delays_and_repeats, "LONG", 2)
    delay = {"receive": {"max_acknowledgement_delay": "20ms"}}
    async with alone(tmp_path, 9, run=False, **delay) as found:
        for number in range(5):
            await sent(found, b"Subject: %d\r\n\r\n" % number)
        assert counted(found) == {"timed_out": 3, "skipped_long": 2}


async def test_only_so_many_sessions_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delayed_acknowledgements, "MOST_WAITING", 1)
    async with alone(tmp_path, 9, run=False) as found:
        sending = asyncio.ensure_future(sent(found, MESSAGE))
        await eventually(waits(found))
        assert (await sent(found, OTHER)).startswith("250 ")
        assert counted(found) == {"skipped_crowded": 1}
        await found.connectors[1].stop(0)
        assert (await sending).startswith("250 ")


async def test_a_stopping_connector_answers_who_waits(tmp_path: Path) -> None:
    async with alone(tmp_path, 9, run=False) as found:
        sending = asyncio.ensure_future(sent(found, MESSAGE))
        await eventually(waits(found))
        await found.connectors[1].stop(0.05)
        assert (await sending).startswith("250 ")
        assert counted(found) == {"cut_short": 1}


async def test_where_redundancy_is_disabled_no_250_waits(tmp_path: Path) -> None:
    async with alone(tmp_path, 9, run=False, shadow_redundancy_enabled=False) as found:
        assert (await sent(found, MESSAGE)).startswith("250 ")
        assert counted(found) == {}


async def test_other_sessions_go_on_while_one_waits(tmp_path: Path) -> None:
    may = asyncio.Event()
    async with held(may) as slow, ScriptedHop() as quick, at_last(may):
        both = {
            "slow": {"domains": ["*"], "host": "127.0.0.1", "port": slow.port, "tls": "none"},
            "quick": {"domains": ["quick.example"], "host": "127.0.0.1", "port": quick.port, "tls": "none"},
        }
        async with alone(tmp_path, slow, routes=both) as found, at_last(may):
            sending = asyncio.ensure_future(sent(found, MESSAGE))
            await eventually(waits(found))
            assert (await sent(found, MESSAGE, "b@quick.example")).startswith("250 ")
            assert not sending.done()
            # All next hops: the quick one alone is not enough.
            mixed = asyncio.ensure_future(sent(found, OTHER, "b@quick.example", "c@slow.example"))
            await eventually(lambda: len(quick.contents) == 2)
            assert (await sent(found, MESSAGE, "d@quick.example")).startswith("250 ")
            assert not mixed.done()
            may.set()
            assert all(reply.startswith("250 ") for reply in await asyncio.gather(sending, mixed))
            assert counted(found) == {"settled": 4}


async def test_what_was_said_before_the_content_does_not_wait(tmp_path: Path) -> None:
    """A client may send everything in one write (RFC 2920)."""
    may = asyncio.Event()
    async with held(may) as hop, alone(tmp_path, hop) as found, at_last(may), sender(found) as client:
        await client.say("EHLO client.example")
        again = b"MAIL FROM:<a@example.org>\r\nRCPT TO:<b@example.net>\r\n"
        client.send(again + b"BDAT %d LAST\r\n" % len(MESSAGE) + MESSAGE + again)
        assert await client.reply() == "250 2.1.0 Sender OK"
        assert await client.reply() == "250 2.1.5 Recipient OK"
        await eventually(waits(found))
        may.set()
        assert (await client.reply()).startswith("250 2.6.0 ")
        assert await client.reply() == "250 2.1.0 Sender OK"


# Promotion


async def test_instead_of_skipped_a_message_is_promoted(tmp_path: Path) -> None:
    async with ScriptedHop() as server:
        both = {
            "out": {"domains": ["*"], "host": "127.0.0.1", "port": free_ports(1)[0], "tls": "none"},
            "mx9": {"domains": ["mx9.example"], "host": "127.0.0.1", "port": server.port, "tls": "none"},
        }
        on: dict[str, Any] = {"shadow_redundancy_promotion_enabled": True, "routes": both}
        async with alone(tmp_path, 9, **on) as found:
            found.node.acknowledgements.promotion = lambda _: [NextHop("mx9")]
            await sent(found, MESSAGE)
            assert counted(found) == {"retry": 1}
            reply = await sent(found, OTHER)
            first, promoted = await found.copies()
            assert reply == f"250 2.6.0 {promoted.id} Queued mail for delivery"
            assert [one.next_hop for one in first.recipients] == ["out"]
            assert [(one.next_hop, one.status) for one in promoted.recipients] == [("mx9", Status.RELAYED)]
            assert counted(found) == {"retry": 1, "promoted": 1, "settled": 1}


async def test_with_promotion_a_queue_that_has_any_message_is_too_long(tmp_path: Path) -> None:
    may = asyncio.Event()
    async with held(may) as slow, ScriptedHop() as server, at_last(may):
        both = {
            "out": {"domains": ["*"], "host": "127.0.0.1", "port": slow.port, "tls": "none"},
            "mx9": {"domains": ["mx9.example"], "host": "127.0.0.1", "port": server.port, "tls": "none"},
        }
        on: dict[str, Any] = {"shadow_redundancy_promotion_enabled": True, "routes": both}
        async with alone(tmp_path, slow, **on) as found, at_last(may):
            found.node.acknowledgements.promotion = lambda _: [NextHop("mx9")]
            sending = asyncio.ensure_future(sent(found, MESSAGE))
            await eventually(waits(found))
            assert (await sent(found, OTHER)).startswith("250 ")
            assert counted(found) == {"promoted": 1, "settled": 1}
            may.set()
            await sending


# Repeats


async def vanished(found: Station, octets: bytes = MESSAGE, *recipients: str) -> None:
    """A client sends a message and is gone before its 250."""
    async with sender(found) as client:
        await client.begin(*recipients)
        client.send(b"BDAT %d LAST\r\n" % len(octets) + octets)
        await eventually(waits(found))
    await eventually(waits(found, 0))


async def test_a_client_that_vanished_repeats_what_is_still_queued(tmp_path: Path) -> None:
    may = asyncio.Event()
    async with held(may) as hop, alone(tmp_path, hop) as found, at_last(may):
        await vanished(found)
        assert await found.rows("unacknowledged") == 1
        sending = asyncio.ensure_future(sent(found, MESSAGE))
        await eventually(waits(found))
        (copy,) = await found.copies()
        may.set()
        assert await sending == f"250 2.6.0 {copy.id} Queued mail for delivery"
        assert await found.rows("unacknowledged") == 0
        assert len(hop.contents) == 1
        assert counted(found) == {"cut_short": 1, "repeated": 1, "settled": 1}
        rows = [row for row in await found.tracked() if row["event-id"] == "DUPLICATERECEIVE"]
        assert [row["network-message-id"] for row in rows] == [copy.id]


async def test_what_was_delivered_meanwhile_is_not_delivered_again(tmp_path: Path) -> None:
    may = asyncio.Event()
    async with held(may) as hop, alone(tmp_path, hop) as found, at_last(may):
        await vanished(found, MESSAGE, "b@example.net", "c@example.net")
        may.set()
        (copy,) = await found.copies()
        await eventually(lambda: len(hop.contents) == 1)
        reply = await sent(found, MESSAGE, "b@example.net", "c@example.net")
        assert reply == f"250 2.6.0 {copy.id} Queued mail for delivery"
        # The 250 was written this time, so the next one is a message of its own.
        assert str(copy.id) not in await sent(found, MESSAGE, "b@example.net", "c@example.net")
        assert len(hop.contents) == 2


@pytest.mark.parametrize("change", ["content", "recipient", "sender", "name", "age"])
async def test_a_repeat_has_the_same_client_envelope_content_and_day(tmp_path: Path, change: str) -> None:
    may = asyncio.Event()
    async with held(may) as hop, alone(tmp_path, hop) as found, at_last(may):
        await vanished(found)
        may.set()
        if change == "age":
            found.wall.ahead = found.clock.ahead = delays_and_repeats.REPEATED_WITHIN + timedelta(minutes=1)
        async with sender(found) as client:
            await client.say(f"EHLO {'other' if change == 'name' else 'client'}.example")
            origin = "other@example.org" if change == "sender" else "a@example.org"
            to = "c@example.net" if change == "recipient" else "b@example.net"
            await client.say(f"MAIL FROM:<{origin}>", f"RCPT TO:<{to}>")
            assert (await client.content(OTHER if change == "content" else MESSAGE)).startswith("250 ")
        assert await found.rows("message") == 2
        assert found.node.acknowledgements.counts["repeated"] == 0


async def test_the_same_octets_in_two_sessions_at_a_time_are_two_messages(tmp_path: Path) -> None:
    may = asyncio.Event()
    async with held(may) as hop, alone(tmp_path, hop) as found, at_last(may):
        sending = [asyncio.ensure_future(sent(found, MESSAGE)) for _ in range(3)]
        await eventually(waits(found, 3))
        may.set()
        assert len(set(await asyncio.gather(*sending))) == 3
        assert counted(found) == {"settled": 3}


async def test_only_recipients_that_failed_are_tried_again(tmp_path: Path) -> None:
    may = asyncio.Event()
    refused = {"RCPT TO:<c@example.net>": [b"550 5.1.1 unknown\r\n", b"250 2.1.5 ok\r\n"]}
    async with ScriptedHop(pause=may.wait, **refused) as hop, alone(tmp_path, hop) as found, at_last(may):
        await vanished(found, MESSAGE, "b@example.net", "c@example.net")
        may.set()
        await eventually(lambda: len(hop.contents) >= 1)
        await sent(found, MESSAGE, "b@example.net", "c@example.net")
        events = await found.tracked()
        (row,) = [row for row in events if row["event-id"] == "DUPLICATERECEIVE"]
        assert row["recipient-address"] == "b@example.net"
        received = [row["recipient-address"] for row in events if row["event-id"] == "RECEIVE"]
        assert received == ["b@example.net;c@example.net", "c@example.net"]
        assert await found.rows("unacknowledged") == 0


async def test_a_client_that_closed_its_direction_and_reads_on_was_answered(tmp_path: Path) -> None:
    may = asyncio.Event()
    async with held(may) as hop, alone(tmp_path, hop) as found, at_last(may):
        async with sender(found) as client:
            await client.begin()
            client.send(b"BDAT %d LAST\r\n" % len(MESSAGE) + MESSAGE)
            client.writer.write_eof()
            await eventually(waits(found))
            may.set()
            assert (await client.reply()).startswith("250 ")
        await eventually(lambda: found.node.acknowledgements.speaking == set())
        assert await found.rows("unacknowledged") == 0


async def test_where_no_member_is_to_be_had_the_250_waits_too(tmp_path: Path) -> None:
    """And large contents are compared by what the client sent, without our own header fields."""
    may = asyncio.Event()
    large = b"Subject: large\r\n\r\n" + (b"x" * 78 + b"\r\n") * 4000
    async with held(may) as hop, at_last(may):
        out = {"domains": ["*"], "host": "127.0.0.1", "port": hop.port, "tls": "none"}
        quick: dict[str, Any] = {"shadow_time_cap": "1s", "routes": {"out": out}}
        async with boundary(tmp_path, "mx1", "mx2", **DELAY, **quick) as (found, member), at_last(may):
            found.run_queue()
            assert (await sent(found, OTHER)).startswith("250 ")
            assert counted(found) == {}
            for connector in member.connectors:
                await connector.stop(0)
            await vanished(found, large)
            sending = asyncio.ensure_future(sent(found, large))
            await eventually(waits(found))
            may.set()
            assert (await sending).startswith("250 ")
            assert found.node.acknowledgements.counts["repeated"] == 1
            assert await found.rows("message") == 2


async def test_a_copy_that_a_member_makes_meanwhile_ends_the_wait(tmp_path: Path) -> None:
    quick: dict[str, Any] = {"shadow_time_cap": "500ms"}
    async with boundary(tmp_path, "mx1", "mx2", **DELAY, **quick) as (found, member):
        port = member.peer_port
        member.peer_port = free_ports(1)[0]
        found.knows(member)
        sending = asyncio.ensure_future(sent(found, MESSAGE))
        await eventually(waits(found))
        member.peer_port = port
        found.knows(member)
        found.run_repair()
        assert (await sending).startswith("250 ")
        assert not (await found.copies())[0].exposed
        assert counted(found) == {"settled": 1}
