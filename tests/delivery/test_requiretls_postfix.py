"""Debian's Postfix has TLS, and knows no REQUIRETLS; smtplib is the client."""

from __future__ import annotations

import asyncio
import os
import smtplib
import ssl
from pathlib import Path

import pytest
from stations import Station, boundary, eventually
from test_requiretls import Certificates, here

from shadowlab.ports import free_ports
from shadowmailbox.maildir import messages
from shadowrelay.core.messages import Status
from tests.e2e.neighbourhood import NOBODY, PATIENCE, room
from tests.neighbours import postfix
from tests.neighbours.documented import postfix_settings

__all__ = ["here"]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(postfix.missing() is not None, reason=str(postfix.missing())),
]
BERTA = "berta@inside.test"
MAIL = b"Subject: hello\r\n\r\nsecret\r\n"


def said(to: Station, context: ssl.SSLContext, *options: str) -> None:
    with smtplib.SMTP("127.0.0.1", to.port) as client:
        client.starttls(context=context)
        client.ehlo()
        assert client.has_extn("requiretls")
        client.sendmail(BERTA, BERTA, MAIL, mail_options=options)


async def test_postfix_gets_no_message_that_requires_tls_and_its_report_without_the_body(
    tmp_path: Path, here: Certificates
) -> None:
    with room() as directory:
        mailboxes, known = directory / "mail", directory / "mailboxes"
        mailboxes.mkdir()
        os.chown(mailboxes, NOBODY, NOBODY)
        known.write_text(f"{BERTA} inside.test/berta/\n", "utf-8")
        (port,) = free_ports(1)
        settings = {
            **postfix_settings("Postfix behind"),
            "virtual_mailbox_base": mailboxes,
            "virtual_mailbox_maps": f"texthash:{known}",
            "smtpd_tls_cert_file": here.pair.certificate,
            "smtpd_tls_key_file": here.pair.key,
            "smtpd_tls_loglevel": 1,
        }
        way = {"domains": ["*"], "host": "localhost", "port": port, "ca": here.ca}
        with postfix.running(directory / "postfix", port, settings):
            async with boundary(tmp_path, "mx1", routes={"out": way}, receive=here.receive) as (one,):
                one.run_queue()
                await asyncio.to_thread(said, one, here.client, "REQUIRETLS", "RET=FULL")
                await eventually(lambda: list(messages(mailboxes)), within=PATIENCE)
                (failed,) = [copy for copy in await one.copies() if copy.envelope.sender]
                assert failed.recipients[0].status is Status.FAILED
                assert failed.recipients[0].last_reply.startswith("550 5.7.30 ")
                (report,) = [file.read_bytes() for _, file in messages(mailboxes)]
                assert b"Status: 5.7.30" in report
                assert b"Subject: hello" in report
                assert b"secret" not in report
                await asyncio.to_thread(said, one, here.client)
                await eventually(lambda: len(list(messages(mailboxes))) == 2, within=PATIENCE)
