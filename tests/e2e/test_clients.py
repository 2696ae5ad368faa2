"""Real clients get real acknowledgements: swaks, and the standard library's smtplib."""

from __future__ import annotations

import secrets
import shutil
import smtplib
import subprocess

import pytest
from running_lab import INSIDE, OUTSIDE, RunningLab

pytestmark = pytest.mark.lab

SWAKS = shutil.which("swaks")


def swaks(lab: RunningLab, *options: str) -> str:
    """Send one message; returns the transcript."""
    token = f"swaks-{secrets.token_hex(8)}"
    host, port = lab.cluster.node("mx1").smtp
    command = [SWAKS or "swaks", "--server", host, "--port", str(port), "--from", "sender@outside.test"]
    command += ["--header", f"Message-Id: <{token}@client.lab.test>", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    recipients = options[options.index("--to") + 1].split(",")
    lab.sent_otherwise(token, *recipients)
    return done.stdout


@pytest.mark.skipif(SWAKS is None, reason="swaks is not installed")
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


def test_smtplib_sends_with_notification_parameters_and_eight_bits(lab: RunningLab):
    lab.up()
    with smtplib.SMTP(*lab.cluster.node("mx2").smtp, local_hostname="client.lab.test") as client:
        client.ehlo()
        assert {"dsn", "8bitmime", "pipelining", "size", "chunking", "enhancedstatuscodes"} <= set(
            client.esmtp_features
        )
        for number, recipients in enumerate([(INSIDE,), (OUTSIDE,), (INSIDE, OUTSIDE)]):
            token = f"smtplib-{secrets.token_hex(8)}"
            text = f"Message-ID: <{token}@client.lab.test>\r\nSubject: {number}\r\n\r\nGrüße\r\n"
            refused = client.sendmail(
                "sender@outside.test",
                recipients,
                text.encode(),
                mail_options=["BODY=8BITMIME", "RET=HDRS", f"ENVID={token}"],
                rcpt_options=["NOTIFY=FAILURE,DELAY"],
            )
            assert refused == {}
            lab.sent_otherwise(token, *recipients)
    lab.verify()
