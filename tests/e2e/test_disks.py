"""The recovery table's disk row: a full disk, and a database that somebody else has locked."""

from __future__ import annotations

import smtplib
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from running_lab import INSIDE, OUTSIDE, RunningLab, text, wait_until
from scarce import FULL, reply_to_mail, slow_disk

from shadowlab.disks import Disk, lacking, mounted
from shadowlab.errors import LabError
from shadowlab.mail import CLIENT, token
from shadowrelay.admin.client import AdminClient
from shadowrelay.database.opening import FILE
from shadowrelay.shown.status import StatusEntry

pytestmark = [pytest.mark.lab, pytest.mark.slow]

MIB = 2**20
MINIMUM = 8 * MIB


@pytest.fixture
def disk(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Disk]:
    """What mx1 keeps its data on, in the lab of this test."""
    if reason := lacking():
        pytest.skip(f"mx1 needs a disk of its own, and {reason}")
    place = tmp_path / "lab" / "nodes" / "mx1" / "data"
    with mounted(tmp_path / "disk.img", place, getattr(request, "param", 40) * MIB) as disk:
        yield disk


def large(lab: RunningLab, name: str) -> int:
    """Offer a message of a mebibyte; returns the code of the reply that decided."""
    sent = token("large")
    content = text(sent, body="\r\n".join(["x" * 998] * (MIB // 1000)))
    try:
        with smtplib.SMTP(*lab.cluster.node(name).smtp, local_hostname=CLIENT) as client:
            client.sendmail("sender@outside.test", [INSIDE], content)
    except smtplib.SMTPResponseException as refusal:
        return refusal.smtp_code
    lab.sent_otherwise(sent, INSIDE)
    return 250


def free(lab: RunningLab, name: str) -> int:
    """As the node knows it."""
    page = AdminClient(lab.cluster.node(name).admin).metrics()
    (line,) = [one for one in page.splitlines() if one.startswith("shadowrelay_free_disk_bytes ")]
    return int(float(line.split()[-1]))


def test_a_full_disk_puts_mail_off_and_everything_else_goes_on(disk: Disk, lab: RunningLab):
    lab.up(f"minimum_free_disk={MINIMUM}", "shadow_resubmit_time_span=1h", nodes=2)
    lab.cluster.refuse()
    lab.send(2, to="mx1", recipients=(INSIDE, OUTSIDE))
    lab.send(2, to="mx2", recipients=(INSIDE, OUTSIDE))
    disk.leave(MINIMUM - MIB)
    wait_until(lambda: reply_to_mail(lab, "mx1") == FULL, "it has looked at the disk")
    said = AdminClient(lab.cluster.node("mx1").admin).get(StatusEntry, "status")
    assert not said["ready"]
    assert "minimum_free_disk" in said["not_ready_because"]
    assert not lab.offer(to="mx2", recipients=(INSIDE,)), "mx1 takes no copy, so there is no second one"
    assert (lab.queued("mx1"), lab.held("mx1")) == (2, 2)

    lab.cluster.accept()
    lab.verify()
    assert reply_to_mail(lab, "mx1") == FULL
    disk.leave(MINIMUM + MIB)
    wait_until(lambda: free(lab, "mx1") >= MINIMUM, "it has looked at the disk")
    assert reply_to_mail(lab, "mx1") == FULL, "a little more room is not enough"
    disk.clear()
    wait_until(lambda: reply_to_mail(lab, "mx1").startswith("250 2.1.0 "), "it has looked at the disk")
    assert AdminClient(lab.cluster.node("mx1").admin).get(StatusEntry, "status")["ready"]
    lab.send(2, to="mx1")
    wait_until(lambda: lab.offer(to="mx2", recipients=(INSIDE,)), "its copies are taken again")
    lab.verify()
    assert [lab.events(name, "RESUBMIT") for name in ("mx1", "mx2")] == [[], []]


@pytest.mark.parametrize("to", ["mx1", "mx2"], ids=["the owner's disk", "the holder's disk"])
def test_mail_itself_fills_the_disk_and_what_was_acknowledged_is_durable(
    disk: Disk, lab: RunningLab, to: str
):
    lab.up(f"minimum_free_disk={MINIMUM}", "shadow_resubmit_time_span=1h", nodes=2)
    lab.cluster.refuse()
    codes = [large(lab, to) for _ in range(6)]
    assert codes == [250] * 6
    for _ in range(40):
        codes.append(large(lab, to))
        if codes[-1] != 250:
            break
    assert codes[-1] == (452 if to == "mx1" else 451)
    assert disk.free > MINIMUM - 3 * MIB
    # The proof of durability: both processes die, and nothing but the disks speaks for the messages.
    lab.cluster.kill("mx1")
    lab.cluster.kill("mx2")
    lab.cluster.accept()
    lab.up()
    lab.verify()


def test_a_disk_without_an_octet_left_ends_the_node_and_the_holder_takes_over(disk: Disk, lab: RunningLab):
    lab.up(f"minimum_free_disk={MINIMUM}", "shadow_resubmit_time_span=2s", nodes=2)
    lab.cluster.refuse()
    lab.send(3, recipients=(INSIDE, OUTSIDE))
    disk.fill()
    wait_until(lambda: not lab.cluster.process("mx1").alive, "it cannot write, and ends")
    assert "the disk is full" in lab.cluster.layout.log("mx1").read_text("utf-8")
    wait_until(lambda: lab.queued("mx2") == 3, "the holder promotes")
    disk.fill()  # what its end gave back
    with pytest.raises(LabError, match="the disk is full"):
        lab.cluster.start("mx1")
    lab.cluster.accept()
    wait_until(lambda: lab.count().lost == 0, "the holder delivers")
    disk.clear()
    lab.cluster.start("mx1")
    lab.verify()
    assert [lab.events("mx1", event) for event in ("DELIVER", "SEND", "SENDEXTERNAL")] == [[], [], []]


def test_the_database_of_a_running_node_lets_nobody_else_in(lab: RunningLab):
    lab.up(nodes=2)
    lab.cluster.refuse()
    lab.send(2)
    file = lab.cluster.node("mx1").data_dir / FILE
    with closing(sqlite3.connect(file, timeout=0)) as other:
        with pytest.raises(sqlite3.OperationalError, match="database is locked"):
            other.execute("SELECT count(*) FROM sqlite_master").fetchone()
        with pytest.raises(sqlite3.OperationalError, match="database is locked"):
            other.execute("BEGIN IMMEDIATE")
        lab.send(2)
    lab.cluster.accept()
    lab.verify()


def test_a_node_does_not_start_on_a_database_that_another_program_has_locked(lab: RunningLab):
    lab.up("shadow_resubmit_time_span=1h", "drain_timeout=0s")  # stopped, it keeps its queue
    lab.cluster.refuse()
    lab.send(2)
    database = lab.status("mx1").database_id
    lab.cluster.stop("mx1")
    directory = lab.cluster.node("mx1").data_dir
    with closing(sqlite3.connect(directory / FILE, timeout=0)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(LabError, match="it is locked: another program has it open"):
            lab.cluster.start("mx1")
        assert not lab.offer(to="mx1", recipients=(INSIDE,))
        lab.send(1, to="mx2")
    lab.cluster.start("mx1")
    assert lab.status("mx1").database_id == database
    assert lab.queued("mx1") == 2
    assert list(directory.glob("*corrupt*")) == []
    lab.cluster.accept()
    lab.verify()
    assert [lab.events(name, "RESUBMIT") for name in ("mx2", "mx3")] == [[], []]


@pytest.mark.parametrize("name", ["mx1", "mx2"])
def test_a_slow_disk_delays_mail_and_nothing_else(lab: RunningLab, name: str):
    lab.up("shadow_resubmit_time_span=1h", nodes=2)
    lab.send()
    with slow_disk(lab, name):
        began = time.monotonic()
        lab.send(3, to="mx1")
        lab.send(3, to="mx2")
        assert time.monotonic() - began > 6 * 0.2, "each message waited for a sync of that node"
    lab.verify()
