"""Back pressure on real nodes: which mail is refused at which level, what waits, and how it ends."""

from __future__ import annotations

import asyncio
import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from receiving import RawClient
from stations import Station, boundary, eventually, settings
from test_member_session import HELLO, MAIL, MARK, talking

from shadowrelay import readings
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


async def look(node: Station, **changes: Any) -> None:
    """Look at the resources, with other settings if they are given, as after a reload."""
    if changes:
        found = settings(node.directory.parent, node.name.partition(".")[0], [], **changes)
        node.node.back_pressure.limits = pressure_limits(found)
    await node.node.back_pressure.look()


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
        await look(node)
        shown = [one.resource.value for one in node.node.pressures()]
        assert shown == ["data_disk", "memory", "queue", "uncommitted"]  # the log is on the same disk
        assert await refused_by(node) == refused
        assert node.node.ready()[0] == ("trusted" not in refused)
        told = node.node.warning() if level == "medium" else node.node.ready()[1]
        assert ("memory" in told) == bool(refused)
        await look(node, **memory("low"))
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
        await look(node)
        assert await refused_by(node) == set()
        await look(node, **pressed)
        assert await refused_by(node) == {"strangers", "trusted", "copies"}
        await look(node, back_pressure=off)
        assert await refused_by(node) == set()
        assert await rows(node) == ["memory: low to full", "memory: full to low"]


def failing_everywhere(_: Path) -> tuple[int, int, int]:
    raise OSError(5, "Input/output error")


async def test_a_disk_that_cannot_be_read_keeps_its_level_and_the_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs = tmp_path / "logs"
    async with boundary(tmp_path, "mx2", "mx1", **OTHERS, tracking={"directory": str(logs)}) as (node, _):

        def failing(directory: Path) -> tuple[int, int, int]:
            if directory == logs:
                raise OSError(5, "Input/output error")
            return disk(directory)

        monkeypatch.setattr(back_pressure, "disk", failing)
        await look(node, **OTHERS, **memory("medium"))
        assert await refused_by(node) == {"strangers"}, "memory counts all the same"
        await look(node, **OTHERS, **memory("low"))
        assert await refused_by(node) == set()
        monkeypatch.setattr(back_pressure, "disk", lambda _: (1, 100, 40))
        await look(node, **OTHERS, **given(data_disk="10/20/15/5", memory="98/99/98/97"))
        assert await refused_by(node) == {"strangers", "trusted"}
        monkeypatch.setattr(back_pressure, "disk", failing_everywhere)
        await look(node, **OTHERS, **given(data_disk="10/20/15/5", memory="98/99/98/97"))
        assert await refused_by(node) == {"strangers", "trusted"}, "what was known last stands"
        await look(node, **OTHERS)
        assert await refused_by(node) == set(), "it is switched off"


@contextmanager
def hanging(place: Path) -> Iterator[None]:
    """A file system there whose server answers nothing; at the end it is gone, and so is whoever waits."""
    place.mkdir(exist_ok=True)
    try:
        server = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        pytest.skip(f"a mount that hangs takes /dev/fuse: {error}")
    with ExitStack() as stack:
        stack.callback(os.close, server)
        how = f"fd={server},rootmode=40000,user_id=0,group_id=0"
        mounting = ["mount", "-i", "-t", "fuse", "-o", how, "hanging", str(place)]
        done = subprocess.run(mounting, capture_output=True, text=True, check=False, pass_fds=[server])
        if done.returncode:
            pytest.skip(f"a mount that hangs takes root: {done.stderr}")
        stack.callback(subprocess.run, ["umount", "-i", "-l", str(place)], check=True)
        yield


def asking() -> int:
    """How many disks are asked now."""
    return [thread.name for thread in threading.enumerate()].count("question")


async def test_a_disk_that_is_asked_leaves_the_loop_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    over = threading.Event()

    def slow(directory: Path) -> tuple[int, int, int]:
        assert over.wait(30), "the loop goes on while a disk is asked"
        return disk(directory)

    marks = given(data_disk="1/2/2/1", memory="98/99/98/97")
    async with boundary(tmp_path, "mx2", "mx1") as (node, _):
        monkeypatch.setattr(readings, "PATIENCE", 90.0)
        monkeypatch.setattr(back_pressure, "disk", slow)
        looking = asyncio.create_task(look(node, **marks))
        asyncio.get_running_loop().call_later(0.1, over.set)
        await looking
        assert await rows(node) == ["data_disk: low to high"]


async def test_a_disk_that_hangs_holds_nothing_up_and_counts_as_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs = tmp_path / "logs"
    told = {**given(memory="98/99/98/97"), "tracking": {"directory": str(logs)}, "minimum_free_disk": "1MiB"}
    async with boundary(tmp_path, "mx2", "mx1", **OTHERS, **told) as (node, _):
        with hanging(logs):
            monkeypatch.setattr(readings, "PATIENCE", 90.0)
            looking = asyncio.create_task(node.node.back_pressure.look())
            await eventually(asking)
            assert await mail_from(node, STRANGER) == SENT
            assert not looking.done(), "the node goes on meanwhile"
            looking.cancel()
            monkeypatch.setattr(readings, "PATIENCE", 0.2)
            for _ in range(3):
                await look(node)
            assert asking() == 1, "it is not asked again before it answers"
            assert await refused_by(node) == {"strangers", "trusted", "copies"}
        monkeypatch.setattr(readings, "PATIENCE", 30.0)
        await eventually(lambda: not asking())
        await look(node)  # hears that the server of the file system is gone
        await look(node)
        assert await refused_by(node) == set()
        assert await rows(node) == ["log_disk: low to full", "log_disk: full to low"]


async def test_memory_that_was_freed_is_given_back_under_pressure(tmp_path: Path) -> None:
    """Its allocator keeps what is freed between what is in use, and that would read as in use for ever."""
    async with boundary(tmp_path, "mx2", "mx1", **OTHERS) as (node, _):
        freed, kept = map(list, zip(*((bytes(60_000), bytes(1_000)) for _ in range(4_000)), strict=True))
        pressed = given(memory="80/90/85/80", memory_limit=int(memory_in_use() / 0.93))
        await look(node, **OTHERS, **pressed)
        assert await refused_by(node) == {"strangers", "trusted"}
        freed.clear()
        await look(node)
        assert await refused_by(node) == set()
        assert len(kept) == 4_000


async def test_a_long_queue_refuses_no_copy_and_no_mail_that_is_settled(tmp_path: Path) -> None:
    async with boundary(tmp_path, "mx2", "mx1", **OTHERS, **given(queue="2/3/2/1")) as (node, _):
        for _ in range(3):
            assert (await sent_by_trusted(node)).startswith("250 ")
        await look(node)
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
        await look(node)
        room = node.node.room
        waits = [asyncio.create_task(mail_from(node, address)) for address in (STRANGER, TRUSTED)]
        await eventually(lambda: room.delayed == 2)
        assert [one.done() for one in waits] == [False, False]
        assert "MAIL waits 10 s" in node.node.warning()
        await look(node, **given(queue="2/9/5/2"))
        assert await asyncio.gather(*waits) == [SENT, SENT]
        assert room.refused[Inflow.OUTSIDE] == 0


async def test_a_data_directory_that_hangs_holds_nothing_up_while_back_pressure_is_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with boundary(tmp_path, "mx2", "mx1", **OTHERS, minimum_free_disk="1MiB") as (node, _):
        with hanging(node.directory):
            monkeypatch.setattr(readings, "PATIENCE", 90.0)
            looking = asyncio.create_task(node.node.back_pressure.look())
            await eventually(asking)
            assert await refused_by(node) == set(), "what was measured last stands"
            assert not looking.done(), "the node goes on meanwhile"
            looking.cancel()
            monkeypatch.setattr(readings, "PATIENCE", 0.2)
            await look(node)
            assert await refused_by(node) == {"strangers", "trusted", "copies"}
            assert "does not say what is free" in node.node.room.shortage
        monkeypatch.setattr(readings, "PATIENCE", 30.0)
        await eventually(lambda: not asking())
        await look(node)  # hears that the server of the file system is gone
        await look(node)
        assert await refused_by(node) == set()


async def test_a_worker_waits_at_its_start_for_the_one_that_asks_the_disk(tmp_path: Path) -> None:
    memory = memoryview(bytearray(readings.SIZE))
    first, second = (readings.ReadingsBoard(memory, number) for number in (1, 2))
    async with boundary(tmp_path, "mx2", "mx1", minimum_free_disk=0) as (node, _):
        pressure, now = node.node.back_pressure, node.node.back_pressure._seconds()
        node.node.room.share(second)
        first.say(readings.WorkerPart(memory=0, queue=0, uncommitted=0), now)
        beginning = asyncio.create_task(pressure.begin())
        await eventually(lambda: second.together().memory > 0)  # it has looked
        assert not node.node.room.admits()
        assert not beginning.done()
        first.measured(5000, now)
        await beginning
        assert node.node.room.admits()


def taken_off(node: Station) -> float:
    """Octets that were written since the last look."""
    free, left = node.node.room.board.room
    return free - left


async def test_what_a_message_takes_counts_before_the_next_look(tmp_path: Path) -> None:
    async with boundary(tmp_path, "mx2", "mx1", **OTHERS, minimum_free_disk=0) as (node, _):
        came = await asyncio.open_connection("127.0.0.1", node.port, local_addr=(TRUSTED, 0))
        client = RawClient(*came)
        await client.reply()
        assert (await client.begin(parameters=" SIZE=1000000")).startswith("250 ")
        assert taken_off(node) == 0, "who only says how much will come keeps nobody out"
        assert (await client.content(MESSAGE)).startswith("250 ")
        await client.close()
        await eventually(lambda: node.connectors[1].sessions == 0)
        assert taken_off(node) >= len(MESSAGE)
        await look(node)
        assert taken_off(node) == 0


async def test_what_a_copy_takes_counts_before_the_next_look(tmp_path: Path) -> None:
    patience = {"shadow_attempt_timeout": "30s", "shadow_time_cap": "60s"}
    async with boundary(tmp_path, "mx2", "mx1", **OTHERS, **patience) as (owner, holder):
        assert (await sent_by_trusted(owner)).startswith("250 ")
        assert await holder.rows("message") == 1
        assert taken_off(holder) >= len(MESSAGE)
        await look(holder)
        assert taken_off(holder) == 0
