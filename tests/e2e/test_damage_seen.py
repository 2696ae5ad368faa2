"""A disk damages a message: the operator sees it, and the message arrives as it was accepted."""

from __future__ import annotations

import json
import os
import pty
import smtplib
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from running_lab import INSIDE, RunningLab, text, wait_until

from shadowlab.mail import token
from shadowmailbox.maildir import messages

pytestmark = pytest.mark.lab

LINES = b"\r\n".join(b"%06d the same octets, whatever a disk makes of them" % line for line in range(3000))


def command(lab: RunningLab, *words: str) -> list[str]:
    return [sys.executable, "-m", "shadowrelay", *words, "--admin", lab.cluster.node("mx1").admin]


def seen(lab: RunningLab, *words: str, status: int = 0) -> str:
    done = subprocess.run(command(lab, *words), capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout


def metric(lab: RunningLab, name: str) -> float:
    with urlopen(f"{lab.cluster.node('mx1').admin}/metrics", timeout=10) as page:
        lines = page.read().decode().splitlines()
    (value,) = [line.rpartition(" ")[2] for line in lines if line.startswith(f"{name} ")]
    return float(value)


def send_large(lab: RunningLab) -> None:
    """One whose content is a file of its own."""
    sent = token("e2e")
    with smtplib.SMTP(*lab.cluster.node("mx1").smtp, timeout=30) as client:
        assert client.sendmail("sender@outside.test", [INSIDE], text(sent) + LINES) == {}
    lab.sent_otherwise(sent, INSIDE)


def content_file(lab: RunningLab) -> Path:
    (file,) = (lab.cluster.node("mx1").data_dir / "content").glob("*.eml")
    return file


def damaged(lab: RunningLab) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(seen(lab, "message", "list", "--state", "damaged", "--json"))[
        "messages"
    ]
    return found


@pytest.mark.slow
def test_a_scrub_finds_what_a_disk_has_damaged_and_the_good_copy_is_fetched_and_delivered(lab: RunningLab):
    lab.up(nodes=2)
    lab.cluster.refuse()
    send_large(lab)
    lab.send(2)
    wait_until(lambda: lab.queued("mx1") == lab.held("mx2") == 3, "all are in the queue, with copies")
    assert "Damaged: 0" in seen(lab, "status")
    assert "damaged content     0" in seen(lab, "scrub")

    lab.cluster.kill("mx2")  # the only member with a good copy is away
    file = content_file(lab)
    octets = bytearray(file.read_bytes())
    octets[len(octets) // 2] ^= 4
    file.write_bytes(octets)
    terminal, tty = pty.openpty()
    done = subprocess.run(
        command(lab, "scrub"), stdout=subprocess.PIPE, stderr=tty, text=True, check=False, timeout=60
    )
    os.close(tty)
    assert "scrub" in os.read(terminal, 65_536).decode()
    os.close(terminal)
    assert done.returncode == 1
    assert "damaged content     1" in done.stdout

    (item,) = damaged(lab)
    assert (item["state"], item["damage"]) == ("queued", "content")
    shown = seen(lab, "message", "show", item["id"])
    assert "the octets differ from the digest" in shown
    assert "not yet asked: mx2.lab.test" in shown
    assert "DAMAGED: 1 message waits for a good copy" in seen(lab, "status")
    assert metric(lab, 'shadowrelay_damaged_messages{state="waiting"}') == 1
    assert metric(lab, 'shadowrelay_damage_found_total{what="content"}') == 1
    lab.cluster.accept()
    wait_until(lambda: lab.queued("mx1") == 1, "the others are delivered; it is not")

    lab.cluster.start("mx2")
    lab.verify()
    arrived = [path.read_bytes() for _, path in messages(lab.cluster.layout.mailbox.dir)]
    assert [LINES in mail.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n") for mail in arrived].count(
        True
    ) == 1
    assert damaged(lab) == []
    assert metric(lab, 'shadowrelay_good_copies_total{way="fetched"}') == 1
    for name in ("mx1", "mx2"):
        wait_until(
            lambda name=name: len(lab.events(name, "HARESTORE")) == 1,
            "its log tells of the good copy",
        )
    assert "damaged content     0" in seen(lab, "scrub")


@pytest.mark.slow
def test_what_both_disks_have_damaged_is_set_aside_and_the_operator_can_put_it_back(lab: RunningLab):
    lab.up(nodes=2)
    lab.cluster.refuse()
    send_large(lab)
    wait_until(lambda: lab.queued("mx1") == lab.held("mx2") == 1, "it is in the queue, with a copy")
    mine = content_file(lab)
    good = mine.read_bytes()
    (theirs,) = (lab.cluster.node("mx2").data_dir / "content").glob("*.eml")
    for file in (mine, theirs):
        file.write_bytes(good[: len(good) // 2])
    seen(lab, "scrub", status=1)
    wait_until(lambda: "DAMAGED EVERYWHERE" in seen(lab, "status"), "no member has a good copy")
    (item,) = damaged(lab)
    assert item["state"] == "set_aside"
    assert metric(lab, 'shadowrelay_damaged_messages{state="set_aside"}') == 1
    lab.cluster.accept()
    mine.write_bytes(good)
    assert "it is damaged: a good copy is looked for again" in seen(lab, "message", "resume", item["id"])
    lab.verify()
