"""Debian's rspamd and OpenDKIM as filters of real nodes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import pytest
from scripted_hop import ScriptedHop, original
from sending import sender, sent
from stations import Station, boundary, eventually

from shadowlab.ports import free_ports
from shadowrelay.core.messages import FOREVER, Role
from tests.neighbours.rspamd import GTUBE, NEEDED, DkimKey, Instance, opendkim, rspamd, started

pytestmark = NEEDED

STRICT: dict[str, Any] = {"reject_message_on_shadow_failure": True, "shadow_attempt_timeout": "10s"}
LETTER = (
    b"From: Ann <ann@example.org>\r\nTo: b@example.net\r\nSubject: a letter\r\n"
    b"Date: " + format_datetime(datetime.now(UTC)).encode() + b"\r\n"  # rspamd counts one of another day
    b"Message-ID: <1@example.org>\r\n\r\n"
    b"Dear B,\r\n\r\nthis is a letter.\r\n"
)
BINARY = LETTER + (bytes(range(14, 256)) + b"\r\n") * 3000


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> DkimKey:
    return DkimKey(tmp_path_factory.mktemp("key"))


@pytest.fixture(scope="module")
def signing(tmp_path_factory: pytest.TempPathFactory, key: DkimKey) -> Iterator[Instance]:
    (port,) = free_ports(1)
    with started(rspamd(tmp_path_factory.mktemp("rspamd"), port, key)) as made:
        yield made


def asks(*filters: Instance, **changes: Any) -> dict[str, Any]:
    tables = {f"f{at}": {"address": one.address, **changes} for at, one in enumerate(filters)}
    return {"receive": {"filters": tables}, **STRICT}


async def both(owner: Station, holder: Station) -> bytes:
    """The octets of the newest message, which both nodes have."""
    ours, held = (await owner.copies())[-1], (await holder.copies())[-1]
    assert (ours.role, held.role, held.digests) == (Role.PRIMARY, Role.SHADOW, ours.digests)
    octets = await owner.octets(ours.id)
    assert await holder.octets(held.id) == octets
    return octets


@pytest.mark.parametrize("content", [LETTER, BINARY], ids=["letter", "large"])
async def test_what_rspamd_signs_is_what_both_nodes_have_and_what_is_delivered(
    tmp_path: Path, signing: Instance, key: DkimKey, content: bytes
) -> None:
    async with ScriptedHop() as hop:
        way = {"domains": ["*"], "host": "127.0.0.1", "port": hop.port, "tls": "none"}
        told = asks(signing) | {"routes": {"out": way}}
        async with boundary(tmp_path, "mx1", "mx2", **told) as (owner, holder):
            assert (await sent(owner, content)).startswith("250 ")
            octets = await both(owner, holder)
            assert octets.endswith(content.partition(b"\r\n\r\n")[2])
            assert octets.count(b"DKIM-Signature: ") == 1
            assert key.verifies(octets)
            owner.run_queue()
            await eventually(lambda: hop.contents)
            assert original(hop.contents[0]) == octets
        assert not key.verifies(octets.replace(b"a letter", b"another letter"))


async def test_spam_is_refused_and_what_has_to_wait_is_put_off_in_the_words_of_rspamd(
    tmp_path: Path, signing: Instance
) -> None:
    async with boundary(tmp_path, "mx1", "mx2", **asks(signing)) as (owner, holder):
        assert (await sent(owner, LETTER + GTUBE + b"\r\n")).startswith("554 5.7.1 ")
        later = LETTER.replace(b"a letter", b"later")
        assert await sent(owner, later) == "451 4.7.1 Try again later"
        assert await owner.copies() == await holder.copies() == []


async def test_what_rspamd_quarantines_is_suspended_on_both_nodes(tmp_path: Path, key: DkimKey) -> None:
    (port,) = free_ports(1)
    with started(rspamd(tmp_path, port, key, "quarantine_on_reject = true;")) as instance:
        async with boundary(tmp_path, "mx1", "mx2", **asks(instance)) as (owner, holder):
            assert (await sent(owner, LETTER + GTUBE + b"\r\n")).startswith("250 ")
            for one in (owner, holder):
                (copy,) = await one.copies()
                assert [each.suspended for each in copy.recipients] == [FOREVER]


async def test_opendkim_verifies_what_rspamd_signed_one_behind_the_other(
    tmp_path: Path, signing: Instance, key: DkimKey
) -> None:
    (port,) = free_ports(1)
    with started(opendkim(tmp_path, port, key, "v")) as verifying:
        async with boundary(tmp_path, "mx1", "mx2", **asks(signing, verifying)) as (owner, holder):
            assert (await sent(owner, LETTER)).startswith("250 ")
            octets = await both(owner, holder)
            result = octets.partition(b"Authentication-Results: ")[2].partition(b"\r\n\r\n")[0]
            assert b"dkim=pass" in result
            assert key.verifies(octets)
        async with boundary(tmp_path / "unsigned", "mx1", "mx2", **asks(verifying)) as (owner, holder):
            assert (await sent(owner, LETTER)).startswith("250 ")
            assert b"dkim=none" in await both(owner, holder)


async def test_opendkim_signs_every_octet_of_header_and_body_as_they_are(
    tmp_path: Path, key: DkimKey
) -> None:
    """Its canonicalization is ``simple``: one space more or less, and the signature is wrong."""
    odd = LETTER.replace(b"Subject: a letter", b"Subject:  a\r\n\tletter ").replace(b"To:", b"to:\t")
    (port,) = free_ports(1)
    with started(opendkim(tmp_path, port, key, "s")) as instance:
        async with boundary(tmp_path, "mx1", "mx2", **asks(instance)) as (owner, holder):
            for content in (LETTER, odd):
                assert (await sent(owner, content)).startswith("250 ")
                octets = await both(owner, holder)
                assert octets.endswith(content)
                assert key.verifies(octets)


@pytest.mark.parametrize("when_down", ["tempfail", "accept"])
async def test_rspamd_is_killed_in_a_flood_and_policy_says_what_becomes_of_mail(
    tmp_path: Path, key: DkimKey, when_down: str
) -> None:
    """Acknowledged is what both nodes have: signed, or with a row that says that it is not."""
    (port,) = free_ports(1)
    with started(rspamd(tmp_path, port, key)) as instance:
        told = asks(instance, when_down=when_down)
        async with boundary(tmp_path, "mx1", "mx2", **told) as (owner, holder):
            replies: dict[str, str] = {}
            killed = asyncio.Event()

            async def one_after_the_other(which: int) -> None:
                """Twenty messages; the filter dies when twenty of all have been answered."""
                for number in range(20):
                    name = f"{which}-{number}"
                    content = LETTER.replace(b"<1@", b"<%s@" % name.encode())
                    async with sender(owner) as client:
                        said = await client.begin("b@example.net")
                        replies[name] = await client.content(content) if said.startswith("250") else said
                    if len(replies) >= 20 and not killed.is_set():
                        killed.set()
                        await asyncio.to_thread(instance.kill)

            await asyncio.gather(*[one_after_the_other(which) for which in range(5)])
            assert len(replies) == 100
            kept = {copy.envelope.message_id: copy for copy in await owner.copies()}
            held = {copy.id for copy in await holder.copies()}
            rows = {
                row["network-message-id"]: row["custom-data"]
                for row in await owner.tracked()
                if row["event-id"] == "RECEIVE"
            }
            taken = {name for name, said in replies.items() if said.startswith("250 ")}
            assert {f"<{name}@example.org>" for name in taken} == set(kept)
            unsigned = 0
            for copy in kept.values():
                assert copy.id in held
                signed = key.verifies(await owner.octets(copy.id))
                assert signed is not ("S:Unfiltered=f0" in rows[copy.id])
                unsigned += not signed
            if when_down == "accept":
                assert len(taken) == 100
                assert unsigned >= 20
            else:
                assert unsigned == 0
                assert 20 <= len(taken) < 100
                assert {said[:9] for said in replies.values() if said[:4] != "250 "} <= {
                    "451 4.7.1",
                    "503 5.5.1",
                }
            instance.start()
            assert (await sent(owner, LETTER)).startswith("250 ")
            assert key.verifies(await both(owner, holder))
