"""What runs again and again reads no table that keeps messages for days: SQLite says how it would search."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from opened import database

from shadowrelay.database import job_selection
from shadowrelay.database.ledger import SQL, SqlLedger
from shadowrelay.database.selectors import know_folded

SMALL = {
    "json_each",
    "member",
    "chore",
    "record",
    "record_part",
    "poison",
    "incarnation",
    "sqlite_sequence",
    "CONSTANT",
    "hop",
    "temp.active",
}
"""Tables of few rows, and what is no table."""

ALLOWED = {
    "hop_peers_but": "a handful of peers, and only when one of them introduces itself",
    "any_handed": "it ends at the first row, and runs only when a database is opened",
    "hop_shadow_counts": "only when a database is opened, and after a rollback",
    "outbox_about": "only when rows are damaged; rows leave the outbox within seconds",
    "due_nowhere": "only when the next hop of a message that is due cannot be read",
    "expire_events": "events are acknowledged within seconds: there are many only while a member is away",
}
SCAN = re.compile(r"^SCAN (\S+)(?: USING (?:COVERING )?INDEX (\S+))?")
ALIASES = {"m": "message", "r": "recipient", "h": "holder", "a": "temp.active"}
IN_TRANSIT = {"message_shadow", "message_transit", "message_confirm", "message_exposed", "recipient_due"}
"""Indexes that have nothing of Safety Net in them."""


def scanned(plan: list[str]) -> set[str]:
    """The large tables, or indexes, that such a plan reads from end to end."""
    found = set()
    for step in plan:
        if scan := SCAN.match(step):
            table, index = ALIASES.get(scan[1], scan[1]), scan[2]
            few = table in SMALL or table.startswith("(")  # what a LIMIT inside has found
            if not few and index not in IN_TRANSIT:
                found.add(index or table)
    return found


def test_a_scan_is_told_from_a_search() -> None:
    assert scanned(["SCAN m", "SEARCH r USING PRIMARY KEY (message_id=?)"]) == {"message"}
    assert scanned(["SCAN message USING COVERING INDEX message_settled"]) == {"message_settled"}
    assert scanned(["SCAN r USING COVERING INDEX recipient_due", "SCAN member"]) == set()


@pytest.mark.parametrize("name", sorted(SQL))
async def test_no_query_of_a_stage_reads_all_that_is_kept(tmp_path: Path, name: str) -> None:
    async with database(tmp_path) as found:
        query = SQL[name]
        named = dict.fromkeys(re.findall(r":(\w+)", query), 0)
        count = len(set(re.findall(r"\?\d+", query))) or query.count("?")
        rows = await found.transact(
            lambda ledger: ledger.connection.execute(
                f"EXPLAIN QUERY PLAN {query}", named or (0,) * count
            ).fetchall()
        )
    cleared = re.fullmatch(r"DELETE FROM (\w+);", query.strip())  # which has no plan
    assert rows or query.startswith("INSERT") or (cleared and cleared[1] in SMALL)
    assert bool(scanned([row[3] for row in rows])) == (name in ALLOWED)


@pytest.mark.parametrize("name", ["page", "taken", "promoting", "sending"])
async def test_the_walk_of_a_job_reads_no_more_than_the_messages_that_it_looks_at(
    tmp_path: Path, name: str
) -> None:
    async with database(tmp_path) as found:
        query = job_selection.SQL[name]
        named = dict.fromkeys(re.findall(r":(\w+)", query), 0)

        def plan(ledger: SqlLedger) -> list[str]:
            know_folded(ledger.connection)
            given = named or (0,) * query.count("?")
            rows = ledger.connection.execute(f"EXPLAIN QUERY PLAN {query}", given)
            return [row[3] for row in rows]

        steps = await found.transact(plan)
    assert not any("TEMP B-TREE" in step for step in steps), steps
    assert scanned(steps) <= {"message_open"}, steps  # it has only what members are asked about
    if name == "page":
        assert any("id>?" in step for step in steps), steps


@pytest.mark.parametrize("name", ["any_unclaimed", "unchecked", "check_copies"])
async def test_copies_held_for_an_owner_are_found_by_what_is_asked_of_them(tmp_path: Path, name: str) -> None:
    """Read from end to end, a million of them silence the node for seconds."""
    async with database(tmp_path) as found:
        query = SQL[name]
        given: object = ("mx2",) if "?1" in query else {"owner": "mx2", "at": 0, "most": 1}
        rows = await found.transact(
            lambda ledger: ledger.connection.execute(f"EXPLAIN QUERY PLAN {query}", given).fetchall()
        )
    steps = [row[3] for row in rows if "message_shadow" in row[3]]
    assert len(steps) == 2
    assert all("check_at" in step for step in steps), steps


async def test_the_look_for_late_mail_reads_no_row_of_a_young_message(tmp_path: Path) -> None:
    """It is made each second while a hop rests, over a thousand recipients."""
    async with database(tmp_path) as found:
        query = SQL["late_ones"]
        named = dict.fromkeys(re.findall(r":(\w+)", query), 0)
        rows = await found.transact(
            lambda ledger: ledger.connection.execute(f"EXPLAIN QUERY PLAN {query}", named).fetchall()
        )
    steps = [row[3] for row in rows]
    assert all("COVERING INDEX" in step for step in steps[:2]), steps
