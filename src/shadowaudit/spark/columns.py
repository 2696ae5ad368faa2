"""The columns of an event, and their types. docs/reference/events.md tells of each; a test compares."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa

TEXT, LONG, INT, TIME = "string", "bigint", "int", "timestamp"
LIST, MAP = "array<string>", "map<string,string>"
FILES = "struct<file_path:string,file_name:string,file_size:bigint,file_modification_time:timestamp>"

ARROW = {
    TEXT: pa.string(),
    LONG: pa.int64(),
    INT: pa.int32(),
    TIME: pa.timestamp("us", "UTC"),
    LIST: pa.list_(pa.field("element", pa.string())),
    MAP: pa.map_(pa.string(), pa.string()),
    FILES: pa.struct(
        [
            ("file_path", pa.string()),
            ("file_name", pa.string()),
            ("file_size", pa.int64()),
            ("file_modification_time", pa.timestamp("us", "UTC")),
        ]
    ),
}
"""Spark's names of types, and what Spark wants to be given for them."""


@dataclass(frozen=True, slots=True)
class Column:
    """``field``: the log's field that it is made of; empty for what is found out about the row."""

    name: str
    type: str
    field: str = ""


def named(field: str) -> str:
    """The column that a field of a log is."""
    return field.replace("-", "_")


def _of(field: str, type_: str = TEXT) -> Column:
    return Column(named(field), type_, field)


FILE, LINE, SOFTWARE, NODE = "file", "line", "software", "node"
DATABASE, INCARNATION, SEQUENCE, EPOCH = "database", "incarnation", "sequence", "epoch"
PROBLEM, RECORD, METADATA = "problem", "_corrupt_record", "_metadata"

COLUMNS = (
    Column(FILE, TEXT),
    Column(LINE, LONG),
    Column(SOFTWARE, TEXT),
    Column(NODE, TEXT),
    Column(DATABASE, TEXT),
    Column(INCARNATION, TEXT),
    Column(SEQUENCE, LONG),
    Column(EPOCH, INT),
    _of("date-time", TIME),
    _of("client-ip"),
    _of("client-hostname"),
    _of("server-ip"),
    _of("server-hostname"),
    _of("source-context"),
    _of("connector-id"),
    _of("source"),
    _of("event-id"),
    _of("internal-message-id", LONG),
    _of("message-id"),
    _of("network-message-id"),
    _of("recipient-address", LIST),
    _of("recipient-status", LIST),
    _of("total-bytes", LONG),
    _of("recipient-count", INT),
    _of("related-recipient-address", LIST),
    _of("reference"),
    _of("message-subject"),
    _of("sender-address"),
    _of("return-path"),
    _of("message-info"),
    _of("directionality"),
    _of("tenant-id"),
    _of("original-client-ip"),
    _of("original-server-ip"),
    _of("custom-data", MAP),
    _of("transport-traffic-type"),
    _of("log-id"),
    _of("schema-version"),
    Column(PROBLEM, TEXT),
    Column(RECORD, TEXT),
)

NAMED = {column.name: column for column in (*COLUMNS, Column(METADATA, FILES))}
"""With the one that is there only if it is named: Spark has it for its own formats."""


class NoSuchColumnError(ValueError):
    """A column that was asked for is not there, or has another type."""


def chosen(names: Iterable[str], others: Iterable[str] = ()) -> tuple[Column, ...]:
    """Those columns, in that order. ``others``: texts that logs have beside. Raises NoSuchColumnError."""
    there = NAMED | {name: Column(name, TEXT) for name in others}
    found = tuple(name.strip() for name in names)
    for name in found:
        if name not in there:
            raise NoSuchColumnError(f"no column {name!r}: there are {', '.join(there)}")
    return tuple(there[name] for name in found)


def ddl(columns: Iterable[Column] = COLUMNS) -> str:
    """The schema as Spark's SQL writes it."""
    return ", ".join(f"{column.name} {column.type}" for column in columns)


def checked(schema: pa.Schema, others: Iterable[str] = ()) -> pa.Schema:
    """That schema, if these are columns of ours with their types, or ``others``. Raises NoSuchColumnError."""
    for column, field in zip(chosen(schema.names, others), schema, strict=True):
        if not field.type.equals(ARROW[column.type]):
            raise NoSuchColumnError(f"the column {column.name} is a {column.type}, not {field.type}")
    return schema
