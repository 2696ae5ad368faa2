"""Taking mail in: what is refused, what is added, and what the 250 stands for."""

from __future__ import annotations

import asyncio
import re
import shutil
import sqlite3
import ssl
from base64 import b64encode
from datetime import UTC, datetime
from email import message_from_bytes
from pathlib import Path
from typing import Any

import pytest
from sending import MESSAGE, sender, sent
from stations import Station, at_last, boundary, database_id, eventually, full, incarnation, station

from shadowrelay.authority import authority_pair, init, issue
from shadowrelay.core.identifiers import Beginning, Lineage
from shadowrelay.core.messages import HolderState, Role
from shadowrelay.core.ownership.heartbeat import meet
from shadowrelay.core.reception.users import Cost, format_users, hashed
from shadowrelay.database.content import Spool
from shadowrelay.members.answering import AnsweringSession, HoldSink
from shadowrelay.smtp.receiving.contract import Hangup

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
STRICT = {
    "reject_message_on_shadow_failure": True,
    "shadow_attempt_timeout": "300ms",
    "shadow_time_cap": "1s",
}
TOO_BIG_FOR_MEMORY = b"Subject: large\r\n\r\n" + (b"x" * 78 + b"\r\n") * 8000


async def nothing_kept(*stations: Station) -> bool:
    """On no node, neither as a row nor as a file, once every session is over."""
    for one in stations:
        await eventually(lambda one=one: one.connectors[1].sessions == 0)
        if await one.rows("message") or one.files():
            return False
    return True


# The promise


async def test_the_250_stands_for_two_copies(tmp_path: Path) -> None:
    async with boundary(tmp_path, "mx1", "mx2", reject_message_on_shadow_failure=True) as (owner, holder):
        reply = await sent(owner, MESSAGE, "b@example.net", "c@example.net")
        (ours,), (held,) = await owner.copies(), await holder.copies()
        assert reply == f"250 2.6.0 {ours.id} Queued mail for delivery"
        assert (held.id, held.role, held.owner) == (ours.id, Role.SHADOW, owner.name)
        assert [(one.name, one.rank, one.state) for one in ours.holders] == [
            (holder.name, 1, HolderState.HOLDING)
        ]
        assert held.recipients == ours.recipients
        assert held.envelope == ours.envelope
        assert await holder.octets(held.id) == await owner.octets(ours.id)
        assert await owner.events() == ["HAREDIRECT", "RECEIVE"]
        assert await holder.events() == ["HARECEIVE"]


async def test_a_node_owns_what_it_received_and_holds_what_others_did(tmp_path: Path) -> None:
    async with boundary(tmp_path, "mx1", "mx2", reject_message_on_shadow_failure=True) as nodes:
        for one in nodes:
            assert (await sent(one, MESSAGE)).startswith("250 ")
        for one, other in (nodes, reversed(nodes)):
            roles = {copy.role: copy.owner for copy in await one.copies()}
            assert roles == {Role.PRIMARY: one.name, Role.SHADOW: other.name}


async def test_beyond_the_boundary_shadowing_begins_again(tmp_path: Path) -> None:
    """The next hop of one boundary is a node of another one: to that it is mail of a sender."""
    strict: dict[str, Any] = {"reject_message_on_shadow_failure": True}
    async with boundary(tmp_path / "there", "mx3", "mx4", **strict) as (beyond, behind):
        out = {"domains": ["*"], "host": "127.0.0.1", "port": beyond.port, "tls": "none"}
        here_too = {"routes": {"out": out}, **strict}
        async with boundary(tmp_path / "here", "mx1", "mx2", **here_too) as (owner, holder):
            owner.run_queue()
            await sent(owner, MESSAGE)
            await eventually(beyond.copies)
            (here,), (held,) = await owner.copies(), await holder.copies()
            (there,), (shadow,) = await beyond.copies(), await behind.copies()
            assert here.id == held.id
            assert there.id == shadow.id != here.id
            assert (there.role, shadow.role, shadow.owner) == (Role.PRIMARY, Role.SHADOW, beyond.name)


def holding_waits(monkeypatch: pytest.MonkeyPatch) -> tuple[asyncio.Event, asyncio.Event]:
    """Holders do not acknowledge before the second event; the first tells that one is asked to."""
    asked, may = asyncio.Event(), asyncio.Event()
    finish = HoldSink.finish

    async def later(self: HoldSink) -> Any:
        asked.set()
        await may.wait()
        return await finish(self)

    monkeypatch.setattr(HoldSink, "finish", later)
    return asked, may


async def test_the_250_waits_for_the_holder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, may = holding_waits(monkeypatch)
    async with boundary(tmp_path, "mx1", "mx2") as (owner, holder), at_last(may):
        sending = asyncio.ensure_future(sent(owner, MESSAGE))
        await asked.wait()
        assert await owner.copies() == []
        assert not sending.done()
        may.set()
        assert (await sending).startswith("250 ")
        assert len(await holder.copies()) == 1


def never_answers(monkeypatch: pytest.MonkeyPatch, *, to_questions: bool = False) -> asyncio.Event:
    """Holders keep silent about copies, and about questions if asked for, until the event is set."""
    over = asyncio.Event()

    async def silence(*_: object) -> Hangup:
        await over.wait()
        return Hangup()

    monkeypatch.setattr(HoldSink, "finish", silence)
    if to_questions:
        monkeypatch.setattr(AnsweringSession, "ask", silence)
    return over


async def test_a_holder_that_never_answers_is_revoked_before_the_451(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    over = never_answers(monkeypatch)
    async with boundary(tmp_path, "mx1", "mx2", **STRICT) as (owner, holder), at_last(over):
        assert await sent(owner, MESSAGE) == "451 4.4.0 Message failed to be made redundant"
        assert await owner.copies() == await holder.copies() == []
        assert await owner.events() == []
        graves = await holder.read(
            lambda ledger: ledger.connection.execute("SELECT * FROM tombstone").fetchall()
        )
        assert len(graves) == 1  # whatever is still on its way comes too late


async def test_what_was_refused_is_on_record_before_the_451(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing else lets a holder drop a copy that it may have: to be unknown is not to be refused."""
    over = never_answers(monkeypatch)
    async with boundary(tmp_path, "mx1", "mx2", **STRICT) as (owner, _), at_last(over):
        assert (await sent(owner, MESSAGE)).startswith("451 ")
        rows = await owner.read(
            lambda ledger: ledger.connection.execute("SELECT delivered, refused FROM outcome").fetchall()
        )
        assert rows == [("", 1)]


async def test_without_a_confirmed_revoke_the_sender_hears_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    over = never_answers(monkeypatch, to_questions=True)
    async with boundary(tmp_path, "mx1", "mx2", **STRICT) as (owner, _), at_last(over):
        for content in (MESSAGE, TOO_BIG_FOR_MEMORY):
            assert await sent(owner, content) == ""
            assert await nothing_kept(owner)


async def test_by_default_a_message_nobody_holds_is_accepted_exposed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    over = never_answers(monkeypatch)
    lenient = STRICT | {"reject_message_on_shadow_failure": False}
    async with boundary(tmp_path, "mx1", "mx2", **lenient) as (owner, _), at_last(over):
        assert (await sent(owner, MESSAGE)).startswith("250 2.6.0 ")
        (ours,) = await owner.copies()
        assert ours.exposed
        assert [one.state for one in ours.holders] == [HolderState.UNCERTAIN]  # it is told of the outcome
        assert await owner.events() == ["HAREDIRECTFAIL", "RECEIVE"]
        assert "S:Replication=Failed" in (await owner.tracked())[1]["custom-data"]


@pytest.mark.parametrize("strict", [True, False])
async def test_with_no_member_at_hand_policy_decides(tmp_path: Path, strict: bool) -> None:
    found = await station(tmp_path, "mx1", ["mx2"], reject_message_on_shadow_failure=strict)
    try:
        for content in (MESSAGE, TOO_BIG_FOR_MEMORY):
            reply = await sent(found, content)
            assert reply.startswith("451 4.4.0 " if strict else "250 2.6.0 ")
        assert len(await found.copies()) == len(found.files()) * 2 == (0 if strict else 2)
    finally:
        await found.stop()


async def test_with_redundancy_disabled_a_message_is_accepted_alone(tmp_path: Path) -> None:
    async with boundary(tmp_path, "mx1", "mx2", shadow_redundancy_enabled=False) as (owner, holder):
        assert (await sent(owner, MESSAGE)).startswith("250 ")
        assert await owner.events() == ["RECEIVE"]
        assert await holder.copies() == []


async def test_the_next_candidate_gets_what_the_first_one_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when a large body was streaming to the first one already."""
    write, lost = HoldSink.write, []

    async def dies(self: HoldSink, data: bytes) -> None:
        if not lost or self._answering in lost:
            lost.append(self._answering)
            raise RuntimeError
        await write(self, data)

    monkeypatch.setattr(HoldSink, "write", dies)
    async with boundary(tmp_path, "mx1", "mx2", "mx3", reject_message_on_shadow_failure=True) as stations:
        owner = stations[0]
        assert (await sent(owner, TOO_BIG_FOR_MEMORY)).startswith("250 ")
        (ours,) = await owner.copies()
        held = {one.name: await one.copies() for one in stations[1:]}
        (holder,) = [one for one in stations[1:] if held[one.name]]
        assert [(one.name, one.rank) for one in ours.holders] == [(holder.name, 2)]
        assert await holder.octets(ours.id) == await owner.octets(ours.id)


async def test_a_large_body_streams_to_the_holder_while_it_arrives(tmp_path: Path) -> None:
    async with boundary(tmp_path, "mx1", "mx2") as (owner, holder):
        async with sender(owner) as client:
            await client.begin()
            most = TOO_BIG_FOR_MEMORY[:500_000]
            client.writer.write(b"BDAT %d\r\n" % len(most) + most)
            assert (await client.reply()).startswith("250 ")
            await eventually(holder.files)
            assert await holder.copies() == []
            assert (await client.content(TOO_BIG_FOR_MEMORY[500_000:])).startswith("250 2.6.0 ")
        (ours,) = await owner.copies()
        assert await holder.octets(ours.id) == await owner.octets(ours.id)
        assert (await owner.octets(ours.id)).endswith(TOO_BIG_FOR_MEMORY)
        assert (len(owner.files()), len(holder.files())) == (1, 1)


@pytest.mark.parametrize("size", [100, 100_000, 600_000], ids=["small", "large", "streaming"])
async def test_a_connection_lost_before_the_end_leaves_nothing_on_any_node(tmp_path: Path, size: int) -> None:
    async with boundary(tmp_path, "mx1", "mx2") as (owner, holder):
        async with sender(owner) as client:
            await client.begin()
            client.writer.write(b"DATA\r\n")
            assert (await client.reply()).startswith("354 ")
            client.writer.write(TOO_BIG_FOR_MEMORY[:size])
            await client.writer.drain()
            await eventually(lambda: size < 300_000 or holder.files())
        assert await nothing_kept(owner, holder)
        assert owner.node.in_flight == set()


async def test_a_transaction_reset_while_a_body_streams_leaves_nothing(tmp_path: Path) -> None:
    async with boundary(tmp_path, "mx1", "mx2") as (owner, holder):
        async with sender(owner) as client:
            await client.begin()
            client.writer.write(b"BDAT 600000\r\n" + TOO_BIG_FOR_MEMORY[:600_000])
            await client.reply()
            assert (await client.say("RSET")).startswith("250 ")
            assert owner.node.in_flight == set()
            await eventually(lambda: not holder.files())
            assert (await client.begin()).startswith("250 ")
            assert (await client.content(MESSAGE)).startswith("250 2.6.0 ")
        assert len(await holder.copies()) == 1


async def test_a_sender_that_closes_its_direction_after_the_dot_is_answered(tmp_path: Path) -> None:
    async with boundary(tmp_path, "mx1", "mx2") as (owner, holder), sender(owner) as client:
        await client.begin()
        client.writer.write(b"DATA\r\n")
        await client.reply()
        client.writer.write(MESSAGE + b".\r\n")
        client.writer.write_eof()
        assert (await client.reply()).startswith("250 2.6.0 ")
        assert len(await holder.copies()) == 1


async def test_a_sender_that_vanishes_after_the_end_may_have_sent_a_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its message is kept with two copies, or with none."""
    asked, may = holding_waits(monkeypatch)
    async with boundary(tmp_path, "mx1", "mx2") as (owner, holder), at_last(may):
        async with sender(owner) as client:
            await client.begin()
            client.writer.write(b"BDAT %d LAST\r\n" % len(MESSAGE) + MESSAGE)
            await asked.wait()
        may.set()
        await eventually(owner.copies)
        assert not (await owner.copies())[0].exposed
        assert len(await holder.copies()) == 1


# What is refused


async def test_relaying_is_for_our_own_networks_and_domains(tmp_path: Path) -> None:
    found = await station(
        tmp_path, "mx1", [], relay_networks=["192.0.2.0/24"], accepted_domains=["example.net"], peer={}
    )
    async with sender(found) as client:
        assert await client.begin("b@example.com") == "550 5.7.1 Relaying denied"
        assert await client.say("RCPT TO:<b@sub.example.net>") == "550 5.7.1 Relaying denied"
        assert await client.say("RCPT TO:<b@EXAMPLE.net>") == "250 2.1.5 Recipient OK"
    await found.stop()


async def test_a_recipient_that_is_named_several_times_gets_the_message_once(tmp_path: Path) -> None:
    async with boundary(tmp_path, "mx1", "mx2", reject_message_on_shadow_failure=True) as (owner, holder):
        async with sender(owner) as client:
            await client.say("EHLO client.example", "MAIL FROM:<a@example.org>")
            for again in ("b@example.net", "b@EXAMPLE.net NOTIFY=SUCCESS", "B@example.net", "b@example.net"):
                address, _, parameters = again.partition(" ")
                assert await client.say(f"RCPT TO:<{address}> {parameters}") == "250 2.1.5 Recipient OK"
            assert (await client.content(MESSAGE)).startswith("250 ")
        (ours,), (held,) = await owner.copies(), await holder.copies()
        named = [(one.number, one.address, one.notify) for one in ours.recipients]
        assert named == [
            (1, "b@example.net", ("SUCCESS", "FAILURE", "DELAY")),
            (2, "B@example.net", ()),
        ]
        assert held.recipients == ours.recipients


async def test_who_logged_in_may_relay_and_is_named(tmp_path: Path) -> None:
    """As ``relay_networks`` may; in Received and in the tracking log, the password nowhere."""
    init(tmp_path / "ca", name="test", now=datetime.now(UTC))
    pair = issue(tmp_path / "ca", "mx1.example.org", now=datetime.now(UTC))
    file = tmp_path / "users"
    file.write_text(format_users({"alice": hashed(b"Sesame", b"salt" * 4, Cost(ln=4, p=1))}))
    submission = {
        "users_file": str(file),
        "tls_certificate": str(pair.certificate),
        "tls_key": str(pair.key),
    }
    trusting = ssl.create_default_context(cafile=str(authority_pair(tmp_path / "ca").certificate))
    trusting.check_hostname = False
    found = await station(tmp_path, "mx1", [], relay_networks=[], accepted_domains=[], receive=submission)
    async with sender(found) as client:
        assert await client.begin("b@example.com") == "550 5.7.1 Relaying denied"
        await client.say("STARTTLS")
        await client.writer.start_tls(trusting)
        assert await client.begin("b@example.com") == "550 5.7.1 Relaying denied"
        await client.say("RSET")
        plain = b64encode(b"\0alice\0Sesame").decode()
        assert await client.say(f"AUTH PLAIN {plain}") == "235 2.7.0 Authentication successful"
        assert await client.begin("b@example.com") == "250 2.1.5 Recipient OK"
        await client.say("DATA")
        assert (await client.say("Subject: x\r\n\r\nx\r\n.")).startswith("250 ")
    (copy,) = await found.copies()
    kept = (await found.octets(copy.id)).decode()
    trace = kept.partition("\r\nSubject")[0].replace("\r\n\t", " ")
    assert "(authenticated: alice)" in trace
    assert " with ESMTPSA id " in trace
    rows = [row for row in await found.tracked() if row["event-id"] == "RECEIVE"]
    assert ["S:Login=alice" in row["custom-data"] for row in rows] == [True]
    assert "Sesame" not in kept + str(rows)
    found.node.connectors = found.connectors[1:]
    assert found.node.login_counts() == {"succeeded": 1, "failed": 0, "put_off": 0}
    await found.stop()


async def test_a_domain_without_a_route_is_put_off(tmp_path: Path) -> None:
    routes = {"inside": {"domains": ["example.net"], "host": "127.0.0.1", "port": 9}}
    found = await station(tmp_path, "mx1", [], routes=routes)
    async with sender(found) as client:
        assert await client.begin("b@example.com") == "451 4.4.4 No route to that domain for now"
    await found.stop()


async def test_postmaster_alone_is_that_of_the_first_domain_for_whoever_writes(tmp_path: Path) -> None:
    found = await station(
        tmp_path, "mx1", [], accepted_domains=["*.example.net", "example.net"], relay_networks=[]
    )
    async with sender(found) as client:
        assert await client.begin("Postmaster") == "250 2.1.5 Recipient OK"
        await client.say("DATA")
        assert (await client.say("Subject: x\r\n\r\nx\r\n.")).startswith("250 ")
    assert (await found.copies())[0].recipients[0].address == "Postmaster@example.net"
    await found.stop()


@pytest.mark.parametrize("body", [b"\r\nbody\r\n", b""], ids=["with a body", "a header alone"])
async def test_a_message_that_loops_is_refused(tmp_path: Path, body: bytes) -> None:
    async with boundary(tmp_path, "mx1", "mx2", loop_hop_limit=5) as (owner, holder):
        assert await sent(owner, b"Received: by x\r\n" * 6 + body) == "554 5.4.6 Too many hops: mail loop"
        assert await nothing_kept(owner, holder)
        assert (await sent(owner, b"Received: by x\r\n" * 5 + body)).startswith("250 ")


async def test_with_little_room_mail_is_put_off_before_its_content(tmp_path: Path) -> None:
    async with (
        boundary(tmp_path, "mx1", "mx2", minimum_free_disk=2**50) as (owner, _),
        sender(owner) as client,
    ):
        await client.say("EHLO client.example")
        assert await client.say("MAIL FROM:<a@example.org>") == "452 4.3.1 Insufficient system resources"


async def test_the_declared_size_counts_against_the_room(tmp_path: Path) -> None:
    free = shutil.disk_usage(tmp_path).free
    room = {"minimum_free_disk": free - 2**30, "receive": {"max_message_size": 2**31}}
    async with boundary(tmp_path, "mx1", "mx2", **room) as (owner, _), sender(owner) as client:
        await client.say("EHLO client.example")
        assert (await client.say(f"MAIL FROM:<a@example.org> SIZE={2**31}")).startswith("452 4.3.1 ")
        assert (await client.say("MAIL FROM:<a@example.org> SIZE=1000")).startswith("250 ")


async def test_a_disk_that_fails_at_the_last_moment_puts_the_message_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full_disk(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    async with boundary(tmp_path, "mx1", "mx2") as (owner, holder):
        monkeypatch.setattr("shadowrelay.database.content.os.fsync", full_disk)
        for content in (TOO_BIG_FOR_MEMORY[:100_000], TOO_BIG_FOR_MEMORY):
            assert await sent(owner, content) == "452 4.3.1 Insufficient system resources"
            assert await nothing_kept(owner)
            assert await holder.copies() == []
        assert (await sent(owner, MESSAGE)).startswith("250 ")


@pytest.mark.parametrize("readings", [0, 1], ids=["for the first holder", "for the second one"])
@pytest.mark.slow
async def test_a_content_that_cannot_be_read_for_its_holder_is_not_accepted_and_nothing_is_left_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, readings: int
) -> None:
    """What arrived is durable by then: left behind, the next start might take it for a message."""
    blocks, over, left = Spool.blocks, never_answers(monkeypatch), [None] * readings

    def unreadable(self: Spool) -> Any:
        if not left:
            raise OSError(5, "Input/output error")
        left.pop()
        return blocks(self)

    async with boundary(tmp_path, "mx1", "mx2", "mx3", **STRICT) as (owner, *holders), at_last(over):
        for holder in holders:  # members know each other
            owner.node.members.release(holder.name, await owner.node.members.acquire(holder.name))
        monkeypatch.setattr(Spool, "blocks", unreadable)
        assert await sent(owner, TOO_BIG_FOR_MEMORY[:100_000]) == ""
        assert left == []
        assert await nothing_kept(owner)


# The record behind the 250


async def test_an_acknowledgement_whose_database_is_gone_when_it_is_read_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    finish = HoldSink.finish

    async def then_replaced(self: HoldSink) -> Any:
        replies = await finish(self)
        another = Lineage(database_id(9), (Beginning(incarnation(9), 0),), 0)
        await owner.read(lambda ledger: meet(ledger, holder.name, another, None, NOW, after_silence=False))
        return replies

    async with boundary(tmp_path, "mx1", "mx2", **STRICT) as (owner, holder):
        assert (await sent(owner, MESSAGE)).startswith("250 ")  # the members know each other from now on
        first = await holder.copies()
        monkeypatch.setattr(HoldSink, "finish", then_replaced)
        assert (await sent(owner, MESSAGE)).startswith("451 4.4.0 ")
        assert await holder.copies() == first
        assert await owner.rows("message") == 1


async def test_a_message_that_cannot_be_recorded_behind_its_250_ends_the_node_and_stays_on_its_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next start records it: a node that went on would have answered for what nobody delivers."""

    def cannot(*_: Any, **__: Any) -> Any:
        raise RuntimeError("no record")

    async with boundary(tmp_path, "mx1", "mx2") as (owner, holder):
        assert (await sent(owner, MESSAGE)).startswith("250 ")  # the members know each other from now on
        (first,) = await owner.copies()
        monkeypatch.setattr("shadowrelay.reception.two_copies.accept", cannot)
        assert (await sent(owner, MESSAGE)).startswith("250 ")
        await asyncio.wait_for(owner.database.failed.wait(), 5)
        (held,) = [copy for copy in await holder.copies() if copy.id != first.id]
    with sqlite3.connect(owner.directory / "transport.db") as disk:
        assert disk.execute("SELECT id FROM message WHERE stage = 'arriving'").fetchall() == [(held.id,)]


# What is added


async def received(owner: Station, content: bytes) -> bytes:
    """What was added in front of it; the rest is octet for octet what was sent."""
    await sent(owner, content)
    ours = (await owner.copies())[-1]
    stored = await owner.octets(ours.id)
    assert stored.endswith(content)
    assert ours.envelope.size == len(stored)
    return stored[: len(stored) - len(content)]


@pytest.mark.parametrize(
    "content",
    [
        MESSAGE,
        b"Subject: none\r\n",
        b"\r\nno header\r\n",
        b"\r\n",
        b"",
        b"Subject: eight bit \xff\r\n\r\n\x00\x01\xfe" + bytes(range(14, 256)) + b"\r\n.\r\n..\r\n",
        TOO_BIG_FOR_MEMORY,
    ],
    ids=["plain", "no body", "no header", "empty line", "nothing", "octets", "large"],
)
async def test_a_trace_field_is_added_and_nothing_else_changes(tmp_path: Path, content: bytes) -> None:
    async with boundary(tmp_path, "mx1", "mx2") as (owner, _):
        added = (await received(owner, content)).decode()
        ours = (await owner.copies())[-1]
    assert re.fullmatch(
        rf"Received: from client\.example \(\[127\.0\.0\.1\]\)\r\n\tby {re.escape(full('mx1'))} with ESMTP"
        rf"\r\n\tid {ours.id}\r\n\tfor <b@example\.net>;"
        r"\r\n\t\w{3}, \d\d \w{3} \d{4} [\d:]{8} \+0000\r\n",
        added,
    ), added


@pytest.mark.parametrize(
    "content",
    [
        b"no header at all",
        b"no header\r\nhere: a word with a colon\r\n\r\nand an empty line\r\n",
        b" : x\r\n\r\nbody\r\n",
        "Grüße: from a client that knows no header\r\n".encode(),
        b"x" * 3000,
    ],
    ids=["no line", "colon", "indented", "not ASCII", "long"],
)
@pytest.mark.parametrize("submission", [False, True], ids=["relayed", "submitted"])
async def test_a_text_without_header_fields_stays_the_text(
    tmp_path: Path, content: bytes, submission: bool
) -> None:
    receive = {"submission": submission, "max_text_line": 10_000}
    async with boundary(tmp_path, "mx1", "mx2", receive=receive) as (owner, _):
        added = await received(owner, content)
    assert added.endswith(b"\r\n\r\n")
    header, _, body = (added + content).partition(b"\r\n\r\n")
    assert body == content
    names = set(message_from_bytes(header))
    assert names == {"Received", "Message-ID", "Date"} if submission else {"Received"}


async def test_submission_adds_what_the_sender_left_out(tmp_path: Path) -> None:
    async with boundary(tmp_path, "mx1", "mx2", receive={"submission": True}) as (owner, _):
        added = message_from_bytes(await received(owner, b"Subject: none\r\n\r\nbody\r\n"))
        ours = (await owner.copies())[-1]
        assert added["Message-ID"] == ours.envelope.message_id == f"<{ours.id}@{owner.name}>"
        assert added["Date"]
        complete = message_from_bytes(await received(owner, MESSAGE))
        assert set(complete) == {"Received"}
        assert (await owner.copies())[-1].envelope.message_id == "<1@example.org>"


async def test_dsn_parameters_and_recipients_are_stored_as_given(tmp_path: Path) -> None:
    async with boundary(tmp_path, "mx1", "mx2") as (owner, holder), sender(owner) as client:
        await client.say(
            "EHLO client.example",
            "MAIL FROM:<a@example.org> BODY=8BITMIME RET=hdrs ENVID=Case+2BKept",
            "RCPT TO:<b@example.net> NOTIFY=success,delay ORCPT=rfc822;B@Example.net",
        )
        await client.content(MESSAGE)
        for one in await owner.copies() + await holder.copies():
            assert (one.envelope.body, one.envelope.ret, one.envelope.envid) == (
                "8BITMIME",
                "HDRS",
                "Case+2BKept",
            )
            (recipient,) = one.recipients
            assert (recipient.notify, recipient.orcpt) == (("SUCCESS", "DELAY"), "rfc822;B@Example.net")


@pytest.mark.slow
async def test_a_message_for_as_many_recipients_as_settings_allow_has_its_copy(tmp_path: Path) -> None:
    many = [f"b{number}@example.net" for number in range(20_000)]
    async with boundary(
        tmp_path,
        "mx1",
        "mx2",
        reject_message_on_shadow_failure=True,
        receive={"max_recipients_per_message": 20_000},
        shadow_attempt_timeout="20s",  # a busy machine needs its time for so many
        shadow_time_cap="40s",
    ) as (owner, holder):
        assert (await sent(owner, MESSAGE, *many)).startswith("250 2.6.0 ")
        (held,) = await holder.copies()
        assert len(held.recipients) == len(many)
