"""An MX with Debian's rspamd in front of Debian's Dovecot, set as docs/how-to/mx.md says."""

from __future__ import annotations

import re
import smtplib
from contextlib import ExitStack
from pathlib import Path

import pytest
from neighbourhood import arrived, port, room
from page_nodes import HOW_TO, blocks, pair
from running_lab import wait_until

from tests.neighbours import dovecot
from tests.neighbours.rspamd import AS_ROOT, GTUBE, RSPAMD, Instance, started

ANNA = "anna@example.net"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(dovecot.missing() is not None, reason=str(dovecot.missing())),
    pytest.mark.skipif(RSPAMD is None, reason="there is no rspamd (apt-get install rspamd)"),
]


def rspamd_of_the_page(directory: Path, listens: int) -> Instance:
    """Debian's whole configuration, and the files of the page. No name server; its controller is moved."""
    local, override = directory / "local.d", directory / "override.d"
    local.mkdir()
    override.mkdir()
    names = re.findall(r"/etc/rspamd/local\.d/(\S+)`", (HOW_TO / "mx.md").read_text("utf-8"))
    for name, text in zip(names, blocks("mx", "text"), strict=True):
        (local / name).write_text(text.replace("127.0.0.1:11332", f"127.0.0.1:{listens}"))
    (override / "options.inc").write_text(
        'dns { nameserver = ["127.0.0.1:1:1"]; timeout = 0.1s; retransmits = 1; }\n'
    )
    (override / "milter_headers.conf").write_text("skip_local = false;\n")  # the client of the test is local
    (override / "worker-controller.inc").write_text(f'bind_socket = "127.0.0.1:{port()}";\n')
    places = {"DBDIR": directory, "RUNDIR": directory, "LOGDIR": directory, "LOCAL_CONFDIR": directory}
    told = [f"--var={name}={place}" for name, place in places.items()]
    command = [str(RSPAMD), "-f", *AS_ROOT, "-c", "/etc/rspamd/rspamd.conf", *told]
    return Instance(command, listens, directory / "rspamd.out")


def spoken(directory: Path) -> str:
    """The log of the first node."""
    return (directory / "mx1" / "said").read_text()[-3000:]


def said(at: tuple[str, int], subject: str, body: bytes = b"hello") -> str:
    """The reply to a letter, wherever it is refused."""
    text = b"From: <you@example.org>\r\nTo: <%s>\r\nSubject: %s\r\n" % (ANNA.encode(), subject.encode())
    text += (
        b"Date: Mon, 30 Nov 2026 10:00:00 +0000\r\nMessage-ID: <%s@example.org>\r\n\r\n" % subject.encode()
    )
    with smtplib.SMTP(*at, local_hostname="client.example.org", timeout=60) as client:
        client.ehlo()
        steps = (
            lambda: client.mail("you@example.org"),
            lambda: client.rcpt(ANNA),
            lambda: client.data(text + body + b"\r\n"),
        )
        for step in steps:
            code, told = step()
            reply = f"{code} {told.decode()}"
            if code >= 400:
                break
    return reply


def test_the_page_makes_an_mx_that_filters_and_delivers(tmp_path: Path) -> None:
    with ExitStack() as stack:
        directory = stack.enter_context(room())
        behind = stack.enter_context(dovecot.running(directory / "dovecot", port(), {ANNA: 0}))
        (directory / "rspamd").mkdir()
        rspamd = stack.enter_context(started(rspamd_of_the_page(directory / "rspamd", port())))
        (settings,) = blocks("mx", "toml")
        places = {
            "127.0.0.1:11332": f"127.0.0.1:{rspamd.port}",
            "mailboxes.example.net": "127.0.0.1",
            "port = 24": f"port = {behind.address[1]}",
        }
        at = stack.enter_context(pair(tmp_path, settings, "0.0.0.0:25", places))
        replies: list[str] = []

        def taken() -> bool:
            replies.append(said(at, "first"))
            return replies[-1].startswith("250 ")

        wait_until(taken, "a letter is taken", explain=lambda: f"{replies[-1]} {spoken(tmp_path)}")
        assert said(at, "spam", GTUBE).startswith("554 5.7.1 Gtube pattern")
        rspamd.kill()
        assert said(at, "down").startswith("451 4.7.1 ")
        rspamd.start()
        assert said(at, "second").startswith("250 ")

        def stored() -> list[bytes]:
            return arrived(behind.mailboxes).get(ANNA, [])

        wait_until(lambda: len(stored()) == 2, "both are in the mailbox")
        subjects = sorted(re.findall(rb"^Subject: (\w+)", text, re.MULTILINE)[0] for text in stored())
        assert subjects == [b"first", b"second"]
        for text in stored():
            assert b"\nX-Spamd-Bar: " in text, text
