"""The files of one database in the order of its lives, and whether a log that is still written goes on."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise

from shadowaudit.core.facts import FileFacts, Opened


def lives_of(files: Sequence[FileFacts]) -> list[list[FileFacts]]:
    """The files by incarnation, in the order of life: by sequence, and a life set back by its clock."""
    lives: dict[str, list[FileFacts]] = defaultdict(list)
    for file in sorted(files, key=lambda one: (one.first, one.begins)):
        lives[file.boot].append(file)
    ordered = sorted(lives.values(), key=lambda life: life[0].first)
    # A database that was set back gives numbers out again: then only the node's own clock tells the order.
    return sorted(lives.values(), key=lambda life: life[0].begins) if forks(ordered) else ordered


def forks(lives: Sequence[Sequence[FileFacts]]) -> list[FileFacts]:
    """The last file of each life whose end was given up: the next one gives its numbers out again."""
    return [before[-1] for before, after in pairwise(lives) if before[-1].last >= after[0].first]


def goes_on(opened: Opened, files: Sequence[FileFacts]) -> bool:
    """Is the log that the node still writes the next of these, or one that was closed meanwhile?"""
    closed = any((opened.boot, opened.first) == (one.boot, one.first) for one in files)
    return closed or opened.first == lives_of(files)[-1][-1].last + 1


def new_log(
    node: str, opened: Iterable[Opened], databases: Mapping[str, Sequence[FileFacts]]
) -> Opened | None:
    """A log that this node still writes, of a database that has no closed one here."""
    mine = [files for files in databases.values() if files[0].node == node]
    return next(
        (one for one in opened if one.node == node and not any(goes_on(one, files) for files in mine)), None
    )


def strays(
    opened: Iterable[Opened], databases: Mapping[str, Sequence[FileFacts]], lost: Container[str]
) -> Iterator[Opened]:
    """Logs still written that are neither a database's first, nor go on where one ends that is here.

    Of a node with a database that was ``lost`` one may go on with an older state of it.
    """
    for one in opened:
        mine = {name: files for name, files in databases.items() if files[0].node == one.node}
        back = any(
            name in lost and any(file.last >= one.first for file in files) for name, files in mine.items()
        )
        if one.first > 1 and not back and not any(goes_on(one, files) for files in mine.values()):
            yield one
