"""Runs a script on the real world: every step is awaited, its result sent back."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from shadowrelay.core.steps import Script, Step

T = TypeVar("T")


class Countdown:
    """Seconds left of a time that begins when it is first asked for."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._end: float | None = None

    def left(self) -> float:
        now = asyncio.get_running_loop().time()
        if self._end is None:
            self._end = now + self._seconds
        return max(0.0, self._end - now)


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
