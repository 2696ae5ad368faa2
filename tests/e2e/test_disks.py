"""The recovery table's disk row: a full disk, and a database that somebody else has locked."""

from __future__ import annotations

import shutil
import smtplib
import sqlite3
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from running_lab import INSIDE, OUTSIDE, RunningLab, text, wait_until

from shadowlab.disks import Disk, lacking, mounted
from shadowlab.errors import LabError
from shadowlab.mail import CLIENT, token
from shadowrelay.admin.client import AdminClient
from shadowrelay.database.opening import FILE
from shadowrelay.shown.status import StatusEntry

pytestmark = [pytest.mark.lab, pytest.mark.slow]

MIB = 2**20
MINIMUM = 8 * MIB
FULL = "452 4.3.1 Insufficient system resources"


@pytest.fixture
def disk(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Disk]:
    """What mx1 keeps its data on, in the lab of this test."""
    if reason := lacking():
        pytest.skip(f"mx1 needs a disk of its own, and {reason}")
    place = tmp_path / "lab" / "nodes" / "mx1" / "data"
    with mounted(tmp_path / "disk.img", place, getattr(request, "param", 40) * MIB) as disk:
        yield disk


def reply_to_mail(lab: RunningLab, name: str, source: str = "127.0.0.1") -> str:
    """What a sender is told before it sends its content."""
    host, port = lab.cluster.node(name).smtp
    with smtplib.SMTP(host, port, local_hostname=CLIENT, source_address=(source, 0)) as client:
        client.ehlo()
        code, text = client.mail("sender@outside.test")
        return f"{code} {text.decode()}"


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


def test_a_full_disk_puts_mail_off_and_everything_else_goes_on(disk: Disk, lab: RunningLab):
    lab.up(f"minimum_free_disk={MINIMUM}", "shadow_resubmit_time_span=1h", nodes=2)
    lab.cluster.refuse()
    lab.send(2, to="mx1", recipients=(INSIDE, OUTSIDE))
    lab.send(2, to="mx2", recipients=(INSIDE, OUTSIDE))
    disk.leave(MINIMUM - MIB)
    assert reply_to_mail(lab, "mx1") == FULL
    said = AdminClient(lab.cluster.node("mx1").admin).get(StatusEntry, "status")
    assert not said["ready"]
    assert "minimum_free_disk" in said["not_ready_because"]
    assert not lab.offer(to="mx2", recipients=(INSIDE,)), "mx1 takes no copy, so there is no second one"
    assert (lab.queued("mx1"), lab.held("mx1")) == (2, 2)

    lab.cluster.accept()
    lab.verify()
    assert reply_to_mail(lab, "mx1") == FULL
    disk.leave(MINIMUM + MIB)
    assert reply_to_mail(lab, "mx1") == FULL, "a little more room is not enough"
    disk.clear()
    assert reply_to_mail(lab, "mx1").startswith("250 2.1.0 ")
    assert AdminClient(lab.cluster.node("mx1").admin).get(StatusEntry, "status")["ready"]
    lab.send(2, to="mx1")
    wait_until(lambda: lab.offer(to="mx2", recipients=(INSIDE,)), "its copies are taken again")
    lab.verify()
    assert [lab.events(name, "RESUBMIT") for name in ("mx1", "mx2")] == [[], []]


@contextmanager
def mail_comes(lab: RunningLab) -> Iterator[None]:
    """All the time, to both nodes, from a client that is in no relay network."""
    over = threading.Event()

    def send() -> None:
        while not over.wait(0.1):
            for name in ("mx1", "mx2"):
                lab.offer(to=name, recipients=(INSIDE,))

    sending = threading.Thread(target=send)
    sending.start()
    try:
        yield
    finally:
        over.set()
        sending.join()


@pytest.mark.parametrize("disk", [300], ids=["of 300 MiB"], indirect=True)
def test_before_a_disk_is_full_strangers_are_refused_then_senders_and_copies_last(
    disk: Disk, lab: RunningLab
) -> None:
    """Two workers go by one level; under load nothing is lost that was acknowledged; no restart."""
    trusted = "127.0.0.2"
    lab.up(
        "minimum_free_disk=2MiB",
        "shadow_resubmit_time_span=1h",
        f'relay_networks=["{trusted}/32"]',
        nodes=2,
        workers=2,
        environs={
            "mx1": {  # mx2 has the disk of this machine
                "SHADOWRELAY_BACK_PRESSURE__ENABLED": "true",
                "SHADOWRELAY_BACK_PRESSURE__DATA_DISK": "50/70/60/40",
            }
        },
    )
    size = shutil.disk_usage(disk.place).total

    def refused() -> tuple[bool, bool]:
        """Strangers, and others; asked often enough that each worker was."""
        asked = [[reply_to_mail(lab, "mx1", source) for _ in range(6)] for source in ("127.0.0.1", trusted)]
        return asked[0] == [FULL] * 6, asked[1] == [FULL] * 6

    with mail_comes(lab):
        wait_until(lambda: refused() == (False, False), "all is taken")
        disk.leave(int(size * 0.45))
        wait_until(lambda: refused() == (True, False), "strangers are refused")
        disk.leave(int(size * 0.25))
        wait_until(lambda: refused() == (True, True), "all senders are refused")
        assert lab.offer(to="mx2", recipients=(INSIDE,)), "copies are taken"
        disk.leave(MIB)
        wait_until(lambda: not lab.offer(to="mx2", recipients=(INSIDE,)), "copies are refused last")
        assert refused() == (True, True)
        disk.clear()
        wait_until(lambda: lab.offer(to="mx2", recipients=(INSIDE,)), "copies are taken again")
        wait_until(lambda: refused() == (False, False), "it is over, without a restart")
    lab.verify()
    levels = [row["source-context"] for row in lab.events("mx1", "BACKPRESSURE")]
    assert levels[0] == "data_disk: low to medium"
    assert levels[-1].endswith(" to low")
    # The floor may refuse copies before the next look finds the disk full.
    assert {"low", "medium", "high"} <= {one.rpartition(" ")[2] for one in levels}
    assert lab.events("mx2", "BACKPRESSURE") == []


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


def traced(process: str) -> bool:
    """Somebody traces every thread of it."""
    found = [path.read_text("ascii") for path in Path(f"/proc/{process}/task").glob("*/status")]
    return bool(found) and not any("TracerPid:\t0\n" in each for each in found)


@contextmanager
def slow_disk(lab: RunningLab, name: str) -> Iterator[None]:
    """Each sync of this node takes a fifth of a second longer."""
    if shutil.which("strace") is None:
        pytest.skip("there is no strace (apt-get install strace)")
    calls = "fsync,fdatasync"
    slowed = ["-e", f"trace={calls}", "-e", f"inject={calls}:delay_enter=200ms"]
    process = str(lab.cluster.process(name).pid)
    tracer = subprocess.Popen(["strace", "-f", "-qq", "-o", "/dev/null", *slowed, "-p", process])
    try:
        wait_until(lambda: traced(process), "strace has all its threads")
        yield
        assert tracer.poll() is None, "strace slowed it down to the end"
    finally:
        tracer.terminate()
        tracer.wait(30)


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
