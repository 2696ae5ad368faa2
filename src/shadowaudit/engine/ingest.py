"""Read log files on the engine's workers: a task takes whole files, leaves facts and partial states."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from shadowaudit.core.facts import FileFacts
from shadowaudit.engine.ahead import Ahead
from shadowaudit.engine.blocks import Blocks
from shadowaudit.engine.spreading import spread
from shadowaudit.logs.manifest import Found
from shadowaudit.logs.state import State

_FEW = 10_000  # files whose facts are fetched at once


def ingest(session: Any, state: State, files: Sequence[Found], *, slices: int) -> Iterator[FileFacts]:
    """Read these files and keep what they say; their facts. Raises OSError when it cannot be kept."""
    frame, parts = spread(session, [((str(file.path),), file.size) for file in files], slices)
    result = frame.mapInArrow(_reader(str(state.directory.absolute()), parts), "facts string")
    for row in result.toLocalIterator() if len(files) > _FEW else result.collect():
        yield FileFacts.from_json(row["facts"])


def passed(
    session: Any, ahead: Ahead, files: Sequence[Found], *, slices: int
) -> tuple[list[FileFacts], Blocks]:
    """Read files for this audit alone: their facts, and their states on their way to the merge.

    Those that are read ``ahead``, and are as they were then, are not read again.
    Raises OSError when the directory cannot be made.
    """
    ahead.directory.mkdir(parents=True, exist_ok=True)
    own = ahead.files[: ahead.left()]
    same = set(own).intersection(files)
    rest = [one for one in files if one not in same]
    logs = [str(one.path) if one in same else "" for one in own] + [str(one.path) for one in rest]
    facts, paths = [], []
    for row in _rows(session, ahead, list(enumerate(rest, len(own))), slices):
        if row["path"]:
            paths.append(row["path"])
        else:
            facts.append(FileFacts.from_json(row["facts"]))
    told, written = ahead.found()
    known = {one.path: one for one in (*told, *facts)}
    blocks = Blocks(ahead.buckets, tuple(sorted(paths + written)), tuple(logs))
    return [known[str(one.path)] for one in files], blocks


def _rows(session: Any, ahead: Ahead, files: Sequence[tuple[int, Found]], slices: int) -> Iterable[Any]:
    if not files:
        return ()
    frame, parts = spread(session, [((number, str(one.path)), one.size) for number, one in files], slices)
    reading = _passing(str(ahead.directory), parts, ahead.buckets)
    found = frame.mapInArrow(reading, "facts string, path string")
    rows: Iterable[Any] = found.toLocalIterator() if len(files) > _FEW else found.collect()
    return rows


def _passing(
    directory: str, parts: list[list[tuple[Any, ...]]], buckets: int
) -> Callable[[Iterator[Any]], Iterator[Any]]:
    def read(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        from shadowaudit.engine.ahead import reading
        from shadowaudit.engine.blocks import Writer

        shape = pa.schema([("facts", pa.string()), ("path", pa.string())])
        for part in [number for batch in batches for number in batch.column("id").to_pylist()]:
            for facts, paths in reading(Writer(directory, f"{part:05}", buckets), iter(parts[part])):
                rows = [{"facts": one.to_json(), "path": ""} for one in facts]
                rows += [{"facts": "", "path": path} for path in paths]
                yield pa.RecordBatch.from_pylist(rows, schema=shape)

    return read


def _reader(directory: str, parts: list[list[tuple[Any, ...]]]) -> Callable[[Iterator[Any]], Iterator[Any]]:
    def read(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        state = State(Path(directory))
        for batch in batches:
            for path in [path for number in batch.column("id").to_pylist() for (path,) in parts[number]]:
                yield pa.RecordBatch.from_pydict({"facts": [state.read(path).to_json()]})

    return read
