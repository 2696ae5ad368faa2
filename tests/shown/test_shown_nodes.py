"""What the workers of a node answer, as one entry for the node."""

from __future__ import annotations

from typing import Any

from nodes_told import a_peer, a_queue, answers, queues_of, silent

from shadowrelay.core.workers import label
from shadowrelay.shown import nodes
from shadowrelay.shown.records import job_nodes
from shadowrelay.shown.status import members_seen


def test_nodes_of_one_worker_are_told_as_they_are():
    entries = [answers("mx1.test", a_peer("mx2.test"), queued=3), silent("mx2.test"), answers("mx3.test")]
    assert nodes.statuses(entries) == entries


def test_counts_of_workers_are_summed_and_the_worst_is_told():
    (found,) = nodes.statuses(
        [
            answers(
                "w2.mx1.test", queued=2, exposed=1, oldest_queued="2026-11-21T08:00:00.000Z", draining=True
            ),
            answers("mx1.test", queued=5, ready=False, not_ready_because="the disk is full"),
        ]
    )
    status = found["status"]
    assert (found["node"], found["answers"], found["why"]) == ("mx1.test", True, "")
    assert [one["node"] for one in found["workers"]] == ["mx1.test", "w2.mx1.test"]
    assert (status["name"], status["queued"], status["exposed"]) == ("mx1.test", 7, 1)
    assert (status["oldest_queued"], status["draining"]) == ("2026-11-21T08:00:00.000Z", False)
    assert (status["ready"], status["warning"]) == (True, "worker 1 takes no mail: the disk is full")
    assert (status["database_id"], status["scrub"]["messages_of"]) == (None, 4)
    assert [one["database_id"] for one in status["workers"]] == ["db-mx1.test", "db-w2.mx1.test"]


def test_a_node_takes_no_mail_only_if_no_worker_does():
    why = {"ready": False, "not_ready_because": "the disk is full"}
    (found,) = nodes.statuses([answers("mx1.test", **why), answers("w2.mx1.test", **why)])
    assert (found["status"]["ready"], found["status"]["not_ready_because"]) == (False, "the disk is full")


def test_a_node_of_whose_workers_one_is_silent_says_so():
    found = nodes.statuses(
        [answers("mx1.test", queued=1), silent("w2.mx1.test"), silent("w3.mx1.test"), answers("w4.mx1.test")]
    )
    assert [one["node"] for one in found] == ["mx1.test"]
    assert found[0]["answers"]
    assert found[0]["why"] == "2 of its 4 workers do not answer: workers 2 and 3: it is silent"


def test_a_node_none_of_whose_workers_answers_does_not_answer():
    found = nodes.statuses(
        [answers("mx1.test"), silent("mx2.test"), silent("w2.mx2.test", "connect: refused")]
    )
    assert [one["node"] for one in found] == ["mx1.test", "mx2.test"]
    assert not found[1]["answers"]
    assert found[1]["why"] == (
        "none of its 2 workers answers: worker 2: connect: refused; worker 1: it is silent"
    )


def test_members_are_nodes_without_siblings_and_the_worst_state_is_told():
    away = a_peer(
        "w2.mx2.test", "unreachable", since="2026-11-21T09:50:00.000Z", error="refused", shadow_held=4,
        next="its messages are promoted in 5 min",
    )  # fmt: skip
    (found,) = nodes.statuses(
        [
            answers("mx1.test", a_peer("w2.mx1.test"), a_peer("mx2.test", shadow_held=2, holds_ours=1), away),
            answers(
                "w2.mx1.test",
                a_peer("mx1.test"),
                a_peer("mx2.test", shadow_held=1),
                away | {"shadow_held": 0},
            ),
        ]
    )
    (peer,) = found["status"]["peers"]
    assert (peer["name"], peer["state"], peer["error"]) == ("mx2.test", "unreachable", "refused")
    assert (peer["shadow_held"], peer["holds_ours"]) == (7, 1)
    assert (peer["workers"], peer["away"]) == (["mx2.test", "w2.mx2.test"], ["w2.mx2.test"])
    assert peer["next"] == "worker 2: its messages are promoted in 5 min"
    assert not peer["retired"]


def test_a_worker_that_left_does_not_make_its_node_retired():
    gone = a_peer("w2.mx2.test", "not_configured", retired=True, next="retired: no node waits for it")
    (peer,) = members_seen([a_peer("mx2.test"), gone], "mx1.test")
    assert (peer["state"], peer["retired"], peer["next"]) == ("reachable", False, "")
    (peer,) = members_seen([a_peer("mx2.test", retired=True), gone], "mx1.test")
    assert peer["retired"]


def test_short_names_of_workers_differ_from_each_other_and_from_nodes():
    assert [label(name) for name in ("mx1.test", "w2.mx1.test", "w2.mx2.test")] == [
        "mx1",
        "w2.mx1",
        "w2.mx2",
    ]


def test_queues_of_workers_for_one_next_hop_are_one_queue_of_the_node():
    older = {
        "oldest": "2026-11-21T08:00:00.000Z",
        "status": "resting",
        "why": "the next hop rests",
        "failures": 3,
    }
    (found,) = nodes.queues(
        [
            queues_of("mx1.test", a_queue("mx1.test", "world"), held={"mx2.test": 2, "w2.mx2.test": 3}),
            queues_of(
                "w2.mx1.test", a_queue("w2.mx1.test", "world", **older), a_queue("w2.mx1.test", "inside")
            ),
        ]
    )
    world, inside = found["queues"]
    assert (world["identity"], inside["identity"]) == ("mx1.test\\world", "mx1.test\\inside")
    assert (world["messages"], world["recipients"], world["sessions"], world["places"]) == (2, 4, 2, 8)
    assert (world["status"], world["why"], world["failures"]) == ("resting", "the next hop rests", 3)
    assert world["oldest"] == "2026-11-21T08:00:00.000Z"
    assert [host["sessions"] for host in world["hosts"]] == [2]
    (held,) = found["shadow_queues"]
    assert (held["identity"], held["primary"], held["messages"]) == (
        "mx1.test\\Shadow\\mx2.test",
        "mx2.test",
        5,
    )
    assert held["next_hops"] == [{"next_hop": "world", "messages": 5, "recipients": 5}]


def test_queues_of_nodes_of_one_worker_are_told_as_they_are():
    entries = [queues_of("mx1.test", a_queue("mx1.test", "world"), held={"mx2.test": 1}), silent("mx2.test")]
    assert nodes.queues(entries) == entries


def test_what_workers_know_of_one_next_hop_is_what_the_node_knows():
    def knows(name: str, queue: dict[str, Any] | None, at: str) -> dict[str, Any]:
        hop = {key: value for key, value in a_queue(name, "world").items() if key not in ("why", "status")}
        more = {
            "queue": queue,
            "error": "",
            "suspension": None,
            "attempts": [{"at": at, "outcome": "accepted"}],
        }
        return {"node": name, "answers": True, "why": "", **hop, **more}

    (found,) = nodes.queue(
        [
            knows("mx1.test", None, "2026-11-21T09:00:00.000Z"),
            knows("w2.mx1.test", a_queue("w2.mx1.test", "world", messages=3), "2026-11-21T09:30:00.000Z"),
        ]
    )
    assert (found["queue"]["identity"], found["queue"]["messages"]) == ("mx1.test\\world", 3)
    assert (found["sessions"], found["places"]) == (2, 8)
    assert [one["at"][11:16] for one in found["attempts"]] == ["09:30", "09:00"]


def test_a_queue_is_suspended_if_all_its_mail_is_and_not_if_that_of_one_node_is():
    held = {"status": "suspended", "messages": 7, "why": "", "last_error": ""}
    refused = {"status": "retry", "messages": 9, "last_error": "451 full"}
    whole = {"suspension": {"operator": "carol", "reason": "a repair"}}

    def status(*parts: dict[str, Any]) -> Any:
        entries = [queues_of(f"mx{at}.test", a_queue("", "inside", **one)) for at, one in enumerate(parts)]
        (found,) = nodes.together(entries)
        return found["status"], found["messages"], found["last_error"]

    assert status(held, refused) == ("retry", 16, "451 full")
    assert status(held, held) == ("suspended", 14, "")
    assert status(held | whole, refused) == ("suspended", 16, "451 full")


def test_a_job_is_done_at_a_node_if_it_is_at_all_its_workers():
    def worker(name: str, **more: Any) -> Any:
        counts = {"did": 2, "late": 0, "waiting": 0, "pending": 1}
        done = {"has": True, "done": True, "closed": True, "after": None, "answers": True, "why": ""}
        return {"node": name, **counts, **done, **more}

    told = job_nodes(
        [
            worker("mx1.test"),
            worker("mx2.test"),
            worker("w2.mx1.test", done=False, answers=False, why="cut off"),
        ]
    )
    seen = [(one["node"], one["did"], one["done"], one["answers"], one["why"]) for one in told]
    assert seen == [("mx1.test", 4, False, False, "cut off"), ("mx2.test", 2, True, True, "")]
