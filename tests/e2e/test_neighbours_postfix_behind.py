"""A lab delivers to Debian's Postfix, set as docs/neighbours.md says."""

from __future__ import annotations

import os
import re
import smtplib
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import pytest
from neighbourhood import NOBODY, PATIENCE, Doubled, arrived, certificate, flood, port, room, split
from odd_messages import messages
from raw_client import connected
from running_lab import INSIDE, RunningLab, wait_until

from shadowlab import mail
from tests.neighbours import postfix
from tests.neighbours.documented import postfix_settings
from tests.neighbours.postfix import Postfix

pytestmark = [
    pytest.mark.lab,
    pytest.mark.slow,
    pytest.mark.skipif(postfix.missing() is not None, reason=str(postfix.missing())),
]

BERTA, CARLA = "berta@inside.test", "carla@inside.test"
ALTERED = {
    *("nul-in-header", "ids-twice"),  # a NUL, or a blank before the colon, in a header
    "many-received",  # a loop, to Postfix: it takes it and returns it
}
"""What docs/neighbours.md says that Postfix does not keep as it was sent."""
QUEUE_ID = re.compile(rb"by postfix\.lab\.test \(Postfix\) with \w+ id (\w+)")


@contextmanager
def behind(lab: RunningLab, *users: str, **settings: object) -> Iterator[Postfix]:
    """Two nodes, and Postfix as their next hop for inside.test, by verified TLS. It knows these users."""
    with room() as directory:
        instance_port = port()
        mailboxes = directory / "mail"
        mailboxes.mkdir()
        os.chown(mailboxes, NOBODY, NOBODY)
        known = directory / "mailboxes"
        names = users or ("anna", "berta", "carla")
        known.write_text("".join(f"{name}@inside.test inside.test/{name}/\n" for name in names), "utf-8")
        lab.mailboxes = mailboxes
        lab.up(
            f"routes.inside.port={instance_port}",
            "routes.inside.host=localhost",
            "routes.inside.protocol=smtp",
            "routes.inside.tls=required",
            f"routes.inside.ca={lab.directory / 'ca' / 'ca.pem'}",
            "shadow_resubmit_time_span=1h",
            nodes=2,
        )
        chain, key, _ = certificate(lab, directory, "localhost")
        ours = {
            "virtual_mailbox_base": mailboxes,
            "virtual_mailbox_maps": f"texthash:{known}",
            "smtpd_tls_cert_file": chain,
            "smtpd_tls_key_file": key,
        }
        # What its own death put off is tried again at once, and not after minutes.
        main = {**postfix_settings("Postfix behind"), **postfix.QUICK_RETRIES, **ours, **settings}
        with postfix.running(directory / "postfix", instance_port, main) as instance:
            yield instance


@contextmanager
def greylist() -> Iterator[str]:
    """A policy service for Postfix: each recipient of each sender is put off once. Its address."""
    seen: set[bytes] = set()

    class Asked(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            asked: list[bytes] = []
            for line in self.rfile:
                if line.strip():
                    asked += [line] if line.startswith((b"sender=", b"recipient=")) else []
                    continue
                pair = b"".join(sorted(asked))
                action = b"dunno" if pair in seen else b"defer_if_permit Greylisted, come back"
                seen.add(pair)
                asked = []
                self.wfile.write(b"action=" + action + b"\n\n")

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Asked) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"inet:127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()


def test_odd_messages_are_in_postfixs_maildir_byte_for_byte_by_verified_tls(lab: RunningLab):
    odd = [one for one in messages() if not one.refused and one.content]
    names = [one.name for one in odd]
    with behind(lab, *names, local_header_rewrite_clients="", header_size_limit=1 << 20) as instance:
        with connected(lab.cluster.node("mx1").smtp) as client:
            for one in odd:
                assert client.begin(f"{one.name}@inside.test", parameters=one.parameters).startswith("250 ")
                send = client.data if "DATA" in one.by else client.bdat
                assert send(one.content).startswith("250 2.6.0 ")
        wait_until(lambda: lab.queued("mx1") == 0, "everything is handed over", PATIENCE)
        wait_until(instance.queue_is_empty, "everything is in a mailbox", PATIENCE)
        found = arrived(lab.mailboxes)
    wrong = []
    for one in odd:
        (stored,) = found.get(f"{one.name}@inside.test", [b""])
        expected = one.arrives.replace(b"\r\n", b"\n")
        front, rest = split(stored[: len(stored) - len(expected)])
        if not stored.endswith(expected) or rest or b"SMTPS" not in front:
            wrong.append(one.name)
    assert set(wrong) == ALTERED


def test_a_greylisting_next_hop_gets_every_message_later_and_once(lab: RunningLab):
    with greylist() as policy, behind(lab, smtpd_recipient_restrictions=f"check_policy_service {policy}"):
        for to in ((INSIDE,), (BERTA, CARLA), (INSIDE, CARLA)):
            lab.send(recipients=to)
        lab.verify()
        assert {row["recipient-address"] for row in lab.events("mx1", "DEFER")} >= {INSIDE}
        assert lab.events("mx1", "FAIL") == []
        assert "Greylisted" in lab.events("mx1", "DEFER")[0]["source-context"]


def test_a_recipient_that_postfix_rejects_is_reported_once_and_the_others_get_the_message(lab: RunningLab):
    reports = partial(arrived, lab.directory / "mailbox")
    with behind(lab) as instance:
        with smtplib.SMTP(*lab.cluster.node("mx1").smtp, local_hostname=mail.CLIENT) as client:
            client.ehlo()
            assert client.mail("sender@outside.test", ["RET=HDRS", "ENVID=trip+2B7"])[0] == 250
            for to in (INSIDE, "nobody-here@inside.test", CARLA):
                assert client.rcpt(to, [f"ORCPT=rfc822;first-{to}"])[0] == 250
            assert client.data(b"Subject: to three\r\n\r\nbody\r\n")[0] == 250
        wait_until(lambda: reports().get("sender@outside.test"), "the sender is told", PATIENCE)
        wait_until(lambda: lab.queued("mx1") == lab.held("mx2") == 0, "nothing is left", PATIENCE)
        wait_until(instance.queue_is_empty, "the others are delivered", PATIENCE)
        assert {to: len(files) for to, files in arrived(lab.mailboxes).items()} == {INSIDE: 1, CARLA: 1}
    (report,) = reports()["sender@outside.test"]
    for line in (
        b"Original-Envelope-Id: trip+7",
        b"Original-Recipient: rfc822;first-nobody-here@inside.test",
        b"Status: 5.1.1",
    ):
        assert line.replace(b" ", b"") in report.replace(b" ", b""), report.decode()


def test_a_next_hop_that_allows_one_connection_gets_all_of_a_burst_once(lab: RunningLab):
    with behind(lab, smtpd_client_connection_count_limit=1) as instance:
        done = flood(lab.cluster.node("mx1").smtp, "-s", "10", "-m", "40", "-l", "2000", "-d")
        assert done.returncode == 0, done.stderr
        wait_until(lambda: lab.queued("mx1") == lab.held("mx2") == 0, "everything is handed over", PATIENCE)
        wait_until(instance.queue_is_empty, "everything is in a mailbox", PATIENCE)
        assert len(arrived(lab.mailboxes)[INSIDE]) == 40
    assert lab.events("mx1", "FAIL") == []


def test_when_postfix_is_killed_in_mid_delivery_nothing_is_lost(lab: RunningLab):
    with behind(lab) as instance:
        for number in range(1, 121):
            lab.send(recipients=(INSIDE, BERTA))
            if number in (40, 80):
                instance.kill()
            if number in (50, 90):
                instance.start()
        wait_until(lambda: lab.queued("mx1") == lab.held("mx2") == 0, "everything is handed over", PATIENCE)
        wait_until(instance.queue_is_empty, "everything is in a mailbox", PATIENCE)
        found, doubled = lab.count(), handed_over_twice(lab)
        assert lab.events("mx1", "DEFER"), "Postfix was not missed"
    assert (found.lost, found.unexpected) == (0, 0), str(found)
    log = Doubled(lab)
    log.explained(doubled, log.reply_lost)


def handed_over_twice(lab: RunningLab) -> list[str]:
    """Message-IDs that Postfix took twice; what its own death made it repeat has one queue id."""
    taken: dict[str, set[bytes]] = {}
    for files in arrived(lab.mailboxes).values():
        for content in files:
            (name,) = re.findall(r"(?mi)^Message-ID: (\S+)", content.decode("utf-8", "replace"))
            (queue_id,) = QUEUE_ID.findall(content)
            taken.setdefault(name, set()).add(queue_id)
    return [name for name, ids in taken.items() if len(ids) > 1]
