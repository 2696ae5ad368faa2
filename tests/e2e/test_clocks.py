"""The recovery table's clock row: the wall clock of a node steps by hours.

What is stepped is CLOCK_REALTIME of one running node, by libfaketime. CLOCK_MONOTONIC and CLOCK_BOOTTIME, by
which silence is measured, go on: the kernel lets nobody set them.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from running_lab import INSIDE, OUTSIDE, RunningLab, wait_until

from shadowlab import clocks
from shadowrelay.admin.client import AdminClient
from shadowrelay.shown.status import TimeEntry

REASON = clocks.lacking()

pytestmark = [pytest.mark.lab, pytest.mark.slow, pytest.mark.skipif(bool(REASON), reason=REASON)]


def ahead(lab: RunningLab, name: str) -> timedelta:
    """How far a node's wall clock is ahead of its reckoned time."""
    return timedelta(seconds=AdminClient(lab.cluster.node(name).admin).get(TimeEntry, "time")["ahead"])


@pytest.mark.parametrize("hours", [5, -5])
def test_a_wall_clock_that_steps_by_hours_promotes_nothing_and_delays_nothing(lab: RunningLab, hours: int):
    # A step is longer than the time span, and shorter than the age at which a sender is told of a delay.
    lab.up("shadow_resubmit_time_span=1h", "delay_notification_timeout=1d", nodes=2, clocks=True)
    started = datetime.now(UTC)

    def stepped_to(offset: int) -> None:
        lab.cluster.set_clock("mx1", timedelta(hours=offset))
        almost = timedelta(minutes=10)
        expected = timedelta(hours=offset)
        wait_until(lambda: abs(ahead(lab, "mx1") - expected) < almost, "the clock has stepped")

    def sent_both_ways() -> None:
        """As an owner and as a holder; on sessions of before, and on new ones with certificates to judge."""
        lab.send(2, to="mx1", recipients=(INSIDE, OUTSIDE))
        lab.send(2, to="mx2")

    def failures() -> int:
        return int(lab.peer("mx1", "mx2")["failures"])

    lab.cluster.refuse()
    sent_both_ways()
    lab.cluster.freeze("mx2")
    wait_until(lambda: failures() >= 1, "its silence is being measured")
    stepped_to(hours)
    wait_until(lambda: failures() >= 4, "and looked at again")
    assert lab.held("mx1") == 2
    lab.cluster.thaw("mx2")
    wait_until(lambda: failures() == 0, "heard again")
    sent_both_ways()
    assert (lab.queued("mx1"), lab.held("mx1"), lab.held("mx2")) == (4, 4, 4)
    lab.cluster.accept()
    lab.verify()

    lab.cluster.refuse()
    sent_both_ways()
    stepped_to(0)
    assert [lab.peer(*pair)["state"] for pair in (("mx1", "mx2"), ("mx2", "mx1"))] == ["reachable"] * 2
    lab.cluster.accept()
    lab.verify()
    assert [lab.events(name, event) for name in ("mx1", "mx2") for event in ("RESUBMIT", "DSN")] == [[]] * 4
    times = [datetime.fromisoformat(row["date-time"]) - started for row in lab.events("mx1", "RECEIVE")]
    assert any(abs(time - timedelta(hours=hours)) < timedelta(minutes=10) for time in times)
