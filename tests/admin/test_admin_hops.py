"""What the admin API and the metrics show of mail that hops beyond the boundary track."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from admin_node import (
    HOP,
    MX2,
    NOW,
    OURS,
    FakeNode,
    a_node,
    ask,
    fill,
    kept_for_hop,
    meet,
    message_id,
    received,
    serving,
)

from shadowrelay.core.delivery.hop_watch import HopWatch
from shadowrelay.core.tracking_row import timestamp


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[FakeNode]:
    async with a_node(tmp_path) as made:
        await fill(made, meet(MX2), received(1, MX2), kept_for_hop(1))
        yield made


async def test_the_shadow_queue_of_a_hop_is_named_after_the_hop_and_is_no_backlog(node: FakeNode) -> None:
    async with serving(node) as port:
        queues = (await ask(port, "/api/v1/queues")).json
        status = (await ask(port, "/api/v1/status")).json
    assert queues["hop_shadow_queues"] == [
        {
            "identity": f"{OURS}\\Shadow\\{HOP}",
            "next_hop": HOP,
            "messages": 1,
            "oldest": timestamp(NOW),
            "state": "untried",
            "failures": 0,
            "error": "",
        }
    ]
    assert HOP not in {queue["next_hop"] for queue in queues["queues"]}
    assert (status["kept_for_hops"], status["queued"]) == (1, 1)


@pytest.mark.parametrize(("failures", "state"), [(0, "reachable"), (11, "failing"), (12, "given_up")])
async def test_it_says_whether_the_hop_can_be_asked(node: FakeNode, failures: int, state: str) -> None:
    node.hop_watches[HOP] = HopWatch(HOP, 1.0, failures, "connect: refused" if failures else "")
    async with serving(node) as port:
        (shown,) = (await ask(port, "/api/v1/queues")).json["hop_shadow_queues"]
    assert (shown["state"], shown["failures"]) == (state, failures)


async def test_a_message_shows_which_hop_has_which_of_its_recipients(node: FakeNode) -> None:
    async with serving(node) as port:
        (hop,) = (await ask(port, f"/api/v1/messages/{message_id(1)}")).json["hops"]
    assert (hop["name"], hop["recipients"], hop["since"]) == (HOP, [1], timestamp(NOW))


async def test_metrics_count_what_is_kept_for_each_hop_and_its_failed_heartbeats(node: FakeNode) -> None:
    node.hop_watches[HOP] = HopWatch(HOP, 1.0, 3, "connect: refused")
    async with serving(node) as port:
        text = (await ask(port, "/metrics")).text
    assert f'shadowrelay_hop_shadow_messages{{hop="{HOP}"}} 1.0' in text
    assert f'shadowrelay_hop_failures{{hop="{HOP}"}} 3.0' in text
