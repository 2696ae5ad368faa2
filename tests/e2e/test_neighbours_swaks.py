"""Debian's swaks at a real node, in all the ways it has."""

from __future__ import annotations

import email
import shutil
import subprocess
import sys
from collections.abc import Sequence
from email import policy
from pathlib import Path

import pytest
from neighbourhood import arrived
from running_lab import INSIDE, RunningLab, wait_until

from shadowlab.mail import message_id, token

pytestmark = [
    pytest.mark.lab,
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("swaks") is None, reason="there is no swaks (apt-get install swaks)"),
]

FROM = "sender@outside.test"


@pytest.fixture
def tls() -> None:
    """Debian only recommends the library with which swaks speaks TLS."""
    can = subprocess.run(["swaks", "--support"], capture_output=True, text=True, timeout=120, check=False)
    if "=== TLS supported" not in can.stdout:
        pytest.skip("swaks cannot speak TLS (apt-get install libnet-ssleay-perl)")


def swaks(server: tuple[str, int], *options: str, name: str = "", to: str = INSIDE) -> tuple[int, str]:
    """One session: its exit status and its transcript."""
    command = ["swaks", "--server", server[0], "--port", str(server[1]), "--from", FROM, "--to", to]
    command += ["--header", f"Message-Id: {message_id(name or token('swaks'))}", "--timeout", "60s", *options]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=120, check=False)
    return done.returncode, done.stdout + done.stderr


def sends(lab: RunningLab, *options: str, to: str = INSIDE, owed: Sequence[str] = ()) -> str:
    """It is acknowledged, for those in ``owed`` if not for all; the transcript."""
    name = token("swaks")
    status, said = swaks(lab.cluster.node("mx1").smtp, *options, name=name, to=to)
    assert status == 0, said
    assert "250 2.6.0" in said
    lab.sent_otherwise(name, *(owed or to.split(",")))
    return said


@pytest.mark.usefixtures("tls")
def test_swaks_sends_by_every_protocol_with_and_without_tls(lab: RunningLab):
    lab.up(*lab.with_tls(), nodes=2)
    authority = str(lab.directory / "ca" / "ca.pem")
    plain = sends(lab)
    assert "STARTTLS" in plain
    assert "AUTH" not in plain
    assert "XCLIENT" not in plain
    pipelined = sends(lab, "--pipeline", to=f"{INSIDE},berta@inside.test,otto@outside.test")
    assert pipelined.index("-> DATA") < pipelined.index("<-  250 2.1.5")
    verified = sends(lab, "--tls", "--tls-verify", "--tls-ca-path", authority, "--pipeline")
    assert "TLS started" in verified
    assert "CN=mx1.lab.test" in verified.replace('"', "")
    assert verified.count("~> EHLO") == 1
    assert "STARTTLS" not in verified.partition("~> EHLO")[2]
    sends(lab, "--tls-optional-strict")
    assert "-> HELO" in sends(lab, "--protocol", "SMTP")
    sends(lab, "--protocol", "ESMTPS")
    lab.verify()


@pytest.mark.usefixtures("tls")
def test_swaks_logs_in_by_every_mechanism_over_tls_alone(lab: RunningLab, tmp_path: Path):
    file = tmp_path / "users"
    command = [sys.executable, "-m", "shadowrelay", "user", "add", "alice", "--file", str(file)]
    subprocess.run(command, input=b"Sesame\n", timeout=60, check=True)
    lab.up(*lab.with_tls(), f"receive.default.users_file={file}", "relay_networks=[]", nodes=2)
    elsewhere = "otto@outside.test"
    login = ("--auth-user", "alice", "--auth-password")

    def tries(*options: str) -> tuple[int, str]:
        return swaks(lab.cluster.node("mx1").smtp, *options, to=elsewhere)

    status, said = tries("--tls")
    assert (status, "550 5.7.1 Relaying denied" in said) == (24, True)
    for mechanism in ("PLAIN", "LOGIN"):
        said = sends(lab, "--tls", "--auth", mechanism, *login, "Sesame", to=elsewhere)
        assert "235 2.7.0 Authentication successful" in said
        status, said = tries("--tls", "--auth", mechanism, *login, "wrong")
        assert (status, "535 5.7.8 Authentication credentials invalid" in said) == (28, True)
    refused = said.partition("535 ")[2].splitlines()[0]
    status, said = tries("--tls", "--auth", "LOGIN", "--auth-user", "mallory", "--auth-password", "Sesame")
    assert (status, said.partition("535 ")[2].splitlines()[0]) == (28, refused)
    status, said = tries("--auth", *login, "Sesame")
    assert (status, "250 AUTH" in said or "250-AUTH" in said) == (28, False)
    for log in (lab.directory / "nodes" / "mx1").rglob("*"):
        if log.is_file():
            assert b"Sesame" not in log.read_bytes(), log
    lab.verify()


def test_swaks_sends_to_two_hundred_recipients_and_the_next_one_is_put_off(lab: RunningLab):
    lab.up(nodes=2)
    everybody = [f"user{number}@inside.test" for number in range(200)]
    few = ("--header", "To: a list whose line is not too long")
    sends(lab, "--pipeline", *few, to=",".join(everybody))
    said = sends(lab, *few, to=",".join([*everybody, "one-more@inside.test"]), owed=everybody)
    assert said.count("452 4.5.3") == 1
    lab.verify()


def test_swaks_sends_twenty_megabytes_byte_for_byte(lab: RunningLab, tmp_path: Path):
    lab.up(nodes=2)
    attachment = tmp_path / "attachment"
    attachment.write_bytes(bytes(range(256)) * 4096 * 20)
    sends(lab, "--attach", f"@{attachment}", "--pipeline")
    lab.verify()
    (stored,) = arrived(lab.cluster.layout.mailbox.dir)[INSIDE]
    assert len(stored) > 27 << 20
    parts = email.message_from_bytes(stored, policy=policy.default).iter_attachments()
    assert [part.get_content() for part in parts if not part.is_multipart()][-1] == attachment.read_bytes()


@pytest.mark.usefixtures("tls")
@pytest.mark.parametrize("option", ["--drop-after", "--drop-after-send", "--quit-after"])
def test_what_swaks_ends_before_its_dot_leaves_nothing(lab: RunningLab, option: str):
    lab.up(*lab.with_tls(), nodes=2)
    for point in ("CONNECT", "FIRST-HELO", "TLS", "HELO", "MAIL", "RCPT", "DATA"):
        if (option, point) in {("--quit-after", "DATA"), ("--drop-after-send", "CONNECT")}:
            continue  # after 354 there is no QUIT, and to connect nothing is sent
        _, said = swaks(lab.cluster.node("mx1").smtp, "--tls", option, point)
        assert "250 2.6.0" not in said
    sends(lab)
    lab.verify()


def test_what_swaks_drops_after_its_dot_is_delivered_once(lab: RunningLab):
    lab.up(nodes=2)
    names = [token("swaks") for _ in range(5)]
    for name in names:
        _, said = swaks(lab.cluster.node("mx1").smtp, "--drop-after-send", "DOT", name=name)
        assert "250 2.6.0" not in said
        lab.sent_otherwise(name, INSIDE)
    _, said = swaks(lab.cluster.node("mx1").smtp, "--drop-after", "DOT", name=(name := token("swaks")))
    assert "250 2.6.0" in said
    lab.sent_otherwise(name, INSIDE)
    lab.verify()


@pytest.mark.usefixtures("tls")
def test_what_is_not_offered_to_swaks_is_refused(lab: RunningLab):
    lab.up(nodes=2)
    node = lab.cluster.node("mx1")
    status, said = swaks(node.smtp, "--auth", "PLAIN", "--auth-user", "a", "--auth-password", "b")
    assert status == 28, said  # not advertised: swaks gives up by itself
    status, said = swaks(node.smtp, "--tls")
    assert status == 29, said
    status, said = swaks(node.smtp, "--xclient-addr", "192.0.2.1")
    assert status != 0, said
    status, said = swaks(node.smtp, "--proxy", "TCP4 192.0.2.1 127.0.0.1 1025 25")
    assert status != 0, said
    status, said = swaks(node.peer, "--tls-on-connect")
    assert status != 0, said
    assert "EHLO" not in said or "250 " not in said
    sends(lab)
    lab.verify()


def test_swaks_delivers_by_lmtp_to_the_mailbox(lab: RunningLab):
    lab.up(nodes=2)
    name = token("swaks")
    to = f"{INSIDE},berta@inside.test"
    status, said = swaks(lab.cluster.layout.mailbox.inside, "--protocol", "LMTP", name=name, to=to)
    assert status == 0, said
    assert "-> LHLO" in said
    lab.sent_otherwise(name, *to.split(","))
    wait_until(lambda: lab.count().delivered == 2, "both have it")
    lab.verify()
