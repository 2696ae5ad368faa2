"""Settings of back pressure: which readings of a resource are too much."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import BeforeValidator, Field, PlainSerializer

from shadowrelay.settings.section import Section
from shadowrelay.settings.values import Flag, Format, Size

_MOST = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Marks:
    """The readings at which a level changes: low to medium, medium to high, high to medium, medium to low."""

    medium: int
    high: int
    high_ends: int
    medium_ends: int

    def __str__(self) -> str:
        return "/".join(map(str, self.all))

    @property
    def all(self) -> tuple[int, int, int, int]:
        return self.medium, self.high, self.high_ends, self.medium_ends


def parse_marks(value: object, most: int = _MOST) -> Marks:
    """``96/99/97/94``."""
    if isinstance(value, Marks):
        return value
    parts = value.split("/") if isinstance(value, str) else []
    if len(parts) != 4 or not all(part.isascii() and part.isdigit() and len(part) < 11 for part in parts):
        raise ValueError("not four whole numbers with / between them")
    found = Marks(*map(int, parts))
    if not 1 <= found.medium_ends <= found.medium <= found.high <= most:
        raise ValueError(f"not 1 ≤ medium to low ≤ low to medium ≤ medium to high ≤ {most}")
    if not found.medium_ends <= found.high_ends <= found.high:
        raise ValueError("high to medium lies not between medium to low and medium to high")
    return found


def _parse_percent(value: object) -> Marks:
    return parse_marks(value, 100)


_PLAIN = PlainSerializer(str, return_type=str)
_FOUR = "low to medium, medium to high, high to medium, medium to low"

PercentMarks = Annotated[
    Marks, BeforeValidator(_parse_percent), _PLAIN, Format(f"four percentages such as 96/99/97/94: {_FOUR}")
]
CountMarks = Annotated[
    Marks, BeforeValidator(parse_marks), _PLAIN, Format(f"four numbers such as 1000/1500/1000/800: {_FOUR}")
]


class BackPressureSettings(Section):
    enabled: Flag = Field(default=False, description="Refuse mail, in an order, before anything is full.")
    data_disk: PercentMarks = Field(
        Marks(96, 99, 97, 94), description="Used space of the disk of `data_dir`: database and content."
    )
    log_disk: PercentMarks = Field(
        Marks(89, 99, 90, 80), description="The same of the tracking log, if it has another file system."
    )
    memory: PercentMarks = Field(
        Marks(72, 75, 73, 71), description="Memory of all processes of the node, of `memory_limit`."
    )
    memory_limit: Size | None = Field(
        None,
        ge=2**20,
        le=2**50,
        description="The memory that the node may have. Default: the limit of its cgroup, or the machine.",
    )
    queue: CountMarks = Field(
        Marks(100_000, 150_000, 100_000, 20_000), description="Messages that the node has to deliver."
    )
    uncommitted: CountMarks = Field(
        Marks(1_000, 1_500, 1_000, 800), description="Transactions that wait for a commit."
    )
