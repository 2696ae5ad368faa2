"""Why is this message not moving? The commands that look at a node say it."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner
from running_lab import OUTSIDE, RunningLab, wait_until

from shadowlab.layout import MAILBOX
from shadowrelay.cli import main

pytestmark = pytest.mark.lab


def seen(lab: RunningLab, *words: str) -> str:
    done = CliRunner().invoke(main, [*words, "--admin", lab.cluster.node("mx1").admin])
    assert done.exit_code == 0, done.output
    return done.stdout


def queue(lab: RunningLab) -> dict[str, object]:
    (found,) = json.loads(seen(lab, "queue", "list", "--json", "--here"))["queues"]
    return dict(found)


@pytest.mark.slow
def test_a_next_hop_that_cannot_be_reached_rests_and_the_queue_says_until_when_and_why(lab: RunningLab):
    lab.up("queue_glitch_retry_interval=5m", nodes=2)
    lab.cluster.kill(MAILBOX)
    lab.send(1, recipients=(OUTSIDE,))
    wait_until(lambda: queue(lab)["status"] == "resting", "the next hop has failed")
    lab.send(1, recipients=(OUTSIDE,))
    wait_until(lambda: queue(lab)["waiting"] == 1, "what came since is due, and kept")
    found = queue(lab)
    why = f"the next hop rests until {found['rests_until']}: it failed 1 time, at last connect: "
    assert str(found["why"]).startswith(why)
    assert str(found["next_attempt"]) >= str(found["rests_until"])
    table = seen(lab, "queue", "list")
    assert why in table
    assert " resting " in table
    newest = lab.ids("mx1")[-1]
    assert why in seen(lab, "message", "show", newest)
    lab.cluster.start(MAILBOX)


@pytest.mark.slow
def test_mail_that_waits_for_a_free_session_is_counted_and_told_the_limit(lab: RunningLab):
    lab.up("max_per_domain_outbound_connections=1", "drain_timeout=0s", nodes=2)
    lab.cluster.freeze(MAILBOX)
    lab.send(3, recipients=(OUTSIDE,))
    wait_until(lambda: queue(lab)["waiting"] == 2, "one is being sent, two wait")
    told = "no session is free: 1 of 1 in use (max_per_domain_outbound_connections)"
    assert (queue(lab)["status"], queue(lab)["why"]) == ("active", told)
    assert told in seen(lab, "queue", "list")
    assert told in seen(lab, "message", "show", lab.ids("mx1")[-1])
    lab.cluster.thaw(MAILBOX)
    lab.verify()
