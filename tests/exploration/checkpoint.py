"""A node between two steps, put away and taken out again, so that the way to it need not be gone again.

Scripts that are under way cannot be copied; a node that waits for nothing can. What never changes (rows,
moments, functions without memory) is shared by all copies.
"""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from io import BytesIO
from types import FunctionType
from typing import Any

from .alone import Alone
from .stand_ins import Reply


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What changes, as octets, and what is shared."""

    octets: bytes
    shared: list[Any]

    def restore(self) -> Alone:
        world: Alone = _Unpickler(self).load()
        return world


def keep(world: Alone) -> Checkpoint | None:
    """None while something is under way in that node."""
    if world.calls or world.vain:
        return None
    file, shared = BytesIO(), list[Any]()
    try:
        _Pickler(file, shared).dump(world)
    except (TypeError, pickle.PicklingError):
        return None
    return Checkpoint(file.getvalue(), shared)


class _Pickler(pickle.Pickler):
    def __init__(self, file: BytesIO, shared: list[Any]) -> None:
        super().__init__(file, protocol=5)
        self._shared = shared

    def persistent_id(self, value: Any) -> int | None:
        kind = type(value)
        if kind not in _IS_SHARED:
            _IS_SHARED[kind] = _is_shared(kind)
        if kind is FunctionType and value.__closure__:
            raise pickle.PicklingError("it waits for something")
        if not _IS_SHARED[kind]:
            return None
        self._shared.append(value)
        return len(self._shared) - 1


class _Unpickler(pickle.Unpickler):
    def __init__(self, checkpoint: Checkpoint) -> None:
        super().__init__(BytesIO(checkpoint.octets))
        self._shared = checkpoint.shared

    def persistent_load(self, index: Any) -> Any:
        return self._shared[index]


_IS_SHARED: dict[type, bool] = {}


def _is_shared(kind: type) -> bool:
    if kind is Reply:
        return False
    parameters = getattr(kind, "__dataclass_params__", None)
    frozen = parameters is not None and parameters.frozen
    return frozen or kind in (object, datetime, FunctionType) or issubclass(kind, Enum)
