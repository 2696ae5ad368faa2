"""A cluster's logs: many messages in time, some with faults, and the truth file."""

from __future__ import annotations

import heapq
import json
import random
import shutil
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from shadowlab.generate.message import Message
from shadowlab.generate.stories import FAULTS, FILE_FAULTS, ordinary
from shadowlab.generate.writing import GeneratedRow, NodeLog, witnessed

BEGIN = 1_795_000_000_000  # 2026-11-18
EVERY = 20  # milliseconds between two messages
_TRUTH = "truth.json"
_NODES = ("mx1.example.net", "mx2.example.net", "mx3.example.net")


@dataclass(frozen=True, slots=True)
class Truth:
    """What the logs hold. ``messages``: with reports, and what gives others back. ``found``: message id to
    the classes that an audit has to find.
    """

    messages: int
    rows: int
    faults: Mapping[str, int]
    found: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    spoilt: tuple[str, ...] = ()  # what was done to files

    @property
    def classes(self) -> dict[str, int]:
        return dict(Counter(name for names in self.found.values() for name in names))

    def as_dict(self) -> dict[str, Any]:
        return {
            "messages": self.messages,
            "rows": self.rows,
            "faults": dict(self.faults),
            "classes": self.classes,
            "spoilt": list(self.spoilt),
            "found": {name: list(classes) for name, classes in self.found.items()},
        }


def parse_faults(text: str) -> dict[str, int]:
    """``lost=2,duplicate=1`` as counts. Raises ValueError with what can be said."""
    wanted: dict[str, int] = {}
    for part in filter(None, (one.strip() for one in text.split(","))):
        name, equals, count = part.partition("=")
        if name not in FAULTS and name not in FILE_FAULTS:
            raise ValueError(f"no fault {name!r}: choose from {', '.join([*FAULTS, *FILE_FAULTS])}")
        if equals and not count.isdigit():
            raise ValueError(f"{part!r}: say {name}=NUMBER")
        wanted[name] = wanted.get(name, 0) + int(count or 1)
    return wanted


def generate(
    directory: Path, *, messages: int, faults: Mapping[str, int], seed: int, file_size: int = 10_000_000
) -> Truth:
    """Write the logs of three nodes below ``directory``, and truth.json. Same arguments, same files.

    Raises FileExistsError if there are logs already, ValueError if the faults do not fit. Then, and when
    it is interrupted, nothing is left of what it wrote.
    """
    chance = random.Random(seed)  # noqa: S311 -- has to be the same again
    kinds = [name for name, count in faults.items() if name in FAULTS for _ in range(count)]
    if len(kinds) > messages:
        raise ValueError(f"{len(kinds)} faults do not fit {messages} messages")
    if directory.exists() and any(directory.iterdir()):
        raise FileExistsError(f"{directory} is not empty")
    with _wholly(directory):
        return _written(directory, kinds, messages, faults, chance, file_size)


def _written(
    directory: Path,
    kinds: Sequence[str],
    messages: int,
    faults: Mapping[str, int],
    chance: random.Random,
    file_size: int,
) -> Truth:
    places = dict(zip(chance.sample(range(messages), len(kinds)), kinds, strict=True))
    logs = [_log(directory / name.partition(".")[0], name, chance, file_size) for name in _NODES]
    by_name = {log.node: log for log in logs}
    for log in logs:
        log.snapshot(BEGIN - 1000, _uuid(chance), [], "start")
    found: dict[str, tuple[str, ...]] = {}
    left: list[Message] = []
    waiting: list[tuple[int, int, int, GeneratedRow]] = []
    count = others = 0
    at = BEGIN
    for message in _messages(messages, places, chance, found):
        at = message.at
        if message.left:
            left.append(message)
        others += len(message.others)
        for one in (message, *message.others):
            owner, holder = _NODES.index(one.owner), _NODES.index(one.holder)
            for moment, who, row in one.steps:
                count += 1
                heapq.heappush(waiting, (moment, count, holder if who else owner, row))
        while waiting and waiting[0][0] < message.at - 10:
            moment, _, node, row = heapq.heappop(waiting)
            logs[node].write(moment, witnessed(row, by_name))
    while waiting:
        at, _, node, row = heapq.heappop(waiting)
        logs[node].write(at, witnessed(row, by_name))
    for number, log in enumerate(logs):
        log.snapshot(at + 1000, _uuid(chance), list(_held(left, number)))
        log.close(at + 1000)
    spoilt = spoil([log.files for log in logs], faults, chance)
    truth = Truth(messages + others, sum(log.sequence for log in logs), dict(faults), found, tuple(spoilt))
    (directory / _TRUTH).write_text(json.dumps(truth.as_dict(), indent=1) + "\n", "utf-8")
    return truth


@contextmanager
def _wholly(directory: Path) -> Iterator[None]:
    """What is written to a new or empty directory is there as a whole, or not at all."""
    new = not directory.exists()
    try:
        yield
    except BaseException:
        for name in (one.partition(".")[0] for one in _NODES):
            shutil.rmtree(directory / name, ignore_errors=True)
        (directory / _TRUTH).unlink(missing_ok=True)
        if new:
            with suppress(OSError):  # it was not made yet, or somebody else uses it
                directory.rmdir()
        raise


def _log(directory: Path, name: str, chance: random.Random, size: int) -> NodeLog:
    directory.mkdir(parents=True)
    return NodeLog(directory, name, _uuid(chance), f"{chance.getrandbits(64):016x}", size)


def _messages(
    count: int, places: Mapping[int, str], chance: random.Random, found: dict[str, tuple[str, ...]]
) -> Iterator[Message]:
    for number in range(count):
        owner = chance.randrange(len(_NODES))
        holder = (owner + chance.randrange(1, len(_NODES))) % len(_NODES)
        at = BEGIN + number * EVERY
        size = 1 if chance.random() < 0.75 else chance.randrange(2, 5)
        kind = places.get(number, "")
        if kind in ("partially-lost", "removed-in-part"):
            size = max(size, 2)
        recipients = tuple(f"user{chance.randrange(100_000)}@example.com" for _ in range(size))
        name = _uuid7(at - chance.randrange(3, 40), chance)
        message = Message(name, at, _NODES[owner], _NODES[holder], recipients, [])
        if kind:
            tell, classes = FAULTS[kind]
            tell(message)
            if classes:
                found[name] = classes
            found |= {one.id: one.found for one in message.others if one.found}
        else:
            ordinary(message, chance)
        yield message


def _held(left: list[Message], node: int) -> Iterator[GeneratedRow]:
    for message in left:
        for who, role in message.left:
            if _NODES.index((message.owner, message.holder)[who]) == node:
                yield message.row(
                    "LOAD", source="BOOTLOADER", server=_NODES[node], custom=role, epoch=message.left_in
                )


def _uuid(chance: random.Random) -> str:
    return str(uuid.UUID(int=chance.getrandbits(128), version=4))


def _uuid7(at: int, chance: random.Random) -> str:
    number = (at << 80) | (7 << 76) | (chance.getrandbits(12) << 64) | (2 << 62) | chance.getrandbits(62)
    text = f"{number:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


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
