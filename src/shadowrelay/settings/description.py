"""Describes keys by the schema, for errors and the reference: notation, range, default, value in force."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from annotated_types import Ge, Le
from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from shadowrelay.settings.origins import Origin
from shadowrelay.settings.schema import Settings
from shadowrelay.settings.values import Format

PathStep = str | int

_MOST_NAMES = 12  # names that an error lists one by one


@dataclass(frozen=True, slots=True)
class SchemaNode:
    """A place in the schema: a table, a list, or a value. ``field`` is None inside lists and named tables."""

    annotation: Any
    metadata: tuple[Any, ...] = ()
    field: FieldInfo | None = None

    @property
    def table(self) -> type[BaseModel] | None:
        return self.annotation if is_table(self.annotation) else None

    @property
    def optional(self) -> bool:
        return self.field is not None and self.field.default is None

    @property
    def secret(self) -> bool:
        return self.annotation is SecretStr

    @property
    def element(self) -> SchemaNode | None:
        """The element of a list, or of a group of named tables."""
        if get_origin(self.annotation) in (list, dict):
            return _node(get_args(self.annotation)[-1])
        return None

    @property
    def named(self) -> bool:
        """Whether this is a group of tables that the administrator names, such as ``receive``."""
        return get_origin(self.annotation) is dict

    def child(self, step: PathStep) -> SchemaNode | None:
        """The node one step below; None when the schema has nothing of that name."""
        if self.table is not None:
            field = self.table.model_fields.get(str(step))
            return None if field is None else _node(field.annotation, tuple(field.metadata), field)
        if self.element is not None and isinstance(step, str) == self.named:
            return self.element
        return None

    def render(self, value: Any) -> str:
        """A value in the notation of the settings file."""
        if isinstance(value, list):
            inner = self.element or self
            return "[" + ", ".join(f'"{inner.render(item)}"' for item in value) + "]"
        if isinstance(value, Enum):
            return str(value.value)
        return self._format.render(value)

    def allowed(self) -> str:
        """The allowed values in words: notation and range, or the choices."""
        if isinstance(self.annotation, type) and issubclass(self.annotation, Enum):
            return alternatives([str(choice.value) for choice in self.annotation])
        if self.element is not None:
            kind = self.element.allowed()
            return "tables with names of their own" if self.named else f"a list, each {kind}"
        least = next((mark.ge for mark in self.metadata if isinstance(mark, Ge)), None)
        most = next((mark.le for mark in self.metadata if isinstance(mark, Le)), None)
        return ", ".join([self._format.text, *_range(self._format.render, least, most)])

    @property
    def _format(self) -> Format:
        if self.table is not None:
            return Format("a table")
        return next((mark for mark in self.metadata if isinstance(mark, Format)), Format("text"))


def _range(render: Callable[[Any], str], least: Any, most: Any) -> list[str]:
    if least is not None and most is not None:
        return [f"from {render(least)} to {render(most)}"]
    if least is not None:
        return [f"at least {render(least)}"]
    return [] if most is None else [f"at most {render(most)}"]


def _node(annotation: Any, metadata: tuple[Any, ...] = (), field: FieldInfo | None = None) -> SchemaNode:
    while True:
        if get_origin(annotation) is Annotated:
            annotation, *marks = get_args(annotation)
            metadata = (*metadata, *marks)
        elif get_origin(annotation) in (Union, UnionType) and type(None) in get_args(annotation):
            annotation = next(choice for choice in get_args(annotation) if choice is not type(None))
        else:
            return SchemaNode(annotation, metadata, field)


def is_table(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


ROOT = SchemaNode(Settings)


def alternatives(choices: Sequence[str]) -> str:
    """``a, b or c``."""
    return " or ".join([", ".join(choices[:-1]), choices[-1]] if len(choices) > 1 else choices)


def find(path: Sequence[PathStep], root: SchemaNode = ROOT) -> SchemaNode | None:
    """The node that a path leads to."""
    node: SchemaNode | None = root
    for step in path:
        if node is None:
            return None
        node = node.child(step)
    return node


def dotted(path: Sequence[PathStep]) -> str:
    """A path as a key: ``receive.default.listen``, ``members[0].address``."""
    text = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
    return text.removeprefix(".")


@dataclass(frozen=True, slots=True)
class Described:
    """A setting as the reference shows it. ``default`` is empty if the setting is required."""

    key: str
    allowed: str
    default: str
    doc: str


def described(node: SchemaNode = ROOT, prefix: str = "") -> Iterator[Described]:
    """Every setting, in the order of the schema; ``NAME`` stands for the name of a table."""
    if node.table is None:
        return
    for name, field in node.table.model_fields.items():
        key, child = prefix + name, node.child(name)
        if child is None:
            continue
        if child.table is not None:
            yield from described(child, f"{key}.")
        elif child.element is not None and child.element.table is not None:
            yield from described(child.element, f"{key}.NAME." if child.named else f"{key}[].")
        else:
            yield Described(key, child.allowed(), _default(child, field), field.description or "")


def _default(node: SchemaNode, field: FieldInfo) -> str:
    if field.default is PydanticUndefined:
        return ""
    return "not set" if field.default is None else node.render(field.default)


def instead(parent: SchemaNode | None, wrong: str) -> tuple[str, str]:
    """For an unknown key in a table: a hint at the key that was meant, or else the keys that exist."""
    names = list(parent.table.model_fields) if parent and parent.table else []
    if hint := suggestion(wrong, names):
        return hint, ""
    if len(names) > _MOST_NAMES:
        page = getattr(parent and parent.table, "page", "docs/reference/settings.md")
        return "", f"the keys in {page}"
    return "", alternatives(names) if names else ""


def suggestion(key: str, candidates: Sequence[str]) -> str:
    """``did you mean "…"?``, or nothing. Exchange's CamelCase and hyphens count as our spelling."""
    plain = {_plain(candidate): candidate for candidate in candidates}
    close = difflib.get_close_matches(_plain(key), plain, n=1, cutoff=0.6)
    return f'did you mean "{plain[close[0]]}"?' if close else ""


def _plain(key: str) -> str:
    return re.sub(r"[_-]", "", key).lower()


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
        yield path, _in_force(node, value)
        return
    for step, inner in steps:
        child = node.child(step)
        if child is not None:
            yield from _leaves(child, inner, (*path, step))


def _in_force(node: SchemaNode, value: Any) -> Any:
    if isinstance(value, list):
        return [(node.element or node).render(item) for item in value]
    if value is None or isinstance(value, bool):
        return value
    text = node.render(value)
    return value if isinstance(value, int) and text == str(value) else text
