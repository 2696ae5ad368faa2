"""Files read in this process while an engine starts: a processor would have nothing else to do."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from threading import Lock

from shadowaudit.core.facts import FileFacts
from shadowaudit.engine.blocks import Writer
from shadowaudit.logs.file import digest_file
from shadowaudit.logs.lines import Room
from shadowaudit.logs.manifest import Found

_BUCKET = 128 << 20  # octets of logs whose messages are merged at once: as a rule 130,000 states
_MOST = 1 << 16
_LATER = 2.0  # seconds from a job's begin until its tasks read


class Ahead:
    """``files`` are known by their number here. The small ones are read first: large ones are for tasks.

    ``directory`` takes their states, by so many ``buckets``.
    """

    def __init__(self, directory: Path, files: Sequence[Found]) -> None:
        self.directory = directory.absolute()
        self.files = tuple(sorted(files, key=lambda one: one.size))
        self.buckets = min(_MOST, sum(one.size for one in files) // _BUCKET + 1)
        self._lock = Lock()
        self._taken, self._until, self._began = 0, len(files), 0.0
        self._found: Future[tuple[list[FileFacts], list[str]]] | None = None

    def begin(self) -> None:
        """Read one file after the other until somebody asks which ones are ``left``."""
        self._began = time.monotonic()
        pool = ThreadPoolExecutor(1)
        self._found = pool.submit(self._read)
        pool.shutdown(wait=False)

    def left(self) -> int:
        """How many it reads, or has read; it goes on until the tasks that read the others have begun."""
        with self._lock:
            if self._found is None:
                self._until = 0
            else:
                more = int(self._taken / (time.monotonic() - self._began) * _LATER)
                self._until = min(self._taken + more, len(self.files))
            return self._until

    def found(self) -> tuple[list[FileFacts], list[str]]:
        """The facts of the files that it read, and where their states are. Raises OSError."""
        return self._found.result() if self._found is not None else ([], [])

    def end(self) -> None:
        """Read no other file. Returns when nothing is written any more."""
        with self._lock:
            self._until = 0
        if self._found is not None:
            self._found.exception()

    def _read(self) -> tuple[list[FileFacts], list[str]]:
        self.directory.mkdir(parents=True, exist_ok=True)
        facts: list[FileFacts] = []
        paths: list[str] = []
        writer = Writer(str(self.directory), "ahead", self.buckets)
        for one, written in reading(writer, self._next()):
            facts += one
            paths += written
        return facts, paths

    def _next(self) -> Iterator[tuple[int, str]]:
        while True:
            with self._lock:
                number = self._taken
                if number >= self._until:
                    return
                self._taken += 1
            yield number, str(self.files[number].path)


def reading(writer: Writer, files: Iterator[tuple[int, str]]) -> Iterator[tuple[list[FileFacts], list[str]]]:
    """Read these files, known by their numbers: facts, and where the writer has put states meanwhile."""
    room = Room()
    for number, path in files:
        facts, states = digest_file(Path(path), room)
        yield [facts], writer.add(states, number)
    yield [], writer.finish()
