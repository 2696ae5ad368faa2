"""While no member can take a copy: how long messages wait, how often members are asked. The clock is virtual.

The script, the choice and the memory are those of a node; time passes in pauses and attempts alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

import pytest
from test_two_copies import ARRIVAL

from shadowrelay.core.decisions import Content
from shadowrelay.core.identifiers import Incarnation, Mark, ServerName
from shadowrelay.core.policy import Policy
from shadowrelay.core.reception.redundancy import Concern, Leg, OfferAttempt
from shadowrelay.core.reception.shadow_servers import MemberPlace
from shadowrelay.core.steps import Beside, Both, OfferCopy, Pause, Transact
from shadowrelay.members.boundary import Boundary
from shadowrelay.reception.two_copies import make_redundant

BEGUN = datetime(2030, 1, 1, tzinfo=UTC)
POLICY = Policy()
PAUSE = POLICY.shadow_retry_interval.total_seconds()
B, C = ServerName("b"), ServerName("c")
REFUSED = OfferAttempt(B, Leg.REFUSED, 1, "452 4.3.1", mark=Mark(Incarnation("00000000000000bb"), 1))
AWAY = OfferAttempt(B, Leg.REFUSED, 1, "connect: refused")


@dataclass
class Node:
    """A node at a time of its own, in seconds. ``down``: how the attempts at a member fail; other members
    take what they are offered. ``takes``: how long an attempt lasts.
    """

    boundary: Boundary
    down: dict[ServerName, OfferAttempt]
    now: float = 1000.0
    takes: float = 0.0
    asked: list[ServerName] = field(default_factory=list)

    @classmethod
    def of(
        cls,
        *members: ServerName,
        down: OfferAttempt = AWAY,
        elsewhere: bool = False,
        policy: Policy = POLICY,
    ) -> Node:
        own = MemberPlace(ServerName("a"), "here", "host-a")
        site = "there" if elsewhere else "here"
        places = tuple(MemberPlace(name, site, f"host-{name}") for name in members)
        return cls(Boundary(own, places, policy), dict.fromkeys(members, down))

    def message(self) -> tuple[float, int]:
        """A message comes in: how long it waits in pauses, and how many attempts it makes."""
        candidates, waited, before = self.boundary.candidates(self.now), 0.0, len(self.asked)
        deadline = BEGUN + timedelta(seconds=self.now) + POLICY.shadow_time_cap
        script = make_redundant(
            ARRIVAL,
            Content(data=b"x"),
            candidates.after,
            POLICY,
            lambda: BEGUN + timedelta(seconds=self.now),
            deadline,
        )
        step = script.send(None)
        while not isinstance(step, Transact):
            if isinstance(step, Pause):
                waited += step.length.total_seconds()
                self.now += step.length.total_seconds()
                step = script.send(None)
            else:
                assert isinstance(step, Beside | OfferCopy)
                attempt = self._offered(step.offer if isinstance(step, Beside) else step)
                step = script.send(Both(None, attempt, None) if isinstance(step, Beside) else attempt)
        script.close()
        return waited, len(self.asked) - before

    def _offered(self, step: OfferCopy) -> OfferAttempt:
        self.asked.append(step.to)
        self.now += self.takes
        fails = self.down.get(step.to)
        attempt = (
            replace(fails, name=step.to, rank=step.rank)
            if fails
            else OfferAttempt(step.to, Leg.ACKNOWLEDGED, step.rank, "250 2.6.0")
        )
        self.boundary.attempted(attempt, self.now)
        return attempt


@pytest.mark.parametrize(("elsewhere", "pauses"), [(False, 1), (True, 3)], ids=["one site", "two sites"])
@pytest.mark.parametrize("fails", [AWAY, REFUSED], ids=["cannot be reached", "takes no copies"])
def test_of_a_hundred_messages_the_first_one_waits(fails: OfferAttempt, elsewhere: bool, pauses: int) -> None:
    node = Node.of(B, down=fails, elsewhere=elsewhere)
    found = [node.message() for _ in range(100)]
    assert found[0] == (pauses * PAUSE, pauses + 1)
    assert found[1:] == [(0.0, 1)] * 99
    assert sum(waited for waited, _ in found) == pauses * PAUSE
    assert len(node.asked) == pauses + 1 + 99


def test_every_member_that_is_left_is_asked_once_for_every_message() -> None:
    node = Node.of(B, C)
    node.message()
    node.asked.clear()
    assert [node.message() for _ in range(20)] == [(0.0, 2)] * 20
    assert (node.asked.count(B), node.asked.count(C)) == (20, 20)


def test_while_heartbeats_fail_too_no_later_message_waits_however_late_it_comes() -> None:
    node = Node.of(B)
    node.message()
    node.boundary.failed(B, node.now, "down")
    for _ in range(10):
        node.now += 60 * POLICY.member_skip_interval.total_seconds()
        assert node.message() == (0.0, 1)


def test_what_nobody_confirms_is_forgotten() -> None:
    node = Node.of(B)
    node.message()
    node.now += POLICY.member_skip_interval.total_seconds() + PAUSE
    assert node.message() == (PAUSE, 2)


@pytest.mark.parametrize("sign", ["it answers a heartbeat", "it calls"])
def test_a_member_that_is_back_is_used_at_once_and_tried_as_often_as_documented(sign: str) -> None:
    node = Node.of(B)
    node.message()
    node.boundary.failed(B, node.now, "down")
    assert node.message() == (0.0, 1)
    (node.boundary.answered if sign == "it answers a heartbeat" else node.boundary.called)(B, node.now)
    assert node.message() == (PAUSE, 2)
    assert node.message() == (0.0, 1)
    node.down.clear()
    assert node.message() == (0.0, 1)
    node.down[B] = AWAY
    assert node.message() == (PAUSE, 2), "it took a copy, so this failure is a new one"


def test_a_member_that_takes_no_copies_is_not_waited_for_because_it_answers_other_questions() -> None:
    node = Node.of(B, down=REFUSED)
    node.message()
    for _ in range(50):
        node.now += 1.0
        node.boundary.called(B, node.now)
        node.boundary.answered(B, node.now)
        assert node.message() == (0.0, 1)


@pytest.mark.parametrize("needed", [True, False], ids=["refused without a copy", "taken without a copy"])
def test_a_message_that_came_before_has_all_of_its_attempts_if_it_is_refused_without_a_copy(
    needed: bool,
) -> None:
    node = Node.of(B, policy=replace(POLICY, reject_message_on_shadow_failure=needed))
    early = node.boundary.candidates(node.now)
    node.message()
    assert (early.after([AWAY]) is not None) == needed
    assert node.boundary.candidates(node.now).after([AWAY]) is None


@pytest.mark.parametrize("concern", [Concern.COPY, Concern.SESSION])
def test_what_is_no_failure_of_the_member_is_not_remembered(concern: Concern) -> None:
    node = Node.of(B, down=replace(AWAY, concern=concern))
    first = node.message()
    assert [node.message() for _ in range(5)] == [first] * 5
