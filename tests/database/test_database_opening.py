"""Opening a transport database: durable, by one process, and never at the expense of what is there."""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest
from damaging import damage_table, unclean
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
    opened,
    save,
    shadow,
)

from shadowrelay.core.decisions import Content, Decision, Member
from shadowrelay.core.identifiers import Beginning, Lineage, NextHop
from shadowrelay.core.messages import Confirmation, Role, Stage
from shadowrelay.database import content, opening
from shadowrelay.database import ledger as ledger_module
from shadowrelay.database.opening import CannotOpen
from shadowrelay.database.outbox import Outbox
from shadowrelay.database.queue import claim, due_hops
from shadowrelay.database.transport import DatabaseFailed, TransportDatabase

NOBODY = "65534"
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="takes another uid, which only root can become")


def files(directory: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in directory.iterdir() if p.is_file() and p.suffix != ".lock"}


async def stopped(directory: Path, *messages: object) -> Path:
    """A directory whose database was closed properly."""
    async with database(directory) as found:
        await found.transact(save(message()))
    return directory / opening.FILE


async def test_the_file_shrinks_when_messages_are_gone(tmp_path: Path) -> None:
    async with database(tmp_path) as found:

        def fill(ledger: ledger_module.SqlLedger) -> None:
            ledger.connection.execute("CREATE TABLE ballast (octets BLOB)")
            for _ in range(40):
                ledger.connection.execute("INSERT INTO ballast VALUES (?)", (os.urandom(100_000),))

        await found.transact(fill)
        await found.touch(NOW)
        full = (tmp_path / opening.FILE).stat().st_size
        await found.transact(lambda ledger: ledger.connection.execute("DROP TABLE ballast"))
        await found.touch(NOW)
        assert full > 4_000_000
        assert (tmp_path / opening.FILE).stat().st_size < full - 3_000_000


async def test_durability_rests_on_settings_that_sqlite_took(tmp_path: Path) -> None:
    async with database(tmp_path) as found:

        def pragma(name: str) -> object:
            return found.ledger.connection.execute(f"PRAGMA {name}").fetchone()[0]

        names = ("journal_mode", "synchronous", "locking_mode", "auto_vacuum")
        settings = {name: pragma(name) for name in names}
    assert settings == {
        "journal_mode": "wal",
        "synchronous": 2,
        "locking_mode": "exclusive",
        "auto_vacuum": 2,
    }


async def test_only_its_owner_can_read_it(tmp_path: Path) -> None:
    async with database(tmp_path / "new" / "data"):
        assert (tmp_path / "new" / "data").stat().st_mode & 0o777 == 0o700
        assert {path.stat().st_mode & 0o777 for path in (tmp_path / "new" / "data").iterdir()} == {0o600}


def test_a_journal_mode_that_did_not_take_is_noticed() -> None:
    with pytest.raises(CannotOpen, match="journal_mode=wal"):
        opening.prepare(sqlite3.connect(":memory:", isolation_level=None), durable=True)


async def test_a_second_opener_is_refused_and_touches_nothing(tmp_path: Path) -> None:
    async with database(tmp_path) as found:
        await found.transact(save(message()))
        before = files(tmp_path)
        with pytest.raises(CannotOpen, match="another process uses the data directory"):
            await opened(tmp_path)
        assert files(tmp_path) == before
        await found.transact(save(message()))


async def test_a_second_process_is_refused(tmp_path: Path) -> None:
    async with database(tmp_path):
        before = files(tmp_path)
        assert "another process uses the data directory" in open_elsewhere(tmp_path)
        assert files(tmp_path) == before


async def test_another_program_sees_a_locked_file(tmp_path: Path) -> None:
    async with database(tmp_path):
        other = sqlite3.connect(tmp_path / opening.FILE, timeout=0)
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            other.execute("SELECT * FROM message").fetchall()
        other.close()


async def test_a_database_that_another_program_holds_is_refused_at_once(tmp_path: Path) -> None:
    file = await stopped(tmp_path)
    other = sqlite3.connect(file, isolation_level=None)
    other.execute("PRAGMA locking_mode=exclusive")
    other.execute("BEGIN EXCLUSIVE")
    before = file.read_bytes()
    with pytest.raises(CannotOpen, match="it is locked: another program has it open"):
        await opened(tmp_path)
    assert file.read_bytes() == before
    other.close()
    await (await opened(tmp_path)).close(NOW)


async def test_what_is_no_database_is_set_aside_and_kept(tmp_path: Path) -> None:
    garbage = b"this was a shopping list\n" * 400
    (tmp_path / opening.FILE).write_bytes(garbage)
    async with database(tmp_path, database_id=OTHER_DATABASE) as found:
        assert found.opened.created
        assert found.lineage.database_id == OTHER_DATABASE
        assert found.opened.set_aside is not None
        assert found.opened.set_aside.read_bytes() == garbage
        await found.transact(save(message()))


def damage(file: Path) -> bytes:
    """Overwrite everything between the first page and the last."""
    data = bytearray(file.read_bytes())
    data[8192 : len(data) - 4096] = b"\xa5" * (len(data) - 4096 - 8192)
    file.write_bytes(data)
    return bytes(data)


async def test_after_an_unclean_stop_a_damaged_database_is_set_aside_with_its_contents(
    tmp_path: Path,
) -> None:
    async with database(tmp_path) as found:
        large = tmp_path / opening.CONTENT / "large.eml"
        content.prepare(large.parent)
        large.write_bytes(b"a large content")
        for _ in range(50):
            await found.transact(save(message("inside", "outside")))
        await found.transact(save(message(), Content(path=str(large))))
    file = tmp_path / opening.FILE
    unclean(file)
    damaged = damage(file)
    async with database(tmp_path, database_id=OTHER_DATABASE) as found:
        aside = found.opened.set_aside
        assert aside is not None
        assert aside.read_bytes() == damaged
        assert found.lineage.database_id == OTHER_DATABASE
        await found.transact(lambda ledger: content.sweep(ledger, tmp_path / opening.CONTENT))
    contents = tmp_path / aside.name.replace(opening.FILE, opening.CONTENT)
    assert (contents / "large.eml").read_bytes() == b"a large content"


async def test_corruption_noticed_in_use_is_looked_for_at_the_next_start_whatever_the_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opening, "_SMALL", 1000)
    monkeypatch.setattr(opening, "_LARGE", 1000)
    file = await stopped(tmp_path)
    unclean(file)
    damage_table(file, "outcome")
    found = await opened(tmp_path)
    assert not found.unchecked
    with pytest.raises(DatabaseFailed, match="it is corrupt: the next start saves what can be read of it"):
        await found.transact(lambda ledger: ledger.connection.execute("SELECT * FROM outcome").fetchall())
    await found.close(NOW)
    async with database(tmp_path, database_id=OTHER_DATABASE) as found:
        assert found.opened.salvaged is not None
    async with database(tmp_path) as found:
        assert found.opened.salvaged is None


async def test_a_file_that_takes_long_to_be_checked_is_checked_beside_the_node_and_then_salvaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opening, "_SMALL", 1000)
    file = await stopped(tmp_path)
    unclean(file)
    found = await opened(tmp_path)
    assert found.unchecked
    await found.transact(save(message()))
    await found.check()
    assert not found.unchecked
    await found.close(NOW)
    unclean(file)
    damage_table(file, "outcome")
    found = await opened(tmp_path)
    with pytest.raises(DatabaseFailed, match="it is corrupt: the next start saves what can be read of it"):
        await found.check()
    assert found.failed.is_set()
    await found.close(NOW)
    async with database(tmp_path, database_id=OTHER_DATABASE) as found:
        assert found.opened.salvaged is not None


async def test_the_check_beside_the_node_takes_no_lock_from_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that closes any handle of a file loses all its locks of that file (POSIX)."""
    monkeypatch.setattr(opening, "_SMALL", 1000)
    unclean(await stopped(tmp_path))
    look = "import sqlite3, sys; sqlite3.connect(sys.argv[1], timeout=0).execute('DELETE FROM message')"
    async with database(tmp_path) as found:
        assert found.unchecked
        await found.check()
        other = [sys.executable, "-c", look, str(tmp_path / opening.FILE)]
        answer = await asyncio.to_thread(subprocess.run, other, capture_output=True, text=True)
        assert "database is locked" in answer.stderr


async def test_a_node_that_stops_before_its_file_was_checked_leaves_that_to_its_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opening, "_SMALL", 1000)
    file = await stopped(tmp_path)
    unclean(file)
    for _ in range(2):
        found = await opened(tmp_path)
        assert found.unchecked
        await found.close(NOW)


async def test_a_newer_schema_is_refused_and_left_alone(tmp_path: Path) -> None:
    file = await stopped(tmp_path)
    connection = sqlite3.connect(file)
    connection.execute("PRAGMA user_version=99")
    connection.commit()
    connection.close()
    before = files(tmp_path)
    with pytest.raises(CannotOpen, match=r"schema version 99.*written by a newer shadowrelay"):
        await opened(tmp_path)
    assert files(tmp_path) == before


async def test_the_database_of_another_node_is_refused_and_left_alone(tmp_path: Path) -> None:
    await stopped(tmp_path)
    before = files(tmp_path)
    with pytest.raises(CannotOpen, match=f"belongs to the node {OWN}, not to {OTHER}"):
        await opened(tmp_path, name=OTHER)
    assert files(tmp_path) == before


async def test_a_file_where_the_directory_should_be_is_told(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("in the way")
    with pytest.raises(CannotOpen, match=r"cannot use the data directory .*: File exists"):
        await opened(tmp_path / "data")


OPEN = textwrap.dedent("""
    import asyncio, os, sys
    from datetime import datetime, timezone
    from pathlib import Path
    from shadowrelay.core.identifiers import DatabaseId, Incarnation, ServerName
    from shadowrelay.database.opening import CannotOpen
    from shadowrelay.database.transport import TransportDatabase

    async def main():
        database = await TransportDatabase.open(Path(sys.argv[1]), ServerName("mx1.example.org"),
            Incarnation(os.urandom(8).hex()), DatabaseId("6f0d7a3e-0000-4000-8000-000000000009"),
            datetime.now(timezone.utc))
        await database.close(datetime.now(timezone.utc))
        print("opened")

    if len(sys.argv) > 2:
        os.setgroups([]); os.setgid(int(sys.argv[2])); os.setuid(int(sys.argv[2]))
    try:
        asyncio.run(main())
    except CannotOpen as error:
        print("CannotOpen:", error)
""")


def open_elsewhere(directory: Path, *uid: str) -> str:
    """What another process says that opens it, as another user."""
    command = [sys.executable, "-c", OPEN, str(directory), *uid]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


@pytest.fixture
def let_in() -> Iterator[Path]:
    """A directory that others can enter: pytest's own it closes to them whenever another run of it begins."""
    with tempfile.TemporaryDirectory(prefix="shadowrelay-") as found:
        os.chmod(found, 0o755)
        yield Path(found)


@as_root
async def test_a_directory_of_somebody_else_is_told(let_in: Path) -> None:
    said = open_elsewhere(let_in, NOBODY)
    assert said.startswith("CannotOpen: cannot use the data directory"), said
    assert "Permission denied" in said
    assert files(let_in) == {}


@as_root
@pytest.mark.parametrize("mode", [0o644, 0o600])
async def test_a_database_of_somebody_else_is_told_and_left_alone(let_in: Path, mode: int) -> None:
    file = await stopped(let_in / "data")
    (let_in / "data").chmod(0o777)
    (let_in / "data" / "transport.lock").chmod(0o666)
    file.chmod(mode)
    before = files(let_in / "data")
    said = open_elsewhere(let_in / "data", NOBODY)
    assert said.startswith(f"CannotOpen: transport database {file}: it "), said
    assert "check" in said
    assert files(let_in / "data") == before
    assert file.stat().st_mode & 0o777 == mode


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of half a megabyte."""
    disk = tmp_path / "disk"
    disk.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(disk)]
    if os.geteuid() or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("mounting is not allowed here")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


def fill(file: Path) -> None:
    with suppress(OSError), file.open("wb", buffering=0) as ballast:
        while True:
            ballast.write(bytes(4096))


async def test_a_full_disk_is_told_and_nothing_is_lost(tiny_disk: Path) -> None:
    file = await stopped(tiny_disk / "data")
    before = file.read_bytes()
    fill(tiny_disk / "ballast")
    with pytest.raises(CannotOpen, match="the disk is full: free some space and start again"):
        await opened(tiny_disk / "data")
    assert file.read_bytes() == before
    (tiny_disk / "ballast").unlink()
    async with database(tiny_disk / "data") as found:
        assert (found.lineage.database_id, found.lineage.sequence) == (DATABASE, 1)


async def test_a_disk_that_fills_up_ends_the_acceptance_and_loses_nothing(tiny_disk: Path) -> None:
    found = await opened(tiny_disk / "data")
    kept = message()
    await found.transact(save(kept))
    fill(tiny_disk / "ballast")
    large = Content(data=bytes(600_000))
    with pytest.raises(DatabaseFailed, match="the disk is full"):
        await found.transact(save(message(), large))
    await found.close(NOW)
    (tiny_disk / "ballast").unlink()
    async with database(tiny_disk / "data") as found:
        assert await found.transact(lambda ledger: ledger.copy(kept.id)) is not None


# Incarnations


async def test_what_a_process_left_in_the_log_is_in_the_database_file_before_anything_new_is_acknowledged(
    tmp_path: Path,
) -> None:
    # An fsync of the log may have failed: what only its pages hold, a power cut can still take.
    left, taken = tmp_path / "left", tmp_path / "taken"
    async with database(left) as found:
        copy = message()
        await found.transact(save(copy))
        shutil.copytree(left, taken)  # as a kill leaves it: committed, and in the log alone
    async with database(taken):
        alone = tmp_path / "alone.db"
        shutil.copy(taken / opening.FILE, alone)
        with closing(sqlite3.connect(f"file:{alone}?immutable=1", uri=True)) as connection:
            assert connection.execute("SELECT id FROM message").fetchall() == [(copy.id,)]


async def test_a_database_is_not_used_before_its_name_is_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a power cut takes the file away, with all that was acknowledged in it."""
    flushed = []
    real = os.fsync

    def fsync(handle: int) -> None:
        flushed.append(Path(os.readlink(f"/proc/self/fd/{handle}")))
        real(handle)

    monkeypatch.setattr(os, "fsync", fsync)
    async with database(tmp_path / "new"):
        assert tmp_path / "new" in flushed


async def test_each_open_is_an_incarnation_that_began_where_the_last_one_ended(tmp_path: Path) -> None:
    for run in (1, 2, 3):
        async with database(tmp_path, run=run) as found:
            await found.transact(save(message()))
            await found.transact(save(message()))
            assert found.opened.created == (run == 1)
    assert found.lineage == Lineage(
        DATABASE,
        (Beginning(incarnation(1), 0), Beginning(incarnation(2), 2), Beginning(incarnation(3), 4)),
        6,
    )


def knows(name: str, run: int | None, *, retired: bool = False) -> Member:
    return Member(name, knows_ours=None if run is None else incarnation(run), retired=retired)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("members", "left"),
    [
        ((), [1, 2, 3, 4]),
        ((knows("a", 3), knows("b", 2)), [2, 3, 4]),
        ((knows("a", 3), knows("b", None)), [1, 2, 3, 4]),
        ((knows("a", 3), knows("b", 1, retired=True)), [3, 4]),
        ((knows("a", 77), knows("b", 3)), [1, 2, 3, 4]),
    ],
    ids=["nobody known", "the oldest known", "one knows nothing", "retired", "one knows a lost incarnation"],
)
async def test_incarnations_are_forgotten_once_every_member_knows_a_later_one(
    tmp_path: Path, members: tuple[Member, ...], left: list[int]
) -> None:
    for run in (1, 2, 3):
        async with database(tmp_path, run=run) as found:
            await found.transact(save(message()))
            if run == 3:
                await found.transact(lambda ledger: ledger.apply(Decision(None, members)))
                await Outbox(found).forget(3)
    async with database(tmp_path, run=4) as found:
        assert [entry.incarnation for entry in found.lineage.beginnings] == [incarnation(run) for run in left]


async def test_a_row_that_waits_for_the_log_keeps_its_incarnation_whatever_the_members_know(
    tmp_path: Path,
) -> None:
    members = (knows("a", 3), knows("b", 3))
    for run in (1, 2, 3):
        async with database(tmp_path, run=run) as found:
            await found.transact(save(message()))
            if run == 3:
                await found.transact(lambda ledger: ledger.apply(Decision(None, members)))
                await Outbox(found).forget(1)
    async with database(tmp_path, run=4) as found:
        rows = await Outbox(found).rows_after(0, 10)
        assert [row.incarnation for row in rows] == [incarnation(2), incarnation(3)]
        beginnings = [entry.incarnation for entry in found.lineage.beginnings]
        assert beginnings == [incarnation(2), incarnation(3), incarnation(4)]


async def test_after_an_open_nothing_is_due_before_the_members_were_asked(tmp_path: Path) -> None:
    ours, held = message(), shadow()
    async with database(tmp_path) as found:
        await found.transact(save(ours))
        await found.transact(save(held))
    async with database(tmp_path, now=NOW + SECOND) as found:
        copies = await found.transact(lambda ledger: [ledger.copy(ours.id), ledger.copy(held.id)])
        due = await found.transact(
            lambda ledger: ledger.connection.execute("SELECT COUNT(due_at) FROM recipient").fetchone()
        )
    assert {copy and copy.confirmation for copy in copies} == {Confirmation.ASK}
    assert {copy and copy.confirm_since for copy in copies} == {found.opened.at} == {NOW + SECOND}
    assert due == (0,)


async def long_queue(directory: Path, messages: int) -> None:
    async with database(directory, run=1) as found:
        for _ in range(messages):
            await found.transact(save(message()))


async def confirmations(found: TransportDatabase) -> list[str]:
    rows = await found.transact(
        lambda ledger: ledger.connection.execute("SELECT confirmation FROM message ORDER BY id").fetchall()
    )
    return [row[0] for row in rows]


async def test_a_long_queue_is_marked_part_by_part_and_nothing_is_sent_before_the_last_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger_module, "AT_ONCE", 2)
    await long_queue(tmp_path, 5)
    async with database(tmp_path, run=2) as found:
        assert found.lineage.incarnation == incarnation(2)  # before anything else, and durable
        assert await confirmations(found) == ["ask"] * 2 + ["none"] * 3
        marked = []
        while found.ledger.chores:
            assert await found.transact(lambda ledger: claim(ledger, NextHop("inside"), NOW, 9)) == []
            marked.append(found.ledger.tally.staged(Role.PRIMARY, Stage.QUEUED))
            await found.transact(opening.carry_on)
        assert marked == [2, 4]
        assert found.ledger.tally.confirming(Confirmation.ASK) == 5
        assert await confirmations(found) == ["ask"] * 5
        assert await found.transact(due_hops) == []


async def test_an_opening_that_a_kill_cut_short_is_found_by_the_next_one_and_was_no_presence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger_module, "AT_ONCE", 2)
    await long_queue(tmp_path, 5)
    left = tmp_path / "left"
    async with database(tmp_path, run=2, now=NOW + 100 * SECOND) as found:
        assert found.opened.away_since == NOW
        await found.transact(opening.carry_on)
        left.mkdir()
        for suffix in ("", "-wal"):  # as the kill would leave it
            shutil.copy(f"{found.file}{suffix}", left)
    monkeypatch.setattr(ledger_module, "AT_ONCE", 1000)
    async with database(left, run=3, now=NOW + 200 * SECOND) as found:
        assert found.opened.away_since == NOW
        assert not found.ledger.chores
        assert await confirmations(found) == ["ask"] * 5


async def test_a_stop_in_the_middle_of_an_opening_is_no_presence_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger_module, "AT_ONCE", 2)
    await long_queue(tmp_path, 5)
    for run in (2, 3):
        found = await opened(tmp_path, run=run, now=NOW + run * SECOND)
        assert found.opened.away_since == NOW
        await found.close(NOW + 10 * run * SECOND)


async def test_it_is_known_since_when_the_node_was_away(tmp_path: Path) -> None:
    async with database(tmp_path) as found:
        assert found.opened.away_since is None
        await found.touch(NOW + SECOND)
        shutil.copytree(tmp_path, tmp_path.parent / "killed")  # what a kill would leave
    async with database(tmp_path.parent / "killed", now=NOW + 100 * SECOND) as found:
        assert found.opened.away_since == NOW + SECOND
