"""What is kept of each closed file: its facts (JSON) and its partial states (Parquet)."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import parquet

from shadowaudit.core.facts import FileFacts
from shadowaudit.logs.file import digest_file
from shadowaudit.logs.manifest import DamagedStateError, Log
from shadowaudit.logs.publishing import publish
from shadowaudit.logs.settled import Settlement

_VERSION = 6
"""Of facts and partial states: higher when they say something else."""

_MAGIC = b"PAR1"  # at both ends of a Parquet file

_LONG_AGO = 86_400  # seconds: nobody writes a file for that long


@dataclass(frozen=True, slots=True)
class State:
    """A directory of what was read so far."""

    directory: Path

    def create(self) -> None:
        """Make the directory, and clear away what was half written when somebody died. Raises OSError."""
        self.directory.mkdir(parents=True, exist_ok=True)
        for path in self.directory.glob(".*"):
            with suppress(FileNotFoundError):  # it is being written, and has its name now
                if path.is_file() and path.stat().st_mtime < time.time() - _LONG_AGO:
                    path.unlink()

    @property
    def settlement(self) -> Settlement:
        """What was made of it."""
        return Settlement(self.directory.absolute() / "settled")

    def facts_of(self, path: str) -> Path:
        return self.directory / f"{_stem(path)}.json"

    def table_of(self, path: str) -> Path:
        return self.directory / f"{_stem(path)}.parquet"

    def known(self, file: Log) -> FileFacts | None:
        """The facts of that very file, if it was read before and what is kept of it is whole."""
        facts = _facts_in(self.facts_of(file.name))
        if facts is None or (facts.size, facts.modified) != (file.size, file.modified):
            return None
        return facts if self._whole(facts) else None

    def all(self) -> list[FileFacts]:
        """The facts of every file that was ever read, also of those that are gone since."""
        return [facts for path in self._kept() if (facts := _facts_in(path))]

    def unreadable(self, facts: Iterable[FileFacts]) -> list[Path]:
        """Facts besides these that cannot be read: which log they are of is not known any more."""
        known = {self.facts_of(one.path) for one in facts}
        return [path for path in self._kept() if path not in known and _facts_in(path) is None]

    def _kept(self) -> list[Path]:
        return sorted(self.directory.glob(f"v{_VERSION}-*.json"))

    def check(self, facts: Iterable[FileFacts]) -> None:
        """Raises DamagedStateError if partial states of a file are not there any more."""
        for one in facts:
            if not self._whole(one):
                raise DamagedStateError(
                    f"{self.table_of(one.path)} is missing or damaged: it keeps what {one.path} says. Give "
                    "the directory of that log, and it is read again; or delete "
                    f"{self.facts_of(one.path)}, and that log counts no more"
                )

    def _whole(self, facts: FileFacts) -> bool:
        """Is there a table with both ends? What is wrong between them shows when it is read."""
        try:
            with self.table_of(facts.path).open("rb") as table:
                begins = table.read(len(_MAGIC))
                table.seek(-len(_MAGIC), os.SEEK_END)
                return begins == table.read() == _MAGIC
        except OSError:
            return not facts.messages

    def read(self, path: str) -> FileFacts:
        """Read a file and keep what it says. Again changes nothing. Raises OSError of the state."""
        facts, table = digest_file(Path(path))
        publish(self.table_of(path), lambda target: _write_table(target, table))
        publish(self.facts_of(path), lambda target: target.write_text(facts.to_json(), "utf-8"))
        for version in range(1, _VERSION):
            for ending in (".json", ".parquet"):
                (self.directory / f"{_stem(path, version)}{ending}").unlink(missing_ok=True)
        return facts

    def outdated(self) -> int:
        """How many logs were read by another version, and not again by this one."""
        names = [path.name.partition("-") for path in self.directory.glob("v*-*.json")]
        own = {log for version, _, log in names if version == f"v{_VERSION}"}
        return len({log for _, _, log in names} - own)


def _stem(path: str, version: int = _VERSION) -> str:
    return f"v{version}-{hashlib.sha256(os.fsencode(path)).hexdigest()[:32]}"


def _write_table(target: Path, table: Any) -> None:
    parquet.write_table(
        table,
        target,
        compression="lz4",
        use_dictionary=False,
        write_statistics=False,
        write_page_checksum=True,
    )


def _facts_in(path: Path) -> FileFacts | None:
    try:
        return FileFacts.from_json(path.read_text("utf-8"))
    except (OSError, ValueError, TypeError, KeyError):
        return None


def states_in(path: str, columns: Sequence[str] | None = None) -> Any:
    """The table of partial states in that file. Raises DamagedStateError."""
    names = list(columns) if columns else None
    try:
        return parquet.read_table(
            path, columns=names, use_threads=False, memory_map=True, page_checksum_verification=True
        )
    except (OSError, pa.ArrowException) as problem:
        told = (str(problem).splitlines() or [type(problem).__name__])[0]
        raise DamagedStateError(
            f"{path} cannot be read ({told}). Delete it, and ask again with the directories of the logs"
        ) from None
