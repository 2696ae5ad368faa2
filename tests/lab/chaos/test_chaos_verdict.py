"""What was acknowledged, what may have been, what arrived: counted once for each recipient."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from shadowlab.chaos.history import History, MailboxArrival, SendAttempt, SendOutcome
from shadowlab.chaos.verdict import ChaosVerdict, Delivery, weigh

ONE, OTHER = ("<1@x>", "anna@inside.test"), ("<2@x>", "otto@outside.test")


def count(*deliveries: tuple[str, str]) -> Counter[tuple[str, str]]:
    return Counter(deliveries)


def verdict(tmp_path: Path, *happened: SendAttempt | MailboxArrival) -> ChaosVerdict:
    history = History(tmp_path / "history.jsonl")
    for what in happened:
        history.tell(what)
    history.close()
    assert len((tmp_path / "history.jsonl").read_text().splitlines()) == len(happened)
    return weigh(
        history.acknowledged(),
        history.attempted(),
        history.arrived(),
        history.arrived(damaged=True),
        history.addressed(),
    )


def sent(outcome: SendOutcome, *recipients: str) -> SendAttempt:
    return SendAttempt(1.0, "<1@x>", recipients or ("anna@inside.test",), 100, "mx1", outcome, 0.1)


def arrived(
    recipient: str = "anna@inside.test", *, dropped: bool = False, damaged: bool = False
) -> MailboxArrival:
    return MailboxArrival(2.0, "<1@x>", recipient, dropped, damaged)


def weighed(
    acknowledged: Counter[Delivery], attempted: Counter[Delivery], came: Counter[Delivery]
) -> ChaosVerdict:
    return weigh(acknowledged, attempted, came, count(), {})


def test_what_was_acknowledged_and_arrived_once_is_all_there_is_to_say():
    found = weighed(count(ONE, OTHER), count(ONE, OTHER), count(ONE, OTHER))
    assert (found.acknowledged, found.attempted, found.delivered) == (2, 2, 2)
    assert [found.lost, found.unexpected, found.duplicated, found.recovered] == [Counter()] * 4
    assert [found.damaged, found.wrong_mailbox] == [Counter()] * 2
    assert found.held


def test_acknowledged_and_not_arrived_is_lost():
    found = weighed(count(ONE, OTHER), count(ONE, OTHER), count(OTHER))
    assert found.lost == count(ONE)
    assert not found.held


def test_one_recipient_that_was_left_out_is_a_loss(tmp_path: Path):
    both = ("anna@inside.test", "otto@outside.test")
    found = verdict(tmp_path, sent(SendOutcome.ACKNOWLEDGED, *both), arrived())
    assert found.lost == count(("<1@x>", "otto@outside.test"))


@pytest.mark.parametrize("outcome", [SendOutcome.REFUSED, SendOutcome.ABANDONED])
def test_what_was_refused_or_never_whole_is_unexpected_when_it_arrives(tmp_path: Path, outcome: SendOutcome):
    found = verdict(tmp_path, sent(outcome), arrived())
    assert found.unexpected == count(ONE)
    assert not found.duplicated
    assert not found.held


def test_what_nobody_ever_sent_is_unexpected_each_time():
    found = weighed(count(), count(), count(ONE, ONE))
    assert found.unexpected == count(ONE, ONE)
    assert not found.duplicated


def test_what_arrives_damaged_is_lost_and_the_promise_is_broken(tmp_path: Path):
    found = verdict(tmp_path, sent(SendOutcome.ACKNOWLEDGED), arrived(damaged=True))
    assert (found.damaged, found.lost, found.delivered) == (count(ONE), count(ONE), 0)
    assert not found.unexpected
    assert not found.held


def test_a_damaged_one_beside_a_good_one_breaks_the_promise_too(tmp_path: Path):
    found = verdict(tmp_path, sent(SendOutcome.UNANSWERED), arrived(), arrived(damaged=True))
    assert found.damaged == count(ONE)
    assert not found.lost
    assert not found.held


@pytest.mark.parametrize("outcome", SendOutcome)
def test_what_arrives_where_no_sender_meant_it_to_go_is_in_the_wrong_mailbox(
    tmp_path: Path, outcome: SendOutcome
):
    found = verdict(tmp_path, sent(outcome), arrived("bnna@inside.test"))
    assert found.wrong_mailbox == count(("<1@x>", "bnna@inside.test"))
    assert not found.unexpected
    assert not found.held


def test_what_was_sent_without_an_answer_may_arrive_or_not(tmp_path: Path):
    assert verdict(tmp_path, sent(SendOutcome.UNANSWERED)).held


def test_what_arrived_though_nobody_was_told_is_recovered(tmp_path: Path):
    found = verdict(tmp_path, sent(SendOutcome.UNANSWERED), arrived())
    assert found.recovered == count(ONE)
    assert found.held


def test_what_arrived_twice_after_one_attempt_without_an_answer_is_recovered_once(tmp_path: Path):
    found = verdict(tmp_path, sent(SendOutcome.UNANSWERED), arrived(), arrived(dropped=True))
    assert (found.recovered, found.duplicated) == (count(ONE), count(ONE))


def test_arriving_more_often_than_sent_is_a_duplicate_even_if_the_mailbox_dropped_it(tmp_path: Path):
    found = verdict(tmp_path, sent(SendOutcome.ACKNOWLEDGED), arrived(), arrived(dropped=True))
    assert found.duplicated == count(ONE)
    assert found.held


def test_a_sender_that_tried_again_made_the_second_copy_itself(tmp_path: Path):
    found = verdict(
        tmp_path,
        sent(SendOutcome.UNANSWERED),
        sent(SendOutcome.ACKNOWLEDGED),
        arrived(),
        arrived(dropped=True),
    )
    assert not found.duplicated
    assert found.recovered == count(ONE)


def test_a_refusal_before_the_acknowledged_attempt_allows_no_second_copy(tmp_path: Path):
    found = verdict(tmp_path, sent(SendOutcome.REFUSED), sent(SendOutcome.ACKNOWLEDGED), arrived(), arrived())
    assert found.duplicated == count(ONE)
