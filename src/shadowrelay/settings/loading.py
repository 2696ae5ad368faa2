"""Loads settings: merges the sources, validates, and reports all errors at once."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

import tomli_w
from pydantic import ValidationError

from shadowrelay.settings.checks import cross_checks
from shadowrelay.settings.description import PathStep, SchemaNode, find, instead
from shadowrelay.settings.errors import SettingError, SettingsInvalid
from shadowrelay.settings.origins import Origin, OriginKind
from shadowrelay.settings.schema import Settings
from shadowrelay.settings.sources import EnvironmentSource, FileSource, Tree, merge, parsed, rewrite
from shadowrelay.settings.wrong_values import error_of, unknown_setting

_CONSEQUENCES = frozenset({"default_factory_not_called"})
_PLACEHOLDER = "name.invalid"


def load_settings(path: Path | None, environ: Mapping[str, str]) -> Settings:
    """Read one node's settings: environment over file over defaults.

    Raises SettingsInvalid with every error found. Without a path it reads only the environment. Relative
    paths start at the directory of the settings file.
    """
    file = None if path is None else FileSource(Settings, path)
    beneath = file() if file else {}
    environment = EnvironmentSource(Settings, environ, beneath)
    unread = [*(file.errors if file else []), *environment.errors]
    if file and file.errors:
        raise SettingsInvalid(unread)
    base = path.absolute().parent if path else Path.cwd()
    tree = rewrite(merge(beneath, environment()), lambda node, value: from_directory(base, node, value))
    origins = {**(file.origins if file else {}), **environment.origins}
    settings, errors = validate(tree, origins)
    if settings is None or unread or errors:
        raise SettingsInvalid([*unread, *errors])
    return settings


def settings_from_tree(tree: Mapping[str, Any], *, source: str = "") -> Settings:
    """Validate settings given as nested tables, as strictly as `load_settings` does."""
    origins = {key: Origin(OriginKind.FILE, source) for key in tree} if source else {}
    settings, errors = validate(dict(tree), origins)
    if settings is None or errors:
        raise SettingsInvalid(errors)
    return settings


def validate(tree: Tree, origins: Mapping[str, Origin]) -> tuple[Settings | None, list[SettingError]]:
    """The settings, or every error: of single values, and of values that do not go together.

    Errors of the second kind are looked for after leaving out the tables with wrong values, so that one
    misspelt key does not hide them.
    """
    # BaseSettings takes its own arguments, which begin with an underscore: never take these from a file.
    hidden = [key for key in tree if key.startswith("_")]
    if hidden:
        settings, errors = validate({key: tree[key] for key in tree if key not in hidden}, origins)
        return settings, [*(unknown_setting((key,), origins) for key in hidden), *errors]
    try:
        settings = Settings(**tree)
    except ValidationError as error:
        details = [
            detail for detail in error.errors(include_url=False) if detail["type"] not in _CONSEQUENCES
        ]
        errors = [error_of(detail, tree, origins) for detail in details]
        broken = {str(detail["loc"][0]) for detail in details}
        return None, errors + _remaining(tree, [detail["loc"] for detail in details], broken, origins)
    errors = list(cross_checks(settings, broken=frozenset(), origins=origins))
    ours = settings.name
    settings = settings.model_copy(
        update={"members": [member for member in settings.members if member.name != ours]}
    )
    settings._origins = dict(origins)
    return settings, errors


def _remaining(
    tree: Tree, wrong: Sequence[Sequence[PathStep]], broken: set[str], origins: Mapping[str, Origin]
) -> list[SettingError]:
    sound = {"name": _PLACEHOLDER, **{key: _sound(key, value, wrong) for key, value in tree.items()}}
    try:
        settings = Settings(**{key: value for key, value in sound.items() if value is not None})
    except ValidationError:
        return []
    return list(cross_checks(settings, broken=frozenset(broken), origins=origins))


def _sound(key: str, value: Any, wrong: Sequence[Sequence[PathStep]]) -> Any:
    """The sound part of a top-level value: all of it, all but its wrong tables, or nothing."""
    below = [path[1:] for path in wrong if path[0] == key]
    if not below:
        return value
    inner = {path[0] for path in below if path}
    group = find((key,))
    of_tables = group is not None and group.element is not None and group.element.table is not None
    if not of_tables or () in map(tuple, below):
        return _PLACEHOLDER if key == "name" else None
    if isinstance(value, dict):
        return {name: table for name, table in value.items() if name not in inner}
    return [table for index, table in enumerate(value) if index not in inner]


def from_directory(base: Path, node: SchemaNode, value: Any) -> Any:
    """A value of a settings file; a relative path starts at the file's directory."""
    if node.annotation is Path and isinstance(value, str) and value and not value.startswith("~"):
        return str(base / value)
    return value


def apply_overrides(tree: Mapping[str, Any], options: Iterable[str]) -> dict[str, Any]:
    """A copy of the tables with each ``KEY=VALUE`` applied; the last option for a key wins.

    KEY is dotted (``receive.default.max_protocol_errors``); VALUE is in TOML syntax, or else text (``15s``).
    Raises SettingsInvalid with every wrong option. Settings that no option touches are not checked, so the
    tables need not be complete.
    """
    changed = deepcopy(dict(tree))
    errors: list[SettingError] = []
    origins: dict[str, Origin] = {}
    for option in options:
        key, equals, text = (part.strip() for part in option.partition("="))
        path = tuple(key.split("."))
        if not equals:
            errors.append(SettingError(key=key, message="not an option", source="--set", allowed="KEY=VALUE"))
        elif find(path) is None:
            errors.append(_unknown(path, text))
        elif not _place(changed, path, _value(text)):
            errors.append(SettingError(key=key, message="below a value that is not a table", source="--set"))
        else:
            origins[key] = Origin(OriginKind.FILE, "--set")
    _, found = validate(changed, origins)
    errors += [error for error in found if any(_concerns(error.key, key) for key in origins)]
    if errors:
        raise SettingsInvalid(errors)
    return changed


def to_toml(tree: Mapping[str, Any]) -> str:
    """The tables as a settings file. Keys without a value (None) are left out: TOML has no null."""
    return tomli_w.dumps(_without_none(tree))


def _concerns(key: str, option: str) -> bool:
    return key == option or key.startswith((f"{option}.", f"{option}["))


def _without_none(tree: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: _without_none(value) if isinstance(value, Mapping) else value
        for key, value in tree.items()
        if value is not None
    }


def _value(text: str) -> Any:
    try:
        return parsed(tomllib.loads, f"value = {text}")["value"]
    except ValueError:
        return text


def _place(tree: dict[str, Any], path: tuple[str, ...], value: Any) -> bool:
    for step in path[:-1]:
        tree = tree.setdefault(step, {})
        if not isinstance(tree, dict):
            return False
    tree[path[-1]] = value
    return True


def _unknown(path: tuple[str, ...], value: str) -> SettingError:
    """The error for an unknown key: with the key that was meant, or all keys of the table it is not in."""
    depth = next(depth for depth in range(1, len(path) + 1) if find(path[:depth]) is None)
    hint, allowed = instead(find(path[: depth - 1]), path[depth - 1])
    message = " – ".join(filter(None, ["unknown setting", hint]))
    return SettingError(key=".".join(path), value=value, source="--set", message=message, allowed=allowed)
