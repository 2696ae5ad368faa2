"""A corrupt database: what can be read of it stays, and members are told what is missing."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from damaging import damage_table, unclean
from opened import NOW, OTHER_DATABASE, database, message, opened, save, shadow

from shadowrelay.core.decisions import Content
from shadowrelay.core.digests import of_content, of_envelope
from shadowrelay.core.identifiers import Continuity, Mark, MessageId
from shadowrelay.core.messages import Copy, Digests
from shadowrelay.database import content, opening
from shadowrelay.database.opening import FILE

PAGE = 4096


def digested(copy: Copy) -> Copy:
    return replace(copy, digests=Digests(of_content(b"hello"), of_envelope(copy.envelope, copy.recipients)))


async def filled(directory: Path, count: int = 400) -> tuple[list[MessageId], Mark]:
    """A database that was killed with those messages, and where it was then."""
    async with database(directory) as found:
        made = [digested(message("inside", "outside") if n % 2 else shadow()) for n in range(count)]
        for copy in made:
            await found.transact(save(copy))
        mark = found.lineage.mark
    unclean(directory / FILE)
    return sorted(copy.id for copy in made), mark


def leaves(file: Path, table: str) -> list[int]:
    """The pages of a table that rows stand on, in order."""
    connection = sqlite3.connect(file)
    (root,) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (table,)).fetchone()
    connection.close()
    data = file.read_bytes()

    def below(page: int) -> list[int]:
        at = (page - 1) * PAGE
        kind = data[at]
        if kind in {10, 13}:
            return [page]
        cells = int.from_bytes(data[at + 3 : at + 5])
        children = []
        for number in range(cells):
            cell = at + int.from_bytes(data[at + 12 + 2 * number : at + 14 + 2 * number])
            children.append(int.from_bytes(data[cell : cell + 4]))
        children.append(int.from_bytes(data[at + 8 : at + 12]))
        return [leaf for child in children for leaf in below(child)]

    return below(root)


def overwrite(file: Path, *pages: int) -> None:
    with file.open("r+b") as raw:
        for page in pages:
            raw.seek((page - 1) * PAGE)
            raw.write(os.urandom(PAGE))


async def test_a_page_of_messages_costs_those_messages_and_members_ask_about_all_of_them(
    tmp_path: Path,
) -> None:
    ids, before = await filled(tmp_path)
    file = tmp_path / FILE
    overwrite(file, leaves(file, "message")[3])
    damaged = file.read_bytes()
    async with database(tmp_path, database_id=OTHER_DATABASE) as found:
        salvaged = found.opened.salvaged
        assert salvaged
        assert salvaged.messages_missing
        assert salvaged.kept_as.read_bytes() == damaged
        assert found.opened.set_aside is None
        assert found.lineage.database_id != OTHER_DATABASE
        assert found.lineage.sequence >= before.sequence
        there = [one for one in ids if await found.transact(lambda ledger, one=one: ledger.copy(one))]
        assert len(ids) - 20 < len(there) < len(ids)
        lineage = found.lineage
        assert lineage.continuity(lineage.database_id, before) is Continuity.BROKEN
        later = lineage.mark
    async with database(tmp_path) as found:
        assert found.opened.salvaged is None
        assert found.lineage.continuity(lineage.database_id, before) is Continuity.BROKEN
        assert found.lineage.continuity(lineage.database_id, later) is Continuity.UNBROKEN
    assert not (tmp_path / f"{FILE}.salvage").exists()


async def test_what_stands_between_two_bad_pages_is_found(tmp_path: Path) -> None:
    ids, _ = await filled(tmp_path, 800)
    file = tmp_path / FILE
    pages = leaves(file, "message")
    overwrite(file, pages[2], pages[len(pages) // 2], pages[-3])
    async with database(tmp_path) as found:
        there = [one for one in ids if await found.transact(lambda ledger, one=one: ledger.copy(one))]
    assert len(there) > len(ids) - 60


async def test_a_page_of_recipients_damages_their_messages_alone(tmp_path: Path) -> None:
    ids, before = await filled(tmp_path)
    file = tmp_path / FILE
    overwrite(file, leaves(file, "recipient")[3])
    async with database(tmp_path) as found:
        assert found.opened.salvaged
        assert not found.opened.salvaged.messages_missing
        lineage = found.lineage
        assert lineage.continuity(lineage.database_id, before) is Continuity.UNBROKEN
        for one in ids:
            await found.transact(lambda ledger, one=one: ledger.copy(one))
        assert 0 < len(found.ledger.suspects) < 60


async def test_a_page_of_contents_damages_their_messages_alone(tmp_path: Path) -> None:
    ids, _ = await filled(tmp_path)
    file = tmp_path / FILE
    overwrite(file, leaves(file, "content")[1])
    async with database(tmp_path) as found:
        assert found.opened.salvaged
        assert not found.opened.salvaged.messages_missing
        stored = [
            one for one in ids if await found.transact(lambda ledger, one=one: content.stored(ledger, one))
        ]
        assert 0 < len(ids) - len(stored) < 120
        assert all([await found.transact(lambda ledger, one=one: ledger.copy(one)) for one in ids])


@pytest.mark.parametrize("index", ["message_transit", "recipient_due"])
async def test_an_index_costs_nothing(tmp_path: Path, index: str) -> None:
    ids, before = await filled(tmp_path)
    file = tmp_path / FILE
    overwrite(file, leaves(file, index)[0])
    async with database(tmp_path) as found:
        assert found.opened.salvaged
        assert found.opened.salvaged.lost == {}
        lineage = found.lineage
        assert lineage.continuity(lineage.database_id, before) is Continuity.UNBROKEN
        assert all([await found.transact(lambda ledger, one=one: ledger.copy(one)) for one in ids])


@pytest.mark.parametrize("table", ["meta", "incarnation", "sqlite_sequence"])
async def test_without_meta_data_or_lineage_the_database_is_set_aside(tmp_path: Path, table: str) -> None:
    await filled(tmp_path, 3)
    damage_table(tmp_path / FILE, table)
    async with database(tmp_path, database_id=OTHER_DATABASE) as found:
        assert found.opened.salvaged is None
        assert found.opened.set_aside
        assert found.lineage.database_id == OTHER_DATABASE


async def test_a_schema_that_cannot_be_read_sets_it_aside(tmp_path: Path) -> None:
    await filled(tmp_path, 3)
    file = tmp_path / FILE
    with file.open("r+b") as raw:
        raw.seek(100)
        raw.write(b"\xa5" * (PAGE - 100))
    async with database(tmp_path, database_id=OTHER_DATABASE) as found:
        assert found.opened.set_aside


def in_clean(connection: sqlite3.Connection) -> None:
    connection.execute("UPDATE meta SET value = CAST(x'ff' AS TEXT) WHERE key = 'clean'")


def in_subject(connection: sqlite3.Connection) -> None:
    connection.execute("UPDATE message SET subject = CAST(x'ff' AS TEXT)")


def in_outcome(connection: sqlite3.Connection) -> None:
    connection.execute(
        "INSERT INTO outcome (message_id, epoch, delivered, keep_until) VALUES ('x', 1, '1,q', 1 << 60)"
    )


def in_event(connection: sqlite3.Connection) -> None:
    connection.execute(
        "INSERT INTO discard_event (addressee, message_id, epoch, kind, argument, recipients, created_at) "
        "VALUES ('db', 'x', 1, 'deliverep', '', '', 1)"
    )


@pytest.mark.parametrize("change", [in_clean, in_subject, in_outcome, in_event])
async def test_one_damaged_letter_ends_no_start(
    tmp_path: Path, change: Callable[[sqlite3.Connection], None]
) -> None:
    await (await opened(tmp_path)).close(NOW)
    async with database(tmp_path) as found:
        await found.transact(save(message()))
    connection = sqlite3.connect(tmp_path / FILE)
    change(connection)
    connection.commit()
    connection.close()
    async with database(tmp_path) as found:
        assert found.opened.set_aside is None
        assert await found.transact(lambda ledger: ledger.outcome(MessageId("x"))) is None
        assert list(await found.transact(lambda ledger: ledger.events_for("db", 9))) == []  # type: ignore[arg-type]


async def test_contents_whose_rows_are_missing_are_kept_aside(tmp_path: Path) -> None:
    spool = tmp_path / opening.CONTENT
    content.prepare(spool)
    async with database(tmp_path) as found:
        for number in range(200):
            large = spool / f"{number}.eml"
            large.write_bytes(b"a large content")
            await found.transact(save(message(), Content(path=str(large))))
    file = tmp_path / FILE
    unclean(file)
    overwrite(file, leaves(file, "content")[1])
    async with database(tmp_path) as found:
        assert found.opened.salvaged
        aside = tmp_path / f"content.{found.opened.salvaged.mark}"
        moved = await found.transact(lambda ledger: content.sweep(ledger, spool, aside))
        assert 0 < moved == len(list(aside.iterdir())) < 200
        assert len(list(spool.iterdir())) == 200 - moved


async def test_a_full_disk_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    await filled(tmp_path)
    file = tmp_path / FILE
    overwrite(file, leaves(file, "message")[3])
    before = file.read_bytes()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("shadowrelay.database.salvage._sync", full)
    with pytest.raises(opening.CannotOpen, match="No space left"):
        await opened(tmp_path)
    assert file.read_bytes()[:100] == before[:100]
    assert not {name for name in os.listdir(tmp_path) if "corrupt" in name or "salvage" in name}
