"""Mail of users, signed by Debian's OpenDKIM: two nodes, set as docs/how-to/submission.md says."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import Envelope
from neighbourhood import port
from page_nodes import blocks, moved, pair
from running_lab import wait_until

from tests.neighbours.rspamd import NEEDED, OPENDKIM, DkimKey, Instance, started

SWAKS, MSMTP = shutil.which("swaks"), shutil.which("msmtp")
PASSWORD = "Sesame 1"

pytestmark = [
    pytest.mark.slow,
    NEEDED,
    pytest.mark.skipif(
        SWAKS is None or MSMTP is None, reason="swaks or msmtp is missing (apt-get install swaks msmtp)"
    ),
]


def opendkim_of_the_page(directory: Path, key: DkimKey) -> Instance:
    """The file of the page; it stays in the foreground, and its key belongs to whoever runs the test."""
    (text,) = blocks("submission", "text")
    listens = port()
    places = {
        "inet:8891@127.0.0.1": f"inet:{listens}@127.0.0.1",
        "/etc/dkimkeys/s1.key": str(key.path),
        "/etc/dkimkeys/clients": str(directory / "clients"),
    }
    (directory / "clients").write_text("0.0.0.0/0\n::/0\n")
    file = directory / "opendkim.conf"
    file.write_text(moved(text, places) + "RequireSafeKeys no\nSyslog no\n")
    return Instance([str(OPENDKIM), "-f", "-x", str(file)], listens, directory / "opendkim.out")


def add_user(file: Path) -> None:
    command = [sys.executable, "-m", "shadowrelay", "user", "add", "--file", str(file), "anna"]
    subprocess.run(command, input=PASSWORD + "\n", text=True, check=True, timeout=60)


def swaks(at: tuple[str, int], tls: str, subject: str, *login: str) -> str:
    command = [
        str(SWAKS), "--server", at[0], "--port", str(at[1]), tls, *login, "--from", "anna@example.org",
        "--to", "you@example.net", "--header", f"Subject: {subject}", "--suppress-data",
    ]  # fmt: skip
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False).stdout


def msmtp(at: tuple[str, int], starttls: str, subject: str) -> str:
    """It takes the best mechanism that is offered."""
    command = [
        str(MSMTP), f"--host={at[0]}", f"--port={at[1]}", "--tls=on", "--tls-certcheck=off",
        f"--tls-starttls={starttls}", "--auth=on", "--user=anna", f"--passwordeval=echo '{PASSWORD}'",
        "--from=anna@example.org", "--debug", "you@example.net",
    ]  # fmt: skip
    text = f"From: <anna@example.org>\nTo: <you@example.net>\nSubject: {subject}\n\nhello\n"
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=120, check=False)
    return done.stdout + done.stderr


WAYS = [
    ("0.0.0.0:465", "0.0.0.0:587", "--tls-on-connect", "off"),
    ("0.0.0.0:587", "0.0.0.0:465", "--tls", "on"),
]


class NextHop:
    """aiosmtpd; what came, as it came."""

    def __init__(self) -> None:
        self.contents: list[bytes] = []

    async def handle_DATA(self, server: object, session: object, envelope: Envelope) -> str:
        assert isinstance(envelope.content, bytes)
        self.contents.append(envelope.content)
        return "250 2.0.0 Taken"

    def with_subject(self, subject: str) -> list[bytes]:
        return [one for one in self.contents if b"\nSubject: %s\r" % subject.encode() in one]


@contextmanager
def next_hop() -> Iterator[tuple[NextHop, int]]:
    handler, at = NextHop(), port()
    controller = Controller(handler, hostname="127.0.0.1", port=at)
    controller.start()
    try:
        yield handler, at
    finally:
        controller.stop()


@pytest.mark.parametrize(("listens", "other", "tls", "starttls"), WAYS, ids=["465", "587"])
def test_users_log_in_and_their_mail_leaves_signed(
    listens: str, other: str, tls: str, starttls: str, tmp_path: Path
) -> None:
    key = DkimKey(tmp_path)
    add_user(tmp_path / "users")
    (settings,) = blocks("submission", "toml")
    with ExitStack() as stack:
        beyond, at = stack.enter_context(next_hop())
        signer = stack.enter_context(started(opendkim_of_the_page(tmp_path, key)))
        places = {
            "/users": "/../users",
            other: "127.0.0.1:0",
            "inet:127.0.0.1:8891": signer.address,
            "mx = true": f'host = "127.0.0.1"\nport = {at}',
        }
        node = stack.enter_context(pair(tmp_path, settings, listens, places))
        login = ("--auth", "PLAIN", "--auth-user", "anna", "--auth-password")
        assert "<~* 550 5.7.1 " in swaks(node, tls, "no login")
        assert "<~* 535 5.7.8 " in swaks(node, tls, "wrong password", *login, "wrong")
        said = swaks(node, tls, "plain", *login, PASSWORD)
        assert "<~  250 2.6.0 " in said, said
        said = msmtp(node, starttls, "scram")
        assert "AUTH SCRAM-SHA-256" in said, said
        signer.kill()
        assert "<~* 451 4.7.1 " in swaks(node, tls, "unsigned", *login, PASSWORD)
        signer.start()
        wait_until(lambda: len(beyond.contents) >= 2, "both letters are at the next hop")
        for subject in ("plain", "scram"):
            (content,) = beyond.with_subject(subject)
            assert key.verifies(content), content
            assert b"\nMessage-ID: <" in content or b"\nMessage-Id: <" in content
            assert b"ESMTPSA" in content
        assert len(beyond.contents) == 2
        for _ in range(40):  # more than a user sends in a minute
            said = swaks(node, tls, "flood", *login, PASSWORD)
            if "<~* 450 4.7.1 " in said:
                break
        else:
            raise AssertionError(said)
