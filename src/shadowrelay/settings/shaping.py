"""Settings of shaping: limits of next hops."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import Field

from shadowrelay.core.delivery.shaping import LaneLimits
from shadowrelay.settings.section import Section
from shadowrelay.settings.values import DomainPattern, Integer


class ShapingSettings(Section):
    match: list[DomainPattern] = Field(
        min_length=1,
        description="Destination domains, routes, or hosts of MX: `example.net`, `*.google.com`. They count "
        "together; with `*` each next hop that no other table names counts alone.",
    )
    connections: Integer = Field(20, ge=1, le=10_000, description="Connections at a time.")
    first_connections: Integer = Field(
        2, ge=1, le=10_000, description="Connections to begin with; no more than `connections`."
    )
    growth: Integer = Field(
        10, ge=1, le=1_000_000, description="Messages taken until there is one connection more."
    )
    messages_per_session: Integer | None = Field(
        None, ge=1, le=1_000_000, description="Messages after which a session ends. Default: no limit."
    )
    messages_per_minute: Integer | None = Field(
        None, ge=1, le=1_000_000, description="Messages in any minute. Default: no limit."
    )


def shapes(tables: Mapping[str, ShapingSettings]) -> tuple[LaneLimits, ...]:
    return tuple(
        LaneLimits(name=name, **{**dict(one), "match": tuple(one.match)}) for name, one in tables.items()
    )
