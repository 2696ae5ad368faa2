"""Runs all waiting works in one transaction, each in a savepoint: a failed work undoes only itself."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from shadowrelay import failpoints
from shadowrelay.database.ledger import SqlLedger

_OF_WORK = (sqlite3.IntegrityError, sqlite3.ProgrammingError)
Work: TypeAlias = Callable[[SqlLedger], Any]
WorkResult: TypeAlias = tuple[Any, Exception | None]


def begin(ledger: SqlLedger, works: Sequence[Work], *, alone: bool) -> list[WorkResult]:
    """Begin a transaction and run the brief works. Leaves it open; an error rolls it back.

    ``alone``: the transaction has a single work, here or in ``conclude``.
    """
    ledger.connection.execute("BEGIN IMMEDIATE")
    ledger.wall_ahead = None
    try:
        return [_perform(ledger, work, alone=alone) for work in works]
    except BaseException:
        _roll_back(ledger)
        raise


def conclude(ledger: SqlLedger, works: Sequence[Work], *, alone: bool) -> list[WorkResult]:
    """Run the other works and COMMIT: in the database thread, unless nothing was written."""
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

    A work that is alone needs no savepoint, into which SQLite copies every page it changes.
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
