"""Keeps the announcements of members, as they were signed."""

from __future__ import annotations

from shadowrelay.core.identifiers import ServerName
from shadowrelay.database import sums
from shadowrelay.database.ledger import SqlLedger
from shadowrelay.database.queries import load
from shadowrelay.wire.announcements import Announcement

SQL = load("announced.sql")

MOST = 100
"""Members that can be announced to a node, at most."""


class NotKept(Exception):
    """The announcement is not kept; the text says why."""


def kept(ledger: SqlLedger) -> list[str]:
    """All announcements, as they were signed."""
    rows = ledger.connection.execute(SQL["announced"]).fetchall()
    return [str(row[2]) for row in rows if sums.sound(sums.one, row)]


def keep(ledger: SqlLedger, announcement: Announcement, signed: str) -> bool:
    """Keep an announcement. False if it is kept already. Raises NotKept: the member was retired, a later
    announcement of it is kept, or there are too many.
    """
    name = ServerName(announcement.name)
    member = ledger.member(name)
    if member is not None and member.retired:
        raise NotKept(f"{name} was retired here, and does not come back under this name")
    run = ledger.connection.execute
    row = run(SQL["announced_of"], (name,)).fetchone()
    known = row and sums.sound(sums.one, row)  # a damaged row is none: the announcement takes its place
    if known and known[1] == announcement.serial:
        return False
    if known and known[1] > announcement.serial:
        raise NotKept(f"a later announcement of {name} is known here")
    if row is None and run(SQL["count_announced"]).fetchone()[0] >= MOST:
        raise NotKept(f"{MOST} members were announced already: put them into the settings file")
    run(SQL["put_announced"], (name, announcement.serial, signed))
    return True
