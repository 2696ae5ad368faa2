"""Reads settings from a file and from the environment; each source collects all its errors."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource

from shadowrelay import failpoints
from shadowrelay.settings.description import ROOT, PathStep, SchemaNode, dotted, suggestion
from shadowrelay.settings.errors import SettingError
from shadowrelay.settings.origins import Origin, OriginKind

PREFIX = "SHADOWRELAY_"
SETTINGS_PATH_VARIABLE = "SHADOWRELAY_CONFIG"
"""Names the settings file for the commands; not a setting, like the variables for viewers and tests."""

ADMIN_VARIABLE = "SHADOWRELAY_ADMIN"
"""A node's URL for the viewers. Any other value sets the table ``admin``, as JSON."""

_DEEPEST = 32
"""Deepest nesting of tables and lists: no setting needs as much."""

_LARGEST = 1 << 20
"""Most octets of a file."""

# A dotted key of 128 parts. No name and no address in a value has as many labels.
_MANY_PARTS = re.compile(r"""(?<![\w"'-])(?:(?:[\w-]+|"[^"\n]*"|'[^'\n]*')[ \t]*\.[ \t]*){128}""")

_NO_SETTINGS = frozenset({SETTINGS_PATH_VARIABLE, "SHADOWRELAY_ADMIN_TOKEN", failpoints.VARIABLE})

Tree = dict[str, Any]


class _TooLarge(ValueError):
    """A file is larger than any settings."""


class SettingsSource(PydanticBaseSettingsSource):
    """Settings from one place: the values as nested tables, the origin of each, and the errors."""

    def __init__(self, settings: type[BaseSettings]) -> None:
        super().__init__(settings)
        self.tree: Tree = {}
        self.origins: dict[str, Origin] = {}
        self.errors: list[SettingError] = []

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        """The value of a top-level setting, with its key; False: it is parsed already."""
        del field
        return self.tree.get(field_name), field_name, False

    def __call__(self) -> Tree:
        return self.tree


class FileSource(SettingsSource):
    """One TOML file."""

    def __init__(self, settings: type[BaseSettings], path: Path) -> None:
        super().__init__(settings)
        self._path = path
        try:
            self.tree = parsed(_toml, _text(path, "utf-8-sig"))
        except UnicodeDecodeError as error:
            self._refuse(f"not UTF-8 at octet {error.start}")
        except _TooLarge as error:
            self._refuse(str(error))
        except ValueError as error:
            self._refuse(f"not TOML: {error}")
        except FileNotFoundError:
            self._refuse("there is no such file")
        except OSError as error:
            self._refuse(f"cannot be read: {error.strerror}")
        self.origins = {dotted(path): Origin(OriginKind.FILE, str(self._path)) for path in _leaves(self.tree)}

    def _refuse(self, message: str) -> None:
        self.errors.append(SettingError(key="", source=str(self._path), message=message))


class EnvironmentSource(SettingsSource):
    """Variables with our prefix: ``__`` steps into a table, ``_FILE`` at the end names a file with the value.

    Lists of text are comma-separated or JSON; tables and lists of tables are JSON. A variable names a table
    with ``_`` for a hyphen, and in any case. Every variable with our prefix must be a setting: otherwise a
    misspelt one would go unnoticed.
    """

    def __init__(
        self,
        settings: type[BaseSettings],
        environ: Mapping[str, str],
        beneath: Tree,
        *,
        prefix: str = PREFIX,
        root: SchemaNode = ROOT,
    ) -> None:
        super().__init__(settings)
        self._beneath, self._prefix, self._root = beneath, prefix, root
        # Outer tables first, so that JSON for a table does not replace a variable for one of its values.
        for variable in sorted(environ, key=lambda name: (name.count("__"), name)):
            if variable.upper().startswith(prefix) and not _for_commands(variable.upper(), environ[variable]):
                self._take(variable, environ[variable])

    def _take(self, variable: str, text: str) -> None:
        name = variable[len(self._prefix) :].lower()
        found = self._find(name)
        try:
            if found is None and name.endswith("_file"):
                found = self._find(name.removesuffix("_file"))
                text = _content(text) if found else ""
            if found is None:
                self._unknown(variable)
            else:
                self._set(variable, *found, text)
        except UnicodeDecodeError:
            self._refuse(variable, f"{text} is not UTF-8")
        except OSError as error:
            self._refuse(variable, f"{text} cannot be read: {error.strerror}")
        except _TooLarge as error:
            self._refuse(variable, f"{text} is {error}")
        except ValueError as error:
            self._refuse(variable, f"not JSON: {error}")

    def _set(self, variable: str, path: tuple[str, ...], node: SchemaNode, text: str) -> None:
        key, table = dotted(path), self.tree
        if key in self.origins:
            return self._refuse(variable, f"{key} is set by {self.origins[key]} as well")
        for step in path[:-1]:
            table = table.setdefault(step, {})
            if not isinstance(table, dict):
                return self._refuse(variable, f"{step} is set by another variable, and not to a table")
        table[path[-1]] = _parse(node, text)
        self.origins[key] = Origin(OriginKind.ENVIRONMENT, variable)
        return None

    def _find(self, name: str) -> tuple[tuple[str, ...], SchemaNode] | None:
        node, known = self._root, self._beneath
        path: tuple[str, ...] = ()
        for segment in name.split("__"):
            step = _as_spelt(segment, known) if node.named else segment
            child = node.child(step) if step else None
            if child is None:
                return None
            inner = known.get(step)
            node, known, path = child, inner if isinstance(inner, dict) else {}, (*path, step)
        return path, node

    def _unknown(self, variable: str) -> None:
        names = [_variable(path, self._prefix) for path in _settable(self._root, self._beneath)]
        hint = suggestion(variable.upper(), names)
        self._refuse(variable, " – ".join(filter(None, ["unknown setting", hint])))

    def _refuse(self, variable: str, message: str) -> None:
        self.errors.append(SettingError(key=variable, source="environment", message=message))


def _for_commands(variable: str, text: str) -> bool:
    is_url = text.lower().startswith(("http://", "https://"))
    return variable in _NO_SETTINGS or (variable == ADMIN_VARIABLE and is_url)


def parsed(parse: Callable[[str], Any], text: str) -> Any:
    """A text as a TOML or JSON parser reads it.

    Raises ValueError for text that it cannot read: a syntax error, a number that is too long, or tables and
    lists nested so deeply that the parser or our code would run out of stack.
    """
    try:
        value = parse(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    level = [value] if isinstance(value, dict | list) else []
    for _ in range(_DEEPEST):
        inside = (item.values() if isinstance(item, dict) else item for item in level)
        level = [item for items in inside for item in items if isinstance(item, dict | list)]
        if not level:
            return value
    raise ValueError("nested too deeply")


def _toml(text: str) -> Any:
    # The parser notes all tables around a key again for each part of the key.
    if _MANY_PARTS.search(text):
        raise ValueError("nested too deeply")
    return tomllib.loads(text)


def _text(path: Path, encoding: str) -> str:
    with path.open("rb") as file:
        octets = file.read(_LARGEST + 1)
    if len(octets) > _LARGEST:
        raise _TooLarge(f"larger than {_LARGEST} octets, which no settings are")
    return octets.decode(encoding)


def _content(path: str) -> str:
    return _text(Path(path), "utf-8").removesuffix("\n").removesuffix("\r")


def _parse(node: SchemaNode, text: str) -> Any:
    """A value in the form that TOML gives. Empty text leaves an optional setting unset."""
    if not text and node.optional:
        return None
    if not text and node.named:
        return {}
    of_tables = node.element is not None and node.element.table is not None
    if node.table is not None or of_tables or (node.element is not None and text.lstrip().startswith("[")):
        return parsed(json.loads, text)
    if node.element is not None:
        return [part.strip() for part in text.split(",") if part.strip()]
    return text


def _as_spelt(segment: str, known: Mapping[str, Any]) -> str:
    return next((name for name in known if re.sub("-", "_", name).lower() == segment), segment)


def _variable(path: tuple[str, ...], prefix: str) -> str:
    return prefix + "__".join(path).replace("-", "_").upper()


def _settable(node: SchemaNode, known: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    """The paths that a variable may name, with the table names of the file."""
    names = (known or ["default"]) if node.named else node.table.model_fields if node.table else []
    for name in names:
        child, inner = node.child(name), known.get(name)
        yield (name,)
        if child is not None:
            below = _settable(child, inner if isinstance(inner, dict) else {})
            yield from ((name, *path) for path in below)


def _leaves(tree: Mapping[str, Any], path: tuple[PathStep, ...] = ()) -> Iterator[tuple[PathStep, ...]]:
    for key, value in tree.items():
        if isinstance(value, dict) and value:
            yield from _leaves(value, (*path, key))
        else:
            yield (*path, key)


def merge(lower: Tree, upper: Tree) -> Tree:
    """Merge tables key by key; any other value in ``upper`` replaces that in ``lower``."""
    merged = dict(lower)
    for key, value in upper.items():
        below = merged.get(key)
        merged[key] = merge(below, value) if isinstance(below, dict) and isinstance(value, dict) else value
    return merged


def rewrite(tree: Tree, change: Callable[[SchemaNode, Any], Any], node: SchemaNode = ROOT) -> Tree:
    """The same tables, with ``change`` applied to each value that the schema knows."""

    def visit(child: SchemaNode | None, value: Any) -> Any:
        if child is None:
            return value
        if isinstance(value, dict):
            return rewrite(value, change, child)
        if isinstance(value, list):
            return [visit(child.element, item) for item in value]
        return change(child, value)

    return {key: visit(node.child(key), value) for key, value in tree.items()}
