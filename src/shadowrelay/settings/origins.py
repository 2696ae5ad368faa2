"""Tells where the value of a setting came from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class OriginKind(StrEnum):
    DEFAULT = "default"
    FILE = "file"
    ENVIRONMENT = "environment"
    OPTION = "option"


@dataclass(frozen=True, slots=True)
class Origin:
    """``detail``: the file or the variable (``…_FILE`` when the value was in a file); empty for a default."""

    kind: OriginKind
    detail: str = ""

    def __str__(self) -> str:
        return self.detail or self.kind


DEFAULT = Origin(OriginKind.DEFAULT)


def origin_of(key: str, origins: Mapping[str, Origin]) -> Origin | None:
    """The origin of a dotted key, or of the nearest table or list around it, or of something in it."""
    within = (f"{key}.", f"{key}[")
    while key:
        if key in origins:
            return origins[key]
        key = key[: max(key.rfind("."), key.rfind("["), 0)]
    return next((origin for name, origin in origins.items() if name.startswith(within)), None)
