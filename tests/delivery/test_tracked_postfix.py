"""A route that may tell its hop to track leads to Debian's Postfix, which knows nothing of it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from sending import MESSAGE, sent
from stations import eventually, full
from test_tracked_hops import relayed, shadows
from tracked_hops import certificates, sending

from shadowlab.ports import free_ports
from shadowmailbox.maildir import messages
from tests.e2e.neighbourhood import NOBODY, PATIENCE, room
from tests.neighbours import postfix
from tests.neighbours.documented import postfix_settings

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(postfix.missing() is not None, reason=str(postfix.missing())),
]


async def test_postfix_with_the_pinned_certificate_gets_ordinary_mail(tmp_path: Path) -> None:
    made = certificates(tmp_path)
    with room() as directory:
        mailboxes, known = directory / "mail", directory / "mailboxes"
        mailboxes.mkdir()
        os.chown(mailboxes, NOBODY, NOBODY)
        known.write_text("berta@inside.test inside.test/berta/\n", "utf-8")
        (port,) = free_ports(1)
        settings = {
            **postfix_settings("Postfix behind"),
            "virtual_mailbox_base": mailboxes,
            "virtual_mailbox_maps": f"texthash:{known}",
            "smtpd_tls_cert_file": made / f"{full('mx2')}.pem",
            "smtpd_tls_key_file": made / f"{full('mx2')}.key",
            "smtpd_tls_loglevel": 1,
        }
        with postfix.running(directory / "postfix", port, settings) as neighbour:
            async with sending(tmp_path, port) as node:
                assert (await sent(node, MESSAGE, "berta@inside.test")).startswith("250 ")
                node.run_queue()
                await eventually(lambda: relayed(node), within=PATIENCE)
                assert await shadows(node) == await node.rows("hop_peer") == 0
                (copy,) = await node.copies()
                assert copy.recipients[0].last_reply.startswith("250 2.0.0 Ok: queued as")
            await eventually(lambda: list(messages(mailboxes)), within=PATIENCE)
            assert "TLS connection established" in neighbour.said()
            assert "XSHADOW" not in neighbour.said()
