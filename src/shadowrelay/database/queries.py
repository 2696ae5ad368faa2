"""Loads named SQL: every statement is in a .sql file, under ``-- name:``."""

from __future__ import annotations

import re
from importlib import resources

_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)


def load(file: str, package: str = __package__) -> dict[str, str]:
    """The statements of one file of a package, by name."""
    text = (resources.files(package) / file).read_text("utf-8")
    parts = _NAME.split(text)[1:]
    return {name: body.strip() for name, body in zip(parts[::2], parts[1::2], strict=True)}


def migrations() -> tuple[str, ...]:
    """The steps of the schema, in order: the first makes version 1 of an empty file."""
    folder = resources.files(__package__) / "migrations"
    names = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".sql"))
    return tuple((folder / name).read_text("utf-8") for name in names)
