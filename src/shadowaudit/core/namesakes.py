"""Two nodes with one name: logs of two clusters in one directory, or a node that was cloned.

A server has one database at a time. A new one takes the place of one that was lost, and may give it back.
So two databases whose incarnations (one process each) overlap in time have two servers. But a clock that is
set back makes the rows of a successor look earlier. What is sound:

- two groups of databases of which none names one of the other group, each of several servers: no server of
  the one ever knew the other's. One cluster that lost all its disks at once and whose clocks were set back,
  too, looks the same, and its two lives are to be audited by themselves as well
- any two databases whose rows are among each other's for longer than clocks are set back (``SET_BACK``).
  ``--lost`` says of one of them that the other took its place
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterator, Mapping, Sequence
from itertools import combinations, pairwise

from shadowaudit.core.evidence import Gap
from shadowaudit.core.facts import FileFacts, Flavour

SET_BACK = 2 * 3_600_000
"""Milliseconds: so far a clock may have been set back, and not further."""

Lives = Sequence[Sequence[FileFacts]]


def namesakes(lives: Mapping[str, Lives], lost: Container[str]) -> Iterator[Gap]:
    """One for each server of which two databases cannot be one node's. ``lives``: of each database, its files
    by incarnation. Exchange's servers name none.
    """
    lives = {name: some for name, some in lives.items() if some[0][0].flavour == Flavour.RELAY}
    group = _groups(lives)
    servers: dict[str, set[str]] = defaultdict(set)
    by_server: dict[str, list[str]] = defaultdict(list)
    for database in sorted(lives):
        server = lives[database][0][0].node
        servers[group[database]].add(server)
        by_server[server].append(database)
    for server, databases in sorted(by_server.items()):
        for one, other in combinations(databases, 2):
            apart = group[one] != group[other] and min(len(servers[group[name]]) for name in (one, other)) > 1
            if apart and _overlap(lives[one], lives[other]) > 0:
                what, so = "two clusters have a node of this name", "Audit the directory of each by itself"
            elif one not in lost and other not in lost and _among(lives[one], lives[other]):
                what = "two nodes have this name"
                so = (
                    "Audit the directory of each by itself. If it is one, and its clock was set back, say "
                    f"--lost and the database that the other replaced: {one} or {other}"
                )
            else:
                continue
            yield Gap(
                f"{what}: databases {one} and {other} wrote at the same time",
                f"{server}, {lives[one][0][0].path} and {lives[other][0][0].path}",
                f"what one of them did is taken for the other's. {so}",
            )
            break


def _groups(lives: Mapping[str, Lives]) -> dict[str, str]:
    """Each database, and one that stands for all that name each other, or name a common one."""
    above: dict[str, str] = {}

    def top(name: str) -> str:
        while (up := above.setdefault(name, name)) != name:
            above[name] = name = above[up]
        return name

    for database, some in lives.items():
        for file in (file for life in some for file in life):
            for other in (*file.databases, *file.promoted, *file.set_back, *file.witnessed):
                above[top(other)] = top(database)
    return {database: top(database) for database in lives}


def _span(life: Sequence[FileFacts]) -> tuple[int, int]:
    return min(file.begins for file in life), max(file.ends for file in life)


def _overlap(one: Lives, other: Lives) -> int:
    """Milliseconds that an incarnation of one and one of the other have in common."""
    spans = [(_span(a), _span(b)) for a in one for b in other]
    return max(min(a[1], b[1]) - max(a[0], b[0]) for a, b in spans)


def _among(one: Lives, other: Lives) -> bool:
    """Has an incarnation of each rows among those of the other's, for longer than a clock is set back?"""
    return any(
        _inside(a, b) and _inside(b, a) and _overlap([a], [b]) > SET_BACK
        for a in filter(_steady, one)
        for b in filter(_steady, other)
    )


def _inside(life: Sequence[FileFacts], other: Sequence[FileFacts]) -> bool:
    begin, end = _span(other)
    return any(begin < moment < end for file in life for moment in (file.begins, file.ends))


def _steady(life: Sequence[FileFacts]) -> bool:
    """Did its clock go on, but for such a step?"""
    moments = [moment for file in life for moment in (file.begins, file.ends)]
    return all(after >= before - SET_BACK for before, after in pairwise(moments))
