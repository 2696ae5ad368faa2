"""A node is emptied before it is stopped: nothing is stranded on it, and nothing arrives twice."""

from __future__ import annotations

import json
import smtplib
import subprocess
import sys
import threading
from typing import Any

import pytest
from running_lab import INSIDE, OUTSIDE, RunningLab, wait_until

from shadowlab.probing import greeting
from shadowlab.probing import status as status_of

pytestmark = pytest.mark.lab


def said(lab: RunningLab, name: str, *options: str) -> tuple[int, str]:
    """``shadowrelay drain`` for a node of the lab."""
    admin = lab.cluster.node(name).admin
    done = subprocess.run(
        [sys.executable, "-m", "shadowrelay", "drain", "--admin", admin, *options],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout, done.stderr
    return done.returncode, done.stdout


def drain(lab: RunningLab, name: str, *options: str) -> tuple[int, dict[str, Any]]:
    """The same, in full."""
    status, text = said(lab, name, "--json", *options)
    return status, json.loads(text)


@pytest.mark.slow
def test_a_node_that_stops_hands_its_queue_over_and_the_others_deliver_it_once(lab: RunningLab):
    lab.up("shadow_resubmit_time_span=1h", "drain_timeout=15s")
    lab.cluster.refuse()
    lab.send(4, recipients=(INSIDE, OUTSIDE))
    lab.cluster.stop("mx1")
    wait_until(lambda: lab.queued("mx2") + lab.queued("mx3") == 4, "the others own the mail")
    lab.cluster.accept()
    wait_until(lambda: lab.count().lost == 0, "all delivered while the node is away")
    assert {row["source-context"] for row in lab.events("mx3", "RESUBMIT")} == {"handed-over"}
    (told,) = lab.said("mx1", "node_drained")
    assert (told["queued"], sum(told["handed_over"].values()), told["not_yet_taken"]) == (0, 4, {})
    lab.cluster.start("mx1")
    lab.verify()


@pytest.mark.slow
def test_mail_that_was_under_way_when_the_node_was_told_to_stop_is_handed_over_too(lab: RunningLab):
    lab.up("shadow_resubmit_time_span=1h", "drain_timeout=20s")
    lab.cluster.refuse()
    node = lab.cluster.node("mx1")
    sender = smtplib.SMTP(*node.smtp)
    sender.ehlo("client.test")
    sender.mail("sender@outside.test")
    sender.rcpt(INSIDE)
    assert sender.docmd("DATA")[0] == 354
    stopping = threading.Thread(target=lab.cluster.stop, args=("mx1",))
    stopping.start()
    wait_until(lambda: greeting(node.smtp).startswith("421"), "the node stops")
    wait_until(lambda: (found := status_of(node)) and not found.queued, "nothing is in its queue")
    sender.send(b"Subject: late\r\n\r\nlate\r\n.\r\n")
    assert sender.getreply()[0] == 250
    sender.close()
    stopping.join()
    (told,) = lab.said("mx1", "node_drained")
    assert (told["queued"], sum(told["handed_over"].values())) == (0, 1)
    lab.cluster.accept()
    wait_until(lambda: list(lab.cluster.layout.mailbox.dir.glob("*/*/new/*")), "delivered meanwhile")
    lab.cluster.start("mx1")


@pytest.mark.slow
def test_a_drained_node_takes_no_mail_and_no_copies_until_the_drain_ends(lab: RunningLab):
    lab.up("shadow_resubmit_time_span=1h", "reject_message_on_shadow_failure=true")
    lab.cluster.refuse()
    lab.send(3)
    status, told = drain(lab, "mx1")
    assert (status, told["draining"], told["queued"], told["not_yet_taken"]) == (0, True, 0, {})
    assert sum(told["handed_over"].values()) == 3
    with pytest.raises(smtplib.SMTPConnectError) as refused:
        smtplib.SMTP(*lab.cluster.node("mx1").smtp)
    assert refused.value.smtp_code == 421
    held = lab.held("mx1")
    lab.send(3, to="mx2")
    assert lab.held("mx1") == held
    assert drain(lab, "mx1", "--end")[1]["draining"] is False
    lab.send(1)
    lab.cluster.accept()
    lab.verify()


@pytest.mark.slow
def test_a_drain_is_not_done_while_a_message_is_under_way(lab: RunningLab):
    lab.up("shadow_resubmit_time_span=1h")
    lab.cluster.refuse()
    sender = smtplib.SMTP(*lab.cluster.node("mx1").smtp)
    sender.ehlo("client.test")
    sender.mail("sender@outside.test")
    sender.rcpt(INSIDE)
    assert sender.docmd("DATA")[0] == 354
    assert "1 session under way" in said(lab, "mx1", "--within", "0s")[1]
    code, told = drain(lab, "mx1", "--within", "0s")
    assert (code, told["done"], told["arriving"], told["queued"]) == (1, False, 1, 0)
    sender.send(b"Subject: late\r\n\r\nlate\r\n.\r\n")
    assert sender.getreply()[0] == 250
    sender.close()
    code, told = drain(lab, "mx1")  # the drain before goes on meanwhile, and may have handed it over
    assert (code, told["done"], told["queued"]) == (0, True, 0)
    wait_until(lambda: lab.queued("mx2") + lab.queued("mx3") == 1, "another node owns it")
    lab.cluster.accept()


@pytest.mark.slow
def test_a_boundary_whose_other_members_are_gone_says_what_is_left_and_keeps_it(lab: RunningLab):
    lab.up("shadow_resubmit_time_span=1h", nodes=2)
    lab.cluster.refuse()
    lab.send(2)
    lab.cluster.kill("mx2")
    wait_until(lambda: lab.peer("mx1", "mx2")["state"] == "unreachable", "its loss is noticed")
    status, told = drain(lab, "mx1", "--within", "2s")
    assert (status, told["queued"], told["handed_over"]) == (1, 2, {})
    lab.cluster.stop("mx1")
    lab.cluster.accept()
    lab.cluster.start("mx1")
    lab.cluster.start("mx2")
    lab.verify()


@pytest.mark.slow
def test_a_drain_is_not_done_before_the_new_owner_has_taken_the_mail(lab: RunningLab):
    lab.up("shadow_resubmit_time_span=1h", nodes=2)  # nobody else could take it
    lab.cluster.refuse()
    lab.send(3)
    lab.cluster.freeze("mx2")
    status, told = drain(lab, "mx1", "--within", "6s")
    assert (status, told["done"]) == (1, False)
    assert told["queued"] + sum(told["not_yet_taken"].values()) == 3
    lab.cluster.thaw("mx2")
    status, told = drain(lab, "mx1")
    assert (status, told["done"], told["queued"], told["not_yet_taken"]) == (0, True, 0, {})
    lab.cluster.kill("mx1")  # its disk is not needed any more
    lab.cluster.wipe("mx1")
    lab.cluster.start("mx1")
    lab.cluster.accept()
    lab.verify()


@pytest.mark.slow
def test_what_a_drained_node_holds_is_told_and_once_replaced_its_disk_is_not_needed(lab: RunningLab):
    lab.up("shadow_resubmit_time_span=1h")
    lab.cluster.refuse()
    lab.send(3)
    wait_until(lambda: lab.held("mx3") == 3, "the other site has the copies")
    status, told = drain(lab, "mx3")
    assert (status, told["held_for"]) == (0, {lab.cluster.node("mx1").name: 3})
    _, text = said(lab, "mx3")
    assert f"Holds the second copy of 3 messages of {lab.cluster.node('mx1').name}\n" in text
    assert "Keep its disk until these members show At risk: 0." in text
    lab.cluster.stop("mx3")
    (last,) = lab.said("mx3", "node_drained")
    assert last["held_for"] == told["held_for"]
    wait_until(lambda: lab.held("mx2") == 3, "the owner has other copies")
    wait_until(lambda: lab.status("mx1").exposed == 0, "the owner counts them")
    lab.cluster.wipe("mx3")
    lab.cluster.kill("mx1")
    lab.cluster.wipe("mx1")
    lab.cluster.start("mx1")
    lab.cluster.accept()
    wait_until(lambda: lab.count().lost == 0, "all delivered without both disks")
    lab.cluster.start("mx3")
    lab.verify()


def state(lab: RunningLab, name: str) -> str:
    """What the table of ``lab status`` says of a node."""
    typed = [sys.executable, "-m", "shadowlab", "status", "--dir", str(lab.directory)]
    table = subprocess.run(typed, capture_output=True, text=True, check=True).stdout
    (row,) = [line.split() for line in table.splitlines() if line.startswith(name)]
    return row[2]


@pytest.mark.slow
def test_the_labs_status_tells_a_node_that_is_drained_from_one_that_is_up(lab: RunningLab):
    lab.up("shadow_resubmit_time_span=1h", nodes=2)
    lab.cluster.refuse()
    lab.send(1)
    lab.cluster.freeze("mx2")  # nobody takes over what is handed to it
    drain(lab, "mx1", "--within", "0s")
    assert state(lab, "mx1") == "draining"
    lab.cluster.thaw("mx2")
    drain(lab, "mx1")
    assert (state(lab, "mx1"), state(lab, "mx2")) == ("drained", "up")
    assert lab.up() == [], "a node that is drained runs, and is not waited for"
    assert not lab.cluster.start("mx1")
    drain(lab, "mx1", "--end")
    assert state(lab, "mx1") == "up"
    lab.cluster.accept()
    lab.verify()


@pytest.mark.slow
def test_nodes_that_all_stop_at_once_lose_nothing(lab: RunningLab):
    lab.up("drain_timeout=10s")
    lab.cluster.refuse()
    for name in ("mx1", "mx2", "mx3"):
        lab.send(2, to=name)
    lab.cluster.down()
    lab.cluster.accept()
    lab.up()
    lab.verify()
