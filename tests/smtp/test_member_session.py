"""The members' connector: who gets in, what strangers see, and what a copy has to be."""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from receiving import RawClient
from stations import Station, authority, boundary, database_id, eventually, full, incarnation, station

from shadowrelay.authority import authority_pair
from shadowrelay.core.decisions import Decision, Member
from shadowrelay.core.messages import Reason, Role
from shadowrelay.members.chores import Chores

HELLO = f"XSHADOW {full('mx1')} {database_id(1)} {incarnation(1)}:0 {incarnation(1)}@0"
MESSAGE = "01900000-0000-7000-8000-000000000001"
OFFER = f"XSHADOW={MESSAGE};1;1;{incarnation(1)}:0;1795255200000"
MAIL = f"MAIL FROM:<a@example.org> {OFFER}"
RCPT = "RCPT TO:<b@example.net> XFORK=1;inside"
MARK = re.compile(r" [0-9a-f]{16}:\d+$")
UNKNOWN = "500 5.5.2 Command not recognised"


@asynccontextmanager
async def talking(host: Station, *, tls: ssl.SSLContext | None = None) -> AsyncIterator[RawClient]:
    """A client that was greeted and said EHLO."""
    name = host.name if tls else None
    client = RawClient(
        *await asyncio.open_connection("127.0.0.1", host.peer_port, ssl=tls, server_hostname=name)
    )
    try:
        assert (await client.line()).startswith("220 ")
        await client.say("EHLO client.example")
        yield client
    finally:
        await client.close()


@pytest.fixture
async def holder(tmp_path: Path) -> AsyncIterator[Station]:
    """A holder that trusts loopback; the other member's links are not running."""
    found = await station(tmp_path, "mx2", ["mx1", "mx3"])
    yield found
    await found.stop()


def context(directory: Path, name: str | None) -> ssl.SSLContext:
    found = ssl.create_default_context(cafile=str(authority_pair(directory).certificate))
    if name:
        found.load_cert_chain(directory / f"{full(name)}.pem", directory / f"{full(name)}.key")
    return found


async def copy(client: RawClient, content: bytes, *commands: str) -> str:
    """Offer a copy; the last reply."""
    client.send("".join(f"{line}\r\n" for line in (HELLO, *(commands or (MAIL, RCPT)))).encode())
    client.send(b"BDAT %d LAST\r\n" % len(content) + content)
    replies = [await client.reply() for _ in range(2 + len(commands or (MAIL, RCPT)))]
    return replies[-1]


# Who gets in


async def heard(host: Station, tls: ssl.SSLContext) -> bytes:
    """All that this client hears before the connection ends."""
    said = b""
    with suppress(OSError):
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", host.peer_port, ssl=tls, server_hostname=host.name
        )
        with suppress(OSError):
            async with asyncio.timeout(30):
                said = await reader.read()
        writer.transport.abort()
    return said


async def test_without_a_certificate_of_our_authority_nobody_reaches_smtp(tmp_path: Path) -> None:
    ours, theirs = authority(tmp_path / "ca", "mx1", "mx2"), authority(tmp_path / "theirs", "mx1")
    async with boundary(tmp_path, "mx1", "mx2", tls=ours) as (_, holder):
        stranger, forged = context(ours, None), context(ours, None)
        forged.load_cert_chain(theirs / f"{full('mx1')}.pem", theirs / f"{full('mx1')}.key")
        assert await heard(holder, stranger) == b""
        assert await heard(holder, forged) == b""
        assert holder.connectors[0].sessions == 0


async def test_clear_text_never_reaches_smtp(tmp_path: Path) -> None:
    ours = authority(tmp_path / "ca", "mx1", "mx2")
    async with boundary(tmp_path, "mx1", "mx2", tls=ours) as (_, holder):
        client = RawClient(*await asyncio.open_connection("127.0.0.1", holder.peer_port))
        client.send(b"EHLO client.example\r\n")
        assert b"ESMTP" not in await client.reader.read()
        await client.close()


async def test_a_member_is_who_its_certificate_says_and_nobody_else(tmp_path: Path) -> None:
    ours = authority(tmp_path / "ca", "mx1", "mx2", "mx3")
    async with boundary(tmp_path, "mx1", "mx2", "mx3", tls=ours) as (_, holder, _):
        before = await holder.read(lambda ledger: list(ledger.members()))
        async with talking(holder, tls=context(ours, "mx3")) as impostor:
            assert await impostor.say(HELLO) == "550 5.7.1 Not a member"
            assert await impostor.say(MAIL) == "503 5.5.1 XSHADOW needed first"
            assert (
                await impostor.say(f"XQDISCARD 200 REVOKE={MESSAGE};1;1") == "503 5.5.1 XSHADOW needed first"
            )
        assert await holder.read(lambda ledger: list(ledger.members())) == before
        async with talking(holder, tls=context(ours, "mx1")) as member:
            assert (await member.say(HELLO)).startswith(f"250 2.0.0 {holder.name} {database_id(2)} ")


async def test_a_certificate_alone_makes_no_member(tmp_path: Path) -> None:
    ours = authority(tmp_path / "ca", "mx1", "mx2", "mx9")
    async with (
        boundary(tmp_path, "mx1", "mx2", tls=ours) as (_, holder),
        talking(holder, tls=context(ours, "mx9")) as client,
    ):
        assert await client.say(HELLO.replace("mx1", "mx9")) == "550 5.7.1 Not a member"


async def test_a_retired_member_is_refused_and_its_open_session_too(holder: Station) -> None:
    async with talking(holder) as client:
        assert (await client.say(HELLO)).startswith("250 ")
        retired = Member(full("mx1"), retired=True)
        await holder.read(lambda ledger: ledger.apply(Decision(None, (retired,))))
        assert MARK.sub("", await client.say(HELLO)) == "550 5.7.1 Not a member"
        holder.node.membership.retired(full("mx1"))
        assert MARK.sub("", await client.say(MAIL)) == "503 5.5.1 XSHADOW needed first"
        assert MARK.sub("", await client.say("XQDISCARD 200")) == "503 5.5.1 XSHADOW needed first"


async def test_a_database_that_another_took_the_place_of_is_refused(holder: Station) -> None:
    """Its last greeting is read late; or two nodes have one name, and the log says so."""
    successor = HELLO.replace(str(database_id(1)), str(database_id(9))).replace(incarnation(1), "f" * 16)
    async with talking(holder) as old, talking(holder) as new:
        assert (await old.say(HELLO)).startswith("250 ")
        assert (await new.say(successor)).startswith("250 ")
        assert MARK.sub("", await old.say(HELLO)) == "451 4.3.0 Another database took the place of yours"
        questions = f"XQDISCARD 200 CHECK={MESSAGE};1"
        assert MARK.sub("", await old.say(questions)) == "251 2.0.0 No discard events"
        assert (await new.say(successor)).startswith("250 ")


# What strangers see


async def test_outside_the_secured_networks_the_verbs_are_unknown(tmp_path: Path) -> None:
    found = await station(tmp_path, "mx2", ["mx1"], peer={"externally_secured": ["192.0.2.0/24"]})
    try:
        async with talking(found) as client:
            offered = await client.say("EHLO client.example")
            assert "XSHADOW" not in offered
            assert "XQDISCARD" not in offered
            invented = await client.say("XYZZY")
            for command in (
                HELLO,
                "XSHADOW",
                "XQDISCARD 200",
                MAIL,
                RCPT,
                "DATA",
                "MAIL FROM:<a@example.org>",
            ):
                assert await client.say(command) == invented == UNKNOWN
            assert not {"XSHADOW", "XQDISCARD", "MAIL"} & set((await client.say("HELP")).split())
    finally:
        await found.stop()


async def test_to_members_the_verbs_are_offered(holder: Station) -> None:
    async with talking(holder) as client:
        offered = (await client.say("EHLO client.example")).split("|")
        assert {"250-XSHADOW 1 2 3 4 5 6", "250 XQDISCARD"} <= set(offered)
        assert "250-CHUNKING" in offered
        assert not any("STARTTLS" in line for line in offered)


async def test_with_redundancy_disabled_nothing_is_offered(tmp_path: Path) -> None:
    """To a stranger, as ever; members talk all the same."""
    nobody = {"externally_secured": ["192.0.2.0/24"]}
    found = await station(tmp_path, "mx2", ["mx1"], peer=nobody, shadow_redundancy_enabled=False)
    try:
        async with talking(found) as client:
            assert "XSHADOW" not in await client.say("EHLO client.example")
            assert await client.say(HELLO) == UNKNOWN
            assert await client.say(MAIL) == UNKNOWN
    finally:
        await found.stop()


async def test_with_redundancy_disabled_members_still_talk(tmp_path: Path) -> None:
    """They learn by that when it is switched on, and events about copies of before are exchanged. XSHADOW is
    offered to nobody: XQDISCARD names the versions.
    """
    found = await station(tmp_path, "mx2", ["mx1"], shadow_redundancy_enabled=False)
    try:
        async with talking(found) as client:
            offered = (await client.say("EHLO client.example")).split("|")
            assert any(line.startswith("250 XQDISCARD 1 2 3 4") for line in offered)
            assert not any("XSHADOW" in line for line in offered)
            assert (await client.say(HELLO)).startswith("250")
    finally:
        await found.stop()


async def test_on_a_connector_for_senders_the_verbs_are_unknown(holder: Station) -> None:
    client = RawClient(*await asyncio.open_connection("127.0.0.1", holder.port))
    await client.line()
    assert "XSHADOW" not in await client.say("EHLO client.example")
    assert await client.say(HELLO) == UNKNOWN
    assert await client.say("XQDISCARD 200") == UNKNOWN
    assert await client.say(MAIL) == "555 5.5.4 Parameter XSHADOW not recognised"
    await client.close()


# Order and grammar


async def test_commands_out_of_order_and_bad_arguments(holder: Station) -> None:
    async with talking(holder) as client:
        assert await client.say("XQDISCARD 200") == "503 5.5.1 XSHADOW needed first"
        assert await client.say(MAIL) == "503 5.5.1 XSHADOW needed first"
        assert await client.say("XSHADOW") == "501 5.5.4 XSHADOW needs name, database id, mark and lineage"
        assert await client.say(HELLO.replace("mx1", "mx7")) == "550 5.7.1 Not a member"
        assert (await client.say(HELLO)).startswith("250 2.0.0 ")
        bad = await client.say("XQDISCARD many", "XQDISCARD", "XQDISCARD 200 WHAT=ever")
        assert MARK.sub("", bad) == "501 5.5.4 unknown or repeated argument"
        assert MARK.sub("", await client.say("XQDISCARD 200")) == "251 2.0.0 No discard events"
        assert MARK.sub("", await client.say("MAIL FROM:<a@example.org>")) == "501 5.5.4 XSHADOW needed"
        assert MARK.sub("", await client.say("MAIL FROM:<> XSHADOW=x")).startswith("501 5.5.4 XSHADOW needs")
        assert MARK.sub("", await client.say(MAIL)) == "250 2.1.0 Sender OK"
        assert MARK.sub("", await client.say(HELLO)) == "503 5.5.1 A transaction is under way"
        assert MARK.sub("", await client.say("RCPT TO:<b@example.net>")).startswith("501 5.5.4 XFORK needs")


async def test_an_age_of_thousands_of_years_is_an_error_of_its_line(holder: Station) -> None:
    digest = "xxh3-128:00112233445566778899aabbccddeeff"
    aged = f"MAIL FROM:<a@example.org> XSHADOW={MESSAGE};1;1;{incarnation(1)}:0;%d;{digest}"
    async with talking(holder) as client:
        assert (await client.say(f"{HELLO} VERSION=2")).startswith("250 2.0.0 ")
        for years in (1_001, 2_000, 2_026, 2_027, 7_000, 7_983, 9_000, 31_000):
            said = await client.say(aged % (years * 31_556_952_000))
            assert MARK.sub("", said) == "501 5.5.4 bad age"
        assert (await client.say(aged % (999 * 31_556_952_000), RCPT)).startswith("250 ")
        reply = await client.content(b"x\r\n")
        assert reply.startswith("554 5.6.0 "), "the age is no reason"


async def test_before_hello_there_is_no_greeting(holder: Station) -> None:
    client = RawClient(*await asyncio.open_connection("127.0.0.1", holder.peer_port))
    await client.line()
    assert await client.say(HELLO) == "503 5.5.1 Say hello first"
    await client.close()


async def test_every_reply_to_a_member_ends_with_our_mark(holder: Station) -> None:
    async with talking(holder) as client:
        replies = [await client.say(HELLO)]
        for command in (
            "NOOP",
            "XQDISCARD 200",
            f"XQDISCARD 200 REVOKE={MESSAGE};1;1",
            "VRFY b",
            MAIL,
            "RSET",
        ):
            replies.append(await client.say(command))
        replies.append(await client.say("NONSENSE"))
        replies.append(await copy(client, b"\r\nhello\r\n"))
        replies.append(await client.say("QUIT"))
    assert all(MARK.search(reply) for reply in replies), replies
    sequences = [int(reply.rpartition(":")[2]) for reply in replies]
    assert sequences == sorted(sequences)
    # A revoked rank is refused; nothing was tracked.
    assert replies[-2].startswith("451 4.4.0 ")


async def test_an_acknowledgement_is_marked_at_or_after_its_commit(holder: Station) -> None:
    async with talking(holder) as client:
        reply = await copy(client, b"\r\nhello\r\n")
        assert reply.startswith(f"250 2.6.0 {MESSAGE} Queued mail for redundancy {incarnation(2)}:")
        rows = await holder.tracked()
        assert [row["event-id"] for row in rows] == ["HARECEIVE"]
        assert int(reply.rpartition(":")[2]) == 1


async def test_a_member_that_introduces_itself_with_a_broken_lineage_is_noticed(holder: Station) -> None:
    async with talking(holder) as client:
        await copy(client, b"\r\nhello\r\n")
        replaced = HELLO.replace(database_id(1), database_id(7))
        assert (await client.say(replaced)).startswith("250 ")
        (copied,) = await holder.copies()
    assert (copied.role, copied.pending) == (Role.SHADOW, Reason.DATABASE_REPLACED)


# A copy


async def test_a_copy_arrives_octet_for_octet(holder: Station) -> None:
    content = (
        b"Subject: odd\r\n\r\n"
        + bytes(range(256)).replace(b"\r", b"").replace(b"\n", b"")
        + b"\r\n.\r\n..\r\n"
    )
    async with talking(holder) as client:
        assert (await copy(client, content)).startswith("250 ")
    (held,) = await holder.copies()
    assert await holder.octets(held.id) == content
    assert (held.envelope.size, held.envelope.subject) == (len(content), "odd")
    assert (held.role, held.owner, held.rank, held.owner_database) == (
        Role.SHADOW,
        full("mx1"),
        1,
        database_id(1),
    )


async def test_a_copy_may_come_by_data_too(holder: Station) -> None:
    async with talking(holder) as client:
        assert MARK.sub("", await client.say(HELLO, MAIL, RCPT, "DATA")).startswith("354 ")
        client.send(b"Subject: one\r\n\r\n..dot\r\n.\r\n")
        assert (await client.reply()).startswith(f"250 2.6.0 {MESSAGE}")
    assert await holder.octets((await holder.copies())[0].id) == b"Subject: one\r\n\r\n.dot\r\n"


async def test_one_recipient_refused_is_no_copy_at_all(holder: Station) -> None:
    async with talking(holder) as client:
        bad = "RCPT TO:<c@example.net> XFORK=0;inside"
        assert MARK.sub("", await copy(client, b"\r\nhello\r\n", MAIL, RCPT, bad)) == (
            "451 4.5.0 A copy has all its recipients, or is none"
        )
        assert await holder.copies() == []
    async with talking(holder) as client:
        twice = [MAIL, RCPT, RCPT.replace("1;", "2;"), RCPT]
        assert "used twice" in await copy(client, b"\r\nhello\r\n", *twice)
    assert await holder.copies() == []


async def test_recipients_keep_their_numbers_and_their_next_hops(holder: Station) -> None:
    async with talking(holder) as client:
        seventh = "RCPT TO:<c@example.net> NOTIFY=NEVER ORCPT=rfc822;c+2Bd@example.net XFORK=7;out+20side"
        assert (await copy(client, b"\r\nhello\r\n", MAIL, seventh, RCPT)).startswith("250 ")
    (held,) = await holder.copies()
    assert [(one.number, one.address, one.next_hop) for one in held.recipients] == [
        (1, "b@example.net", "inside"),
        (7, "c@example.net", "out side"),
    ]
    assert (held.recipients[1].notify, held.recipients[1].orcpt) == (("NEVER",), "rfc822;c+2Bd@example.net")


async def test_a_body_that_never_ends_leaves_nothing(holder: Station) -> None:
    for size in (10, 200_000):
        async with talking(holder) as client:
            await client.say(HELLO, MAIL, RCPT)
            client.send(b"BDAT %d\r\n" % size + bytes(size))
            await client.reply()
        await eventually(lambda: holder.connectors[0].sessions == 0)
        assert await holder.copies() == []
        assert holder.files() == []


async def test_a_reset_between_chunks_leaves_nothing(holder: Station) -> None:
    async with talking(holder) as client:
        await client.say(HELLO, MAIL, RCPT)
        client.send(b"BDAT 100000\r\n" + bytes(100_000))
        await client.reply()
        assert (await client.say("RSET")).startswith("250 ")
        assert holder.files() == []
        assert (await copy(client, b"\r\nhello\r\n")).startswith("250 ")


async def test_the_same_offer_again_is_taken_again_and_changes_nothing(holder: Station) -> None:
    large = b"Subject: large\r\n\r\n" + b"x" * 100_000 + b"\r\n"
    async with talking(holder) as client:
        for _ in range(3):
            assert (await copy(client, large)).startswith("250 ")
        assert len(holder.files()) == 1
    async with talking(holder) as client:
        assert (await copy(client, large)).startswith("250 ")
    (held,) = await holder.copies()
    assert len(holder.files()) == 1
    assert await holder.octets(held.id) == large


async def test_an_offer_refused_leaves_the_copy_that_is_there(holder: Station) -> None:
    """A later ownership is not overwritten by an earlier one, and its content stays."""
    large = b"Subject: large\r\n\r\n" + b"x" * 100_000 + b"\r\n"
    async with talking(holder) as client:
        later = MAIL.replace(";1;1;", ";3;1;")
        assert (await copy(client, large, later, RCPT)).startswith("250 ")
        assert (await copy(client, large, MAIL, RCPT)).startswith(f"451 4.4.0 {MESSAGE} owned elsewhere")
    (held,) = await holder.copies()
    assert await holder.octets(held.id) == large


async def test_a_revoked_copy_is_dropped_and_refused_for_ever(holder: Station) -> None:
    revoke = f"XQDISCARD 0 REVOKE={MESSAGE};1;1"
    async with talking(holder) as client:
        await copy(client, b"\r\n" + bytes(100_000))
        expected = f"250 2.0.0 - {MESSAGE} 1 rejected *"
        assert MARK.sub("", await client.say(revoke)) == expected
        assert await holder.copies() == []
        assert holder.files() == []
        assert MARK.sub("", await client.say(revoke)) == expected
        assert (await copy(client, b"\r\nhello\r\n")).startswith(f"451 4.4.0 {MESSAGE} revoked")
        assert (await copy(client, b"\r\nhello\r\n", MAIL.replace(";1;1;", ";1;2;"), RCPT)).startswith("250 ")


async def test_with_little_room_a_copy_is_refused_for_now(tmp_path: Path) -> None:
    found = await station(tmp_path, "mx2", ["mx1"], minimum_free_disk=2**50)
    async with talking(found) as client:
        assert MARK.sub("", await client.say(HELLO, MAIL)) == "452 4.3.1 Insufficient system resources"
        # Events and questions are still answered: they free space.
        assert (await client.say("XQDISCARD 200")).startswith("251 ")
    await found.stop()


async def test_a_disk_that_fails_at_the_last_moment_is_a_refusal(
    holder: Station, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full_disk(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("shadowrelay.database.content.os.fsync", full_disk)
    async with talking(holder) as client:
        reply = await copy(client, b"\r\n" + bytes(100_000))
        assert MARK.sub("", reply) == "452 4.3.1 Insufficient system resources"
        assert (await client.say("NOOP")).startswith("250 ")
    assert holder.files() == []
    assert await holder.copies() == []


# While the database is being opened


async def test_a_node_that_is_opening_greets_and_says_and_takes_nothing(holder: Station) -> None:
    async with talking(holder) as client:
        assert (await copy(client, b"\r\nbody\r\n")).startswith("250 2.6.0 ")
        holder.node.opening = True
        assert (await client.say(HELLO)).startswith("250 ")
        other = MESSAGE.replace("0001", "0002", 1)
        question = f"XQDISCARD 0 CHECK={MESSAGE};1,{other};1"
        client.send(f"{question}\r\n".encode())
        answer = [MARK.sub("", await client.line()) for _ in range(2)]
        assert answer == [f"250-2.0.0 - {MESSAGE} 1 pending *", f"250 2.0.0 - {other} 1 pending *"]
        refused = "451 4.3.2 Being opened, ask another member"
        assert MARK.sub("", await copy(client, b"\r\nbody\r\n")) == refused
        holder.node.opening = False
        assert MARK.sub("", await client.say(f"XQDISCARD 0 CHECK={MESSAGE};1")).endswith(" yours *")
        assert len(await holder.copies()) == 1


async def test_so_does_one_that_has_to_mark_what_a_broken_lineage_leaves_behind(holder: Station) -> None:
    """The first part is marked with the greeting, and the others when nobody waits for it."""
    holder.database.ledger.at_once = 1
    async with talking(holder) as client:
        for number in (1, 2, 3):
            mail = MAIL.replace("000000000001;", f"00000000000{number};")
            assert (await copy(client, b"\r\nbody\r\n", mail, RCPT)).startswith("250 2.6.0 ")
        again = HELLO.replace(database_id(1), database_id(3))
        assert (await client.say(again)).startswith("250 ")
        pending = [one.pending for one in await holder.copies()]
        assert pending.count(Reason.DATABASE_REPLACED) == 1
        fresh = MAIL.replace("000000000001;", "000000000009;")
        for mail, answer in ((MAIL, "451 4.3.2 Being opened, ask another member"), (fresh, "250 2.6.0 ")):
            client.send(f"{mail}\r\n{RCPT}\r\nBDAT 2 LAST\r\n\r\n".encode())
            assert [await client.line() for _ in range(3)][-1].startswith(answer)
        holder.run(Chores(holder.database, holder.node.queue.wake.set).run())
        await eventually(lambda: not holder.database.ledger.chores)
        pending = [one.pending for one in await holder.copies()]
        assert pending == [Reason.DATABASE_REPLACED] * 3 + [None]
