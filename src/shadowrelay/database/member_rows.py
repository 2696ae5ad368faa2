"""Converts rows about members, and about chores that concern them, to and from what decisions use."""

from __future__ import annotations

from shadowrelay.core.decisions import Chore, ChoreKind, Member
from shadowrelay.core.identifiers import (
    Beginning,
    DatabaseId,
    Incarnation,
    Lineage,
    Mark,
    MessageId,
    ServerName,
)
from shadowrelay.database.records import maybe_moment, micros, moment
from shadowrelay.database.sums import SqlRow, needed


def member_of(row: SqlRow) -> Member:
    """The member in a row, with its sum. Raises sqlite3.DatabaseError (CORRUPT) for a damaged row: a member's
    mark cannot be guessed. The process ends, and the next opening drops the row (``opening``).
    """
    return needed(_member, row, "a row of a member")


def _member(row: SqlRow) -> Member:
    if not isinstance(row[0], str):
        raise ValueError(f"no name: {row[0]!r}")
    lineage = None
    if row[1] is not None:
        beginnings = []
        for entry in row[2].split(","):
            token, _, sequence = entry.partition("@")
            beginnings.append(Beginning(Incarnation(token), int(sequence)))
        lineage = Lineage(DatabaseId(row[1]), tuple(beginnings), int(row[3]))
    return Member(
        name=ServerName(row[0]),
        lineage=lineage,
        knows_ours=None if row[4] is None else Incarnation(row[4]),
        applied=None if row[5] is None else Mark(Incarnation(row[5]), int(row[6])),
        retired=bool(row[7]),
        replaced=None if row[8] is None else Incarnation(row[8]),
        broken_at=maybe_moment(row[9]),
    )


def member_row(member: Member) -> SqlRow:
    lineage, applied = member.lineage, member.applied
    beginnings = lineage and ",".join(f"{entry.incarnation}@{entry.sequence}" for entry in lineage.beginnings)
    return (
        member.name,
        lineage.database_id if lineage else None,
        beginnings,
        lineage.sequence if lineage else None,
        member.knows_ours,
        applied.incarnation if applied else None,
        applied.sequence if applied else None,
        int(member.retired),
        member.replaced,
        member.broken_at and micros(member.broken_at),
    )


def chore_of(row: SqlRow) -> Chore:
    """The chore in a row, with its sum. Raises as ``member_of``: messages would not be asked about."""
    return needed(_chore, row, "a row of a chore")


def _chore(row: SqlRow) -> Chore:
    return Chore(ChoreKind(row[0]), ServerName(row[1]), moment(row[2]), row[3], MessageId(row[4]))


def chore_row(chore: Chore) -> SqlRow:
    return chore.work.value, chore.member, micros(chore.at), chore.step, chore.after
