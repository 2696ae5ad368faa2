"""Which members have to be told of something: those that can be reached, and were not told it lately."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Generic, TypeVar

from shadowrelay.core.decisions import Member
from shadowrelay.core.identifiers import Incarnation, ServerName

V = TypeVar("V")


class Telling(Generic[V]):
    """Remembers what each member was told, and in which incarnation: a later one may have another database,
    or an older state of its own, and is told again. So is one that could not be reached. ``again``: seconds
    after which a member is told once more in any case.
    """

    def __init__(self, again: float) -> None:
        self._again = again
        self._told: dict[ServerName, tuple[float, V, Incarnation | None]] = {}

    def due(self, reachable: Mapping[ServerName, Incarnation | None], what: V, at: float) -> list[ServerName]:
        """The members to tell it now. ``reachable``: with the incarnation in which each was met last. ``at``:
        seconds of a monotonic clock.
        """
        self._told = {name: known for name, known in self._told.items() if name in reachable}
        return [name for name, run in sorted(reachable.items()) if not self._knows(name, what, run, at)]

    def told(self, name: ServerName, what: V, run: Incarnation | None, at: float) -> None:
        """``run``: the incarnation of the member as it was known before it was told."""
        self._told[name] = at, what, run

    def _knows(self, name: ServerName, what: V, run: Incarnation | None, at: float) -> bool:
        since, told, by = self._told.get(name, (at, None, None))
        return told == what and by == run and at - since < self._again


def incarnations(
    known: Callable[[ServerName], Member | None], names: Collection[ServerName]
) -> dict[ServerName, Incarnation | None]:
    """The incarnation in which each of these members was met last."""
    found = {name: known(name) for name in names}
    return {name: one.lineage.incarnation if one and one.lineage else None for name, one in found.items()}
