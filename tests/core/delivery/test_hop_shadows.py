"""The shadow queue of a hop: what enters, what leaves, and what is sent again when the hop fails."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from ledger_at_hand import DB, NOW, A, B, LedgerAtHand, M, ledger_of, lineage, message, steps

from shadowrelay.core.decisions import (
    Content,
    DamagedRow,
    Decision,
    DropDamaged,
    HopShadow,
    Verdict,
    VerdictKind,
)
from shadowrelay.core.delivery.hop_shadows import (
    Tracker,
    again_id,
    discarded,
    given_up,
    loss_of,
    send_again,
    to_send_again,
)
from shadowrelay.core.delivery.settling import AttemptResult, Ending, Hop, settle
from shadowrelay.core.hops import Handed, HopPeer
from shadowrelay.core.identifiers import (
    Beginning,
    DatabaseId,
    Incarnation,
    Lineage,
    Mark,
    MessageId,
    NextHop,
    ServerName,
)
from shadowrelay.core.members.conversation import MAX_LINES, Answered, Line, Query
from shadowrelay.core.members.hop_discards import ask, told
from shadowrelay.core.members.questions import Speaker, learn
from shadowrelay.core.messages import Copy, Reason, Recipient, Stage, Status
from shadowrelay.core.ownership.transfer import yields
from shadowrelay.core.policy import Policy
from shadowrelay.core.reception.holding import OfferAnswer, ShadowCopyOffer, hold
from shadowrelay.core.safety_net.expiry import expire
from shadowrelay.core.tracking import HopDiscard, SentAgain
from shadowrelay.delivery.hop_talk import poll

EDGE = ServerName("edge.example.net")
DATABASE, OTHER = DatabaseId("6f0d7a3e-0000-4000-8000-0000000000e1"), DatabaseId("e2")
RUN, NEXT_RUN = Incarnation("e" * 16), Incarnation("f" * 16)
BY = Tracker(EDGE, DATABASE, Mark(RUN, 12))
SERVER = "edge.example.net:25"


def peer(database: DatabaseId = DATABASE, *runs: tuple[Incarnation, int], sequence: int = 12) -> HopPeer:
    beginnings = tuple(Beginning(run, began) for run, began in runs or ((RUN, 0),))
    return HopPeer(EDGE, Lineage(database, beginnings, sequence))


def on(known: HopPeer | None = None, *copies: Copy, **changes: Any) -> LedgerAtHand:
    ledger = ledger_of(A, *(copies or (message(**changes),)))
    ledger.apply(Decision(None, (known or peer(),)))
    return ledger


def took(ledger: LedgerAtHand, *numbers: int, by: Tracker | None = BY, message_id: MessageId = M) -> None:
    """The hop answers 250 to these recipients."""
    results = [AttemptResult(number, Ending.ACCEPTED, "250 2.0.0 ok") for number in numbers]
    hop = Hop(SERVER, inside=False, mailbox=False, tracks=by)
    ledger.apply(settle(ledger, message_id, results, (), hop, NOW))


def delivered(ledger: LedgerAtHand, *numbers: int, database: DatabaseId = DATABASE) -> None:
    verdict = Verdict(M, 1, VerdictKind.DELIVERED, "relayed", numbers)
    ledger.apply(discarded(ledger, EDGE, database, verdict, NOW))


def again(
    ledger: LedgerAtHand, failed: Reason | None = None, *ways: str, unsound: tuple[str, ...] = ()
) -> int:
    rows, _ = ledger.hop_shadows(EDGE)
    made = send_again(
        ledger, rows, failed, [NextHop(way) for way in ways], [MessageId(one) for one in unsound], NOW
    )
    return len(made)


def made(ledger: LedgerAtHand) -> Copy:
    (found,) = [copy for copy in ledger.copies.values() if copy.id != M]
    return found


# What enters.


def test_what_a_hop_takes_and_tracks_is_settled_and_enters_its_shadow_queue() -> None:
    ledger = on()
    took(ledger, 1, 2)
    assert [one.status for one in ledger.copies[M].recipients] == [Status.RELAYED] * 2
    assert ledger.copies[M].stage is Stage.SAFETY_NET
    assert ledger.hop_shadow(M, EDGE) == HopShadow(M, EDGE, DATABASE, Mark(RUN, 12), (1, 2), NOW)


def test_a_hop_that_does_not_track_has_no_shadow_queue() -> None:
    ledger = on()
    took(ledger, 1, 2, by=None)
    assert not ledger.hop_shadows_of(M)


@pytest.mark.parametrize("ending", [Ending.REJECTED, Ending.DEFERRED, Ending.IN_DOUBT, Ending.EXPIRED])
def test_only_recipients_that_the_hop_took_enter(ending: Ending) -> None:
    ledger = on()
    results = [AttemptResult(1, ending, "x"), AttemptResult(2, Ending.ACCEPTED, "250 ok")]
    hop = Hop(SERVER, inside=False, mailbox=False, tracks=BY)
    ledger.apply(settle(ledger, M, results, (), hop, NOW))
    found = ledger.hop_shadow(M, EDGE)
    assert found
    assert found.recipients == (2,)


def test_what_the_hop_takes_later_joins_what_it_took_before_under_the_later_mark() -> None:
    ledger = on()
    took(ledger, 2)
    took(ledger, 1, by=replace(BY, mark=Mark(RUN, 15)))
    assert ledger.hop_shadow(M, EDGE) == HopShadow(M, EDGE, DATABASE, Mark(RUN, 15), (1, 2), NOW)


def test_what_joins_what_the_hop_has_lost_is_sent_again_with_it() -> None:
    ledger = on()
    took(ledger, 2)
    ledger.apply(Decision(None, (peer(OTHER, (NEXT_RUN, 0)),)))
    took(ledger, 1, by=Tracker(EDGE, OTHER, Mark(NEXT_RUN, 3)))
    assert again(ledger) == 1
    assert [one.number for one in made(ledger).recipients] == [1, 2]


# What leaves.


def test_what_the_hop_has_delivered_leaves_recipient_by_recipient() -> None:
    ledger = on()
    took(ledger, 1, 2)
    delivered(ledger, 2)
    found = ledger.hop_shadow(M, EDGE)
    assert found
    assert found.recipients == (1,)
    delivered(ledger, 1)
    assert ledger.hop_shadow(M, EDGE) is None
    rows = [event for event in ledger.events if isinstance(event, HopDiscard)]
    assert [[one.number for one in row.recipients] for row in rows] == [[2], [1]]
    assert {row.reason for row in rows} == {"ExplicitlyDiscarded"}


def test_hearing_it_twice_changes_nothing() -> None:
    ledger = on()
    took(ledger, 1, 2)
    delivered(ledger, 2)
    before = len(ledger.events)
    delivered(ledger, 2)
    delivered(ledger, 7)
    assert len(ledger.events) == before


def test_a_notification_that_names_no_recipient_discards_nothing() -> None:
    ledger = on()
    took(ledger, 1)
    delivered(ledger)
    assert ledger.hop_shadow(M, EDGE)


def test_another_database_of_the_hop_cannot_say_that_this_one_delivered() -> None:
    ledger = on()
    took(ledger, 1)
    delivered(ledger, 1, database=OTHER)
    assert ledger.hop_shadow(M, EDGE)


def test_an_answer_is_applied_with_how_far_it_goes_before_the_next_query_acknowledges_it() -> None:
    ledger = on()
    took(ledger, 1, 2)
    assert ask(ledger, EDGE).after is None
    lines = tuple(
        Line(event, Verdict(M, 1, VerdictKind.DELIVERED, "relayed", (event - 4,))) for event in (5, 6)
    )
    assert told(ledger, EDGE, Answered(lines, Mark(RUN, 20)), NOW) == 0
    assert not ledger.hop_shadows_of(M)
    assert ask(ledger, EDGE).after == Mark(RUN, 6)


def test_after_the_last_events_the_hop_is_asked_once_more_only_to_hear_that_it_may_forget_them() -> None:
    """Found by exploring: with nothing left in its shadow queue there is no reason to talk to the hop."""
    ledger = on()
    took(ledger, 1)
    line = Line(5, Verdict(M, 1, VerdictKind.DELIVERED, "relayed", (1,)))
    most = told(ledger, EDGE, Answered((line,), Mark(RUN, 20)), NOW)
    assert most is not None
    assert ask(ledger, EDGE, most) == Query(0, after=Mark(RUN, 5))
    assert told(ledger, EDGE, Answered((), Mark(RUN, 20)), NOW) is None


def test_an_event_that_comes_before_the_250_is_written_down_comes_again() -> None:
    """Found by exploring: the hop delivered at once, and told so in another session."""
    ledger = on()
    lines = [Line(5, Verdict(M, 1, VerdictKind.DELIVERED, "relayed", (2,)))]
    assert told(ledger, EDGE, Answered(tuple(lines), Mark(RUN, 20)), NOW) is None
    assert ask(ledger, EDGE).after is None
    took(ledger, 1, 2)
    lines.append(Line(6, Verdict(M, 1, VerdictKind.DELIVERED, "relayed", (1,))))
    told(ledger, EDGE, Answered(tuple(lines), Mark(RUN, 20)), NOW)
    assert not ledger.hop_shadows_of(M)
    assert ask(ledger, EDGE).after == Mark(RUN, 6)


def test_events_before_one_that_came_too_early_are_forgotten_and_those_after_it_count() -> None:
    ledger = on()
    took(ledger, 1)
    events = ((5, (1,), M), (6, (2,), M), (7, (1,), MessageId("01900000-0000-7000-8000-0000000000ff")))
    lines = tuple(
        Line(event, Verdict(of, 1, VerdictKind.DELIVERED, "relayed", numbers))
        for event, numbers, of in events
    )
    assert told(ledger, EDGE, Answered(lines, Mark(RUN, 20)), NOW) == 0
    assert not ledger.hop_shadows_of(M)
    assert ask(ledger, EDGE).after == Mark(RUN, 5)


def test_the_answer_of_a_process_that_has_a_successor_counts_for_nothing() -> None:
    ledger = on()
    took(ledger, 1)
    line = Line(5, Verdict(M, 1, VerdictKind.DELIVERED, "relayed", (1,)))
    ledger.apply(Decision(None, (peer(DATABASE, (RUN, 0), (NEXT_RUN, 13), sequence=13),)))
    told(ledger, EDGE, Answered((line,), Mark(RUN, 20)), NOW)
    assert ledger.hop_shadow(M, EDGE)
    assert ask(ledger, EDGE).after is None


def test_an_event_about_a_message_that_stays_in_doubt_does_not_hold_up_whole_pages_of_others() -> None:
    ledger = on()
    others = (MessageId(f"01900000-0000-7000-8000-{number:012x}") for number in range(1000, 2000))
    ids = [M, *(one for one, _ in zip(others, range(MAX_LINES - 1), strict=False))]
    lines = tuple(
        Line(event, Verdict(of, 1, VerdictKind.DELIVERED, "relayed", (1,))) for event, of in enumerate(ids, 5)
    )
    assert told(ledger, EDGE, Answered(lines[:-1], Mark(RUN, 20)), NOW) is None
    assert told(ledger, EDGE, Answered(lines, Mark(RUN, 20)), NOW) == MAX_LINES
    assert ask(ledger, EDGE).after == Mark(RUN, 4 + MAX_LINES)


# Rows of the message that cannot be believed.


def restored(ledger: LedgerAtHand, *settled: int) -> None:
    """B gives its good copy in place of rows that cannot be believed."""
    plain = message()
    assert plain.digests
    there = tuple(
        replace(one, status=Status.RELAYED) if one.number in settled else one for one in plain.recipients
    )
    offer = ShadowCopyOffer(
        message_id=M,
        epoch=1,
        rank=1,
        owner=B,
        owner_database=DB[B],
        mark=lineage(B).mark,
        received_at=NOW,
        envelope=plain.envelope,
        recipients=there,
        digests=plain.digests,
        given_for=A,
    )
    assert ledger.apply(hold(ledger, offer, Content(data=b"x"), Policy(), NOW)) is OfferAnswer.QUEUED


def damaged(*settled: int) -> LedgerAtHand:
    """A message whose rows cannot be believed, of which a hop has those recipients. A peer handed it over."""
    ledger = on()
    ledger.apply(
        Decision(None, (Handed(M, ServerName("mx.example.org"), OTHER, MessageId("theirs"), (7, 8)),))
    )
    for number in settled:
        took(ledger, number)
    del ledger.copies[M]
    ledger.state.events.clear()
    ledger.rows[M] = DamagedRow(M, NOW, "a sum differs", tuple((one, Status.RELAYED) for one in settled))
    return ledger


def test_a_good_copy_in_place_of_damaged_rows_leaves_what_hops_have_of_it() -> None:
    ledger = damaged(1)
    restored(ledger)
    assert ledger.hop_shadow(M, EDGE)
    ledger.apply(Decision(None, (peer(OTHER, (NEXT_RUN, 0)),)))
    assert again(ledger) == 1
    assert [one.number for one in made(ledger).recipients] == [1]


def test_who_handed_a_message_over_is_told_when_a_good_copy_replaces_damaged_rows() -> None:
    ledger = damaged(1)
    restored(ledger, 2)
    (told,) = [event for event in ledger.told if event.addressee == OTHER]
    assert (told.verdict.message_id, told.verdict.recipients) == ("theirs", (7, 8))


def test_damaged_rows_that_are_dropped_leave_nothing() -> None:
    ledger = damaged(1)
    ledger.apply(Decision(None, (DropDamaged(M),)))
    assert not ledger.hop_shadows_of(M)
    assert ledger.handed(M) is None


def test_what_a_hop_takes_while_rows_become_damaged_enters_its_queue_and_the_giver_hears_nothing() -> None:
    ledger = damaged()
    results = [AttemptResult(1, Ending.ACCEPTED, "250 2.0.0 ok")]
    hop = Hop(SERVER, inside=False, mailbox=False, tracks=BY)
    ledger.apply(settle(ledger, M, results, (), hop, NOW, sent=message()))
    assert ledger.rows[M].settled == ((1, Status.RELAYED),)
    assert ledger.hop_shadow(M, EDGE) == HopShadow(M, EDGE, DATABASE, BY.mark, (1,), NOW)
    assert not ledger.told
    restored(ledger)
    assert [event.verdict.recipients for event in ledger.told if event.addressee == OTHER] == [(7,)]


# Age.


def test_safety_net_keeps_what_a_hop_has_not_delivered_yet() -> None:
    policy, ledger = Policy(), on()
    took(ledger, 1, 2)
    later = NOW + policy.safety_net_hold_time
    assert not ledger.apply(expire(ledger, ledger.copies[M], policy, later, ()))
    delivered(ledger, 1, 2)
    assert ledger.apply(expire(ledger, ledger.copies[M], policy, later, ()))


def test_what_no_hop_delivers_is_discarded_by_age_and_that_is_logged() -> None:
    policy, ledger = Policy(), on()
    took(ledger, 1, 2)
    old = NOW + policy.safety_net_hold_time + policy.message_expiration_timeout
    assert not ledger.apply(given_up(ledger, M, policy, old - timedelta(seconds=1)))
    assert ledger.hop_shadow(M, EDGE)
    assert ledger.apply(given_up(ledger, M, policy, old))
    assert ledger.hop_shadow(M, EDGE) is None
    assert [(event.event_id, event.reason) for event in ledger.events[-1:]] == [("HADISCARD", "Expired")]


def superseded() -> tuple[LedgerAtHand, Verdict]:
    """A hop has recipient 1. Then B took the message over, and says that our shadow copy is not needed."""
    ledger = on()
    took(ledger, 1)
    ledger.apply(yields(ledger, ledger.copies[M], B, DB[B], 2, NOW))
    rank = ledger.copies[M].rank
    return ledger, Verdict(M, 2, VerdictKind.SUPERSEDED, str(rank))


def test_a_former_owner_keeps_its_copy_until_no_hop_has_anything_of_the_message() -> None:
    ledger, needless = superseded()
    speaker = Speaker(B, DB[B], lineage(B).mark)
    ledger.apply(learn(ledger, needless, speaker, None, Policy(), NOW))
    assert ledger.copies[M].check_at is None  # nothing to ask until the hop has spoken
    assert [one.number for one in ledger.copies[M].unsettled] == [2]  # B says what becomes of it
    delivered(ledger, 1)
    assert ledger.copies[M].check_at == NOW
    ledger.apply(learn(ledger, needless, speaker, None, Policy(), NOW))
    assert M not in ledger.copies


def test_what_a_former_owner_gave_to_a_hop_that_loses_it_is_sent_again() -> None:
    ledger, needless = superseded()
    ledger.apply(learn(ledger, needless, Speaker(B, DB[B], lineage(B).mark), None, Policy(), NOW))
    ledger.apply(Decision(None, (peer(OTHER, (NEXT_RUN, 0)),)))
    assert again(ledger) == 1
    assert [one.number for one in made(ledger).recipients] == [1]


def test_a_shadow_copy_that_a_hop_needs_outlasts_its_age() -> None:
    policy = Policy()
    ledger, _ = superseded()
    old = NOW + policy.safety_net_hold_time + policy.message_expiration_timeout
    assert not ledger.apply(expire(ledger, ledger.copies[M], policy, old, ()))
    assert M in ledger.copies
    delivered(ledger, 1)
    assert ledger.apply(expire(ledger, ledger.copies[M], policy, old, ()))


def test_of_a_message_that_two_hops_have_the_older_row_goes_by_age_alone() -> None:
    policy, ledger = Policy(), on()
    took(ledger, 1)
    other = HopShadow(M, ServerName("hub.example.net"), OTHER, BY.mark, (2,), NOW + timedelta(hours=1))
    ledger.apply(Decision(None, (other,)))
    old = NOW + policy.safety_net_hold_time + policy.message_expiration_timeout
    assert ledger.apply(given_up(ledger, M, policy, old))
    assert list(ledger.hop_shadows_of(M)) == [other]
    assert not ledger.apply(given_up(ledger, M, policy, old))


# What is sent again.


def test_a_hop_with_the_database_that_we_know_has_lost_nothing() -> None:
    ledger = on()
    took(ledger, 1, 2)
    reopened = peer(DATABASE, (RUN, 0), (NEXT_RUN, 12), sequence=30)
    ledger.apply(Decision(None, (reopened,)))
    assert again(ledger, None, "h") == 0
    assert ledger.hop_shadow(M, EDGE)


@pytest.mark.parametrize(
    ("shown", "reason"),
    [
        (peer(OTHER, (NEXT_RUN, 0)), Reason.DATABASE_REPLACED),
        # It went back to before our message, and ran on from there.
        (peer(DATABASE, (RUN, 0), (NEXT_RUN, 11), sequence=40), Reason.DATABASE_ROLLED_BACK),
    ],
)
def test_a_hop_that_is_back_with_another_state_gets_everything_again(shown: HopPeer, reason: Reason) -> None:
    ledger = on()
    took(ledger, 1, 2)
    ledger.apply(Decision(None, (shown,)))
    assert again(ledger) == 1
    new = made(ledger)
    assert (new.owned, new.content_of, new.epoch) == (True, M, 1)
    assert [one.status for one in ledger.copies[M].recipients] == [Status.RELAYED] * 2
    assert ledger.hop_shadow(M, EDGE) is None
    (event,) = [one for one in ledger.events if isinstance(one, SentAgain)]
    assert (event.reason, event.original, event.hop) == (reason, M, EDGE)
    assert again(ledger) == 0


def test_a_silent_hop_is_passed_by_on_another_way_without_what_it_has_delivered() -> None:
    ledger = on()
    took(ledger, 1, 2)
    delivered(ledger, 1)
    assert again(ledger, Reason.HEARTBEAT_LOST, "h") == 1
    assert [one.address for one in made(ledger).recipients] == ["y@example.net"]


def test_a_silent_hop_is_waited_for_if_there_is_no_other_way() -> None:
    ledger = on()
    took(ledger, 1, 2)
    assert again(ledger, Reason.HEARTBEAT_LOST) == 0
    assert ledger.hop_shadow(M, EDGE)


def test_of_several_next_hops_only_those_with_another_way_go_again() -> None:
    recipients = (
        Recipient(1, "x@example.net", NextHop("h")),
        Recipient(2, "y@example.com", NextHop("other")),
    )
    ledger = on(recipients=recipients)
    took(ledger, 1, 2)
    assert again(ledger, Reason.HEARTBEAT_LOST, "other") == 1
    assert [one.number for one in made(ledger).recipients] == [2]
    left = ledger.hop_shadow(M, EDGE)
    assert left
    assert left.recipients == (1,)


def test_a_working_hop_keeps_what_it_has() -> None:
    ledger = on()
    took(ledger, 1)
    assert again(ledger, None, "h") == 0


class Unread(LedgerAtHand):
    """A ledger whose copies nobody may read."""

    def copy(self, message_id: MessageId) -> Copy | None:
        raise AssertionError(f"{message_id} is read")


def test_a_look_at_the_queue_of_a_working_hop_reads_no_copy() -> None:
    ledger = Unread(A, [message()])
    row = HopShadow(M, EDGE, DATABASE, BY.mark, (1,), NOW)
    ledger.apply(Decision(None, (peer(), row)))
    assert to_send_again(ledger, row, None, ()) is None
    assert to_send_again(ledger, row, Reason.HEARTBEAT_LOST, ()) is None  # nor if there is no other way
    with pytest.raises(AssertionError, match="is read"):
        to_send_again(ledger, row, Reason.HEARTBEAT_LOST, [NextHop("h")])


def test_a_hop_that_answers_without_end_is_heard_again_in_another_talk() -> None:
    ledger, asked = on(), 0
    took(ledger, 1)

    def answer(step: Any) -> Answered:
        nonlocal asked
        asked += 1
        return Answered((Line(4 + asked, Verdict(M, 1, VerdictKind.DELIVERED, "", (1,))),), Mark(RUN, 20))

    *_, result = steps(poll(EDGE, lambda: NOW, lambda: asked >= 3), ledger, answer)
    assert (result, asked) == (None, 3)


def test_a_content_that_is_not_good_goes_nowhere() -> None:
    ledger = on()
    took(ledger, 1, 2)
    assert again(ledger, Reason.HEARTBEAT_LOST, "h", unsound=(M,)) == 0
    assert ledger.hop_shadow(M, EDGE)


def test_the_same_mail_on_another_way_keeps_the_reports_that_its_sender_asked_for() -> None:
    recipients = (
        Recipient(1, "x@example.net", NextHop("h"), ("SUCCESS", "FAILURE"), "rfc822;x@example.net"),
    )
    ledger = on(recipients=recipients)
    took(ledger, 1)
    again(ledger, Reason.HEARTBEAT_LOST, "h")
    (one,) = made(ledger).recipients
    assert (one.notify, one.orcpt, one.attempts) == (("SUCCESS", "FAILURE"), "rfc822;x@example.net", 0)
    assert made(ledger).envelope == ledger.copies[M].envelope


def test_other_recipients_of_a_message_become_another_message() -> None:
    row = HopShadow(M, EDGE, DATABASE, Mark(RUN, 12), (1, 2), NOW)
    one, two = message().recipients
    assert again_id(row, (one,)) == again_id(row, (one,))
    assert len({again_id(row, (one,)), again_id(row, (two,)), again_id(row, (one, two))}) == 3
    assert again_id(replace(row, database_id=OTHER), (one,)) != again_id(row, (one,))


def test_a_lineage_that_does_not_reach_back_proves_no_loss() -> None:
    row = HopShadow(M, EDGE, DATABASE, Mark(RUN, 12), (1,), NOW)
    assert loss_of(row, peer(DATABASE, (NEXT_RUN, 20), sequence=30)) is None
    assert loss_of(row, None) is None
