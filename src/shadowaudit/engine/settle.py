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
from typing import Any

import pyarrow as pa

from shadowaudit.core.facts import FileFacts, Flavour
from shadowaudit.engine.blocks import Blocks, Reader
from shadowaudit.engine.merge import States, plain, split, states_of
from shadowaudit.engine.messages import Messages, Origins
from shadowaudit.engine.pieces import finished, joined, left_open, looked_up, without
from shadowaudit.engine.spreading import spread
from shadowaudit.engine.totals import span, width_of
from shadowaudit.logs.settled import (
    MESSAGES,
    STATES,
    Piece,
    Settled,
    Settlement,
    UnusableError,
    identity,
    named,
    told,
)
from shadowaudit.logs.state import State


@dataclass(frozen=True, slots=True)
class Merged:
    """What is settled, and of all else the partial states. ``files``: by the numbers that states have."""

    finished: tuple[Piece, ...]
    open: tuple[States, ...]
    files: tuple[FileFacts, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settling:
    """What a task has to know. ``width``: of the points of the curve for all these files."""

    files: tuple[FileFacts, ...]  # by number: ``merge.plain``
    growing: int  # from this number on: files of which more may come
    directory: str
    token: str
    width: int


def settle(
    session: Callable[[int], Any],
    state: State,
    facts: Sequence[FileFacts],
    *,
    slices: int,
    step: Callable[[], AbstractContextManager[None]],
    tell: Callable[[str], None],
) -> Merged:
    """Merge what is new with what is open, and keep it. The settlement has to be ``held``.

    ``facts``: all files that count, none a copy of another. ``session``: for work on so many states.
    The merging itself is one ``step``; ``tell`` is told why what was settled before cannot be used.
    Raises OSError.
    """
    by_name = {identity(one): one for one in facts if one.messages}
    store = state.settlement
    before = _before(store, by_name, tell)
    growing = tuple(name for name in _growing(by_name) if name not in set(before.files))
    new = tuple(name for name in by_name if name not in {*before.files, *growing})
    files = tuple(by_name[name] for name in (*before.files, *new, *growing))
    tables = states_of(state, files)
    end = len(files) - len(growing)
    old, fresh, waiting = tables[: len(before.files)], tables[len(before.files) :], tables[end:]
    if not new and growing == before.growing:
        return Merged(before.finished, (*_opened(store, before), *waiting), files)
    inputs, token = [*_opened(store, before), *fresh], secrets.token_hex(4)
    chosen = session(sum(one.rows for one in inputs))
    with step():
        width = width_of(*span(facts))
        kept, again = without(store, before.finished, fresh, token, width)
        if again:
            inputs.append(looked_up(store, old, again, f"{token}-again"))
        place = store.directory / f"{token}-blocks"
        place.mkdir()
        blocks = split(chosen, inputs, place, slices=slices)
        job = Settling(
            files=plain(files), growing=end, directory=str(store.directory), token=token, width=width
        )
        frame, parts = spread(chosen, [((bucket,), 1) for bucket in range(blocks.buckets)], slices)
        rows = frame.mapInArrow(_settling(job, blocks, parts), "kind string, piece string").collect()
        pieces = sorted(((row["kind"], named(row["piece"])) for row in rows), key=lambda one: one[1].name)
        kept += [piece for kind, piece in pieces if kind == MESSAGES]
        after = Settled(
            files=(*before.files, *new),
            growing=growing,
            finished=tuple(joined(store, kept, token, width)),
            open=tuple(piece for kind, piece in pieces if kind == STATES),
        )
        store.commit(after)
    return Merged(after.finished, (*_opened(store, after), *waiting), files)


def _opened(store: Settlement, settled: Settled) -> list[States]:
    return [States(str(store.path(one.name, STATES)), one.rows) for one in settled.open]


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


def _settling(
    job: Settling, blocks: Blocks, parts: list[list[tuple[Any, ...]]]
) -> Callable[[Iterator[Any]], Iterator[Any]]:
    def run(batches: Iterator[Any]) -> Iterator[Any]:
        store = Settlement(Path(job.directory))
        reader = Reader(blocks, [one.path for one in job.files])
        numbers = [number for batch in batches for number in batch.column("id").to_pylist()]
        for bucket in [bucket for number in numbers for (bucket,) in parts[number]]:
            states = reader.states(bucket)
            if not len(states):
                continue
            name = f"{job.token}-{bucket:05}-{secrets.token_hex(2)}"  # each attempt its own
            messages = Messages([states], Origins.of(job.files))
            growing = states["file"].to_numpy() >= job.growing
            left = messages.suspect | messages.told_by(growing)
            unsettled = states.filter(pa.array(messages.of(left) & ~growing))
            messages.keep(~left)
            pieces = []
            if len(unsettled):
                pieces.append((STATES, left_open(store, name, unsettled)))
            if len(messages.suspect):
                pieces.append((MESSAGES, finished(store, name, messages, job.width)))
            columns = {
                "kind": pa.array([kind for kind, _ in pieces], pa.string()),
                "piece": pa.array([told(piece) for _, piece in pieces], pa.string()),
            }
            yield pa.RecordBatch.from_pydict(columns)

    return run
