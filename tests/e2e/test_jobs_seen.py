"""An operator empties a broken queue of all nodes by one command, and a node is killed meanwhile."""

from __future__ import annotations

from typing import Any

import pytest
from running_lab import RunningLab, typed_json, wait_until

pytestmark = [pytest.mark.lab, pytest.mark.slow]


def job(lab: RunningLab, name: str, job_id: str) -> dict[str, Any]:
    status, found, said = typed_json(lab, name, "job", "show", job_id)
    assert status == 0, said
    return found


def test_a_broken_queue_is_removed_on_every_node_though_the_node_that_was_asked_is_killed(lab: RunningLab):
    lab.up("shadow_resubmit_time_span=1h", nodes=3)
    lab.cluster.refuse()
    for name, count in (("mx1", 1000), ("mx2", 500), ("mx3", 500)):
        lab.send(count, to=name)
    status, found, _ = typed_json(lab, "mx1", "message", "remove", "--sender", "*@outside.test", "--dry-run")
    assert (status, found["messages"], found["whole"]) == (0, 2000, True)
    conditions = ("--sender", "*@outside.test", "--reason", "a broken queue", "--yes", "--no-wait")
    status, made, said = typed_json(lab, "mx1", "message", "remove", *conditions)
    assert status == 0, said
    wait_until(
        lambda: typed_json(lab, "mx2", "job", "show", made["id"])[0] == 0, "another member has the job"
    )
    lab.cluster.kill("mx1")
    wait_until(
        lambda: all(one["done"] for one in job(lab, "mx2", made["id"])["nodes"] if one["node"][:3] != "mx1"),
        "the others are through",
    )
    lab.cluster.start("mx1")
    wait_until(lambda: job(lab, "mx1", made["id"])["phase"] == "done", "all are through", deadline=60)
    assert job(lab, "mx3", made["id"])["did"] == 2000
    lab.cluster.accept()
    wait_until(lambda: not any(map(lab.queued, ("mx1", "mx2", "mx3"))), "nothing is queued")
    wait_until(lambda: not any(map(lab.held, ("mx1", "mx2", "mx3"))), "nothing is held")
    found = lab.count()
    assert (found.delivered, found.duplicates) == (0, 0)


def test_a_suspended_queue_delivers_nothing_on_any_node_until_it_is_resumed(lab: RunningLab):
    lab.up(nodes=3)
    lab.cluster.kill("mx3")
    wait_until(lambda: lab.peer("mx1", "mx3")["state"] == "unreachable", "its loss is noticed")
    status, found, _ = typed_json(lab, "mx1", "queue", "suspend", "inside", "--reason", "it loses mail")
    assert (status, found["pending"]) == (1, True)
    lab.cluster.start("mx3")

    def suspended() -> dict[str, Any]:
        (found,) = typed_json(lab, "mx2", "queue", "suspensions")[1]["suspensions"]
        return found

    wait_until(lambda: not suspended()["pending"], "every member has it")
    for name in ("mx1", "mx2", "mx3"):
        lab.send(5, to=name)
    assert lab.count().delivered == 0
    assert [lab.queued(name) for name in ("mx1", "mx2", "mx3")] == [5, 5, 5]
    status, _, _ = typed_json(lab, "mx3", "queue", "resume", "inside", "--reason", "mended")
    assert status == 0
    lab.verify()
