"""A node between two steps, put away and taken out again, so that the way to it need not be gone again.

Scripts that are under way cannot be copied, but for one: a delivery that waits for its next hop has only said
what it was begun with, and is begun again. So a node that waits for nothing else can be copied, and that may
be for any time. What never changes (rows, moments, functions without memory) is shared by all copies.
"""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from io import BytesIO
from types import CellType, CodeType, FunctionType, GeneratorType
from typing import Any

from shadowrelay.core.steps import Script
from shadowrelay.primary import delivering

from .alone import FIRST_SEND, Alone
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
    """None while something is under way in that node that cannot be begun again."""
    if world.vain or any(number < FIRST_SEND for number in world.calls):
        return None
    file, shared = BytesIO(), list[Any]()
    try:
        _Pickler(file, shared).dump(world)
    except (TypeError, ValueError, pickle.PicklingError):
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
        if not _IS_SHARED[kind] or (kind is FunctionType and value.__closure__):
            return None
        self._shared.append(value)
        return len(self._shared) - 1

    def reducer_override(self, value: Any) -> Any:
        kind = type(value)
        if kind is FunctionType:
            if value.__kwdefaults__:
                raise pickle.PicklingError("nothing is known of these")
            body = _Body(value.__code__, value.__globals__, value.__qualname__)
            return _function, (body, value.__closure__), value.__defaults__, None, None, _default
        if kind is CellType:
            return _cell, (), value.cell_contents, None, None, _fill
        if kind is GeneratorType:
            if value.gi_code is not delivering.deliver.__code__ or "sent" in value.gi_frame.f_locals:
                raise pickle.PicklingError("it waits for something")
            known = value.gi_frame.f_locals
            return _delivery, tuple(known[name] for name in ("copy", "next_hop", "recipients", "clock"))
        return NotImplemented


@dataclass(frozen=True, slots=True, eq=False)
class _Body:
    """What all copies of a function with memory have in common."""

    code: CodeType
    names: dict[str, Any]
    title: str


def _function(body: _Body, cells: tuple[CellType, ...]) -> FunctionType:
    made = FunctionType(body.code, body.names, body.code.co_name, None, cells)
    made.__qualname__ = body.title
    return made


def _default(made: FunctionType, defaults: tuple[Any, ...]) -> None:
    made.__defaults__ = defaults


def _cell() -> CellType:
    return CellType()


def _fill(cell: CellType, contents: Any) -> None:
    cell.cell_contents = contents


def _delivery(*given: Any) -> Script[Any]:
    """One that has just told its first step, as it was when it was put away."""
    script = delivering.deliver(*given)
    next(script)
    return script


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
