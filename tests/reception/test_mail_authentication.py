"""SPF, DKIM, DMARC, ARC and greylisting are a filter's work: rspamd, with a name server of ours."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import pytest
from loopback_dns import LoopbackDns
from receiving import RawClient
from sending import sender
from stations import Station, boundary, eventually

from shadowlab.ports import free_ports
from tests.neighbours.rspamd import NEEDED, REDIS, DkimKey, Instance, redis, rspamd

pytestmark = NEEDED


def dated(at: datetime) -> bytes:
    return f"Date: {format_datetime(at)}".encode()


LETTER = (
    b"From: Ann <ann@example.org>\r\nTo: b@example.net\r\nSubject: a letter\r\n"
    + dated(datetime.now(UTC))  # rspamd counts a date of another day
    + b"\r\nMessage-ID: <1@example.org>\r\n\r\n"
    b"Dear B,\r\n\r\nthis is a letter.\r\n"
)
ITS_OWN, ANOTHER = (
    "192.0.2.7",
    "192.0.2.8",
)  # hosts: the one that sends for example.org, and one that does not
MODULES = """
spf {{ }}
dkim {{ }}
dmarc {{ actions {{ reject = "reject"; }} }}
arc {{
  sign_inbound = true;
  use_domain = "recipient";
  allow_hdrfrom_mismatch = true;
  try_fallback = false;
  domain {{ "example.net" {{ path = "{key}"; selector = "s1"; }} }}
}}
milter_headers {{
  use = ["authentication-results"];
  routines {{ authentication-results {{ add_smtp_user = false; }} }}
}}
"""
GREYLIST = """
redis {{ servers = "127.0.0.1:{redis}"; }}
greylist {{ timeout = 1s; }}
actions {{ greylist = 3; }}
"""
GREY = re.sub(rb"Date: [^\r]+", dated(datetime.now(UTC) + timedelta(days=9)), LETTER)  # 4 points


def spoken(record: bytes) -> str:
    """A text of any length as a TXT record has it."""
    text = record.decode()
    return " ".join(f'"{text[at : at + 200]}"' for at in range(0, len(text), 200))


def zone(key: DkimKey) -> dict[tuple[str, str], Any]:
    public = [spoken(key.record)]
    return {
        ("example.org", "TXT"): [f'"v=spf1 ip4:{ITS_OWN} -all"'],
        ("_dmarc.example.org", "TXT"): ['"v=DMARC1; p=none"'],
        ("strict.example", "TXT"): ['"v=spf1 -all"'],
        ("_dmarc.strict.example", "TXT"): ['"v=DMARC1; p=reject"'],
        ("s1._domainkey.example.org", "TXT"): public,
        ("s1._domainkey.example.net", "TXT"): public,
    }


@asynccontextmanager
async def running(*instances: Instance) -> AsyncIterator[None]:
    """Beside the name server, which this very loop is."""
    try:
        for one in instances:
            await asyncio.to_thread(one.start)
        yield
    finally:
        for one in instances:
            await asyncio.to_thread(one.kill)


def asks(instance: Instance) -> dict[str, Any]:
    receive = {"filters": {"rspamd": {"address": instance.address}}, "xclient_networks": ["127.0.0.0/8"]}
    strict = {"reject_message_on_shadow_failure": True, "shadow_attempt_timeout": "10s"}
    return {"receive": receive, "accepted_domains": ["example.net"], **strict}


async def sent_by(client: RawClient, address: str, content: bytes) -> str:
    """The reply to a letter of the client with that address, wherever it is refused."""
    assert (await client.say(f"XCLIENT ADDR={address}")).startswith("220 ")
    said = await client.begin()
    return await client.content(content) if said.startswith("250 ") else said


async def newest(owner: Station, holder: Station) -> bytes:
    """The octets that both nodes have."""
    ours, held = (await owner.copies())[-1], (await holder.copies())[-1]
    octets = await owner.octets(ours.id)
    assert (held.id, await holder.octets(held.id)) == (ours.id, octets)
    return octets


def results(octets: bytes) -> dict[str, str]:
    """What Authentication-Results says by each method. There is one such field."""
    head = octets.partition(b"\r\n\r\n")[0].decode()
    (field,) = re.findall(r"^Authentication-Results:(.*(?:\n[ \t].*)*)", head, re.MULTILINE)
    return dict(re.findall(r"\b(spf|dkim|dmarc|arc)=(\w+)", field))


def seals(octets: bytes, key: DkimKey) -> tuple[str, int]:
    """What dkimpy says of the chain of seals, and how many there are."""
    import dkim

    chain, found, why = dkim.arc_verify(octets, dnsfunc=lambda *_, **__: key.record)
    assert chain == b"pass", why
    return chain.decode(), len(found)


@pytest.fixture
async def judged(tmp_path: Path) -> AsyncIterator[tuple[Station, Station, DkimKey, LoopbackDns]]:
    key = DkimKey(tmp_path)
    async with LoopbackDns(zone(key)) as names:
        modules = MODULES.format(key=key.path)
        instance = rspamd(tmp_path, *free_ports(1), key, modules=modules, names=names.port)
        async with running(instance), boundary(tmp_path, "mx1", "mx2", **asks(instance)) as (owner, holder):
            yield owner, holder, key, names


Judged = tuple[Station, Station, DkimKey, LoopbackDns]


async def test_the_client_that_xclient_names_is_judged_and_what_was_found_is_sealed(judged: Judged) -> None:
    import dkim

    owner, holder, key, names = judged
    signature = dkim.sign(LETTER, b"s1", b"example.org", key.path.read_bytes())
    async with sender(owner) as client:
        assert (await sent_by(client, ITS_OWN, signature + LETTER)).startswith("250 ")
        octets = await newest(owner, holder)
        assert results(octets) == {"spf": "pass", "dkim": "pass", "dmarc": "pass"}
        assert f"designates {ITS_OWN} as permitted sender".encode() in octets
        assert seals(octets, key) == ("pass", 1)
        assert names.count("_dmarc.example.org", "TXT") == 1

        # Somebody else forwards it as it came from here: the seal is found good, and another one is set.
        forwarded = octets.replace(b"Authentication-Results: default;", b"X-Results:", 1)
        assert (await sent_by(client, ANOTHER, forwarded)).startswith("250 ")
        octets = await newest(owner, holder)
        assert results(octets) == {"spf": "fail", "dkim": "pass", "dmarc": "pass", "arc": "pass"}
        assert seals(octets, key) == ("pass", 2)


async def test_who_is_not_allowed_to_send_for_a_domain_is_found_out_and_refused_if_it_says_so(
    judged: Judged,
) -> None:
    owner, holder, _, _ = judged
    async with sender(owner) as client:
        assert (await sent_by(client, ANOTHER, LETTER)).startswith("250 ")
        forged = await newest(owner, holder)
        assert results(forged) == {"spf": "fail", "dkim": "none", "dmarc": "fail"}
        strict = LETTER.replace(b"ann@example.org", b"ann@strict.example")
        refused = await sent_by(client, ANOTHER, strict)
        assert refused.startswith("554 5.7.1 ")
        assert len(await owner.copies()) == len(await holder.copies()) == 1


@pytest.mark.skipif(REDIS is None, reason="there is no redis-server (apt-get install redis-server)")
async def test_who_is_not_known_is_put_off_and_taken_when_it_comes_again(tmp_path: Path) -> None:
    key = DkimKey(tmp_path)
    store, listens = free_ports(2)
    modules = GREYLIST.format(redis=store)
    instance = rspamd(tmp_path, listens, key, modules=modules)
    async with (
        running(redis(tmp_path, store), instance),
        boundary(tmp_path, "mx1", "mx2", **asks(instance)) as (owner, holder),
        sender(owner) as client,
    ):
        assert await sent_by(client, ITS_OWN, GREY) == "451 4.7.1 Try again later"
        assert await owner.copies() == await holder.copies() == []

        async def taken() -> bool:
            said = await sent_by(client, ITS_OWN, GREY)
            assert said[:9] in ("451 4.7.1", "250 2.6.0"), said
            return said.startswith("250 ")

        await eventually(taken)
        assert (await newest(owner, holder)).endswith(GREY.partition(b"\r\n\r\n")[2])
