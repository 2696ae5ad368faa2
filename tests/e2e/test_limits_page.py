"""What docs/how-to/limits.md says, on a node that has its settings."""

from __future__ import annotations

import re
import smtplib
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from neighbourhood import port
from page_nodes import blocks, moved, run, takes_mail
from running_lab import wait_until

pytestmark = pytest.mark.slow

NODE = """\
name = "mx1.example.net"
data_dir = "{directory}/data"
accepted_domains = ["example.net"]
relay_networks = ["127.0.0.2/32"]
reject_message_on_shadow_failure = false
{more}
[receive.default]
listen = "127.0.0.1:{port}"
max_acknowledgement_delay = "0s"
{connector}
[routes.away]
domains = ["*"]
host = "127.0.0.1"
port = {away}
"""


def settings(directory: Path, at: int, *, more: str = "", connector: str = "") -> str:
    return NODE.format(directory=directory, port=at, away=port(), more=more, connector=connector)


def client(at: int, source: str) -> smtplib.SMTP:
    """A session from that address; it waits for longer than MAIL may."""
    found = smtplib.SMTP(
        "127.0.0.1", at, local_hostname="client.test", source_address=(source, 0), timeout=90
    )
    found.ehlo()
    return found


def greeting(at: int, source: str) -> str:
    place = ("127.0.0.1", at)
    with socket.create_connection(place, 60, (source, 0)) as connection, connection.makefile("rb") as lines:
        return lines.readline().decode()


def said(at: int, source: str) -> str:
    """What a client hears of its letter at last."""
    with client(at, source) as session:
        try:
            session.sendmail("you@example.org", ["anna@example.net"], b"Subject: hello\r\n\r\nhello\r\n")
        except smtplib.SMTPSenderRefused as error:
            return f"{error.smtp_code} {bytes(error.smtp_error).decode()}"
    return "250"


def test_a_network_that_sends_too_much_is_put_off_and_no_other(tmp_path: Path) -> None:
    connector = blocks("limits", "toml")[0].split('profile = "edge"\n')[1]
    at = port()
    with run(tmp_path, settings(tmp_path, at, connector=connector)):
        takes_mail(tmp_path, ("127.0.0.1", at))
        with client(at, "127.0.2.1") as session:
            replies = [(250, b"")]
            while len(replies) < 1000 and replies[-1][0] == 250:
                replies.append(session.mail("you@example.org"))
                if replies[-1][0] == 250:
                    session.rcpt("anna@example.net")
                    session.data(b"Subject: hello\r\n\r\nhello\r\n")
            assert (replies[-1][0], replies[-1][1][:6]) == (450, b"4.7.1 ")
            assert len(replies) > 120
        greetings = ["220 "]
        while len(greetings) < 1000 and greetings[-1].startswith("220 "):
            greetings.append(greeting(at, f"127.0.3.{1 + len(greetings) % 9}"))  # one network
        assert greetings[-1].startswith("421 4.7.0 ")
        assert len(greetings) > 61
        assert said(at, "127.0.4.1") == "250"


def test_a_full_queue_refuses_mail_until_more_is_allowed(tmp_path: Path) -> None:
    pressure = moved(blocks("limits", "toml")[1], {"100000/150000/100000/20000": "4/8/6/2"})
    at = port()
    text = settings(tmp_path, at) + pressure
    with run(tmp_path, text):
        takes_mail(tmp_path, ("127.0.0.1", at))
        replies: list[str] = []

        def refused() -> bool:
            replies.append(said(at, "127.0.0.2"))
            return replies[-1].startswith("452 4.3.1 ")

        wait_until(refused, "no more mail is taken", explain=lambda: replies[-1])
        assert replies[:8] == ["250"] * 8  # what is below high was taken
        status = shadowrelay("status", tmp_path)
        assert re.search(r"queue.*\bhigh\b", status), status
        logs = (tmp_path / "data" / "tracking").glob
        wait_until(
            lambda: any("BACKPRESSURE" in log.read_text() for log in logs(".MSGTRK-*.LOG.open")),
            "the log says why",
        )
        file = tmp_path / "settings.toml"
        file.write_text(moved(file.read_text(), {"4/8/6/2": "100000/150000/100000/20000"}))
        shadowrelay("reload", tmp_path)
        wait_until(lambda: said(at, "127.0.0.2") == "250", "mail is taken again")


def shadowrelay(verb: str, directory: Path) -> str:
    """What a command prints about the node there."""
    (admin,) = re.findall(r'\[admin\]\nlisten = "(\S+)"', (directory / "settings.toml").read_text())
    command = [sys.executable, "-m", "shadowrelay", verb, "--admin", f"http://{admin}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
