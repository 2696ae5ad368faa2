"""The recovery table with more messages in a queue than are looked at in one go."""

from __future__ import annotations

import smtplib
from concurrent.futures import ThreadPoolExecutor

import pytest
from running_lab import INSIDE, RunningLab, wait_until

from shadowlab.mail import CLIENT, Letter, token, written
from shadowrelay.members.inquiry import LOOKS

pytestmark = [pytest.mark.lab, pytest.mark.slow]

SESSIONS = 8
PATIENCE = 180.0  # seconds


def fill(lab: RunningLab, messages: int) -> None:
    """Send them to mx1, which must take them all, over sessions that go on with the next message."""

    def session(letters: list[Letter]) -> None:
        with smtplib.SMTP(*lab.cluster.node("mx1").smtp, local_hostname=CLIENT, timeout=60) as client:
            for letter in letters:
                assert not client.send_message(written(letter), letter.sender, letter.recipients)
                lab.acknowledged.append(letter)

    letters = [Letter(token("e2e"), "sender@outside.test", (INSIDE,)) for _ in range(messages)]
    with ThreadPoolExecutor(SESSIONS) as pool:
        list(pool.map(session, (letters[first::SESSIONS] for first in range(SESSIONS))))


def every_message_arrives_once(lab: RunningLab) -> None:
    lab.cluster.accept()
    wait_until(
        lambda: lab.queued("mx1") + lab.queued("mx2") + lab.held("mx1") + lab.held("mx2") == 0,
        "all is settled",
        PATIENCE,
    )
    lab.verify()


@pytest.mark.parametrize("wiped", [False, True], ids=["started again", "disk lost"])
def test_an_owner_with_a_long_queue_is_killed_and_every_message_arrives_once(lab: RunningLab, wiped: bool):
    messages = LOOKS + 500
    lab.up("shadow_resubmit_time_span=1h", nodes=2)
    lab.cluster.refuse()
    fill(lab, messages)
    wait_until(lambda: lab.held("mx2") == messages, "all have their second copy")
    lab.cluster.kill("mx1")
    if wiped:
        lab.cluster.wipe("mx1")
    lab.cluster.start("mx1")
    lab.send(1)  # at once, however much there is to ask about, or to take over
    owner, holder = ("mx2", "mx1") if wiped else ("mx1", "mx2")
    wait_until(lambda: lab.queued(owner) >= messages, "it has all of them", PATIENCE)
    wait_until(lambda: lab.held(holder) >= messages, "and each has two copies", PATIENCE)
    every_message_arrives_once(lab)
    assert len(lab.events("mx2", "RESUBMIT")) == (messages if wiped else 0)


def test_a_holder_that_is_killed_in_the_middle_of_its_promotions_goes_on_with_them(lab: RunningLab):
    messages = LOOKS + 500
    lab.up("shadow_resubmit_time_span=1h", nodes=2)
    lab.cluster.refuse()
    fill(lab, messages)
    wait_until(lambda: lab.held("mx2") == messages, "all have their second copy")
    lab.cluster.kill("mx1")
    lab.cluster.wipe("mx1")
    lab.cluster.start("mx1")
    wait_until(lambda: lab.queued("mx2") > 500, "some are promoted", PATIENCE)
    lab.cluster.kill("mx2")
    lab.cluster.start("mx2")
    wait_until(lambda: lab.queued("mx2") >= messages, "it has all of them", PATIENCE)
    wait_until(lambda: lab.held("mx1") >= messages, "and each has two copies", PATIENCE)
    every_message_arrives_once(lab)
    promoted = lab.events("mx2", "RESUBMIT")
    assert len(promoted) == messages
    incarnations = {row["log-id"].partition("-")[0] for row in promoted}
    assert len(incarnations) == 2, "it was killed in the middle"
