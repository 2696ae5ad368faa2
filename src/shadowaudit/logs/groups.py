"""Sums, least and greatest by group: rows name their group by its number."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Long = NDArray[np.int64]

NONE_LEAST: int = np.iinfo(np.int64).max
NONE_GREATEST: int = np.iinfo(np.int64).min
"""What stands for the least and the greatest of no values."""


@dataclass(frozen=True, slots=True)
class Groups:
    """``of``: each row's group, a number below ``size``. ``where``: numbers of the rows that count."""

    of: Long
    size: int

    def count(self, where: Long) -> Long:
        found: Long = np.bincount(self.of[where], minlength=self.size).astype(np.int64, copy=False)
        return found

    def total(self, values: Long, where: Long | None = None) -> Long:
        """Sums wrap around at 64 bits, as fingerprints may."""
        found = np.zeros(self.size, dtype=np.int64)
        if where is None:
            np.add.at(found, self.of, values)
        elif len(where):
            np.add.at(found, self.of[where], values[where])
        return found

    def least(self, values: Long, where: Long | None = None) -> Long:
        return self._reduced(np.minimum, NONE_LEAST, values, where)

    def greatest(self, values: Long, where: Long | None = None) -> Long:
        return self._reduced(np.maximum, NONE_GREATEST, values, where)

    def _reduced(self, function: np.ufunc, none: int, values: Long, where: Long | None) -> Long:
        found = np.full(self.size, none, dtype=np.int64)
        if where is None:
            function.at(found, self.of, values)
        elif len(where):
            function.at(found, self.of[where], values[where])
        return found
