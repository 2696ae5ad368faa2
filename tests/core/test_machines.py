"""Members on one machine fail together: what a copy beside its owner counts for, wherever one counts."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from decision_inputs import SPEAKER
from ledger_at_hand import DB, NOW, RUN, A, B, C, LedgerAtHand, M, ledger_of, lineage, message

from shadowrelay.core.decisions import Member, Verdict, VerdictKind
from shadowrelay.core.events import side_effects
from shadowrelay.core.events.discard_notices import delivered
from shadowrelay.core.events.reports import ReportKind, report_id
from shadowrelay.core.identifiers import Mark, MessageId, ServerName
from shadowrelay.core.members.answers import answer
from shadowrelay.core.members.claims import Claim, judge
from shadowrelay.core.members.questions import as_holder, learn
from shadowrelay.core.messages import Holder, HolderState, Reason, Role, Status
from shadowrelay.core.ownership import heartbeat
from shadowrelay.core.ownership.handover import hand_over
from shadowrelay.core.ownership.transfer import intend, promote, yields
from shadowrelay.core.policy import Policy
from shadowrelay.core.reception.holding import settle_held
from shadowrelay.core.reception.redundancy import Leg, OfferAttempt, repaired
from shadowrelay.core.safety_net.expiry import expire

POLICY = Policy()
RACKS = {A: "rack1", B: "rack1", C: "rack2"}
"""A and B on one machine, C on another."""


def on(name: ServerName, *copies: object) -> LedgerAtHand:
    made = ledger_of(name, *copies)  # type: ignore[arg-type]
    made.hosts = dict(RACKS)
    return made


def holder(name: ServerName, state: HolderState = HolderState.HOLDING, rank: int = 1) -> Holder:
    return Holder(name, DB[name], Mark(RUN[name], 10), rank, state)


def states(of: LedgerAtHand) -> dict[ServerName, HolderState]:
    return {one.name: one.state for one in of.copies[M].holders}


def told(of: LedgerAtHand) -> list[tuple[str, VerdictKind]]:
    return [(event.addressee, event.verdict.kind) for event in of.told]


BESIDE = message(holders=(holder(B, HolderState.BESIDE),), ranks_given=1)
"""A owns it, and B on the same machine has the only copy."""


def test_a_promotion_leaves_the_message_exposed_when_its_other_holder_is_on_the_same_machine() -> None:
    """C, their owner, is lost; of its holders A and B the first promotes."""
    held = message(Role.SHADOW, owner=C, owner_database=DB[C], offered_in=RUN[C])
    a, b = on(A, held), on(B, replace(held, rank=2))
    a.apply(intend(a.copies[M], Reason.DATABASE_REPLACED, NOW))
    claim = Claim(C, DB[C], Reason.DATABASE_REPLACED)
    (said,) = b.apply(judge(b, SPEAKER[A], claim, M, 1, 1, (), NOW))
    a.apply(learn(a, said, SPEAKER[B], None, POLICY, NOW))
    a.apply(promote(a, a.copies[M], NOW))
    assert states(a) == {B: HolderState.BESIDE}
    assert a.copies[M].exposed
    redirect = next(event for event in a.events if event.event_id == "HAREDIRECT").columns()
    assert "S:Host=rack1;S:ShadowHost=rack1" in redirect["custom-data"]


def test_a_copy_beside_its_owner_is_kept_until_there_is_one_elsewhere_and_superseded_then() -> None:
    a = on(A, BESIDE)
    taken = OfferAttempt(C, Leg.ACKNOWLEDGED, 2, "250 2.0.0", DB[C], Mark(RUN[C], 10))
    assert a.apply(repaired(a, M, taken, NOW))
    assert states(a) == {B: HolderState.SUPERSEDED, C: HolderState.HOLDING}
    assert told(a) == [(DB[B], VerdictKind.SUPERSEDED)]
    assert not a.copies[M].exposed


@pytest.mark.parametrize(
    ("asker", "state", "exposed", "gone"),
    [(B, HolderState.BESIDE, True, []), (C, HolderState.HOLDING, False, [(DB[B], VerdictKind.SUPERSEDED)])],
)
def test_a_holder_that_asks_is_recorded_as_what_its_machine_makes_of_it(
    asker: ServerName, state: HolderState, exposed: object, gone: list[tuple[str, VerdictKind]]
) -> None:
    before = BESIDE if asker == C else message()
    a = on(A, before)
    said = a.apply(answer(a, SPEAKER[asker], M, 1, None, NOW))
    assert [verdict.kind for verdict in said] == [VerdictKind.RECORDED]
    assert states(a)[asker] is state
    assert a.copies[M].exposed is exposed
    assert told(a) == gone
    assert [event.columns()["event-id"] for event in a.events] == ["HAREDIRECT"]


def test_a_holder_beside_us_that_is_asked_is_none_either() -> None:
    a = on(A, message(holders=(holder(B, HolderState.UNCERTAIN),), ranks_given=1))
    a.apply(learn(a, Verdict(M, 1, VerdictKind.YOURS), SPEAKER[B], None, POLICY, NOW))
    assert states(a) == {B: HolderState.BESIDE}
    assert as_holder(a, SPEAKER[C], 1).state is HolderState.HOLDING


def test_a_former_owner_beside_the_new_one_is_its_holder_and_no_second_copy() -> None:
    """A comes back and yields to B, which took its messages over."""
    a = on(A, message())
    a.apply(yields(a, a.copies[M], B, DB[B], 2, NOW))
    received = a.events[-1].columns()
    assert (received["event-id"], received["source-context"]) == ("HARECEIVE", "taken")
    assert "S:Host=rack1;S:OwnerHost=rack1" in received["custom-data"]
    b = on(B, message(epoch=2, owner=B, owner_database=DB[B]))
    b.apply(answer(b, SPEAKER[A], M, 2, None, NOW))
    assert states(b) == {A: HolderState.BESIDE}
    assert b.copies[M].exposed


def test_a_queue_is_handed_over_only_to_who_has_a_copy_on_another_machine() -> None:
    a = on(A, BESIDE)
    assert a.apply(hand_over(a, a.copies[M], [B, C], NOW)) is None
    both = replace(BESIDE, holders=(*BESIDE.holders, holder(C, rank=2)))
    a = on(A, both)
    assert a.apply(hand_over(a, a.copies[M], [B, C], NOW)) == C


def test_a_copy_beside_us_counts_for_none_whether_its_holder_is_away_or_back() -> None:
    a = on(A, BESIDE)
    heartbeat.lose_holder(a, B)
    assert a.copies[M].exposed
    heartbeat.meet(a, B, lineage(B), None, NOW, after_silence=True)
    assert (states(a), a.copies[M].exposed) == ({B: HolderState.BESIDE}, True)


# A report settles a recipient once it is safe itself.

DSN = report_id(M, 1, ReportKind.FAILED)


def reporting() -> LedgerAtHand:
    """A made a report about the first recipient, which waits for it."""
    original = message(holders=(holder(C),), ranks_given=1)
    first, second = original.recipients
    waiting = replace(original, recipients=(replace(first, status=Status.FAILED, report=DSN), second))
    return on(A, waiting, message(id=DSN, reports_on=M))


def waits(of: LedgerAtHand) -> bool:
    return of.copies[M].recipients[0].report is not None


@pytest.mark.parametrize(("owner", "waiting"), [(B, True), (C, False)])
def test_a_report_that_another_node_owns_is_safe_only_if_that_is_another_machine(
    owner: ServerName, waiting: object
) -> None:
    a = reporting()
    a.apply(yields(a, a.copies[DSN], owner, DB[owner], 2, NOW))
    assert waits(a) is waiting
    assert side_effects.already_safe(a, DSN) is not waiting
    a.apply(side_effects.waited_in_vain(a, a.copies[M], NOW))
    assert waits(a) is waiting
    about_it = [event for event in a.told if event.verdict.message_id == M]
    assert bool(about_it) is not waiting


def test_a_report_beside_its_owner_is_safe_once_it_is_settled() -> None:
    a = reporting()
    a.apply(yields(a, a.copies[DSN], B, DB[B], 2, NOW))
    held = a.copies[DSN]
    settled = tuple(replace(one, status=Status.RELAYED) for one in held.recipients)
    a.apply(settle_held(a, held, settled, DB[B], Mark(RUN[B], 9), NOW + timedelta(minutes=1)))
    assert not waits(a)
    assert delivered(a.copies[M], a.copies[M].recipients)


@pytest.mark.parametrize("gone", ["superseded", "expired"])
def test_a_wait_for_a_report_beside_its_owner_ends_with_the_copy(gone: str) -> None:
    """Superseded: its owner has another one elsewhere. Expired: nobody will say any more."""
    a = reporting()
    a.apply(yields(a, a.copies[DSN], B, DB[B], 2, NOW))
    if gone == "superseded":
        a.apply(learn(a, Verdict(DSN, 2, VerdictKind.SUPERSEDED, "1"), SPEAKER[B], None, POLICY, NOW))
    else:
        late = NOW + timedelta(days=30)
        assert a.apply(expire(a, a.copies[DSN], POLICY, late, ()))
    assert DSN not in a.copies
    assert not waits(a)


def test_a_copy_beside_its_owner_makes_no_report_safe() -> None:
    a = reporting()
    a.apply(answer(a, SPEAKER[B], DSN, 1, None, NOW))
    assert side_effects.already_safe(a, DSN) is False
    taken = OfferAttempt(C, Leg.ACKNOWLEDGED, 2, "250 2.0.0", DB[C], Mark(RUN[C], 10))
    a.apply(repaired(a, DSN, taken, NOW))
    assert (waits(a), side_effects.already_safe(a, DSN)) == (False, True)


def test_where_machines_are_not_known_each_member_counts_as_one() -> None:
    a = on(A, message())
    a.hosts.clear()
    assert as_holder(a, SPEAKER[B], 1).state is HolderState.HOLDING
    assert a.known[B] == Member(B, lineage(B))
    assert MessageId(DSN) not in a.copies
