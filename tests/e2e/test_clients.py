"""Real clients get real acknowledgements: swaks, and the standard library's smtplib."""

from __future__ import annotations

import shutil
import smtplib
import subprocess

import pytest
from running_lab import INSIDE, OUTSIDE, RunningLab, text

from shadowlab.mail import CLIENT, message_id, token

pytestmark = pytest.mark.lab

SWAKS, MSMTP = shutil.which("swaks"), shutil.which("msmtp")


def swaks(lab: RunningLab, *options: str) -> str:
    """Send one message; returns the transcript."""
    sent = token("swaks")
    host, port = lab.cluster.node("mx1").smtp
    command = [SWAKS or "swaks", "--server", host, "--port", str(port), "--from", "sender@outside.test"]
    command += ["--header", f"Message-Id: {message_id(sent)}", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    recipients = options[options.index("--to") + 1].split(",")
    lab.sent_otherwise(sent, *recipients)
    return done.stdout


@pytest.mark.skipif(SWAKS is None, reason="swaks is not installed")
@pytest.mark.slow
def test_swaks_sends_in_all_its_ways(lab: RunningLab):
    lab.up()
    plain = swaks(lab, "--to", INSIDE)
    assert "250-PIPELINING" in plain
    assert "STARTTLS" not in plain
    assert "XSHADOW" not in plain
    swaks(lab, "--to", f"{INSIDE},{OUTSIDE},berta@inside.test", "--pipeline")
    swaks(lab, "--to", OUTSIDE, "--protocol", "SMTP", "--helo", "old.client.lab.test")
    swaks(lab, "--to", INSIDE, "--from", "<>", "--ehlo", "[127.0.0.1]")
    swaks(lab, "--to", INSIDE, "--body", ".\n..\n.leading dots\n" + "long " * 150)
    lab.verify()


@pytest.mark.skipif(MSMTP is None, reason="msmtp is not installed")
@pytest.mark.slow
def test_msmtp_sends_in_the_clear_and_by_tls(lab: RunningLab):
    lab.up(*lab.with_tls())
    host, port = lab.cluster.node("mx1").smtp
    for tls in ("off", "on"):
        sent = token("msmtp")
        command = [str(MSMTP), f"--host={host}", f"--port={port}", f"--tls={tls}", "--tls-certcheck=off"]
        command += ["--from=sender@outside.test", INSIDE, OUTSIDE]
        content = text(sent, body="a.\n.b\n..").replace(b"\r\n", b"\n")
        done = subprocess.run(command, input=content, capture_output=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        lab.sent_otherwise(sent, INSIDE, OUTSIDE)
    lab.verify()


@pytest.mark.slow
def test_smtplib_sends_with_notification_parameters_and_eight_bits(lab: RunningLab):
    lab.up()
    with smtplib.SMTP(*lab.cluster.node("mx2").smtp, local_hostname=CLIENT) as client:
        client.ehlo()
        assert {"dsn", "8bitmime", "pipelining", "size", "chunking", "enhancedstatuscodes"} <= set(
            client.esmtp_features
        )
        for recipients in [(INSIDE,), (OUTSIDE,), (INSIDE, OUTSIDE)]:
            sent = token("smtplib")
            refused = client.sendmail(
                "sender@outside.test",
                recipients,
                text(sent, body="Grüße"),
                mail_options=["BODY=8BITMIME", "RET=HDRS", f"ENVID={sent}"],
                rcpt_options=["NOTIFY=FAILURE,DELAY"],
            )
            assert refused == {}
            lab.sent_otherwise(sent, *recipients)
    lab.verify()
