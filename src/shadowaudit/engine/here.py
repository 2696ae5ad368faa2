"""The engine that is no engine: the same steps in this process, one after the other, for what is small.

It has those few operations of a DataFrame that the audit uses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

Part = Iterator[Any]
"""Record batches, made when they are asked for."""


class Here:
    """In place of a session."""

    def range(self, start: int, end: int, step: int, parts: int) -> Frame:
        """One number a part, as ``spreading.spread`` asks for them."""
        del parts
        batches = (pa.array([number], pa.int64()) for number in range(start, end, step))
        return Frame(lambda: (iter([pa.RecordBatch.from_pydict({"id": one})]) for one in batches))


@dataclass(frozen=True, slots=True)
class Frame:
    """Parts of batches. Nothing is done before they are asked for, and no part before the one ahead of it."""

    parts: Callable[[], Iterator[Part]]

    def mapInArrow(self, function: Callable[[Part], Part], schema: str) -> Frame:
        """``schema`` is what the batches have already."""
        del schema
        return Frame(lambda: (function(part) for part in self.parts()))

    def batches(self) -> Iterator[Any]:
        """All parts, one after the other."""
        for part in self.parts():
            yield from part

    def collect(self) -> list[dict[str, Any]]:
        return [row for batch in self.batches() for row in batch.to_pylist()]

    def toLocalIterator(self) -> Iterator[dict[str, Any]]:
        return (row for batch in self.batches() for row in batch.to_pylist())
