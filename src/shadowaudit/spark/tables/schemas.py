"""The tables and their columns. docs/reference/tables.md tells of each; a test compares."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa

from shadowaudit.spark.columns import ARROW, COLUMNS, INT, LIST, LONG, TEXT, TIME

SCHEMA = 2
"""Rises when a column goes, or means something else. A new column is null in old files."""

DAY, FLAG, DAYS = "date", "boolean", "array<date>"
RECIPIENTS = (
    "array<struct<address:string,outcome:string,at:timestamp,node:string,next_hop:string,reply:string>>"
)

_RECIPIENT = pa.struct(
    [
        ("address", pa.string()),
        ("outcome", pa.string()),
        ("at", ARROW[TIME]),
        ("node", pa.string()),
        ("next_hop", pa.string()),
        ("reply", pa.string()),
    ]
)
TYPES = ARROW | {
    DAY: pa.date32(),
    FLAG: pa.bool_(),
    DAYS: pa.list_(pa.field("element", pa.date32())),
    RECIPIENTS: pa.list_(pa.field("element", _RECIPIENT)),
}
"""Spark's names of types, and pyarrow's types."""

EVENTS, MESSAGES, FILES = "events", "messages", "files"
TRAFFIC, LATENCIES, REASONS, DOMAINS, SIZES = "traffic", "latencies", "reasons", "domains", "sizes"
PROMOTIONS, FINDINGS, VERDICT = "promotions", "findings", "verdict"
DAY_COLUMN = "day"


@dataclass(frozen=True, slots=True)
class Table:
    """``columns``: name and type of each."""

    name: str
    columns: tuple[tuple[str, str], ...]

    @property
    def arrow(self) -> pa.Schema:
        return pa.schema([(name, TYPES[type_]) for name, type_ in self.columns])

    @property
    def partition(self) -> pa.Schema:
        """The columns that name directories: the day, where there is one."""
        return pa.schema([(name, TYPES[type_]) for name, type_ in self.columns if name == DAY_COLUMN])

    @property
    def ddl(self) -> str:
        """The schema as Spark's SQL writes it."""
        return ", ".join(f"`{name}` {type_}" for name, type_ in self.columns)

    def only(self, names: Iterable[str]) -> Table:
        """With these columns alone. Raises KeyError."""
        types = dict(self.columns)
        return Table(self.name, tuple((name, types[name]) for name in names))

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.columns)


def _of(name: str, text: str = "", **types: str) -> Table:
    """``text``: names of columns of strings and, behind a colon, of others."""
    pairs = [(part.partition(":")[0], part.partition(":")[2] or TEXT) for part in text.split()]
    return Table(name, (*pairs, *types.items()))


TABLES = {
    one.name: one
    for one in (
        Table(EVENTS, (*((column.name, column.type) for column in COLUMNS), ("day", DAY))),
        _of(
            MESSAGES,
            "network_message_id message_id subject sender size:bigint content envelope owner",
            holders=LIST,
            accepted_at=TIME,
            first_at=TIME,
            last_at=TIME,
            finished_at=TIME,
            exposed=FLAG,
            recipients=RECIPIENTS,
            deferrals=INT,
            promotions=INT,
            duplicates=INT,
            original=TEXT,
            nodes=LIST,
            events=INT,
            day=DAY,
        ),
        _of(
            FILES,
            "file",
            size=LONG,
            modified=TIME,
            software=TEXT,
            node=TEXT,
            database=TEXT,
            incarnation=TEXT,
            events=LONG,
            problems=LONG,
            first_sequence=LONG,
            last_sequence=LONG,
            first_at=TIME,
            last_at=TIME,
        ),
        _of(
            TRAFFIC,
            hour=TIME,
            node=TEXT,
            received=LONG,
            octets=LONG,
            delivered=LONG,
            dropped_as_duplicates=LONG,
            deferred=LONG,
            failed=LONG,
            promoted=LONG,
            exposed=LONG,
            resubmitted=LONG,
            day=DAY,
        ),
        _of(LATENCIES, day=DAY, node=TEXT, next_hop=TEXT, step=INT, deliveries=LONG),
        _of(
            REASONS,
            day=DAY,
            node=TEXT,
            event_id=TEXT,
            next_hop=TEXT,
            code=TEXT,
            status=TEXT,
            reply=TEXT,
            times=LONG,
            recipients=LONG,
            example=TEXT,
        ),
        _of(DOMAINS, day=DAY, node=TEXT, side=TEXT, domain=TEXT, messages=LONG, addresses=LONG, octets=LONG),
        _of(SIZES, day=DAY, node=TEXT, step=INT, messages=LONG, octets=LONG),
        _of(PROMOTIONS, day=DAY, node=TEXT, owner=TEXT, reason=TEXT, messages=LONG),
        _of(
            FINDINGS,
            "severity class id detail recipients addresses node subject",
            exposed=LONG,
            evidence=TEXT,
        ),
        _of(VERDICT, made_at=TIME, verdict=TEXT),
    )
}
GOLD = (TRAFFIC, LATENCIES, REASONS, DOMAINS, SIZES, PROMOTIONS)
"""Sums of events, by day."""
