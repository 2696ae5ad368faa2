"""One row that cannot be read is no reason to end: it costs what it said, and nobody else anything."""

from __future__ import annotations

import asyncio
import os
import socket
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from opened import DATABASE, NOW, OTHER, OTHER_DATABASE, database, incarnation, message, opened, save, shadow

from shadowrelay.core.decisions import (
    Chore,
    ChoreKind,
    Content,
    DamagedRow,
    Decision,
    DiscardEvent,
    DropCopy,
    Member,
    Outcome,
    SaveDamaged,
    Tombstone,
    Verdict,
    VerdictKind,
)
from shadowrelay.core.digests import of_content
from shadowrelay.core.identifiers import Beginning, DatabaseId, Lineage, ServerName
from shadowrelay.core.messages import Confirmation, Status
from shadowrelay.database.content import ContentDamaged, examine, stored, sweep
from shadowrelay.database.opening import FILE
from shadowrelay.database.outbox import Outbox
from shadowrelay.tracking.lookup import about, settled

EVENT = DiscardEvent(OTHER_DATABASE, Verdict(message().id, 1, VerdictKind.DELIVERED), NOW)


def put(directory: Path, statement: str, *values: object) -> None:
    """What a disk made of a row, while no node used the database."""
    with closing(sqlite3.connect(directory / FILE)) as connection, connection:
        assert connection.execute(statement, values).rowcount > 0


async def applied(directory: Path, *writes: Any) -> None:
    async with database(directory) as there:
        await there.transact(lambda ledger: ledger.apply(Decision(None, writes)))


@pytest.mark.parametrize("column", ["data", "path"])
async def test_a_content_of_which_a_flipped_bit_made_another_kind_of_value_is_damaged_and_can_go(
    tmp_path: Path, column: str
):
    copy = message()
    content = Content(data=b"hello") if column == "data" else Content(path=str(tmp_path / "x.eml"))
    async with database(tmp_path) as there:
        await there.transact(save(copy, content))
    put(tmp_path, f"UPDATE content SET {column} = CAST({column} AS {'TEXT' if column == 'data' else 'BLOB'})")
    async with database(tmp_path) as there:
        await there.transact(lambda ledger: sweep(ledger, tmp_path))
        found = await there.transact(lambda ledger: stored(ledger, copy.id))
        assert found == Content()
        assert await examine(found) == await examine(Content(data=b""))
        await there.transact(lambda ledger: ledger.apply(Decision(None, (DropCopy(copy),))))
        assert await there.transact(lambda ledger: stored(ledger, copy.id)) is None


async def test_what_stands_where_a_content_should_and_is_no_file_keeps_no_node_from_starting(tmp_path: Path):
    (tmp_path / "content").mkdir()
    (tmp_path / "content" / "a.eml").mkdir()
    (tmp_path / "content" / "b.eml").write_bytes(b"left by a crash")
    async with database(tmp_path) as there:
        assert await there.transact(lambda ledger: sweep(ledger, tmp_path / "content")) == 1
    with pytest.raises(ContentDamaged):
        await examine(Content(path=str(tmp_path / "content" / "a.eml")))


async def test_a_pipe_where_a_content_should_be_keeps_nobody_waiting(tmp_path: Path):
    os.mkfifo(tmp_path / "a.eml")
    async with asyncio.timeout(30):
        assert await examine(Content(path=str(tmp_path / "a.eml"))) == of_content(b"")


async def test_a_socket_where_a_content_should_be_is_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """One flipped bit of its mode makes it of a file."""
    monkeypatch.chdir(tmp_path)
    with closing(socket.socket(socket.AF_UNIX)) as made:
        made.bind("a.eml")
    with pytest.raises(ContentDamaged):
        await examine(Content(path=str(tmp_path / "a.eml")))


@pytest.mark.parametrize("damage", ["kind = 'delivere'", "recipients = '1,x'", "created_at = 'x'"])
async def test_a_discard_event_that_cannot_be_read_keeps_no_other_one_from_being_told(
    tmp_path: Path, damage: str
):
    await applied(tmp_path, EVENT, EVENT)
    put(tmp_path, f"UPDATE discard_event SET {damage} WHERE number = 1")
    async with database(tmp_path) as there:
        told = await there.transact(lambda ledger: ledger.events_for(OTHER_DATABASE, 10))
    assert [event.number for event in told] == [2]


async def test_an_outcome_that_cannot_be_read_makes_a_message_unknown_and_an_unknown_one_releases_nothing(
    tmp_path: Path,
):
    copy = message()
    tombstone = Tombstone(copy.id, OTHER, 1, 1, NOW)
    await applied(tmp_path, Outcome(copy.id, 1, (1, 2), NOW), tombstone)
    put(tmp_path, "UPDATE outcome SET delivered = '1,,2'")
    put(tmp_path, "UPDATE tombstone SET keep_until = 'never'")
    async with database(tmp_path) as there:
        assert await there.transact(lambda ledger: ledger.outcome(copy.id)) is None
        assert await there.transact(lambda ledger: ledger.tombstone(copy.id)) is None


@pytest.mark.parametrize("damage", ["settled = '1:gone,x'", "found_at = 'x'", "settled = CAST('x' AS BLOB)"])
async def test_what_is_on_record_as_damaged_stays_so_when_that_record_is_damaged_too(
    tmp_path: Path, damage: str
):
    copy = message()
    await applied(tmp_path, SaveDamaged(DamagedRow(copy.id, NOW, "bad", ((1, Status.DELIVERED),))))
    put(tmp_path, f"UPDATE damaged SET {damage}")
    async with database(tmp_path) as there:
        found = await there.transact(lambda ledger: ledger.damaged(copy.id))
    assert found is not None
    assert found.message_id == copy.id


@pytest.mark.parametrize("text", ['{"event-id": ', "[]", '{"event-id": 1}'])
async def test_a_row_on_its_way_to_the_log_that_cannot_be_read_says_so_and_the_others_arrive(
    tmp_path: Path, text: str
):
    async with database(tmp_path) as there:
        for _ in range(3):
            await there.transact(save(message()))
    put(tmp_path, "UPDATE outbox SET columns = ? WHERE sequence = 2", text)
    async with database(tmp_path) as there:
        rows = await Outbox(there).rows_after(0, 10)
    assert [row.sequence for row in rows] == [1, 2, 3]
    assert [row.columns["event-id"] for row in rows] == ["RECEIVE", "HADAMAGE", "RECEIVE"]


LINEAGE = {
    "whose it is": "UPDATE meta SET value = CAST(value AS BLOB) WHERE key = 'node'",
    "when it was alive": "UPDATE meta SET value = '17q' WHERE key = 'alive_at'",
    "an incarnation": "UPDATE incarnation SET token = CAST(token AS BLOB)",
    "where it began": "UPDATE incarnation SET began_at = 'x'",
    "where it began, past the end": "UPDATE incarnation SET began_at = 1 << 40",
    "the last sequence": "UPDATE sqlite_sequence SET seq = 'x' WHERE name = 'outbox'",
}


OF_MEMBERS = {
    "a member's name": ("member", "name = CAST(name AS BLOB)"),
    "a member's name, in no encoding": ("member", "name = CAST(x'ff6d7832' AS TEXT)"),
    "a member's beginnings": ("member", "beginnings = 'x'"),
    "a member's database": ("member", "database_id = CAST(database_id AS BLOB)"),
    "a member's sequence": ("member", "sequence = -1"),
    "a member's sequence, in words": ("member", "sequence = 'many'"),
    "no sequence": ("member", "sequence = NULL"),
    "beginnings in no encoding": ("member", "beginnings = CAST(x'ff40' AS TEXT)"),
    "a bit of it": ("member", "sequence = sequence + 1"),
    "what a chore is": ("chore", "work = 'replacee'"),
    "whom a chore is about": ("chore", "member = 'mx7'"),
    "how far a chore is": ("chore", "place = '~'"),
}


@pytest.mark.parametrize(("table", "damage"), OF_MEMBERS.values(), ids=OF_MEMBERS)
async def test_what_is_damaged_of_members_and_chores_is_dropped_and_all_else_stays(
    tmp_path: Path, table: str, damage: str
):
    """A member introduces itself again, and every opening asks about all mail, as a chore would."""
    lineage = Lineage(OTHER_DATABASE, (Beginning(incarnation(7), 3),), 9)
    known = [Member(OTHER, lineage), Member(ServerName("mx3"), lineage)]
    left = [Chore(ChoreKind.REPLACED, name, NOW, 1, message().id) for name in (OTHER, ServerName("mx3"))]
    copy = shadow()
    async with database(tmp_path) as there:
        await there.transact(save(copy))
        await there.transact(lambda ledger: ledger.apply(Decision(None, (*known, *left))))
    key = "name" if table == "member" else "member"
    put(tmp_path, f"UPDATE {table} SET {damage} WHERE {key} = ?", OTHER)
    async with database(tmp_path) as there:
        assert (there.opened.set_aside, there.opened.dropped) == (None, {table: 1})
        assert there.lineage.database_id == DATABASE
        members, found, asked = await there.transact(
            lambda ledger: (ledger.members(), ledger.chores, ledger.copy(copy.id))
        )
        assert members == (known[1:] if table == "member" else known)
        assert [one for one in found if one.work is ChoreKind.REPLACED] == (
            left[1:] if table == "chore" else left
        )
        assert asked is not None
        assert asked.confirmation is Confirmation.ASK
    async with database(tmp_path) as there:
        assert there.opened.dropped == {}


@pytest.mark.parametrize("damage", LINEAGE.values(), ids=LINEAGE)
async def test_a_database_whose_lineage_cannot_be_read_is_set_aside_and_a_new_one_begun(
    tmp_path: Path, damage: str
):
    lineage = Lineage(OTHER_DATABASE, (Beginning(incarnation(7), 3),), 9)
    async with database(tmp_path) as there:
        await there.transact(save(message()))
        await there.transact(lambda ledger: ledger.apply(Decision(None, (Member(OTHER, lineage),))))
    put(tmp_path, damage)
    fresh = DatabaseId("6f0d7a3e-0000-4000-8000-00000000000f")
    again = await opened(tmp_path, database_id=fresh)
    await again.close(NOW)
    assert again.opened.set_aside is not None
    assert again.opened.set_aside.exists()
    assert again.lineage.database_id == fresh != DATABASE


async def test_the_log_says_what_was_settled_whatever_else_is_in_it(tmp_path: Path):
    copy = message("inside", "all")
    whole = ["", *[""] * 29]
    torn = f"2026-11-21T10:00:00.000Z,{copy.id},torn\r\n"
    (tmp_path / "MSGTRK-mx1-1-1.LOG").write_text(f"#Fields: x\r\n{torn}{','.join(whole)}{copy.id}\r\n")
    unwritten = [
        {"event-id": "DELIVER", "network-message-id": copy.id, "custom-data": "S:Recipients=2"},
        {"event-id": "DELIVER", "network-message-id": copy.id, "custom-data": "S:Recipients=x"},
        {"event-id": "DELIVER", "network-message-id": copy.id, "recipient-count": "many"},
        {"evdnt-id": "DELIVER"},
    ]
    assert settled(await about(tmp_path, copy.id, unwritten)) == {2: Status.DELIVERED}
