"""What is kept of each closed file: its facts (JSON) and its partial states (Parquet)."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyarrow import parquet

from shadowaudit.core.facts import FileFacts
from shadowaudit.logs.file import digest_file
from shadowaudit.logs.manifest import Found

_VERSION = "v2"


@dataclass(frozen=True, slots=True)
class State:
    """A directory of what was read so far. Every node of a cluster has to see it under the same path.

    Not ``kept``: it is for one audit, and remembers nothing.
    """

    directory: Path
    kept: bool = True

    def create(self) -> None:
        """Raises OSError."""
        self.directory.mkdir(parents=True, exist_ok=True)

    def _stem(self, path: str) -> str:
        return f"{_VERSION}-{hashlib.sha256(os.fsencode(path)).hexdigest()[:32]}"

    def facts_of(self, path: str) -> Path:
        return self.directory / f"{self._stem(path)}.json"

    def table_of(self, path: str) -> Path:
        return self.directory / f"{self._stem(path)}.parquet"

    def known(self, file: Found) -> FileFacts | None:
        """The facts of that very file, if it was read before."""
        try:
            facts = FileFacts.from_json(self.facts_of(str(file.path)).read_text("utf-8"))
        except (OSError, ValueError, TypeError, KeyError):
            return None
        return facts if (facts.size, facts.modified) == (file.size, file.modified) else None

    def all(self) -> list[FileFacts]:
        """The facts of every file that was ever read, also of those that are gone since."""
        found = []
        for path in sorted(self.directory.glob(f"{_VERSION}-*.json")):
            try:
                found.append(FileFacts.from_json(path.read_text("utf-8")))
            except (OSError, ValueError, TypeError, KeyError):
                continue
        return found

    def read(self, path: str) -> FileFacts:
        """Read a file and keep what it says. Again changes nothing. Raises OSError of the state."""
        facts, table = digest_file(Path(path))
        _publish(self.table_of(path), lambda target: _write_table(target, table))
        _publish(self.facts_of(path), lambda target: target.write_text(facts.to_json(), "utf-8"))
        return facts

    def tables(self, facts: Iterable[FileFacts]) -> list[tuple[int, str]]:
        """The Parquet files of those that have rows about messages, by their numbers in ``facts``."""
        return [(number, str(self.table_of(one.path))) for number, one in enumerate(facts) if one.messages]


def _write_table(target: Path, table: Any) -> None:
    parquet.write_table(
        table,
        target,
        compression="lz4",
        use_dictionary=False,
        write_statistics=False,
    )


def _publish(target: Path, write: Any) -> None:
    hidden = target.with_name(f".{target.name}.{os.getpid()}")
    write(hidden)
    hidden.replace(target)
