"""What may happen to files after they were written: each makes the evidence incomplete."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

Lines = list[bytes]


def spoil(files: Sequence[Sequence[Path]], faults: Mapping[str, int], chance: random.Random) -> list[str]:
    """Do it to files taken at random (``files``: those of each node, oldest first); says what was done."""
    done: list[str] = []
    for name, act in _ACTS.items():
        for _ in range(faults.get(name, 0)):
            path = chance.choice([path for one in files for path in one if path.exists()])
            lines = path.read_bytes().splitlines(keepends=True)
            act(lines, chance)
            path.write_bytes(b"".join(lines))
            done.append(f"{name}: {path.name}")
    for name, place in (("file", 1), ("tail", -1)):
        for _ in range(faults.get(name, 0)):
            several = [one for one in files if len([path for path in one if path.exists()]) > 1]
            if not several:
                raise ValueError(
                    f"fault {name} takes several files a node: ask for more messages, or smaller files"
                )
            present = [path for path in chance.choice(several) if path.exists()]
            path = present[-1] if place < 0 else present[chance.randrange(len(present) - 1)]
            path.unlink()
            done.append(f"{name}: {path.name}")
    return done


def _row(lines: Lines, chance: random.Random) -> int:
    return chance.randrange(6, len(lines) - 1) if len(lines) > 7 else 5


def _gap(lines: Lines, chance: random.Random) -> None:
    del lines[_row(lines, chance)]


def _footer(lines: Lines, chance: random.Random) -> None:  # noqa: ARG001
    del lines[-1]


def _hash(lines: Lines, chance: random.Random) -> None:
    place = _row(lines, chance)
    lines[place] = lines[place].replace(b"Report", b"Rapport", 1).replace(b",BOOTLOADER,", b",BOOTLOADED,", 1)


def _unreadable(lines: Lines, chance: random.Random) -> None:
    place = _row(lines, chance)
    lines[place] = lines[place].replace(b",,", b",", 1)


_ACTS: dict[str, Callable[[Lines, random.Random], None]] = {
    "gap": _gap,
    "footer": _footer,
    "hash": _hash,
    "unreadable": _unreadable,
}
