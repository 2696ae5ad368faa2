"""The record of a setting that an operator switched for all members (``switching`` has its rules)."""

from __future__ import annotations

from dataclasses import field
from typing import ClassVar, TypeAlias

from shadowrelay.core.records import Record
from shadowrelay.core.values import dataclass

SwitchValue: TypeAlias = bool | int | str | None
"""The value of a setting as a record has it: a duration is in milliseconds, a choice is its text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Switch(Record):
    """A setting with the value that all members are to have, and who switched it. ``id``: of its last change.

    ``value`` is None once it is unset: each settings file counts again. ``against``: what the settings file
    of this node said when it learnt this revision, of shadow redundancy alone; every node keeps its own.

    ``longest``, ``shortest``: of a span, the values that may still be in force somewhere, in milliseconds, as
    this node knows. None once every member has the record, and the longest has passed since.
    """

    kind: ClassVar[str] = "switch"

    name: str
    value: SwitchValue
    against: bool | None = field(default=None, compare=False, repr=False)
    longest: int | None = field(default=None, compare=False, repr=False)
    shortest: int | None = field(default=None, compare=False, repr=False)

    @property
    def key(self) -> str:
        return self.name

    @property
    def pending(self) -> bool:
        """May other values of a span still be in force somewhere?"""
        return self.longest is not None
