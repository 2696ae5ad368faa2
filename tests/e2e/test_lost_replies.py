"""The recovery table's row of a discard reply that gets lost on its way."""

from __future__ import annotations

from collections import Counter

import pytest
from lossy import LossyWay, lossy_way
from running_lab import INSIDE, OUTSIDE, RunningLab, wait_until

from shadowlab import node_settings
from shadowrelay.settings import to_toml

pytestmark = [pytest.mark.lab, pytest.mark.slow]


def call_by(lab: RunningLab, way: LossyWay, caller: str, member: str) -> None:
    """From now on ``caller`` reaches ``member`` through the lossy way alone."""
    node, full = lab.cluster.node(caller), lab.cluster.node(member).name
    lab.cluster.stop(caller)
    tree = node_settings.read(node)
    host, port = way.address
    (entry,) = [entry for entry in tree["members"] if entry["name"] == full]
    entry["address"] = f"{host}:{port}"
    node.config.write_text(to_toml(tree), "utf-8")
    lab.cluster.start(caller)


def discarded(lab: RunningLab, name: str) -> Counter[tuple[str, str]]:
    """How often a node let go which recipients of which message."""
    rows = lab.events(name, "HADISCARD")
    return Counter((row["network-message-id"], row["recipient-address"]) for row in rows)


def test_a_discard_reply_that_is_lost_is_asked_for_again_and_applied_once(lab: RunningLab):
    # A heartbeat of 10 s lets the holder wait as long for an answer: enough to hold its question back.
    lab.up("shadow_heartbeat_frequency=10s", "shadow_resubmit_time_span=1h", nodes=2)
    with lossy_way(lab.cluster.node("mx1").peer) as way:
        call_by(lab, way, "mx2", "mx1")
        lab.cluster.refuse()
        lab.send(3, recipients=(INSIDE, OUTSIDE))
        ours = set(lab.ids("mx1"))
        assert lab.held("mx2") == 3
        way.hold_back()
        wait_until(lambda: way.asked, "the holder asks")
        lab.cluster.accept()
        wait_until(lambda: lab.queued("mx1") == 0, "all is delivered while the question is on its way")
        assert lab.held("mx2") == 3
        way.let_pass_and_lose_the_answers()
        wait_until(lambda: way.lost, "the answer is lost")
        lab.verify()
        wait_until(lambda: not lab.peer("mx1", "mx2")["events_waiting"], "the owner knows that it arrived")
    assert way.lost == 1
    assert {message for message, _ in discarded(lab, "mx2")} == ours
    assert set(discarded(lab, "mx2").values()) == {1}
    assert lab.events("mx2", "RESUBMIT") == []
