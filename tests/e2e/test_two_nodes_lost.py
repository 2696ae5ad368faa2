"""The recovery table's last row: more was lost than the promise covers. What is gone is known by name."""

from __future__ import annotations

import pytest
from running_lab import RunningLab, wait_until

from shadowlab.mail import arrivals, tracked
from shadowrelay.admin.client import AdminClient
from shadowrelay.shown.messages import MessagesPage

pytestmark = [pytest.mark.lab, pytest.mark.slow]

SETTLED = {"DELIVER", "SEND", "SENDEXTERNAL", "DUPLICATEDELIVER", "FAIL", "RESUBMIT"}
SEALED_SOON = "tracking.max_file_age=1s"  # closed files count as shipped: they survive the disk


def rows(lab: RunningLab) -> list[dict[str, str]]:
    return [row for node in lab.cluster.layout.nodes for row in tracked(node.tracking_dir)]


def lost_by_mailbox(lab: RunningLab) -> set[str]:
    """Message-IDs of what was acknowledged, and never arrived."""
    arrived = {message for message, _ in arrivals(lab.cluster.layout.mailbox.dir)}
    return {letter.message_id for letter in lab.acknowledged} - arrived


def lost_by_logs(lab: RunningLab, *dead: str) -> set[str]:
    """As docs/recovery.md tells to look for it: received, settled nowhere, and every copy on a dead node."""
    names = {lab.cluster.node(name).name for name in dead}
    settled = {row["network-message-id"] for row in rows(lab) if row["event-id"] in SETTLED}
    survivors = {
        row["network-message-id"]
        for row in rows(lab)
        if row["event-id"] == "HAREDIRECT" and row["server-hostname"] not in names
    }
    return {
        row["message-id"]
        for name in dead
        for row in lab.events(name, "RECEIVE")
        if row["network-message-id"] not in settled | survivors
    }


def shipped(lab: RunningLab, name: str, messages: int) -> None:
    """Every row about the messages that a node received is in a closed file."""

    def closed() -> bool:
        directory = lab.cluster.node(name).tracking_dir
        waiting = "".join(file.read_text("utf-8") for file in directory.glob(".MSGTRK-*.LOG.open"))
        return ",RECEIVE," not in waiting and len(lab.events(name, "RECEIVE")) >= messages

    wait_until(closed, f"{name} has shipped its log")


def test_when_owner_and_holder_are_lost_the_logs_name_what_went_with_them(lab: RunningLab):
    lab.up("shadow_resubmit_time_span=1h", SEALED_SOON)
    lab.send(2, to="mx1")
    lab.verify()
    lab.cluster.refuse()
    lab.send(3, to="mx1")
    lab.send(2, to="mx2")
    lost = {letter.message_id for letter in lab.acknowledged[2:5]}
    assert (lab.held("mx3"), lab.held("mx2")) == (5, 0), "copies leave the site"
    shipped(lab, "mx1", 5)
    for name in ("mx1", "mx3"):
        lab.cluster.kill(name)
    for name in ("mx1", "mx3"):
        lab.cluster.wipe(name)
    lab.cluster.accept()
    for name in ("mx1", "mx3"):
        lab.cluster.start(name)
    wait_until(lambda: lab.queued("mx2") == 0, "what had a copy elsewhere is delivered")
    assert lost_by_mailbox(lab) == lost
    assert lost_by_logs(lab, "mx1", "mx3") == lost
    assert (lab.count().duplicates, lab.count().unexpected) == (0, 0)


def test_two_nodes_that_die_and_keep_their_disks_lose_nothing(lab: RunningLab):
    lab.up("shadow_resubmit_time_span=1h")
    lab.cluster.refuse()
    lab.send(3, to="mx1")
    lab.send(2, to="mx3")
    for name in ("mx1", "mx3"):
        lab.cluster.kill(name)
    lab.cluster.accept()
    for name in ("mx3", "mx1"):
        lab.cluster.start(name)
    lab.verify()
    assert [lab.events(name, "RESUBMIT") for name in ("mx1", "mx2", "mx3")] == [[], [], []]


def test_exposed_messages_are_named_before_and_after_they_are_lost(lab: RunningLab):
    at_once = "receive.default.max_acknowledgement_delay=0s"
    lab.up("reject_message_on_shadow_failure=false", "shadow_resubmit_time_span=1h", at_once, SEALED_SOON)
    lab.cluster.refuse()
    lab.send(2, to="mx1")
    redundant = {letter.message_id for letter in lab.acknowledged}
    for name in ("mx2", "mx3"):
        lab.cluster.kill(name)
    lab.send(3, to="mx1")
    exposed = {letter.message_id for letter in lab.acknowledged} - redundant
    # Those before are exposed by now too, as far as mx1 can know: their holder does not answer.
    wait_until(lambda: lab.status("mx1").exposed == 5, "status tells")
    listed = AdminClient(lab.cluster.node("mx1").admin).get(MessagesPage, "messages", state="exposed")
    ids = {message["id"] for message in listed["messages"]}
    wait_until(lambda: len(lab.events("mx1", "HAREDIRECTFAIL")) == 3, "the log tells")
    failed = lab.events("mx1", "HAREDIRECTFAIL")
    assert {row["message-id"] for row in failed} == exposed
    assert {row["network-message-id"] for row in failed} < ids
    shipped(lab, "mx1", 5)

    lab.cluster.kill("mx1")
    lab.cluster.wipe("mx1")
    lab.cluster.accept()
    for name in ("mx1", "mx2", "mx3"):
        lab.cluster.start(name)
    wait_until(lambda: len(lost_by_mailbox(lab)) == 3, "the holders promote what they have")
    wait_until(lambda: lab.queued("mx2") + lab.queued("mx3") == 0, "and deliver it")
    assert lost_by_mailbox(lab) == exposed
    assert {row["message-id"] for row in lab.events("mx1", "HAREDIRECTFAIL")} == exposed
