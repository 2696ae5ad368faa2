"""Where tables are kept: data files that never change, and manifests that say which of them are current.

    <uri>/<table>/day=YYYY-MM-DD/NNNNNNNN-<run>-<part>.parquet
    <uri>/manifests/NNNNNNNN.json

A manifest is published last, whole, and by one run alone; the highest number is current. So a run that dies
leaves what was current before it. Reading needs pyarrow, and no Spark:

    tables = store.current("s3://audit/tables")
    tables.dataset("traffic").to_table(columns=["hour", "received"])
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import PurePosixPath
from typing import Any, Self

from pyarrow import fs

from shadowaudit.spark import places
from shadowaudit.spark.tables.schemas import SCHEMA, TABLES

MANIFESTS = "manifests"
NO_DAY = "__HIVE_DEFAULT_PARTITION__"
"""Where rows without a day are: what Hive, Spark, DuckDB and pyarrow call it."""

_MANIFEST = re.compile(r"([0-9]{8})\.json")


class TablesError(Exception):
    """The tables cannot be used, and why."""


class NoTablesError(TablesError):
    """Nothing was published there."""


@dataclass(frozen=True, slots=True)
class DataFile:
    """``path``: below the tables. ``day``: of its rows, YYYY-MM-DD; None for rows without one, and where days
    do not matter. ``last``: of messages, the day of the latest event of any."""

    path: str
    rows: int
    size: int
    day: str | None = None
    last: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """For JSON; what is None is left out."""
        told = {"path": self.path, "rows": self.rows, "size": self.size, "day": self.day, "last": self.last}
        return {name: value for name, value in told.items() if value is not None}

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> Self:
        """Raises KeyError."""
        return cls(told["path"], told["rows"], told["size"], told.get("day"), told.get("last"))


@dataclass(frozen=True, slots=True)
class Replaced:
    """A data file that is current no more since that version, which was published at ``at``."""

    path: str
    version: int
    at: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """What is current. ``version`` 0: nothing yet."""

    version: int = 0
    made_at: str = ""  # ISO 8601, UTC
    tables: Mapping[str, tuple[DataFile, ...]] = field(default_factory=dict)
    replaced: tuple[Replaced, ...] = ()
    verdict: Mapping[str, Any] | None = None  # of the findings: what ``verify --tables`` published

    def files(self, table: str) -> tuple[DataFile, ...]:
        return self.tables.get(table, ())

    def rows(self, table: str) -> int:
        return sum(one.rows for one in self.files(table))

    def following(
        self,
        tables: Mapping[str, Iterable[DataFile]],
        now: datetime,
        verdict: Mapping[str, Any] | None = None,
    ) -> Manifest:
        """The next one, with these files for these tables, and all else as it is."""
        new = dict(self.tables) | {name: tuple(files) for name, files in tables.items()}
        version, at = self.version + 1, now.astimezone(UTC).isoformat(timespec="seconds")
        kept = {one.path for files in new.values() for one in files}
        gone = [one.path for files in self.tables.values() for one in files if one.path not in kept]
        replaced = (*self.replaced, *(Replaced(path, version, at) for path in gone))
        return Manifest(version, at, new, replaced, self.verdict if verdict is None else verdict)

    def as_json(self) -> str:
        told = {
            "version": self.version,
            "schema": SCHEMA,
            "made_at": self.made_at,
            "tables": {name: [one.as_dict() for one in files] for name, files in self.tables.items()},
            "replaced": [[one.path, one.version, one.at] for one in self.replaced],
            "verdict": self.verdict,
        }
        return json.dumps(told, ensure_ascii=False, separators=(",", ":"))

    @classmethod
    def of(cls, text: str | bytes) -> Self:
        """Raises TablesError for those of other versions of the schema, ValueError for what is none."""
        try:
            told = json.loads(text)
            if told["schema"] != SCHEMA:
                raise TablesError(
                    f"these tables have schema {told['schema']}, and this version of shadowaudit has "
                    f"{SCHEMA}: ingest the logs into a new place"
                )
            return cls(
                told["version"],
                told["made_at"],
                {name: tuple(map(DataFile.of, files)) for name, files in told["tables"].items()},
                tuple(Replaced(*one) for one in told["replaced"]),
                told.get("verdict"),
            )
        except (KeyError, TypeError, AttributeError) as problem:
            raise ValueError(f"it is no manifest ({problem!r})") from None


@dataclass(frozen=True, slots=True)
class Place:
    """A directory of tables, and the file system that reaches it. ``uri`` may have secrets."""

    uri: str
    system: Any = field(repr=False)
    root: str

    @classmethod
    def of(cls, uri: str) -> Place:
        """Raises OSError, and ValueError for a URI that is none."""
        absolute = places.absolute(uri)
        system, path = places.reached(absolute)
        return cls(absolute, system, path.rstrip("/"))

    @property
    def is_local(self) -> bool:
        return isinstance(self.system, fs.LocalFileSystem)

    def path(self, *parts: str) -> str:
        """Of something below it, for its file system."""
        return str(PurePosixPath(self.root, *parts))

    def remove(self, paths: Iterable[str]) -> None:
        """Remove these files below it, as far as that can be done: what stays is found by a later run."""
        for path in paths:
            with suppress(OSError):
                self.system.delete_file(self.path(path))

    def versions(self) -> list[int]:
        """The numbers of the manifests that there are, in order. Raises OSError."""
        chosen = fs.FileSelector(self.path(MANIFESTS), allow_not_found=True)
        found = (_MANIFEST.fullmatch(info.base_name) for info in self.system.get_file_info(chosen))
        return sorted(int(one[1]) for one in found if one)

    def manifest(self) -> Manifest:
        """The current one; version 0 if there is none. Raises OSError and TablesError."""
        for _ in range(3):
            versions = self.versions()
            if not versions:
                return Manifest()
            try:
                with self.system.open_input_stream(self.path(MANIFESTS, name_of(versions[-1]))) as file:
                    return Manifest.of(file.read())
            except FileNotFoundError:
                continue  # it was old, and removed since the list was made: look again
            except ValueError as problem:
                raise TablesError(
                    f"{name_of(versions[-1])} of the tables cannot be read: {problem}"
                ) from None
        raise TablesError("the manifests of the tables go away while they are read")

    def dataset(self, table: str, files: Iterable[DataFile]) -> Any:
        """These data files of that table as a pyarrow dataset. Raises OSError."""
        from pyarrow import dataset  # it brings pandas, which tasks that only write do without

        schema = TABLES[table].arrow
        paths = [self.path(one.path) for one in files]
        if not paths:
            return dataset.dataset(schema.empty_table())
        return dataset.dataset(paths, schema=schema, format="parquet", filesystem=self.system)


@dataclass(frozen=True, slots=True)
class Current:
    """The tables as one manifest has them. Later runs do not change what it reads."""

    place: Place
    manifest: Manifest

    def dataset(self, table: str, *, since: str | None = None, until: str | None = None) -> Any:
        """A table as a pyarrow dataset; of the days from ``since`` to ``until``, YYYY-MM-DD, if told.

        Rows without a day are then left out. Raises KeyError for no table, and OSError.
        """
        files = self.manifest.files(TABLES[table].name)
        if since or until:
            files = tuple(
                one for one in files if one.day and (since or "") <= one.day and one.day <= (until or "9999")
            )
        return self.place.dataset(table, files)


def current(uri: str) -> Current:
    """The tables at that place, as they are now. Raises NoTablesError, TablesError, OSError."""
    place = Place.of(uri)
    manifest = place.manifest()
    if not manifest.version:
        raise NoTablesError(none_in(place, places.shown(uri)))
    return Current(place, manifest)


def none_in(place: Place, uri: str) -> str:
    """A sentence about a place without tables. ``uri``: as users may see it."""
    kind = place.system.get_file_info(place.root or "/").type
    if kind == fs.FileType.File:
        return f"{uri} is a file, and no directory of tables"
    missing = ", which does not exist" if kind == fs.FileType.NotFound else ""
    return f"there are no tables in {uri}{missing}: shadowaudit ingest URI… --tables URI"


def name_of(version: int) -> str:
    """The file name of that manifest."""
    return f"{version:08d}.json"


def directory_of(table: str, day: str | None) -> str:
    """Where data files of that day are, below the tables."""
    return f"{table}/day={day or NO_DAY}" if table not in ("files", "findings") else table


def sync(path: str) -> None:
    """A local file, or directory, is on disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
