"""Failpoints: places where this process kills itself on request, so that tests can crash it there.

``SHADOWRELAY_FAILPOINT=before-250:7`` sends SIGKILL at the seventh passage of that place. The variable is
read once, when this module is imported; without it, the functions that the places call do nothing. It is only
for tests: setting it in production loses a node, and no mail.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

VARIABLE = "SHADOWRELAY_FAILPOINT"

Point: TypeAlias = Literal[
    "before-shadow-commit",
    "after-shadow-commit",
    "after-shadow-reply",
    "before-local-commit",
    "after-local-commit",
    "before-250",
    "before-record-commit",
    "after-record-commit",
    "after-next-hop-reply",
    "before-settling-commit",
    "after-settling-commit",
    "before-discard-commit",
    "after-discard-commit",
    "before-pending-commit",
    "after-pending-commit",
    "before-promotion-commit",
    "after-promotion-commit",
    "before-swap-commit",
    "after-swap-commit",
    "before-redirect-commit",
    "after-redirect-commit",
    "after-log-sync",
    "before-log-footer",
    "before-log-rename",
    "after-log-rename",
]
"""In the order of a message's life; docs/kill-points.md describes each, and what follows a crash there."""

POINTS: tuple[Point, ...] = get_args(Point)

_SENT = 0.002  # seconds after which data written to a socket has left the process

_SETTLING: tuple[Point, Point] = ("before-settling-commit", "after-settling-commit")

PENDING = "pending"
"""Stands for a row: a pending promotion has no tracking row yet."""

ARRIVING = "arriving"
"""Stands for a row: an arrival has no tracking row yet."""

_ROWS: Mapping[str, tuple[Point, Point]] = {
    "HARECEIVE": ("before-shadow-commit", "after-shadow-commit"),
    ARRIVING: ("before-local-commit", "after-local-commit"),
    "RECEIVE": ("before-record-commit", "after-record-commit"),
    "SEND": _SETTLING,
    "SENDEXTERNAL": _SETTLING,
    "DELIVER": _SETTLING,
    "DUPLICATEDELIVER": _SETTLING,
    "HADISCARD": ("before-discard-commit", "after-discard-commit"),
    PENDING: ("before-pending-commit", "after-pending-commit"),
    "RESUBMIT": ("before-promotion-commit", "after-promotion-commit"),
    "TRANSFER": ("before-swap-commit", "after-swap-commit"),
    "HAREDIRECT": ("before-redirect-commit", "after-redirect-commit"),
}
"""A tracking row is in the transaction that makes it true, so it names the points around the commit."""


@dataclass(slots=True)
class Failpoint:
    """One point, and how many passages are left until the kill. Each point is passed in one thread only."""

    point: Point
    left: int
    kill: Callable[[Point], None]
    _due: bool = False  # the row was written: kill at its commit

    def passed(self, point: Point) -> None:
        if point == self.point and self._last():
            self.kill(point)

    def soon(self, point: Point) -> None:
        if point == self.point and self._last():
            asyncio.get_running_loop().call_later(_SENT, self.kill, point)

    def wrote(self, row: str) -> None:
        before, after = _ROWS.get(row, (None, None))
        if before == self.point and self._last():
            self.kill(before)
        if after == self.point and self._last():
            self._due = True

    def committed(self) -> None:
        if self._due:
            self.kill(self.point)

    def _last(self) -> bool:
        self.left -= 1
        return self.left == 0


def parse(text: str, kill: Callable[[Point], None]) -> Failpoint:
    """Read ``NAME`` or ``NAME:PASSAGE``; without a passage, the first one. Raises ValueError."""
    name, colon, passage = text.partition(":")
    point = next((one for one in POINTS if one == name), None)
    if point is None:
        raise ValueError(f"{VARIABLE}: no failpoint {name!r}; there are {', '.join(POINTS)}")
    if colon and not (passage.isascii() and passage.isdigit() and int(passage) > 0):
        raise ValueError(f"{VARIABLE}: the passage is a number from 1 on, not {passage!r}")
    return Failpoint(point, int(passage or 1), kill)


def armed(environ: Mapping[str, str]) -> Failpoint | None:
    """The failpoint that the variable asks for; None if it is not set or empty. Raises ValueError."""
    text = environ.get(VARIABLE, "")
    return parse(text, _kill) if text else None


def _kill(point: Point) -> None:
    """Kill this process. One line on standard error tells this end from others."""
    told = json.dumps({"event": "failpoint_reached", "point": point, "at": time.time_ns()})
    os.write(2, f"{told}\n".encode())
    os.kill(os.getpid(), signal.SIGKILL)


def _found() -> Failpoint | None:
    try:
        return armed(os.environ)
    except ValueError:
        return None  # ``shadowrelay run`` refuses to start, and says why


def _nothing(_: object) -> None:
    """The failpoint is not set."""


def _nothing_either() -> None:
    """The failpoint is not set."""


_failpoint = _found()

passed: Callable[[Point], None] = _failpoint.passed if _failpoint else _nothing
"""Kill at this place. Called once per message, or per whatever the caller handles."""

soon: Callable[[Point], None] = _failpoint.soon if _failpoint else _nothing
"""Kill a moment later, when data written to a socket before has left the process."""

wrote: Callable[[str], None] = _failpoint.wrote if _failpoint else _nothing
"""A tracking row was written in a transaction; called once per row. Kills here, or at ``committed``."""

committed: Callable[[], None] = _failpoint.committed if _failpoint else _nothing_either
"""A group of transactions is durable, and nobody was told yet; called once per group."""
