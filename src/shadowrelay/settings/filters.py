"""Settings of the filters that a Receive connector asks (milter)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Annotated

from pydantic import BeforeValidator, Field, PlainSerializer

from shadowrelay.settings.section import Section
from shadowrelay.settings.values import Duration, Format, HostPort, parse_dialled

_SECOND = timedelta(seconds=1)
_LONGEST_PATH = 107  # octets of the path of a Unix socket


class WhenDown(StrEnum):
    """What becomes of mail while a filter cannot be asked: it is put off (451), or taken without it."""

    TEMPFAIL = "tempfail"
    ACCEPT = "accept"


@dataclass(frozen=True, slots=True)
class FilterSocket:
    """Where a filter listens: ``path`` of a Unix socket, or a TCP address."""

    tcp: HostPort | None = None
    path: str = ""

    def __str__(self) -> str:
        return f"unix:{self.path}" if self.tcp is None else f"inet:{self.tcp}"


def parse_filter_socket(value: object) -> FilterSocket:
    """``inet:host:port``, or ``unix:`` and an absolute path."""
    if isinstance(value, FilterSocket):
        return value
    kind, _, rest = value.strip().partition(":") if isinstance(value, str) else ("", "", "")
    if kind == "inet":
        return FilterSocket(parse_dialled(rest))
    if kind != "unix":
        raise ValueError("neither inet: nor unix:")
    if not rest.startswith("/") or "\0" in rest or len(rest.encode()) > _LONGEST_PATH:
        raise ValueError(f"not an absolute path of at most {_LONGEST_PATH} octets")
    return FilterSocket(path=rest)


FilterAddress = Annotated[
    FilterSocket,
    BeforeValidator(parse_filter_socket),
    PlainSerializer(str, return_type=str),
    Format("inet:host:port, or unix: and an absolute path"),
]


class FilterSettings(Section):
    address: FilterAddress = Field(description="Where the filter listens.")
    when_down: WhenDown = Field(
        WhenDown.TEMPFAIL,
        description="Mail while it cannot be asked is put off (`tempfail`, 451), or taken unfiltered.",
    )
    connect_timeout: Duration = Field(
        timedelta(seconds=5), ge=_SECOND, le=timedelta(minutes=1), description="Time to connect to it."
    )
    command_timeout: Duration = Field(
        timedelta(seconds=30),
        ge=_SECOND,
        le=timedelta(minutes=5),
        description="Time for its answer to one step before the end of the content.",
    )
    content_timeout: Duration = Field(
        timedelta(seconds=30),
        ge=_SECOND,
        le=timedelta(minutes=5),
        description="Longest silence of it behind the content.",
    )
