"""Read log files on the engine's workers: a task takes whole files, leaves facts and partial states."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from shadowaudit.core.facts import FileFacts
from shadowaudit.engine.blocks import Blocks
from shadowaudit.engine.spreading import spread
from shadowaudit.logs.hashing import Hashed
from shadowaudit.logs.manifest import Found
from shadowaudit.logs.state import State

_BUCKET = 128 << 20  # octets of logs whose messages are merged at once: as a rule 130,000 states
_MOST = 1 << 16


def ingest(session: Any, state: State, files: Sequence[Found], *, slices: int) -> Iterator[FileFacts]:
    """Read these files and keep what they say; their facts. Raises OSError when it cannot be kept."""
    frame, parts = spread(session, [((str(file.path),), file.size) for file in files], slices)
    result = frame.mapInArrow(_reader(str(state.directory.absolute()), parts), "facts string")
    for row in result.toLocalIterator() if len(files) > 10_000 else result.collect():
        yield FileFacts.from_json(row["facts"])


def passed(
    session: Any, directory: Path, files: Sequence[Found], hashed: Mapping[str, Hashed], *, slices: int
) -> tuple[list[FileFacts], Blocks]:
    """Read files for this audit alone: their facts, and their states on their way to the merge.

    ``hashed``: files whose hashes are known already.
    Raises OSError when the directory cannot be made.
    """
    directory.mkdir(parents=True, exist_ok=True)
    buckets = min(_MOST, sum(one.size for one in files) // _BUCKET + 1)
    work = [
        ((number, str(file.path), hashed.get(str(file.path))), file.size) for number, file in enumerate(files)
    ]
    frame, parts = spread(session, work, slices)
    found = frame.mapInArrow(_passing(str(directory.absolute()), parts, buckets), "facts string, path string")
    facts, paths = {}, []
    for row in found.toLocalIterator() if len(files) > 10_000 else found.collect():
        if row["path"]:
            paths.append(row["path"])
        else:
            one = FileFacts.from_json(row["facts"])
            facts[one.path] = one
    logs = tuple(str(file.path) for file in files)
    return [facts[path] for path in logs], Blocks(buckets, tuple(sorted(paths)), logs)


def _passing(
    directory: str, parts: list[list[tuple[Any, ...]]], buckets: int
) -> Callable[[Iterator[Any]], Iterator[Any]]:
    def read(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        from shadowaudit.engine.blocks import Writer
        from shadowaudit.logs.file import digest_file

        def told(facts: list[str], paths: list[str]) -> Any:
            columns = [facts + [""] * len(paths), [""] * len(facts) + paths]
            return pa.record_batch([pa.array(one, pa.string()) for one in columns], ["facts", "path"])

        for part in [number for batch in batches for number in batch.column("id").to_pylist()]:
            writer = Writer(directory, f"{part:05}", buckets)
            for number, path, known in parts[part]:
                facts, states = digest_file(Path(path), known)
                yield told([facts.to_json()], writer.add(states, number))
            yield told([], writer.finish())

    return read


def _reader(directory: str, parts: list[list[tuple[Any, ...]]]) -> Callable[[Iterator[Any]], Iterator[Any]]:
    def read(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        state = State(Path(directory))
        for batch in batches:
            for path in [path for number in batch.column("id").to_pylist() for (path,) in parts[number]]:
                yield pa.RecordBatch.from_pydict({"facts": [state.read(path).to_json()]})

    return read
