"""A node between two steps, put away and taken out again, so that the way to it need not be gone again.

Scripts that are under way cannot be copied. But a script does nothing by itself, so one that still knows all
it was begun with and has been told is begun again, and told the same (``AGAIN``). A node in which nothing
else is under way can be copied, and that may be for any time. What never changes (rows, moments, functions
without memory) is shared by all copies.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from io import BytesIO
from types import CellType, CodeType, CoroutineType, FunctionType
from typing import Any

from shadowrelay.core.greeting import greet
from shadowrelay.core.steps import Script
from shadowrelay.delivery.queue import deliver
from shadowrelay.members.effective_policy import LivePolicy
from shadowrelay.members.link import poll

from .alone import Alone
from .stand_ins import Reply

AGAIN: dict[CodeType, tuple[Any, tuple[str, ...], tuple[tuple[str, ...], ...]]] = {
    deliver.__code__: (deliver, ("copy", "next_hop", "recipients", "clock"), ()),
    greet.__code__: (greet, ("member", "clock", "after_silence"), (("mine", "asked_at"),)),
    poll.__code__: (poll, ("member", "inquiry", "policy", "clock"), (("query",),)),
}
"""Scripts that can be begun again: what each is begun with, and what it is told at its first steps."""

OWN = {poll.__code__: {"more"}}
"""What such a script knows beside what it was told, as long as it was told no more than that."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What changes, as octets, and what is shared."""

    octets: bytes
    shared: list[Any]

    def restore(self) -> Alone:
        world: Alone = _Unpickler(self).load()
        return world


def keep(world: Alone) -> Checkpoint | None:
    """None while a script is under way in that node that cannot be begun again."""
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
            return _cell, (), (value.cell_contents,), None, None, _fill
        if kind is LivePolicy:
            return LivePolicy, (value.now,)
        if kind is CoroutineType:
            if value.cr_frame is None:
                return _over, (value.__qualname__,)
            return _script, _what_it_was_told(value)
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


def _fill(cell: CellType, contents: tuple[Any]) -> None:
    (cell.cell_contents,) = contents


def _what_it_was_told(script: CoroutineType[Any, Any, Any]) -> tuple[Any, ...]:
    begun, names, told = AGAIN.get(script.cr_code, (None, (), ()))
    known = dict(script.cr_frame.f_locals)
    given = [known.pop(name, None) for name in names]
    answers = []
    for answer in told:
        if answer[0] in known:
            values = tuple(known.pop(name) for name in answer)
            answers.append(values if len(values) > 1 else values[0])
    if begun is None or known.keys() - OWN.get(script.cr_code, set()):
        raise pickle.PicklingError("it waits for something else")
    return begun, tuple(given), tuple(answers)


def _script(
    begun: Callable[..., Script[Any]], given: tuple[Any, ...], answers: tuple[Any, ...]
) -> Script[Any]:
    """One that has just told a step, as it was when it was put away."""
    script = begun(*given)
    script.send(None)
    for answer in answers:
        script.send(answer)
    return script


async def _nothing() -> None:
    """No step at all."""


def _over(title: str) -> Script[Any]:
    """One that has ended, or was dropped."""
    script = _nothing()
    script.close()
    script.__qualname__ = title
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
