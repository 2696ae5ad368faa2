"""The recovery table's partitions: nodes that live, and do not hear one another."""

from __future__ import annotations

import time
from collections import Counter

import pytest
from namespaces import NetworkLab
from running_lab import INSIDE, OUTSIDE, wait_until

pytestmark = [pytest.mark.lab, pytest.mark.slow]

SPAN = 2  # seconds until an owner that cannot be reached is taken for dead
DELIVERED = ("DELIVER", "DUPLICATEDELIVER", "SEND", "SENDEXTERNAL")
TIMES = (f"shadow_resubmit_time_span={SPAN}s", "queue_glitch_retry_interval=2s")


def taken_over(lab: NetworkLab, name: str) -> list[tuple[str, str]]:
    """What a node promoted: (message, why)."""
    return [(row["network-message-id"], row["source-context"]) for row in lab.events(name, "RESUBMIT")]


def promoted_for_silence(lab: NetworkLab, name: str, messages: list[str]) -> None:
    """A node took over these messages and no others, because their owner was silent."""
    expected = sorted((message, "heartbeat-lost") for message in messages)
    wait_until(lambda: len(taken_over(lab, name)) >= len(expected), "it is in the log")
    assert sorted(taken_over(lab, name)) == expected


def deliveries(lab: NetworkLab, *names: str) -> Counter[str]:
    """How often those nodes, or all, spoke to a next hop that took the message."""
    names = names or tuple(node.short for node in lab.cluster.layout.nodes)
    rows = [row for name in names for event in DELIVERED for row in lab.events(name, event)]
    return Counter(row["network-message-id"] for row in rows)


def missed(lab: NetworkLab, name: str, other: str, spans: float = 2.0) -> None:
    """Wait until a node has missed another one for that many time spans."""
    wait_until(lambda: lab.misses(name, other) > spans * SPAN, f"{name} misses {other}")


def tried_every_fork(lab: NetworkLab, name: str, forks: int) -> None:
    """The mailbox server refuses; now nothing is in delivery for two seconds."""
    wait_until(lambda: len(lab.events(name, "DEFER")) >= forks, f"{name} tried to deliver")


def test_the_others_promote_what_a_cut_off_owner_has_and_it_promotes_nothing(network_lab: NetworkLab):
    lab = network_lab
    lab.up(*TIMES)
    lab.cluster.refuse()
    lab.send(3, to="mx1", recipients=(INSIDE, OUTSIDE))
    lab.send(4, to="mx3")
    wait_until(lambda: lab.held("mx3") == 3, "mx3 holds for mx1")
    ours, held = lab.ids("mx1"), lab.held("mx1")
    assert held > 0, "the third node uses both others in turn"
    tried_every_fork(lab, "mx1", 6)

    lab.network.part("mx1", "mx2", "mx3")
    wait_until(lambda: lab.queued("mx3") == 7, "the holder promotes")
    promoted_for_silence(lab, "mx3", ours)
    assert lab.peer("mx3", "mx1")["state"] == "unreachable"
    missed(lab, "mx1", "mx2")
    missed(lab, "mx1", "mx3")
    assert taken_over(lab, "mx1") == []
    assert lab.held("mx1") == held
    assert not lab.offer(to="mx1", recipients=(INSIDE,)), "nothing is accepted that has no second copy"

    lab.cluster.accept()
    wait_until(lambda: deliveries(lab, "mx3").keys() >= set(ours), "the holder delivers")
    lab.network.heal()
    lab.verify()
    assert deliveries(lab, "mx1") == Counter()
    assert taken_over(lab, "mx1") == []


def test_a_cut_off_owner_that_returns_before_the_delivery_becomes_the_shadow(network_lab: NetworkLab):
    lab = network_lab
    lab.up(*TIMES)
    lab.cluster.refuse()
    lab.send(3, to="mx1", recipients=(INSIDE, OUTSIDE))
    tried_every_fork(lab, "mx1", 6)
    lab.network.part("mx1", "mx2", "mx3")
    wait_until(lambda: lab.queued("mx3") == 3, "the holder promotes")
    missed(lab, "mx1", "mx3")
    lab.network.heal()
    wait_until(lambda: lab.held("mx1") == 3 and lab.queued("mx1") == 0, "the roles are swapped")
    wait_until(lambda: len(lab.events("mx1", "TRANSFER")) == 3, "the old owner has it in its log")
    wait_until(lambda: lab.status("mx3").exposed == 0, "two copies again")
    lab.cluster.accept()
    lab.verify()
    assert deliveries(lab, "mx1") == Counter()


@pytest.mark.parametrize("later", [0.0, 1.5], ids=["at once", "a little later"])
def test_an_attempt_that_hung_while_its_node_was_cut_off_sends_nothing_that_others_delivered(
    network_lab: NetworkLab, later: float
):
    """The network is back right after the others promoted: the next hop may be the first one to answer."""
    lab = network_lab
    lab.up(*TIMES)
    lab.cluster.refuse()
    lab.send(6, to="mx1")
    lab.network.isolate("mx1")
    lab.cluster.accept()
    wait_until(lambda: len(taken_over(lab, "mx3")) == 6, "the holder promotes")
    time.sleep(later)
    lab.network.heal()
    lab.verify()
    assert deliveries(lab, "mx1") == Counter()


WAYS = pytest.mark.parametrize(
    "muted",
    [("mx1", "mx3"), ("mx3", "mx1"), ("mx1", "mx3", "mx3", "mx1")],
    ids=["owner to holder", "holder to owner", "both ways"],
)


@WAYS
def test_nothing_is_promoted_while_a_third_member_sees_the_owner(
    network_lab: NetworkLab, muted: tuple[str, ...]
):
    lab = network_lab
    lab.up(*TIMES, "reconcile_timeout=5s")
    lab.cluster.refuse()
    lab.send(3, to="mx1", recipients=(INSIDE, OUTSIDE))
    assert lab.held("mx3") == 3
    for source, target in zip(muted[::2], muted[1::2], strict=True):
        lab.network.mute(source, target)
    missed(lab, "mx3", "mx1")
    wait_until(lambda: lab.held("mx2") == 3, "the owner finds another holder")
    assert (lab.queued("mx1"), lab.queued("mx3")) == (3, 0)
    lab.cluster.accept()
    wait_until(lambda: lab.count().lost == 0, "the owner delivers, though it cannot ask its former holder")
    lab.network.heal()
    lab.verify()
    assert [taken_over(lab, name) for name in ("mx1", "mx2", "mx3")] == [[], [], []]


def test_when_the_third_member_loses_the_owner_too_its_messages_are_promoted(network_lab: NetworkLab):
    lab = network_lab
    lab.up(*TIMES)
    lab.cluster.refuse()
    lab.send(3, to="mx1", recipients=(INSIDE, OUTSIDE))
    tried_every_fork(lab, "mx1", 6)
    lab.network.part("mx1", "mx3")
    missed(lab, "mx3", "mx1")
    wait_until(lambda: lab.held("mx2") == 3, "the owner finds another holder")
    assert lab.queued("mx3") == 0
    lab.cluster.kill("mx1")
    wait_until(lambda: lab.queued("mx2") + lab.queued("mx3") >= 3, "now it is promoted")
    lab.cluster.accept()
    lab.verify()


@pytest.mark.parametrize(
    "muted",
    [("mx1", "mx2"), ("mx2", "mx1"), ("mx1", "mx2", "mx2", "mx1")],
    ids=["owner to holder", "holder to owner", "both ways"],
)
def test_in_a_boundary_of_two_time_alone_decides_and_epochs_settle_it(
    network_lab: NetworkLab, muted: tuple[str, ...]
):
    lab = network_lab
    lab.up(*TIMES, nodes=2)
    lab.cluster.refuse()
    lab.send(3, to="mx1", recipients=(INSIDE, OUTSIDE))
    lab.send(2, to="mx2")
    first, second = lab.ids("mx1"), lab.ids("mx2")
    tried_every_fork(lab, "mx1", 6)
    for source, target in zip(muted[::2], muted[1::2], strict=True):
        lab.network.mute(source, target)
    wait_until(lambda: lab.queued("mx2") == 5, "each promotes what it holds")
    wait_until(lambda: lab.queued("mx1") == 5, "each promotes what it holds")
    lab.network.heal()
    wait_until(lambda: (lab.queued("mx1"), lab.held("mx1")) == (2, 3), "the higher epoch owns")
    wait_until(lambda: (lab.queued("mx2"), lab.held("mx2")) == (3, 2), "the higher epoch owns")
    promoted_for_silence(lab, "mx2", first)
    promoted_for_silence(lab, "mx1", second)
    lab.cluster.accept()
    lab.verify()
    wait_until(lambda: deliveries(lab, "mx1").keys() == set(second), "each delivers what it owned in the end")
    wait_until(lambda: deliveries(lab, "mx2").keys() == set(first), "each delivers what it owned in the end")


def test_in_a_boundary_of_two_the_log_explains_each_duplicate(network_lab: NetworkLab):
    lab = network_lab
    lab.up(*TIMES, "reconcile_timeout=1s", nodes=2)
    lab.cluster.refuse()
    lab.send(3, to="mx1")
    ours = lab.ids("mx1")
    tried_every_fork(lab, "mx1", 3)
    lab.network.part("mx1", "mx2")
    wait_until(lambda: lab.queued("mx2") == 3, "the holder promotes")
    missed(lab, "mx1", "mx2")
    lab.cluster.accept()
    wait_until(lambda: lab.queued("mx1") == lab.queued("mx2") == 0, "both deliver")
    lab.network.heal()
    lab.settle()
    wait_until(lambda: deliveries(lab) == Counter(dict.fromkeys(ours, 2)), "each side has it in its log")
    assert all("InDoubt=true" in row["custom-data"] for row in lab.events("mx1", "DELIVER"))
    assert (lab.count().lost, lab.count().duplicates) == (0, 3)
    promoted_for_silence(lab, "mx2", ours)


def test_a_member_that_still_calls_us_is_not_taken_for_dead_because_we_cannot_call_it(
    network_lab: NetworkLab,
):
    lab = network_lab
    lab.up("shadow_resubmit_time_span=5s", nodes=2)
    lab.cluster.refuse()
    lab.send(2, to="mx1")
    lab.send(2, to="mx2")
    lab.network.mute("mx1", "mx2", calls_only=True)
    lab.cluster.freeze("mx2")
    wait_until(lambda: lab.misses("mx1", "mx2") > 0, "the session of before is given up")
    lab.cluster.thaw("mx2")
    since = len(lab.said("mx1", "heartbeat_failed"))
    # Each waits a second for an answer, and follows the one before a second later: more than the time span.
    wait_until(lambda: len(lab.said("mx1", "heartbeat_failed")) >= since + 5, "mx1 cannot call mx2", 60)
    assert (taken_over(lab, "mx1"), taken_over(lab, "mx2")) == ([], [])
    assert lab.peer("mx2", "mx1")["state"] == "reachable"
    lab.network.heal()
    lab.cluster.accept()
    lab.verify()
    assert (taken_over(lab, "mx1"), taken_over(lab, "mx2")) == ([], [])
