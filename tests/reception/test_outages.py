"""A boundary of two whose other member is away for a moment, while mail comes in: what senders are told."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from receiving import RawClient
from sending import MESSAGE, sender, sent
from stations import Station, boundary, eventually
from ways import Way, way

from shadowrelay.core.identifiers import ServerName
from shadowrelay.members import boundary as known_members
from shadowrelay.members.pool import Members
from shadowrelay.smtp.members.client import MemberConnection

AS_DOCUMENTED: dict[str, Any] = {
    "shadow_attempt_timeout": "10s",
    "shadow_time_cap": "45s",
    "shadow_retry_interval": "500ms",
    "member_skip_interval": "10s",
    "shadow_heartbeat_frequency": "2m",
    "discard_poll_interval": "1s",
}
POLICIES = pytest.mark.parametrize("reject", [False, True], ids=["exposed", "rejected"])
LARGE = b"Subject: large\r\n\r\n" + (b"x" * 70 + b"\r\n") * 5000


@dataclass
class Load:
    """Senders that send one message after the other. ``told``: when each was answered, and what.

    ``exposed`` is known when all of them have ended.
    """

    owner: Station
    content: bytes = MESSAGE
    told: list[tuple[float, str]] = field(default_factory=list)
    exposed: list[float] = field(default_factory=list)  # when accepted without a second copy
    over: bool = False

    async def send(self) -> None:
        while not self.over:
            async with sender(self.owner) as client:
                while not self.over and await self._one(client):
                    pass

    async def _one(self, client: RawClient) -> bool:
        assert (await client.begin()).startswith("250 ")
        reply = await client.content(self.content)
        self.told.append((time.time(), reply[:3]))
        return bool(reply)

    def went_on(self, before: int) -> bool:
        return len(self.told) >= before + 40

    @property
    def failed(self) -> list[float]:
        return [at for at, reply in self.told if reply != "250"]


async def exposed(owner: Station) -> list[float]:
    """When messages were accepted without a second copy."""
    rows = [row for row in await owner.tracked() if row["event-id"] == "HAREDIRECTFAIL"]
    stamps = (datetime.fromisoformat(row["date-time"].replace("Z", "+00:00")) for row in rows)
    return [stamp.astimezone(UTC).timestamp() for stamp in stamps]


@asynccontextmanager
async def under_load(
    directory: Path, *, reject: bool, content: bytes = MESSAGE, senders: int = 8
) -> AsyncIterator[tuple[Load, Way]]:
    changes = AS_DOCUMENTED | {"reject_message_on_shadow_failure": reject}
    async with (
        boundary(directory, "mx1", "mx2", **changes) as (owner, holder),
        way(holder.peer_port) as there,
    ):
        owner.knows(replace(holder, peer_port=there.port))
        for one in (owner, holder):
            one.run_links()
        owner.run_repair()
        load = Load(owner, content)
        async with asyncio.TaskGroup() as group:
            for _ in range(senders):
                group.create_task(load.send())
            await eventually(lambda: bool(load.told), within=30)
            yield load, there
            load.over = True
        load.exposed = await exposed(owner)


@pytest.mark.parametrize(("site", "attempts"), [("default", 2), ("elsewhere", 4)])
async def test_the_only_member_is_tried_as_often_as_documented_with_pauses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, site: str, attempts: int
) -> None:
    quick = AS_DOCUMENTED | {"reject_message_on_shadow_failure": True, "shadow_retry_interval": "100ms"}
    async with boundary(tmp_path, "mx1", "mx2", **quick) as (owner, holder):
        members, dialled = owner.node.members, []
        known = owner.node.boundary
        known.places = tuple(replace(one, site=site) for one in known.places)
        owner.knows(replace(holder, peer_port=1))
        dial = members.dial

        async def counted(name: ServerName, timeout: float) -> MemberConnection:
            dialled.append(time.monotonic())
            return await dial(name, timeout)

        monkeypatch.setattr(members, "dial", counted)
        assert (await sent(owner, MESSAGE)).startswith("451 ")
        assert len(dialled) == attempts
        assert all(later - sooner >= 0.1 for sooner, later in pairwise(dialled))
        for _ in range(2):  # all that was in vain: it is asked for every message, and waited for no more
            dialled.clear()
            assert (await sent(owner, MESSAGE)).startswith("451 ")
            assert len(dialled) == 1
        known.called(holder.name, time.monotonic())  # it is back, and cannot be reached again
        dialled.clear()
        assert (await sent(owner, MESSAGE)).startswith("451 ")
        assert len(dialled) == attempts


@dataclass
class Mute:
    """A boundary of two whose other member takes connections and answers none. ``dialled``: how often."""

    owner: Station
    holder: Station
    answering: asyncio.Event
    dialled: list[float]

    async def events(self) -> list[str]:
        """Which of the two became of each message so far."""
        return [event for event in await self.owner.events() if event.startswith("HAREDIRECT")]


@asynccontextmanager
async def mute_holder(
    directory: Path, monkeypatch: pytest.MonkeyPatch, *, reject: bool
) -> AsyncIterator[Mute]:
    """A first message was tried in vain. From now on a try to reach the member takes an hour."""
    changes = AS_DOCUMENTED | {"shadow_attempt_timeout": "1s", "reject_message_on_shadow_failure": reject}
    async with (
        boundary(directory, "mx1", "mx2", **changes) as (owner, holder),
        way(holder.peer_port) as there,
    ):
        found = Mute(owner, holder, asyncio.Event(), [])
        there.mute = found.answering
        owner.knows(replace(holder, peer_port=there.port))
        assert (await sent(owner, MESSAGE)).startswith("451 " if reject else "250 ")
        dial = owner.node.members.dial

        async def counted(name: ServerName, timeout: float) -> MemberConnection:
            found.dialled.append(time.monotonic())
            return await dial(name, timeout)

        monkeypatch.setattr(owner.node.members, "dial", counted)
        monkeypatch.setattr(Members, "_timeout", 3600.0)
        monkeypatch.setattr(known_members, "SECOND_CHANCE", 3600.0)
        yield found
        found.answering.set()


@pytest.mark.parametrize("content", [MESSAGE, LARGE], ids=["small", "streams"])
async def test_a_message_that_may_do_without_a_copy_waits_for_no_member_that_is_not_heard_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes
) -> None:
    async with mute_holder(tmp_path, monkeypatch, reject=False) as found, asyncio.timeout(30):
        for _ in range(5):
            assert (await sent(found.owner, content)).startswith("250 ")
        assert await found.events() == ["HAREDIRECTFAIL"] * 6
        assert len(found.dialled) == 1, "they share the try, which goes on beside them"
        found.answering.set()
        known = found.owner.node.boundary
        await eventually(lambda: known.watches[found.holder.name].contact_at is not None, within=30)
        assert (await sent(found.owner, content)).startswith("250 ")
        assert (await found.events())[6:] == ["HAREDIRECT"]


async def test_no_message_is_refused_before_an_attempt_of_its_own_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with mute_holder(tmp_path, monkeypatch, reject=True) as found, asyncio.timeout(30):
        tasks = [asyncio.create_task(sent(found.owner, MESSAGE)) for _ in range(5)]
        await eventually(lambda: len(found.dialled) == 5, within=30)
        assert not any(task.done() for task in tasks)
        found.answering.set()
        assert [reply[:4] for reply in await asyncio.gather(*tasks)] == ["250 "] * 5
        assert await found.events() == ["HAREDIRECT"] * 5


@POLICIES
@pytest.mark.parametrize("content", [MESSAGE, LARGE], ids=["small", "streams"])
async def test_when_all_its_connections_are_reset_no_message_is_exposed_or_refused(
    tmp_path: Path, content: bytes, reject: bool
) -> None:
    async with under_load(tmp_path, reject=reject, content=content) as (load, there):
        for _ in range(3):
            before = len(load.told)
            there.reset()
            # None of those that were under way is to see two of them.
            await eventually(partial(load.went_on, before), within=30)
    assert load.failed == []
    assert load.exposed == []


@POLICIES
@pytest.mark.slow
async def test_while_its_port_refuses_messages_fail_and_no_longer_than_a_second_after(
    tmp_path: Path, reject: bool
) -> None:
    async with under_load(tmp_path, reject=reject) as (load, there):
        began = time.time()
        there.refuse()
        there.reset()
        await asyncio.sleep(1.0)
        await there.admit()
        ended = time.time()
        await asyncio.sleep(2.0)
    wrong = load.failed if reject else load.exposed
    assert all(began <= at <= ended + 1.0 for at in wrong)
    assert reject or load.failed == []
    assert [at for at, reply in load.told if reply == "250" and at > ended + 1.0]
