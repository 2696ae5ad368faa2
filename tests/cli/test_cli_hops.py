"""What the commands show of mail that hops beyond the boundary track."""

from __future__ import annotations

from pathlib import Path

import pytest
from admin_node import HOP, MX2, OURS, FakeNode, a_node, fill, kept_for_hop, meet, message_id, received
from test_cli_view import good

from shadowrelay.cli.drain import _told
from shadowrelay.core.delivery.hop_watch import HopWatch


@pytest.fixture
async def node(tmp_path: Path):  # type: ignore[no-untyped-def]
    async with a_node(tmp_path) as made:
        await fill(made, meet(MX2), received(1, MX2), kept_for_hop(1))
        yield made


async def test_queue_list_shows_the_shadow_queue_of_a_hop_beside_the_backlog(node: FakeNode) -> None:
    node.hop_watches[HOP] = HopWatch(HOP, 1.0, 12, "connect: refused")
    text = await good(node, "queue", "list")
    (line,) = [line for line in text.splitlines() if "Shadow\\" in line]
    assert f"{OURS}\\Shadow\\{HOP}" in line
    assert "given up" in line
    assert "connect: refused" in line


async def test_message_show_says_which_hop_has_it(node: FakeNode) -> None:
    text = await good(node, "message", "show", message_id(1))
    assert "hop that has not delivered yet" in text
    assert str(HOP) in text


async def test_status_counts_what_is_kept_for_hops_as_no_backlog(node: FakeNode) -> None:
    text = await good(node, "status")
    assert text.index("Not backlog") < text.index("kept for hops")


def test_a_drain_says_that_mail_of_hops_stays_on_the_disk() -> None:
    answer = {
        **{"name": OURS, "draining": True, "arriving": 0, "queued": 0, "exposed": 0, "set_aside": 0},
        **{"handed_over": {}, "not_yet_taken": {}, "held_by": {}, "held_for": {}},
        "kept_for_hops": {HOP: 3},
        "drain_operator": "",
        "drain_ordered_at": None,
    }
    (said,) = [line for line in _told(answer) if HOP in line]
    assert said.startswith(f"Keeps 3 messages until {HOP} has delivered: they stay on its disk")
