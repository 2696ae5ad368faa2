"""Group commit: what was answered is on disk, what failed left nothing, a failure ends it."""

from __future__ import annotations

import asyncio
import resource
import signal
import sqlite3
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from opened import NOW, database, message, opened, save, shadow

from shadowrelay.core.decisions import Content, Decision, DropCopy, SaveCopy
from shadowrelay.core.digests import of_content
from shadowrelay.core.messages import Copy, Role, Stage
from shadowrelay.database import content
from shadowrelay.database.indexes import rebuild
from shadowrelay.database.ledger import SqlLedger
from shadowrelay.database.outbox import Outbox
from shadowrelay.database.queue import claim, due_hops, unclaim
from shadowrelay.database.transport import MOST_PER_COMMIT, DatabaseFailed, StandingRead, TransportDatabase


async def ids(database: TransportDatabase) -> set[str]:
    rows = await database.transact(
        lambda ledger: ledger.connection.execute("SELECT id FROM message").fetchall()
    )
    return {row[0] for row in rows}


class Refusal(Exception):
    pass


def then_refuse(copy: Copy) -> object:
    def work(ledger: SqlLedger) -> None:
        save(copy)(ledger)
        raise Refusal

    return work


async def test_what_waits_together_shares_a_commit(tmp_path: Path) -> None:
    async with database(tmp_path) as found:
        copies = [message() for _ in range(200)]
        before = found.commits
        await asyncio.gather(*(found.transact(save(copy)) for copy in copies))
        assert found.commits - before <= 3
        assert await ids(found) == {copy.id for copy in copies}


async def test_a_look_opens_no_transaction_until_something_was_written(tmp_path: Path) -> None:
    looked: list[int] = []

    def count(ledger: SqlLedger) -> int:
        looked.append(ledger.connection.execute("SELECT count(*) FROM message").fetchone()[0])
        return looked[-1]

    async with database(tmp_path) as found:
        look = StandingRead(found, count)
        assert [await look() for _ in range(3)] == [0, 0, 0]
        await ids(found)  # a transaction that writes nothing
        assert [await look(), len(looked)] == [0, 1]
        await asyncio.gather(found.transact(save(message())), look())
        assert [await look() for _ in range(3)] == [1, 1, 1]
        await found.transact(save(message()))
        assert await look() == 2


async def test_a_look_that_goes_by_memory_too_is_taken_again_once_that_changes(tmp_path: Path) -> None:
    watched = {"mx1"}
    async with database(tmp_path) as found:
        looked = StandingRead(found, lambda _: sorted(watched), lambda: frozenset(watched))
        assert await looked() == ["mx1"]
        watched.add("mx2")  # a member joins, and nothing is written
        assert await looked() == ["mx1", "mx2"]


async def test_what_was_looked_up_through_an_index_is_looked_up_again_once_it_was_made_anew(
    tmp_path: Path,
) -> None:
    async with database(tmp_path) as found:
        read = iter(("as the damaged index has it", "as it is"))
        look = StandingRead(found, lambda _: next(read))
        assert [await look(), await look()] == ["as the damaged index has it"] * 2
        await found.transact(partial(rebuild, index="message_exposed"))
        assert [await look(), await look()] == ["as it is"] * 2


async def stream(found: TransportDatabase, copies: list[Copy]) -> int:
    """Save copies, one in each turn of the event loop, and return in how many commits."""

    async def save_in_turn(turn: int, copy: Copy) -> None:
        for _ in range(turn):
            await asyncio.sleep(0)
        await found.transact_briefly(save(copy))

    before = found.commits
    await asyncio.gather(*(save_in_turn(turn, copy) for turn, copy in enumerate(copies)))
    assert await ids(found) == {copy.id for copy in copies}
    return found.commits - before


async def test_what_comes_a_turn_of_the_event_loop_later_shares_the_commit_too(tmp_path: Path) -> None:
    async with database(tmp_path) as found:
        assert await stream(found, [message() for _ in range(20)]) == 1


async def test_a_commit_does_not_wait_for_the_end_of_a_stream(tmp_path: Path) -> None:
    async with database(tmp_path) as found:
        assert await stream(found, [message() for _ in range(MOST_PER_COMMIT + 20)]) == 2


async def test_a_content_that_cannot_be_written_says_where_and_what_to_look_at(tmp_path: Path) -> None:
    async with database(tmp_path) as found:
        found.fail(PermissionError(13, "Permission denied", f"{tmp_path}/content"))
        assert found.failure.startswith(f"data directory {tmp_path}: ")
        assert f"Permission denied: '{tmp_path}/content'" in found.failure
        assert found.failure.endswith("look at its disk, owner and permissions")


async def test_what_waits_for_its_commit_is_not_answered_when_the_disk_fails_meanwhile(
    tmp_path: Path,
) -> None:
    async with database(tmp_path) as found:
        waiting = asyncio.ensure_future(found.transact_briefly(save(message())))
        for _ in range(2):  # the writer has it now, and waits for more
            await asyncio.sleep(0)
        found.fail(OSError("the disk of the contents"))
        with pytest.raises(DatabaseFailed, match="the disk of the contents"):
            await waiting
        assert "the disk of the contents" in found.failure
    async with database(tmp_path) as found:
        assert await ids(found) == set()


async def test_a_disk_that_fails_before_the_writer_looks_ends_the_database_as_any_other_failure_does(
    tmp_path: Path,
) -> None:
    async with asyncio.timeout(30), database(tmp_path) as found:
        for _ in range(3):  # the writer waits
            await asyncio.sleep(0)
        waiting = found.transact_briefly(save(message()))
        found.fail(OSError("the disk of the contents"))  # it is asked, and has not looked yet
        with pytest.raises(DatabaseFailed, match="the disk of the contents"):
            await waiting
        await asyncio.sleep(0)
    async with database(tmp_path) as found:
        assert await ids(found) == set()


async def test_what_writes_nothing_is_no_commit(tmp_path: Path) -> None:
    async with database(tmp_path) as found:
        await found.transact(save(message()))
        before = found.commits
        await ids(found)
        assert found.commits == before


@pytest.mark.parametrize("way", ["transact", "transact_briefly"])
async def test_one_work_that_fails_undoes_its_own_writes_alone(tmp_path: Path, way: str) -> None:
    async with database(tmp_path) as found:
        first, bad, second = message(), message(), message()
        works = (save(first), then_refuse(bad), save(second))
        results = await asyncio.gather(*(getattr(found, way)(work) for work in works), return_exceptions=True)
        assert [type(result) for result in results] == [type(None), Refusal, type(None)]
        assert await ids(found) == {first.id, second.id}
        assert found.lineage.sequence == 2
        rows = await Outbox(found).rows_after(0, 10)
        assert [(row.sequence, row.columns["network-message-id"]) for row in rows] == [
            (1, first.id),
            (2, second.id),
        ]
        await found.transact(save(message()))
        assert found.lineage.sequence == 3


@pytest.mark.parametrize("way", ["transact", "transact_briefly"])
async def test_a_work_that_fails_while_nothing_else_waits_leaves_nothing(tmp_path: Path, way: str) -> None:
    async with database(tmp_path) as found:
        with pytest.raises(Refusal):
            await getattr(found, way)(then_refuse(message()))
        kept = message()
        await getattr(found, way)(save(kept))
        assert found.lineage.sequence == 1
    async with database(tmp_path) as found:
        assert await ids(found) == {kept.id}


async def test_a_constraint_or_a_misuse_is_an_error_of_its_work_alone(tmp_path: Path) -> None:
    async with database(tmp_path) as found:
        copy = message()
        await found.transact(save(copy))
        wrong = [save(copy), lambda ledger: ledger.connection.execute("SELECT ?", (object(),))]
        for work in wrong:
            with pytest.raises((sqlite3.IntegrityError, sqlite3.ProgrammingError)):
                await found.transact(work)
        await found.transact(save(message()))
        assert not found.failed.is_set()


@pytest.mark.parametrize("way", ["transact", "transact_briefly"])
async def test_a_content_file_outlives_a_work_that_was_undone(tmp_path: Path, way: str) -> None:
    async with database(tmp_path) as found:
        kept, gone = tmp_path / "kept.eml", tmp_path / "gone.eml"
        copies = []
        for path in (kept, gone):
            path.write_bytes(b"large")
            copies.append(message())
            await found.transact(save(copies[-1], Content(path=str(path))))

        def drop_and_fail(ledger: SqlLedger) -> None:
            ledger.apply(Decision(None, (DropCopy(copies[0]),)))
            raise Refusal

        def drop(ledger: SqlLedger) -> None:
            ledger.apply(Decision(None, (DropCopy(copies[1]),)))

        works = (drop, drop_and_fail)
        results = await asyncio.gather(*(getattr(found, way)(work) for work in works), return_exceptions=True)
        assert isinstance(results[1], Refusal)
        assert await ids(found) == {copies[0].id}
        assert (kept.exists(), gone.exists()) == (True, False)


async def test_a_content_file_goes_only_after_the_commit(tmp_path: Path) -> None:
    async with database(tmp_path) as found:
        path = tmp_path / "large.eml"
        path.write_bytes(b"large")
        copy = message()
        await found.transact(save(copy, Content(path=str(path))))
        seen = []

        def drop(ledger: SqlLedger) -> None:
            ledger.apply(Decision(None, (DropCopy(copy),)))
            seen.append(path.exists())

        await found.transact(drop)
        assert (seen, path.exists()) == ([True], False)


async def test_a_content_file_that_cannot_be_removed_undoes_nothing(tmp_path: Path) -> None:
    async with database(tmp_path) as found:
        path = tmp_path / "directory.eml"
        path.mkdir()
        copy = message()
        await found.transact(save(copy, Content(path=str(path))))
        await found.transact(lambda ledger: ledger.apply(Decision(None, (DropCopy(copy),))))
        assert await ids(found) == set()
        assert not found.failed.is_set()


async def test_a_caller_that_gives_up_does_not_cancel_its_work(tmp_path: Path) -> None:
    async with database(tmp_path) as found:
        copy, later = message(), message()
        caller = asyncio.create_task(found.transact(save(copy)))
        await asyncio.sleep(0)
        caller.cancel()
        with pytest.raises(asyncio.CancelledError):
            await caller
        await found.transact(save(later))
        assert await ids(found) == {copy.id, later.id}


async def test_callers_that_give_up_at_any_moment_disturb_nobody(tmp_path: Path) -> None:
    async with database(tmp_path) as found:
        copies = [message() for _ in range(60)]
        for turns, copy in enumerate(copies):
            caller = asyncio.create_task(found.transact(save(copy)))
            for _ in range(turns % 6):
                await asyncio.sleep(0)
            caller.cancel()
            await asyncio.gather(caller, return_exceptions=True)
        last = message()
        await found.transact(save(last))
        # One that gave up before it had begun to wait asked for nothing.
        assert {copy.id for turns, copy in enumerate(copies) if turns % 6} | {last.id} <= await ids(found)
        assert not found.ledger.connection.in_transaction


async def test_close_finishes_what_waits_and_refuses_what_comes_after(tmp_path: Path) -> None:
    found = await opened(tmp_path)
    copies = [message() for _ in range(20)]
    waiting = [asyncio.create_task(found.transact(save(copy))) for copy in copies]
    await asyncio.sleep(0)
    await found.close(NOW)
    await asyncio.gather(*waiting)
    with pytest.raises(DatabaseFailed, match="closed"):
        await found.transact(save(message()))
    async with database(tmp_path) as again:
        assert await ids(again) == {copy.id for copy in copies}


async def test_listeners_hear_of_commits_that_tracked_something(tmp_path: Path) -> None:
    async with database(tmp_path) as found:
        listener = found.when_tracked(asyncio.Event())
        await found.transact(lambda ledger: None)
        assert not listener.is_set()
        await found.transact(save(message()))
        assert listener.is_set()


async def test_listeners_hear_of_commits_that_planned_a_delivery(tmp_path: Path) -> None:
    async with database(tmp_path) as found:
        listener = found.when_planned(asyncio.Event())
        held = shadow()
        await found.transact(save(held))
        assert not listener.is_set()
        await found.transact(save(replace(held, role=Role.PRIMARY), before=held))
        assert listener.is_set()


# Failure


@pytest.fixture
def small_files() -> Iterator[object]:
    """Call it to forbid files larger than so many octets; undone at the end."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    yield lambda octets: resource.setrlimit(resource.RLIMIT_FSIZE, (octets, limits[1]))
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    signal.signal(signal.SIGXFSZ, handler)


async def test_after_a_write_that_failed_nothing_is_acknowledged(tmp_path: Path, small_files) -> None:  # type: ignore[no-untyped-def]
    async with database(tmp_path) as found:
        kept = message()
        await found.transact(save(kept))
        small_files((tmp_path / "transport.db-wal").stat().st_size + 100_000)
        large = Content(data=bytes(40_000))
        results = await asyncio.gather(
            *(found.transact(save(message(), large)) for _ in range(30)), return_exceptions=True
        )
        assert {type(result) for result in results} == {DatabaseFailed}
        assert found.failed.is_set()
        assert "the disk reports an I/O error" in found.failure
        with pytest.raises(DatabaseFailed, match="I/O error"):
            await found.transact(lambda ledger: 1)
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        with pytest.raises(DatabaseFailed):  # it does not come back to life
            await found.transact(lambda ledger: 1)
    async with database(tmp_path) as again:
        assert await ids(again) == {kept.id}
        assert again.lineage.sequence == 1


async def test_a_content_file_stays_when_the_commit_that_drops_it_fails(tmp_path: Path, small_files) -> None:  # type: ignore[no-untyped-def]
    async with database(tmp_path) as found:
        path = tmp_path / "large.eml"
        path.write_bytes(b"large")
        copy = message()
        await found.transact(save(copy, Content(path=str(path))))
        small_files((tmp_path / "transport.db-wal").stat().st_size)
        with pytest.raises(DatabaseFailed):
            await found.transact(lambda ledger: ledger.apply(Decision(None, (DropCopy(copy),))))
        assert path.exists()


async def test_whoever_waits_when_it_fails_is_told(tmp_path: Path, small_files) -> None:  # type: ignore[no-untyped-def]
    found = await opened(tmp_path)
    small_files((tmp_path / "transport.db-wal").stat().st_size)
    first = asyncio.create_task(found.transact(save(message())))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    behind = [asyncio.create_task(found.transact(save(message()))) for _ in range(5)]
    results = await asyncio.gather(first, *behind, return_exceptions=True)
    assert {type(result) for result in results} == {DatabaseFailed}
    await found.close(NOW)


async def test_a_log_that_cannot_be_shortened_is_a_failure(tmp_path: Path, small_files) -> None:  # type: ignore[no-untyped-def]
    found = await opened(tmp_path)
    for _ in range(5):
        await found.transact(save(message(), Content(data=bytes(40_000))))
    small_files((tmp_path / "transport.db").stat().st_size)
    with pytest.raises(DatabaseFailed):
        await found.touch(NOW)
    assert found.failed.is_set()
    with pytest.raises(DatabaseFailed):
        await found.transact(lambda ledger: 1)
    await found.close(NOW)


async def test_brief_work_shares_the_commit_and_undoes_itself_alone(tmp_path: Path) -> None:
    async with database(tmp_path) as found:
        first, bad, second, third = (message() for _ in range(4))
        before = found.commits
        results = await asyncio.gather(
            found.transact_briefly(save(first)),
            found.transact_briefly(then_refuse(bad)),  # type: ignore[arg-type]
            found.transact_briefly(save(second)),
            return_exceptions=True,
        )
        await asyncio.gather(found.transact_briefly(save(third)), found.transact(lambda ledger: None))
        assert [type(result) for result in results] == [type(None), Refusal, type(None)]
        assert found.commits - before == 2
    async with database(tmp_path) as found:
        assert await ids(found) == {first.id, second.id, third.id}


async def test_brief_works_that_share_a_commit_have_savepoints_only_once_one_of_them_fails(
    tmp_path: Path,
) -> None:
    async with database(tmp_path) as found:
        said: list[str] = []
        await found.transact(lambda ledger: ledger.connection.set_trace_callback(said.append))
        await asyncio.gather(*(found.transact_briefly(save(message())) for _ in range(3)))
        assert [one for one in said if "SAVEPOINT" in one] == []
        before = found.ledger.tracked.total()
        works = (save(message()), save(message()), then_refuse(message()), save(message()))
        await asyncio.gather(*map(found.transact_briefly, works), return_exceptions=True)  # type: ignore[arg-type]
        assert said.count("SAVEPOINT work") == len(works)
        assert found.ledger.tracked.total() - before <= len(works), "what ran twice counts once"
        await found.transact(lambda ledger: ledger.connection.set_trace_callback(None))


async def test_no_commit_waits_for_the_disk_in_the_event_loop(tmp_path: Path) -> None:
    async with database(tmp_path) as found:
        threads: dict[str, set[bool]] = {}

        def seen(statement: str) -> None:
            here = threading.current_thread() is threading.main_thread()
            threads.setdefault(statement.split()[0], set()).add(here)

        await found.transact(lambda ledger: ledger.connection.set_trace_callback(seen))
        await found.transact_briefly(save(message()))
        await found.transact(save(message()))
        await found.transact(lambda ledger: ledger.connection.set_trace_callback(None))
        assert threads["COMMIT"] == {False}
        assert threads["INSERT"] == {True, False}


async def test_a_look_and_a_claim_need_no_disk_and_no_thread(tmp_path: Path) -> None:
    async with database(tmp_path) as found:
        copy = message()
        await found.transact(save(copy))
        threads: set[bool] = set()

        def seen(statement: str) -> None:
            if statement == "COMMIT":
                threads.add(threading.current_thread() is threading.main_thread())

        await found.transact(lambda ledger: ledger.connection.set_trace_callback(seen))
        threads.clear()
        hop = copy.recipients[0].next_hop
        await found.transact_briefly(due_hops)
        (claimed,) = await found.transact_briefly(lambda ledger: claim(ledger, hop, NOW, 5))
        await found.transact_briefly(lambda ledger: unclaim(ledger, claimed.copy.id, hop))
        assert threads == {True}
        await found.transact(lambda ledger: ledger.connection.set_trace_callback(None))


async def test_the_log_is_never_shortened_in_the_middle_of_a_transaction(tmp_path: Path) -> None:
    async with database(tmp_path) as found:
        said: list[str] = []
        await found.transact(
            lambda ledger: ledger.connection.set_trace_callback(lambda text: said.append(text.split()[0]))
        )

        async def work() -> None:
            for _ in range(40):
                await found.transact_briefly(save(message()))

        async def shorten() -> None:
            for _ in range(20):
                await found.touch(NOW)

        await asyncio.gather(work(), work(), shorten())
        await found.transact(lambda ledger: ledger.connection.set_trace_callback(None))
        whole = "".join({"BEGIN": "(", "COMMIT": ")", "PRAGMA": "p"}.get(word, "") for word in said)
        assert set(whole.removeprefix(")").removesuffix("(").replace("()", "")) == {"p"}


@pytest.mark.parametrize("part", ["begin", "_perform", "conclude"])
@pytest.mark.parametrize("way", ["transact", "transact_briefly"])
async def test_a_writer_that_breaks_leaves_nobody_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str, way: str
) -> None:
    found = await opened(tmp_path)

    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(f"shadowrelay.database.group_commit.{part}", broken)
    async with asyncio.timeout(5):
        with pytest.raises(DatabaseFailed, match="a bug"):
            await getattr(found, way)(lambda ledger: 1)
    assert found.failed.is_set()
    await found.close(NOW)


@pytest.mark.parametrize("readable", [True, False])
async def test_a_group_that_is_rolled_back_leaves_memory_as_it_was_and_tells_its_first_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, readable: bool
) -> None:
    """Whether or not what is kept in memory can be read again. A file that stays freed would be deleted."""
    found, large, path = await opened(tmp_path), message(), tmp_path / "large.eml"
    path.write_bytes(b"hello")
    await found.transact(save(large, Content(path=str(path))))
    ledger, counted = found.ledger, found.ledger.tally.staged(Role.PRIMARY, Stage.QUEUED)
    ledger.awaited.add(large.id)

    def broken(ledger: SqlLedger) -> None:
        ledger.apply(Decision(None, (SaveCopy(large, replace(large, ranks_given=1)), DropCopy(large))))
        assert ledger.freed
        assert ledger.awaited_changes
        raise sqlite3.OperationalError("the first error")

    def unreadable(_: SqlLedger) -> None:
        raise sqlite3.DatabaseError("another error")

    if not readable:
        monkeypatch.setattr(SqlLedger, "refresh", unreadable)
    done = await asyncio.gather(
        found.transact(save(message())), found.transact(broken), return_exceptions=True
    )
    await found.close(NOW)
    assert {(type(one), "the first error" in str(one)) for one in done} == {(DatabaseFailed, True)}
    assert (ledger.freed, ledger.awaited_changes) == ([], [])
    assert ledger.tally.staged(Role.PRIMARY, Stage.QUEUED) == counted


CHILD = textwrap.dedent("""
    import asyncio, os, sys
    sys.path.insert(0, {tests!r})
    from pathlib import Path
    from opened import message, opened, save, shadow
    from dataclasses import replace

    async def main():
        database = await opened(Path(sys.argv[1]), run=int(sys.argv[2]))
        async def one(number):
            copy = message(id=f"{{int(sys.argv[2]):08x}}-0000-7000-8000-{{number:012x}}")
            await database.transact(save(copy))
            os.write(1, (copy.id + "\\n").encode())
        number = 0
        while True:
            await asyncio.gather(*(one(number + more) for more in range(3)))
            number += 3

    asyncio.run(main())
""")


def started(program: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", program, *arguments], stdout=subprocess.PIPE, text=True)


async def test_whatever_was_acknowledged_survives_a_kill(tmp_path: Path) -> None:
    acknowledged: set[str] = set()
    program = CHILD.format(tests=str(Path(__file__).parent))
    for run in range(1, 9):
        child = started(program, str(tmp_path), str(run))
        assert child.stdout
        for _ in range(1 + 7 * run):
            acknowledged.add(child.stdout.readline().strip())
        child.kill()
        acknowledged |= set(child.stdout.read().split("\n")[:-1])
        child.wait()
        child.stdout.close()
    assert len(acknowledged) >= 250
    async with database(tmp_path, run=99) as found:
        assert found.opened.set_aside is None
        stored = await ids(found)
        assert acknowledged <= stored
        assert found.lineage.sequence == len(stored)
        assert len(found.lineage.beginnings) == 9


async def test_deleting_gives_the_space_back(tmp_path: Path) -> None:
    async with database(tmp_path) as found:
        copies = [message() for _ in range(100)]
        large = Content(data=bytes(60_000))
        await asyncio.gather(*(found.transact(save(copy, large)) for copy in copies))
        await found.touch(NOW)
        full = (tmp_path / "transport.db").stat().st_size
        assert full > 6_000_000
        for copy in copies:
            await found.transact(lambda ledger, copy=copy: ledger.apply(Decision(None, (DropCopy(copy),))))  # type: ignore[misc]
        await found.touch(NOW)
        assert (tmp_path / "transport.db").stat().st_size < full / 10
        assert (tmp_path / "transport.db-wal").stat().st_size == 0


async def test_contents_of_a_crash_are_swept_and_those_of_messages_are_kept(tmp_path: Path) -> None:
    folder = tmp_path / "content"
    content.prepare(folder)
    (folder / "kept.eml").write_bytes(b"kept")
    (folder / "orphan.eml").write_bytes(b"orphan")
    async with database(tmp_path) as found:
        await found.transact(save(message(), Content(path=str(folder / "kept.eml"))))
        assert await found.transact(lambda ledger: content.sweep(ledger, folder)) == 1
    assert [path.name for path in folder.iterdir()] == ["kept.eml"]


async def test_contents_follow_a_data_directory_that_was_moved(tmp_path: Path) -> None:
    before, after = tmp_path / "before", tmp_path / "after"
    content.prepare(before / "content")
    (before / "content" / "large.eml").write_bytes(b"large")
    copy = message()
    async with database(before) as found:
        await found.transact(save(copy, Content(path=str(before / "content" / "large.eml"))))
    before.rename(after)
    async with database(after) as found:
        assert await found.transact(lambda ledger: content.sweep(ledger, after / "content")) == 0
        where = await found.transact(lambda ledger: content.stored(ledger, copy.id))
        assert where is not None
        assert await content.head(where, of_content(b"large"), 100) == b"large"
