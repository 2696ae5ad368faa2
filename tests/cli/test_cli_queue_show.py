"""``shadowrelay queue show`` of a queue with many attempts, ``message list`` with recipients."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest
from admin_node import MX2, NOW, FakeNode, a_node, meet, message_id, received
from test_cli_view import fill, good

from shadowrelay.admin.node import HopStatus
from shadowrelay.delivery.recent import RecentAttempt


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[FakeNode]:
    async with a_node(tmp_path) as found:
        found.statuses = []
        await fill(found, meet(MX2))
        yield found


def attempt(number: int, outcome: str, reply: str) -> RecentAttempt:
    at = NOW - timedelta(seconds=number)
    return RecentAttempt(
        at=at, message=message_id(number), host="mx.test:25", outcome=outcome, reply=reply, seconds=0.1
    )


async def test_attempts_that_are_alike_are_one_line_with_a_count(node: FakeNode) -> None:
    await fill(node, received(1, MX2, "a@inside.test"))
    node.attempted = [
        attempt(number, "accepted", f"250 2.0.0 Ok: queued as 4bXk{number}") for number in range(17)
    ]
    node.attempted += [attempt(number, "deferred", "451 4.7.1 later") for number in (20, 21)]
    node.attempted += [attempt(22, "deferred", "452 4.7.1 later")]
    node.hops["inside"] = HopStatus(
        sessions=1, places=40, limit="a limit", rate=12, last_reply="250 2.0.0 Ok", last_reply_at=NOW
    )
    text = await good(node, "queue", "show", "inside")
    lines = [line.split() for line in text.splitlines() if "mx.test:25" in line]
    assert [(line[1], line[3]) for line in lines] == [
        ("17", "accepted"),
        ("2", "deferred"),
        ("1", "deferred"),
    ]
    assert "queued as 4bXk0" in text
    assert "12 messages in the last minute" in text
    assert "last reply" in text
    assert len(text.splitlines()) <= 20
    listed = await good(node, "queue", "list")
    assert "a minute" in listed
    assert "250 2.0.0 Ok" in listed


async def test_messages_are_listed_with_their_recipients(node: FakeNode) -> None:
    await fill(node, received(1, MX2, "a@inside.test", "b@inside.test"), received(2, MX2, "c@outside.test"))
    text = await good(node, "message", "list")
    assert "a@inside.test and 1 more" in text
    assert "c@outside.test" in text
