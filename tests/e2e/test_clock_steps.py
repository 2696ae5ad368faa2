"""A wall clock that steps by hours or by a year, and is right again: no message ends by that, and none waits.

What steps is CLOCK_REALTIME of one node, by libfaketime; the boot clock goes on. A message is too old when it
is by default: after two days. One lab serves all steps, each of which leaves it empty.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import pytest
from conftest import brought_down
from running_lab import INSIDE, RunningLab, wait_until

from shadowlab import clocks
from shadowlab.clocks import RIGHT, TAKES_EFFECT

REASON = clocks.lacking()

pytestmark = [pytest.mark.lab, pytest.mark.slow, pytest.mark.skipif(bool(REASON), reason=REASON)]

NAMES = ("mx1", "mx2", "mx3")
YEAR, HOURS, MINUTES = timedelta(days=365), timedelta(hours=20), timedelta(minutes=7)
SIZE = 20
SPAN = 10  # seconds until an owner that is silent is taken for dead
SWEEP = 2.0  # seconds between looks for what goes by age: a quarter of the time that settled mail is kept


def spelt(ahead: timedelta) -> str:
    return f"{abs(ahead)} {'ahead' if ahead > RIGHT else 'behind'}"


ENDED = ("FAIL", "DSN", "HADISCARD")


class SteppingLab:
    """A lab of three nodes with clocks of their own."""

    def __init__(self, running: RunningLab) -> None:
        self.running = running
        self.cluster = running.cluster
        options = (f"shadow_resubmit_time_span={SPAN}s", f"safety_net_hold_time={4 * SWEEP:.0f}s")
        running.up(*options, nodes=3, clocks=True)

    def set(self, names: tuple[str, ...], ahead: timedelta) -> None:
        for name in names:
            self.cluster.set_clock(name, ahead)
        time.sleep(TAKES_EFFECT)

    @contextmanager
    def wrong(self, *names: str, ahead: timedelta) -> Iterator[None]:
        """Clocks are wrong for at least four seconds, and for as long as what is done meanwhile takes."""
        began = time.monotonic()
        self.set(names, ahead)
        try:
            yield
            time.sleep(max(0.0, 4.0 - (time.monotonic() - began)))
        finally:
            self.set(names, RIGHT)

    def waiting(self, name: str, count: int = SIZE) -> None:
        """That much mail is in the queue of a node, and was tried, because the next hop refuses."""
        self.cluster.refuse()
        tried = len(self.running.events(name, "DEFER"))
        self.running.send(count, to=name, recipients=(INSIDE,))
        wait_until(lambda: len(self.running.events(name, "DEFER")) >= tried + count, "all was tried")

    def ended(self) -> Counter[str]:
        """What nodes failed, reported, or discarded for its age: no message here may end so."""
        rows = [(name, row) for name in NAMES for event in ENDED for row in self.running.events(name, event)]
        return Counter(
            f"{name}: {row['event-id']} {row['source-context'].partition(';')[0]}".strip()
            for name, row in rows
            if row["event-id"] != "HADISCARD" or "Expired" in row["source-context"]
        )

    def delivers(self) -> None:
        """The next hop takes mail again: all arrives once, nothing was failed, reported or too old."""
        self.cluster.accept()
        wait_until(lambda: sum(map(self.running.queued, NAMES)) == 0, "queues are empty", 20, self.told)
        assert self.ended() == Counter()
        self.running.verify()

    def told(self) -> str:
        return f"{self.running.count()}, {self.ended()}"


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SteppingLab]:
    running = RunningLab(tmp_path_factory.mktemp("clocks") / "lab")
    with brought_down(running):
        yield SteppingLab(running)


@pytest.fixture
def lab(shared: SteppingLab) -> Iterator[SteppingLab]:
    """Empty, with all clocks right, whatever the test before has done."""
    yield shared
    shared.cluster.accept()
    for name in NAMES:
        shared.cluster.set_clock(name, RIGHT)
        shared.cluster.start(name)


@pytest.mark.parametrize("ahead", [YEAR, HOURS, -YEAR, -HOURS, MINUTES], ids=spelt)
def test_mail_that_waits_while_the_clock_of_its_owner_is_wrong_goes_on_waiting(
    lab: SteppingLab, ahead: timedelta
):
    lab.waiting("mx1")
    with lab.wrong("mx1", ahead=ahead):
        pass
    lab.delivers()


@pytest.mark.parametrize("ahead", [YEAR, HOURS, -YEAR, -HOURS], ids=spelt)
def test_mail_that_a_node_takes_while_its_clock_is_wrong_is_no_older_once_it_is_right(
    lab: SteppingLab, ahead: timedelta
):
    lab.cluster.refuse()
    with lab.wrong("mx1", ahead=ahead):
        lab.waiting("mx1")
    lab.delivers()


@pytest.mark.parametrize("ahead", [YEAR, HOURS, -YEAR, -HOURS], ids=spelt)
def test_the_same_if_the_clock_is_wrong_when_the_node_starts(lab: SteppingLab, ahead: timedelta):
    lab.waiting("mx1", 2)
    lab.cluster.kill("mx1")
    with lab.wrong("mx1", ahead=ahead):
        lab.cluster.start("mx1")
        lab.waiting("mx1")
    lab.delivers()


@pytest.mark.parametrize("ahead", [YEAR, -YEAR], ids=spelt)
def test_a_holder_whose_clock_is_wrong_promotes_what_it_holds_and_ends_none_of_it(
    lab: SteppingLab, ahead: timedelta
):
    lab.waiting("mx1")
    held = lab.running.held("mx2"), lab.running.held("mx3")
    with lab.wrong("mx2", "mx3", ahead=ahead):
        lab.cluster.kill("mx1")
        wait_until(
            lambda: (lab.running.queued("mx2"), lab.running.queued("mx3")) == held, "its holders promote"
        )
    lab.cluster.start("mx1")
    lab.delivers()


def test_a_holder_whose_clock_is_a_year_ahead_keeps_what_it_holds_for_an_owner_that_is_away(lab: SteppingLab):
    """The owner is back before a promotion; until then nobody says that it still has the messages."""
    lab.waiting("mx1")
    lab.cluster.kill("mx1")
    with lab.wrong("mx2", "mx3", ahead=YEAR):
        time.sleep(2 * SWEEP)  # copies are looked at for their age
    lab.cluster.start("mx1")
    lab.delivers()


@pytest.mark.parametrize("ahead", [YEAR, HOURS], ids=spelt)
def test_a_retry_that_was_planned_while_the_clock_was_ahead_comes_no_later(
    lab: SteppingLab, ahead: timedelta
):
    """Whether the node runs on, or is started again with the right clock."""
    with lab.wrong("mx1", ahead=ahead):
        lab.waiting("mx1")
        lab.cluster.kill("mx1")
    lab.cluster.start("mx1")
    lab.delivers()
