"""What a test module defines: pages and planted faults name it."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path


@cache
def functions_of(path: Path) -> frozenset[str]:
    """The names of its functions, also of those in a class. Each module is read once."""
    tree = ast.parse(path.read_text("utf-8"))
    return frozenset(
        node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )
