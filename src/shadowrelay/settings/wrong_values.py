"""What pydantic found wrong, in our words: the key, the value as it was set, and what is allowed."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic_core import ErrorDetails

from shadowrelay.settings.description import ROOT, PathStep, SchemaNode, dotted, find, instead
from shadowrelay.settings.errors import SettingError
from shadowrelay.settings.origins import Origin, OriginKind, origin_of
from shadowrelay.settings.sources import Tree

_REASONS = {
    "greater_than_equal": "out of range",
    "less_than_equal": "out of range",
    "too_short": "too short",
    "string_too_short": "too short",
    "enum": "not one of the choices",
    "string_pattern_mismatch": "not allowed",
    "string_type": "not text",
    "list_type": "not a list",
    "dict_type": "not a table",
    "model_type": "not a table",
}


def error_of(
    detail: ErrorDetails, tree: Tree, origins: Mapping[str, Origin], root: SchemaNode = ROOT
) -> SettingError:
    """What pydantic found, in our words. ``tree``: the values as they were set."""
    path = tuple(step for step in detail["loc"] if step != "[key]")
    node, key = find(path, root), dotted(path)
    origin = origin_of(key, origins)
    source = str(origin) if origin else ""
    if detail["type"] == "missing":
        file = next((str(where) for where in origins.values() if where.kind is OriginKind.FILE), "")
        allowed = node.allowed() if node else ""
        return SettingError(key=key, source=file, message="has to be set", allowed=allowed)
    if detail["type"] == "extra_forbidden" or node is None:
        return unknown_setting(path, origins, root)
    if "[key]" in detail["loc"]:
        allowed = "1 to 64 of letters, digits, _ and -"
        return SettingError(key=key, source=source, message="not a name for a table", allowed=allowed)
    return SettingError(
        key=key,
        value=_shown(node, _written(tree, path, detail["input"])),
        source=source,
        message=_reason(detail),
        allowed=node.allowed(),
    )


def _reason(detail: ErrorDetails) -> str:
    if detail["type"] == "value_error":
        return str(detail.get("ctx", {}).get("error", detail["msg"]))
    return _REASONS.get(detail["type"], detail["msg"][:1].lower() + detail["msg"][1:])


def unknown_setting(
    path: Sequence[PathStep], origins: Mapping[str, Origin], root: SchemaNode = ROOT
) -> SettingError:
    """The error for an unknown setting, without its value: that may be a secret under a misspelt key."""
    key = dotted(path)
    hint, allowed = instead(find(path[:-1], root), str(path[-1]))
    message = " – ".join(filter(None, ["unknown setting", hint]))
    return SettingError(key=key, source=str(origin_of(key, origins) or ""), message=message, allowed=allowed)


def _shown(node: SchemaNode, value: Any) -> str:
    if isinstance(value, dict):
        return ""
    if node.secret:
        return "********"
    return json.dumps(value, ensure_ascii=False, default=str)


def _written(tree: Any, path: Sequence[PathStep], otherwise: Any) -> Any:
    """A value as it was set, before it was parsed as a duration or a size."""
    for step in path:
        try:
            tree = tree[step]
        except (KeyError, IndexError, TypeError):
            return otherwise
    return tree
