"""The event stream of a node: a real database, the real writer of the tracking log, and a socket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from admin_node import MX2, FakeNode, a_node, ask, attempted, fill, meet, received, serving
from event_streams import subscribed, writing
from stations import eventually

from shadowrelay.admin import events as admin_events
from shadowrelay.core.delivery.settling import Ending
from shadowrelay.tracking import events as tracking_events
from shadowrelay.tracking.events import TrackingEvents


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[FakeNode]:
    async with a_node(tmp_path) as made:
        await fill(made, meet(MX2))
        yield made


async def test_an_event_is_told_once_it_is_committed_and_in_a_file(node: FakeNode) -> None:
    async with writing(node), serving(node) as port, subscribed(port) as stream:
        begin = await stream.next()
        assert begin is not None
        sequence = node.database.lineage.sequence
        assert (begin.event, begin.data["resumed"]) == ("begin", True)
        assert begin.id == f"{'1' * 16}-{sequence}"
        await fill(node, received(1, MX2, subject="früh\n\ndata: x"))
        found = await stream.rows(2)
    assert [one.data["sequence"] for one in found] == [sequence + 1, sequence + 2]
    assert [one.data["event-id"] for one in found] == ["HAREDIRECT", "RECEIVE"]
    row = found[1]
    assert row.id == row.data["log-id"] == f"{'1' * 16}-{sequence + 2}"
    assert row.data["message-subject"] == "früh\\x0a\\x0adata: x"
    assert row.data["network-message-id"].endswith("001")


async def test_who_was_away_goes_on_after_the_last_event_he_had_over_files_and_memory(node: FakeNode) -> None:
    async with writing(node, max_file_size=3000), serving(node) as port:
        async with subscribed(port) as stream:
            await fill(node, received(1, MX2))
            last = (await stream.rows(1))[0]
        for number in range(2, 12):  # nobody listens; files are closed meanwhile
            await fill(node, received(number, MX2))
            await asyncio.sleep(0)
        async with subscribed(port, last=last.id) as stream, subscribed(port, "?after=0") as whole:
            await fill(node, *(received(number, MX2) for number in range(12, 20)))
            upto = node.database.lineage.sequence
            found = await stream.rows(upto - last.data["sequence"])
            everything = await whole.rows(upto)
            files = len(node.events.log.names())
        assert [one.data["sequence"] for one in found] == list(range(last.data["sequence"] + 1, upto + 1))
        assert [one.data["sequence"] for one in everything] == list(range(1, upto + 1))
        assert everything[-len(found) :] == found
        assert files > 2


async def test_who_asks_for_all_that_files_have_hears_each_row_once(node: FakeNode) -> None:
    async with writing(node) as writer:
        await fill(node, received(1, MX2), received(2, MX2))
        await writer.flush()
    async with serving(node) as port, subscribed(port, "?after=0") as stream:
        upto = node.database.lineage.sequence
        assert [one.data["sequence"] for one in await stream.rows(upto)] == list(range(1, upto + 1))


async def test_only_the_events_that_are_wanted_are_told_and_the_place_goes_on(node: FakeNode) -> None:
    await fill(node, received(1, MX2), received(2, MX2))
    await fill(node, attempted(2, Ending.DEFERRED, "451 later"), attempted(1, Ending.ACCEPTED, "250 ok"))
    async with writing(node), serving(node) as port, subscribed(port, "?event=defer&after=0") as stream:
        (found,) = await stream.rows(1)
        assert found.data["event-id"] == "DEFER"
        await fill(node, received(3, MX2), attempted(3, Ending.DEFERRED, "451 later"))
        (found,) = await stream.rows(1)
        assert found.data["network-message-id"].endswith("003")
        assert (await ask(port, "/api/v1/events?event=NOSUCH")).status == 400


async def test_a_row_that_no_file_has_any_more_is_a_gap_that_is_told(node: FakeNode) -> None:
    async with writing(node, max_file_size=10) as writer:
        await writer.flush()
        await fill(node, received(2, MX2), received(3, MX2))
        await writer.flush()
    oldest = node.events.log.names()[0]
    (node.events.log.directory / oldest.closed).unlink()
    async with serving(node) as port, subscribed(port, "?after=0") as stream:
        told = [await stream.next() for _ in range(3)]
    assert [one.event for one in told if one] == ["begin", "gap", ""]
    assert told[2] is not None
    assert told[2].data["sequence"] > 1


async def test_the_id_of_another_database_is_told_to_be_unknown(node: FakeNode) -> None:
    async with writing(node), serving(node) as port:
        async with subscribed(port, last=f"{'9' * 16}-7") as stream:
            told = [await stream.next() for _ in range(2)]
        assert [(one.event, one.data.get("resumed")) for one in told if one] == [
            ("begin", False),
            ("gap", None),
        ]
        for wrong in ("x", "-5", f"{'1' * 16}-x", "5" * 30):
            assert (await ask(port, f"/api/v1/events?after={wrong}")).status == 400


async def test_a_subscriber_who_waits_hears_a_comment_with_its_place(
    node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admin_events, "HEARTBEAT", 0.05)
    async with writing(node), serving(node) as port, subscribed(port, "?event=FAIL") as stream:
        assert await stream.next()
        await fill(node, received(1, MX2))
        place = node.events.id_of(node.database.lineage.sequence)
        reading = asyncio.create_task(stream.next())
        await eventually(lambda: stream.last_id == place and stream.comments >= 2)
        reading.cancel()


async def test_there_are_so_many_subscribers_and_no_more_and_who_leaves_gives_his_place(
    node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracking_events, "MOST_SUBSCRIBERS", 2)
    events = node.events
    async with writing(node), serving(node) as port, subscribed(port) as one:
        assert await one.next()
        async with subscribed(port) as other:
            assert await other.next()
            refused = await ask(port, "/api/v1/events")
            assert (refused.status, "no more may be" in refused.json["error"]) == (503, True)
        await eventually(lambda: len(events._subscribers) == 1)
        async with subscribed(port) as other:
            assert await other.next()


async def test_a_subscriber_who_takes_nothing_is_dropped_and_costs_no_memory(
    node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admin_events, "SLOW", 0.2)
    monkeypatch.setattr(tracking_events, "KEPT", 50)
    node.events = TrackingEvents(node.events.log)
    subject = "x" * 60_000
    async with writing(node), serving(node) as port, subscribed(port) as stream:
        assert await stream.next()
        async with asyncio.timeout(30):
            number = 0
            while node.events.wanted:
                number += 1
                await fill(node, received(number, MX2, subject=subject))
                assert len(node.events._rows) <= 50
    assert not node.events.wanted


async def test_the_streams_end_with_the_node_and_say_so(node: FakeNode) -> None:
    async with serving(node) as port, writing(node), subscribed(port) as stream:
        assert await stream.next()
        node.events.close()
        told = await stream.next()
        assert told is not None
        assert (told.event, await stream.next()) == ("end", None)


async def test_without_a_subscriber_no_row_is_kept(node: FakeNode) -> None:
    async with writing(node) as writer:
        await fill(node, *(received(number, MX2) for number in range(1, 10)))
        await writer.flush()
        assert not node.events._rows
        assert not writer._unsynced
