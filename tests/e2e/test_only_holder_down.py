"""The only holder is killed, or frozen: which messages wait for it, and which go to it when it is back."""

from __future__ import annotations

import time

import pytest
from running_lab import RunningLab, wait_until

pytestmark = [pytest.mark.lab, pytest.mark.slow]

PAUSE = 5.0  # seconds between the attempts for one message
LATER = 6


def waited(lab: RunningLab, messages: int = 1) -> float:
    """Seconds until so many messages, one after the other, have their 250."""
    began = time.monotonic()
    lab.send(messages)
    return time.monotonic() - began


@pytest.mark.parametrize("down", ["killed", "frozen"])
def test_the_first_message_waits_for_it_and_no_later_one_and_all_have_copies_when_it_is_back(
    lab: RunningLab, down: str
) -> None:
    lab.up(
        "reject_message_on_shadow_failure=false",
        "receive.default.max_acknowledgement_delay=0s",
        f"shadow_retry_interval={PAUSE:.0f}s",
        nodes=2,
    )
    lab.cluster.refuse()
    lab.send()
    if down == "killed":
        lab.cluster.kill("mx2")
    else:
        lab.cluster.freeze("mx2")
    assert waited(lab) >= PAUSE
    assert waited(lab, LATER) < LATER * PAUSE, "one of them may be slow, all of them wait only if each does"
    wait_until(lambda: len(lab.events("mx1", "HAREDIRECTFAIL")) == 1 + LATER, "they have one copy each")

    if down == "killed":
        lab.cluster.start("mx2")
    else:
        lab.cluster.thaw("mx2")
    wait_until(lambda: lab.peer("mx1", "mx2")["state"] == "reachable", "it is back")
    lab.send(3)
    wait_until(lambda: lab.held("mx2") == 1 + 1 + LATER + 3, "each has its copy")
    wait_until(lambda: len(lab.events("mx1", "RECEIVE")) == 1 + 1 + LATER + 3, "each is in the log")
    assert len(lab.events("mx1", "HAREDIRECTFAIL")) == 1 + LATER
