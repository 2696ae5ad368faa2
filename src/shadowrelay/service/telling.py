"""Which members have to be told of something: those that can be reached, and were not told it lately."""

from __future__ import annotations

from collections.abc import Collection
from typing import Generic, TypeVar

from shadowrelay.core.identifiers import ServerName

V = TypeVar("V")


class Telling(Generic[V]):
    """Remembers what each member was told. ``again``: seconds after which a member is told once more: its
    database may have been replaced. One that cannot be reached is told once it can.
    """

    def __init__(self, again: float) -> None:
        self._again = again
        self._told: dict[ServerName, tuple[float, V]] = {}

    def due(self, reachable: Collection[ServerName], what: V, at: float) -> list[ServerName]:
        """The members to tell it now. ``at``: seconds of a monotonic clock."""
        self._told = {name: known for name, known in self._told.items() if name in reachable}
        return [name for name in sorted(reachable) if not self._knows(name, what, at)]

    def told(self, name: ServerName, what: V, at: float) -> None:
        self._told[name] = at, what

    def _knows(self, name: ServerName, what: V, at: float) -> bool:
        since, told = self._told.get(name, (at, None))
        return told == what and at - since < self._again
