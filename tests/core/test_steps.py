"""Steps: what a script awaits, and what it is told."""

from __future__ import annotations

import ast
import asyncio
from datetime import timedelta
from pathlib import Path

import pytest

import shadowrelay.core
from shadowrelay.core import steps
from shadowrelay.core.steps import Pause, Step, Transact

CORE = Path(shadowrelay.core.__file__).parent
LENGTH = timedelta(seconds=1)


async def script() -> int:
    await Pause(LENGTH)
    return await Transact(lambda _: 0) + 1


def test_a_step_hands_itself_to_the_driver_and_becomes_what_the_driver_sends():
    driven = script()
    assert driven.send(None) == Pause(LENGTH)
    assert isinstance(driven.send(None), Transact)
    with pytest.raises(StopIteration) as ended:
        driven.send(41)
    assert ended.value.value == 42


def test_no_event_loop_can_perform_a_step():
    with pytest.raises(RuntimeError, match="bad yield"):
        asyncio.run(script())


def awaited() -> list[tuple[str, str]]:
    found = []
    for path in sorted(CORE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            assert not isinstance(node, ast.AsyncFor | ast.AsyncWith), path
            if isinstance(node, ast.Await):
                assert isinstance(node.value, ast.Call), f"{path}: {ast.unparse(node)}"
                found.append((path.name, ast.unparse(node.value.func)))
    return found


def test_core_awaits_steps_alone():
    known = {name for name, kind in vars(steps).items() if isinstance(kind, type) and issubclass(kind, Step)}
    assert ("greeting.py", "Greet") in awaited()
    assert {name for _, name in awaited()} <= known
