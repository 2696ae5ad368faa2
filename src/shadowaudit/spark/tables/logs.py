"""Which logs are in the tables: the table ``files``, one row for each. Knows no Spark."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa

from shadowaudit.spark import planning
from shadowaudit.spark.places import Log
from shadowaudit.spark.planning import Offset
from shadowaudit.spark.tables.data import Written, write
from shadowaudit.spark.tables.schemas import FILES, TABLES
from shadowaudit.spark.tables.store import Current, Place


@dataclass(frozen=True, slots=True)
class Known:
    """The logs that the tables have, by URI: rows of ``files``."""

    rows: Mapping[str, Mapping[str, Any]]

    @classmethod
    def of(cls, current: Current) -> Known:
        """Raises TablesError, OSError."""
        found = current.dataset(FILES).to_table().to_pylist()
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

    def days_of(self, uris: Iterable[str]) -> set[str]:
        """The days in which these logs may have events."""
        return {
            (first + timedelta(days=n)).isoformat()
            for row in (self.rows[uri] for uri in uris if uri in self.rows)
            if row["first_at"]
            for first, last in [(row["first_at"].date(), row["last_at"].date())]
            for n in range((last - first).days + 1)
        }

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

    def following(self, facts: Sequence[Mapping[str, Any]], listed: Mapping[str, Log]) -> Known:
        """With these logs read anew. ``facts``: rows of the table but for sizes and times of logs."""
        rows, told = dict(self.rows), {row["file"]: row for row in facts}
        empty = dict.fromkeys(TABLES[FILES].names) | {"events": 0, "problems": 0}
        for uri in (*told, *listed):
            rows[uri] = empty | {"file": uri} | dict(told.get(uri, {})) | _listed(listed.get(uri))
        return replace(self, rows=rows)

    def write(self, place: Place) -> list[Written]:
        """As data files of the table of these logs. Raises OSError."""
        told = pa.Table.from_pylist([self.rows[uri] for uri in sorted(self.rows)], schema=TABLES[FILES].arrow)
        return write(place, FILES, told.to_batches())


def _listed(log: Log | None) -> dict[str, Any]:
    """Size and time when the log was looked for: what it has grown by since is read later. Of one that was
    not seen nothing is told, and it is read again when it is."""
    if log is None:
        return {"size": None, "modified": None}
    at = datetime.fromtimestamp(log.modified / 1e9, UTC) if log.modified else None
    return {"size": log.size, "modified": at}
