"""One name, one thing: a reader who meets a class's name knows which one is meant."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src"


def defined(tree: ast.Module) -> Iterator[str]:
    """Public classes at any depth, and the module's aliases of types."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            yield node.name
    for node in tree.body:
        if isinstance(node, ast.Assign | ast.AnnAssign):
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            if isinstance(target, ast.Name) and target.id[0].isupper() and not target.id.isupper():
                yield target.id


def test_no_public_class_is_defined_twice_in_the_relay_and_its_lab() -> None:
    places: defaultdict[str, list[str]] = defaultdict(list)
    for package in ("shadowrelay", "shadowlab", "shadowmailbox"):
        for file in sorted((SOURCE / package).rglob("*.py")):
            for name in defined(ast.parse(file.read_text("utf-8"))):
                if not name.startswith("_"):
                    places[name].append(str(file.relative_to(SOURCE)))
    assert len(places) > 400, "the classes were found"
    assert {name: where for name, where in places.items() if len(where) > 1} == {}
