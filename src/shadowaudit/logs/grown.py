"""Files that count: no copies, and of a log of Exchange that was collected while it grew the longest one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from shadowaudit.core.copies import distinct
from shadowaudit.core.facts import FileFacts, Flavour
from shadowaudit.logs.extract import Octets, in_file

_AT_ONCE = 1 << 20


def without_copies(
    facts: Sequence[FileFacts], octets: Octets = in_file
) -> tuple[list[FileFacts], tuple[str, ...]]:
    """The files that count, and notes. What was deleted or moved since it was read can no longer be shown."""
    here = (one.path for one in facts if "://" not in one.path)
    files, copies = distinct(facts, gone={path for path in here if not Path(path).exists()})
    files, beginnings = without_beginnings(files, octets)
    return files, (*copies, *beginnings)


def without_beginnings(
    files: Sequence[FileFacts], octets: Octets = in_file
) -> tuple[list[FileFacts], tuple[str, ...]]:
    """The files without those that are the beginning of another one, octet by octet; and a note about each.

    A file that cannot be read any more stays.
    """
    same: dict[tuple[str, int], list[FileFacts]] = defaultdict(list)
    for one in files:
        if one.flavour == Flavour.EXCHANGE and one.rows:
            same[one.database, one.begins].append(one)
    gone: dict[str, str] = {}
    for several in same.values():
        by_size = sorted(several, key=lambda one: one.size)
        for place, one in enumerate(by_size):
            longer = (other for other in by_size[place + 1 :] if _begins(other, one, octets))
            if whole := next(longer, None):
                gone[one.path] = whole.path
    notes = tuple(
        f"A log that was collected while it grew is not counted: {one} is the beginning of {whole}."
        for one, whole in gone.items()
    )
    return [one for one in files if one.path not in gone], notes


def _begins(whole: FileFacts, part: FileFacts, octets: Octets) -> bool:
    """Does the file begin with all octets of the other one?"""
    try:
        return all(
            octets(whole.path, begin, min(begin + _AT_ONCE, part.size))
            == octets(part.path, begin, min(begin + _AT_ONCE, part.size))
            for begin in range(0, part.size, _AT_ONCE)
        )
    except OSError:
        return False
