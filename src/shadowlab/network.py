"""Cuts and heals the links of a breakable lab.

``links/cuts.json`` says what is cut; the process that carries the links reads it when a command asks. So a
cut outlives the command, and a restart of that process.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterable, Mapping
from pathlib import Path

from shadowlab.errors import LabError
from shadowlab.layout import Layout, Manner, Way

ANSWER = b"done\n"
_PATIENCE = 10.0  # seconds until a change must be in force


def cut(layout: Layout, ways: Iterable[Way], manner: Manner = Manner.SILENT) -> None:
    """Cut more directions, in this manner; in force on return. Raises LabError."""
    _change(layout, {**read_cuts(layout.directory), **dict.fromkeys(ways, manner)})


def heal(layout: Layout) -> None:
    """Heal all cuts; in force on return. Raises LabError."""
    _change(layout, {})


def between(layout: Layout, one: str, other: str) -> tuple[Way, Way]:
    """Both directions between two nodes. Raises LabError."""
    first, second = layout.node(one).short, layout.node(other).short
    if first == second:
        raise LabError(f"{first} has no link to itself")
    return Way(first, second), Way(second, first)


def around(layout: Layout, name: str) -> tuple[Way, ...]:
    """Every direction from a node, then every direction to it."""
    own = layout.node(name).short
    others = [node.short for node in layout.nodes if node.short != own]
    return (*(Way(own, other) for other in others), *(Way(other, own) for other in others))


def read_cuts(directory: Path) -> dict[Way, Manner]:
    """What is cut now. Raises LabError."""
    path = _path(directory)
    try:
        tree = json.loads(path.read_text("utf-8"))
        return {Way(one["from"], one["to"]): Manner(one["manner"]) for one in tree}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError) as problem:
        raise LabError(f"{path} cannot be read: {problem!r}") from problem


def carried(control: tuple[str, int]) -> bool:
    """Make the process that carries the links read the file. Returns whether it answers."""
    try:
        with socket.create_connection(control, _PATIENCE) as connection:
            connection.sendall(b"look\n")
            return connection.makefile("rb").readline() == ANSWER
    except OSError:
        return False


def _change(layout: Layout, cuts: Mapping[Way, Manner]) -> None:
    if layout.links is None:
        raise LabError("the links of this lab cannot be cut: make another one with shadowlab up --breakable")
    path = _path(layout.directory)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    tree = [{"from": way.source, "to": way.target, "manner": manner.value} for way, manner in cuts.items()]
    fresh.write_text(json.dumps(tree, indent=2) + "\n", "utf-8")
    fresh.replace(path)
    if not carried(layout.links.control):
        raise LabError(f"no process carries the links; see {layout.log('links')}")


def _path(directory: Path) -> Path:
    return directory / "links" / "cuts.json"
