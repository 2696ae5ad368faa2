"""Read log files on the engine's workers: a task takes whole files, leaves facts and partial states."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from shadowaudit.core.facts import FileFacts
from shadowaudit.engine.spreading import spread
from shadowaudit.logs.manifest import Found
from shadowaudit.logs.state import State


def ingest(
    session: Callable[[], Any], state: State, files: Sequence[Found], *, slices: int
) -> list[FileFacts]:
    """Read those files that were not read before; the facts of all of them.

    Needs no session when there is nothing new. Raises OSError when the state cannot be written.
    """
    state.create()
    facts = {str(file.path): known for file in files if (known := state.known(file))}
    fresh = [file for file in files if str(file.path) not in facts]
    if fresh:
        for one in _read(session(), state, fresh, slices):
            facts[one.path] = one
    return [facts[str(file.path)] for file in files]


def _read(session: Any, state: State, files: Sequence[Found], slices: int) -> Iterator[FileFacts]:
    frame, parts = spread(session, [((str(file.path),), file.size) for file in files], slices)
    result = frame.mapInArrow(_reader(str(state.directory), parts), "facts string")
    for row in result.toLocalIterator() if len(files) > 10_000 else result.collect():
        yield FileFacts.from_json(row["facts"])


def _reader(directory: str, parts: list[list[tuple[Any, ...]]]) -> Callable[[Iterator[Any]], Iterator[Any]]:
    def read(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        state = State(Path(directory))
        for batch in batches:
            for path in [path for number in batch.column("id").to_pylist() for (path,) in parts[number]]:
                yield pa.RecordBatch.from_pydict({"facts": [state.read(path).to_json()]})

    return read
