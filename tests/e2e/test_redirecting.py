"""An operator moves a node's queue to the member that he names; then the node's disk is not needed."""

from __future__ import annotations

from typing import Any

import pytest
from running_lab import RunningLab, typed, typed_json, wait_until

pytestmark = [pytest.mark.lab, pytest.mark.slow]


def redirect(lab: RunningLab, name: str, *options: str) -> tuple[int, dict[str, Any], str]:
    """``shadowrelay redirect`` for a node of the lab."""
    return typed_json(lab, name, "redirect", *options)


def test_a_queue_that_is_redirected_needs_the_nodes_disk_no_more(lab: RunningLab):
    lab.up("shadow_resubmit_time_span=1h")
    lab.cluster.refuse()
    lab.send(60)
    status, told, _ = redirect(lab, "mx1", "--to", "mx2")
    assert (status, told["done"], told["queued"], told["handed_over"]) == (0, True, 0, 60)
    assert told["copied"] > 0, "the other site had the copies"
    assert (lab.queued("mx1"), lab.queued("mx2")) == (0, 60)
    wait_until(lambda: len(lab.events("mx1", "TRANSFER")) == 60, "the old owner has it in its log")
    lab.cluster.kill("mx1")
    lab.cluster.wipe("mx1")
    lab.cluster.start("mx1")
    lab.cluster.accept()
    lab.verify()


def test_hundreds_of_messages_go_to_one_member_and_each_has_one_owner_when_it_is_stopped(
    lab: RunningLab,
):
    lab.up("shadow_resubmit_time_span=1h")
    lab.cluster.refuse()
    lab.send(400)
    status, told, _ = redirect(lab, "mx1", "--to", "mx2", "--within", "0s")
    assert (status, told["running"], told["ended"]) == (1, False, "stopped")
    assert told["queued"] + told["handed_over"] == 400
    wait_until(lambda: lab.queued("mx1") + lab.queued("mx2") == 400, "the other one has taken its part")
    assert not set(lab.ids("mx1")) & set(lab.ids("mx2"))
    lab.send(3)  # stays: it comes later than the beginning
    status, told, _ = redirect(lab, "mx1", "--to", "mx2")
    assert (status, told["queued"]) == (0, 0)
    lab.cluster.kill("mx1")
    lab.cluster.wipe("mx1")
    lab.cluster.start("mx1")
    lab.cluster.accept()
    lab.verify()


def test_a_member_that_is_unknown_or_away_is_refused_with_the_reason(lab: RunningLab):
    lab.up(nodes=2)
    status, _, said = redirect(lab, "mx1", "--to", "mx7")
    assert (status, "is not a member here" in said) == (1, True)
    lab.cluster.kill("mx2")
    wait_until(lambda: lab.peer("mx1", "mx2")["state"] == "unreachable", "its loss is noticed")
    status, _, said = redirect(lab, "mx1", "--to", "mx2")
    assert (status, "cannot be reached" in said) == (1, True)
    lab.cluster.start("mx2")
    done = typed(lab, "mx1", "redirect")
    assert (done.returncode, "--to MEMBER" in done.stderr) == (2, True)
