"""The shapes of bodies, parameters and answers in the API's description: JSON Schema, in few words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Shape = Mapping[str, Any]

TEXT: Shape = {"type": "string"}
MAYBE: Shape = {"type": ["string", "null"]}
FLAG: Shape = {"type": "boolean"}
COUNT: Shape = {"type": "integer", "minimum": 0}
NUMBER: Shape = {"type": "number"}
ANY: Shape = {}
OBJECT: Shape = {"type": "object"}
OBJECTS: Shape = {"type": "array", "items": OBJECT}
NAMES: Shape = {"type": "array", "items": TEXT}


def one_of(*choices: str) -> Shape:
    return {"type": "string", "enum": list(choices)}


def maybe(shape: Shape) -> Shape:
    return {"anyOf": [shape, {"type": "null"}]}


def answer(**members: Shape) -> Shape:
    """An object that has these members, and may have others: answers grow."""
    return {"type": "object", "properties": dict(members), "required": list(members)}


def body(*required: str, **members: Shape) -> Shape:
    """An object that has these members alone; those in ``required`` have to be there."""
    shape: dict[str, Any] = {"type": "object", "properties": dict(members), "additionalProperties": False}
    return shape | ({"required": list(required)} if required else {})


LIMIT: Shape = {"type": "integer", "minimum": 1, "maximum": 500}
PAGE: Mapping[str, Shape] = {"after": TEXT, "limit": LIMIT}
"""The parameters of a list: where a page begins (the ``next`` of the page before), and how much it has."""


@dataclass(frozen=True, slots=True)
class Operation:
    """What one method of one path does. ``statuses``: the refusals that only some operations have."""

    method: str
    path: str
    summary: str
    answer: Shape
    query: Mapping[str, Shape] = field(default_factory=dict)
    body: Shape | None = None
    statuses: tuple[int, ...] = ()
    content: str = "application/json"
    open: bool = False  # without a token
