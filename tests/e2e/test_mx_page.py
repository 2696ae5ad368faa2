"""An MX with Debian's rspamd in front of Debian's Dovecot, set as docs/how-to/mx.md says."""

from __future__ import annotations

import os
import re
import shutil
import signal
import smtplib
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest
from neighbourhood import arrived, port, room
from running_lab import wait_until

from shadowlab.probing import greeting
from shadowrelay import authority
from tests.neighbours import dovecot
from tests.neighbours.rspamd import AS_ROOT, GTUBE, RSPAMD, Instance, started

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "mx.md"
ANNA = "anna@example.net"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(dovecot.missing() is not None, reason=str(dovecot.missing())),
    pytest.mark.skipif(RSPAMD is None, reason="there is no rspamd (apt-get install rspamd)"),
]


def blocks(kind: str) -> list[str]:
    found = re.findall(rf"^   ```{kind}\n(.*?)^   ```$", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    return [re.sub(r"^   ", "", text, flags=re.MULTILINE) for text in found]


def rspamd_of_the_page(directory: Path, listens: int) -> Instance:
    """Debian's whole configuration, and the files of the page. No name server; its controller is moved."""
    local, override = directory / "local.d", directory / "override.d"
    local.mkdir()
    override.mkdir()
    names = re.findall(r"/etc/rspamd/local\.d/(\S+)`", PAGE.read_text("utf-8"))
    for name, text in zip(names, blocks("text"), strict=True):
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


@contextmanager
def nodes(directory: Path, rspamd: int, mailboxes: int) -> Iterator[tuple[str, int]]:
    """Both nodes of the page, each a process, and where the first one takes mail."""
    now = datetime.now(UTC)
    ca = authority.init(directory / "ca", name="members", now=now)
    (page,) = blocks("toml")
    members, senders = {n: port() for n in (1, 2)}, {n: port() for n in (1, 2)}
    with ExitStack() as stack:
        for n, other in ((1, 2), (2, 1)):
            etc = directory / f"mx{n}"
            etc.mkdir()
            pair = authority.issue(directory / "ca", f"mx{n}.example.net", out=etc, now=now)
            for name in ("member", "smtp"):
                shutil.copy(pair.certificate, etc / f"{name}.pem")
                shutil.copy(pair.key, etc / f"{name}.key")
            shutil.copy(ca.certificate, etc / "members-ca.pem")
            names = {"1": n, "2": other}
            text = re.sub(r'name = "mx(\d)', lambda found, of=names: f'name = "mx{of[found[1]]}', page)  # type: ignore[misc]
            for there, here in {
                "mx2.example.net:2526": f"127.0.0.1:{members[other]}",
                "0.0.0.0:2526": f"127.0.0.1:{members[n]}",
                "0.0.0.0:25": f"127.0.0.1:{senders[n]}",
                "127.0.0.1:11332": f"127.0.0.1:{rspamd}",
                "mailboxes.example.net": "127.0.0.1",
                "port = 24": f"port = {mailboxes}",
                "/etc/shadowrelay": str(etc),
                "/var/lib/shadowrelay": str(etc / "data"),
            }.items():
                if n == 1:
                    assert there in page, there
                text = text.replace(there, here)
            text = f'minimum_free_disk = 0\n{text}\n[admin]\nlisten = "127.0.0.1:{port()}"\n'
            (etc / "settings.toml").write_text(text)
            with (etc / "said").open("wb") as said:
                process = subprocess.Popen(
                    [sys.executable, "-m", "shadowrelay", "run", str(etc / "settings.toml")],
                    stdout=said,
                    stderr=said,
                )
            stack.callback(process.wait)
            stack.callback(os.kill, process.pid, signal.SIGTERM)
        at = ("127.0.0.1", senders[1])
        for n in (1, 2):
            here = ("127.0.0.1", senders[n])
            wait_until(
                lambda here=here: greeting(here).startswith("220"),  # type: ignore[misc]
                f"mx{n} takes mail",
                explain=lambda n=n: (directory / f"mx{n}" / "said").read_text()[-3000:],  # type: ignore[misc]
            )
        yield at


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
        at = stack.enter_context(nodes(tmp_path, rspamd.port, behind.address[1]))
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
