"""Where tables are kept: a Delta table for each, below one place. One version of ``files`` names one of each.

    <uri>/<table>/_delta_log/NNNNNNNNNNNNNNNNNNNN.json
    <uri>/<table>/day=YYYY-MM-DD/<name>.parquet

Delta has no transaction over several tables. So a run commits all others first, and then ``files``, whose
transaction identifiers are the versions of the others: whoever begins there sees one state. Versions that no
``files`` names are of runs that died. Reading needs deltalake and pyarrow, and no Spark:

    tables = store.current("s3://audit/tables")
    tables.dataset("traffic").to_table(columns=["hour", "received"])
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import Any, Self
from urllib.parse import parse_qsl, unquote, urlsplit

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError
from pyarrow import fs, parquet

from shadowaudit.spark import places
from shadowaudit.spark.tables.schemas import FILES, SCHEMA, TABLES, VERDICT

SCHEMA_KEY = "shadowaudit.schema"
MADE_AT = "made_at"
"""The transaction identifier with the seconds since 1970 at which a version was published."""

_OLD = "manifests"
"""What versions before 0.2 had."""


class TablesError(Exception):
    """The tables cannot be used, and why."""


class NoTablesError(TablesError):
    """Nothing was published there."""


@dataclass(frozen=True, slots=True)
class DataFile:
    """``path``: below its table. ``day``: of its rows, YYYY-MM-DD; None for rows without one, and where days
    do not matter. ``last``: of messages, the day of the latest event of any."""

    path: str
    rows: int
    size: int
    day: str | None = None
    last: str | None = None


@dataclass(frozen=True, slots=True)
class Place:
    """A directory of tables, and the file system that reaches it. ``uri`` may have secrets."""

    uri: str
    system: Any = field(repr=False)
    root: str

    @classmethod
    def of(cls, uri: str) -> Self:
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

    def named(self, table: str) -> tuple[str, dict[str, str]]:
        """That table for deltalake: its URI, and the options that reach it."""
        if self.is_local:
            return Path(self.path(table)).as_uri(), {}
        parts = urlsplit(self.uri)
        scheme = "s3" if parts.scheme == "s3a" else parts.scheme
        host = parts.netloc.rpartition("@")[2]
        return f"{scheme}://{host}{parts.path.rstrip('/')}/{table}", _options(
            self.uri
        ) if scheme == "s3" else {}

    def table(self, name: str, version: int | None = None) -> DeltaTable:
        """Raises NoTablesError if there is none, TablesError if it cannot be read, OSError."""
        uri, options = self.named(name)
        try:
            return DeltaTable(uri, version=version, storage_options=options)
        except TableNotFoundError:
            raise NoTablesError(none_in(self, places.shown(self.uri))) from None
        except DeltaError as problem:
            raise TablesError(
                f"{name} of the tables cannot be read: {' '.join(str(problem).split())}"
            ) from None

    def dataset(self, table: str, files: Iterable[DataFile]) -> Any:
        """These data files of that table as a pyarrow dataset. Raises OSError."""
        from pyarrow import dataset  # it brings pandas, which a summary does without

        schema, paths = TABLES[table].arrow, [self.path(table, one.path) for one in files]
        if not paths:
            return dataset.dataset(schema.empty_table())
        days = dataset.partitioning(TABLES[table].partition, flavor="hive")
        return dataset.dataset(paths, schema, format="parquet", filesystem=self.system, partitioning=days)


def _options(uri: str) -> dict[str, str]:
    """What a URI of pyarrow says about S3, as deltalake wants to be told it. The environment has the rest."""
    parts = urlsplit(uri)
    asked = dict(parse_qsl(parts.query))
    told = {"conditional_put": "etag"}  # an object is created once, whoever is faster
    if "endpoint_override" in asked:
        scheme = asked.get("scheme", "https")
        told |= {
            "endpoint_url": f"{scheme}://{asked['endpoint_override'].rpartition('://')[2]}",
            "allow_http": str(scheme == "http").lower(),
        }
    if "region" in asked:
        told["region"] = asked["region"]
    if parts.username:
        told |= {"access_key_id": unquote(parts.username), "secret_access_key": unquote(parts.password or "")}
    return {f"aws_{name}" if name != "conditional_put" else name: text for name, text in told.items()}


@dataclass(frozen=True, slots=True)
class Current:
    """The tables as one version of ``files`` has them; 0: nothing yet. Later runs do not change it."""

    place: Place
    version: int = 0
    made_at: str = ""  # ISO 8601, UTC
    versions: Mapping[str, int] = field(default_factory=dict)

    @property
    def verdict(self) -> Mapping[str, Any] | None:
        """What ``verify --tables`` published last, and when; None if it never did."""
        for one in self.files(VERDICT):
            with self.place.system.open_input_file(self.place.path(VERDICT, one.path)) as file:
                found: dict[str, Any] = json.loads(
                    parquet.ParquetFile(file).read([VERDICT])[VERDICT][0].as_py()
                )
            return found
        return None

    def files(self, table: str, since: str | None = None, until: str | None = None) -> list[DataFile]:
        """The data files of that table; of the days from ``since`` to ``until``, YYYY-MM-DD, if told: then
        none without a day. Raises KeyError for no table, TablesError, OSError."""
        if not self.version:
            return []
        found = files_of(self.place.table(TABLES[table].name, self.versions[table]))
        if since or until:
            return [one for one in found if one.day and (since or "") <= one.day <= (until or "9999")]
        return found

    def rows(self, table: str) -> int:
        return sum(one.rows for one in self.files(table))

    def dataset(self, table: str, *, since: str | None = None, until: str | None = None) -> Any:
        """A table as a pyarrow dataset. Parameters and errors as of ``files``."""
        return self.place.dataset(table, self.files(table, since, until))


def files_of(table: DeltaTable) -> list[DataFile]:
    """The data files of a table, as one version has them."""
    found = pa.RecordBatchReader.from_stream(table.get_add_actions(flatten=True)).read_all()

    def column(name: str, kind: Any) -> list[Any]:
        there = name in found.column_names
        return [str(one) if one else None for one in found[name].cast(kind).to_pylist()] if there else nothing

    nothing = [None] * len(found)
    days, last = column("partition.day", pa.date32()), column("max.last_at", pa.date32())
    told = (found[name].to_pylist() for name in ("path", "num_records", "size_bytes"))
    return [DataFile(*one) for one in zip(*told, days, last, strict=True)]


def current(uri: str, version: int | None = None) -> Current:
    """The tables at that place, as they are now, or were in that version.

    Raises NoTablesError, TablesError, OSError.
    """
    found = state(Place.of(uri), version)
    if not found.version:
        raise NoTablesError(none_in(found.place, places.shown(uri)))
    return found


def state(place: Place, version: int | None = None) -> Current:
    """As ``current``; version 0 if nothing was published."""
    try:
        files = place.table(FILES, version)
    except NoTablesError:
        if place.system.get_file_info(place.path(_OLD)).type == fs.FileType.Directory:
            raise TablesError(
                f"the tables in {places.shown(place.uri)} are of a version of shadowaudit before 0.2, which "
                "this one does not read: ingest the logs into a new place"
            ) from None
        return Current(place)
    told = files.metadata().configuration.get(SCHEMA_KEY)
    if told != str(SCHEMA):
        raise TablesError(
            f"these tables have schema {told}, and this version of shadowaudit has {SCHEMA}: ingest the logs "
            "into a new place"
        )
    published = files.transaction_version(FILES)
    if published is None:
        return Current(place)
    if published != files.version():
        files.load_as_version(published)  # what came since removed old files, and no more
    versions = {name: files.transaction_version(name) or 0 for name in TABLES}
    made_at = datetime.fromtimestamp(files.transaction_version(MADE_AT) or 0, UTC)
    return Current(place, published, made_at.isoformat(timespec="seconds"), versions)


def none_in(place: Place, uri: str) -> str:
    """A sentence about a place without tables. ``uri``: as users may see it."""
    kind = place.system.get_file_info(place.root or "/").type
    if kind == fs.FileType.File:
        return f"{uri} is a file, and no directory of tables"
    missing = ", which does not exist" if kind == fs.FileType.NotFound else ""
    return f"there are no tables in {uri}{missing}: shadowaudit ingest URI… --tables URI"


def sync(path: str) -> None:
    """A local file, or directory, is on disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
