"""What holders were told: who told it has a row that tells the same, and had it before.

HADISCARD says which database the word came from (S:TellerDb), and how far its log had got (``reference``).
So a word is no proof by itself. Its teller's log bears it out; or it ends before, or has a hole, and then the
word stands for rows that are not at hand; or it has all rows of that time, and denies it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from shadowaudit.core.events import Event
from shadowaudit.core.evidence import Evidence
from shadowaudit.core.replay import Damage, Trace
from shadowaudit.core.text import number_in


@dataclass(slots=True)
class Words:
    """Of recipients whose end no row at hand tells. ``borne_out``: the row may be one that a log lacks.
    ``denied``: the log of each who told it is whole, and has them unsettled. ``alone``: no row says how far
    that log had got, as an older version wrote it.
    """

    borne_out: set[int] = field(default_factory=set)
    denied: set[int] = field(default_factory=set)
    alone: set[int] = field(default_factory=set)


def weighed(
    rows: Iterable[Event], recipients: set[int], traces: Mapping[str, Trace], evidence: Evidence
) -> Words:
    """``rows``: HADISCARD, all that were told of the message. ``recipients``: those without an end."""
    found = Words()
    rows = tuple(rows)
    heard: dict[str, set[int]] = defaultdict(set)
    for row in rows:
        heard[row.database] |= set(row.recipients)
    for row in rows:
        named = recipients & set(row.recipients)
        teller, told = row.entries.get("TellerDb", ""), number_in(row.reference.rpartition(":")[2])
        if not teller or told < 0:
            found.alone |= named
            continue
        trace = traces.get(teller)
        if _may_lack(teller, told, trace, evidence):
            found.borne_out |= named
            continue
        denied = _denied(named, trace)
        found.denied |= denied
        found.borne_out |= named - denied - heard[teller]  # what the teller was told itself is a word, too
    found.denied -= found.borne_out
    found.alone -= found.borne_out | found.denied
    return found


def _may_lack(name: str, told: int, trace: Trace | None, evidence: Evidence) -> bool:
    """May rows about the message be missing, up to that row of that database?"""
    database = evidence.databases.get(name)
    if database is None or not database.whole or database.rolled_back or database.last < told:
        return True
    return not (database.from_start or (trace is not None and trace.begun))


def _denied(named: set[int], trace: Trace | None) -> set[int]:
    """Those that who told of them had unsettled at its last row, or of which it never had a row.

    A node whose rows are damaged knows what it was told, and writes no row of that.
    """
    if trace is None:
        return named
    return set() if trace.damage is Damage.ROWS else named & trace.left
