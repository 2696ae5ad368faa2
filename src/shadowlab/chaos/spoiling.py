"""Chooses which copies to damage, and damages contents; only the given random numbers decide."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from random import Random

from shadowrelay.database.offline import flipped

_LINE = b"This line was not in it.\r\n"


def _longer(octets: bytes, chance: Random) -> bytes:
    lines = octets.splitlines(keepends=True)
    at = chance.randrange(len(lines) + 1)
    return b"".join((*lines[:at], _LINE, *lines[at:]))


WAYS: Mapping[str, Callable[[bytes, Random], bytes | None]] = {
    "flip": flipped,
    "cut": lambda octets, _: octets[: len(octets) // 2],
    "empty": lambda _, __: b"",
    "zero": lambda octets, _: bytes(len(octets)),
    "line": _longer,
    "gone": lambda _, __: None,
}
"""Ways to damage a content: each returns the new octets; None removes the file."""


def victims(here: Collection[str], elsewhere: Collection[str], most: int, chance: Random) -> tuple[str, ...]:
    """At most ``most`` messages whose copies here may be damaged: each has another copy elsewhere."""
    possible = sorted(set(here).intersection(elsewhere))
    return tuple(chance.sample(possible, min(most, len(possible))))


def in_pairs(chosen: Iterable[Path]) -> list[tuple[Path, Path]]:
    """The files in pairs; an odd one is left out."""
    left = iter(chosen)
    return list(zip(left, left, strict=False))


def spoil(file: Path, way: str, chance: Random) -> None:
    """Change a file in place, as its disk would. Raises OSError."""
    octets = WAYS[way](file.read_bytes(), chance)
    if octets is None:
        file.unlink()
    else:
        file.write_bytes(octets)


def exchange(one: Path, other: Path) -> None:
    """Exchange the contents of two files. Raises OSError."""
    first, second = one.read_bytes(), other.read_bytes()
    one.write_bytes(second)
    other.write_bytes(first)
