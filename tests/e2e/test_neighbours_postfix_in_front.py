"""Debian's Postfix sends to a lab, set as docs/neighbours.md says."""

from __future__ import annotations

import re
import smtplib
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from neighbourhood import (
    PATIENCE,
    Doubled,
    arrived,
    flood,
    port,
    room,
    split,
)
from running_lab import INSIDE, RunningLab, text, wait_until

from shadowlab import mail
from shadowrelay.failpoints import VARIABLE
from tests.neighbours import postfix
from tests.neighbours.documented import postfix_settings
from tests.neighbours.postfix import Postfix

pytestmark = [
    pytest.mark.lab,
    pytest.mark.slow,
    pytest.mark.skipif(postfix.missing() is not None, reason=str(postfix.missing())),
]

SPAN = "shadow_resubmit_time_span=1h"


@contextmanager
def in_front(lab: RunningLab, *nodes: str, **settings: object) -> Iterator[Postfix]:
    """As documented, but for names, and with retries within seconds."""
    hosts = ", ".join(f"[127.0.0.1]:{lab.cluster.node(name).smtp[1]}" for name in nodes)
    ours = {
        "relayhost": hosts,
        "smtp_tls_CAfile": lab.cluster.layout.authority / "ca.pem",
        "smtp_tls_secure_cert_match": "mx1.lab.test",
    }
    with room() as directory:
        main = {**postfix_settings("Postfix in front"), **ours, **postfix.QUICK_RETRIES, **settings}
        with postfix.running(directory / "postfix", port(), main) as instance:
            yield instance


def is_rid_of_it(instance: Postfix) -> None:
    """Wait until its queue is empty; how it fared is shown when that takes too long.

    It may: on a busy machine a message whose lock is held when its turn comes is put aside for a minute.
    """
    wait_until(instance.queue_is_empty, "Postfix is rid of it", 3 * PATIENCE, lambda: instance.said()[-8000:])


def spoken(instance: Postfix) -> list[str]:
    """What Postfix said to the nodes ('> MAIL …') and heard ('< 250 …'), as its log tells."""
    lines = re.findall(r"postfix/smtp\[\d+\]: ([<>]) 127\.0\.0\.1\[127\.0\.0\.1\]:\d+:( .*)", instance.said())
    return ["".join(line) for line in lines]


def test_postfix_pipelines_by_starttls_with_every_parameter(lab: RunningLab):
    lab.up(*lab.with_tls(), nodes=2)
    name, to = mail.token("postfix"), "jürgen@inside.test"
    content = text(name, "X-Greeting: Grüße – ☃", body="Grüße\r\n.\r\n..dots\r\n" + "x" * 900)
    with in_front(lab, "mx1", debug_peer_list="127.0.0.1", debug_peer_level=1) as front:
        with smtplib.SMTP(*front.address, local_hostname=mail.CLIENT) as client:
            client.ehlo()
            options = ["SMTPUTF8", "BODY=8BITMIME", "RET=HDRS", "ENVID=ab+2Bcd"]
            notify = ["NOTIFY=FAILURE,DELAY", "ORCPT=utf-8;jurgen@inside.test"]
            assert client.sendmail("sender@outside.test", [to], content, options, notify) == {}
        lab.sent_otherwise(name, to)
        lab.verify()
        said = spoken(front)
        assert "Verified TLS connection established" in front.said()
    start = next(at for at, line in enumerate(said) if line.startswith("> MAIL"))
    assert [line[:6] for line in said[start : start + 3]] == ["> MAIL", "> RCPT", "> DATA"]
    for parameter in ("SIZE=", "BODY=8BITMIME", "SMTPUTF8", "RET=HDRS", "ENVID=ab+2Bcd"):
        assert parameter in said[start], said[start]
    for parameter in notify:
        assert parameter in said[start + 1], said[start + 1]
    front_of_it, rest = split(arrived(lab.cluster.layout.mailbox.dir)[to][0].replace(b"\r\n", b"\n"))
    assert rest == content.replace(b"\r\n", b"\n")
    assert b"with UTF8SMTPS" in front_of_it
    assert b"by postfix.lab.test" in front_of_it


def test_a_burst_from_postfix_arrives_once_though_most_connections_are_refused(lab: RunningLab):
    lab.up(*lab.with_tls(), "receive.default.max_inbound_connection_per_source=3", nodes=2)
    with in_front(lab, "mx1", initial_destination_concurrency=20) as front:
        done = flood(front.address, "-s", "10", "-m", "40", "-l", "4096", "-d")
        assert done.returncode == 0, done.stderr
        mailboxes = lab.cluster.layout.mailbox.dir
        is_rid_of_it(front)
        wait_until(lambda: len(arrived(mailboxes).get(INSIDE, [])) >= 40, "all arrive", PATIENCE)
        assert "421 4.7.0" in front.said()
    assert len(arrived(mailboxes)[INSIDE]) == 40
    assert mail.dropped(lab.cluster.layout) == 0
    wait_until(lambda: len(lab.events("mx1", "DELIVER")) >= 40, "the log has caught up")
    assert len({row["message-id"] for row in lab.events("mx1", "RECEIVE")}) == 40


def test_postfix_keeps_what_was_put_off_for_want_of_a_second_copy(lab: RunningLab):
    lab.up(*lab.with_tls(), SPAN, nodes=2)
    lab.cluster.kill("mx2")
    with in_front(lab, "mx1") as front:
        for _ in range(5):
            assert lab.offer_at(front.address, (INSIDE, "berta@inside.test"))
        wait_until(lambda: "said: 451 4.4.0" in front.said(), "a message is put off", PATIENCE)
        assert not front.queue_is_empty()
        lab.cluster.start("mx2")
        is_rid_of_it(front)
        lab.verify()


def test_when_the_owner_is_killed_while_postfix_sends_everything_arrives(lab: RunningLab):
    lab.up(*lab.with_tls(), SPAN)
    with in_front(lab, "mx1", "mx2") as front:
        for _ in range(150):
            assert lab.offer_at(front.address, (INSIDE,))
            if len(lab.acknowledged) == 75:
                wait_until(lambda: lab.events("mx1", "RECEIVE"), "the first node receives", PATIENCE)
                lab.cluster.kill("mx1")
        is_rid_of_it(front)  # the next node takes the rest
        lab.cluster.start("mx1")
        lab.settle()
    assert lab.events("mx1", "RECEIVE")
    assert lab.events("mx2", "RECEIVE")
    found = lab.count()
    assert (found.lost, found.unexpected) == (0, 0), str(found)
    log = Doubled(lab)
    log.explained(log.dropped(), log.sent_again_by_the_client, log.unrecorded)


def test_what_postfix_repeats_after_a_node_alone_was_killed_is_not_delivered_again(lab: RunningLab):
    """The node had delivered the message, and died before its 250: Postfix cannot know that."""
    lab.up(*lab.with_tls(), "reject_message_on_shadow_failure=false", nodes=1)
    lab.cluster.kill("mx1")
    lab.cluster.start("mx1", {VARIABLE: "before-250"})
    with in_front(lab, "mx1") as front:
        assert lab.offer_at(front.address, (INSIDE,))
        wait_until(lambda: not lab.cluster.process("mx1").alive, "the node dies", PATIENCE)
        lab.cluster.process("mx1").wait(0)
        lab.cluster.start("mx1")
        is_rid_of_it(front)
        lab.verify()
    wait_until(lambda: lab.events("mx1", "DUPLICATERECEIVE"), "the log tells")
    assert [len(lab.events("mx1", event)) for event in ("RECEIVE", "DELIVER")] == [1, 1]
    assert mail.dropped(lab.cluster.layout) == 0


def test_when_postfix_is_killed_while_it_sends_everything_arrives(lab: RunningLab):
    lab.up(*lab.with_tls(), SPAN, nodes=2)
    with in_front(lab, "mx1") as front:
        for _ in range(100):
            assert lab.offer_at(front.address, (INSIDE,))
        front.kill()
        front.start()
        is_rid_of_it(front)
        lab.settle()
    assert lab.count().unexpected == 0
    log = Doubled(lab)
    log.explained(log.dropped(), log.sent_again_by_the_client)
