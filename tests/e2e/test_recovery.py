"""The recovery table on real processes: what was acknowledged arrives, once, whatever happens."""

from __future__ import annotations

import threading
import time
from datetime import datetime, timedelta

import pytest
from running_lab import INSIDE, OUTSIDE, RunningLab, gate, wait_until

from shadowlab.ports import free_ports

pytestmark = pytest.mark.lab

HEARTBEAT = timedelta(seconds=2)
BUSY = timedelta(seconds=5)  # what a machine may take that does other things as well


def test_an_owner_that_is_killed_and_restarts_delivers_its_queue_once(lab: RunningLab):
    lab.up("shadow_resubmit_time_span=1h")
    lab.cluster.refuse()
    lab.send(3, recipients=(INSIDE, OUTSIDE))
    lab.cluster.kill("mx1")
    lab.cluster.start("mx1")
    assert lab.queued("mx1") == 3
    lab.cluster.accept()
    lab.verify()
    assert [lab.events(name, "RESUBMIT") for name in ("mx2", "mx3")] == [[], []]


@pytest.mark.slow
def test_when_the_owners_disk_is_lost_the_holders_promote_on_first_contact(lab: RunningLab):
    lab.up("shadow_resubmit_time_span=1h", f"shadow_heartbeat_frequency={HEARTBEAT.seconds}s")
    lab.cluster.refuse()
    lab.send(3, recipients=(INSIDE, OUTSIDE))
    before = lab.status("mx1").database_id
    lab.cluster.kill("mx1")
    lab.cluster.wipe("mx1")
    lab.cluster.accept()
    lab.cluster.start("mx1")
    assert lab.status("mx1").database_id != before
    lab.verify()
    wait_until(lambda: len(lab.events("mx3", "RESUBMIT")) == 3, "it is in the log")
    resubmitted = lab.events("mx3", "RESUBMIT")
    assert {row["reference"] for row in resubmitted} == {before}
    here = f"S:Db={lab.status('mx1').database_id}"
    returned = next(row for row in lab.events("mx1", "LOAD") if here in row["custom-data"])
    waited = max(map(at, resubmitted)) - at(returned)
    assert waited < HEARTBEAT + BUSY


def at(row: dict[str, str]) -> datetime:
    return datetime.fromisoformat(row["date-time"])


@pytest.mark.slow
def test_an_owner_that_was_away_too_long_becomes_the_shadow_of_who_took_over(lab: RunningLab):
    lab.up("shadow_resubmit_time_span=2s")
    lab.cluster.refuse()
    lab.send(2)
    lab.cluster.kill("mx1")
    wait_until(lambda: lab.queued("mx3") == 2, "the holder promotes")
    lab.cluster.start("mx1")
    wait_until(lambda: lab.held("mx1") == 2 and lab.queued("mx1") == 0, "the roles are swapped")
    wait_until(lambda: len(lab.events("mx1", "TRANSFER")) == 2, "the old owner has it in its log")
    lab.cluster.accept()
    lab.verify()
    assert lab.events("mx1", "DELIVER") == []


@pytest.mark.slow
def test_an_owner_that_was_frozen_too_long_asks_before_it_delivers_again(lab: RunningLab):
    lab.up("shadow_resubmit_time_span=2s", "queue_glitch_retry_interval=2s")
    lab.cluster.refuse()
    lab.send(3, recipients=(INSIDE, OUTSIDE))
    # No delivery may be in flight at the freeze: that one could end as a duplicate which nobody can avoid.
    wait_until(lambda: len(lab.events("mx1", "DEFER")) == 6, "every fork was tried once")
    lab.cluster.freeze("mx1")
    wait_until(lambda: lab.queued("mx3") == 3, "the holder promotes")
    lab.cluster.accept()
    wait_until(lambda: lab.queued("mx3") == 0, "the holder delivers")
    lab.cluster.thaw("mx1")
    wait_until(lambda: lab.queued("mx1") == 0, "the old owner learns of it")
    lab.verify()
    assert lab.events("mx1", "DELIVER") == []


@pytest.mark.slow
def test_an_owner_that_was_away_too_long_asks_before_it_delivers_again(lab: RunningLab):
    lab.up("shadow_resubmit_time_span=2s")
    lab.cluster.refuse()
    lab.send(2, recipients=(INSIDE, OUTSIDE))
    lab.cluster.kill("mx1")
    lab.cluster.accept()
    wait_until(lambda: lab.count().lost == 0, "the holder promotes and delivers")
    lab.cluster.start("mx1")
    lab.verify()
    assert [lab.events("mx1", event) for event in ("DELIVER", "SEND", "SENDEXTERNAL")] == [[], [], []]


@pytest.mark.slow
def test_when_the_holder_dies_the_owner_finds_another_one(lab: RunningLab):
    lab.up("shadow_resubmit_time_span=1h")
    lab.cluster.refuse()
    lab.send(3)
    assert lab.held("mx3") == 3
    lab.cluster.kill("mx3")
    wait_until(lambda: lab.held("mx2") == 3, "the other member holds copies")
    wait_until(lambda: lab.status("mx1").exposed == 0, "nothing is exposed")
    lab.cluster.start("mx3")
    lab.cluster.accept()
    lab.verify()


@pytest.mark.slow
def test_when_half_was_delivered_before_the_owners_disk_is_lost_only_the_rest_is_sent(lab: RunningLab):
    (closed,) = free_ports(1)
    lab.up(f"routes.outside.port={closed}")
    lab.send(2, recipients=(INSIDE, OUTSIDE))
    (first, second) = lab.ids("mx1")
    wait_until(lambda: lab.count().delivered == 2, "one half is delivered")
    wait_until(lambda: lab.unsettled("mx3", first) == lab.unsettled("mx3", second) == 1, "the holder is told")
    lab.cluster.kill("mx1")
    lab.cluster.wipe("mx1")
    lab.cluster.start("mx1")
    wait_until(lambda: lab.queued("mx3") == 2, "the holder promotes")
    with gate(closed, lab.cluster.layout.mailbox.outside):
        lab.verify()
    wait_until(lambda: len(lab.events("mx3", "SENDEXTERNAL")) == 2, "it is in the log")
    assert lab.events("mx3", "DELIVER") == []


@pytest.mark.slow
def test_a_holder_polls_from_its_first_copy_on_however_rare_heartbeats_are(lab: RunningLab):
    # Until it has heard of a delivery, the loss of the owner's disk would make a duplicate.
    lab.up("shadow_heartbeat_frequency=1h", nodes=2)
    for _ in range(2):
        lab.send(1)
        lab.verify()
        wait_until(lambda: lab.held("mx2") == 0, "the holder was told")


@pytest.mark.slow
def test_a_frozen_holder_costs_nothing_but_time(lab: RunningLab):
    lab.up("shadow_attempt_timeout=1s", "shadow_resubmit_time_span=1h")
    lab.cluster.freeze("mx3")
    lab.send(2)
    lab.cluster.thaw("mx3")
    lab.verify()


@pytest.mark.slow
def test_nothing_is_lost_when_a_node_and_its_disk_die_under_load(lab: RunningLab):
    lab.up()
    over = threading.Event()

    def sending() -> None:
        while not over.is_set():
            for to in ("mx1", "mx2", "mx3"):
                if not lab.offer(to=to, recipients=(INSIDE, OUTSIDE)):
                    time.sleep(0.05)

    clients = [threading.Thread(target=sending) for _ in range(3)]
    for client in clients:
        client.start()
    try:
        wait_until(lambda: len(lab.acknowledged) > 50, "mail flows")
        lab.cluster.kill("mx1")
        lab.cluster.wipe("mx1")
        at_that_moment = len(lab.acknowledged)
        lab.cluster.start("mx1")
        wait_until(lambda: len(lab.acknowledged) > at_that_moment + 50, "mail flows again")
    finally:
        over.set()
        for client in clients:
            client.join()
    # What was delivered in the last second before the death may come twice: its events died with the owner.
    lab.settle()
    assert lab.count().lost == 0


@pytest.mark.slow
def test_after_everything_was_killed_the_lab_resumes_where_it_was(lab: RunningLab):
    lab.up()
    lab.cluster.refuse()
    lab.send(1, to="mx1")
    lab.send(1, to="mx2", recipients=(OUTSIDE,))
    lab.send(1, to="mx3", recipients=(INSIDE, OUTSIDE))
    before, database = lab.cluster.layout, lab.status("mx2").database_id
    for name in ("mx1", "mx2", "mx3", "mailbox"):
        lab.cluster.kill(name)
    assert lab.up() == ["mailbox", "mx1", "mx2", "mx3"]
    after = lab.cluster.layout
    assert [(node.smtp, node.peer, node.admin) for node in after.nodes] == [
        (node.smtp, node.peer, node.admin) for node in before.nodes
    ]
    assert lab.status("mx2").database_id == database
    lab.cluster.accept()
    lab.verify()
