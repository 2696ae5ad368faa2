"""The engine of one machine: a pool of processes, and states in a scratch directory. No Java."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from shadowaudit.core.facts import FileFacts
from shadowaudit.engine import pool
from shadowaudit.engine.answers import keep_findings, keep_merged
from shadowaudit.engine.blocks import NAMES, packed, unpacked
from shadowaudit.engine.exact import judged
from shadowaudit.engine.merge import buckets_for, merge
from shadowaudit.engine.pool import Pool
from shadowaudit.engine.port import HERE, Job, Log
from shadowaudit.logs.extract import in_file
from shadowaudit.logs.file import digest_file
from shadowaudit.logs.lines import Room
from shadowaudit.logs.publishing import publish

_PART = 96 << 20  # octets of logs that a process reads at a time: their states are in memory together
_PARTS = 4  # for each process, at least: the last one keeps others waiting less


@dataclass(frozen=True, slots=True)
class Blocks:
    """A file of blocks, and where that of each bucket is: from, to."""

    path: str
    places: Mapping[int, tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Here:
    """``scratch``: a directory of this machine, which takes the states. Whoever made it removes it."""

    pool: Pool
    scratch: Path

    @property
    def name(self) -> str:
        return HERE

    def tasks(self) -> tuple[int, int]:
        return self.pool.done, self.pool.total

    def prepare(self, octets: int) -> None:
        """Have processes start if so many octets of logs are worth it."""
        if octets > pool.MUCH:
            self.pool.start()

    def read(self, logs: Sequence[Log]) -> Waiting:
        """Raises OSError when the scratch directory takes nothing."""
        self.scratch.mkdir(parents=True, exist_ok=True)
        octets = sum(log.size for log in logs)
        self.prepare(octets)
        buckets = buckets_for(octets)
        parts = balanced(
            [((number, log.name), log.size) for number, log in enumerate(logs)],
            max(octets // _PART, self.pool.size * _PARTS),
        )
        facts: dict[int, FileFacts] = {}
        blocks = []
        for told, written in self.pool.each(_read, (str(self.scratch), buckets), enumerate(parts)):
            facts |= told
            blocks.append(written)
        known = tuple(facts[number] for number in range(len(logs)))
        return Waiting(self.pool, tuple(log.name for log in logs), blocks, buckets, known)


@dataclass(frozen=True, slots=True)
class Waiting:
    """Waiting in files, by bucket. ``logs``: names of the logs by the numbers that the states have."""

    pool: Pool
    logs: Sequence[str]
    blocks: Sequence[Blocks]
    buckets: int
    facts: Sequence[FileFacts] = ()

    def octets(self, name: str, begin: int, end: int) -> bytes:
        return in_file(name, begin, end)

    def judge(self, job: Job) -> None:
        for _ in self.pool.each(_judge, (job, tuple(self.logs), tuple(self.blocks)), range(self.buckets)):
            pass


def _read(common: tuple[str, int], part: tuple[int, Sequence[tuple[int, str]]]) -> tuple[Any, Blocks]:
    directory, buckets = common
    name, logs = part
    facts, tables = {}, []
    for number, path in logs:
        facts[number], table = digest_file(Path(path), _room())
        tables.append((number, table))
    return facts, keep_blocks(Path(directory, f"{name:05}.blocks"), tables, buckets)


@lru_cache(1)
def _room() -> Room:
    """One of a process."""
    return Room()


def keep_blocks(target: Path, tables: Iterable[tuple[int | None, Any]], buckets: int) -> Blocks:
    """Write these tables of states in blocks: each of the file with that number, or with a column ``file``.

    Raises OSError.
    """
    columns: dict[str, list[Any]] = {name: [] for name in NAMES}
    for number, table in tables:
        for name in table.column_names:
            columns[name].append(table.column(name).to_numpy())
        if number is not None:
            columns["file"].append(np.full(len(table), number, dtype=np.int64))
    states = {name: np.concatenate(columns.pop(name)) for name in NAMES}
    places: dict[int, tuple[int, int]] = {}

    def write(hidden: Path) -> None:
        at = 0
        with hidden.open("wb") as file:
            for bucket, block in packed(states, buckets):
                file.write(block)
                places[bucket] = (at, at + len(block))
                at += len(block)

    publish(target, write)
    return Blocks(str(target), places)


def states_in_blocks(blocks: Sequence[Blocks], bucket: int) -> dict[str, Any]:
    """All states of a bucket's messages. Raises OSError."""
    return unpacked(_blocks(blocks, bucket))


def _blocks(blocks: Sequence[Blocks], bucket: int) -> Iterator[bytes]:
    for one in blocks:
        if bucket in one.places:
            begin, end = one.places[bucket]
            with open(one.path, "rb", buffering=0) as file:
                file.seek(begin)
                yield file.read(end - begin)


def _judge(common: tuple[Job, Sequence[str], Sequence[Blocks]], bucket: int) -> None:
    job, logs, blocks = common
    found = merge(job.asked, states_in_blocks(blocks, bucket), logs)
    if found is not None:
        keep_merged(job, bucket, found)
        keep_findings(job, bucket, judged(found.suspects, job.asked))


def balanced(work: Sequence[tuple[Any, int]], parts: int) -> list[list[Any]]:
    """Things of some weight in at most so many parts of about the same weight, the heaviest first."""
    parts = max(1, min(parts, len(work)))
    slots: list[list[Any]] = [[] for _ in range(parts)]
    load = [0.0] * parts
    least = 0.02 * sum(weight for _, weight in work) / max(1, len(work)) + 1  # each costs something
    for thing, weight in sorted(work, key=lambda one: -one[1]):
        slot = load.index(min(load))
        slots[slot].append(thing)
        load[slot] += weight + least
    return [slot for slot in slots if slot]
