"""Settle messages: those that their sums prove are finished, and touched again only if more is told of them.

What is merged at a time is what is open and what is new. A row that comes late for a finished message opens
it again: all its partial states are looked up in the tables of their files.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from shadowaudit.core.facts import FileFacts, Flavour
from shadowaudit.engine.exact import HEAVIER
from shadowaudit.engine.here import Blocks, Here, Waiting, balanced, keep_blocks, states_in_blocks
from shadowaudit.engine.merge import MOST_BUCKETS, plain
from shadowaudit.engine.messages import Messages, Origins
from shadowaudit.engine.pieces import Table, finished, joined, left_open, looked_up, without
from shadowaudit.engine.port import Job, Log
from shadowaudit.engine.totals import span, width_of
from shadowaudit.logs.settled import (
    MESSAGES,
    STATES,
    TALLY,
    Piece,
    Settled,
    Settlement,
    UnusableError,
    identity,
)
from shadowaudit.logs.state import State, states_in

_BUCKET = 150_000  # states: 40 MB
_PART = 300_000  # states that are split at a time
_MUCH = 500_000  # states that this process merges sooner than others have started


def ingest(here: Here, state: State, files: Sequence[Log]) -> Iterator[FileFacts]:
    """Read these files and keep what they say; their facts. Raises OSError when it cannot be kept."""
    octets = sum(file.size for file in files)
    here.prepare(octets)
    work = balanced([(file.name, file.size) for file in files], max(here.pool.size * 4, octets >> 26))
    for some in here.pool.each(_ingest, state, work):
        yield from some


def _ingest(state: State, paths: Sequence[str]) -> list[FileFacts]:
    return [state.read(path) for path in paths]


@dataclass(frozen=True, slots=True)
class Open:
    """States in tables, which wait for a question. ``facts``: of the logs, by the states' numbers."""

    here: Here
    tables: tuple[Table, ...]
    facts: tuple[FileFacts, ...]

    def judge(self, job: Job) -> None:
        """Raises DamagedStateError when a table cannot be read."""
        # What is open is suspect.
        split(self.here, self.tables, self.facts, self.here.scratch, heavier=HEAVIER).judge(job)


@dataclass(frozen=True, slots=True)
class Finished:
    """Files of what is settled: messages as in messages.parquet, and what they count for."""

    messages: tuple[Path, ...] = ()
    tallies: tuple[Path, ...] = ()


@dataclass(frozen=True, slots=True)
class Merged:
    """What is settled, and of all else the partial states."""

    finished: Finished
    open: Open

    @classmethod
    def of(cls, store: Settlement, pieces: Sequence[Piece], left: Open) -> Merged:
        files = (tuple(store.path(one.name, kind) for one in pieces) for kind in (MESSAGES, TALLY))
        return cls(Finished(*files), left)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settling:
    """What a task has to know. ``width``: of the points of the curve for all these files."""

    files: tuple[FileFacts, ...]  # by number: ``merge.plain``
    growing: int  # from this number on: files of which more may come
    directory: str
    token: str
    width: int


def whole(here: Here, state: State, facts: Sequence[FileFacts]) -> Open:
    """All states of these files."""
    return Open(here, tuple(_tables(state, facts)), tuple(facts))


def split(
    here: Here, tables: Sequence[Table], facts: Sequence[FileFacts], directory: Path, *, heavier: int = 1
) -> Waiting:
    """The states in these tables by bucket, in files in that directory.

    ``heavier``: what the work with a state weighs that comes next, merging it being 1.
    """
    many = sum(one.rows for one in tables)
    if many * heavier > _MUCH:
        here.pool.start()
    directory.mkdir(parents=True, exist_ok=True)
    buckets = min(MOST_BUCKETS, many // _BUCKET + 1)
    work = balanced([((one.file, one.path), one.rows) for one in tables], max(many // _PART, here.pool.size))
    blocks = here.pool.each(_split, (str(directory), buckets), enumerate(work))
    return Waiting(here.pool, [one.path for one in facts], list(blocks), buckets)


def _split(common: tuple[str, int], part: tuple[int, Sequence[tuple[int | None, str]]]) -> Blocks:
    directory, buckets = common
    name, tables = part
    read = ((number, states_in(path)) for number, path in tables)
    return keep_blocks(Path(directory, f"{name:05}.blocks"), read, buckets)


def settle(
    here: Here,
    state: State,
    facts: Sequence[FileFacts],
    *,
    step: Callable[[], AbstractContextManager[None]],
    tell: Callable[[str], None],
) -> Merged:
    """Merge what is new with what is open, and keep it. The settlement has to be ``held``.

    ``facts``: all files that count, none a copy of another. The merging itself is one ``step``; ``tell`` is
    told why what was settled before cannot be used. Raises OSError.
    """
    by_name = {identity(one): one for one in facts if one.messages}
    store = state.settlement
    before = _before(store, by_name, tell)
    growing = tuple(name for name in _growing(by_name) if name not in set(before.files))
    new = tuple(name for name in by_name if name not in {*before.files, *growing})
    files = tuple(by_name[name] for name in (*before.files, *new, *growing))
    tables = _tables(state, files)
    end = len(files) - len(growing)
    old, fresh, waiting = tables[: len(before.files)], tables[len(before.files) :], tables[end:]
    if not new and growing == before.growing:
        return Merged.of(store, before.finished, Open(here, (*_opened(store, before), *waiting), files))
    inputs, token = [*_opened(store, before), *fresh], secrets.token_hex(4)
    with step():
        width = width_of(*span(facts))
        kept, again = without(store, before.finished, fresh, token, width)
        if again:
            inputs.append(looked_up(store, old, again, f"{token}-again"))
        states = split(here, inputs, files, store.directory / f"{token}-blocks")
        job = Settling(
            files=plain(files), growing=end, directory=str(store.directory), token=token, width=width
        )
        work = here.pool.each(_settle, (job, tuple(states.blocks)), range(states.buckets))
        pieces = sorted((piece for some in work for piece in some), key=lambda one: one.name)
        kept += [piece for piece in pieces if MESSAGES in piece.files]
        after = Settled(
            files=(*before.files, *new),
            growing=growing,
            finished=tuple(joined(store, kept, token, width)),
            open=tuple(piece for piece in pieces if STATES in piece.files),
        )
        store.commit(after)
    return Merged.of(store, after.finished, Open(here, (*_opened(store, after), *waiting), files))


def _settle(common: tuple[Settling, Sequence[Blocks]], bucket: int) -> list[Piece]:
    job, blocks = common
    states = states_in_blocks(blocks, bucket)
    if not len(states["file"]):
        return []
    store = Settlement(Path(job.directory))
    name = f"{job.token}-{bucket:05}"
    messages = Messages(states, Origins.of(job.files))
    growing = states["file"] >= job.growing
    left = messages.suspect | messages.told_by(growing)
    unsettled = messages.of(left) & ~growing
    messages.keep(~left)
    pieces = []
    if unsettled.any():
        some = pa.table({one: values[unsettled] for one, values in states.items()})
        pieces.append(left_open(store, name, some))
    if len(messages.suspect):
        pieces.append(finished(store, name, messages, job.width))
    return pieces


def _tables(state: State, files: Sequence[FileFacts]) -> list[Table]:
    """The tables of all these files, which are numbered by their order."""
    return [
        Table(str(state.table_of(one.path).absolute()), one.messages, number)
        for number, one in enumerate(files)
        if one.messages
    ]


def _opened(store: Settlement, settled: Settled) -> list[Table]:
    return [Table(str(store.path(one.name, STATES)), one.rows) for one in settled.open]


def _growing(files: Mapping[str, FileFacts]) -> list[str]:
    """Exchange writes the newest log of each kind for hours, and it is read again each time."""
    newest: dict[tuple[str, str], tuple[int, str, str]] = {}
    for name, one in files.items():
        if one.flavour == Flavour.EXCHANGE:
            kind = Path(one.path).name.rstrip("0123456789-.LOGlog")
            newest[one.database, kind] = max(
                newest.get((one.database, kind), (0, "", "")), (one.ends, one.path, name)
            )
    return sorted(name for _, _, name in newest.values())


def _before(store: Settlement, present: Container[str], tell: Callable[[str], None]) -> Settled:
    try:
        found = store.load() or Settled()
        if any(name not in present for name in found.files):
            raise UnusableError("a file that was merged was changed since, or another copy of it counts now")
    except UnusableError as problem:
        tell(f"what was settled before cannot be used, and everything is merged again: {problem}")
        return Settled()
    return found
