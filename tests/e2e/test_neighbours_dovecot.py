"""A lab delivers to Debian's Dovecot by LMTP, set as docs/neighbours.md says."""

from __future__ import annotations

import smtplib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial

import pytest
from neighbourhood import (
    PATIENCE,
    Doubled,
    arrived,
    port,
    room,
    split,
)
from odd_messages import messages
from raw_client import connected
from running_lab import INSIDE, RunningLab, text, wait_until

from shadowlab import mail
from tests.neighbours import dovecot
from tests.neighbours.dovecot import Dovecot

pytestmark = [
    pytest.mark.lab,
    pytest.mark.slow,
    pytest.mark.skipif(dovecot.missing() is not None, reason=str(dovecot.missing())),
]

BERTA, CARLA = "berta@inside.test", "carla@inside.test"
EVERYBODY = {INSIDE: 0, BERTA: 0, CARLA: 0}


@contextmanager
def behind(lab: RunningLab, quotas: Mapping[str, int] = EVERYBODY, *more: str) -> Iterator[Dovecot]:
    """Two nodes, and Dovecot as their next hop for inside.test."""
    with room() as directory, dovecot.running(directory, port(), quotas, *more) as instance:
        lab.mailboxes = instance.mailboxes
        lab.up(f"routes.inside.port={instance.address[1]}", "shadow_resubmit_time_span=1h", nodes=2)
        yield instance


def test_odd_messages_are_in_dovecots_maildir_byte_for_byte(lab: RunningLab):
    odd = [one for one in messages() if not one.refused and one.content]
    # Dovecot makes 0x80 of NUL, and does not offer SMTPUTF8.
    odd = [one for one in odd if b"\0" not in one.content and "SMTPUTF8" not in one.parameters]
    with behind(lab, {f"{one.name}@inside.test": 0 for one in odd}) as instance:
        with connected(lab.cluster.node("mx1").smtp) as client:
            for one in odd:
                assert client.begin(f"{one.name}@inside.test", parameters=one.parameters).startswith("250 ")
                send = client.data if "DATA" in one.by else client.bdat
                assert send(one.content).startswith("250 2.6.0 ")
        wait_until(lambda: lab.queued("mx1") == 0, "everything is delivered", PATIENCE)
        found = arrived(instance.mailboxes)
    assert len(odd) > 30
    for one in odd:
        (stored,) = found[f"{one.name}@inside.test"]
        assert stored.endswith(one.arrives), one.name
        front, rest = split(stored[: len(stored) - len(one.arrives)])
        assert (rest, front.count(b"\nReceived: ")) == (b"", 2), one.name


@pytest.mark.parametrize("put_off", [False, True], ids=["rejected", "put off"])
def test_one_full_mailbox_among_good_ones_is_answered_for_itself(lab: RunningLab, put_off: bool):
    more = ["quota_full_tempfail = yes"] if put_off else []
    name, big = mail.token("dovecot"), text(mail.token("dovecot"), body="\r\n".join(["x" * 70] * 200))
    with behind(lab, {**EVERYBODY, BERTA: 4096}, *more) as instance:
        with smtplib.SMTP(*lab.cluster.node("mx1").smtp, local_hostname=mail.CLIENT) as client:
            assert client.sendmail("sender@outside.test", [INSIDE, BERTA, CARLA], text(name) + big) == {}
        wait_until(lambda: {INSIDE, CARLA} <= arrived(instance.mailboxes).keys(), "two get it", PATIENCE)
        if put_off:
            wait_until(lambda: len(lab.events("mx1", "DEFER")) >= 2, "the third is tried again", 15)
            assert {row["recipient-address"] for row in lab.events("mx1", "DEFER")} == {BERTA}
            (waiting,) = lab.ids("mx1")
            assert lab.unsettled("mx1", waiting) == 1
        else:
            reports = partial(arrived, lab.cluster.layout.mailbox.dir)
            wait_until(lambda: reports().get("sender@outside.test"), "the sender is told", PATIENCE)
            wait_until(lambda: lab.queued("mx1") == 0, "nothing is left", PATIENCE)
            (report,) = reports()["sender@outside.test"]
            assert b"Final-Recipient: rfc822; berta@inside.test" in report.replace(b"rfc822;b", b"rfc822; b")
            assert b"Status: 5.2.2" in report
        assert {to: len(files) for to, files in arrived(instance.mailboxes).items()} == {INSIDE: 1, CARLA: 1}


def test_a_mailbox_that_dovecot_does_not_have_is_reported_and_the_others_get_the_message(lab: RunningLab):
    with behind(lab) as instance:
        lab.send(recipients=(INSIDE, "nobody-here@inside.test", CARLA))
        reports = partial(arrived, lab.cluster.layout.mailbox.dir)
        wait_until(lambda: reports().get("sender@outside.test"), "the sender is told", PATIENCE)
        wait_until(lambda: lab.queued("mx1") == lab.held("mx2") == 0, "nothing is left", PATIENCE)
        assert arrived(instance.mailboxes).keys() == {INSIDE, CARLA}
        assert len(reports()["sender@outside.test"]) == 1


def test_when_dovecot_is_killed_in_mid_delivery_nothing_is_lost(lab: RunningLab):
    with behind(lab) as instance:
        for _ in range(120):
            lab.send(recipients=(INSIDE, BERTA))
            if len(lab.acknowledged) in (40, 80):
                instance.kill()
            if len(lab.acknowledged) in (50, 90):
                instance.start()
        wait_until(
            lambda: lab.count().lost == 0,
            "all delivered",
            PATIENCE,
            lambda: standing(lab, instance),
        )
        lab.settle()
        times, found = mail.arrivals(instance.mailboxes), lab.count()
    assert (found.lost, found.unexpected) == (0, 0), str(found)
    doubled = [message_id for (message_id, _), count in times.items() if count > 1]
    log = Doubled(lab)
    log.explained(doubled, log.reply_lost)
    assert lab.events("mx1", "DEFER"), "nothing was put off: Dovecot was not missed"


def standing(lab: RunningLab, instance: Dovecot) -> str:
    """Whether what has not arrived is still queued, and what either side says of it."""
    replies = [row["source-context"] for row in lab.events("mx1", "DEFER")[-5:]]
    said = instance.said()[-2000:]
    return f"{lab.count()}; queued {lab.queued('mx1')}, held {lab.held('mx2')}; {replies}; Dovecot: {said}"
