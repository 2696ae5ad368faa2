"""Debian's Postfix as one of several hosts of a route, and as the MX that a real name server tells of."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from loopback_dns import LoopbackDns
from neighbourhood import NOBODY, arrived, port, room
from scripted_hop import ScriptedHop
from sending import MESSAGE, sent
from stations import Station, eventually, station

from shadowrelay.core.messages import Stage
from tests.neighbours import postfix
from tests.neighbours.postfix import Postfix

pytestmark = [
    pytest.mark.lab,
    pytest.mark.slow,
    pytest.mark.skipif(postfix.missing() is not None, reason=str(postfix.missing())),
]


@contextmanager
def neighbour() -> Iterator[tuple[Postfix, int, Path]]:
    """Postfix, which takes mail for b@example.net; its port, and where the mail ends."""
    with room() as directory:
        mailboxes, at = directory / "mail", port()
        mailboxes.mkdir()
        os.chown(mailboxes, NOBODY, NOBODY)
        known = directory / "mailboxes"
        known.write_text("b@example.net example.net/b/\n", "utf-8")
        ours: dict[str, object] = {
            "virtual_mailbox_domains": "example.net",
            "virtual_mailbox_limit": 0,
            "virtual_mailbox_base": mailboxes,
            "virtual_mailbox_maps": f"texthash:{known}",
            "virtual_uid_maps": f"static:{NOBODY}",
            "virtual_gid_maps": f"static:{NOBODY}",
        }
        with postfix.running(directory / "postfix", at, {**postfix.QUICK_RETRIES, **ours}) as instance:
            yield instance, at, mailboxes


def kept(mailboxes: Path) -> int:
    return sum(map(len, arrived(mailboxes).values()))


async def settled(found: Station) -> bool:
    return all(copy.stage is Stage.SAFETY_NET for copy in await found.copies())


async def send(found: Station, count: int) -> None:
    for _ in range(count):
        await sent(found, MESSAGE, "b@example.net")


async def test_postfix_has_its_share_among_several_hosts_and_its_end_delays_nothing(tmp_path: Path) -> None:
    with neighbour() as (instance, at, mailboxes):
        async with ScriptedHop() as other:
            dead = port()
            hosts = [f"127.0.0.1:{one}" for one in (dead, at, other.port)]
            routes: dict[str, Any] = {"out": {"domains": ["*"], "hosts": hosts, "tls": "none"}}
            found = await station(tmp_path, "mx1", [], routes=routes)
            found.run_queue()
            try:
                await send(found, 60)
                await eventually(lambda: settled(found), within=30)
                taken = 60 - len(other.contents)
                await eventually(lambda: kept(mailboxes) == taken, within=30)
                assert 15 < taken < 45
                await asyncio.to_thread(instance.kill)
                await send(found, 20)
                await eventually(lambda: settled(found), within=30)
                assert len(other.contents) == 60 - taken + 20
                assert "DEFER" not in await found.events()
            finally:
                await asyncio.to_thread(instance.start)  # so that it can be stopped
                await found.stop()


async def test_postfix_is_the_mx_that_a_name_server_tells_of(tmp_path: Path) -> None:
    with neighbour() as (_, at, mailboxes):
        zone: dict[tuple[str, str], Any] = {
            ("example.net", "MX"): ["10 gone.example.net.", "20 dead.example.net.", "30 mail.example.net."],
            ("dead.example.net", "A"): ["127.0.0.9"],
            ("mail.example.net", "CNAME"): ["host.example.net."],
            ("host.example.net", "A"): ["127.0.0.1"],
        }
        async with LoopbackDns(zone) as server:
            routes: dict[str, Any] = {"world": {"domains": ["*"], "mx": True, "port": at, "tls": "none"}}
            found = await station(tmp_path, "mx1", [], routes=routes, dns=server.setting)
            found.run_queue()
            try:
                await send(found, 20)
                await eventually(lambda: settled(found), within=30)
                await eventually(lambda: kept(mailboxes) == 20, within=30)
                rows = [row for row in await found.tracked() if row["event-id"] == "SENDEXTERNAL"]
                assert {row["server-hostname"] for row in rows} == {f"mail.example.net:{at}"}
                assert "DEFER" not in await found.events()
            finally:
                await found.stop()
