"""What is done to very many messages part by part comes to the same as at once; meanwhile nothing is said."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest
from ledger_at_hand import DB, NOW, RUN, A, B, C, LedgerAtHand, M, ledger_of, lineage, message

from shadowrelay.core.decisions import Chore, ChoreKind, Decision, DiscardEvent, Verdict, VerdictKind
from shadowrelay.core.identifiers import Mark, MessageId
from shadowrelay.core.members.claims import Claim
from shadowrelay.core.members.conversation import Query, Question, asked
from shadowrelay.core.members.questions import Speaker
from shadowrelay.core.messages import Confirmation, Copy, Holder, HolderState, Reason, Role, Stage
from shadowrelay.core.ownership import chores
from shadowrelay.core.policy import Policy

IDS = tuple(MessageId(f"{M[:-2]}{number:02d}") for number in range(20))


def holder(state: HolderState = HolderState.HOLDING) -> Holder:
    return Holder(B, DB[B], Mark(RUN[B], 5), 1, state)


def kept(on: LedgerAtHand) -> list[Copy]:
    return [*on.copies.values(), *on.state.arriving.values()]


def queue() -> LedgerAtHand:
    """Of A: messages of all kinds that a chore is about, in no order."""
    kinds: tuple[Callable[[MessageId], Copy], ...] = (
        lambda id_: message(id=id_, holders=(holder(),)),
        lambda id_: message(id=id_, holders=(holder(HolderState.LOST),)),
        lambda id_: message(id=id_, holders=(holder(),), confirmation=Confirmation.IN_DOUBT),
        lambda id_: message(id=id_, former_owner=B, epoch=2),
        lambda id_: message(Role.SHADOW, id=id_, owner=B, owner_database=DB[B], offered_in=RUN[B]),
        lambda id_: message(Role.SHADOW, id=id_, owner=B, owner_database=DB[B], check_at=NOW - timedelta(1)),
        lambda id_: message(Role.SHADOW, id=id_, owner=C, owner_database=DB[C]),
        lambda id_: message(id=id_, stage=Stage.SAFETY_NET, holders=(holder(),)),
        lambda id_: message(id=id_, stage=Stage.ARRIVING, holders=(holder(HolderState.UNCERTAIN),)),
        lambda id_: message(id=id_, stage=Stage.SET_ASIDE),
    )
    return ledger_of(A, *(kinds[number * 7 % len(kinds)](id_) for number, id_ in enumerate(IDS)))


@pytest.mark.parametrize("work", ChoreKind)
@pytest.mark.parametrize("at_once", [1, 2, 5])
def test_part_by_part_it_comes_to_the_same_as_at_once(work: ChoreKind, at_once: int) -> None:
    whole, parts = queue(), queue()
    if work is ChoreKind.REPLACED:
        for on in (whole, parts):
            on.known[B] = replace(on.known[B], lineage=replace(lineage(B), database_id=DB[C]))
    chores.begin(whole, Chore(work, B, NOW))
    assert not whole.chores
    assert kept(whole) != kept(queue())
    parts.at_once = at_once
    chores.begin(parts, Chore(work, B, NOW))
    rounds = 0
    while parts.chores:
        chores.carry_on(parts)
        rounds += 1
        assert rounds < 100
    assert rounds > 0 or at_once > 1
    assert kept(parts) == kept(whole)
    assert not chores.carry_on(parts)


def test_what_is_begun_again_begins_at_the_front() -> None:
    on = queue()
    on.at_once = 2
    chores.begin(on, Chore(ChoreKind.OPENED, A, NOW))
    chores.carry_on(on)
    chores.begin(on, Chore(ChoreKind.OPENED, A, NOW + timedelta(seconds=1)))
    (left,) = on.chores
    assert left.after == chores_first(on)
    on.at_once = 1000
    chores.begin(on, Chore(ChoreKind.OPENED, A, NOW + timedelta(seconds=2)))
    assert not on.chores


def chores_first(on: LedgerAtHand) -> MessageId:
    transit = {Stage.QUEUED, Stage.ARRIVING}
    return sorted(copy.id for copy in kept(on) if copy.stage in transit)[1]


@pytest.mark.parametrize(
    ("work", "closed", "refuses", "held_back"),
    [
        (ChoreKind.OPENED, True, "all", True),
        (ChoreKind.REPLACED, True, "known", True),
        (ChoreKind.ROLLED_BACK, True, "all", True),
        (ChoreKind.RETURNED, False, "none", True),
        (ChoreKind.REOPENED, False, "none", False),
        (ChoreKind.COUNTED, False, "none", False),
    ],
)
def test_what_a_node_may_say_take_and_send_meanwhile(
    work: ChoreKind, *, closed: bool, refuses: str, held_back: bool
) -> None:
    on = queue()
    assert not chores.closed(on)
    assert not chores.held_back(on)
    on.at_once = 1
    chores.begin(on, Chore(work, B, NOW))
    assert (chores.closed(on), chores.held_back(on)) == (closed, held_back)
    assert chores.refuses(on, IDS[0]) == (refuses != "none")
    assert chores.refuses(on, MessageId("of nobody")) == (refuses == "all")


def test_a_copy_held_for_the_database_that_took_the_place_is_not_promoted() -> None:
    """It came while the others were still being marked."""
    on = ledger_of(A, message(Role.SHADOW, id=IDS[0], owner=B, owner_database=DB[B]),
               message(Role.SHADOW, id=IDS[1], owner=B, owner_database=DB[C]))  # fmt: skip
    on.known[B] = replace(on.known[B], lineage=replace(lineage(B), database_id=DB[C]))
    chores.begin(on, Chore(ChoreKind.REPLACED, B, NOW))
    assert on.copies[IDS[0]].pending is Reason.DATABASE_REPLACED
    assert on.copies[IDS[1]].pending is None


def test_while_a_node_is_opening_every_question_hears_pending_and_events_are_told() -> None:
    on = queue()
    told = DiscardEvent(DB[B], Verdict(IDS[9], 1, VerdictKind.DELIVERED), NOW)
    on.apply(Decision(None, (told,)))
    speaker = Speaker(B, DB[B], Mark(RUN[B], 10))
    query = Query(
        10,
        questions=(Question(IDS[0], 1), Question(MessageId("of nobody"), 1)),
        claim=Claim(C, DB[C], Reason.HEARTBEAT_LOST),
        claimed=(Question(IDS[1], 1, 1),),
    )
    before = kept(on)
    said = asked(on, speaker, query, (), (), Policy(), NOW, closed=True)
    assert [line.verdict.kind for line in said.lines] == [VerdictKind.PENDING] * 3 + [VerdictKind.DELIVERED]
    assert kept(on) == before
    on.at_once = 1
    chores.begin(on, Chore(ChoreKind.OPENED, A, NOW))
    said = asked(on, speaker, query, (), (), Policy(), NOW)
    assert [line.verdict.kind for line in said.lines] == [VerdictKind.PENDING] * 3 + [VerdictKind.DELIVERED]
