"""The ledger in memory and the one on SQLite answer alike, whatever is applied to them."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from shadowrelay.core.decisions import (
    ALL,
    AcknowledgeEvents,
    CheckCopies,
    Chore,
    ChoreDone,
    ChoreKind,
    Content,
    Decision,
    DiscardEvent,
    DropCopy,
    DropEvents,
    Member,
    Outcome,
    Part,
    SaveCopy,
    Tombstone,
    Verdict,
    VerdictKind,
    Write,
)
from shadowrelay.core.digests import of_content, of_envelope
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
from shadowrelay.core.messages import (
    Confirmation,
    Copy,
    Damage,
    Digests,
    Envelope,
    Holder,
    HolderState,
    Reason,
    Recipient,
    Role,
    Stage,
    Status,
)
from shadowrelay.core.policy import Policy
from shadowrelay.core.reckoning import Endings
from shadowrelay.core.tracking import Receive

from .memory_ledger import CheckedLedger, State

NOW = datetime(2030, 1, 1, tzinfo=UTC)
NAMES = [ServerName(name) for name in ("mx1", "mx2", "mx3")]
DATABASES = [DatabaseId(f"0000000{n}-0000-4000-8000-000000000000") for n in range(3)]
CONTENTS = (b"x", b"y")
IDS = [MessageId(f"01900000-0000-7000-8000-{n:012d}") for n in range(6)]


def _copy(draw: random.Random, message_id: MessageId) -> Copy:
    def moment() -> datetime | None:
        return draw.choice((None, NOW + timedelta(seconds=draw.randrange(100))))

    recipients = tuple(
        Recipient(
            number,
            f"user{number}@example.net",
            NextHop(draw.choice(("a", "b"))),
            notify=draw.choice(((), ("NEVER",), ("FAILURE", "DELAY"))),
            status=draw.choice(list(Status)),
            attempts=draw.randrange(3),
            next_attempt=moment(),
            report=draw.choice((None, IDS[0])),
        )
        for number in range(1, 4)
    )
    holders = tuple(
        Holder(
            name,
            database,
            draw.choice((None, Mark(Incarnation("a" * 16), draw.randrange(9)))),
            draw.randrange(3),
            draw.choice(list(HolderState)),
        )
        for name, database in zip(NAMES, DATABASES, strict=True)
        if draw.random() < 0.5
    )
    envelope = Envelope(sender="s@example.org", size=draw.randrange(99), envid=draw.choice((None, "E")))
    return Copy(
        id=message_id,
        epoch=draw.randrange(1, 4),
        rank=draw.randrange(3),
        role=draw.choice(list(Role)),
        stage=draw.choice([stage for stage in Stage if stage not in {Stage.ARRIVING, Stage.DAMAGED}]),
        owner=draw.choice(NAMES),
        owner_database=draw.choice(DATABASES),
        offered_in=Incarnation(draw.choice(("a" * 16, ""))),
        envelope=envelope,
        digests=draw.choice(
            (None, *(Digests(of_content(c), of_envelope(envelope, recipients)) for c in CONTENTS))
        ),
        damage=draw.choice((None, None, *Damage)),
        renewed_at=moment(),
        recipients=recipients,
        holders=holders,
        ranks_given=draw.randrange(4),
        confirmation=draw.choice(list(Confirmation)),
        confirm_since=moment(),
        former_owner=draw.choice((None, *NAMES)),
        check_at=moment(),
        received_at=NOW,
        settled_at=moment(),
        reports_on=draw.choice((None, IDS[1])),
        pending=draw.choice((None, *Reason)),
    )


def _content(draw: random.Random, ledger: CheckedLedger, stored: Copy | None, after: Copy) -> Content | None:
    """Of a new message, or in place of a damaged one: octets, or those of another message."""
    if stored and not (stored.damage and after.damage is None):
        return None
    others = [one for one in IDS if one != after.id and ledger.state.content(one) is not None]
    if others and draw.random() < 0.6:
        return Content(of=draw.choice(others))
    return Content(data=draw.choice(CONTENTS))


def _write(draw: random.Random, ledger: CheckedLedger) -> Write:
    message_id = draw.choice(IDS)
    stored = ledger.copy(message_id)
    match draw.randrange(10):
        case 0 | 1 | 2:
            return SaveCopy(stored, after := _copy(draw, message_id), _content(draw, ledger, stored, after))
        case 3:
            return DropCopy(stored) if stored else Tombstone(message_id, NAMES[0], 1, draw.randrange(3), NOW)
        case 4 | 5:
            verdict = Verdict(
                message_id, 1, draw.choice(list(VerdictKind)), recipients=draw.choice(((), (1, 2)))
            )
            return DiscardEvent(draw.choice(DATABASES), verdict, NOW + timedelta(days=-draw.randrange(4)))
        case 6:
            token = draw.choice([*[entry[0] for entry in ledger.state.incarnations], Incarnation("f" * 16)])
            return AcknowledgeEvents(draw.choice(DATABASES), Mark(token, draw.randrange(30)))
        case 7:
            return draw.choice(
                (DropEvents(draw.choice(DATABASES)), Outcome(message_id, 2, (1, 3), NOW + timedelta(days=1)))
            )
        case 8:
            at = NOW + timedelta(seconds=draw.randrange(100))
            left = Chore(draw.choice(list(ChoreKind)), draw.choice(NAMES), at, draw.randrange(2), message_id)
            return draw.choice(
                (CheckCopies(draw.choice(NAMES), at, draw.choice((None, 1))), left, ChoreDone(left))
            )
        case _:
            lineage = Lineage(draw.choice(DATABASES), (Beginning(Incarnation("b" * 16), 3),), 5)
            knows = draw.choice((None, ledger.lineage.incarnation))
            return Member(
                draw.choice(NAMES[1:]),
                draw.choice((None, lineage)),
                knows,
                draw.choice((None, Mark(Incarnation("b" * 16), 4))),
                replaced=draw.choice((None, Incarnation("e" * 16))),
            )


def _compare_questions(ledger: CheckedLedger) -> None:
    memory = super(CheckedLedger, ledger)
    for name in NAMES:
        for part in (ALL, Part(most=2), Part(IDS[1], 3)):
            assert ledger.copies_held_for(name, part) == memory.copies_held_for(name, part)
            assert ledger.copies_held_by(name, part) == memory.copies_held_by(name, part)
            unclaimed = ledger.copies_held_for(name, part, unclaimed=True)
            assert unclaimed == memory.copies_held_for(name, part, unclaimed=True)
            for counted in (True, False):
                found = ledger.copies_held_by(name, part, counted=counted)
                assert found == memory.copies_held_by(name, part, counted=counted)
            assert ledger.copies_taken_from(name, part) == memory.copies_taken_from(name, part)
            assert ledger.copies_in_doubt(name, part) == memory.copies_in_doubt(name, part)
            assert ledger.in_transit(part) == memory.in_transit(part)
        assert ledger.any_unclaimed(name) == memory.any_unclaimed(name)
        assert ledger.unchecked(name, NOW) == memory.unchecked(name, NOW)
        due = NOW + timedelta(seconds=50)
        assert list(ledger.copies_to_check(name, due, 3)) == list(memory.copies_to_check(name, due, 3))
    assert list(ledger.chores) == list(memory.chores)
    first = MessageId("")
    assert ledger.open_questions(first, 2) == memory.open_questions(first, 2)
    behind = IDS[len(IDS) // 2]
    assert ledger.open_questions(behind, 100) == memory.open_questions(behind, 100)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("seed", range(40))
def test_both_ledgers_answer_alike(seed: int) -> None:
    draw = random.Random(seed)
    ledger = CheckedLedger(NAMES[0], State(DatabaseId("00000009-0000-4000-8000-000000000000")))
    incarnations = iter(f"{number:016x}" for number in range(100))
    ledger.open(Incarnation(next(incarnations)), NOW)
    snapshot = ledger.snapshot()
    for _ in range(60):
        for _ in range(draw.randrange(1, 4)):
            write = _write(draw, ledger)
            events = ()
            if isinstance(write, SaveCopy):
                events = (Receive(at=NOW, copy=write.after),)
            ledger.apply(Decision(None, (write,), events))
        match draw.randrange(10):
            case 0 | 1:
                ledger.rollback()
            case 2:
                ledger.rollback()
                ledger.open(Incarnation(next(incarnations)), NOW)
            case 3:
                ledger.commit()
                snapshot = ledger.snapshot()
            case 4:
                ledger.rollback()
                ledger.restore(snapshot)
                ledger.open(Incarnation(next(incarnations)), NOW)
            case 5:
                ledger.expire(Policy(), Endings(NOW))
                ledger.commit()
            case _:
                ledger.commit()
        ledger.compare()
        ledger.compare_contents()
        _compare_questions(ledger)


def test_event_numbers_that_were_rolled_back_are_given_again() -> None:
    ledger = CheckedLedger(NAMES[0], State(DATABASES[0]))
    ledger.open(Incarnation("0" * 16), NOW)
    event = DiscardEvent(DATABASES[1], Verdict(IDS[0], 1, VerdictKind.DELIVERED), NOW)
    ledger.apply(Decision(None, (event,)))
    ledger.rollback()
    ledger.apply(Decision(None, (event,)))
    ledger.commit()
    assert list(ledger.events_for(DATABASES[1], 9)) == [replace(event, number=1)]


def test_an_acknowledgement_of_a_lost_incarnation_forgets_no_new_event() -> None:
    ledger = CheckedLedger(NAMES[0], State(DATABASES[0]))
    ledger.open(Incarnation("0" * 16), NOW)
    snapshot = ledger.snapshot()
    ledger.restore(snapshot)
    ledger.open(Incarnation("1" * 16), NOW)
    event = DiscardEvent(DATABASES[1], Verdict(IDS[0], 1, VerdictKind.DELIVERED), NOW)
    ledger.apply(Decision(None, (event,)))
    ledger.apply(Decision(None, (AcknowledgeEvents(DATABASES[1], Mark(Incarnation("f" * 16), 10)),)))
    ledger.apply(Decision(None, (AcknowledgeEvents(DATABASES[1], Mark(Incarnation("0" * 16), 10)),)))
    ledger.commit()
    assert len(list(ledger.events_for(DATABASES[1], 9))) == 1
