"""Take single rows out of logs, and seal the files again as if the rows had never been there."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

from shadowlab.generate.writing import footer


def logs(directory: Path) -> list[Path]:
    return sorted(directory.rglob("MSGTRK*.LOG"))


def rows(path: Path) -> list[bytes]:
    return [line for line in path.read_bytes().splitlines(keepends=True) if not line.startswith(b"#")]


def event(row: bytes) -> str:
    return row.split(b",")[8].decode()


def copied(source: Path, target: Path) -> Path:
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target)
    return target


def removed(source: Path, target: Path, number: int) -> str:
    """A copy of the logs without that row (counted over all files); its event."""
    copied(source, target)
    for path in logs(target):
        here = rows(path)
        if number < len(here):
            path.write_bytes(path.read_bytes().replace(here[number], b"", 1))
            return event(here[number])
        number -= len(here)
    raise IndexError(number)


def resealed(directory: Path) -> None:
    """Number every database's rows anew, correct the counts of snapshots' witnesses, and close each file."""
    renumbered: dict[bytes, dict[bytes, bytes]] = {}
    ordered = sorted(logs(directory), key=lambda path: int(path.name.rpartition("-")[2].removesuffix(".LOG")))
    following: dict[bytes, int] = {}
    contents: dict[Path, tuple[list[bytes], list[bytes]]] = {}
    for path in ordered:
        lines = path.read_bytes().splitlines(keepends=True)
        head = [line for line in lines if line.startswith(b"#") and not line.startswith(b"#Footer")]
        new = []
        for row in rows(path):
            line = row
            found = re.search(rb"S:Seq=(\d+);S:Boot=([^;]+);S:Db=([^;,]+)", line)
            assert found
            old, boot, database = found.groups()
            sequence = following[database] = following.get(database, 0) + 1
            number = str(sequence).encode()
            renumbered.setdefault(boot, {})[old] = number
            line = line.replace(b"S:Seq=" + old + b";", b"S:Seq=" + number + b";", 1)
            line = line.replace(b"," + boot + b"-" + old + b",", b"," + boot + b"-" + number + b",", 1)
            new.append(line)
        contents[path] = (head, new)
    for path, (head, new) in contents.items():
        marked = [_marks(line, renumbered) for line in new]
        path.unlink()
        if not marked:
            continue
        numbers = [int(re.search(rb"S:Seq=(\d+)", line)[1]) for line in marked]  # type: ignore[index]
        covered = b"".join(head + marked)
        name = f"{path.name.rpartition('-')[0]}-{numbers[0]}.LOG"
        (path.parent / name).write_bytes(covered + footer(covered, numbers[0], numbers[-1], len(numbers)))


def _marks(line: bytes, renumbered: dict[bytes, dict[bytes, bytes]]) -> bytes:
    """Other nodes' witness of a sequence, corrected as well: the forger is thorough."""
    found = re.search(rb",([0-9a-f]{16}):(\d+),", line)
    if not found or found[1] not in renumbered:
        return line
    known = renumbered[found[1]]
    lower = max((int(new) for old, new in known.items() if int(old) <= int(found[2])), default=0)
    return line.replace(found[0], b"," + found[1] + b":" + str(lower).encode() + b",", 1)


def each_row(source: Path) -> int:
    return sum(len(rows(path)) for path in logs(source))


def sealed_without(source: Path, target: Path, number: int, seal: Callable[[Path], None] = resealed) -> str:
    gone = removed(source, target, number)
    seal(target)
    return gone
