"""Makes the model of an answer of an object, by the names of the model's fields. Pure.

A field is the attribute of its name, or of the path in its ``At``; what is computed is said. The type of the
field decides how a value is told: times are ISO 8601 in UTC, lengths of time are seconds, a model in a model
is made in the same way. Nothing compares the names before they are used, but a test, of every model.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from types import NoneType, UnionType
from typing import Annotated, Any, NotRequired, TypeVar, Union, get_args, get_origin, get_type_hints

from typing_extensions import is_typeddict

from shadowrelay.core.tracking_row import timestamp
from shadowrelay.core.values import dataclass

_Model = TypeVar("_Model")


@dataclass(frozen=True, slots=True)
class At:
    """Where a field of another name is: ``At("envelope.sender")``."""

    path: str


def rendered(model: type[_Model], source: object, **said: Any) -> _Model:
    """An answer of that model. ``said``: the fields that are no attributes of the source, or tell more."""
    key = model, type(source), *said
    made: _Model = (_MAKERS.get(key) or _maker(key))(source, said)
    return made


def paths(model: type) -> dict[str, str]:
    """Where each field of a model is in its source."""
    hints = get_type_hints(model, include_extras=True)
    return {name: _at(hint) or name for name, hint in hints.items()}


def required(model: Any) -> set[str]:
    """The fields that no answer of that model lacks."""
    hints = get_type_hints(model, include_extras=True)
    return {name for name in model.__required_keys__ if get_origin(hints[name]) is not NotRequired}


_MAKERS: dict[tuple[Any, ...], Callable[[object, dict[str, Any]], Any]] = {}


def _maker(key: tuple[Any, ...]) -> Callable[[object, dict[str, Any]], Any]:
    """A function that makes that model of that class. Its code is made once: lists are long."""
    model, source, *said = key
    given: dict[str, Any] = {"text": _text}
    items = []
    at, needed = paths(model), required(model)
    if unknown := set(said) - set(at):
        raise TypeError(f"{model.__name__} has no {', '.join(sorted(unknown))}")
    for name, hint in get_type_hints(model).items():
        if name in said or name in needed or hasattr(source, at[name].partition(".")[0]):
            given[f"as_{name}"] = _converter(hint)
            value = f"said[{name!r}]" if name in said else f"source.{at[name]}"
            items.append(f"{name!r}: {_told(name, value, given)}")
    code = f"lambda source, said: {{{', '.join(items)}}}"
    return _MAKERS.setdefault(key, eval(code, given))  # noqa: S307 - of names of fields


def _told(name: str, value: str, given: dict[str, Any]) -> str:
    convert = given[f"as_{name}"]
    if convert is None:
        return value
    if convert is _text:  # most are text already
        return f"(value if type(value := {value}) is str or value is None else text(value))"
    return f"as_{name}({value})"


def _at(hint: Any) -> str:
    if get_origin(hint) is NotRequired:
        (hint,) = get_args(hint)
    return next((one.path for one in getattr(hint, "__metadata__", ()) if isinstance(one, At)), "")


def _converter(hint: Any) -> Callable[[Any], Any] | None:
    """How a value becomes one of that type; None if it is told as it is."""
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Annotated, NotRequired):
        return _converter(args[0])
    if origin in (Union, UnionType):
        of, *others = [one for one in args if one is not NoneType]
        convert = None if others else _converter(of)
        if convert is None or convert is _text:
            return convert
        return lambda value: None if value is None else convert(value)
    if is_typeddict(hint):
        return lambda value: value if isinstance(value, dict) else rendered(hint, value)
    if origin is list:
        each = _converter(args[0])
        return list if each is None else lambda values: list(map(each, values)) if values else []
    if origin is dict:
        return lambda values: {str(_text(key)): value for key, value in values.items()}
    return {str: _text, float: _seconds}.get(hint)


def _text(value: Any) -> str | None:
    if isinstance(value, str):  # also a StrEnum, whose own __str__ takes longer
        return str.__str__(value)
    if isinstance(value, datetime):
        return timestamp(value)
    return None if value is None else str(value)


def _seconds(value: Any) -> float:
    return value.total_seconds() if isinstance(value, timedelta) else value
