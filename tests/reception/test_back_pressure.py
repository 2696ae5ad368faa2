"""Back pressure on real nodes: which mail is refused at which level, what waits, and how it ends."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from receiving import RawClient
from stations import Station, boundary, eventually, settings
from test_member_session import HELLO, MAIL, MARK, talking

from shadowrelay.core.pressure import Inflow
from shadowrelay.readings import disk, memory_in_use
from shadowrelay.reception import back_pressure
from shadowrelay.service.adapters import pressure_limits

REFUSED = "452 4.3.1 Insufficient system resources"
SENT = "250 2.1.0 Sender OK"
MESSAGE = b"Subject: x\r\n\r\nbody\r\n"
STRANGER, TRUSTED = "127.0.0.1", "127.0.0.2"
OTHERS = {"relay_networks": [f"{TRUSTED}/32"]}
SHARES = {"low": 0.04, "medium": 0.15, "high": 0.4, "full": 0.9}
"""Of the limit that the node is given, in memory. The levels begin at 10, 20 and 60 percent, and end at 5,
15 and 20.
"""


def given(**marks: Any) -> dict[str, Any]:
    return {"back_pressure": {"enabled": True, **marks}}


def memory(level: str) -> dict[str, Any]:
    """Settings with which the memory that the process really has comes to that level."""
    return given(memory="10/20/15/5", memory_limit=int(memory_in_use() / SHARES[level]))


def look(node: Station, **changes: Any) -> None:
    """Look at the resources, with other settings if they are given, as after a reload."""
    if changes:
        found = settings(node.directory.parent, node.name.partition(".")[0], [], **changes)
        node.node.back_pressure.limits = pressure_limits(found)
    node.node.back_pressure.look()


async def mail_from(node: Station, address: str) -> str:
    """The reply to MAIL, for a client with that address."""
    came = await asyncio.open_connection("127.0.0.1", node.port, local_addr=(address, 0))
    client = RawClient(*came)
    try:
        await client.reply()
        await client.say("EHLO client.example")
        return await client.say("MAIL FROM:<a@example.org>")
    finally:
        await client.close()


async def refused_by(node: Station) -> set[str]:
    """What the node refuses now."""
    replies = {"strangers": await mail_from(node, STRANGER), "trusted": await mail_from(node, TRUSTED)}
    async with talking(node) as member:
        replies["copies"] = MARK.sub("", await member.say(HELLO, MAIL))
    assert all(reply == REFUSED or reply.startswith("250 ") for reply in replies.values()), replies
    return {who for who, reply in replies.items() if reply == REFUSED}


async def rows(node: Station) -> list[str]:
    found = [row for row in await node.tracked() if row["event-id"] == "BACKPRESSURE"]
    return [row["source-context"] for row in found]


@pytest.mark.parametrize(
    ("level", "refused"),
    [
        ("low", set()),
        ("medium", {"strangers"}),
        ("high", {"strangers", "trusted"}),
        ("full", {"strangers", "trusted", "copies"}),
    ],
)
async def test_strangers_are_refused_first_and_copies_of_members_last(
    tmp_path: Path, level: str, refused: set[str]
) -> None:
    async with boundary(tmp_path, "mx2", "mx1", **OTHERS, **memory(level)) as (node, _):
        node.node.connectors = node.connectors[1:]
        look(node)
        assert await refused_by(node) == refused
        assert node.node.ready()[0] == ("trusted" not in refused)
        told = node.node.warning() if level == "medium" else node.node.ready()[1]
        assert ("memory" in told) == bool(refused)
        look(node, **memory("low"))
        assert await refused_by(node) == set()
        assert node.node.ready()[0]
        if refused:
            assert await rows(node) == [f"memory: low to {level}", f"memory: {level} to low"]
        else:
            assert await rows(node) == []


async def test_without_the_setting_nothing_is_looked_at_and_taking_it_away_ends_the_pressure(
    tmp_path: Path,
) -> None:
    pressed, off = memory("full"), {**memory("full")["back_pressure"], "enabled": False}
    async with boundary(tmp_path, "mx2", "mx1", **OTHERS, back_pressure=off) as (node, _):
        look(node)
        assert await refused_by(node) == set()
        look(node, **pressed)
        assert await refused_by(node) == {"strangers", "trusted", "copies"}
        look(node, back_pressure=off)
        assert await refused_by(node) == set()
        assert await rows(node) == ["memory: low to full", "memory: full to low"]


def failing_everywhere(_: Path) -> tuple[int, int, int]:
    raise OSError(5, "Input/output error")


async def test_a_disk_that_cannot_be_read_keeps_its_level_and_the_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with boundary(tmp_path, "mx2", "mx1", **OTHERS) as (node, _):
        log_directory = node.node.back_pressure._log_directory

        def failing(directory: Path) -> tuple[int, int, int]:
            if directory == log_directory:
                raise OSError(5, "Input/output error")
            return disk(directory)

        monkeypatch.setattr(back_pressure, "disk", failing)
        look(node, **OTHERS, **memory("medium"))
        assert await refused_by(node) == {"strangers"}, "memory counts all the same"
        look(node, **OTHERS, **memory("low"))
        assert await refused_by(node) == set()
        monkeypatch.setattr(back_pressure, "disk", lambda _: (1, 100, 40))
        look(node, **OTHERS, **given(data_disk="10/20/15/5", memory="98/99/98/97"))
        assert await refused_by(node) == {"strangers", "trusted"}
        monkeypatch.setattr(back_pressure, "disk", failing_everywhere)
        look(node, **OTHERS, **given(data_disk="10/20/15/5", memory="98/99/98/97"))
        assert await refused_by(node) == {"strangers", "trusted"}, "what was known last stands"
        look(node, **OTHERS)
        assert await refused_by(node) == set(), "it is switched off"


async def test_a_long_queue_refuses_no_copy_and_no_mail_that_is_settled(tmp_path: Path) -> None:
    async with boundary(tmp_path, "mx2", "mx1", **OTHERS, **given(queue="2/3/2/1")) as (node, _):
        for _ in range(3):
            assert (await sent_by_trusted(node)).startswith("250 ")
        look(node)
        assert await refused_by(node) == {"strangers", "trusted"}
        assert await rows(node) == ["queue: low to high"]


async def sent_by_trusted(node: Station) -> str:
    came = await asyncio.open_connection("127.0.0.1", node.port, local_addr=(TRUSTED, 0))
    client = RawClient(*came)
    try:
        await client.reply()
        assert (await client.begin()).startswith("250 ")
        return await client.content(MESSAGE)
    finally:
        await client.close()


async def test_while_a_queue_is_long_mail_waits_and_goes_on_as_soon_as_it_is_over(tmp_path: Path) -> None:
    async with boundary(tmp_path, "mx2", "mx1", **OTHERS, **given(queue="1/9/5/1")) as (node, _):
        assert (await sent_by_trusted(node)).startswith("250 ")
        look(node)
        room = node.node.room
        waits = [asyncio.create_task(mail_from(node, address)) for address in (STRANGER, TRUSTED)]
        await eventually(lambda: room.delayed == 2)
        assert [one.done() for one in waits] == [False, False]
        assert "MAIL waits 10 s" in node.node.warning()
        look(node, **given(queue="2/9/5/2"))
        assert await asyncio.gather(*waits) == [SENT, SENT]
        assert room.refused[Inflow.OUTSIDE] == 0
