"""The record of a setting that an operator switched for all members (``switching`` has its rules)."""

from __future__ import annotations

from dataclasses import field
from typing import ClassVar

from shadowrelay.core.records import Record
from shadowrelay.core.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Switch(Record):
    """A setting with the value that all members are to have, and who switched it. ``id``: of its last change.

    ``against``: what the settings file of this node said when it learnt this revision; every node keeps its
    own.
    """

    kind: ClassVar[str] = "switch"

    name: str
    value: bool
    against: bool = field(compare=False, repr=False)

    @property
    def key(self) -> str:
        return self.name
