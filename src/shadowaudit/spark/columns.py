"""The columns of an event, and their types. docs/reference/events.md tells of each; a test compares."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa

TEXT, LONG, INT, TIME = "string", "bigint", "int", "timestamp"
LIST, MAP = "array<string>", "map<string,string>"

ARROW = {
    TEXT: pa.string(),
    LONG: pa.int64(),
    INT: pa.int32(),
    TIME: pa.timestamp("us", "UTC"),
    LIST: pa.list_(pa.field("element", pa.string())),
    MAP: pa.map_(pa.string(), pa.string()),
}
"""Spark's names of types, and what Spark wants to be given for them."""


@dataclass(frozen=True, slots=True)
class Column:
    """``field``: the log's field that it is made of; empty for what is found out about the row."""

    name: str
    type: str
    field: str = ""


def _of(field: str, type_: str = TEXT) -> Column:
    return Column(field.replace("-", "_"), type_, field)


FILE, LINE, SOFTWARE, NODE = "file", "line", "software", "node"
DATABASE, INCARNATION, SEQUENCE, EPOCH = "database", "incarnation", "sequence", "epoch"
PROBLEM, RECORD = "problem", "_corrupt_record"

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

NAMED = {column.name: column for column in COLUMNS}


class NoSuchColumnError(ValueError):
    """A column that was asked for is not there, or has another type."""


def chosen(names: Iterable[str]) -> tuple[Column, ...]:
    """Those columns, in that order. Raises NoSuchColumnError."""
    found = tuple(name.strip() for name in names)
    for name in found:
        if name not in NAMED:
            raise NoSuchColumnError(f"no column {name!r}: there are {', '.join(NAMED)}")
    return tuple(NAMED[name] for name in found)


def ddl(columns: Iterable[Column] = COLUMNS) -> str:
    """The schema as Spark's SQL writes it."""
    return ", ".join(f"{column.name} {column.type}" for column in columns)


def checked(schema: pa.Schema) -> pa.Schema:
    """That schema, if these are columns of ours with their types. Raises NoSuchColumnError."""
    for column, field in zip(chosen(schema.names), schema, strict=True):
        if not field.type.equals(ARROW[column.type]):
            raise NoSuchColumnError(f"the column {column.name} is a {column.type}, not {field.type}")
    return schema
