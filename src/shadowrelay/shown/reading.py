"""Reads an answer into its model: what a node of another version does not tell is *not told*. Pure.

A value that is not told is shown as ``?``. A number that is not told is not zero: it is true, what is added
to it is not told either, and it is neither more nor less than another. Anything else that is not told is
false, and has no items. So whoever shows an answer needs no default for a field, and nothing unknown becomes
a zero.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from types import NoneType
from typing import Annotated, Any, NotRequired, TypeVar, cast, get_args, get_origin, get_type_hints

from typing_extensions import is_typeddict

from shadowrelay.core.values import dataclass

_Model = TypeVar("_Model")

UNKNOWN = "?"
_LISTS = (list, Sequence)
_MAPS = (dict, Mapping)
_PLACE = re.compile("[<>^]?[1-9][0-9]*")
"""How wide a value is shown, of a format specification."""


class _NotTold:
    """What every value has that is not told."""

    __slots__ = ()

    def __bool__(self) -> bool:
        return False

    def __str__(self) -> str:
        return UNKNOWN

    __repr__ = __str__

    def __format__(self, how: str) -> str:
        placed = _PLACE.match(how)
        return format(UNKNOWN, placed[0]) if placed else UNKNOWN

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)

    def __iter__(self) -> Iterator[Any]:
        return iter(())

    def __len__(self) -> int:
        return 0

    def __contains__(self, item: object) -> bool:
        return False

    def __lt__(self, other: object) -> bool:
        return False

    __gt__ = __le__ = __ge__ = __lt__


class NotTold(_NotTold):
    """Of a list, a map, or whether something is so."""

    __slots__ = ()

    def _same(self, *_: object) -> NotTold:
        return self

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _same
    __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = __neg__ = __abs__ = __round__ = __getitem__ = _same

    def get(self, _: object, default: Any = None) -> Any:
        return default

    def keys(self) -> tuple[Any, ...]:
        return ()

    items = values = keys


class NotToldNumber(NotTold):
    """Of a number."""

    __slots__ = ()

    def __bool__(self) -> bool:
        return True


class NotToldText(_NotTold, str):
    """Of a text."""

    __slots__ = ()


NOT_TOLD: Any = NotTold()
NOT_TOLD_NUMBER: Any = NotToldNumber()
NOT_TOLD_TEXT: Any = NotToldText(UNKNOWN)


class LikeItself:
    """Marks a field with a list of answers of the same model, each with ``also``: one for each worker."""

    def __init__(self, also: Any) -> None:
        self.also = also


def is_told(value: object) -> bool:
    """Does the node that answered say so much?"""
    return not isinstance(value, _NotTold)


def read(model: type[_Model], answer: Any) -> _Model:
    """The answer, in place, with all that its model has. A second reading changes nothing."""
    reader = _reader(cast(Any, model))
    return cast(_Model, reader(answer) if reader else answer)


def untold(answer: Any, path: str = "") -> list[str]:
    """The fields of an answer that was read that are not told, each once: ``nodes[].status.exposed``."""
    if not is_told(answer):
        return [path]
    if isinstance(answer, dict):
        inner = [(f"{path}.{key}" if path else str(key), value) for key, value in answer.items()]
    elif isinstance(answer, list):
        inner = [(f"{path}[]", value) for value in answer]
    else:
        return []
    return list(dict.fromkeys(found for where, value in inner for found in untold(value, where)))


def as_told(answer: Any) -> Any:
    """The answer as it came: without what is not told."""
    if isinstance(answer, dict):
        return {key: as_told(value) for key, value in answer.items() if is_told(value)}
    if isinstance(answer, list):
        return [as_told(value) for value in answer if is_told(value)]
    return answer


def with_nulls(answer: Any) -> Any:
    """The answer with None for all that is not told."""
    if isinstance(answer, Mapping):
        return {key: with_nulls(value) for key, value in answer.items()}
    if isinstance(answer, (list, tuple)):
        return [with_nulls(value) for value in answer]
    return answer if is_told(answer) else None


_Reader = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class _Field:
    """``optional``: an answer need not have it. ``lacking``: makes what an answer gets that lacks it."""

    reader: _Reader | None
    lacking: Callable[[], Any]
    optional: bool
    may_be_none: bool


@cache
def _reader(hint: Any) -> _Reader | None:
    """What reads a value of that type; None if there is nothing to read in it."""
    origin, args = get_origin(hint), get_args(hint)
    if is_typeddict(hint):
        return _of_model(hint)
    if origin in (Annotated, NotRequired):
        return _reader(args[0])
    if origin in _LISTS:
        return _of_list(_reader(args[0]))
    if origin in _MAPS or not args:
        return None
    inner = tuple(one for one in args if one is not NoneType)  # a union
    if len(inner) > 1 and all(map(is_typeddict, inner)):
        return _of_either(inner)
    return next(filter(None, map(_reader, inner)), None)


def _of_model(model: Any) -> _Reader:
    fields = {name: _field(model, name, hint) for name, hint in _hints(model).items()}
    for name, hint in _hints(model).items():
        if also := next((one.also for one in _marks(hint) if isinstance(one, LikeItself)), None):
            fields[name] = replace(fields[name], reader=_of_list(_of_worker(model, _of_model(also))))
    needed = frozenset(name for name, one in fields.items() if not one.optional)
    inner = [(name, one.reader) for name, one in fields.items() if one.reader]
    strict = [name for name in needed if not fields[name].may_be_none]

    def read_model(answer: Any) -> Any:
        if not isinstance(answer, dict):
            return answer
        for name in needed - answer.keys():
            answer[name] = fields[name].lacking()
        for name in strict:
            if answer[name] is None:
                answer[name] = fields[name].lacking()
        for name, reader in inner:
            if name in answer:
                answer[name] = reader(answer[name])
        return answer

    return read_model


def _marks(hint: Any) -> tuple[Any, ...]:
    if get_origin(hint) is NotRequired:
        (hint,) = get_args(hint)
    return getattr(hint, "__metadata__", ())


def _of_worker(model: Any, also: _Reader) -> _Reader:
    def read_worker(answer: Any) -> Any:
        found = also(answer)
        return read(model, found) if isinstance(found, dict) and found["answers"] else found

    return read_worker


def _hints(model: Any) -> Mapping[str, Any]:
    return get_type_hints(model, include_extras=True)


def _field(model: Any, name: str, hint: Any) -> _Field:
    optional = name not in model.__required_keys__ or get_origin(hint) is NotRequired
    kinds = _kinds(hint)
    reader = _reader(hint)
    nothing = _nothing(kinds - {NoneType})

    def lacking() -> Any:
        return reader({}) if reader and len(kinds) == 1 and all(map(is_typeddict, kinds)) else nothing

    return _Field(reader, lacking, optional, NoneType in kinds or Any in kinds)


def _nothing(kinds: set[Any]) -> Any:
    if kinds == {str}:
        return NOT_TOLD_TEXT
    return NOT_TOLD_NUMBER if kinds and kinds <= {int, float} else NOT_TOLD


def _kinds(hint: Any) -> set[Any]:
    """The types that a value of that type may have, without what is in them."""
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Annotated, NotRequired):
        return _kinds(args[0])
    if origin in (*_LISTS, *_MAPS) or not args:
        return {origin or hint}
    if any(isinstance(one, str) for one in args):  # Literal
        return {str}
    return {kind for one in args for kind in _kinds(one)}


def _of_list(each: _Reader | None) -> _Reader | None:
    if each is None:
        return None

    def read_list(values: Any) -> Any:
        if isinstance(values, list):
            values[:] = map(each, values)
        return values

    return read_list


def _of_either(models: tuple[Any, ...]) -> _Reader:
    """Of several models: that of a node that answers is the first, and else the one that fits best."""
    fields = [frozenset(_hints(one)) for one in models]
    readers = [_of_model(one) for one in models]
    of_nodes = all("answers" in one for one in fields)

    def read_either(value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        if of_nodes:
            return readers[0 if value.get("answers") else -1](value)
        fits = [(len(one & value.keys()), -len(one - value.keys())) for one in fields]
        return readers[fits.index(max(fits))](value)

    return read_either
