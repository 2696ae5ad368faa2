"""Loops over octets and rows: run as they stand while there is little to do, compiled by numba for much.

So a small audit starts at once. What numba makes is kept beside these modules, or else in the user's cache:
it is made once for each machine and version.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import numpy as np

LITTLE = 1 << 20
"""Octets that a process reads before it has numba loaded, which takes longer than these as they are."""


class Compiler:
    """Makes functions that take arrays, and counts what they do together, by the first array's length.

    Such a function has to give the same in both ways: it takes arrays and whole numbers, no array's items are
    more than 64 bits with a sign, and what is computed may go beyond only if the rest is cut off at once.
    """

    def __init__(self, little: int = LITTLE) -> None:
        self.left = little

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        made: list[Callable[..., Any]] = []

        @wraps(function)
        def run(first: Any, *others: Any) -> Any:
            if self.left >= 0:
                self.left -= len(first)
            if self.left >= 0:
                return function(*(_plain(one) for one in (first, *others)))
            if not made:
                made.append(_compiled(function))
            return made[0](first, *others)

        return run


def _plain(given: Any) -> Any:
    """Python's numbers in place of numpy's, which are slow one by one."""
    if not isinstance(given, np.ndarray):
        return given
    return given.data if given.flags.aligned else _Unaligned(given)


class _Unaligned:
    def __init__(self, array: Any) -> None:
        self._item = array.item

    def __getitem__(self, place: int) -> int:
        return int(self._item(place))


def _compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    import numba

    try:
        made = numba.njit(nogil=True, cache=True)(function)
    except RuntimeError:  # there is nowhere to keep it
        made = numba.njit(nogil=True)(function)
    found: Callable[..., Any] = made
    return found


compiled = Compiler()
