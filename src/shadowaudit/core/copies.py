"""Files that are there more than once: an archive beside the live logs, a copy under another name."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Container, Sequence

from shadowaudit.core.facts import Fault, FileFacts

_NOT_COMPARED = {Fault.UNREADABLE_FILE, Fault.TRAILING}
"""The hash is of what the footer covers: of these files there is more, or nothing at all."""


def distinct(
    files: Sequence[FileFacts], *, gone: Container[str] = ()
) -> tuple[list[FileFacts], tuple[str, ...]]:
    """The files without further copies of the same octets, in their order, and a note about those left out.

    Of copies the one counts whose name fits its rows best, and of those one whose path is not ``gone``.
    A file that tells the same rows in other octets is no copy: it stays, to be found at fault.
    """
    same: dict[tuple[object, ...], list[FileFacts]] = defaultdict(list)
    names = Counter((one.database, one.node) for one in files)
    for one in files:
        if one.rows and not _NOT_COMPARED & set(one.faults):
            same[one.sha256, one.size, tuple(sorted({*one.faults} - {Fault.WRONG_RANGE}))].append(one)

    def misfit(one: FileFacts) -> tuple[int, bool, int, bool, str]:
        named = names[one.database, one.node]
        return len(one.faults), not one.node, -named, one.path in gone, one.path

    left_out: dict[str, str] = {}
    for copies in same.values():
        if len(copies) > 1:
            first, *others = sorted(copies, key=misfit)
            left_out |= {other.path: first.path for other in others}
    if not left_out:
        return list(files), ()
    copy, original = next(iter(left_out.items()))
    what, more = "A copy of a file is", ""
    if len(left_out) > 1:
        what, more = f"{len(left_out):,} copies of files are", ", for one"
    note = f"{what} there as well, octet by octet the same, and not counted: {copy} is {original}{more}."
    return [one for one in files if one.path not in left_out], (note,)
