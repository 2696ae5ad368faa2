"""What is settled: messages that their sums prove, as they stand in messages.parquet; and the rest, open.

A settlement is a set of files that are never changed, and ``settled.json`` which names them and is replaced
as one. Whatever happens in between leaves the settlement before; what it does not name is nobody's.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from shadowaudit.core.facts import Fault, FileFacts
from shadowaudit.logs.publishing import publish

VERSION = "s4"
"""Of what is kept, and of what it takes for a message to be kept as settled."""

MESSAGES, KEYS, TALLY, STATES = ".parquet", ".keys", ".json", ".states"
_PLACES = {Fault.UNREADABLE_FILE, Fault.TRAILING}  # the hash is not of all there is, so the path counts


class UnusableError(Exception):
    """What is there cannot be used, and why."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A table and what belongs to it. ``files``: ending to size and time of modification (nanoseconds)."""

    name: str
    rows: int
    files: Mapping[str, tuple[int, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """``files``: what is merged, by the numbers that open states have (``identity``). ``growing``: what was
    there besides, and may be there again with more rows.
    """

    files: tuple[str, ...] = ()
    growing: tuple[str, ...] = ()
    finished: tuple[Piece, ...] = ()
    open: tuple[Piece, ...] = ()


def identity(file: FileFacts) -> str:
    """What a file is, wherever it lies: a copy of it is the same."""
    place = file.path if _PLACES & set(file.faults) else ""
    own = (file.sha256, file.size, file.flavour, file.node, file.database, file.boot, file.first, file.last)
    told = (*own, file.rows, file.messages, *sorted(file.faults), place)
    return hashlib.sha256("\n".join(map(str, told)).encode("utf-8", "surrogateescape")).hexdigest()[:32]


@dataclass(frozen=True, slots=True)
class Settlement:
    """The directory of it. One process at a time works with it: ``held``."""

    directory: Path

    @property
    def _manifest(self) -> Path:
        return self.directory / "settled.json"

    @contextmanager
    def held(self) -> Iterator[None]:
        """Wait for others that use it, and keep them out. Raises OSError."""
        self.directory.mkdir(parents=True, exist_ok=True)
        place = os.open(self.directory, os.O_RDONLY)
        try:
            fcntl.flock(place, fcntl.LOCK_EX)
            yield
        finally:
            os.close(place)

    def path(self, piece: str, ending: str) -> Path:
        return self.directory / f"{piece}{ending}"

    def load(self) -> Settled | None:
        """What was settled; None before the first time. Raises UnusableError."""
        try:
            told = json.loads(self._manifest.read_text("utf-8"))
            if told["version"] != VERSION:
                raise UnusableError("another version of shadowaudit wrote it")
            finished, opened = (tuple(_piece(one) for one in told[name]) for name in ("finished", "open"))
            settled = Settled(
                files=tuple(told["files"]), growing=tuple(told["growing"]), finished=finished, open=opened
            )
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError, KeyError) as problem:
            raise UnusableError(f"settled.json cannot be read ({problem})") from None
        for one in (*settled.finished, *settled.open):
            for ending, expected in one.files.items():
                if _signs(self.path(one.name, ending)) != expected:
                    raise UnusableError(f"{one.name}{ending} is missing, or was changed")
        return settled

    def piece(self, name: str, rows: int, contents: Mapping[str, Callable[[Path], object]]) -> Piece:
        """Write what belongs together. Raises OSError."""
        for ending, write in contents.items():
            publish(self.path(name, ending), write, durable=True)
        signs = {ending: _signs(self.path(name, ending)) for ending in contents}
        return Piece(name, rows, {ending: found for ending, found in signs.items() if found})

    def commit(self, settled: Settled) -> None:
        """From now on that is what is settled. Raises OSError."""
        told = {"version": VERSION} | asdict(settled)
        publish(self._manifest, lambda target: target.write_text(json.dumps(told), "utf-8"), durable=True)
        place = os.open(self.directory, os.O_RDONLY)
        try:
            os.fsync(place)
        finally:
            os.close(place)
        self._sweep(settled)

    def _sweep(self, settled: Settled) -> None:
        """Remove what earlier settlements left, and what was begun and never named."""
        kept = {f"{one.name}{ending}" for one in (*settled.finished, *settled.open) for ending in one.files}
        for path in self.directory.iterdir():
            if path.is_dir():
                shutil.rmtree(path)
            elif path.name not in kept and path != self._manifest:
                path.unlink(missing_ok=True)


def linked(pieces: Sequence[Path], directory: Path) -> None:
    """Have these files in that directory too: as links where the disk is the same. Raises OSError."""
    for path in pieces:
        target = directory / f"settled-{path.name}"
        try:
            target.hardlink_to(path)
        except OSError:
            shutil.copyfile(path, target)


def _piece(data: Mapping[str, Any]) -> Piece:
    files = {ending: (int(signs[0]), int(signs[1])) for ending, signs in data["files"].items()}
    return Piece(str(data["name"]), int(data["rows"]), files)


def _signs(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_size, status.st_mtime_ns
