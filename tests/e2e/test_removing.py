"""Mail that an operator removes while a member with copies is cut off: pending, then gone everywhere."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from running_lab import RunningLab, wait_until

from shadowlab.layout import LabNode, Way
from shadowlab.network import between
from shadowlab.node_settings import admin_token
from shadowrelay.admin.client import AdminClient
from shadowrelay.shown.records import JobEntry

pytestmark = [pytest.mark.lab, pytest.mark.slow]

MEMBERS = ("mx1", "mx2", "mx3")
DELIVERED = ("DELIVER", "DUPLICATEDELIVER", "SEND", "SENDEXTERNAL")


def api(node: LabNode) -> AdminClient:
    return AdminClient(node.admin, admin_token(node))


def give(lab: RunningLab, name: str, verb: str, ids: list[str]) -> str:
    wanted = {"verb": verb, "filter": {"ids": ids}, "operator": "ann", "reason": "it is spam"}
    return str(api(lab.cluster.node(name)).post(JobEntry, "jobs", body=wanted)["id"])


def shown(lab: RunningLab, name: str, job: str) -> Mapping[str, Any]:
    return api(lab.cluster.node(name)).get(JobEntry, "jobs", job)


def delivered(lab: RunningLab) -> list[dict[str, str]]:
    return [row for name in MEMBERS for event in DELIVERED for row in lab.events(name, event)]


def held_by_one(lab: RunningLab) -> tuple[str, list[str]]:
    """Three messages at mx1, all next hops closed, and the member that holds copies of some of them."""
    lab.cluster.refuse()
    lab.send(3)
    wait_until(lambda: lab.held("mx2") + lab.held("mx3") == 3, "there are two copies")
    holder = "mx2" if lab.held("mx2") else "mx3"
    wait_until(lambda: len(lab.events("mx1", "DEFER")) >= 3, "each was tried")
    return holder, lab.ids("mx1")


def cut_off(lab: RunningLab, name: str) -> None:
    ways: list[Way] = []
    for other in MEMBERS:
        if other != name:
            ways += between(lab.cluster.layout, name, other)
    lab.cluster.cut(*ways)


def removed(lab: RunningLab, job: str, ids: list[str]) -> None:
    wait_until(lambda: shown(lab, "mx1", job)["did"] == len(ids), "it is done at the owner", 40.0)


def test_a_removal_is_pending_while_a_holder_is_cut_off_and_is_done_when_it_is_back(lab: RunningLab):
    lab.up("shadow_resubmit_time_span=1h", nodes=3, breakable=True)
    holder, ids = held_by_one(lab)
    cut_off(lab, holder)
    job = give(lab, "mx1", "remove", ids)
    removed(lab, job, ids)
    lab.cluster.accept()
    assert shown(lab, "mx1", job)["pending"] > 0
    assert lab.held(holder) > 0
    lab.cluster.heal()
    wait_until(lambda: shown(lab, "mx1", job)["phase"] == "done", "every member has heard of it", 40.0)
    assert shown(lab, "mx1", job)["pending"] == 0
    wait_until(lambda: all(lab.queued(one) == lab.held(one) == 0 for one in MEMBERS), "nothing is left")
    assert delivered(lab) == []
    assert {row["network-message-id"] for row in lab.events("mx1", "REMOVE")} == set(ids)


def test_a_holder_that_promoted_its_copies_meanwhile_delivers_nothing_after_it_is_back(lab: RunningLab):
    lab.up("shadow_resubmit_time_span=2s", "queue_glitch_retry_interval=1s", nodes=3, breakable=True)
    _, ids = held_by_one(lab)
    cut_off(lab, "mx1")
    others = [one for one in MEMBERS if one != "mx1"]
    wait_until(lambda: sum(lab.queued(one) for one in others) == 3, "the holders promote")
    job = give(lab, "mx1", "remove", ids)
    removed(lab, job, ids)
    assert shown(lab, "mx1", job)["pending"] > 0
    lab.cluster.heal()
    wait_until(lambda: shown(lab, "mx1", job)["phase"] == "done", "every member has heard of it", 40.0)
    wait_until(lambda: all(lab.queued(one) == lab.held(one) == 0 for one in MEMBERS), "nothing is left", 40.0)
    lab.cluster.accept()
    lab.send(1)
    lab.acknowledged = lab.acknowledged[-1:]
    wait_until(lambda: lab.count().lost == 0, "mail goes on")
    assert not {row["network-message-id"] for row in delivered(lab)} & set(ids)
