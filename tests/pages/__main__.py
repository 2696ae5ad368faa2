"""``python -m tests.pages [PAGE…]``: commands per page, those that are not run, and why."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

from tests.pages.commands import commands

ROOT = Path(__file__).parents[2]


def main(pages: list[Path]) -> None:
    reasons: Counter[str] = Counter()
    total = 0
    for page in pages:
        found = commands(page)
        exempt = [command for command in found if command.not_run]
        total += len(found)
        reasons.update(command.not_run for command in exempt)
        if found:
            print(f"{page.relative_to(ROOT)}: {len(found)} commands, {len(exempt)} of them not run")
    print(f"in all: {total} commands, {reasons.total()} of them not run")
    for reason, times in reasons.most_common():
        print(f"  {times:3d} {reason}")


if __name__ == "__main__":
    chosen = [Path(name).resolve() for name in sys.argv[1:]]
    main(chosen or [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))])
