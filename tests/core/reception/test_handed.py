"""What a peer beyond the boundary hands over is taken once, and the peer hears what became of it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from decision_inputs import HOP, POLICY, arrival, holder
from ledger_at_hand import DB, NOW, RUN, A, B, C, LedgerAtHand, M, ledger_of, lineage, message

from shadowrelay.core.decisions import (
    Content,
    DamagedRow,
    Decision,
    DiscardEvent,
    DropCopy,
    Verdict,
    VerdictKind,
)
from shadowrelay.core.delivery.settling import AttemptResult, Ending, Report, settle
from shadowrelay.core.digests import of_envelope
from shadowrelay.core.events.discard_notices import RECIPIENTS_PER_EVENT
from shadowrelay.core.events.reports import ReportKind, report_id
from shadowrelay.core.hops import Handed, HopPeer
from shadowrelay.core.identifiers import DatabaseId, Mark, MessageId, NextHop, ServerName
from shadowrelay.core.members import hops
from shadowrelay.core.members.conversation import Greeting, Query
from shadowrelay.core.messages import Recipient, Status
from shadowrelay.core.policy import Policy
from shadowrelay.core.reception import redundancy
from shadowrelay.core.reception.holding import settle_held
from shadowrelay.core.reception.redundancy import Answer
from shadowrelay.core.recipients import Rewriting

PEER, DATABASE = ServerName("hub.example.net"), DB[C]
THEIRS = MessageId("01900000-0000-7000-8000-0000000000ff")
AGAIN = MessageId("01900000-0000-7000-8000-000000000002")
HANDED = Handed(M, PEER, DATABASE, THEIRS, (3, 8))
LAX = Policy(reject_message_on_shadow_failure=False)


def take(on: LedgerAtHand, handed: Handed = HANDED) -> Answer:
    """The message with as many recipients as the peer has numbers for, in a boundary of one."""
    recipients = message().recipients[: len(handed.numbers)]
    came = replace(arrival(), id=handed.message_id, recipients=recipients, handed=handed)
    answer: Answer = on.apply(redundancy.accept(on, came, Content(data=b"x"), [], LAX, NOW, last_resort=True))
    return answer


def deliver(on: LedgerAtHand, *numbers: int, ending: Ending = Ending.ACCEPTED, **more: object) -> None:
    results = [AttemptResult(number, ending, "250 2.0.0 OK") for number in numbers]
    on.apply(settle(on, M, results, more.get("reports", ()), HOP, NOW))  # type: ignore[arg-type]


def told(on: LedgerAtHand, database: DatabaseId = DATABASE) -> list[tuple[str, str, tuple[int, ...]]]:
    """Id, outcome and numbers of what waits for that database."""
    found = [event.verdict for event in on.told if event.addressee == database]
    return [(one.message_id, one.argument, one.recipients) for one in found]


@pytest.fixture
def on() -> LedgerAtHand:
    return ledger_of(A)


def test_who_handed_a_message_over_is_on_record_with_it(on: LedgerAtHand) -> None:
    assert take(on) is Answer.ACCEPTED
    assert on.handed(M) == HANDED
    assert on.handed_as(DATABASE, THEIRS) == [HANDED]
    said = on.events[-1].columns()["custom-data"]
    assert f"S:HandedBy={PEER};S:HandedAs={THEIRS}" in said


def test_nothing_is_recorded_of_what_is_not_taken(on: LedgerAtHand) -> None:
    came = replace(arrival(), handed=HANDED)
    decision = redundancy.accept(on, came, Content(data=b"x"), [], POLICY, NOW, last_resort=True)
    assert on.apply(decision) is Answer.NOT_REDUNDANT
    assert on.handed(M) is None


def test_the_peer_hears_of_a_delivery_with_its_own_id_and_numbers(on: LedgerAtHand) -> None:
    take(on)
    deliver(on, 2)
    assert told(on) == [(THEIRS, "relayed", (8,))]
    deliver(on, 1)
    assert told(on)[1:] == [(THEIRS, "relayed", (3,))]


def test_an_event_names_its_recipients_even_if_they_are_all_that_we_have(on: LedgerAtHand) -> None:
    """The peer may have given others to other hops: to it ``*`` would mean all of them."""
    take(on)
    deliver(on, 1, 2)
    assert told(on) == [(THEIRS, "relayed", (3, 8))]


def test_the_event_is_in_the_decision_that_settles(on: LedgerAtHand) -> None:
    take(on)
    decision = settle(on, M, [AttemptResult(1, Ending.ACCEPTED, "250")], (), HOP, NOW)
    assert [write.addressee for write in decision.writes if isinstance(write, DiscardEvent)] == [DATABASE]


def test_a_deferral_is_no_news(on: LedgerAtHand) -> None:
    take(on)
    deliver(on, 1, ending=Ending.DEFERRED)
    assert told(on) == []


def test_a_failure_is_told_once_its_report_is_settled(on: LedgerAtHand) -> None:
    """In a boundary of one no report ever has two copies: it is safe when it has left, or failed itself."""
    take(on)
    dsn = report_id(M, 1, ReportKind.FAILED)
    report = Report(id=dsn, about=1, content=b"x", next_hop=NextHop("back"))
    deliver(on, 1, ending=Ending.REJECTED, reports=[report])
    assert told(on) == []
    on.apply(settle(on, dsn, [AttemptResult(1, Ending.ACCEPTED, "250")], (), HOP, NOW))
    assert told(on) == [(THEIRS, "failed", (3,))]


def test_a_message_that_another_node_settled_is_told_too(on: LedgerAtHand) -> None:
    take(on)
    copy = on.copies[M]
    done = replace(copy.recipients[0], status=Status.DELIVERED)
    on.apply(settle_held(on, copy, (done,), DB[B], Mark(RUN[B], 9), NOW))
    assert told(on) == [(THEIRS, "", (3,))]


def test_members_that_hold_a_copy_hear_of_it_as_ever(on: LedgerAtHand) -> None:
    take(on)
    on.copies[M] = replace(on.copies[M], holders=(holder(B),))
    deliver(on, 1)
    assert told(on, DB[B]) == [(M, "relayed", (1,))]


def test_what_was_sent_though_its_rows_were_damaged_meanwhile_is_told(on: LedgerAtHand) -> None:
    take(on)
    sent = on.copies.pop(M)
    on.rows[M] = DamagedRow(M, NOW, "a sum differs")
    on.apply(settle(on, M, [AttemptResult(2, Ending.ACCEPTED, "250")], (), HOP, NOW, sent=sent))
    assert told(on) == [(THEIRS, "relayed", (8,))]


def test_many_recipients_become_several_events(on: LedgerAtHand) -> None:
    many = tuple(range(1, RECIPIENTS_PER_EVENT + 2))
    recipients = tuple(Recipient(number, f"r{number}@example.net", NextHop("h")) for number in many)
    came = replace(arrival(), recipients=recipients, handed=replace(HANDED, numbers=many))
    on.apply(redundancy.accept(on, came, Content(data=b"x"), [], LAX, NOW, last_resort=True))
    deliver(on, *many)
    assert [numbers for _, _, numbers in told(on)] == [many[:-1], many[-1:]]


# Again


def test_a_message_that_is_handed_over_again_is_not_taken_again(on: LedgerAtHand) -> None:
    take(on)
    assert take(on, replace(HANDED, message_id=AGAIN)) is Answer.REPEATED
    assert list(on.copies) == [M]
    assert on.handed(AGAIN) is None


def test_of_a_message_that_is_handed_over_again_only_new_recipients_are_taken(on: LedgerAtHand) -> None:
    take(on, replace(HANDED, numbers=(3,)))
    assert take(on, replace(HANDED, message_id=AGAIN)) is Answer.ACCEPTED
    taken = on.copies[AGAIN]
    assert [(one.number, one.address) for one in taken.recipients] == [(1, message().recipients[1].address)]
    assert taken.digests
    assert taken.digests.envelope == of_envelope(taken.envelope, taken.recipients)
    assert on.handed(AGAIN) == Handed(AGAIN, PEER, DATABASE, THEIRS, (8,))


def test_what_is_logged_of_rewritten_recipients_is_about_those_that_are_taken(on: LedgerAtHand) -> None:
    take(on, replace(HANDED, numbers=(3,)))
    again = replace(HANDED, message_id=AGAIN)
    rewritten = (Rewriting(1, "x@before.test"), Rewriting(2, "y@before.test"))
    came = replace(arrival(), id=AGAIN, handed=again, rewritten=rewritten)
    on.apply(redundancy.accept(on, came, Content(data=b"x"), [], LAX, NOW, last_resort=True))
    resolved = [event for event in on.events if event.event_id == "RESOLVE"]
    assert [(event.original, [one.number for one in event.recipients]) for event in resolved] == [
        ("y@before.test", [1])
    ]


def test_the_same_id_from_another_database_is_another_message(on: LedgerAtHand) -> None:
    take(on)
    other = replace(HANDED, message_id=AGAIN, database_id=DB[B])
    assert take(on, other) is Answer.ACCEPTED


def test_a_peer_that_forgot_what_is_delivered_hears_it_again(on: LedgerAtHand) -> None:
    """It was put back to an older state, and has applied the event in a life that it does not remember."""
    take(on)
    deliver(on, 2)
    on.state.events.clear()
    take(on, replace(HANDED, message_id=AGAIN))
    assert told(on) == [(THEIRS, "relayed", (8,))]


def test_what_a_message_was_handed_over_as_goes_with_the_message(on: LedgerAtHand) -> None:
    take(on)
    on.apply(Decision(None, (DropCopy(on.copies[M]),)))
    assert on.handed(M) is None
    assert on.handed_as(DATABASE, THEIRS) == []


# Who the peer is


def greeting(database: DatabaseId = DATABASE, sequence: int = 10) -> Greeting:
    return Greeting(PEER, replace(lineage(C, sequence), database_id=database), None, 1)


def test_a_peer_is_remembered_as_it_introduced_itself(on: LedgerAtHand) -> None:
    on.apply(hops.met(on, greeting()))
    assert on.hop_peer(PEER) == HopPeer(PEER, lineage(C))
    assert hops.introduce(on, PEER) == Greeting(A, on.lineage, lineage(C).incarnation, 1)


def test_the_peers_mark_is_remembered_while_it_runs_on(on: LedgerAtHand) -> None:
    on.apply(hops.met(on, greeting()))
    on.apply(hops.heard(on, PEER, replace(lineage(C).mark, sequence=12)))
    on.apply(hops.heard(on, PEER, replace(lineage(C).mark, sequence=11)))
    on.apply(hops.heard(on, PEER, replace(lineage(B).mark, sequence=99)))
    found = on.hop_peer(PEER)
    assert found
    assert found.lineage == lineage(C, 12)


def test_what_a_replaced_database_handed_over_is_told_to_nobody(on: LedgerAtHand) -> None:
    on.apply(hops.met(on, greeting()))
    take(on)
    deliver(on, 1)
    other = DatabaseId("another")
    successor = replace(greeting(), lineage=replace(lineage(B), database_id=other))
    on.apply(hops.met(on, successor))
    assert told(on) == []
    deliver(on, 2)
    assert on.told == []
    late = hops.met(on, greeting())  # a greeting of the former one, read late
    assert late.writes == ()


def test_a_peer_that_was_put_back_is_told_what_waits(on: LedgerAtHand) -> None:
    on.apply(hops.met(on, greeting(sequence=20)))
    take(on)
    deliver(on, 1)
    back = replace(lineage(B), database_id=DATABASE)
    on.apply(hops.met(on, Greeting(PEER, back, None, 1)))
    assert told(on) == [(THEIRS, "relayed", (3,))]
    assert hops.asked(on, Greeting(PEER, back, None, 1), Query(200), NOW).lines


def test_a_peer_fetches_the_events_of_its_database_and_forgets_what_it_applied(on: LedgerAtHand) -> None:
    on.apply(hops.met(on, greeting()))
    verdict = Verdict(M, 1, VerdictKind.DELIVERED, "", (1,))
    on.apply(Decision(None, (DiscardEvent(DB[B], verdict, NOW), DiscardEvent(DATABASE, verdict, NOW))))
    said = hops.asked(on, greeting(), Query(200), NOW)
    assert [line.event for line in said.lines] == [2]
    assert hops.asked(on, greeting(), Query(0), NOW).lines == ()
    after = replace(on.lineage.mark, sequence=2)
    assert hops.asked(on, greeting(), Query(200, after=after), NOW).lines == ()
    assert [event.addressee for event in on.told] == [DB[B]]


def test_a_process_that_has_a_successor_gets_and_acknowledges_nothing(on: LedgerAtHand) -> None:
    on.apply(hops.met(on, greeting()))
    take(on)
    deliver(on, 1)
    later = replace(greeting(), lineage=replace(lineage(B), database_id=DATABASE))
    on.apply(hops.met(on, later))
    old = Query(200, after=replace(on.lineage.mark, sequence=99))
    assert hops.asked(on, greeting(), old, NOW).lines == ()
    assert len(told(on)) == 1
