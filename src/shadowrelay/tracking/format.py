"""Formats and parses rows of the message tracking log: 30 columns in Exchange's order and quoting.

A row is one line: control characters in foreign text are escaped, so no field has a line break. No cell
begins a formula when a spreadsheet opens the file. See docs/reference/tracking-log.md.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime

COLUMNS: tuple[str, ...] = (
    "date-time",
    "client-ip",
    "client-hostname",
    "server-ip",
    "server-hostname",
    "source-context",
    "connector-id",
    "source",
    "event-id",
    "internal-message-id",
    "message-id",
    "network-message-id",
    "recipient-address",
    "recipient-status",
    "total-bytes",
    "recipient-count",
    "related-recipient-address",
    "reference",
    "message-subject",
    "sender-address",
    "return-path",
    "message-info",
    "directionality",
    "tenant-id",
    "original-client-ip",
    "original-server-ip",
    "custom-data",
    "transport-traffic-type",
    "log-id",
    "schema-version",
)
"""The columns of Exchange 2016 and later, in order."""

_EMPTY = dict.fromkeys(COLUMNS, "")

SCHEMA_VERSION = "01.00.0001.000"
"""Our own number, raised when a column or a custom-data entry changes its meaning."""

LINE_END = "\r\n"

OUTBOUND = frozenset(
    {
        "HAREDIRECT",
        "HAREDIRECTFAIL",
        "SEND",
        "SENDEXTERNAL",
        "DELIVER",
        "DUPLICATEDELIVER",
        "DEFER",
        "FAIL",
        "TRANSFER",
    }
)
"""Events in which this node is the client; in all other events it is the server."""

# C0, DEL, C1 (U+0085 among them), line and paragraph separators, bidirectional overrides, BOM, surrogates.
_INVISIBLE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff\ufffe\uffff\ud800-\udfff]"
)
# Full-width signs too: some spreadsheets read them as the plain ones.
_FORMULA = re.compile("[\\s\"']*[=+\\-@\uff1d\uff0b\uff0d\uff20]")

# Text that needs neither neutralising nor quotes: nearly every cell, and most rows as a whole.
_PLAIN = re.compile(r"[!#-&(-*.-<>?A-~][ !#-+\--~]*")
_PLAIN_ROW = re.compile(rf"(?:(?:{_PLAIN.pattern})?\n){{{len(COLUMNS)}}}")

# One field and, not consumed, the comma or the end that must follow it.
_FIELD = re.compile(r'(?:"((?:[^"]++|"")*+)"|([^",\r\n]*+))(?=,|\Z)')


def _visible(match: re.Match[str]) -> str:
    code = ord(match.group())
    return f"\\x{code:02x}" if code <= 0xFF else f"\\u{code:04x}"


def neutralise(text: str) -> str:
    """The text made safe for a cell: control characters as ``\\xNN`` or ``\\uNNNN``, and no formula.

    A cell that a spreadsheet would evaluate gets an apostrophe in front; ``restore`` removes it. The escapes
    cannot be undone, because a literal backslash is left as it is.
    """
    shown = _INVISIBLE.sub(_visible, text)
    return "'" + shown if _FORMULA.match(shown) else shown


def restore(field: str) -> str:
    """A parsed field without the apostrophe that ``neutralise`` put in front."""
    return field[1:] if field.startswith("'") and _FORMULA.match(field) else field


def _cell(text: str) -> str:
    if not text or _PLAIN.fullmatch(text):
        return text
    shown = neutralise(text)
    return '"' + shown.replace('"', '""') + '"' if "," in shown or '"' in shown else shown


def render(
    columns: Mapping[str, str], *, sequence: int, incarnation: str, database_id: str, server: str
) -> str:
    """One row, with its CRLF. ``columns`` come from an event; ``server`` is this node's name.

    Adds what only the commit knows: ``S:Seq``, ``S:Boot`` and ``S:Db`` come first in custom-data, before any
    foreign text (readers take the first entry of a name). Fills the host name column of this node's side if
    the event left it empty. Never raises: a row that cannot be rendered would stop the log for good, so
    columns outside ``COLUMNS`` are left out.
    """
    row = {**_EMPTY, **columns}
    here = "client-hostname" if row["event-id"] in OUTBOUND else "server-hostname"
    row[here] = row[here] or server
    own = f"S:Seq={sequence};S:Boot={incarnation};S:Db={database_id}"
    more = row["custom-data"]
    row["custom-data"] = f"{own};{more}" if more else own
    row["log-id"] = f"{incarnation}-{sequence}"
    row["schema-version"] = SCHEMA_VERSION
    cells = list(row.values())[: len(COLUMNS)]
    if not _PLAIN_ROW.fullmatch("\n".join([*cells, ""])):
        cells = list(map(_cell, cells))
    return ",".join(cells) + LINE_END


def parse_row(line: str) -> dict[str, str]:
    """The columns of one row, with or without its line end; removes the apostrophes of ``neutralise``.

    Raises ValueError if the line is not one row of exactly 30 columns.
    """
    text = line.removesuffix("\n").removesuffix("\r")
    fields: list[str] = []
    at = 0
    # The csv module refuses fields over 131,072 characters; a recipient list may be longer.
    while found := _FIELD.match(text, at):
        quoted, plain = found.groups()
        fields.append(plain if quoted is None else quoted.replace('""', '"'))
        at = found.end() + 1
        if found.end() == len(text):
            break
    if at != len(text) + 1 or len(fields) != len(COLUMNS):
        raise ValueError(f"not a row of {len(COLUMNS)} fields")
    return {name: restore(field) for name, field in zip(COLUMNS, fields, strict=True)}


def custom_entries(custom_data: str) -> dict[str, str]:
    """The entries of custom-data by name, without their types; the first entry of a name counts."""
    entries: dict[str, str] = {}
    for entry in custom_data.split(";"):
        name, equals, text = entry.partition("=")
        if equals:
            entries.setdefault(name.partition(":")[2] or name, text)
    return entries


def row_identity(row: Mapping[str, str]) -> tuple[int, str]:
    """Sequence and incarnation of a parsed row. Raises ValueError if it has none."""
    own = custom_entries(row["custom-data"])
    digits = own.get("Seq", "")
    if not (digits.isascii() and digits.isdigit() and own.get("Boot")):
        raise ValueError("row without sequence or incarnation")
    return int(digits), own["Boot"]


def timestamp(moment: datetime) -> str:
    """UTC, ISO 8601 with milliseconds. Raises ValueError for a naive datetime."""
    if moment.tzinfo is None:
        raise ValueError("naive datetime")
    utc = moment.astimezone(UTC)
    return f"{utc:%Y-%m-%dT%H:%M:%S}.{utc.microsecond // 1000:03d}Z"


def header(opened: datetime) -> str:
    """The comment lines that begin a file."""
    lines = (
        "#Software: shadowrelay",
        f"#Version: {SCHEMA_VERSION}",
        "#Log-type: Message Tracking Log",
        f"#Date: {timestamp(opened)}",
        f"#Fields: {','.join(COLUMNS)}",
    )
    return "".join(line + LINE_END for line in lines)
