"""Commit data files, and make a version of all tables current. Knows no Spark.

A run commits its changes table by table. Whatever is in a version of a table that is newer than the one that
the run goes on from is of a run that died, or of one that goes on beside: it is taken back. So a version that
a run has committed holds what it began with and its own changes, and nothing else; which of two runs counts
is decided by their last commit, that of ``files``.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import AddAction, RemoveAction

from shadowaudit.spark.places import shown
from shadowaudit.spark.tables.data import Written, remove
from shadowaudit.spark.tables.schemas import FILES, SCHEMA, TABLES
from shadowaudit.spark.tables.store import (
    MADE_AT,
    SCHEMA_KEY,
    Current,
    DataFile,
    Place,
    TablesError,
    files_of,
    state,
    sync,
)

KEPT = "interval 1 hours"
"""A data file that is replaced stays for so long at first: somebody may be reading it."""

SWEPT = 50
"""At each so-manieth version, old data files are removed, and those of runs that died."""

RETENTION = "delta.deletedFileRetentionDuration"
_TRIES, _WAIT = 20, 0.2


class TakenError(TablesError):
    """Another run published meanwhile."""


@dataclass(slots=True)
class Run:
    """One attempt to go on from ``base``. ``versions``: of the tables, with what this run has committed."""

    base: Current
    now: datetime
    versions: dict[str, int] = field(default_factory=dict)

    @classmethod
    def begun(cls, place: Place, now: datetime) -> Run:
        """From what is current there; the tables are made if there are none. Raises TablesError, OSError."""
        base = state(place)
        if not base.version:
            _create(place)
        return cls(base, now, dict(base.versions) or dict.fromkeys(TABLES, 0))

    def files(self, table: str) -> list[DataFile]:
        """The data files of the table, with what this run has committed. Raises TablesError, OSError."""
        return files_of(self.base.place.table(table, self.versions[table]))

    def commit(self, table: str, new: Sequence[Written], gone: Iterable[DataFile] = ()) -> None:
        """Add these data files to the table, and take away those. Raises TakenError, TablesError, OSError."""
        actions = _actions(table, new, gone, self.now)
        try:
            if actions:
                self._commit(table, lambda found: _append(found, table, actions, _once()))
        except TakenError:
            remove(self.base.place, table, new)
            raise

    def keep(self, hours: int) -> None:
        """Keep data files that are replaced for so long from now on. Raises what ``commit`` raises."""
        told = {RETENTION: f"interval {hours} hours"}
        for name in TABLES:
            self._commit(name, lambda one: one.alter.set_table_properties(told, commit_properties=_once()))

    def delete(self, table: str, predicate: str) -> None:
        """Take away the rows of which that is true. Raises what ``commit`` raises."""
        self._commit(table, lambda one: one.delete(predicate, commit_properties=_once()))

    def compact(self, table: str) -> None:
        """Put the rows of many small data files into few. Raises what ``commit`` raises."""
        self._commit(table, lambda one: one.optimize.compact(commit_properties=_once()))

    def publish(self, new: Sequence[Written] | None = None) -> int:
        """Make all that was committed current, with these data files of ``files``, if they are told.

        Returns the version. Raises TakenError, TablesError, OSError.
        """
        place = self.base.place
        files = place.table(FILES)
        if (files.transaction_version(FILES) or 0) != self.base.version:
            raise self._taken()
        gone = self.base.files(FILES) if new is not None else []
        actions = _actions(FILES, new or (), gone, self.now)
        told = self.versions | {FILES: files.version() + 1, MADE_AT: int(self.now.timestamp())}
        try:
            _append(files, FILES, actions, _once([Transaction(*one) for one in told.items()]))
        except CommitFailedError:
            remove(place, FILES, new or ())
            raise self._taken() from None
        _on_disk(place, FILES, files.version())
        return files.version()

    def _commit(self, table: str, change: Callable[[DeltaTable], Any]) -> None:
        place = self.base.place
        for _ in range(_TRIES):
            try:
                found = _as_of(place, table, self.versions[table])
                change(found)
                self.versions[table] = found.version()
            except CommitFailedError:
                if state(place).version != self.base.version:
                    break
                time.sleep(random.uniform(0, _WAIT))  # noqa: S311  # so that one of two goes first
            except DeltaError as problem:
                told = " ".join(str(problem).split())
                raise TablesError(f"{table} of the tables cannot be written: {told}") from None
            else:
                _on_disk(place, table, self.versions[table])
                return
        raise self._taken()

    def _taken(self) -> TakenError:
        return TakenError(
            f"another run has published version {self.base.version + 1} of the tables in "
            f"{shown(self.base.place.uri)} meanwhile: nothing of it is lost, and nothing of this run is "
            "kept. Run it again"
        )


def sweep(place: Place) -> list[str]:
    """Remove data files that were replaced longer ago than the tables keep them, and those of runs that died.

    Returns their paths below the tables. Raises TablesError, OSError.
    """
    found = []
    for name, version in state(place).versions.items():
        table = _as_of(place, name, version)
        with suppress(CommitFailedError):  # another run is at it: it sweeps, or the next one does
            found += [f"{name}/{path}" for path in table.vacuum(dry_run=False, full=True)]
    return found


def tidy(place: Place, now: datetime, hours: int | None = None) -> int:
    """Put small data files together, and sweep. ``hours``: keep what is replaced for so long from now on.

    Returns the version. Raises TakenError, TablesError, OSError.
    """
    run = Run.begun(place, now)
    if hours is not None:
        run.keep(hours)
    for name in TABLES:
        run.compact(name)
    version = run.publish()
    sweep(place)
    return version


def _create(place: Place) -> None:
    """All tables, ``files`` last: where it is, the others are."""
    for name in sorted(TABLES, key=lambda one: one == FILES):
        uri, options = place.named(name)
        with suppress(CommitFailedError):  # another run makes it at this moment
            DeltaTable.create(
                uri,
                TABLES[name].arrow,
                mode="ignore",
                partition_by=TABLES[name].partition.names or None,
                configuration={RETENTION: KEPT, SCHEMA_KEY: str(SCHEMA)},
                storage_options=options,
                commit_properties=_once(),
                raise_if_key_not_exists=False,
            )


def _as_of(place: Place, name: str, version: int) -> DeltaTable:
    """The table, so that its newest version has what that version has."""
    table = place.table(name)
    if table.version() != version and table.file_uris() != place.table(name, version).file_uris():
        table.restore(version, commit_properties=_once())
    return table


def _append(table: DeltaTable, name: str, actions: Sequence[Any], properties: CommitProperties) -> None:
    by, after = TABLES[name].partition.names, table.version() + 1
    table.create_write_transaction(
        list(actions), "append", TABLES[name].arrow, by, commit_properties=properties
    )
    table.load_as_version(after)  # it does not look by itself


def _once(told: list[Transaction] | None = None) -> CommitProperties:
    """Only if nobody has committed to that table meanwhile."""
    return CommitProperties(max_commit_retries=0, app_transactions=told)


def _actions(table: str, new: Iterable[Written], gone: Iterable[DataFile], now: datetime) -> list[Any]:
    at = int(now.timestamp() * 1000)
    add = [
        AddAction(one.file.path, one.file.size, _values(table, one.file), at, True, one.stats) for one in new
    ]
    return [*add, *(RemoveAction(one.path, True, at, one.size, _values(table, one)) for one in gone)]


def _values(table: str, file: DataFile) -> dict[str, str | None]:
    return dict.fromkeys(TABLES[table].partition.names, file.day)


def _on_disk(place: Place, table: str, version: int) -> None:
    if place.is_local:
        log = place.path(table, "_delta_log")
        sync(f"{log}/{version:020}.json")
        sync(log)
