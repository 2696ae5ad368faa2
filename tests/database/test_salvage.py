"""A bad page costs the messages that stand on it, and no others; the database is still the one it was."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from opened import (
    DATABASE,
    NOW,
    OTHER,
    OTHER_DATABASE,
    database,
    incarnation,
    message,
    opened,
    save,
    shadow,
)

from shadowrelay.core.decisions import Content, Decision, Member
from shadowrelay.core.digests import of_content, of_envelope
from shadowrelay.core.identifiers import Beginning, Lineage
from shadowrelay.core.messages import Copy, Digests
from shadowrelay.core.values import replace
from shadowrelay.database import content, offline, opening
from shadowrelay.database.opening import FILE
from shadowrelay.database.salvage import UNREAD
from shadowrelay.database.transport import TransportDatabase

MANY = 60
PAGE = 4096


async def laid_down(directory: Path) -> list[Copy]:
    """Messages with digests, in a database whose node was killed."""
    copies = []
    async with database(directory) as there:
        lineage = Lineage(OTHER_DATABASE, (Beginning(incarnation(7), 3),), 9)
        await there.transact(lambda ledger: ledger.apply(Decision(None, (Member(OTHER, lineage),))))
        for number in range(MANY):
            plain = message("inside", "all") if number % 2 else shadow("inside", "all")
            digests = Digests(of_content(b"hello"), of_envelope(plain.envelope, plain.recipients))
            copies.append(replace(plain, digests=digests))
            await there.transact(save(copies[-1]))
    with closing(sqlite3.connect(directory / FILE)) as connection, connection:
        connection.execute("UPDATE meta SET value = '0' WHERE key = 'clean'")
    return copies


def leaves(directory: Path, table: str) -> list[int]:
    with closing(sqlite3.connect(directory / FILE)) as connection:
        found = connection.execute(
            "SELECT pageno FROM dbstat WHERE name = ? AND pagetype = 'leaf' ORDER BY path", (table,)
        ).fetchall()
    return [row[0] for row in found]


def overwrite(directory: Path, page: int, octets: bytes) -> None:
    with (directory / FILE).open("r+b") as file:
        file.seek((page - 1) * PAGE)
        file.write(octets)


async def told(there: TransportDatabase, copies: list[Copy]) -> dict[str, list[str]]:
    """What the node makes of each: sound, damaged or gone."""

    def look(copy: Copy) -> str:
        if there.ledger.copy(copy.id):
            return "sound"
        return "damaged" if there.ledger.damaged(copy.id) else "gone"

    found: dict[str, list[str]] = {"sound": [], "damaged": [], "gone": []}
    for copy in copies:
        found[await there.transact(lambda _, copy=copy: look(copy))].append(copy.id)
    return found


@pytest.mark.parametrize("octets", [bytes(PAGE), os.urandom(PAGE)], ids=["zeros", "garbage"])
@pytest.mark.parametrize("table", ["message", "recipient"])
async def test_a_bad_page_costs_the_messages_that_stand_on_it_and_no_others(
    tmp_path: Path, table: str, octets: bytes
):
    copies = await laid_down(tmp_path)
    pages = leaves(tmp_path, table)
    assert len(pages) > 2
    overwrite(tmp_path, pages[1], octets)
    damaged = (tmp_path / FILE).read_bytes()
    async with database(tmp_path) as there:
        found = await told(there, copies)
        assert there.lineage.database_id == DATABASE
        assert there.opened.set_aside is not None
        assert there.opened.set_aside.read_bytes() == damaged
        known = await there.transact(lambda ledger: ledger.member(OTHER))
    assert found["gone"] == []
    assert 1 < len(found["damaged"]) < MANY / len(pages) * 2
    assert len(found["sound"]) + len(found["damaged"]) == MANY
    assert known is not None
    async with database(tmp_path) as there:  # it is sound
        assert there.opened.set_aside is None
        assert await told(there, copies) == found


async def test_the_sequence_of_the_log_goes_on(tmp_path: Path):
    await laid_down(tmp_path)
    overwrite(tmp_path, leaves(tmp_path, "outbox")[-1], bytes(PAGE))
    async with database(tmp_path) as there:
        assert there.opened.unread == 0
        assert there.lineage.sequence == MANY
        await there.transact(save(message()))
        assert there.lineage.sequence == MANY + 1


async def test_rows_that_are_not_found_by_their_keys_are_found_again(tmp_path: Path):
    copies = await laid_down(tmp_path)
    hit = copies[MANY // 2].id
    row = offline.record(offline.rows_of(tmp_path, [hit])[hit]["message"][0])
    octets = (tmp_path / FILE).read_bytes()
    at = octets.index(row) + row.index(hit.encode()) + 2
    (tmp_path / FILE).write_bytes(octets[:at] + bytes([octets[at] ^ 0x40]) + octets[at + 1 :])
    async with database(tmp_path) as there:
        found = await told(there, copies)
        assert there.opened.unread == 1
    assert (found["damaged"], found["gone"]) == ([hit], [])


@pytest.mark.parametrize("index", ["message_transit", "recipient_due", "sqlite_autoindex_content_1"])
async def test_a_bad_page_of_an_index_costs_nothing(tmp_path: Path, index: str):
    copies = await laid_down(tmp_path)
    async with database(tmp_path) as there:
        await there.transact(
            lambda ledger: ledger.connection.execute("UPDATE recipient SET due_at = 1").rowcount
        )
    with closing(sqlite3.connect(tmp_path / FILE)) as connection, connection:
        connection.execute("UPDATE meta SET value = '0' WHERE key = 'clean'")
    overwrite(tmp_path, leaves(tmp_path, index)[0], bytes(PAGE))
    async with database(tmp_path) as there:
        assert there.opened.unread == 0
        assert len((await told(there, copies))["sound"]) == MANY
        for copy in copies:
            assert await there.transact(lambda ledger, one=copy: content.stored(ledger, one.id)) == Content(
                data=b"hello"
            )


@pytest.mark.parametrize("table", ["meta", "incarnation", "member", "sqlite_schema"])
async def test_what_nothing_can_go_on_without_is_whole_or_a_new_database_begins(tmp_path: Path, table: str):
    await laid_down(tmp_path)
    overwrite(tmp_path, leaves(tmp_path, table)[-1], bytes(PAGE))
    async with database(tmp_path, database_id=OTHER_DATABASE) as there:
        assert there.opened.unread is None
        assert there.opened.set_aside is not None
        assert there.lineage.database_id == OTHER_DATABASE


async def test_the_file_of_a_damaged_message_is_kept(tmp_path: Path):
    large = tmp_path / opening.CONTENT / f"{message().id}.eml"
    content.prepare(large.parent)
    copies = await laid_down(tmp_path)
    kept = large.with_name(f"{copies[0].id}-1.eml")
    for file in (kept, large):
        file.write_bytes(b"a large content")
    overwrite(tmp_path, leaves(tmp_path, "message")[0], bytes(PAGE))
    async with database(tmp_path) as there:
        rows = await there.transact(lambda ledger: ledger.damaged(copies[0].id))
        assert rows is not None
        assert rows.what == UNREAD
        await there.transact(lambda ledger: content.sweep(ledger, large.parent))
    assert (kept.exists(), large.exists()) == (True, False)


async def test_an_attempt_that_a_crash_cut_short_is_made_again(tmp_path: Path):
    copies = await laid_down(tmp_path)
    overwrite(tmp_path, leaves(tmp_path, "message")[0], bytes(PAGE))
    (tmp_path / f"{FILE}.rescued").write_bytes(b"half of it")
    async with database(tmp_path) as there:
        found = await told(there, copies)
    assert found["sound"]
    assert found["damaged"]
    assert not (tmp_path / f"{FILE}.rescued").exists()


async def test_a_database_of_an_older_schema_is_not_read_by_guess(tmp_path: Path):
    await laid_down(tmp_path)
    with closing(sqlite3.connect(tmp_path / FILE)) as connection:
        connection.execute("PRAGMA user_version = 7")
    overwrite(tmp_path, leaves(tmp_path, "message")[0], bytes(PAGE))
    found = await opened(tmp_path, database_id=OTHER_DATABASE, now=NOW)
    await found.close(NOW)
    assert found.opened.unread is None
    assert found.opened.set_aside is not None
