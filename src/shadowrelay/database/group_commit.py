"""Runs all waiting works in one transaction: a failed work undoes only itself."""

from __future__ import annotations

import contextlib
import sqlite3
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from shadowrelay import failpoints
from shadowrelay.database.ledger import SqlLedger

_OF_WORK = (sqlite3.IntegrityError, sqlite3.ProgrammingError)
Work: TypeAlias = Callable[[SqlLedger], Any]
WorkResult: TypeAlias = tuple[Any, Exception | None]


def begin(ledger: SqlLedger, works: Sequence[Work], *, guarded: bool = False) -> list[WorkResult]:
    """Begin a transaction and run the brief works. Leaves it open; an error rolls it back.

    If one of several works fails, which is rare, all run once more, ``guarded``: each in a savepoint.
    """
    ledger.connection.execute("BEGIN IMMEDIATE")
    ledger.wall_ahead = None
    results: list[WorkResult] = []
    counters: Sequence[Counter[Any]] = (
        (ledger.tracked, ledger.damage) if len(works) > 1 and not guarded else ()
    )
    before = [dict(one) for one in counters]
    try:
        for work in works:
            results.append(_perform(ledger, work, alone=not guarded))
            if results[-1][1] is not None and counters:
                _roll_back(ledger)
                for counter, counts in zip(counters, before, strict=True):
                    counter.clear()
                    counter.update(counts)
                return begin(ledger, works, guarded=True)
        return results
    except BaseException:
        _roll_back(ledger)
        raise


def conclude(ledger: SqlLedger, works: Sequence[Work], *, alone: bool) -> list[WorkResult]:
    """Run the other works and COMMIT: in the database thread, unless nothing was written.

    ``alone``: the transaction has a single work, here or in ``begin``.
    """
    try:
        results = [_perform(ledger, work, alone=alone) for work in works]
        ledger.connection.execute("COMMIT")
        ledger.tally.keep()
        failpoints.committed()
    except BaseException:
        _roll_back(ledger)
        raise
    for path in ledger.freed:
        with contextlib.suppress(OSError):  # now an orphan, swept at the next start
            Path(path).unlink()
    ledger.freed.clear()
    return results


def _perform(ledger: SqlLedger, work: Work, *, alone: bool) -> WorkResult:
    """Run one work. Returns its result, or the exception that undid it. Raises errors of the database.

    ``alone``: it has no savepoint, into which SQLite copies every page that it changes; the whole transaction
    is undone with it.
    """
    if not alone:
        ledger.connection.execute("SAVEPOINT work")
    freed, counted, changed = len(ledger.freed), len(ledger.tally.journal), len(ledger.awaited_changes)
    problem: Exception | None = None
    result = None
    try:
        result = work(ledger)
    except Exception as error:
        if isinstance(error, sqlite3.Error) and not isinstance(error, _OF_WORK):
            raise
        del ledger.awaited_changes[changed:]
        problem = _undo(ledger, freed, counted, error, alone=alone)
    if not alone:
        ledger.connection.execute("RELEASE work")
    return result, problem


def _roll_back(ledger: SqlLedger) -> None:
    """Undo the transaction, and what memory has of it, whatever fails then."""
    with contextlib.suppress(sqlite3.Error):
        ledger.connection.execute("ROLLBACK")
    ledger.freed.clear()
    ledger.awaited_changes.clear()
    ledger.tally.undo(0)
    with contextlib.suppress(sqlite3.Error):
        ledger.refresh()


def _undo(ledger: SqlLedger, kept: int, counted: int, error: Exception, *, alone: bool) -> Exception:
    """Undo one work. The first ``kept`` freed files stay freed: works before it dropped them. The tally goes
    back to ``counted``.
    """
    for statement in ("ROLLBACK", "BEGIN IMMEDIATE") if alone else ("ROLLBACK TO work",):
        ledger.connection.execute(statement)
    freed = ledger.freed[:kept]
    ledger.refresh()
    ledger.tally.undo(counted)
    ledger.freed.extend(freed)
    return error
