"""Runs a script on the real world: every step is awaited, its result sent back."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from shadowrelay.core.steps import Script, Step

T = TypeVar("T")


async def run(script: Script[T], perform: Callable[[Step], Awaitable[Any]]) -> T:
    """Perform the script's steps in its order; what ``perform`` raises ends the script."""
    answer: Any = None
    try:
        while True:
            answer = await perform(script.send(answer))
    except StopIteration as done:
        result: T = done.value
        return result
    finally:
        script.close()
