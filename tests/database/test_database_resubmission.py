"""What a selector finds in Safety Net: SQL says the same as plain Python."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from opened import DATABASE, NOW, OTHER, OTHER_DATABASE, OWN, SECOND, database, message, save

from shadowrelay.core.decisions import Content, Decision, SaveCopy
from shadowrelay.core.digests import of_content, of_envelope
from shadowrelay.core.identifiers import DatabaseId, Incarnation, MessageId, NextHop, RequestId
from shadowrelay.core.messages import Copy, Damage, Digests, Envelope, Recipient, Role, Stage, Status
from shadowrelay.core.requests import BEGIN, Place, Selector
from shadowrelay.core.safety_net.selection import matching
from shadowrelay.core.values import replace
from shadowrelay.database import resubmission
from shadowrelay.database.ledger import SqlLedger
from shadowrelay.database.resubmission import MadeCount, OwnerCount, OwnerKnown
from tests.simulation.memory_ledger import MemoryLedger, State, _connect, _empty_database

TIMES = st.one_of(*[st.integers(0, 6).map(lambda seconds: NOW + seconds * SECOND)] * 4, st.none())
ADDRESSES = st.sampled_from(
    [
        "a@x.test",
        "A@X.test",
        "b@x.test",
        "ä@x.test",
        "Ä@X.TEST",
        "a@y.x.test",
        "a@ä.test",
        "A@Ä.TEST",
        "a@xn--4ca.test",
        "",
    ]
)
HOPS = st.sampled_from(["mbx1", "mbx2", "out", "mbx1/x.test", "out/", "mbx/mbx2"]).map(NextHop)
RECIPIENTS = st.lists(
    st.builds(
        lambda address, hop, status, at: (address, hop, status, None if status is Status.READY else at),
        ADDRESSES,
        HOPS,
        st.sampled_from([Status.DELIVERED] * 4 + [*Status]),
        TIMES,
    ),
    min_size=1,
    max_size=4,
)


@st.composite
def copies(draw: st.DrawFn) -> list[Copy]:
    found = []
    for number in range(draw(st.integers(0, 8))):
        held = draw(st.booleans())
        envelope = Envelope(
            sender=draw(ADDRESSES),
            size=draw(st.integers(0, 9)),
            message_id=draw(st.sampled_from(["<1@x>", "<2@x>"])),
        )
        made = [
            Recipient(at, one[0], one[1], status=one[2], settled_at=one[3])
            for at, one in enumerate(draw(RECIPIENTS), 1)
        ]
        found.append(
            Copy(
                id=MessageId(f"01900000-0000-7000-8000-{number:012x}"),
                epoch=1,
                rank=0,
                role=Role.SHADOW if held else Role.PRIMARY,
                stage=draw(st.sampled_from([Stage.SAFETY_NET, Stage.SAFETY_NET, Stage.QUEUED])),
                owner=OTHER if held else OWN,
                owner_database=OTHER_DATABASE if held else DATABASE,
                offered_in=Incarnation("f" * 16),
                envelope=envelope,
                recipients=tuple(made),
                received_at=NOW,
                settled_at=NOW,
                digests=draw(
                    st.sampled_from([None, *[Digests(of_content(b""), of_envelope(envelope, made))] * 3])
                ),
                damage=draw(st.sampled_from([None, None, Damage.CONTENT])),
                request=draw(st.sampled_from([None, None, RequestId("0190")])),
            )
        )
    return found


def both(stored: list[Copy]) -> tuple[SqlLedger, MemoryLedger]:
    """The same copies in a ledger on SQLite and in one in memory."""
    sql = SqlLedger(_connect(_empty_database()), OWN)
    memory = MemoryLedger(OWN, State(DATABASE))
    for copy in stored:
        for ledger in (sql, memory):
            ledger.apply(Decision(None, (SaveCopy(None, copy, Content(data=b"")),)))
    return sql, memory


SLOW = settings(max_examples=100, deadline=timedelta(seconds=10))
PATTERNS = st.sampled_from([None, None, "a@x.test", "*@x.test", "ä@x.test", "*@ä.test", ""])


@st.composite
def selectors(draw: st.DrawFn) -> Selector:
    since = draw(st.integers(-1, 3))
    return Selector(
        since=NOW + since * SECOND,
        until=NOW + draw(st.integers(since + 1, 7)) * SECOND,
        next_hops=draw(st.one_of(st.just(()), st.sets(HOPS, max_size=2).map(tuple))),
        sender=draw(PATTERNS),
        recipient=draw(PATTERNS),
        message_id=draw(st.sampled_from([None, None, "<1@x>"])),
        network_message_id=draw(
            st.sampled_from([None] * 4 + [MessageId("01900000-0000-7000-8000-000000000000")])
        ),
    )


@SLOW
@given(stored=copies(), selector=selectors(), most=st.integers(1, 5))
def test_parts_of_a_window_have_the_same_messages_in_sql_and_in_memory(
    stored: list[Copy], selector: Selector, most: int
) -> None:
    sql, memory = both(stored)
    for owner in (None, OTHER):
        found, place = [], Place()
        while True:
            mine = sql.resubmittable(selector, owner, place, most)
            assert mine == memory.resubmittable(selector, owner, place, most)
            found += mine.messages
            if mine.rest is None:
                break
            place = mine.rest
        assert found == sorted(set(found))
        assert found == sql.resubmittable(selector, owner, Place(), 1000).messages


def expected(stored: list[Copy], selector: Selector, owner: OwnerKnown) -> OwnerCount:
    """The same in plain Python."""
    lost, rest = MadeCount(), MadeCount()
    for copy in stored:
        if copy.owner != owner.name:
            continue
        meant = matching(selector, copy)
        delivered = [one for one in meant if one.status is Status.DELIVERED]
        first = min((one.number for one in delivered), default=0)
        for one in meant:
            count = the_count(copy, one, messages=int(one.number == first))
            gone = owner.database is not None and (
                copy.owner_database != owner.database
                or (
                    owner.lost_before is not None
                    and one.settled_at is not None
                    and one.settled_at < owner.lost_before
                )
            )
            lost, rest = (lost + count, rest) if gone else (lost, rest + count)
        rest += MadeCount(untimed=int(untimed(selector, copy)))
    return OwnerCount(owner.name, lost, rest)


def the_count(copy: Copy, recipient: Recipient, *, messages: int) -> MadeCount:
    if copy.stage is Stage.QUEUED:
        return MadeCount(in_transit=messages)
    if recipient.status is Status.RELAYED:
        return MadeCount(outside=1)
    if copy.request:
        return MadeCount(resubmitted=messages)
    if copy.damage or copy.digests is None:
        return MadeCount(damaged=messages)
    return MadeCount(messages=messages, recipients=1, octets=messages * copy.envelope.size)


def untimed(selector: Selector, copy: Copy) -> bool:
    """Would the selector mean a recipient, if its time were in the window?"""
    if copy.stage is not Stage.SAFETY_NET or not selector.covers(copy.settled_at):
        return False
    unknown = [replace(one, settled_at=selector.since) for one in copy.recipients if one.settled_at is None]
    return bool(matching(selector, replace(copy, recipients=tuple(unknown))))


@SLOW
@given(
    stored=copies(),
    selector=selectors(),
    lost_before=TIMES,
    database=st.sampled_from([None, OTHER_DATABASE, DATABASE]),
)
def test_counts_of_a_window_are_those_of_plain_python(
    stored: list[Copy], selector: Selector, lost_before: datetime | None, database: DatabaseId | None
) -> None:
    sql, _ = both(stored)
    owners = (OwnerKnown(OWN), OwnerKnown(OTHER, database, lost_before))
    found = resubmission.count([sql.connection], selector, owners)
    assert found == {owner.name: expected(stored, selector, owner) for owner in owners}


@SLOW
@given(stored=copies(), selector=selectors(), most=st.integers(1, 4))
def test_pages_of_a_window_have_each_message_once_in_the_order_of_their_delivery(
    stored: list[Copy], selector: Selector, most: int
) -> None:
    sql, _ = both(stored)
    whole = [
        (
            min(one.settled_at for one in meant if one.settled_at),
            copy.id,
            tuple((one.address, one.next_hop, one.status.value) for one in meant),
        )
        for copy in stored
        if copy.stage is Stage.SAFETY_NET and (meant := matching(selector, copy))
    ]
    found, place = [], BEGIN
    while page := resubmission.page(sql.connection, selector, place, most):
        assert len(page) <= most
        found += [(one.settled_at, one.id, one.recipients) for one in page]
        place = Place(page[-1].settled_at, page[-1].id)
    assert found == sorted(whole)


async def test_a_reader_beside_the_node_sees_what_was_committed_before_and_holds_up_no_writer(
    tmp_path: Path,
) -> None:
    at = {"status": Status.DELIVERED, "settled_at": NOW}

    def settled() -> Copy:
        found = message(stage=Stage.SAFETY_NET, settled_at=NOW)
        return replace(found, recipients=tuple(replace(one, **at) for one in found.recipients))

    window, log = Selector(since=NOW, until=NOW), tmp_path / "transport.db-wal"
    async with database(tmp_path) as found:
        await found.transact(save(settled()))
        begun, wait = threading.Event(), threading.Event()

        def twice(readers: Sequence[sqlite3.Connection]) -> list[int]:
            before = len(resubmission.page(readers[0], window))
            begun.set()
            wait.wait(10)
            return [before, *(len(resubmission.page(reader, window)) for reader in readers)]

        reading = asyncio.create_task(found.read(twice))
        await asyncio.to_thread(begun.wait, 10)
        for _ in range(20):
            await asyncio.wait_for(found.transact(save(settled(), Content(data=bytes(300_000)))), 5)
        await found.touch(NOW)
        assert log.stat().st_size > 20 * 300_000
        wait.set()
        assert await reading == [1, 1, 1]
        assert await found.read(lambda readers: len(resubmission.page(readers[0], window))) == 21
        await found.touch(NOW)
        assert log.stat().st_size == 0


async def test_a_read_that_is_cancelled_ends_at_once_and_the_next_one_goes_on(tmp_path: Path) -> None:
    forever = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT COUNT(*) FROM n"
    begun = threading.Event()

    def work(readers: Sequence[sqlite3.Connection]) -> None:
        begun.set()
        readers[0].execute(forever).fetchone()

    async with database(tmp_path) as found:
        reading = asyncio.create_task(found.read(work))
        await asyncio.to_thread(begun.wait, 10)
        reading.cancel()
        await asyncio.wait({reading}, timeout=5)
        assert reading.cancelled()
        assert await found.read(lambda readers: readers[0].execute("SELECT 1").fetchone()) == (1,)
