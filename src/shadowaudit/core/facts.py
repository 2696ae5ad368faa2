"""What one log file says of itself: collected once when it is read, kept for as long as it counts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, Self


class Flavour(StrEnum):
    """Whose log it is, and so what evidence its rows can give."""

    RELAY = "shadowrelay"
    EXCHANGE = "exchange"


class Fault(StrEnum):
    """What may be wrong with a file: each makes the evidence incomplete."""

    UNREADABLE_FILE = "the file cannot be read"
    ENCODING = "the file is no UTF-8"
    NO_FIELDS = "no #Fields line: not a message tracking log"
    WRONG_HEADER = "a log of ours under a header that is not ours: the file was changed"
    VERSION = "a version of the format that this audit does not know"
    NO_FOOTER = "no footer: the file was cut short, or is not closed"
    TRAILING = "bytes after the footer"
    WRONG_HASH = "the SHA-256 is not that of the footer: the file was changed"
    WRONG_COUNT = "not as many rows as the footer says"
    WRONG_RANGE = "first or last sequence is not that of the footer or the name"
    UNREADABLE_ROWS = "rows that cannot be read"
    GAP = "a gap in the sequence"
    NOT_RISING = "the sequence does not rise"
    MIXED = "rows of another incarnation or database than the first row's"


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """Rows LOAD of one snapshot in one file; ``count`` and ``end`` are its closing row's, if that is here.

    Its rows are ``among`` so many before that one: where it was taken in parts, more than it has.
    """

    id: str
    listed: int = 0
    count: int | None = None
    end: int | None = None
    among: int | None = None  # None in what an older version has read: as many as ``count``


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """A log that a node still writes, by its name: whose it is, and its first row."""

    node: str
    boot: str
    first: int
    place: str = ""  # the directory


@dataclass(frozen=True, slots=True, kw_only=True)
class FileFacts:
    """One file. ``first`` and ``last`` are sequences (row numbers in Exchange's logs, which have none)."""

    path: str
    size: int = 0
    modified: int = 0  # nanoseconds
    flavour: str = Flavour.RELAY
    node: str = ""
    database: str = ""
    boot: str = ""
    first: int = 0
    last: int = 0
    rows: int = 0
    messages: int = 0
    unreadable: int = 0
    example: str = ""  # an unreadable row, shortened
    begins: int = 0  # milliseconds: the first and the last row
    ends: int = 0
    sha256: str = ""
    faults: tuple[str, ...] = ()
    first_is_snapshot: bool = False
    last_closes_snapshot: bool = False
    snapshots: tuple[Snapshot, ...] = ()
    shadows: tuple[str, ...] = ()  # servers that this node says hold copies, or that it holds copies for
    databases: Mapping[str, str] = field(default_factory=dict)  # named here: database id to server
    promoted: Mapping[str, int] = field(default_factory=dict)  # former owner's database to copies promoted
    set_back: Mapping[str, str] = field(default_factory=dict)  # databases said to be, and their servers
    witnessed: Mapping[str, int] = field(default_factory=dict)  # other databases: highest sequence seen
    undigested: int = 0  # rows without the digests that they are compared by
    headers: tuple[int, ...] = ()  # where the columns become others: octets before those #Fields lines
    names: Mapping[str, str] = field(default_factory=dict)  # digest of a next hop or server to its name

    def to_json(self) -> str:
        return json.dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The inverse. Raises ValueError or TypeError for anything else."""
        data: dict[str, Any] = json.loads(text)
        data["faults"] = tuple(data["faults"])
        data["shadows"] = tuple(data["shadows"])
        data["headers"] = tuple(data.get("headers", ()))
        data["snapshots"] = tuple(Snapshot(**one) for one in data["snapshots"])
        return cls(**data)
