"""Which logs are in the tables: the table ``files``, one row for each. Knows no Spark."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from shadowaudit.spark import planning
from shadowaudit.spark.places import Log
from shadowaudit.spark.planning import Offset
from shadowaudit.spark.tables import parts
from shadowaudit.spark.tables.parts import Written
from shadowaudit.spark.tables.publishing import Run
from shadowaudit.spark.tables.schemas import FILES, TABLES
from shadowaudit.spark.tables.store import DataFile, Manifest, Place


@dataclass(frozen=True, slots=True)
class Known:
    """The logs that the tables have, by URI: rows of ``files``."""

    rows: Mapping[str, Mapping[str, Any]]

    @classmethod
    def of(cls, place: Place, manifest: Manifest) -> Known:
        """Raises OSError."""
        found = place.dataset(FILES, manifest.files(FILES)).to_table().to_pylist()
        return cls({row["file"]: row for row in found})

    def new(self, logs: Iterable[Log]) -> list[Log]:
        """Those that were not read, or have another size since."""
        return planning.beyond(logs, self.offset)

    @property
    def offset(self) -> Offset:
        """What a stream has read that goes on from here."""
        found: Offset = {}
        for uri, row in self.rows.items():
            directory, _, name = uri.rpartition("/")
            found.setdefault(directory, {})[name] = row["size"]
        return found

    def parts_of(self, uris: Iterable[str]) -> set[str]:
        """The data files that have events of these logs."""
        return {path for uri in uris if uri in self.rows for path in self.rows[uri]["parts"]}

    def doubtful(self) -> list[str]:
        """Logs that may have rows of another one: ours by their sequences, and all of Exchange's."""
        spans: dict[tuple[str, str], list[tuple[int, int, str]]] = {}
        for uri, row in self.rows.items():
            if row["database"] and row["incarnation"] and row["first_sequence"] is not None:
                key = (row["database"], row["incarnation"])
                spans.setdefault(key, []).append((row["first_sequence"], row["last_sequence"], uri))
        found = {uri for uri, row in self.rows.items() if row["software"] == "exchange"}
        for some in spans.values():
            reach, name = -1, ""
            for first, last, uri in sorted(some):
                if first <= reach:
                    found |= {uri, name}
                if last > reach:
                    reach, name = last, uri
        return sorted(found)

    def following(
        self,
        facts: Sequence[Mapping[str, Any]],
        listed: Mapping[str, Log],
        new: Sequence[Written],
        rewritten: Sequence[Written],
        gone: set[str],
    ) -> Known:
        """With these logs read anew. ``facts``: rows of the table but for sizes and parts; ``rewritten`` data
        files take the place of those that are ``gone``."""
        rows = {
            uri: dict(row, parts=[path for path in row["parts"] if path not in gone])
            for uri, row in self.rows.items()
        }
        told = {row["file"]: row for row in facts}
        for uri in [*told, *(uri for uri in listed if uri not in told)]:
            log = listed.get(uri)
            empty = dict.fromkeys(TABLES[FILES].names) | {"file": uri, "events": 0, "problems": 0}
            rows[uri] = empty | dict(told.get(uri, {})) | {"parts": [], **_listed(log)}
        for one in (*rewritten, *new):
            for uri in one.logs:
                rows[uri]["parts"].append(one.file.path)
        return replace(self, rows=rows)

    def write(self, run: Run) -> list[DataFile]:
        """As the table of these logs. Raises OSError."""
        schema = TABLES[FILES].arrow
        told = pa.Table.from_pylist([self.rows[uri] for uri in sorted(self.rows)], schema=schema)
        return [one.file for one in parts.write(run.place, FILES, run.prefix, told.to_batches())]


def _listed(log: Log | None) -> dict[str, Any]:
    """Size and time when the log was looked for: what it has grown by since is read later. Of one that was
    not seen nothing is told, and it is read again when it is."""
    if log is None:
        return {"size": None, "modified": None}
    at = datetime.fromtimestamp(log.modified / 1e9, UTC) if log.modified else None
    return {"size": log.size, "modified": at}
