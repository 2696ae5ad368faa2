"""Lists the settings in force, each with its origin; secrets are masked."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from shadowrelay.settings.description import ROOT, PathStep, SchemaNode, dotted
from shadowrelay.settings.origins import Origin
from shadowrelay.settings.schema import Settings


@dataclass(frozen=True, slots=True)
class Effective:
    """A setting in force. ``value`` is text as in the settings file, a list of texts, or None."""

    key: str
    value: str | int | bool | list[str] | None
    origin: Origin


def effective(settings: Settings) -> Iterator[Effective]:
    """Every setting in force, in the order of the schema."""
    for path, value in _leaves(ROOT, settings, ()):
        yield Effective(dotted(path), value, settings.origin(dotted(path)))


def _leaves(
    node: SchemaNode, value: Any, path: tuple[PathStep, ...]
) -> Iterator[tuple[tuple[PathStep, ...], Any]]:
    if isinstance(value, BaseModel):
        steps: list[tuple[PathStep, Any]] = [
            (name, getattr(value, name)) for name in type(value).model_fields
        ]
    elif isinstance(value, dict):
        steps = list(value.items())
    elif isinstance(value, list) and node.element is not None and node.element.table is not None:
        steps = list(enumerate(value))
    else:
        yield path, _plain(node, value)
        return
    for step, inner in steps:
        child = node.child(step)
        if child is not None:
            yield from _leaves(child, inner, (*path, step))


def _plain(node: SchemaNode, value: Any) -> Any:
    if isinstance(value, list):
        return [(node.element or node).render(item) for item in value]
    if value is None or isinstance(value, bool):
        return value
    text = node.render(value)
    return value if isinstance(value, int) and text == str(value) else text
