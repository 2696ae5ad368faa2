"""Changes settings in nested tables by ``KEY=VALUE`` options, and writes them as TOML."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from copy import deepcopy
from typing import Any

import tomli_w

from shadowrelay.settings.description import find, instead
from shadowrelay.settings.errors import SettingError, SettingsInvalid
from shadowrelay.settings.loading import validate
from shadowrelay.settings.origins import Origin, OriginKind
from shadowrelay.settings.sources import parsed


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
