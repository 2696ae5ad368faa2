"""A bit of each column of each table is another one: it is found, or it is said here why it does no harm.

The columns are those of the schema, so a new table or column cannot be forgotten.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from opened import DATABASE, NOW, OTHER, OTHER_DATABASE, OWN, fresh_id, incarnation, message, shadow
from opened import database as transport

from shadowmailbox.delivered_to import Delivered, DeliveredTo
from shadowrelay import in_hand
from shadowrelay.core.decisions import (
    Chore,
    ChoreKind,
    Content,
    DamagedRow,
    Decision,
    DiscardEvent,
    HopShadow,
    Member,
    Outcome,
    SaveCopy,
    SaveDamaged,
    Tombstone,
    Unacknowledged,
    Verdict,
    VerdictKind,
)
from shadowrelay.core.delivery.mta_sts import StsMode, StsPolicy
from shadowrelay.core.digests import of_content, of_envelope
from shadowrelay.core.filtering import Filter
from shadowrelay.core.hops import Handed, HopPeer
from shadowrelay.core.identifiers import (
    Beginning,
    DatabaseId,
    Lineage,
    Mark,
    MessageId,
    NextHop,
    RequestId,
    ServerName,
)
from shadowrelay.core.jobs import Job, JobProgress, Verb
from shadowrelay.core.messages import AsSent, Copy, Digests, Holder, HolderState, Status
from shadowrelay.core.reckoning import Endings
from shadowrelay.core.requests import Progress, Request, Selector
from shadowrelay.core.retirements import RetiredMember
from shadowrelay.core.suspensions import Suspension
from shadowrelay.core.switches import Switch
from shadowrelay.core.tracking import Receive
from shadowrelay.core.values import replace
from shadowrelay.database import (
    announced,
    meta,
    node_workers,
    opening,
    outbox,
    poison,
    records,
    scrubbing,
    sts_policies,
)
from shadowrelay.database.content import stored
from shadowrelay.database.ledger import LINEAGE_FROM, SQL, SqlLedger
from shadowrelay.database.summed import OF_MESSAGES, SumRound
from shadowrelay.database.sums import IMPOSSIBLE
from shadowrelay.service.crashes import NOTE, Crashes
from shadowrelay.wire.announcements import Announcement

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "sums.md"

QUEUED = message(
    "inside",
    "outside",
    holders=(Holder(OTHER, OTHER_DATABASE, Mark(incarnation(7), 4), 1, HolderState.HOLDING),),
)
HELD = shadow("inside", check_at=NOW, pending=None)
ALIKE = message("inside", content_of=QUEUED.id)
BAD = message("inside")
GONE, REVOKED = fresh_id(), fresh_id()
HOP = ServerName("hop.example.com")
JOB = RequestId("01900000-0000-7000-8000-00000000aaaa")
BODY = b"Subject: x\r\n\r\nhello\r\n"
SENT = AsSent("192.0.2.1", of_content(b"envelope"), of_content(BODY))
COPIES = (QUEUED, HELD, ALIKE, BAD)
PEER = Lineage(DatabaseId("6f0d7a3e-0000-4000-8000-000000000009"), (Beginning(incarnation(9), 0),), 5)
"""One database, in which every table has rows."""


def with_digests(copy: Copy) -> Copy:
    return replace(copy, digests=Digests(of_content(BODY), of_envelope(copy.envelope, copy.recipients)))


def shared() -> tuple[Any, ...]:
    by: dict[str, Any] = {"operator": "anna", "reason": "why", "changed_by": OWN, "changed_at": NOW}
    return (
        Request(id=JOB, number=1, made_by=OWN, made_at=NOW, selector=Selector(until=NOW, since=NOW), **by),
        Progress(request=JOB, node=OWN, owner=OTHER),
        Job(id=JOB, verb=Verb.SUSPEND, filter=Filter(sender="a"), made_by=OWN, made_at=NOW, **by),
        JobProgress(job=JOB, node=OWN),
        Suspension(id=JOB, next_hop=NextHop("inside"), suspended=True, **by),
        Switch(id=JOB, name="shadow_redundancy_enabled", value=True, against=False, **by),
    )


def filled(ledger: SqlLedger) -> None:
    def apply(*writes: Any, events: tuple[Any, ...] = ()) -> None:
        ledger.apply(Decision(None, writes, events))

    content = Content(data=BODY)
    for copy in (QUEUED, HELD, BAD):
        digested = with_digests(copy)
        apply(SaveCopy(None, digested, content), events=(Receive(at=NOW, copy=digested),))
    apply(SaveCopy(None, with_digests(ALIKE), Content(of=QUEUED.id)))
    apply(SaveDamaged(DamagedRow(BAD.id, NOW, "why", ((1, Status.DELIVERED),), set_aside=False)))
    told = Verdict(QUEUED.id, 1, VerdictKind.DELIVERED, "", (1,), NOW)
    ordered = Verdict(HELD.id, 1, VerdictKind.SUSPENDED, "", (1,), NOW)
    apply(*(DiscardEvent(OTHER_DATABASE, verdict, NOW) for verdict in (told, told, ordered)))
    apply(
        Outcome(GONE, 1, (1, 2), NOW + timedelta(days=9)),
        Tombstone(REVOKED, OTHER, 1, 1, NOW + timedelta(days=9)),
    )
    member = Lineage(OTHER_DATABASE, (Beginning(incarnation(7), 0),), 9)
    apply(Member(OTHER, member, incarnation(1), Mark(incarnation(7), 3), False, incarnation(6), NOW))
    apply(Chore(ChoreKind.RETURNED, OTHER, NOW, 1, MessageId("a")), *shared())
    apply(
        HopPeer(HOP, PEER, incarnation(1), Mark(incarnation(9), 2)),
        Handed(QUEUED.id, HOP, PEER.database_id, GONE, (4, 5)),
        HopShadow(QUEUED.id, HOP, PEER.database_id, Mark(incarnation(9), 2), (1,), NOW),
        Unacknowledged(QUEUED.id, SENT, NOW),
    )
    poison.count(ledger, poison.Crash("note", "why", NOW), [HELD.id])
    scrubbing.note(ledger, scrubbing.ScrubPlace(HELD.id, NOW))
    announced.keep(
        ledger,
        Announcement(serial=1, name="mx3.example.org", address="10.0.0.3:2525", site="", host="mx3"),
        "signed",
    )
    node_workers.keep(ledger, OTHER, 4)
    policy = StsPolicy(StsMode.ENFORCE, ("a.example.net", "*.example.net"), timedelta(days=7), "1", NOW)
    sts_policies.keep(ledger, "example.net", policy, NOW, Endings(NOW))


def image() -> bytes:
    """The file of that database. Its tables have no constraints any more: a disk does not know them."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        opening.migrate(connection)
        opening.begin_incarnation(connection, OWN, incarnation(0), DATABASE, NOW)
        ledger, _ = opening.begin_incarnation(connection, OWN, incarnation(1), DATABASE, NOW)
        filled(ledger)
        put = connection.execute
        put(SQL["put_meta"], ("clean", "1"))
        put(SQL["put_meta"], (LINEAGE_FROM, incarnation(1)))
        put("PRAGMA writable_schema = ON")
        put(
            "UPDATE sqlite_master SET sql = replace(replace(sql, ' NOT NULL', ''), ') STRICT,', ')')"
            " WHERE type = 'table'"
        )
        put("PRAGMA writable_schema = OFF")
        return connection.serialize()


IMAGE = image()


@contextmanager
def database() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        connection.deserialize(IMAGE)
        connection.execute("PRAGMA temp_store = memory")
        connection.execute("PRAGMA ignore_check_constraints = ON")
        yield connection


def ids(ledger: SqlLedger, table: str, column: str) -> list[Any]:
    return [row[0] for row in ledger.connection.execute(f"SELECT {column} FROM {table}").fetchall()]


def of_lineage(ledger: SqlLedger) -> list[object]:
    return [ledger.lineage, *ledger.openings]


def scrub_place(ledger: SqlLedger) -> list[object]:
    place = scrubbing.place(ledger)
    return [place.behind or None, place.complete_at]


def contents(ledger: SqlLedger) -> list[object]:
    """The messages whose octets are those of their digests."""
    return [
        one.id
        for one in COPIES
        if of_content((stored(ledger, one.id) or Content()).data or b"") == of_content(BODY)
    ]


def of_damaged(ledger: SqlLedger) -> list[object]:
    found = ledger.damaged(BAD.id)
    if found is None:
        return []
    why = [] if found.what == records.UNREADABLE else [(found.what, found.found_at)]
    return ["damaged", *found.settled, *why, *(["set aside"] if found.set_aside else [])]


def about(
    read: Callable[[SqlLedger, Any], Any], table: str, column: str
) -> Callable[[SqlLedger], list[object]]:
    """What is read about each id that is in the table."""

    def all_of(ledger: SqlLedger) -> list[object]:
        found = [read(ledger, one) for one in ids(ledger, table, column) if isinstance(one, str)]
        return [one for one in found if one]

    return all_of


META = ("clean", "node", "alive_at", poison.COUNTED)

READ: dict[str, Callable[[SqlLedger], list[object]]] = {
    "meta": lambda ledger: [
        *(meta.sound(ledger.connection.execute, key) for key in META),
        *scrub_place(ledger),
        *of_lineage(ledger),
    ],
    "incarnation": of_lineage,
    "sqlite_sequence": of_lineage,
    "member": lambda ledger: list(ledger.members()),
    "chore": lambda ledger: list(ledger.chores),
    "message": lambda ledger: [copy for one in COPIES if (copy := ledger.copy(one.id))],
    "content": contents,
    "discard_event": lambda ledger: [
        *(
            event
            for addressee in ids(ledger, "discard_event", "addressee")
            for event in ledger.events_for(addressee, 9)
        ),
        *(
            one
            for message_id in ids(ledger, "discard_event", "message_id")
            for one in ledger.unacknowledged_orders(message_id)
            if one
        ),
    ],
    "outcome": about(SqlLedger.outcome, "outcome", "message_id"),
    "tombstone": about(SqlLedger.tombstone, "tombstone", "message_id"),
    "outbox": lambda ledger: (
        [
            (row.sequence, tuple(row.columns.items()))
            for one in COPIES
            for row in outbox.unwritten(ledger, one.id)
        ]
        + of_lineage(ledger)
    ),
    "damaged": of_damaged,
    "hop_peer": lambda ledger: [*ledger.hop_rows.peers_but(OWN), ledger.hop_peer(HOP)],
    "handed": lambda ledger: [ledger.handed(QUEUED.id), *ledger.handed_as(PEER.database_id, GONE)],
    "hop_shadow": lambda ledger: list(ledger.hop_shadows_of(QUEUED.id)),
    "unacknowledged": lambda ledger: list(ledger.unacknowledged(SENT, NOW - timedelta(days=1))),
    "record": lambda ledger: [
        (one, one.kept_at, one.age)
        for kind in (Request, Job, Suspension, Switch, RetiredMember)
        for one in ledger.records(kind)
    ],
    "record_part": lambda ledger: [*ledger.progress(JOB), *ledger.job_progress(JOB)],
    "poison": about(poison.crashes, "poison", "message_id"),
    "announced_member": lambda ledger: list(announced.kept(ledger)),
    "node_workers": lambda ledger: list(node_workers.kept(ledger).items()),
    "sts_policy": about(sts_policies.kept, "sts_policy", "domain"),
}
"""What decisions read of each table. Recipients and holders are read with their message."""

READ |= {"recipient": READ["message"], "holder": READ["message"], "shared_content": contents}


UNSUMMED = "a row without its sum is one of a version before sums: all that it says is as it was written"

HARMLESS = {
    ("content", "path"): "octets in the row count, whatever path is beside them; else the digest differs",
    (
        "holder",
        "message_id",
    ): "the message counts as exposed and is repaired; the holder asks, and is recorded again",
    (
        "meta",
        "key",
    ): "of lineage_from: every member that met this node since its loss knows a later incarnation",
    ("message", "exposed"): "derived: compared whenever the message is read, and written again",
    ("recipient", "due_at"): "derived: compared when the message is claimed, and by the scrub",
    ("sqlite_sequence", "name"): "as its number",
    (
        "sqlite_sequence",
        "seq",
    ): "numbers go on behind the last row and the last incarnation; members and the audit see a gap, or "
    "a database that was put back",
    (
        "outbox",
        "sequence",
    ): "the row says that it is damaged, and later ones go on behind its number: the audit sees a gap",
}
"""What is read then though it was not written, or that nothing is noticed; and why that does no harm."""


def columns(connection: sqlite3.Connection) -> dict[str, list[tuple[str, str]]]:
    """Each table with its columns, and which of them are its key."""
    found: dict[str, list[tuple[str, str]]] = {}
    tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
    for (table,) in sorted(tables):
        found[table] = [
            (row[1], row[2]) for row in connection.execute(f"PRAGMA table_xinfo({table})").fetchall()
        ]
    return found


def key_of(connection: sqlite3.Connection, table: str) -> list[str]:
    rows = connection.execute(f"PRAGMA table_xinfo({table})").fetchall()
    return [row[1] for row in sorted(rows, key=lambda row: row[5]) if row[5]] or [rows[0][1]]


with database() as there:
    TABLES = sorted(columns(there))


def flipped(value: object, kind: str) -> list[object]:
    """What a disk may make of a value."""
    match value:
        case int():
            return [value ^ 1, value ^ (1 << 20), None]
        case str() if value:
            octets = value.encode()
            places = {0, len(octets) // 2, len(octets) - 1}
            spoilt = [octets[:at] + bytes([octets[at] ^ 1]) + octets[at + 1 :] for at in sorted(places)]
            return [*(one.decode("utf-8", "replace") for one in spoilt), "", None]
        case bytes():
            return [bytes([value[0] ^ 1]) + value[1:], value[:-1], None]
        case _:
            return [1 if kind == "INTEGER" else "a"]


Flip = tuple[str, tuple[Any, ...], object]


def flips(connection: sqlite3.Connection, table: str) -> list[Flip]:
    """Column, key of the row, and the new value. The rows of a damaged message are believed by nobody. Ids
    of messages differ by more than a bit, though these here are numbered.
    """
    key = key_of(connection, table)
    others = {one for (one,) in connection.execute("SELECT id FROM message")}
    found = []
    for column, kind in columns(connection)[table]:
        rows = connection.execute(f"SELECT {column}, {', '.join(key)} FROM {table}").fetchall()
        assert rows, f"{table} has no row: put one there"
        those = [row for row in rows if row[1] != BAD.id or table == "damaged"]
        news = [(row, new) for row in those for new in flipped(row[0], kind) if new not in others]
        found += [(column, row[1:], new) for row, new in news]
    return found


def read(ledger: SqlLedger, table: str) -> set[str]:
    return {repr(one) for one in READ[table](ledger) if one is not None}


def as_it_runs(connection: sqlite3.Connection, table: str) -> set[str]:
    return read(SqlLedger(connection, OWN), table)


def at_a_start(connection: sqlite3.Connection, table: str) -> set[str]:
    ledger, found = opening.begin_incarnation(connection, OWN, incarnation(2), OTHER_DATABASE, NOW)
    return read(ledger, table) | ({f"alive {found.away_since}"} if found.away_since else set())


Look = Callable[[sqlite3.Connection, str], set[str]]
LOOKS: dict[Look, set[str]] = {
    as_it_runs: {*READ},
    at_a_start: {"meta", "incarnation", "sqlite_sequence", "member", "chore", "message", "outbox"},
}
"""When the damage is looked at, and of which tables: a start changes these, or reads them."""


def planted(connection: sqlite3.Connection, table: str, flip: Flip) -> bool:
    column, key, new = flip
    where = " AND ".join(f"{one} IS ?" for one in key_of(connection, table))
    try:
        return connection.execute(f"UPDATE {table} SET {column} = ? WHERE {where}", (new, *key)).rowcount == 1
    except sqlite3.IntegrityError:  # a key that there is, or none at all
        return False


def outcome_of(table: str, flip: Flip, look: Look, sound: set[str]) -> str:
    """What comes of it: nothing to see, or what is read though it was never written, or ``found``."""
    with database() as connection:
        if not planted(connection, table, flip):
            return "found"
        try:
            after = look(connection, table)
        except (sqlite3.DatabaseError, opening.CannotOpen, *IMPOSSIBLE):
            return "found"  # the database is set aside, and a new one begun
    return f"read: {min(after - sound)}" if after - sound else "found" if after != sound else "nothing to see"


WITHOUT_SUMS = {"content", "shared_content", "sqlite_sequence"}
"""What is in these tables is compared with the digests of messages, or is SQLite's own."""


@pytest.mark.parametrize("table", TABLES)
def test_a_flipped_bit_of_each_column_is_found_or_does_no_harm(table: str) -> None:
    wrong: dict[str, set[str]] = {}
    with database() as connection:
        there = flips(connection, table)
    for look in (one for one, tables in LOOKS.items() if table in tables):
        with database() as connection:
            sound = look(connection, table)
        assert sound, f"nothing is read of {table}"
        for flip in there:
            column, _, new = flip
            if column == "row_sum" and new is None:
                continue  # UNSUMMED
            came = outcome_of(table, flip, look, sound)
            if came.startswith("read") or (came == "nothing to see" and look is as_it_runs):
                wrong.setdefault(column, set()).add(came)
    declared = {column for name, column in HARMLESS if name == table}
    assert wrong.keys() == declared, wrong


@pytest.mark.parametrize("table", [one for one in TABLES if one not in {*OF_MESSAGES, *WITHOUT_SUMS}])
def test_a_scrub_finds_a_flipped_bit_of_each_column(table: str) -> None:
    """Of each row that has a sum; but for those that an opening needs, which are found by it."""
    with database() as connection:
        there = flips(connection, table)
    missed = {flip[0] for flip in there if flip[2] is not None and not scrubbed(table, flip)}
    assert missed == set()


def scrubbed(table: str, flip: Flip) -> int:
    """How many damaged rows a scrub finds."""
    with database() as connection:
        if not planted(connection, table, flip):
            return 1
        found = SumRound()
        try:
            ledger = SqlLedger(connection, OWN)
            while not found.done:
                found.part(ledger, 2, NOW)
        except sqlite3.DatabaseError:
            return 1
        return found.damaged


async def test_a_flipped_bit_of_what_a_mailbox_server_delivered_costs_one_more_delivery(
    tmp_path: Path,
) -> None:
    """It never takes a message for one that was delivered."""
    key = Delivered("<one@example.org>", "today", "anna@example.net")
    file = tmp_path / "delivered_to.db"
    table = await DeliveredTo.open(file, track=timedelta(hours=1))
    await table.record([key], NOW)
    await table.close()
    with closing(sqlite3.connect(file)) as connection:
        rows = connection.execute("SELECT * FROM delivered_to").fetchall()
        names = [row[1] for row in connection.execute("PRAGMA table_info(delivered_to)")]
    for column, value in zip(names, rows[0], strict=True):
        for new in flipped(value, "")[:-1]:
            with closing(sqlite3.connect(file)) as connection, connection:
                connection.execute(f"UPDATE delivered_to SET {column} = ?", (new,))
            table = await DeliveredTo.open(file, track=timedelta(hours=1))
            others = [
                replace(key, message_id="<pne@example.org>"),
                replace(key, recipient="bnna@example.net"),
            ]
            assert await table.known([key, *others], NOW) == frozenset(), (column, new)
            assert await table.known([key], NOW + timedelta(hours=2)) == frozenset(), (column, new)
            await table.close()
            with closing(sqlite3.connect(file)) as connection, connection:
                connection.execute(f"UPDATE delivered_to SET {column} = ?", (value,))


def test_a_flipped_bit_of_the_file_of_what_is_in_hand_names_no_other_message(tmp_path: Path) -> None:
    noted = in_hand.InHand.on_disk(tmp_path)
    noted.take(QUEUED.id)
    file = tmp_path / in_hand.FILE
    octets = file.read_bytes()
    others = {one.id for one in COPIES} - {QUEUED.id}
    far = {one for one in others if sum(a != b for a, b in zip(one, QUEUED.id, strict=True)) > 1}
    for at in range(len(QUEUED.id) + 1):
        for bit in range(8):
            file.write_bytes(octets[:at] + bytes([octets[at] ^ (1 << bit)]) + octets[at + 1 :])
            assert not in_hand.left(tmp_path) & far
    assert len(in_hand.left(tmp_path)) == 1


async def test_a_flipped_bit_of_the_note_of_a_crash_counts_one_crash_of_what_was_in_hand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shadowrelay.signals.fatal_to", lambda _: None)
    note = b"Unhandled error: KeyError: 'x'\nTraceback ..."

    def counted(ledger: SqlLedger) -> list[tuple[str, int]]:
        return ledger.connection.execute("SELECT message_id, crashes FROM poison ORDER BY 1").fetchall()

    async with transport(tmp_path) as found:
        for number, at in enumerate(range(len(note))):
            noted = in_hand.InHand.on_disk(tmp_path)
            noted.take(taken := f"m{number:04}")
            spoilt = note[:at] + bytes([note[at] ^ (1 << at % 8)]) + note[at + 1 :]
            (tmp_path / NOTE).write_bytes(spoilt)
            await Crashes(tmp_path).count(found, NOW)
            assert (await found.transact(counted))[number:] == [(taken, 1)]
            await Crashes(tmp_path).count(found, NOW)
            assert (await found.transact(counted))[number:] == [(taken, 1)]


def documented(heading: str) -> list[tuple[str, str]]:
    """The first two cells of each row of the table below that heading."""
    text = PAGE.read_text("utf-8").partition(f"## {heading}")[2].partition("\n## ")[0]
    rows = [line.strip("|").split("|")[:2] for line in text.splitlines() if line.startswith("| `")]
    return [(row[0].strip(), row[1].strip()) for row in rows]


def test_the_page_of_sums_tells_of_every_table_and_of_what_does_no_harm() -> None:
    named = [name for cell, _ in documented("Found") for name in re.findall(r"`(\w+)`", cell)]
    assert sorted(named) == sorted({*TABLES, "delivered_to"} - {"sqlite_sequence"})
    said = dict(documented("Harmless"))
    assert said == {f"`{table}.{column}`": reason for (table, column), reason in HARMLESS.items()} | {
        "`row_sum`": UNSUMMED,
        "`in-hand`": "a message that was in hand at a crash is not counted once; no other message is named",
        "`crash`": "the crash counts once, for what was in hand; only the words of the note are others. A "
        "note that could not be emptied, and changes then, counts twice",
    }
