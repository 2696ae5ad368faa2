"""The ledger on SQLite: what decisions store is what they read again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from opened import (
    DATABASE,
    NOW,
    OTHER,
    OTHER_DATABASE,
    OWN,
    SECOND,
    database,
    incarnation,
    message,
    save,
    shadow,
)

from shadowrelay.core.decisions import (
    AcknowledgeEvents,
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
)
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
    Envelope,
    Holder,
    HolderState,
    Recipient,
    Role,
    Stage,
    Status,
)
from shadowrelay.core.ownership.transfer import ask_about
from shadowrelay.core.tracking import Receive
from shadowrelay.core.tracking_row import Taken
from shadowrelay.database import views
from shadowrelay.database.ledger import SqlLedger
from shadowrelay.database.outbox import Outbox
from shadowrelay.database.records import moment
from shadowrelay.database.snapshot import list_part, take_snapshot

# Every value that a decision may write

text = st.text(st.characters(codec="utf-8"), max_size=20)
maybe = st.one_of
positive = st.integers(0, 10**18 - 1)
times = st.integers(-(10**15), 2 * 10**17).map(moment)
message_ids = st.uuids().map(lambda value: MessageId(str(value)))
databases = st.uuids().map(lambda value: DatabaseId(str(value)))
names = st.sampled_from(["mx1.example.org", "mx2.example.org", "mx3.example.org"]).map(ServerName)
incarnations = st.integers(0, 2**64 - 1).map(incarnation)
marks = st.builds(Mark, incarnations, positive)
recipients = st.builds(
    Recipient,
    number=st.just(0),
    address=text,
    next_hop=text.map(NextHop),
    notify=st.sampled_from([(), ("NEVER",), ("SUCCESS", "FAILURE"), ("DELAY",)]),
    orcpt=maybe(st.none(), text),
    status=st.sampled_from(Status),
    attempts=positive,
    next_attempt=maybe(st.none(), times),
    last_reply=text,
    delay_notified=st.booleans(),
    report=maybe(st.none(), message_ids),
)
holders = st.builds(Holder, names, databases, maybe(st.none(), marks), positive, st.sampled_from(HolderState))


def described(fields: dict[str, Any]) -> dict[str, Any]:
    """What all copies obey: numbered recipients, and a holder per database in the order of their storage."""
    numbered = tuple(replace(item, number=number) for number, item in enumerate(fields["recipients"], 1))
    unique = {holder.database_id: holder for holder in fields["holders"]}
    return fields | {"recipients": numbered, "holders": tuple(unique[key] for key in sorted(unique))}


changeable = {
    "epoch": positive,
    "rank": positive,
    "role": st.sampled_from(Role),
    "stage": st.sampled_from([stage for stage in Stage if stage not in {Stage.ARRIVING, Stage.DAMAGED}]),
    "owner": names,
    "owner_database": databases,
    "offered_in": maybe(st.just(Incarnation("")), incarnations),
    "envelope": st.builds(
        Envelope,
        sender=text,
        size=positive,
        body=st.sampled_from(["7BIT", "8BITMIME"]),
        smtputf8=st.booleans(),
        ret=maybe(st.none(), st.just("FULL")),
        envid=maybe(st.none(), text),
        message_id=text,
        subject=text,
    ),
    "recipients": st.lists(recipients, min_size=3, max_size=3),
    "holders": st.lists(holders, max_size=4),
    "ranks_given": positive,
    "confirmation": st.sampled_from(Confirmation),
    "confirm_since": maybe(st.none(), times),
    "former_owner": maybe(st.none(), names),
    "check_at": maybe(st.none(), times),
    "received_at": times,
    "settled_at": maybe(st.none(), times),
    "reports_on": maybe(st.none(), message_ids),
}
copies = st.fixed_dictionaries(changeable).map(described)


def ordered(copy: Copy) -> Copy:
    return replace(copy, holders=tuple(sorted(copy.holders, key=lambda holder: holder.database_id)))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[Callable[[SqlLedger], Any]], Any]]:
    """Runs a work in a transaction of one database that all examples share."""
    with asyncio.Runner() as runner:
        context = database(tmp_path_factory.mktemp("shared"), run=1)
        found = runner.run(context.__aenter__())
        yield lambda work: runner.run(found.transact(work))
        runner.run(context.__aexit__(None, None, None))


def remembered_and_stored(copy: Copy) -> Callable[[SqlLedger], Copy | None]:
    """A copy as it is read while it is remembered, which has to be what is on the disk."""

    def work(ledger: SqlLedger) -> Copy | None:
        remembered = ledger.copy(copy.id)
        ledger.forget_recent()
        stored = ledger.copy(copy.id)
        assert remembered == stored
        return stored

    return work


QUICK = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@QUICK
@given(first=copies, then=copies, content=st.binary(max_size=50))
def test_a_copy_is_read_as_it_was_stored_and_changed(run, first, then, content) -> None:  # type: ignore[no-untyped-def]
    copy = Copy(id=message().id, **first)
    run(save(copy, Content(data=content)))
    assert ordered(run(remembered_and_stored(copy))) == copy
    changed = Copy(id=copy.id, **then)
    run(save(changed, before=copy))
    assert ordered(run(remembered_and_stored(copy))) == changed
    derived = run(
        lambda ledger: ledger.connection.execute(
            "SELECT exposed, (SELECT COUNT(due_at) FROM recipient WHERE message_id = id) FROM message "
            "WHERE id = ?",
            (copy.id,),
        ).fetchone()
    )
    sendable = changed.owned and changed.confirmation is not Confirmation.ASK
    assert derived == (changed.exposed, len(changed.unsettled) if sendable else 0)
    run(lambda ledger: ledger.apply(Decision(None, (DropCopy(changed),))))
    assert run(lambda ledger: ledger.copy(copy.id)) is None
    for table in ("recipient", "holder", "content"):
        left = run(
            lambda ledger, table=table: ledger.connection.execute(
                f"SELECT COUNT(*) FROM {table} WHERE message_id = ?", (copy.id,)
            ).fetchone()
        )
        assert left == (0,)


beginnings = st.lists(st.builds(Beginning, incarnations, positive), min_size=1, max_size=64).map(tuple)
members = st.builds(
    Member,
    names,
    maybe(st.none(), st.builds(Lineage, databases, beginnings, positive)),
    maybe(st.none(), incarnations),
    maybe(st.none(), marks),
    st.booleans(),
)
numbers = st.lists(st.integers(1, 10**6), max_size=20).map(tuple)


@QUICK
@given(
    member=members,
    outcome=st.builds(Outcome, message_ids, positive, numbers, times),
    tombstone=st.builds(Tombstone, message_ids, names, positive, positive, times),
)
def test_members_outcomes_and_tombstones_are_read_as_they_were_stored(
    run, member, outcome, tombstone
) -> None:  # type: ignore[no-untyped-def]
    run(lambda ledger: ledger.apply(Decision(None, (member, outcome, tombstone))))
    assert run(lambda ledger: ledger.member(member.name)) == member
    assert member in run(lambda ledger: list(ledger.members()))
    assert run(lambda ledger: ledger.outcome(outcome.message_id)) == outcome
    assert run(lambda ledger: ledger.tombstone(tombstone.message_id)) == tombstone


@QUICK
@given(
    verdicts=st.lists(
        st.builds(Verdict, message_ids, positive, st.sampled_from(VerdictKind), text, numbers), max_size=5
    )
)
def test_events_are_read_in_the_order_in_which_they_were_stored(run, verdicts) -> None:  # type: ignore[no-untyped-def]
    to = DatabaseId(message().id)
    run(lambda ledger: ledger.apply(Decision(None, tuple(DiscardEvent(to, told, NOW) for told in verdicts))))
    events = run(lambda ledger: ledger.events_for(to, 200))
    assert [event.verdict for event in events] == verdicts
    assert [event.number for event in events] == sorted({event.number for event in events})
    assert run(lambda ledger: ledger.events_for(to, 2)) == events[:2]


# Queries


async def test_copies_are_found_by_what_they_are_to_whom(tmp_path: Path) -> None:
    def holder(state: HolderState) -> Holder:
        return Holder(OTHER, OTHER_DATABASE, None, 1, state)

    async with database(tmp_path) as found:
        cases = {
            "ours": message(),
            "held by it": message(holders=(holder(HolderState.LOST),)),
            "settled, held by it": message(holders=(holder(HolderState.HOLDING),), stage=Stage.SAFETY_NET),
            "held for it": shadow(),
            "settled for it": shadow(stage=Stage.SAFETY_NET),
            "taken from it": message(former_owner=OTHER, epoch=2),
            "asking": message(confirmation=Confirmation.ASK),
            "in doubt": message(confirmation=Confirmation.IN_DOUBT),
            "to check": shadow(check_at=NOW),
            "to check later": shadow(check_at=NOW + SECOND),
        }
        label = {copy.id: name for name, copy in cases.items()}
        for copy in cases.values():
            await found.transact(save(copy))

        async def named(query: Callable[[SqlLedger], Any]) -> set[str]:
            return {label[copy.id] for copy in await found.transact(lambda ledger: list(query(ledger)))}

        assert await named(lambda ledger: ledger.copies_held_for(OTHER).copies) == {
            "held for it",
            "to check",
            "to check later",
        }
        assert await named(lambda ledger: ledger.copies_held_for(OWN).copies) == set()
        assert await named(lambda ledger: ledger.copies_held_by(OTHER).copies) == {"held by it"}
        assert await named(lambda ledger: ledger.copies_taken_from(OTHER).copies) == {"taken from it"}
        questions = await found.transact(lambda ledger: ledger.open_questions(MessageId(""), 10))
        assert {label[question.message_id] for question in questions} == {"asking", "in doubt"}
        assert await named(lambda ledger: ledger.copies_to_check(OTHER, NOW, 10)) == {"to check"}
        later = NOW + SECOND
        assert await named(lambda ledger: ledger.copies_to_check(OTHER, later, 10)) == {
            "to check",
            "to check later",
        }
        assert await named(lambda ledger: ledger.copies_to_check(OTHER, later, 1)) == {"to check"}
        assert found.ledger.tally.held_for(OTHER) == 3


async def test_many_copies_are_read_part_by_part_in_the_order_of_their_ids(tmp_path: Path) -> None:
    holder = Holder(OTHER, OTHER_DATABASE, None, 1, HolderState.HOLDING)
    async with database(tmp_path) as found:
        ours = [message(holders=(holder,), former_owner=OTHER) for _ in range(5)]
        aside = [message(holders=(holder,), stage=Stage.SET_ASIDE) for _ in range(2)]
        theirs = [shadow() for _ in range(5)]
        for copy in (*aside[:1], *ours, *aside[1:], *theirs):
            await found.transact(save(copy))
        for query, expected in (
            (SqlLedger.copies_held_by, sorted([*ours, *aside], key=lambda copy: copy.id)),
            (SqlLedger.copies_taken_from, ours),
            (SqlLedger.copies_held_for, theirs),
        ):
            read: list[Copy] = []
            part: Part | None = Part(most=2)
            while part is not None:
                copies, part = await found.transact(lambda ledger: query(ledger, OTHER, part))  # noqa: B023
                read += copies
            assert read == expected


async def test_whether_anything_was_written_of_a_message_is_known_without_a_look_at_the_database(
    tmp_path: Path,
) -> None:
    async with database(tmp_path) as found:
        copy, other = message(), message()
        await found.transact(save(copy))
        await found.transact(lambda ledger: ledger.follow(copy.id))
        await found.transact(save(other))
        assert found.ledger.undisturbed(copy.id)
        await found.transact(lambda ledger: ledger.apply(ask_about(copy, NOW)))
        assert not found.ledger.undisturbed(copy.id)


# Numbers that are never given twice


async def test_the_outbox_goes_on_after_it_was_drained_and_after_a_restart(tmp_path: Path) -> None:
    for run in (1, 2):
        async with database(tmp_path, run=run) as found:
            outbox = Outbox(found)
            for expected in (2 * run - 1, 2 * run):
                copy = message()
                await found.transact(save(copy))
                (row,) = await outbox.rows_after(0, 10)
                assert (row.sequence, row.incarnation, row.database_id) == (
                    expected,
                    incarnation(run),
                    DATABASE,
                )
                assert row.columns["network-message-id"] == copy.id
                await outbox.forget(row.sequence)
                assert await outbox.rows_after(0, 10) == []
            assert found.lineage.sequence == 2 * run


async def test_rows_left_by_an_earlier_run_are_told_as_its_own(tmp_path: Path) -> None:
    for run in (1, 2, 3):
        async with database(tmp_path, run=run) as found:
            await found.transact(save(message()))
            await found.transact(save(message()))
    async with database(tmp_path, run=4) as found:
        rows = await Outbox(found).rows_after(1, 3)
    assert [(row.sequence, row.incarnation) for row in rows] == [
        (2, incarnation(1)),
        (3, incarnation(2)),
        (4, incarnation(2)),
    ]


def tell(count: int, to: DatabaseId = OTHER_DATABASE) -> Callable[[SqlLedger], None]:
    verdicts = (Verdict(message().id, 1, VerdictKind.DELIVERED) for _ in range(count))
    decision = Decision(None, tuple(DiscardEvent(to, verdict, NOW) for verdict in verdicts))
    return lambda ledger: ledger.apply(decision)


def acknowledge(run: int, upto: int, to: DatabaseId = OTHER_DATABASE) -> Callable[[SqlLedger], None]:
    return lambda ledger: ledger.apply(Decision(None, (AcknowledgeEvents(to, Mark(incarnation(run), upto)),)))


async def test_events_are_forgotten_as_far_as_they_were_acknowledged(tmp_path: Path) -> None:
    async def left(to: DatabaseId = OTHER_DATABASE) -> list[int]:
        return [event.number for event in await found.transact(lambda ledger: ledger.events_for(to, 99))]

    async with database(tmp_path, run=1) as found:
        await found.transact(tell(4))
        await found.transact(tell(1, DATABASE))
        await found.transact(acknowledge(1, 2))
        assert (await left(), await left(DATABASE)) == ([3, 4], [5])
        await found.transact(acknowledge(1, 99))
        assert (await left(), await left(DATABASE)) == ([], [5])
        await found.transact(tell(1))
        assert await left() == [6]  # a number never returns, not even after the last event is gone
        await found.transact(lambda ledger: ledger.apply(Decision(None, (DropEvents(OTHER_DATABASE),))))
        assert (await left(), await left(DATABASE)) == ([], [5])


async def test_discard_notifications_survive_a_restart(tmp_path: Path) -> None:
    async def left(to: DatabaseId) -> list[int]:
        return [event.number for event in await found.transact(lambda ledger: ledger.events_for(to, 99))]

    async with database(tmp_path, run=1) as found:
        await found.transact(tell(3))
        await found.transact(acknowledge(1, 1))
    async with database(tmp_path, run=2) as found:
        assert await left(OTHER_DATABASE) == [2, 3]


async def test_an_acknowledgement_of_another_life_forgets_no_new_events(tmp_path: Path) -> None:
    """After a rollback numbers are used again: what was acknowledged in the lost run says nothing of them."""
    async with database(tmp_path, run=1) as found:
        await found.transact(tell(3))
    async with database(tmp_path, run=2) as found:
        await found.transact(tell(3))

        async def left() -> list[int]:
            return [
                e.number for e in await found.transact(lambda ledger: ledger.events_for(OTHER_DATABASE, 99))
            ]

        await found.transact(acknowledge(77, 6))  # an incarnation that this database never had
        assert await left() == [1, 2, 3, 4, 5, 6]
        await found.transact(acknowledge(1, 6))  # run 1 gave three events, it cannot have told of a sixth
        assert await left() == [4, 5, 6]


async def test_a_snapshot_lists_what_is_in_transit_and_counts_it(tmp_path: Path) -> None:
    async with database(tmp_path) as found:
        ours, held, settled = message(), shadow(), message(stage=Stage.SAFETY_NET)
        for copy in (ours, held, settled):
            await found.transact(save(copy))
        await Outbox(found).forget(99)
        await found.transact(lambda ledger: take_snapshot(ledger, "snap", NOW, Taken.STOP))
        rows = [row.columns for row in await Outbox(found).rows_after(0, 99)]
    assert [row["event-id"] for row in rows] == ["LOAD"] * 3
    assert {row.get("network-message-id") for row in rows[:2]} == {ours.id, held.id}
    assert "S:Count=2;S:Taken=stop" in rows[2]["custom-data"]


async def test_a_long_snapshot_is_taken_in_parts_and_lists_what_comes_meanwhile(tmp_path: Path) -> None:
    """Whatever is in transit when it ends is listed, and what is not was settled before."""
    async with database(tmp_path) as found:
        early = message()  # its id is the lowest
        copies = [message() for _ in range(5)]
        for copy in copies:
            await found.transact(save(copy))
        await Outbox(found).forget(99)

        async def part() -> bool:
            return await found.transact(lambda ledger: list_part(ledger, "snap", NOW, Taken.HOURLY, 2))

        assert not await part()
        late = message()
        await found.transact(save(early))
        await found.transact(save(late))
        gone = replace(copies[4], stage=Stage.SAFETY_NET)
        await found.transact(lambda ledger: ledger.apply(Decision(None, (SaveCopy(copies[4], gone),))))
        while not await part():
            pass
        rows = [row.columns for row in await Outbox(found).rows_after(0, 99)]
    listed = [
        row["network-message-id"]
        for row in rows
        if row.get("network-message-id") and row["event-id"] == "LOAD"
    ]
    assert sorted(listed) == sorted(copy.id for copy in (early, *copies[:4], late))
    others = len(rows) - 1 - len(listed)
    assert f"S:Count=6;S:Among={6 + others};S:Taken=hourly" in rows[-1]["custom-data"]


async def test_a_snapshot_that_a_rollback_interrupts_begins_again(tmp_path: Path) -> None:
    async with database(tmp_path) as found:
        for _ in range(3):
            await found.transact(save(message()))
        await Outbox(found).forget(99)

        async def part(name: str) -> bool:
            return await found.transact(lambda ledger: list_part(ledger, name, NOW, Taken.HOURLY, 2))

        assert not await part("one")
        with pytest.raises(ZeroDivisionError):
            await found.transact(lambda ledger: 1 // 0)
        assert not await part("two")
        assert await part("three")
        rows = [row.columns["custom-data"] for row in await Outbox(found).rows_after(0, 99)]
    assert [row.count("S:Snapshot=two") for row in rows] == [0, 0, 1, 1, 1, 1]
    assert "S:Snapshot=two;S:Count=3;S:Taken=hourly" in rows[-1]


async def test_events_and_writes_of_a_decision_are_one_transaction(tmp_path: Path) -> None:
    async with database(tmp_path) as found:
        copy = message()

        def interrupted(ledger: SqlLedger) -> None:
            ledger.apply(
                Decision(None, (SaveCopy(None, copy, Content(data=b"")),), (Receive(at=NOW, copy=copy),))
            )
            raise RuntimeError

        with pytest.raises(RuntimeError):
            await found.transact(interrupted)
        assert await found.transact(lambda ledger: ledger.copy(copy.id)) is None
        assert await Outbox(found).rows_after(0, 9) == []
        kept = message()
        await found.transact(save(kept))
        rows = await Outbox(found).rows_after(0, 9)
        assert [row.columns["network-message-id"] for row in rows] == [kept.id]


async def test_what_is_arriving_is_no_message_and_asked_about_after_a_restart(tmp_path: Path) -> None:
    arriving = message(
        stage=Stage.ARRIVING, holders=(Holder(OTHER, OTHER_DATABASE, None, 1, HolderState.UNCERTAIN),)
    )
    async with database(tmp_path) as found:
        await found.transact(save(arriving))
        read = await found.transact(
            lambda ledger: (ledger.copy(arriving.id), ledger.knows(arriving.id), ledger.arrival(arriving.id))
        )
        assert read == (None, True, arriving)
        assert await found.transact(lambda ledger: views.messages_like(ledger, arriving.id)) == []
        counts = (await found.transact(views.snapshot)).counts
        assert (counts.arriving, counts.queued) == (1, 0)
        assert await found.transact(lambda ledger: ledger.open_questions(MessageId(""), 10)) == []
    async with database(tmp_path) as found:
        (question,) = await found.transact(lambda ledger: ledger.open_questions(MessageId(""), 10))
        assert question.message_id == arriving.id
        assert await found.transact(lambda ledger: ledger.copy(arriving.id)) is None


async def test_messages_for_a_next_hop_are_counted_though_they_have_many_recipients(tmp_path: Path) -> None:
    async with database(tmp_path) as found:
        for _ in range(3):
            await found.transact(save(message("inside", "inside", "other")))
        counted = [
            await found.transact(lambda ledger, most=most: ledger.queued_for(NextHop("inside"), most))
            for most in (1, 2, 3, 4)
        ]
        assert counted == [1, 2, 3, 3]
