"""Floods by smtp-source: everything acknowledged arrives once, within the limits and past them."""

from __future__ import annotations

import re
import shutil
import smtplib
from contextlib import ExitStack

import pytest
from neighbourhood import PATIENCE, arrived, flood
from running_lab import INSIDE, RunningLab, text, wait_until

from shadowlab import mail
from shadowlab.mail import CLIENT, token

pytestmark = [
    pytest.mark.lab,
    pytest.mark.slow,
    pytest.mark.skipif(
        shutil.which("smtp-source") is None,
        reason="there is no smtp-source: it comes with Postfix (apt-get install postfix)",
    ),
]


def everything_is_delivered(lab: RunningLab) -> None:
    wait_until(
        lambda: all(lab.queued(name) == lab.held(name) == 0 for name in ("mx1", "mx2")),
        "all settled",
        PATIENCE,
    )


FLOODS = {
    "reused sessions": ("-d", "-s", "50", "-m", "500", "-l", "4096"),
    "a session for each": ("-s", "20", "-m", "200", "-l", "1000"),
    "many recipients": ("-d", "-s", "10", "-m", "50", "-l", "2000", "-r", "20"),
    "large ones": ("-d", "-s", "8", "-m", "24", "-l", "1000000"),
}


def test_a_flood_within_the_limits_is_lost_nowhere_and_doubled_nowhere(lab: RunningLab):
    lab.up(nodes=2)
    owed: dict[str, int] = {}
    for options in FLOODS.values():
        done = flood(lab.cluster.node("mx1").smtp, *options)
        assert done.returncode == 0, done.stderr
        count = int(options[options.index("-m") + 1])
        recipients = int(options[options.index("-r") + 1]) if "-r" in options else 1
        # smtp-source numbers the recipients from the second one on: 2anna@…
        for name in [INSIDE, *(f"{number}{INSIDE}" for number in range(2, recipients + 1))]:
            owed[name] = owed.get(name, 0) + count
    everything_is_delivered(lab)
    found = {to: len(files) for to, files in arrived(lab.cluster.layout.mailbox.dir).items()}
    assert found == owed
    assert mail.dropped(lab.cluster.layout) == 0


def test_past_the_limit_of_connections_421_is_said_and_what_was_acknowledged_arrives(lab: RunningLab):
    lab.up("receive.default.max_inbound_connection_per_source=5", nodes=2)
    server = lab.cluster.node("mx1").smtp
    with ExitStack() as stack:
        clients = [stack.enter_context(smtplib.SMTP(*server, local_hostname=CLIENT)) for _ in range(4)]
        for _ in range(5):
            # smtp-source gives up at the first 421; the sessions that were there before go on.
            refused = flood(server, "-d", "-s", "30", "-m", "300", "-l", "2000")
            assert refused.returncode != 0
            assert re.search(r"421 4\.7\.0", refused.stderr), refused.stderr
            for client in clients:
                name = token("flood")
                assert client.sendmail("sender@outside.test", ["berta@inside.test"], text(name)) == {}
                lab.sent_otherwise(name, "berta@inside.test")
    wait_until(lambda: lab.offer(to="mx1", recipients=("berta@inside.test",)), "it takes new sessions again")
    everything_is_delivered(lab)
    found = lab.count()
    assert (found.delivered, found.lost, found.duplicates) == (21, 0, 0), str(found)
