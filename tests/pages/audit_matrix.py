"""``python -m tests.pages.audit_matrix`` writes docs/reference/audit-matrix.md: two minutes."""

from __future__ import annotations

import sys
import tempfile
from collections import defaultdict
from collections.abc import Collection
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "audit"))
from tampering import ANYWHERE, CHANGED, ERASED, HIDDEN, REMOVED, RENAMED, Cell, generated, unseen, why

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "audit-matrix.md"
HEAD = """\
# What the audit does not see

<!-- Made by: .venv/bin/python -m tests.pages.audit_matrix -->

Somebody changes one thing in a log, and seals all files again: sequences, hashes and counts are right. A
test does that to generated logs with rows of nearly all events: it gives each column and each entry of
custom-data of each event another value, and erases it; it puts each other event's name on the row; and it
takes the row out. After each change the audit says something else than before, or the change is on this
page. The same test shows that no message is cleared by its sums whose rows convict it.

What was changed in several places at once may agree with itself: anyone who can write all logs can write a
proof.

## In any event

Another value, or none:

| column | why it is not seen |
|---|---|
"""
BEHIND = """\
The same is done to logs with each violation that `shadowlab generate` makes. The verdict stays *violated* or
is *not provable*, but for these changes, after which it is *proven*:

"""
PARTS = {
    CHANGED: ("Another value", "column or entry"),
    ERASED: ("Erased", "column or entry"),
    RENAMED: ("Under another event's name", "name"),
    REMOVED: ("A row that is gone", "row"),
}


def page(cells: Collection[Cell]) -> str:
    """The page about these changes that are not seen."""
    text = HEAD + "".join(f"| `{name}` | {reason} |\n" for name, reason in ANYWHERE.items())
    for how, (title, what) in PARTS.items():
        text += f"\n## {title}\n\n| {what} | of | why it is not seen |\n|---|---|---|\n"
        rows: dict[tuple[str, str], set[str]] = defaultdict(set)
        for event, name, done in cells:
            column, reason = name.removesuffix(", its end"), why(event, name, how)
            again = name != column and (event, column, how) in cells and why(event, column, how) == reason
            if done == how and column not in ANYWHERE and not again:
                rows[name, reason].add(event)
        for (name, reason), events in sorted(rows.items()):
            text += f"| {name} | {', '.join(sorted(events))} | {reason} |\n"
    return text + hidden()


def hidden() -> str:
    """What hides a violation that is there."""
    text = "\n## What hides a violation\n\n" + BEHIND
    text += "| violation | change | of | why it is not seen |\n|---|---|---|---|\n"
    for (fault, (event, what, how)), reason in sorted(HIDDEN.items()):
        text += f"| `{fault}` | {what} {how} | {event} | {reason} |\n"
    return text


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        cells, _ = unseen(generated(Path(scratch, "clean")), Path(scratch, "logs"))
    PAGE.write_text(page(cells), "utf-8")


if __name__ == "__main__":
    main()
