"""The first steps of a search that begins where it matters: one order of them, in words."""

from __future__ import annotations

from collections.abc import Generator
from re import search

from .boundary import Boundary
from .setup import Move
from .situation import Situation
from .words import describe


def second(times: int) -> tuple[str, ...]:
    """That many seconds."""
    return ("a second passes",) * times


def straight(boundary: Boundary, at: Situation) -> Generator[Move, Situation]:
    """The moves of ``Setup.line``; what each leads to is sent back.

    Until the move that an expression tells of is possible, whatever is quick happens: all but time, faults
    and next hops.
    """
    for text in boundary.setup.line:
        while True:
            moves = boundary.moves(at)
            wanted = next((move for move in moves if search(text, describe(boundary, at, move))), None)
            if wanted is not None:
                at = yield wanted
                break
            quick = next((move for move in moves if _is_quick(move)), None)
            if quick is None:
                raise LookupError(f"nothing leads to: {text}")
            at = yield quick


def _is_quick(move: Move) -> bool:
    if move[0] != "packet":
        return bool(move[0] == "step")
    late, packet = move[1]
    return not late and packet[0] != "send"
