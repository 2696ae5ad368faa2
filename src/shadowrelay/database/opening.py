"""Opens a transport database: one connection, durable, of a known schema, as a new incarnation.

A corrupt database is salvaged: its readable part is saved (``salvage``). Only a database whose meta data,
lineage or schema cannot be read is set aside (renamed, never deleted), and a new one is begun. In all other
cases (locked, no permission, disk full, I/O error, a newer schema) opening fails with a clear message and
changes nothing.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import field
from datetime import datetime
from pathlib import Path
from urllib.parse import quote

from shadowrelay.core.decisions import Chore, ChoreKind
from shadowrelay.core.identifiers import DatabaseId, Incarnation, ServerName
from shadowrelay.core.ownership import chores
from shadowrelay.core.reckoning import ClockReading, Reckoning, begun, carried_on
from shadowrelay.core.switches import Switch
from shadowrelay.core.values import dataclass
from shadowrelay.database import member_rows, meta, reckonings, records, sums
from shadowrelay.database.ledger import LINEAGE_FROM, SQL, SqlLedger
from shadowrelay.database.queries import migrations
from shadowrelay.database.record_rows import RecordRows

FILE = "transport.db"
CONTENT = "content"  # the directory of large contents, beside the file
_CORRUPT = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_SMALL = 32 << 20  # octets up to which a full check takes no time
_LARGE = 1 << 30  # octets past which no full check follows an unclean stop


LINEAGE_BROKEN = "lineage_broken"
"""The meta key that tells this opening: messages are missing, so the earlier lineage no longer counts."""


class CannotOpen(Exception):
    """The transport database cannot be used; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class Salvaged:
    """The readable part of a corrupt database took its place. ``kept_as``: the corrupt file. ``lost``: by
    table, how many rows or ranges of rows could not be read.
    """

    kept_as: Path
    lost: Mapping[str, int]

    @property
    def mark(self) -> str:
        """The suffix of the corrupt file's name."""
        return self.kept_as.name.removeprefix(f"{FILE}.")

    @property
    def messages_missing(self) -> bool:
        """Whether members and this node must find out anew what the other has."""
        return bool(self.lost.get("message"))


@dataclass(frozen=True, slots=True)
class Opening:
    """What opening a database found. ``at``: the time of opening; members are asked about all mail queued by
    then. ``away_since``: when the node last ran; None for a new database. ``set_aside``, ``salvaged``: the
    database was corrupt. ``unchecked``: ``check_whole`` has yet to see whether the file is whole.
    ``reckoning``: how the node reckons its time from now on. ``dropped``: how many damaged rows about members
    and chores, by table.
    """

    created: bool
    at: datetime
    away_since: datetime | None
    set_aside: Path | None = None
    salvaged: Salvaged | None = None
    unchecked: bool = False
    reckoning: Reckoning | None = None
    dropped: Mapping[str, int] = field(default_factory=dict)


def database_in(directory: Path) -> DatabaseId | None:
    """The id of the database in a directory that no node uses; None if none can be read."""
    file = directory / FILE
    if not file.is_file():
        return None
    try:
        with closing(sqlite3.connect(file)) as connection:
            found = meta.needed(connection.execute, "database_id")
    except sqlite3.Error:
        return None
    return DatabaseId(found) if found else None


def switches_in(directory: Path) -> Mapping[str, Switch]:
    """The records of switched settings in a directory, by setting, also while a node uses it: then as they
    were when its log was last brought into the file. Empty if none can be read.
    """
    file, rows = directory / FILE, RecordRows()
    try:
        if not file.is_file():
            return {}
        with closing(reader(file)) as connection:
            connection.text_factory = sums.tolerant
            rows.connection = connection
            return {one.name: one for one in rows.records(Switch)}
    except (sqlite3.Error, PermissionError):
        return {}


def lock(directory: Path) -> int:
    """Lock the directory for this process until it ends. Raises CannotOpen."""
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = os.open(directory / "transport.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise CannotOpen(f"cannot use the data directory {directory}: {error.strerror}") from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(handle)
        raise CannotOpen(
            f"another process uses the data directory {directory}; a transport database has one owner"
        ) from error
    file = directory / FILE
    if file.exists() and not os.access(file, os.R_OK | os.W_OK):
        os.close(handle)  # SQLite would report an I/O error
        raise CannotOpen(f"transport database {file}: it cannot be written: check owner and permissions")
    return handle


def prepare(connection: sqlite3.Connection, *, durable: bool) -> None:
    """Set the pragmas that durability rests on, and verify each. Raises CannotOpen or sqlite3.Error.

    WAL with ``synchronous=FULL`` keeps committed transactions through a power cut; one exclusive
    connection avoids the WAL-reset defect of SQLite before 3.51.3.
    """
    wanted = [
        ("locking_mode", "exclusive", "exclusive"),  # before the first access: then no shared memory is used
        ("auto_vacuum", "incremental", 2),
        ("journal_mode", "wal" if durable else "memory", "wal" if durable else "memory"),
        ("synchronous", "full", 2),
        ("temp_store", "memory", 2),
        ("busy_timeout", "0", 0),
        ("cache_size", "-16000", -16000),
    ]
    for pragma, value, expected in wanted:
        found = connection.execute(f"PRAGMA {pragma}").fetchone()
        if found == (expected,):
            continue  # setting auto_vacuum again would write to a database that may belong to another node
        connection.execute(f"PRAGMA {pragma}={value}").fetchone()
        found = connection.execute(f"PRAGMA {pragma}").fetchone()
        if found is None or found[0] != expected:
            raise CannotOpen(f"SQLite did not accept {pragma}={value} (it is {found and found[0]})")
    connection.execute(
        "CREATE TEMP TABLE IF NOT EXISTS active (message_id TEXT, next_hop TEXT, "
        "PRIMARY KEY (message_id, next_hop)) WITHOUT ROWID"
    )


def migrate(connection: sqlite3.Connection) -> bool:
    """Bring the schema up to date, each version in one transaction. Returns True for a new database."""
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    steps = migrations()
    sums.know_sums(connection)
    if version > len(steps):
        raise CannotOpen(
            f"the transport database has schema version {version}, this program knows {len(steps)}: "
            "it was written by a newer shadowrelay; run that one"
        )
    for number, script in enumerate(steps[version:], start=version + 1):
        connection.executescript(f"BEGIN IMMEDIATE;\n{script}\nPRAGMA user_version={number};\nCOMMIT;")
    return bool(version == 0)


def begin_incarnation(
    connection: sqlite3.Connection,
    name: ServerName,
    token: Incarnation,
    fresh_id: DatabaseId,
    now: datetime,
    *,
    at_once: int | None = None,
    reading: ClockReading | None = None,
) -> tuple[SqlLedger, Opening]:
    """Record durably that a new incarnation begins, and mark the queue: ask the members before sending.

    ``fresh_id`` becomes the id of a new database. In a long queue this marks the first ``at_once`` messages;
    ``carry_on`` marks the others. ``reading``: what the machine's clocks say; then reckoned time is
    carried on, and ``now`` is not looked at.
    """
    connection.execute("BEGIN IMMEDIATE")
    dropped = _without_damaged(connection)
    ledger = SqlLedger(connection, name)
    ledger.at_once = at_once or ledger.at_once
    _check_lineages(ledger)
    created = not ledger.lineage.database_id
    alive = meta.needed(connection.execute, "alive_at")
    away_since = records.moment(int(alive)) if alive else None
    reckoning = _reckoned(connection, reading, away_since) if reading else None
    now = reckoning.time if reckoning else now
    if created:
        connection.execute(SQL["put_meta"], ("database_id", fresh_id))
        connection.execute(SQL["put_meta"], ("node", name))
    if (owner := meta.needed(connection.execute, "node")) != name:
        connection.execute("ROLLBACK")
        raise CannotOpen(
            f"this transport database belongs to the node {owner}, not to {name}: check the settings name "
            f"and data_dir; if both are right, its disk has damaged it: start with an empty data_dir"
        )
    known = [member.knows_ours for member in ledger.members() if not member.retired]
    tokens = [beginning.incarnation for beginning in ledger.lineage.beginnings]
    if known and "member" not in dropped and all(item in tokens for item in known):
        oldest = min((item for item in known if item), key=tokens.index)
        connection.execute(SQL["prune_incarnations"], (oldest,))
    first_event = connection.execute(SQL["last_event"]).fetchone()[0] + 1
    connection.execute(
        SQL["put_incarnation"], (token, ledger.lineage.sequence, first_event, records.micros(now))
    )
    if meta.needed(connection.execute, LINEAGE_BROKEN):
        connection.execute(SQL["put_meta"], (LINEAGE_FROM, token))
        connection.execute(SQL["drop_meta"], (LINEAGE_BROKEN,))
    connection.execute(SQL["put_meta"], ("clean", "0"))
    ledger.refresh()
    chores.begin(ledger, Chore(ChoreKind.OPENED, name, now))
    count(ledger, now)
    connection.execute("COMMIT")
    ledger.tally.keep()
    return ledger, Opening(created, now, away_since, reckoning=reckoning, dropped=dropped)


def _without_damaged(connection: sqlite3.Connection) -> dict[str, int]:
    """Drop what cannot be believed of members and chores, and count it by table. A damaged key names no row,
    so all rows are written anew.

    This opening asks the members about all mail in transit. A chore would have asked no more, and a member
    whose database was replaced meanwhile tells by its answers. A member introduces itself again.
    """
    sums.know_sums(connection)
    dropped = {}
    for table, make in (("member", member_rows.member_of), ("chore", member_rows.chore_of)):
        rows = connection.execute(SQL[f"{table}s"]).fetchall()
        kept = [row[:-1] for row in rows if _is_sound(make, row)]
        if len(kept) < len(rows):
            dropped[table] = len(rows) - len(kept)
            connection.execute(SQL[f"clear_{table}s"])
            connection.executemany(SQL[f"put_{table}"], kept)
    return dropped


def _is_sound(make: Callable[[sums.SqlRow], object], row: sums.SqlRow) -> bool:
    try:
        make(row)
    except sqlite3.DatabaseError:
        return False
    return True


def _reckoned(connection: sqlite3.Connection, reading: ClockReading, alive_at: datetime | None) -> Reckoning:
    """Carry reckoned time on, and save it."""
    found = reckonings.found(connection, alive_at)
    reckoning = carried_on(found, reading) if found else begun(reading)
    reckonings.put(connection, reckoning)
    return reckoning


def _check_lineages(ledger: SqlLedger) -> None:
    """Check our own lineage and those of the members: an impossible lineage leads to wrong decisions.

    Raises ValueError or another of ``sums.IMPOSSIBLE``.
    """
    known = [member.lineage for member in ledger.members() if member.lineage]
    for lineage in (ledger.lineage, *known):
        texts = [lineage.database_id, *(entry.incarnation for entry in lineage.beginnings)]
        numbers = [*(entry.sequence for entry in lineage.beginnings), lineage.sequence]
        if not all(isinstance(text, str) for text in texts) or numbers != sorted(map(int, numbers)):
            raise ValueError(f"no lineage: {texts}, {numbers}")


def carry_on(ledger: SqlLedger) -> bool:
    """Do one more part of the chores. Returns whether more is left."""
    opened = unfinished(ledger)
    more = chores.carry_on(ledger)
    if opened:
        count(ledger, opened.at)
    return more


def unfinished(ledger: SqlLedger) -> Chore | None:
    """The chore of the opening, if some of it is left."""
    return next((chore for chore in ledger.chores if chore.work is ChoreKind.OPENED), None)


def count(ledger: SqlLedger, now: datetime) -> None:
    """Count the messages that are marked so far. Once all are marked, note that the node is alive: a process
    that ends earlier does not count as a run of the node.
    """
    left = unfinished(ledger)
    ledger.tally.count(ledger.connection, left.after if left else None)
    if left is None:
        ledger.connection.execute(SQL["put_meta"], ("alive_at", str(records.micros(now))))


def empty_the_log(connection: sqlite3.Connection) -> None:
    """Bring the whole write-ahead log into the database file, durably, before anything is acknowledged.

    If an fsync of an earlier process failed, the log has pages that can be read back and are not on disk: the
    kernel takes them for clean and never writes them again. A power cut would end the log there, and lose
    everything committed after them. Raises CannotOpen, sqlite3.Error.
    """
    busy, _, _ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    if busy:
        raise CannotOpen("SQLite could not bring its write-ahead log into the transport database")


def check(connection: sqlite3.Connection, file: Path) -> bool:
    """After an unclean stop, check that the file is whole. Raises sqlite3.DatabaseError (CORRUPT).

    Returns True if the check would take long: then ``check_whole`` makes it later. A very large file is
    checked only if it was found corrupt while the node ran; that check is made here.
    """
    tables = connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'meta'").fetchone()
    if not tables or meta.sound(connection.execute, "clean") == "1":
        return False
    suspected, size = _suspicion(file).exists(), file.stat().st_size
    if size > _SMALL and not suspected:
        return size <= _LARGE
    _examine(connection)
    unsuspect(file)
    return False


def reader(file: Path) -> sqlite3.Connection:
    """Open the file for reading, beside the connection of a running node. The reader takes no lock and
    ignores the write-ahead log, so no transaction can be lost to this second connection (decision 0024).

    While the reader is in use, the log must not be brought into the file.
    """
    return sqlite3.connect(f"file:{quote(str(file))}?immutable=1", uri=True, check_same_thread=False)


def check_whole(connection: sqlite3.Connection) -> None:
    """Check a database that the node already uses, and close the reader. Raises sqlite3.DatabaseError."""
    with closing(connection):
        _examine(connection)


def mark_stopped(
    ledger: SqlLedger, *, checked: bool, now: datetime, reckoning: Reckoning | None = None
) -> None:
    """Mark a clean stop. If the file was not ``checked``, the next start checks it."""
    if reckoning is not None:
        reckonings.put(ledger.connection, reckoning)
    if checked:
        ledger.connection.execute(SQL["put_meta"], ("clean", "1"))
    if unfinished(ledger) is None:
        ledger.connection.execute(SQL["put_meta"], ("alive_at", str(records.micros(now))))


def _examine(connection: sqlite3.Connection) -> None:
    # quick_check takes two thirds of the time, and misses a flipped bit in a key. On such a page, or through
    # such an index, SQLite no longer finds messages that are there.
    found = connection.execute("PRAGMA integrity_check(1)").fetchone()[0]
    if found != "ok":
        raise sums.corrupt(found)


def is_corrupt(error: sqlite3.Error) -> bool:
    code = getattr(error, "sqlite_errorcode", None)
    return code is not None and code & 0xFF in _CORRUPT


def says_malformed(error: sqlite3.Error) -> bool:
    """Did SQLite itself find the file malformed, in the midst of a statement? An index may be all that is
    wrong. A row that this program does not believe has no such error.
    """
    return is_corrupt(error) and getattr(error, "sqlite_errorname", "").startswith("SQLITE_CORRUPT")


def unsuspect(file: Path) -> None:
    """Drop the suspicion: the file was checked, or replaced."""
    _suspicion(file).unlink(missing_ok=True)


def suspect(file: Path) -> None:
    """The database was found corrupt in use: the next start checks all of it."""
    _suspicion(file).touch(mode=0o600)


def _suspicion(file: Path) -> Path:
    return file.with_name("transport.suspect")


def set_aside(file: Path, now: datetime) -> Path:
    """Rename a corrupt database, its log and its contents, durably. The caller holds the lock.

    The contents go first: beside a new database they would be swept as orphans.
    """
    mark = f"corrupt-{now:%Y%m%dT%H%M%S.%fZ}"
    aside = file.with_name(f"{file.name}.{mark}")
    contents = file.with_name(CONTENT)
    if contents.exists():
        contents.rename(contents.with_name(f"{CONTENT}.{mark}"))
        sync_directory(file.parent)
    for suffix in ("-wal", "-shm", ""):
        source = Path(f"{file}{suffix}")
        if source.exists():
            source.rename(f"{aside}{suffix}")
    unsuspect(file)
    sync_directory(file.parent)
    return aside


def sync_directory(directory: Path) -> None:
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def explain(error: sqlite3.Error, file: Path) -> str:
    """Explain an error of SQLite in a sentence for the operator."""
    code = (getattr(error, "sqlite_errorcode", 0) or 0) & 0xFF
    reasons = {
        sqlite3.SQLITE_BUSY: "it is locked: another program has it open; close that one",
        sqlite3.SQLITE_LOCKED: "it is locked: another program has it open; close that one",
        sqlite3.SQLITE_FULL: "the disk is full: free some space and start again",
        sqlite3.SQLITE_IOERR: "the disk reports an I/O error: look at the system's log",
        sqlite3.SQLITE_READONLY: "it is read-only: check owner and permissions",
        sqlite3.SQLITE_PERM: "permission is denied: check owner and permissions",
        sqlite3.SQLITE_CANTOPEN: "it cannot be opened: check that the directory exists and its permissions",
        sqlite3.SQLITE_CORRUPT: "it is corrupt: the next start saves what can be read of it",
        sqlite3.SQLITE_NOTADB: "it is not a database: the next start sets it aside and begins a new one",
    }
    return f"transport database {file}: {reasons.get(code, str(error))} ({error})"
